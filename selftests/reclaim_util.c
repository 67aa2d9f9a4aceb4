// SPDX-License-Identifier: GPL-2.0
#define _FILE_OFFSET_BITS 64
#define _GNU_SOURCE
#include <errno.h>
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/loop.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/swap.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "reclaim_util.h"

#define LRU_GEN_ENABLED	"/sys/kernel/mm/lru_gen/enabled"
#define MIB		(1024 * 1024UL)
#define CONFIGFS	"/sys/kernel/config"
#define SWAPPINESS	"/proc/sys/vm/swappiness"
#define DEMOTION	"/sys/kernel/mm/numa/demotion_enabled"
#define HAS_MEMORY	"/sys/devices/system/node/has_memory"
#define SHMEM_ENABLED	"/sys/kernel/mm/transparent_hugepage/shmem_enabled"

char ru_why[512];

const char * const ru_lru_name[RU_NR_LRU] = {
	[RU_CLASSIC] = "classic",
	[RU_MGLRU] = "mglru",
};

static __printf(1, 2) int why(const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	vsnprintf(ru_why, sizeof(ru_why), fmt, args);
	va_end(args);
	return -1;
}

/*
 * Undo stack. It is also run from signal handlers, so that undoing uses
 * nothing but system calls on strings stored beforehand.
 */
enum undo_kind {
	UNDO_WRITE,	/* write @value to @path */
	UNDO_RMDIR,	/* remove the directory @path */
	UNDO_SWAPOFF,
	UNDO_UMOUNT,
	UNDO_KILL,	/* kill and reap @id */
	UNDO_CLOSE,	/* close the descriptor @id */
	UNDO_FORGET,	/* drop all pages of the disk @id, unwritten */
	UNDO_NICE,	/* give the process @id the nice value @value */
	UNDO_RMDIRS,	/* remove the directories @path0 to @path(@id - 1) */
};

struct undo {
	enum undo_kind kind;
	int id;
	char path[PATH_MAX];
	char value[256];
};

/* Deep enough for any test here: a row pushes ten, and three for each disk. */
#define MAX_UNDO	128

static struct undo undo_stack[MAX_UNDO];
static size_t undo_depth;
static pid_t undo_owner;
static bool swap_stuck;

/*
 * What is done and what undoes it go between these two: a signal in between
 * would leave the one without the other.
 */
static void undo_begin(sigset_t *old)
{
	sigset_t all;

	sigfillset(&all);
	sigprocmask(SIG_BLOCK, &all, old);
}

static void undo_end(const sigset_t *old)
{
	sigprocmask(SIG_SETMASK, old, NULL);
}

static int write_all(const char *path, const char *value, size_t len)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	ssize_t n;
	int err;

	if (fd < 0)
		return -1;
	n = write(fd, value, len);
	err = errno;
	close(fd);
	errno = err;
	return n == (ssize_t)len ? 0 : -1;
}

/*
 * The last one to close a disk has all that is dirty written, at the pace of
 * the disk. The hole is punched in the page cache first; that null_blk cannot
 * punch one is no loss.
 */
static int forget_disk(int fd)
{
	off_t size = lseek(fd, 0, SEEK_END);

	if (size < 0 ||
	    (fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
		       size) && errno != EOPNOTSUPP))
		return -1;
	return 0;
}

static int rmdirs(const char *prefix, int nr)
{
	char path[PATH_MAX + 16];
	int i, ret = 0;

	for (i = 0; i < nr; i++) {
		snprintf(path, sizeof(path), "%s%d", prefix, i);
		if (rmdir(path) && errno != ENOENT)
			ret = -1;
	}
	return ret;
}

static int undo_one(const struct undo *u)
{
	/*
	 * A cgroup is busy until its last task has been reaped, and swapoff
	 * may lack memory for a moment: 500 ticks are 5 s.
	 */
	const struct timespec tick = { .tv_nsec = 10 * 1000 * 1000 };
	int tries = 500;

	/* The disk under swap that is still on has to stay. */
	if (swap_stuck && !strncmp(u->path, CONFIGFS, strlen(CONFIGFS)))
		return -1;

	switch (u->kind) {
	case UNDO_WRITE:
		return write_all(u->path, u->value, strlen(u->value));
	case UNDO_RMDIR:
		while (rmdir(u->path) && errno == EBUSY && tries--)
			nanosleep(&tick, NULL);
		return access(u->path, F_OK) ? 0 : -1;
	case UNDO_SWAPOFF:
		/* EINVAL: it is not swap any more, a row has seen to that. */
		while (swapoff(u->path) && errno != EINVAL && tries--)
			nanosleep(&tick, NULL);
		if (tries >= 0)
			return 0;
		swap_stuck = true;
		return -1;
	case UNDO_UMOUNT:
		return umount(u->path);
	case UNDO_KILL:
		kill(u->id, SIGKILL);
		while (waitpid(u->id, NULL, 0) < 0 && errno == EINTR)
			;
		return 0;
	case UNDO_CLOSE:
		return close(u->id);
	case UNDO_FORGET:
		return forget_disk(u->id);
	case UNDO_NICE:
		/* ESRCH: its node has gone offline. */
		return setpriority(PRIO_PROCESS, u->id, atoi(u->value)) &&
		       errno != ESRCH ? -1 : 0;
	case UNDO_RMDIRS:
		return rmdirs(u->path, u->id);
	}
	return -1;
}

static void undo_complain(const struct undo *u)
{
	static const char head[] = "# not restored: ";

	/* write(2) and not printf(): may be called by a signal handler. */
	if (write(STDOUT_FILENO, head, sizeof(head) - 1) < 0 ||
	    write(STDOUT_FILENO, u->path, strlen(u->path)) < 0 ||
	    write(STDOUT_FILENO, "\n", 1) < 0)
		return;
}

/**
 * ru_mark() - current depth of the undo stack, for ru_unwind()
 */
size_t ru_mark(void)
{
	return undo_depth;
}

/**
 * ru_unwind() - take back, last one first, what was done since @mark
 */
void ru_unwind(size_t mark)
{
	sigset_t old;

	/* A signal waits until the stack is in order again. */
	undo_begin(&old);
	while (undo_depth > mark) {
		const struct undo *u = &undo_stack[--undo_depth];

		if (undo_one(u))
			undo_complain(u);
	}
	undo_end(&old);
}

/**
 * ru_stuck() - whether swap of the test could not be taken off again
 */
bool ru_stuck(void)
{
	return swap_stuck;
}

static void undo_atexit(void)
{
	if (getpid() == undo_owner)
		ru_unwind(0);
}

static void undo_signal(int sig)
{
	if (getpid() == undo_owner)
		ru_unwind(0);
	_exit(128 + sig);
}

/**
 * ru_init() - undo everything at exit and on the usual signals
 */
void ru_init(void)
{
	static const int sigs[] = { SIGINT, SIGTERM, SIGHUP, SIGQUIT,
				    SIGALRM };
	struct sigaction sa = { .sa_handler = undo_signal };
	size_t i;

	undo_owner = getpid();
	sigfillset(&sa.sa_mask);
	for (i = 0; i < ARRAY_SIZE(sigs); i++)
		sigaction(sigs[i], &sa, NULL);
	/* A child that is gone is an error for ru_tell(), and no more. */
	signal(SIGPIPE, SIG_IGN);
	atexit(undo_atexit);
}

static void undo_push(enum undo_kind kind, int id, const char *path,
		      const char *value)
{
	struct undo *u = &undo_stack[undo_depth];

	if (undo_depth == MAX_UNDO) {
		fprintf(stderr, "undo stack overflow\n");
		exit(1);
	}
	u->kind = kind;
	u->id = id;
	snprintf(u->path, sizeof(u->path), "%s", path);
	snprintf(u->value, sizeof(u->value), "%s", value);
	undo_depth++;
}

/* Have a fresh descriptor closed when it is unwound; returns it, or -1. */
static int undo_fd(int fd, const char *path)
{
	if (fd < 0)
		return why("cannot open %s: %s", path, strerror(errno));
	undo_push(UNDO_CLOSE, fd, path, "");
	return fd;
}

/**
 * ru_write() - write @value to @path; 0, or -1 with errno and ru_why
 */
int ru_write(const char *path, const char *value)
{
	if (write_all(path, value, strlen(value))) {
		int err = errno;

		why("cannot write '%s' to %s: %s", value, path, strerror(err));
		errno = err;
		return -1;
	}
	return 0;
}

static int read_line(const char *path, char *buf, size_t size)
{
	FILE *f = fopen(path, "re");

	if (!f)
		return why("cannot read %s: %s", path, strerror(errno));
	if (!fgets(buf, size, f))
		buf[0] = '\0';
	fclose(f);
	buf[strcspn(buf, "\n")] = '\0';
	return 0;
}

/**
 * ru_set() - write @value to @path and restore the old content when unwound
 */
int ru_set(const char *path, const char *value)
{
	char old[256], *word = old;
	sigset_t mask;
	int ret;

	if (read_line(path, old, sizeof(old)))
		return -1;
	/* "always [madvise] never": the word in brackets is set. */
	if (strchr(old, '[') && strchr(old, ']')) {
		word = strchr(old, '[') + 1;
		*strchr(old, ']') = '\0';
	}
	undo_begin(&mask);
	ret = ru_write(path, value);
	if (!ret)
		undo_push(UNDO_WRITE, 0, path, word);
	undo_end(&mask);
	return ret;
}

/**
 * ru_key() - the number behind @key in a "key number" file; -1 if not there
 */
long long ru_key(const char *path, const char *key)
{
	FILE *f = fopen(path, "re");
	size_t len = strlen(key);
	long long val = -1;
	char line[256];

	if (!f)
		return why("cannot read %s: %s", path, strerror(errno));
	while (fgets(line, sizeof(line), f)) {
		if (!strncmp(line, key, len) &&
		    strchr(" :\t", line[len]) && line[len]) {
			val = atoll(line + len + 1);
			break;
		}
	}
	fclose(f);
	if (val < 0)
		why("no '%s' in %s", key, path);
	return val;
}

long long ru_vmstat(const char *key)
{
	return ru_key("/proc/vmstat", key);
}

long long ru_meminfo_kb(const char *key)
{
	return ru_key("/proc/meminfo", key);
}

long long ru_mono_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1000LL + ts.tv_nsec / 1000000;
}

/**
 * ru_lru_select() - run the kernel on the classic LRU or on MGLRU
 */
int ru_lru_select(enum ru_lru kind)
{
	unsigned long enabled;
	char buf[64];

	if (access(LRU_GEN_ENABLED, F_OK)) {
		if (kind == RU_CLASSIC)
			return 0;
		return why("no MGLRU in this kernel (CONFIG_LRU_GEN)");
	}
	/* 0x7: page table walks and non-leaf young bits too, the default. */
	if (ru_set(LRU_GEN_ENABLED, kind == RU_MGLRU ? "7" : "0"))
		return -1;
	if (read_line(LRU_GEN_ENABLED, buf, sizeof(buf)))
		return -1;
	/* The file shows what took effect, as in 0x0007. */
	enabled = strtoul(buf, NULL, 0);
	if ((enabled & 1) != (kind == RU_MGLRU ? 1 : 0))
		return why("%s stays at %s", LRU_GEN_ENABLED, buf);
	return 0;
}

/**
 * ru_lru_option() - what -l of a test says: which LRU kinds to run with
 *
 * Return: 0, or -1 when @arg names none.
 */
int ru_lru_option(const char *arg, bool kinds[RU_NR_LRU])
{
	int i, nr = 0;

	for (i = 0; i < RU_NR_LRU; i++) {
		kinds[i] = !strcmp(arg, ru_lru_name[i]);
		nr += kinds[i];
	}
	return nr ? 0 : why("no LRU kind is called %s", arg);
}

/**
 * ru_shmem_huge_off() - shmem of base pages, so that a batch is what it says
 */
int ru_shmem_huge_off(void)
{
	return access(SHMEM_ENABLED, F_OK) ? 0 : ru_set(SHMEM_ENABLED, "deny");
}

/**
 * ru_pin_settings() - what the administrator may have set, as by default
 *
 * No demotion to slower memory, which is a way for anon memory to go without
 * swap, and a swappiness which has swap used at all.
 */
int ru_pin_settings(void)
{
	if (!access(DEMOTION, F_OK) && ru_set(DEMOTION, "0"))
		return -1;
	return ru_set(SWAPPINESS, "60");
}

/**
 * ru_one_node() - whether all memory is in one NUMA node
 */
bool ru_one_node(void)
{
	char nodes[64];

	/* A list such as "0" or "0-1,4"; without NUMA there is no such file. */
	return read_line(HAS_MEMORY, nodes, sizeof(nodes)) ||
	       !nodes[strcspn(nodes, "-,")];
}

static char cg_root[PATH_MAX / 2];

/*
 * Have the test itself in the root group: a limit of the group that it was
 * started in would do the reclaim which is to be left to kswapd.
 */
static int enter_root(void)
{
	char line[PATH_MAX / 2], path[PATH_MAX];
	FILE *f = fopen("/proc/self/cgroup", "re");
	sigset_t old;
	int ret;

	if (!f)
		return why("no /proc/self/cgroup: %s", strerror(errno));
	/* The line of cgroup v2 begins with 0::, the path comes next. */
	path[0] = '\0';
	while (fgets(line, sizeof(line), f)) {
		line[strcspn(line, "\n")] = '\0';
		if (strncmp(line, "0::/", 4))
			continue;
		if (snprintf(path, sizeof(path), "%s%s/cgroup.procs", cg_root,
			     line[4] ? line + 3 : "") >= (int)sizeof(path))
			path[0] = '\0';
	}
	fclose(f);
	if (!path[0])
		return why("no usable cgroup v2 in /proc/self/cgroup");
	undo_begin(&old);
	ret = ru_cg_enter(cg_root);
	if (!ret)
		undo_push(UNDO_WRITE, 0, path, "0");
	undo_end(&old);
	return ret;
}

/**
 * ru_cg_setup() - find cgroup v2 with the memory controller and enable it
 */
int ru_cg_setup(void)
{
	char path[PATH_MAX], line[PATH_MAX + 256];
	bool v1 = false;
	sigset_t old;
	FILE *f;
	int ret;

	f = fopen("/proc/mounts", "re");
	if (!f)
		return why("cannot read /proc/mounts: %s", strerror(errno));
	while (fgets(line, sizeof(line), f)) {
		char dir[PATH_MAX / 2], type[32];

		if (sscanf(line, "%*s %2047s %31s", dir, type) != 2)
			continue;
		if (!strcmp(type, "cgroup"))
			v1 = true;
		if (strcmp(type, "cgroup2"))
			continue;
		snprintf(cg_root, sizeof(cg_root), "%s", dir);
		break;
	}
	fclose(f);
	if (!cg_root[0])
		return why("cgroup v2 is not mounted%s",
			   v1 ? " (only cgroup v1 is)" : " (CONFIG_CGROUPS)");

	snprintf(path, sizeof(path), "%s/cgroup.controllers", cg_root);
	if (read_line(path, line, sizeof(line)))
		return -1;
	if (!strstr(line, "memory"))
		return why("no memory controller in %s (CONFIG_MEMCG%s)", path,
			   v1 ? ", or it is bound to cgroup v1" : "");

	snprintf(path, sizeof(path), "%s/cgroup.subtree_control", cg_root);
	if (read_line(path, line, sizeof(line)))
		return -1;
	if (!strstr(line, "memory")) {
		undo_begin(&old);
		ret = ru_write(path, "+memory");
		if (!ret)
			undo_push(UNDO_WRITE, 0, path, "-memory");
		undo_end(&old);
		if (ret)
			return -1;
	}
	return enter_root();
}

static int make_dir(const char *path)
{
	sigset_t old;
	int ret;

	undo_begin(&old);
	ret = mkdir(path, 0755);
	if (!ret)
		undo_push(UNDO_RMDIR, 0, path, "");
	else
		why("cannot make %s: %s", path, strerror(errno));
	undo_end(&old);
	return ret;
}

/**
 * ru_cg_writeback() - 0 if control groups have writeback of their own
 */
int ru_cg_writeback(void)
{
	char path[PATH_MAX], line[256], *word, *rest = line;

	snprintf(path, sizeof(path), "%s/cgroup.controllers", cg_root);
	if (read_line(path, line, sizeof(line)))
		return -1;
	while ((word = strsep(&rest, "\n ")))
		if (!strcmp(word, "io"))
			return 0;
	return why("no io controller in %s (CONFIG_BLK_CGROUP, or it is bound to cgroup v1)",
		   path);
}

/**
 * ru_cg_create() - make a cgroup below @parent (NULL: the root of the tree)
 *
 * The name gets the process id appended. A parent hands the memory controller
 * down. @path receives the directory.
 */
int ru_cg_create(char *path, const char *parent, const char *name)
{
	int n = snprintf(path, PATH_MAX, "%s/%s_%d", parent ?: cg_root, name,
			 getpid());

	if (n >= PATH_MAX)
		return why("path of the cgroup is too long");
	if (parent && ru_cg_write(parent, "cgroup.subtree_control", "+memory"))
		return -1;
	return make_dir(path);
}

static int cg_file(char *path, const char *cg, const char *file)
{
	if (snprintf(path, PATH_MAX, "%s/%s", cg, file) >= PATH_MAX)
		return why("path of the cgroup is too long");
	return 0;
}

int ru_cg_write(const char *cg, const char *file, const char *value)
{
	char path[PATH_MAX];

	return cg_file(path, cg, file) ?: ru_write(path, value);
}

int ru_cg_write_bytes(const char *cg, const char *file, size_t bytes)
{
	char value[32];

	snprintf(value, sizeof(value), "%zu", bytes);
	return ru_cg_write(cg, file, value);
}

/**
 * ru_cg_read() - the number in @file of @cg, -1 if there is none
 */
long long ru_cg_read(const char *cg, const char *file)
{
	char path[PATH_MAX], buf[64];

	if (cg_file(path, cg, file) || read_line(path, buf, sizeof(buf)))
		return -1;
	return atoll(buf);
}

/**
 * ru_cg_stat() - counter @key of the memory.stat of @cg (NULL: of the root)
 *
 * Some 64 updates for each CPU may be missing; see ru_cg_settle().
 */
long long ru_cg_stat(const char *cg, const char *key)
{
	char path[PATH_MAX];

	if (cg_file(path, cg ?: cg_root, "memory.stat"))
		return -1;
	return ru_key(path, key);
}

int ru_cg_enter(const char *cg)
{
	return ru_cg_write(cg, "cgroup.procs", "0");
}

/**
 * ru_cg_settle() - bring the counters of all groups up to date
 *
 * Reading memory.stat collects what the CPUs have pending once that is more
 * than MEMCG_CHARGE_BATCH (64) updates for each CPU, else only every other
 * second. So make as many updates, twice over, by touching memory and giving it
 * back, and read the file of the root.
 */
int ru_cg_settle(void)
{
	long batch = 64, need = 2 * batch * (sysconf(_SC_NPROCESSORS_ONLN) + 2);
	size_t page = sysconf(_SC_PAGESIZE), size = 256 * page, i;
	char *p = mmap(NULL, size, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	long done;

	if (p == MAP_FAILED)
		return why("mmap: %s", strerror(errno));
	madvise(p, size, MADV_NOHUGEPAGE);
	for (done = 0; done < need; done += 256) {
		for (i = 0; i < size; i += page)
			p[i] = 1;
		madvise(p, size, MADV_DONTNEED);
	}
	munmap(p, size);
	return ru_cg_stat(NULL, "pgscan") < 0 ? -1 : 0;
}

static void modprobe(const char *module, const char *param)
{
	pid_t pid = fork();

	if (!pid) {
		int null = open("/dev/null", O_WRONLY);

		dup2(null, STDOUT_FILENO);
		dup2(null, STDERR_FILENO);
		execlp("modprobe", "modprobe", "-q", module, param, NULL);
		_exit(127);
	}
	if (pid > 0)
		waitpid(pid, NULL, 0);
}

static int wait_for_node(const char *path, int timeout_ms)
{
	const struct timespec tick = { .tv_nsec = 5 * 1000 * 1000 };
	long long end = ru_mono_ms() + timeout_ms;

	while (access(path, F_OK)) {
		if (ru_mono_ms() > end)
			return -1;
		nanosleep(&tick, NULL);
	}
	return 0;
}

/* A null_blk device through configfs. @dev receives its node. */
static int null_blk_create(char *dev, const char *name,
			   const struct ru_disk_spec *spec)
{
	char item[PATH_MAX], path[PATH_MAX + 32], value[64];
	const struct {
		const char *attr;
		unsigned long value;
	} attrs[] = {
		{ "size", spec->mb },
		{ "blocksize", 4096 },
		{ "memory_backed", spec->keeps_data },
		{ "queue_mode", 2 },
		/* By timer, or in softirq context. */
		{ "irqmode", spec->delay_ns ? 2 : 1 },
		{ "completion_nsec", spec->delay_ns },
		{ "hw_queue_depth", spec->depth ?: 64 },
		{ "max_sectors", spec->request_pages *
				 sysconf(_SC_PAGESIZE) / 512 },
	};
	size_t i;
	sigset_t old;
	int ret;

	if (access(CONFIGFS "/nullb", F_OK))
		modprobe("null_blk", "nr_devices=0");
	if (access(CONFIGFS "/nullb", F_OK)) {
		undo_begin(&old);
		if (!mount("configfs", CONFIGFS, "configfs", 0, NULL))
			undo_push(UNDO_UMOUNT, 0, CONFIGFS, "");
		undo_end(&old);
	}
	if (access(CONFIGFS "/nullb", F_OK))
		return why("no null_blk in configfs (CONFIG_BLK_DEV_NULL_BLK, CONFIG_CONFIGFS_FS)");

	snprintf(item, sizeof(item), CONFIGFS "/nullb/%s", name);
	if (make_dir(item))
		return -1;
	for (i = 0; i < ARRAY_SIZE(attrs); i++) {
		snprintf(path, sizeof(path), "%s/%s", item, attrs[i].attr);
		snprintf(value, sizeof(value), "%lu", attrs[i].value);
		if (ru_write(path, value))
			return -1;
	}
	snprintf(path, sizeof(path), "%s/power", item);
	undo_begin(&old);
	ret = ru_write(path, "1");
	if (!ret)
		undo_push(UNDO_WRITE, 0, path, "0");
	undo_end(&old);
	if (ret)
		return -1;

	/* The disk has the name of the item since 6.5, nullb<index> before. */
	snprintf(path, sizeof(path), "/sys/block/%s", name);
	if (!access(path, F_OK)) {
		snprintf(dev, PATH_MAX, "/dev/%s", name);
	} else {
		snprintf(path, sizeof(path), "%s/index", item);
		if (read_line(path, value, sizeof(value)))
			return -1;
		snprintf(dev, PATH_MAX, "/dev/nullb%s", value);
	}
	if (wait_for_node(dev, 5000))
		return why("%s does not appear (CONFIG_DEVTMPFS, udev)", dev);
	return 0;
}

/* What mkswap(8) writes: so that the test needs no tool for it. */
static int make_swap_header(const char *dev, size_t bytes)
{
	size_t page = sysconf(_SC_PAGESIZE);
	uint32_t *info;
	char *buf;
	int fd, ret = -1;

	buf = calloc(1, page);
	fd = open(dev, O_WRONLY | O_CLOEXEC);
	if (!buf || fd < 0) {
		why("cannot open %s: %s", dev, strerror(errno));
		goto out;
	}
	/* struct swap_header: 1 KiB for a boot loader, then these. */
	info = (uint32_t *)(buf + 1024);
	info[0] = 1;			/* version */
	info[1] = bytes / page - 1;	/* last_page */
	memcpy(buf + page - 10, "SWAPSPACE2", 10);
	if (pwrite(fd, buf, page, 0) != (ssize_t)page || fsync(fd)) {
		why("cannot write %s: %s", dev, strerror(errno));
		goto out;
	}
	ret = 0;
out:
	if (fd >= 0)
		close(fd);
	free(buf);
	return ret;
}

/* Swap on @path, a disk or a file, until it is unwound. */
static int swap_on(const char *path, int flags)
{
	sigset_t old;
	int ret;

	undo_begin(&old);
	ret = swapon(path, flags);
	if (!ret)
		undo_push(UNDO_SWAPOFF, 0, path, "");
	else
		why("swapon %s: %s", path, strerror(errno));
	undo_end(&old);
	return ret;
}

/**
 * ru_swap_on() - swap on a null_blk device of @bytes made for the test
 *
 * null_blk does its I/O as a disk would; brd and zram do it synchronously,
 * which swap treats in a way of its own.
 */
int ru_swap_on(size_t bytes)
{
	const struct ru_disk_spec disk = {
		.mb = (bytes + MIB - 1) / MIB, .keeps_data = true,
	};
	char dev[PATH_MAX];
	char name[32];

	if (access("/proc/swaps", F_OK))
		return why("no swap in this kernel (CONFIG_SWAP)");
	snprintf(name, sizeof(name), "ru_swap_%d", getpid());
	if (null_blk_create(dev, name, &disk) ||
	    make_swap_header(dev, bytes))
		return -1;
	return swap_on(dev, 0);
}

/* Large enough that no test gets to its end: pages are never read twice. */
#define STREAM_MB	(1024 * 1024UL)

/**
 * ru_stream_open() - open an endless source of use-once page cache
 *
 * A null_blk device without memory behind it: reads cost no I/O time, and what
 * they leave behind is clean page cache on the file LRU, with no file system
 * and no tool involved.
 *
 * Return: a descriptor for ru_stream_read(), or -1.
 */
int ru_stream_open(void)
{
	const struct ru_disk_spec disk = { .mb = STREAM_MB };
	char dev[PATH_MAX];
	char name[32];

	snprintf(name, sizeof(name), "ru_stream_%d", getpid());
	if (null_blk_create(dev, name, &disk))
		return -1;
	return undo_fd(open(dev, O_RDONLY | O_CLOEXEC), dev);
}

/**
 * ru_stream_read() - read the @bytes behind @pos, which moves along
 */
int ru_stream_read(int fd, off_t *pos, size_t bytes)
{
	static char buf[128 * 1024];
	off_t end = *pos + bytes;

	while (*pos < end) {
		size_t want = end - *pos < (off_t)sizeof(buf) ?
			      (size_t)(end - *pos) : sizeof(buf);
		ssize_t n = pread(fd, buf, want, *pos);

		if (n <= 0)
			return why("read of the stream: %s",
				   n ? strerror(errno) : "it is at its end");
		*pos += n;
	}
	return 0;
}

/* Descriptors of the parent that a new child has to close: others' pipes. */
static void close_pipes(void)
{
	size_t i;

	for (i = 0; i < undo_depth; i++)
		if (undo_stack[i].kind == UNDO_CLOSE &&
		    !strcmp(undo_stack[i].path, "pipe"))
			close(undo_stack[i].id);
}

/**
 * ru_fork() - fork a child that dies with the parent or when it is unwound
 *
 * The child must leave by _exit(). Returns its pid, 0 in the child, or -1.
 */
pid_t ru_fork(struct ru_child *child)
{
	pid_t parent = getpid();
	int to[2], from[2];
	sigset_t old;

	if (pipe(to))
		return why("pipe: %s", strerror(errno));
	if (pipe(from)) {
		close(to[0]);
		close(to[1]);
		return why("pipe: %s", strerror(errno));
	}
	fflush(stdout);
	undo_begin(&old);
	child->pid = fork();
	if (!child->pid) {
		/* Only then does each side see when the other one is gone. */
		close_pipes();
		close(to[1]);
		close(from[0]);
		child->in = to[0];
		child->out = from[1];
		undo_depth = 0;
		undo_owner = 0;
		undo_end(&old);
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() != parent)
			_exit(1);
		return 0;
	}
	close(to[0]);
	close(from[1]);
	child->to = to[1];
	child->from = from[0];
	undo_push(UNDO_CLOSE, to[1], "pipe", "");
	undo_push(UNDO_CLOSE, from[0], "pipe", "");
	if (child->pid > 0)
		undo_push(UNDO_KILL, child->pid, "", "");
	else
		why("fork: %s", strerror(errno));
	undo_end(&old);
	return child->pid;
}

/**
 * ru_order() - send a child an order, and do not wait
 */
int ru_order(struct ru_child *child, unsigned char order)
{
	if (write(child->to, &order, 1) != 1)
		return why("the child process has ended");
	return 0;
}

/**
 * ru_done() - wait until a child has carried out an order
 *
 * Return: 0, or -1 when the child has ended or @timeout_ms are over.
 */
int ru_done(struct ru_child *child, unsigned char order, int timeout_ms)
{
	struct pollfd p = { .fd = child->from, .events = POLLIN };
	unsigned char c;
	int ret;

	do {
		ret = poll(&p, 1, timeout_ms);
	} while (ret < 0 && errno == EINTR);
	if (!ret)
		return why("the child process is not done after %d ms",
			   timeout_ms);
	if (ret < 0 || read(child->from, &c, 1) != 1 || c != order)
		return why("the child process has ended");
	return 0;
}

/**
 * ru_tell() - send a child an order, and wait until it is carried out
 *
 * Return: 0, or -1 when the child has ended or @timeout_ms are over.
 */
int ru_tell(struct ru_child *child, unsigned char order, int timeout_ms)
{
	return ru_order(child, order) ?: ru_done(child, order, timeout_ms);
}

/**
 * ru_disk_make() - a disk for the test, as large and as fast as @spec says
 *
 * @dev, of PATH_MAX bytes, receives the node.
 */
int ru_disk_make(char *dev, const struct ru_disk_spec *spec)
{
	static unsigned int nr;
	char name[32];

	snprintf(name, sizeof(name), "ru_d%u_%d", nr++, getpid());
	return null_blk_create(dev, name, spec);
}

/**
 * ru_disk() - a memory-backed disk of @bytes for the test
 *
 * With @rotational the kernel takes it for a disk on which seeks are
 * expensive. That is looked at by swapon(2), so it is set before. @dev, of
 * PATH_MAX bytes, receives the node.
 */
int ru_disk(char *dev, size_t bytes, bool rotational)
{
	const struct ru_disk_spec disk = {
		.mb = (bytes + MIB - 1) / MIB, .keeps_data = true,
	};
	char path[PATH_MAX];

	if (ru_disk_make(dev, &disk))
		return -1;
	snprintf(path, sizeof(path), "/sys/block/%s/queue/rotational",
		 strrchr(dev, '/') + 1);
	/* Not undone: the disk goes away. */
	return ru_write(path, rotational ? "1" : "0");
}

/**
 * ru_swap_disk() - swap with priority @prio on a new disk, see ru_disk()
 */
int ru_swap_disk(char *dev, size_t bytes, int prio, bool rotational)
{
	if (access("/proc/swaps", F_OK))
		return why("no swap in this kernel (CONFIG_SWAP)");
	if (ru_disk(dev, bytes, rotational) || make_swap_header(dev, bytes))
		return -1;
	return swap_on(dev, SWAP_FLAG_PREFER | prio);
}

/**
 * ru_swap_file() - swap with priority @prio on a new file of @bytes, @path
 */
int ru_swap_file(const char *path, size_t bytes, int prio)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	int err;

	if (fd < 0)
		return why("cannot make %s: %s", path, strerror(errno));
	/* Swap files must not have holes. */
	err = posix_fallocate(fd, 0, bytes);
	close(fd);
	if (err)
		return why("no room for %s: %s", path, strerror(err));
	if (make_swap_header(path, bytes))
		return -1;
	return swap_on(path, SWAP_FLAG_PREFER | prio);
}

/**
 * ru_swap_used() - bytes in use of the swap on @path, -1 if there is none
 */
long long ru_swap_used(const char *path)
{
	FILE *f = fopen("/proc/swaps", "re");
	char line[PATH_MAX + 128], name[PATH_MAX];
	long long used, ret = -1;

	if (!f)
		return why("cannot read /proc/swaps: %s", strerror(errno));
	while (fgets(line, sizeof(line), f))
		if (sscanf(line, "%4095s %*s %*s %lld", name, &used) == 2 &&
		    !strcmp(name, path))
			ret = used * 1024;
	fclose(f);
	if (ret < 0)
		why("no swap on %s", path);
	return ret;
}

/**
 * ru_disk_reads() - sectors of 512 bytes that were read from the disk @dev
 */
long long ru_disk_reads(const char *dev)
{
	char path[PATH_MAX], line[512];
	long long sectors;

	snprintf(path, sizeof(path), "/sys/block/%s/stat",
		 strrchr(dev, '/') + 1);
	if (read_line(path, line, sizeof(line)))
		return -1;
	if (sscanf(line, "%*u %*u %lld", &sectors) != 1)
		return why("cannot parse %s", path);
	return sectors;
}

/**
 * ru_mount_new() - make a file system of @type on @dev and mount it
 *
 * @dir, of PATH_MAX bytes, receives the mount point. Needs mkfs.@type.
 */
int ru_mount_new(const char *dev, const char *type, char *dir)
{
	char prog[32];
	sigset_t old;
	int status = -1, ret;
	pid_t pid;

	snprintf(prog, sizeof(prog), "mkfs.%s", type);
	pid = fork();
	if (!pid) {
		int null = open("/dev/null", O_WRONLY);

		dup2(null, STDOUT_FILENO);
		dup2(null, STDERR_FILENO);
		execlp(prog, prog, "-q", dev, NULL);
		_exit(127);
	}
	if (pid < 0 || waitpid(pid, &status, 0) != pid)
		return why("fork: %s", strerror(errno));
	if (!WIFEXITED(status) || WEXITSTATUS(status))
		return why("%s %s", prog,
			   WIFEXITED(status) && WEXITSTATUS(status) == 127 ?
			   "is not installed" : "failed");

	snprintf(dir, PATH_MAX, "/tmp%.32s", strrchr(dev, '/'));
	if (make_dir(dir))
		return -1;
	undo_begin(&old);
	ret = mount(dev, dir, type, 0, NULL);
	if (!ret)
		undo_push(UNDO_UMOUNT, 0, dir, "");
	else
		why("no %s in this kernel: %s", type, strerror(errno));
	undo_end(&old);
	return ret;
}

/**
 * ru_pin_cpu() - stay on the first of the CPUs that the task may use
 */
int ru_pin_cpu(void)
{
	cpu_set_t all, one;
	int cpu;

	if (sched_getaffinity(0, sizeof(all), &all))
		return why("sched_getaffinity: %s", strerror(errno));
	for (cpu = 0; cpu < CPU_SETSIZE && !CPU_ISSET(cpu, &all); cpu++)
		;
	CPU_ZERO(&one);
	CPU_SET(cpu, &one);
	if (sched_setaffinity(0, sizeof(one), &one))
		return why("sched_setaffinity: %s", strerror(errno));
	return 0;
}

/**
 * ru_cg_drop_swapcache() - have reclaim free what @cg has in the swap cache
 *
 * What was swapped out stays there until reclaim comes by; a fault that finds
 * it there does not read from swap.
 */
int ru_cg_drop_swapcache(const char *cg, int timeout_ms)
{
	const struct timespec tick = { .tv_nsec = 5 * 1000 * 1000 };
	long long end = ru_mono_ms() + timeout_ms;
	long long left;

	for (;;) {
		if (ru_cg_settle())
			return -1;
		left = ru_cg_stat(cg, "swapcached");
		if (left <= 0)
			return left;
		if (ru_mono_ms() > end)
			return why("%lld KiB stay in the swap cache",
				   left / 1024);
		/* EAGAIN: not all of it could be reclaimed, this time. */
		if (ru_cg_write_bytes(cg, "memory.reclaim", left) &&
		    errno != EAGAIN)
			return -1;
		nanosleep(&tick, NULL);
	}
}

/* Dirty limits, and what has been written to a disk. */

#define VM_DIRTY	"/proc/sys/vm/dirty_"

/* One of the two ways to set a limit; setting one takes the other back. */
static int set_dirty_limit(const char *prefix, size_t bytes)
{
	char ratio[PATH_MAX], size[PATH_MAX], old[64], value[32];
	const char *undo = size;
	sigset_t mask;
	int ret;

	snprintf(ratio, sizeof(ratio), VM_DIRTY "%sratio", prefix);
	snprintf(size, sizeof(size), VM_DIRTY "%sbytes", prefix);
	if (read_line(size, old, sizeof(old)))
		return -1;
	if (!atoll(old)) {
		undo = ratio;
		if (read_line(ratio, old, sizeof(old)))
			return -1;
	}
	snprintf(value, sizeof(value), "%zu", bytes);
	undo_begin(&mask);
	ret = ru_write(size, value);
	if (!ret)
		undo_push(UNDO_WRITE, 0, undo, old);
	undo_end(&mask);
	return ret;
}

/**
 * ru_dirty_limits() - vm.dirty_bytes of @bytes, and half of that in background
 */
int ru_dirty_limits(size_t bytes)
{
	/* Whatever the order, one is below the other at any time. */
	return set_dirty_limit("", bytes) ?:
	       set_dirty_limit("background_", bytes / 2);
}

/**
 * ru_disk_open() - open a disk, or a file, until it is unwound
 *
 * What is dirty on a disk then, is dropped.
 */
int ru_disk_open(const char *path, int flags)
{
	int fd = undo_fd(open(path, flags | O_CLOEXEC, 0600), path);
	struct stat st;

	if (fd >= 0 && !fstat(fd, &st) && S_ISBLK(st.st_mode))
		undo_push(UNDO_FORGET, fd, path, "");
	return fd;
}

/**
 * ru_disk_written() - pages written to a disk so far
 */
long long ru_disk_written(const char *dev)
{
	char path[PATH_MAX + 32], line[256];
	unsigned long long sectors;

	snprintf(path, sizeof(path), "/sys/block/%s/stat",
		 strrchr(dev, '/') + 1);
	if (read_line(path, line, sizeof(line)))
		return -1;
	if (sscanf(line, "%*u %*u %*u %*u %*u %*u %llu", &sectors) != 1)
		return why("no sectors written in %s", path);
	return sectors * 512 / sysconf(_SC_PAGESIZE);
}

#define TRACING	"/sys/kernel/tracing"

static int mount_tracing(void)
{
	sigset_t old;

	if (access(TRACING "/events", F_OK)) {
		undo_begin(&old);
		if (!mount("tracefs", TRACING, "tracefs", 0, NULL))
			undo_push(UNDO_UMOUNT, 0, TRACING, "");
		undo_end(&old);
	}
	if (access(TRACING "/events", F_OK))
		return why("no tracefs (CONFIG_TRACING, CONFIG_EVENT_TRACING)");
	return 0;
}

/**
 * ru_trace_has() - whether the kernel has a trace event; -1 without tracing
 * @event: as in "memcg/memcg_flush_stats"
 */
int ru_trace_has(const char *event)
{
	char path[PATH_MAX];

	if (mount_tracing())
		return -1;
	snprintf(path, sizeof(path), TRACING "/events/%s", event);
	return !access(path, F_OK);
}

/**
 * ru_tracing() - a trace buffer of the test's own
 *
 * @dir, of PATH_MAX bytes, receives the directory of the instance, which goes
 * away when it is unwound.
 */
int ru_tracing(char *dir)
{
	if (mount_tracing())
		return -1;
	snprintf(dir, PATH_MAX, TRACING "/instances/ru_%d", getpid());
	return make_dir(dir);
}

/**
 * ru_trace_start() - count a trace event, in a buffer of the test's own
 * @dir: receives the directory of the buffer, PATH_MAX bytes
 * @event: one that ru_trace_has()
 * @filter: which of them
 */
int ru_trace_start(char *dir, const char *event, const char *filter)
{
	char path[PATH_MAX + 128];

	if (ru_tracing(dir))
		return -1;
	snprintf(path, sizeof(path), "%s/events/%s/filter", dir, event);
	if (ru_write(path, filter))
		return -1;
	snprintf(path, sizeof(path), "%s/events/%s/enable", dir, event);
	return ru_write(path, "1");
}

/**
 * ru_trace_count() - how many events there were since ru_trace_start()
 */
long long ru_trace_count(const char *dir)
{
	long cpus = sysconf(_SC_NPROCESSORS_CONF), cpu;
	char path[PATH_MAX + 64];
	long long sum = 0, n;

	for (cpu = 0; cpu < cpus; cpu++) {
		snprintf(path, sizeof(path), "%s/per_cpu/cpu%ld/stats", dir,
			 cpu);
		n = ru_key(path, "entries");
		if (n < 0)
			return -1;
		/* Those that the buffer had no room for. */
		sum += n + ru_key(path, "overrun");
	}
	return sum;
}

/**
 * ru_nice_kswapd() - give all kswapd the nice value @nice, until it is unwound
 *
 * With 19 it hardly runs as long as other tasks do, and these do what it leaves
 * undone: direct reclaim.
 */
int ru_nice_kswapd(int nice)
{
	DIR *proc = opendir("/proc");
	struct dirent *e;
	int found = 0;

	if (!proc)
		return why("no /proc: %s", strerror(errno));
	while ((e = readdir(proc))) {
		char path[PATH_MAX], comm[32], old[16];
		int pid = atoi(e->d_name), ret;
		sigset_t mask;

		snprintf(path, sizeof(path), "/proc/%.32s/comm", e->d_name);
		if (pid <= 0 || read_line(path, comm, sizeof(comm)) ||
		    strncmp(comm, "kswapd", 6))
			continue;
		errno = 0;
		snprintf(old, sizeof(old), "%d",
			 getpriority(PRIO_PROCESS, pid));
		undo_begin(&mask);
		ret = errno ? -1 : setpriority(PRIO_PROCESS, pid, nice);
		if (!ret)
			undo_push(UNDO_NICE, pid, comm, old);
		undo_end(&mask);
		if (ret) {
			closedir(proc);
			return why("cannot renice %s: %s", comm,
				   strerror(errno));
		}
		found++;
	}
	closedir(proc);
	return found ? 0 : why("there is no kswapd to renice");
}

/**
 * ru_loop() - a loop device on a sparse file of @bytes in memory
 *
 * @dev, of PATH_MAX bytes, receives the node. The device goes away with the
 * last one to have it open, or mounted.
 */
int ru_loop(char *dev, size_t bytes)
{
	struct loop_info64 info = { .lo_flags = LO_FLAGS_AUTOCLEAR };
	int control, file, fd, nr, ret = -1;

	control = open("/dev/loop-control", O_RDWR | O_CLOEXEC);
	if (control < 0)
		return why("no /dev/loop-control: %s (CONFIG_BLK_DEV_LOOP)",
			   strerror(errno));
	file = memfd_create("loop", MFD_CLOEXEC);
	if (file < 0 || ftruncate(file, bytes)) {
		why("memfd of %zu bytes: %s", bytes, strerror(errno));
		goto out;
	}
	nr = ioctl(control, LOOP_CTL_GET_FREE);
	if (nr < 0) {
		why("no free loop device: %s", strerror(errno));
		goto out;
	}
	snprintf(dev, PATH_MAX, "/dev/loop%d", nr);
	if (wait_for_node(dev, 5000)) {
		why("%s does not appear (CONFIG_DEVTMPFS, udev)", dev);
		goto out;
	}
	fd = open(dev, O_RDWR | O_CLOEXEC);
	if (fd < 0 || ioctl(fd, LOOP_SET_FD, file) ||
	    ioctl(fd, LOOP_SET_STATUS64, &info)) {
		why("cannot set up %s: %s", dev, strerror(errno));
	} else {
		/* For writing it may not be open while it is mounted. */
		ret = undo_fd(open(dev, O_RDONLY | O_CLOEXEC), dev);
		ret = ret < 0 ? -1 : 0;
	}
	if (fd >= 0)
		close(fd);
out:
	if (file >= 0)
		close(file);
	close(control);
	return ret;
}

/**
 * ru_cg_create_many() - make @nr empty cgroups below @parent
 */
int ru_cg_create_many(const char *parent, int nr)
{
	char prefix[PATH_MAX], path[PATH_MAX + 16];
	sigset_t old;
	int i;

	if (ru_cg_write(parent, "cgroup.subtree_control", "+memory") ||
	    cg_file(prefix, parent, "empty"))
		return -1;
	undo_begin(&old);
	undo_push(UNDO_RMDIRS, nr, prefix, "");
	undo_end(&old);
	for (i = 0; i < nr; i++) {
		snprintf(path, sizeof(path), "%s%d", prefix, i);
		if (mkdir(path, 0755))
			return why("cannot make %.200s: %s", path,
				   strerror(errno));
	}
	return 0;
}
