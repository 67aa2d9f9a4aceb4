// SPDX-License-Identifier: GPL-2.0
/*
 * Does dirty throttling go by what is dirty now, and does it throttle those who
 * dirty too much?
 *
 * A task which dirties page cache is put to sleep, in balance_dirty_pages() of
 * mm/page-writeback.c, when dirty pages come near a limit: the global one, or
 * that of its control group. That goes wrong in two ways:
 *
 *   Old numbers. The statistics of a control group are seconds old on kernels
 *   since 6.9. It fills with dirty pages up to several times its limit, and
 *   then its tasks sleep although all of them have been written.
 *
 *   A limit that falls. With more dirty pages than the limit allows, all tasks
 *   may dirty one page for each tick, on each disk, until the disk that holds
 *   the excess is done. One that is fast, and clean, stands still with it.
 *
 * The rows write to null_blk disks, most without a file system: the inode of a
 * block device does cgroup writeback as well. Some disks work at the pace of a
 * timer, so that the rate of one can be told as pages written per page that
 * another has written, whatever the host does meanwhile. Who reads memory.stat
 * has the statistics brought up to date: that is done where it makes things
 * hard, as the periodic flush does if it comes then, and never while a row is
 * watched, as it would hide the problem.
 */
#define _FILE_OFFSET_BITS 64
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "kselftest.h"
#include "reclaim_util.h"

/*
 * All sizes are in pages: what is counted, and limited, is pages, and the disks
 * are slow in pages as well.
 */

/*
 * A control group of that size; 20 % of it may be dirty, by default. Small, so
 * that it fills up well within a period of the flush.
 */
#define CG_MAX		12288UL
#define CG_LIMIT	(CG_MAX / 5)

/* What it writes at a time: 3.75 times the limit, and it fits in. */
#define CG_WRITE	(CG_LIMIT * 15 / 4)

/* vm.dirty_bytes before and after it falls. */
#define LIMIT_BEFORE	16384UL
#define LIMIT_AFTER	4096UL

/* The slow disk: 4 requests of 16 pages take 100 ms, 640 pages a second. */
#define SLOW_NS		100000000UL
#define SLOW_DEPTH	4
#define SLOW_REQUEST	16

/* The one next to it is five times as fast, and has nothing dirty. */
#define FASTER		5UL

/* FLUSH_TIME of mm/memcontrol.c: how old its statistics get. */
#define FLUSH_MS	2000

/* Polls end here: many times what a row takes under emulation. */
#define TIMEOUT_MS	30000

/* A row that has to fill all RAM is left out above that much. */
#define GLOBAL_MAX_KB	(4LL * 1024 * 1024)

/* MiB of a disk for so many pages, with room for a file system. */
#define DISK_MB(pages)	((pages) * page_size / (1024 * 1024) + 512)

/* How often dirty pages are looked at. */
#define SAMPLE_MS	10

static size_t page_size;

/* When balance_dirty_pages() has statistics flushed, for one. */
#define FLUSH_EVENT	"memcg/memcg_flush_stats"

static const char fix_memcg[] =
	"mm: page-writeback: throttle a memcg by what is dirty now";
static const char fix_floor[] =
	"mm: page-writeback: spare a wb that did not cause the excess";
static const char fix_background[] =
	"mm: page-writeback: write back what throttled tasks wait for";

/* What a task is told to write, and how far it is; shared with it. */
struct job {
	int fd;
	char path[128];		/* to be made by the task, instead of @fd; */
	bool numbered;		/* or the start of names, a page for each */
	size_t region;		/* goes round within that many pages */
	size_t pages;		/* how many to write in all */
	size_t done;
	long sleeps;		/* voluntary context switches it took */
};

struct writer {
	struct ru_child child;
	struct job *job;
};

static long sleeps_so_far(void)
{
	struct rusage usage;

	getrusage(RUSAGE_SELF, &usage);
	return usage.ru_nvcsw;
}

static int open_numbered(const char *path, size_t i)
{
	char name[PATH_MAX];

	snprintf(name, sizeof(name), "%s%zu", path, i);
	return open(name, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
}

static int write_pages(struct job *job, const char *buf)
{
	long sleeps = sleeps_so_far();
	int fd = job->fd;
	size_t i;

	if (job->path[0] && !job->numbered)
		fd = open(job->path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	for (i = 0; i < job->pages; i++) {
		off_t pos = (off_t)(i % job->region) * page_size;

		if (job->numbered) {
			fd = open_numbered(job->path, i);
			pos = 0;
		}
		if (pwrite(fd, buf, page_size, pos) != (ssize_t)page_size)
			return -1;
		__atomic_store_n(&job->done, i + 1, __ATOMIC_RELAXED);
		__atomic_store_n(&job->sleeps, sleeps_so_far() - sleeps,
				 __ATOMIC_RELAXED);
		if (job->numbered)
			close(fd);
	}
	if (job->path[0] && !job->numbered)
		return fsync(fd) ?: close(fd);
	return 0;
}

static __noreturn void writer_main(const struct writer *w, const char *cg)
{
	unsigned char order;
	char *buf;

	if (cg && ru_cg_enter(cg))
		goto fail;
	buf = malloc(page_size);
	if (!buf)
		goto fail;
	memset(buf, 1, page_size);
	while (read(w->child.in, &order, 1) == 1) {
		if (write_pages(w->job, buf)) {
			snprintf(ru_why, sizeof(ru_why), "write: %s",
				 strerror(errno));
			goto fail;
		}
		if (write(w->child.out, &order, 1) != 1)
			goto fail;
	}
	_exit(0);
fail:
	dprintf(STDOUT_FILENO, "# task that writes: %s\n", ru_why);
	_exit(1);
}

/* Start a task that writes, in @cg or outside; it inherits what is open now. */
static int writer_start(struct writer *w, const char *cg)
{
	pid_t pid;

	if (!w->job)
		w->job = mmap(NULL, sizeof(*w->job), PROT_READ | PROT_WRITE,
			      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (w->job == MAP_FAILED) {
		w->job = NULL;
		snprintf(ru_why, sizeof(ru_why), "mmap: %s", strerror(errno));
		return -1;
	}
	pid = ru_fork(&w->child);
	if (pid < 0)
		return -1;
	if (!pid)
		writer_main(w, cg);
	return 0;
}

/* Have it write; writer_wait() says when it is done. */
static int writer_go(struct writer *w, int fd, size_t region, size_t pages)
{
	unsigned char order = 'w';

	*w->job = (struct job){ .fd = fd, .region = region, .pages = pages };
	if (write(w->child.to, &order, 1) == 1)
		return 0;
	snprintf(ru_why, sizeof(ru_why), "the task that writes has ended");
	return -1;
}

static size_t writer_pages(const struct writer *w)
{
	return __atomic_load_n(&w->job->done, __ATOMIC_RELAXED);
}

static long writer_sleeps(const struct writer *w)
{
	return __atomic_load_n(&w->job->sleeps, __ATOMIC_RELAXED);
}

/* Wait for @ms at most: 1 when it is done, 0 if not yet, -1 with ru_why. */
static int writer_wait(struct writer *w, int ms)
{
	struct pollfd p = { .fd = w->child.from, .events = POLLIN };
	unsigned char order;
	int ret;

	do {
		ret = poll(&p, 1, ms);
	} while (ret < 0 && errno == EINTR);
	if (!ret)
		return 0;
	if (ret > 0 && read(w->child.from, &order, 1) == 1)
		return 1;
	snprintf(ru_why, sizeof(ru_why), "the task that writes has ended");
	return -1;
}

/* Pages that are dirty or being written; read often, so without stdio. */
static long long dirty_pages(void)
{
	static char buf[32 * 1024];
	const char *dirty, *writeback;
	ssize_t n = -1;
	int fd;

	fd = open("/proc/vmstat", O_RDONLY | O_CLOEXEC);
	if (fd >= 0) {
		n = read(fd, buf, sizeof(buf) - 1);
		close(fd);
	}
	buf[n > 0 ? n : 0] = '\0';
	dirty = strstr(buf, "\nnr_dirty ");
	writeback = strstr(buf, "\nnr_writeback ");
	if (!dirty || !writeback) {
		snprintf(ru_why, sizeof(ru_why), "cannot read /proc/vmstat");
		return -1;
	}
	return atoll(strchr(dirty, ' ')) + atoll(strchr(writeback, ' '));
}

static void tick(void)
{
	const struct timespec t = { .tv_nsec = SAMPLE_MS * 1000 * 1000 };

	nanosleep(&t, NULL);
}

/* Nothing dirty that is not of the row: the counters are those of the host. */
static int wait_until_clean(void)
{
	long long end = ru_mono_ms() + TIMEOUT_MS;
	long long dirty;

	sync();
	while ((dirty = dirty_pages()) > (long long)CG_LIMIT / 16) {
		if (ru_mono_ms() > end) {
			snprintf(ru_why, sizeof(ru_why),
				 "others keep %lld pages dirty", dirty);
			return -1;
		}
		tick();
	}
	return dirty < 0 ? -1 : 0;
}

/*
 * The timer of the periodic flush does not wake an idle CPU, and a flush that
 * is late makes each look at the limits flush instead. So be busy on each CPU
 * for as long as it takes to notice: more than two of the longest ticks.
 */
static void flush_on_time(void)
{
	cpu_set_t all, one;
	int cpu;

	if (sched_getaffinity(0, sizeof(all), &all))
		return;
	for (cpu = 0; cpu < CPU_SETSIZE; cpu++) {
		long long end = ru_mono_ms() + 2 * SAMPLE_MS + 5;

		if (!CPU_ISSET(cpu, &all))
			continue;
		CPU_ZERO(&one);
		CPU_SET(cpu, &one);
		if (sched_setaffinity(0, sizeof(one), &one))
			continue;
		while (ru_mono_ms() < end)
			;
	}
	sched_setaffinity(0, sizeof(all), &all);
}

/*
 * wb_stat_error() of include/linux/backing-dev.h: as much can be missing in a
 * counter that is summed up for each CPU only now and then. A wb may have that
 * much dirty in any case, and a task that looks at a limit goes wrong by it.
 */
static long stat_error(void)
{
	long cpus = sysconf(_SC_NPROCESSORS_CONF), log = 1;

	while (1L << log < cpus)
		log++;
	return 8 * (1 + log) * cpus;
}

static void skip(enum ru_lru lru, const char *name)
{
	ksft_test_result_skip("%s: %s: %s\n", ru_lru_name[lru], name, ru_why);
}

static void result(enum ru_lru lru, const char *name, bool ok, const char *fix)
{
	if (!ok && fix)
		ksft_print_msg("missing fix: \"%s\"\n", fix);
	ksft_test_result(ok, "%s: %s\n", ru_lru_name[lru], name);
}

/* Sleeps that watch_memcg() has seen with nothing dirty. */
static struct idle {
	long sleeps;
	long long ms;		/* time in which they were taken, at most */
} idle;

/* Watch a writer to its end; the most that was dirty, or -1 with ru_why. */
static long long watch_memcg(struct writer *w)
{
	long long end = ru_mono_ms() + TIMEOUT_MS, peak = 0;
	long long dirty = 0, dirty_before, ms, ms_before = ru_mono_ms();
	size_t pages = 0, pages_before;
	long sleeps = 0, sleeps_before;
	int ret;

	do {
		ret = writer_wait(w, SAMPLE_MS);
		if (ret < 0)
			return -1;
		pages_before = pages;
		sleeps_before = sleeps;
		dirty_before = dirty;
		pages = writer_pages(w);
		sleeps = writer_sleeps(w);
		dirty = dirty_pages();
		ms = ru_mono_ms();
		if (dirty < 0)
			return -1;
		if (dirty > peak)
			peak = dirty;
		/*
		 * With hardly anything dirty at both ends of the interval, and
		 * hardly anything written in between, hardly anything was dirty
		 * at any time of it: an eighth of the limit at most. Throttling
		 * starts above three quarters.
		 */
		if (dirty_before < (long long)CG_LIMIT / 16 &&
		    dirty < (long long)CG_LIMIT / 16 &&
		    pages - pages_before < CG_LIMIT / 16 &&
		    sleeps > sleeps_before) {
			idle.sleeps += sleeps - sleeps_before;
			idle.ms += ms - ms_before;
		}
		ms_before = ms;
		if (ms > end) {
			snprintf(ru_why, sizeof(ru_why),
				 "%zu pages are not written after %d ms",
				 w->job->pages, TIMEOUT_MS);
			return -1;
		}
	} while (!ret);
	return peak;
}

/* All written, and gone from the page cache. */
static int start_over(int fd)
{
	if (!fsync(fd) && !posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED))
		return 0;
	snprintf(ru_why, sizeof(ru_why), "fsync: %s", strerror(errno));
	return -1;
}

/*
 * A control group writes much more than may be dirty, six times if that takes
 * less than two periods of the flush, or one with a file system. Its statistics
 * are from when nothing was dirty: on a kernel that goes by them, only a flush
 * in the midst of writing keeps the limit, and that comes once in two seconds,
 * thus not in each of two rounds of less than one. Once the limit was exceeded,
 * that is known, and the rest is left out.
 */
static void run_memcg(enum ru_lru lru, const char *name, const char *fs)
{
	const struct ru_disk_spec disk = {
		.mb = DISK_MB(CG_WRITE), .keeps_data = fs,
	};
	/*
	 * The limit is approached from below; a quarter is for what the tasks
	 * of all CPUs may dirty between two looks at it, and counters have an
	 * error of their own.
	 */
	long long peak = 0, max = CG_LIMIT * 5 / 4 + stat_error(), last;
	char cg[PATH_MAX], dev[PATH_MAX], dir[PATH_MAX], file[PATH_MAX + 8];
	static struct writer w;
	long long start;
	long sleeps = 0;
	int i, fd;

	if (ru_cg_writeback() || wait_until_clean() ||
	    ru_cg_create(cg, NULL, "dirty_limit") ||
	    ru_cg_write_bytes(cg, "memory.max", CG_MAX * page_size) ||
	    ru_disk_make(dev, &disk))
		goto skip;
	if (fs && ru_mount_new(dev, fs, dir))
		goto skip;
	snprintf(file, sizeof(file), fs ? "%s/file" : "%s", fs ? dir : dev);
	fd = ru_disk_open(file, O_RDWR | O_CREAT);
	if (fd < 0 || writer_start(&w, cg))
		goto skip;

	flush_on_time();
	start = ru_mono_ms();
	for (i = 0; i < 6 && peak <= max; i++) {
		if (i > 1 && ru_mono_ms() > start + (fs ? 1 : 2) * FLUSH_MS)
			break;
		if (ru_cg_stat(cg, "file_dirty") < 0 ||
		    writer_go(&w, fd, CG_WRITE, CG_WRITE))
			goto skip;
		last = watch_memcg(&w);
		if (last < 0 || start_over(fd))
			goto skip;
		if (last > peak)
			peak = last;
		sleeps += w.job->sleeps;
	}
	ksft_print_msg("counters[%s]: peak=%lld sleeps=%ld rounds=%d ms=%lld\n",
		       name, peak, sleeps, i, ru_mono_ms() - start);
	ksft_print_msg("dirty at most %lld pages, the limit is %lu, allowed are %lld\n",
		       peak, CG_LIMIT, max);
	result(lru, name, peak <= max, fix_memcg);
	return;
skip:
	skip(lru, name);
}

static void run_memcg_disk(enum ru_lru lru, const char *name)
{
	run_memcg(lru, name, NULL);
}

static void run_memcg_ext4(enum ru_lru lru, const char *name)
{
	run_memcg(lru, name, "ext4");
}

static void run_memcg_xfs(enum ru_lru lru, const char *name)
{
	run_memcg(lru, name, "xfs");
}

/*
 * The other way round: the statistics are from when as much was dirty as a
 * group can get there, and all of it has been written since. Without a file
 * system, whose tasks may sleep for reasons of its own.
 */
static void run_memcg_idle(enum ru_lru lru, const char *name)
{
	const struct ru_disk_spec disk = { .mb = DISK_MB(CG_WRITE) };
	/*
	 * None is due. A throttled task sleeps for a tick at least, with a tick
	 * of 4 ms these are some 50 ms; without the fix it sleeps for each
	 * page, until the next flush, a second later on average.
	 */
	const long max = 12;
	char cg[PATH_MAX], dev[PATH_MAX];
	static struct writer w;
	long long dirty = 0;
	int i, fd;

	if (ru_cg_writeback() || wait_until_clean() ||
	    ru_cg_create(cg, NULL, "dirty_limit") ||
	    ru_cg_write_bytes(cg, "memory.max", CG_MAX * page_size) ||
	    ru_disk_make(dev, &disk))
		goto skip;
	fd = ru_disk_open(dev, O_RDWR);
	if (fd < 0 || writer_start(&w, cg))
		goto skip;
	memset(&idle, 0, sizeof(idle));
	flush_on_time();
	for (i = 0; i < 3 && idle.sleeps <= max; i++) {
		/* Nothing dirty as well, so that this much comes fast. */
		if (ru_cg_stat(cg, "file_dirty") < 0 ||
		    writer_go(&w, fd, CG_WRITE, CG_WRITE) ||
		    writer_wait(&w, TIMEOUT_MS) <= 0)
			goto skip;
		dirty += ru_cg_stat(cg, "file_dirty") / page_size;
		if (start_over(fd) || writer_go(&w, fd, CG_WRITE, CG_WRITE) ||
		    watch_memcg(&w) < 0 || start_over(fd))
			goto skip;
	}
	ksft_print_msg("counters[%s]: idle_sleeps=%ld idle_ms=%lld rounds=%d dirty_before=%lld\n",
		       name, idle.sleeps, idle.ms, i, dirty / i);
	ksft_print_msg("%ld sleeps with nothing dirty, at most %ld\n",
		       idle.sleeps, max);
	result(lru, name, idle.sleeps <= max, fix_memcg);
	return;
skip:
	skip(lru, name);
}

/*
 * The limit of a group falls below what it has dirty, while it writes: that is
 * written, no task is killed for it, and the group goes on within what it has.
 */
static void run_memcg_lowered(enum ru_lru lru, const char *name)
{
	const struct ru_disk_spec disk = { .mb = DISK_MB(2 * CG_WRITE) };
	long long end = ru_mono_ms() + TIMEOUT_MS, before = 0, dirty, kills;
	char cg[PATH_MAX], dev[PATH_MAX], path[PATH_MAX + 32];
	static struct writer w;
	int fd, ret;

	if (ru_cg_writeback() || wait_until_clean() ||
	    ru_cg_create(cg, NULL, "dirty_limit") ||
	    ru_cg_write_bytes(cg, "memory.max", 2 * CG_MAX * page_size) ||
	    ru_disk_make(dev, &disk))
		goto skip;
	fd = ru_disk_open(dev, O_RDWR);
	if (fd < 0 || writer_start(&w, cg) ||
	    writer_go(&w, fd, 2 * CG_WRITE, SIZE_MAX))
		goto skip;
	while ((dirty = dirty_pages()) <= (long long)CG_LIMIT) {
		if (dirty < 0)
			goto skip;
		if (ru_mono_ms() > end) {
			snprintf(ru_why, sizeof(ru_why),
				 "a group has only %lld of %lu pages dirty",
				 dirty, 2 * CG_LIMIT);
			goto skip;
		}
	}
	before = dirty;
	if (ru_cg_write_bytes(cg, "memory.max", CG_MAX * page_size))
		goto skip;
	do {
		size_t pages = writer_pages(&w);

		/* It goes on, which shows in both. */
		do {
			ret = writer_wait(&w, SAMPLE_MS);
			dirty = dirty_pages();
		} while (!ret && writer_pages(&w) - pages < CG_LIMIT / 4 &&
			 ru_mono_ms() < end);
	} while (!ret && dirty > (long long)CG_LIMIT && ru_mono_ms() < end);
	snprintf(path, sizeof(path), "%s/memory.events", cg);
	kills = ru_key(path, "oom_kill");
	if (dirty < 0 || kills < 0)
		goto skip;
	ksft_print_msg("counters[%s]: dirty_before=%lld dirty=%lld oom_kill=%lld\n",
		       name, before, dirty, kills);
	ksft_print_msg("dirty %lld pages, at most %lu; %lld tasks were killed, none\n",
		       dirty, CG_LIMIT, kills);
	result(lru, name, !ret && dirty <= (long long)CG_LIMIT && !kills, NULL);
	return;
skip:
	skip(lru, name);
}

/*
 * Being exact has its price, and should cost those who are throttled. A group
 * that never has more than a quarter of its limit dirty does not need to.
 */
static void run_memcg_flushes(enum ru_lru lru, const char *name)
{
	const struct ru_disk_spec disk = { .mb = DISK_MB(CG_WRITE) };
	/* All of it is written, and dirtied anew, in each of the rounds. */
	const size_t pages = CG_LIMIT / 4, rounds = 16;
	/*
	 * None is due but the periodic one, of all groups each two seconds, and
	 * those that make up for it should it be late. The limits are checked
	 * each 32 pages: the square root of what is left to three quarters of
	 * the limit, rounded down to a power of two. That is 19 times a round.
	 */
	const long long max = 2 * rounds;
	char cg[PATH_MAX], dev[PATH_MAX], dir[PATH_MAX], filter[64];
	long long end = ru_mono_ms() + TIMEOUT_MS, before, flushes;
	static struct writer w;
	struct stat st;
	long sleeps = 0;
	size_t i;
	int fd;

	if (ru_cg_writeback() || ru_trace_has(FLUSH_EVENT) < 0 ||
	    wait_until_clean() ||
	    ru_cg_create(cg, NULL, "dirty_limit") ||
	    ru_cg_write_bytes(cg, "memory.max", CG_MAX * page_size) ||
	    ru_disk_make(dev, &disk))
		goto skip;
	fd = ru_disk_open(dev, O_RDWR);
	if (stat(cg, &st)) {
		snprintf(ru_why, sizeof(ru_why), "stat: %s", strerror(errno));
		goto skip;
	}
	/* The periodic one is of the root, and forced. */
	snprintf(filter, sizeof(filter), "id==%llu || force==1",
		 (unsigned long long)st.st_ino);
	if (fd < 0 || writer_start(&w, cg) ||
	    ru_trace_start(dir, FLUSH_EVENT, filter))
		goto skip;
	/* It has just been: then it is not late for as long as this takes. */
	while (!(before = ru_trace_count(dir)) && ru_mono_ms() < end)
		flush_on_time();
	if (before <= 0) {
		if (!before)
			snprintf(ru_why, sizeof(ru_why),
				 "no periodic flush in %d ms", TIMEOUT_MS);
		goto skip;
	}
	for (i = 0; i < rounds; i++) {
		if (writer_go(&w, fd, pages, pages) ||
		    writer_wait(&w, TIMEOUT_MS) <= 0 || start_over(fd))
			goto skip;
		sleeps += w.job->sleeps;
	}
	flushes = ru_trace_count(dir);
	if (flushes < 0)
		goto skip;
	flushes -= before;
	ksft_print_msg("counters[%s]: flushes=%lld pages=%zu sleeps=%ld\n",
		       name, flushes, rounds * pages, sleeps);
	ksft_print_msg("%lld flushes, at most %lld\n", flushes, max);
	result(lru, name, flushes <= max, NULL);
	return;
skip:
	skip(lru, name);
}

/* Have a limit fall below what a slow disk holds; where that is, in @fd. */
static int let_limit_fall(const struct ru_disk_spec *slow, struct writer *hog,
			  int *fd, char *dev)
{
	long long end = ru_mono_ms() + TIMEOUT_MS, dirty;

	if (ru_disk_make(dev, slow))
		return -1;
	*fd = ru_disk_open(dev, O_RDWR);
	if (*fd < 0 || writer_start(hog, NULL) ||
	    ru_dirty_limits(LIMIT_BEFORE * page_size) ||
	    writer_go(hog, *fd, 2 * LIMIT_BEFORE, SIZE_MAX))
		return -1;
	/* Throttling starts at three quarters: this much comes fast. */
	while ((dirty = dirty_pages()) < (long long)LIMIT_BEFORE * 5 / 8) {
		if (dirty < 0)
			return -1;
		if (ru_mono_ms() > end) {
			snprintf(ru_why, sizeof(ru_why),
				 "a slow disk has only %lld dirty pages after %d ms",
				 dirty, TIMEOUT_MS);
			return -1;
		}
		tick();
	}
	return ru_dirty_limits(LIMIT_AFTER * page_size);
}

/* What a disk does while the limit is exceeded because of another. */
struct excess {
	/* To be set: */
	struct ru_disk_spec disk;
	bool strict;		/* it has a strict limit, 10 % of the whole */
	size_t before;		/* pages written to it before */
	size_t want;		/* pages to write, */
	long long slow_max;	/* or until the slow disk has written as many */
	bool in_writeback;	/* the slow disk has a long queue, see below */

	/* What came of it: */
	long long start;	/* dirty pages at the beginning */
	long long peak;
	long long end;
	long long own;		/* the most that the disk had dirty itself */
	long long slow;		/* pages that the slow disk wrote meanwhile */
	long long written;	/* pages that the disk wrote meanwhile */
	size_t pages;		/* pages that the task on it could dirty */
	long sleeps;
	bool done;
};

/* A setting that goes with the disk. */
static int set_bdi(const char *dev, const char *attr, const char *value)
{
	char path[PATH_MAX + 64];

	snprintf(path, sizeof(path), "/sys/block/%s/bdi/%s",
		 strrchr(dev, '/') + 1, attr);
	return ru_write(path, value);
}

/*
 * Write to a disk with the limit exceeded, until that is done, or the slow disk
 * has written so much. That one has a short queue, and what is dirty waits to
 * be written; or, @in_writeback, one so long that all of it is in there, for
 * three seconds, and nothing is dirty.
 */
static int write_in_excess(struct excess *x)
{
	const struct ru_disk_spec slow = {
		.mb = DISK_MB(2 * LIMIT_BEFORE),
		.delay_ns = x->in_writeback ? 30 * SLOW_NS : SLOW_NS,
		.depth = x->in_writeback ? LIMIT_BEFORE / SLOW_REQUEST :
					   SLOW_DEPTH,
		.request_pages = SLOW_REQUEST,
	};
	static struct writer hog, w;
	char slow_dev[PATH_MAX], dev[PATH_MAX];
	long long end, dirty, slow_start, start, own;
	int ret = 0, fd, slow_fd;

	if (wait_until_clean() || ru_disk_make(dev, &x->disk))
		return -1;
	if (x->strict && (set_bdi(dev, "max_ratio", "10") ||
			  set_bdi(dev, "strict_limit", "1")))
		return -1;
	fd = ru_disk_open(dev, O_RDWR);
	if (fd < 0 || writer_start(&w, NULL))
		return -1;
	if (x->before) {
		if (writer_go(&w, fd, x->before, x->before) ||
		    writer_wait(&w, TIMEOUT_MS) < 0)
			return -1;
		fsync(fd);
	}
	if (let_limit_fall(&slow, &hog, &slow_fd, slow_dev))
		return -1;
	end = ru_mono_ms() + TIMEOUT_MS;
	while (x->in_writeback &&
	       ru_vmstat("nr_dirty") > (long long)LIMIT_AFTER / 2) {
		if (ru_mono_ms() > end) {
			snprintf(ru_why, sizeof(ru_why),
				 "a disk does not take what is dirty");
			return -1;
		}
		tick();
	}
	/* What it added now would have to be waited for at the end. */
	if (x->in_writeback)
		kill(hog.child.pid, SIGSTOP);

	start = ru_disk_written(dev);
	slow_start = ru_disk_written(slow_dev);
	x->start = dirty_pages();
	if (start < 0 || slow_start < 0 || x->start < 0 ||
	    writer_go(&w, fd, LIMIT_BEFORE, x->want))
		return -1;
	x->peak = x->start;
	while (!ret) {
		ret = writer_wait(&w, SAMPLE_MS);
		dirty = dirty_pages();
		x->slow = ru_disk_written(slow_dev) - slow_start;
		/* In this order, for it not to be too much. */
		own = writer_pages(&w);
		own -= ru_disk_written(dev) - start;
		if (own > x->own)
			x->own = own;
		if (ret < 0 || dirty < 0)
			return -1;
		/*
		 * A queue that is done at once takes all of the excess along:
		 * what counts is how it was before that.
		 */
		if (x->slow >= x->slow_max || ru_mono_ms() > end)
			break;
		x->end = dirty;
		if (dirty > x->peak)
			x->peak = dirty;
	}
	x->done = ret;
	x->written = ru_disk_written(dev) - start;
	x->pages = writer_pages(&w);
	x->sleeps = writer_sleeps(&w);
	if (!ret && x->slow < x->slow_max) {
		snprintf(ru_why, sizeof(ru_why),
			 "the slow disk wrote %lld pages in %d ms", x->slow,
			 TIMEOUT_MS);
		return -1;
	}
	if (x->end <= (long long)LIMIT_AFTER) {
		snprintf(ru_why, sizeof(ru_why),
			 "the slow disk is done already: the limit is not exceeded");
		return -1;
	}
	return 0;
}

static void print_excess(const char *name, const struct excess *x)
{
	ksft_print_msg("counters[%s]: pages=%zu sleeps=%ld written=%lld slow_disk=%lld start=%lld peak=%lld end=%lld own=%lld\n",
		       name, x->pages, x->sleeps, x->written, x->slow, x->start,
		       x->peak, x->end, x->own);
}

/*
 * A disk as fast as it gets. It may have 1/8 of the limit dirty, 512 pages: 8
 * times that are to be written. On the way the task may have to wait for the
 * disk, 25 times for each eighth; without the fix it has to for each page. It
 * has until the slow disk has written 1600 pages, of an excess of 6144.
 *
 * If the disk is new, its share of the limit has to grow first, from nothing,
 * and with what it writes: it has until 4096 pages, and twice the sleeps. At a
 * crawl, of 120 pages a second, it would be at 768.
 */
static void run_fast(enum ru_lru lru, const char *name, struct excess *x,
		     const char *fix)
{
	const long max = x->before ? 200 : 400;

	x->disk.mb = DISK_MB(LIMIT_BEFORE);
	x->want = 8 * LIMIT_AFTER / 8;
	x->slow_max = x->before ? 1600 : 4096;
	if (write_in_excess(x)) {
		skip(lru, name);
		return;
	}
	print_excess(name, x);
	ksft_print_msg("%zu of %zu pages while the limit was exceeded, %ld sleeps, at most %ld\n",
		       x->pages, x->want, x->sleeps, max);
	result(lru, name, x->done && x->sleeps <= max, fix);
}

static void run_fast_used(enum ru_lru lru, const char *name)
{
	struct excess x = { .before = LIMIT_AFTER };

	run_fast(lru, name, &x, fix_floor);
}

static void run_fast_new(enum ru_lru lru, const char *name)
{
	struct excess x = { .before = 0 };

	run_fast(lru, name, &x, fix_floor);
}

/* It has until the slow disk is through with the first of what it was given. */
static void run_fast_writeback(enum ru_lru lru, const char *name)
{
	struct excess x = { .before = LIMIT_AFTER, .in_writeback = true };

	run_fast(lru, name, &x, fix_background);
}

#define MEDIUM_DISK	{						\
	.mb = DISK_MB(LIMIT_BEFORE),					\
	.delay_ns = SLOW_NS / FASTER, .depth = SLOW_DEPTH,		\
	.request_pages = SLOW_REQUEST,					\
}

static struct excess medium;
static bool medium_skipped;

/*
 * A disk that is written to faster than it can write. By itself it would write
 * FASTER pages for each one of the slow disk, as both have a timer: half of
 * that is asked for.
 */
static void run_medium(enum ru_lru lru, const char *name)
{
	long long min;

	/* Two and a half seconds of the slow disk. */
	medium = (struct excess){
		.disk = MEDIUM_DISK, .before = LIMIT_AFTER, .want = SIZE_MAX,
		.slow_max = 1600,
	};
	medium_skipped = write_in_excess(&medium);
	if (medium_skipped) {
		skip(lru, name);
		return;
	}
	min = medium.slow * FASTER / 2;
	print_excess(name, &medium);
	ksft_print_msg("%lld pages written while the slow disk wrote %lld, at least %lld\n",
		       medium.written, medium.slow, min);
	result(lru, name, medium.written >= min, fix_floor);
}

/*
 * The row before has one that wants all it can get. Of its own it may have an
 * eighth of the limit dirty. In all it may not be more than that on top of what
 * it was, as the slow disk adds nothing; but that one gets less meanwhile.
 */
static void run_medium_bound(enum ru_lru lru, const char *name)
{
	const long long own = LIMIT_AFTER / 8 + stat_error();
	long long max = medium.start + own;

	if (medium_skipped) {
		snprintf(ru_why, sizeof(ru_why), "the row before was skipped");
		skip(lru, name);
		return;
	}
	ksft_print_msg("counters[%s]: own=%lld more=%lld\n", name, medium.own,
		       medium.peak - medium.start);
	ksft_print_msg("%lld pages dirty of its own, and %lld in all, allowed are %lld and %lld\n",
		       medium.own, medium.peak, own, max);
	result(lru, name, medium.own <= own && medium.peak <= max, NULL);
}

/*
 * A disk that takes a second for a page, of which nothing was known, stands
 * still for all of the row. It has no share of the limit, and gets what
 * wb_stat_error() lets everybody have, 8 * (1 + log2(n)) pages for each of n
 * CPUs, and what it writes.
 */
static void run_stalled(enum ru_lru lru, const char *name)
{
	/* Half a second of the slow disk. */
	struct excess x = {
		.disk = {
			.mb = DISK_MB(LIMIT_BEFORE),
			.delay_ns = 10 * SLOW_NS, .depth = 1,
			.request_pages = 1,
		},
		.want = SIZE_MAX, .slow_max = 320,
	};
	size_t max = LIMIT_AFTER / 8 + stat_error();

	if (write_in_excess(&x)) {
		skip(lru, name);
		return;
	}
	print_excess(name, &x);
	ksft_print_msg("%zu pages dirtied, at most %zu\n", x.pages, max);
	result(lru, name, x.pages <= max, NULL);
}

/*
 * A file belongs to the control group that dirtied it first, and its pages are
 * in the counters of that one's wb. A group that writes to those of another has
 * nothing in its own, however much it dirties, and must be throttled all the
 * same: it may have what wb_stat_error() lets everybody have, and an eighth of
 * the limit as if it were its own. It has a share of the disk, by a file that
 * is its own. A page in each of many files, as a file goes over to the group
 * that it is written back for again and again.
 */
static void run_foreign(enum ru_lru lru, const char *name)
{
	const struct ru_disk_spec slow = {
		.mb = DISK_MB(2 * LIMIT_BEFORE), .delay_ns = SLOW_NS,
		.depth = SLOW_DEPTH, .request_pages = SLOW_REQUEST,
	};
	const struct ru_disk_spec disk = {
		.mb = DISK_MB(2 * LIMIT_BEFORE), .keeps_data = true,
	};
	const size_t max = LIMIT_AFTER / 8 + stat_error();
	const size_t files = 2 * max;
	long long end = ru_mono_ms() + TIMEOUT_MS, slow_start, written = 0;
	char cg[PATH_MAX], dev[PATH_MAX], slow_dev[PATH_MAX], dir[PATH_MAX];
	static struct writer hog, w;
	unsigned char order = 'w';
	int fd, slow_fd, ret = 0;
	struct job job = { };
	size_t i;

	if (ru_cg_writeback() || wait_until_clean() ||
	    ru_cg_create(cg, NULL, "dirty_limit") || ru_disk_make(dev, &disk) ||
	    ru_mount_new(dev, "ext4", dir))
		goto skip;
	/* Of this test, and thus of the root. */
	snprintf(job.path, sizeof(job.path), "%.110s/file", dir);
	for (i = 0; i < files; i++) {
		fd = open_numbered(job.path, i);
		if (fd < 0 || pwrite(fd, "1", 1, 0) != 1) {
			snprintf(ru_why, sizeof(ru_why), "file %zu: %s", i,
				 strerror(errno));
			goto skip;
		}
		close(fd);
	}
	if (wait_until_clean() || writer_start(&w, cg))
		goto skip;
	*w.job = (struct job){ .region = LIMIT_AFTER, .pages = LIMIT_AFTER };
	snprintf(w.job->path, sizeof(w.job->path), "%.110s/own", dir);
	if (write(w.child.to, &order, 1) != 1 ||
	    writer_wait(&w, TIMEOUT_MS) <= 0 ||
	    let_limit_fall(&slow, &hog, &slow_fd, slow_dev))
		goto skip;
	slow_start = ru_disk_written(slow_dev);
	if (slow_start < 0)
		goto skip;
	job.region = files;
	job.pages = files;
	job.numbered = true;
	*w.job = job;
	if (write(w.child.to, &order, 1) != 1) {
		snprintf(ru_why, sizeof(ru_why), "the task that writes has ended");
		goto skip;
	}
	while (!ret && written < 640 && ru_mono_ms() < end) {
		ret = writer_wait(&w, SAMPLE_MS);
		written = ru_disk_written(slow_dev) - slow_start;
	}
	if (ret < 0)
		goto skip;
	if (dirty_pages() <= (long long)LIMIT_AFTER) {
		snprintf(ru_why, sizeof(ru_why), "the limit is not exceeded");
		goto skip;
	}
	ksft_print_msg("counters[%s]: pages=%zu sleeps=%ld slow_disk=%lld\n",
		       name, writer_pages(&w), writer_sleeps(&w), written);
	ksft_print_msg("%zu pages dirtied, at most %zu\n", writer_pages(&w),
		       max);
	result(lru, name, writer_pages(&w) <= max, NULL);
	return;
skip:
	skip(lru, name);
}

/*
 * A disk with a strict limit of its own, here 10 % of the whole, is throttled
 * by that alone, and before it is reached. The slack is that of the row above.
 */
static void run_strict(enum ru_lru lru, const char *name)
{
	struct excess x = {
		.disk = MEDIUM_DISK, .strict = true, .before = LIMIT_AFTER,
		.want = SIZE_MAX, .slow_max = 640,
	};
	long long max;

	if (write_in_excess(&x)) {
		skip(lru, name);
		return;
	}
	max = x.start + LIMIT_AFTER / 10 + LIMIT_AFTER / 8;
	print_excess(name, &x);
	ksft_print_msg("dirty at most %lld pages, allowed are %lld\n", x.peak,
		       max);
	result(lru, name, x.peak <= max, NULL);
}

/* With nothing allowed to be dirty things are slow, and move all the same. */
static void run_ratio(enum ru_lru lru, const char *name)
{
	const struct ru_disk_spec disk = { .mb = 1024 };
	static struct writer w;
	char dev[PATH_MAX];
	size_t few = 64, many = 4096;
	long sleeps;
	int fd;

	if (wait_until_clean() || ru_disk_make(dev, &disk))
		goto skip;
	fd = ru_disk_open(dev, O_RDWR);
	if (fd < 0 || writer_start(&w, NULL) ||
	    ru_set("/proc/sys/vm/dirty_ratio", "0") ||
	    writer_go(&w, fd, few, few) || writer_wait(&w, TIMEOUT_MS) < 0)
		goto skip;
	sleeps = w.job->sleeps;
	few -= w.job->done;
	if (!few &&
	    (writer_go(&w, fd, many, many) ||
	     ru_set("/proc/sys/vm/dirty_ratio", "20") ||
	     writer_wait(&w, TIMEOUT_MS) < 0))
		goto skip;
	many -= w.job->done;
	ksft_print_msg("counters[%s]: sleeps=%ld then=%ld\n", name, sleeps,
		       w.job->sleeps);
	ksft_print_msg("%zu and %zu pages are not written\n", few, many);
	result(lru, name, !few && !many, NULL);
	return;
skip:
	skip(lru, name);
}

/* Takes all free memory but @keep pages, for as long as it lives. */
static int take_memory(struct ru_child *child, size_t keep)
{
	size_t size = (ru_vmstat("nr_free_pages") - keep) * page_size, i;
	unsigned char order;
	pid_t pid;
	char *p;

	pid = ru_fork(child);
	if (pid)
		return pid < 0 ? -1 : ru_tell(child, 'm', TIMEOUT_MS);
	p = mmap(NULL, size, PROT_READ | PROT_WRITE,
		 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (p == MAP_FAILED)
		_exit(1);
	madvise(p, size, MADV_HUGEPAGE);
	while (read(child->in, &order, 1) == 1) {
		for (i = 0; i < size; i += page_size)
			p[i] = 1;
		if (write(child->out, &order, 1) != 1)
			break;
	}
	_exit(0);
}

/*
 * Many files of one byte each, in eight directories, while inodes and anon
 * memory have most of the memory: what may be dirty is little.
 */
static void run_small_files(enum ru_lru lru, const char *name)
{
	const struct ru_disk_spec disk = { .mb = 512, .keeps_data = true };
	const int files = 1000;
	/*
	 * At a crawl it is a sleep for each page, and each file dirties one at
	 * least. One for twenty files is next to that of a disk at work.
	 */
	const long max = files / 20;
	char dev[PATH_MAX], dir[PATH_MAX], path[PATH_MAX + 32];
	long long before, thresh = LLONG_MAX, now;
	struct ru_child hog;
	long sleeps;
	int i, fd;

	if (ru_meminfo_kb("MemTotal") > GLOBAL_MAX_KB) {
		snprintf(ru_why, sizeof(ru_why), "there is too much to fill");
		goto skip;
	}
	if (wait_until_clean() || ru_disk_make(dev, &disk) ||
	    ru_mount_new(dev, "ext4", dir))
		goto skip;
	before = ru_vmstat("nr_dirty_threshold");
	if (before < 0 || take_memory(&hog, 20 * 1024))
		goto skip;
	sleeps = sleeps_so_far();
	for (i = 0; i < files; i++) {
		snprintf(path, sizeof(path), "%s/%d", dir, i % 8);
		if (i < 8)
			mkdir(path, 0700);
		snprintf(path, sizeof(path), "%s/%d/%d", dir, i % 8, i);
		fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
		if (fd < 0 || write(fd, "1", 1) != 1) {
			snprintf(ru_why, sizeof(ru_why), "file %d: %s", i,
				 strerror(errno));
			goto skip;
		}
		close(fd);
		if (i % 64)
			continue;
		now = ru_vmstat("nr_dirty_threshold");
		if (now < thresh)
			thresh = now;
	}
	sleeps = sleeps_so_far() - sleeps;
	if (thresh > before / 2) {
		snprintf(ru_why, sizeof(ru_why),
			 "memory is not short: the limit went from %lld to %lld pages",
			 before, thresh);
		goto skip;
	}
	ksft_print_msg("counters[%s]: files=%d sleeps=%ld limit_before=%lld limit=%lld\n",
		       name, files, sleeps, before, thresh);
	ksft_print_msg("%ld sleeps, at most %ld\n", sleeps, max);
	result(lru, name, sleeps <= max, NULL);
	return;
skip:
	skip(lru, name);
}

struct row {
	const char *name;
	void (*run)(enum ru_lru lru, const char *name);
	bool classic_only;
	bool (*applies)(void);	/* else the row is not there */
};

/* Older kernels have other statistics. */
static bool has_flush_event(void)
{
	return ru_trace_has(FLUSH_EVENT);
}

/* Settable since 6.2. */
static bool has_strict_limit(void)
{
	const struct ru_disk_spec disk = { .mb = 1 };
	char dev[PATH_MAX], path[PATH_MAX + 64];
	size_t mark = ru_mark();
	bool has = false;

	if (!ru_disk_make(dev, &disk)) {
		snprintf(path, sizeof(path), "/sys/block/%s/bdi/strict_limit",
			 strrchr(dev, '/') + 1);
		has = !access(path, F_OK);
	}
	ru_unwind(mark);
	return has;
}

/*
 * Which kind of LRU it is matters where reclaim meets dirty pages: in a group
 * that is at its limit. Of the others there is one, to be sure.
 */

static const struct row rows[] = {
	{
		.name = "memcg: dirty pages stay at the limit",
		.run = run_memcg_disk,
	}, {
		.name = "memcg: nobody sleeps with nothing dirty",
		.run = run_memcg_idle,
	}, {
		.name = "memcg, ext4: dirty pages stay at the limit",
		.run = run_memcg_ext4, .classic_only = true,
	}, {
		.name = "memcg, XFS: dirty pages stay at the limit",
		.run = run_memcg_xfs, .classic_only = true,
	}, {
		.name = "memcg, memory.max lowered: writing goes on",
		.run = run_memcg_lowered, .classic_only = true,
	}, {
		.name = "memcg below its limit: no flush",
		.run = run_memcg_flushes, .classic_only = true,
		.applies = has_flush_event,
	}, {
		.name = "limit fell: a fast disk goes on",
		.run = run_fast_used,
	}, {
		.name = "limit fell: a new disk gets going",
		.run = run_fast_new, .classic_only = true,
	}, {
		.name = "limit fell, excess in writeback: a fast disk goes on",
		.run = run_fast_writeback, .classic_only = true,
	}, {
		.name = "limit fell: a disk keeps half of its rate",
		.run = run_medium, .classic_only = true,
	}, {
		.name = "limit fell: an eighth on top of the excess",
		.run = run_medium_bound, .classic_only = true,
	}, {
		.name = "limit fell: a disk that hardly moves gets no more",
		.run = run_stalled, .classic_only = true,
	}, {
		.name = "limit fell: who dirties a file of others is throttled",
		.run = run_foreign, .classic_only = true,
	}, {
		.name = "limit fell: a strict limit is kept",
		.run = run_strict, .classic_only = true,
		.applies = has_strict_limit,
	}, {
		.name = "dirty_ratio=0, and raised: writing goes on",
		.run = run_ratio, .classic_only = true,
	}, {
		.name = "little memory: small files are not throttled",
		.run = run_small_files, .classic_only = true,
	},
};

static bool here[ARRAY_SIZE(rows)];

static void run_rows(enum ru_lru lru)
{
	size_t mark = ru_mark(), i;
	bool blocked = ru_lru_select(lru) ||
		       ru_set("/proc/sys/vm/dirty_background_ratio", "10") ||
		       ru_set("/proc/sys/vm/dirty_ratio", "20");

	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		size_t row_mark = ru_mark();

		if (!here[i] || (lru == RU_MGLRU && rows[i].classic_only))
			continue;
		if (blocked)
			skip(lru, rows[i].name);
		else
			rows[i].run(lru, rows[i].name);
		ru_unwind(row_mark);
	}
	ru_unwind(mark);
}

static __noreturn void help(const char *prog)
{
	fprintf(stderr, "usage: %s [-l classic|mglru]\n", prog);
	fprintf(stderr, "  -l  only this kind of LRU (default: both)\n");
	exit(KSFT_FAIL);
}

int main(int argc, char **argv)
{
	bool kinds[RU_NR_LRU] = { true, true };
	long long available;
	size_t i, nr = 0;
	int opt;

	while ((opt = getopt(argc, argv, "l:")) != -1)
		if (opt != 'l' || ru_lru_option(optarg, kinds))
			help(argv[0]);

	ksft_print_header();
	page_size = sysconf(_SC_PAGESIZE);
	if (geteuid())
		ksft_exit_skip("needs root: control groups, disks, vm.dirty_bytes\n");
	available = ru_meminfo_kb("MemAvailable");
	if (available < 0)
		ksft_exit_skip("%s (CONFIG_PROC_FS)\n", ru_why);
	/* Else the bounds would be about the counters. */
	if (stat_error() > (long)CG_LIMIT / 4)
		ksft_exit_skip("counters of %ld CPUs are off by up to %ld pages, and limits here are %lu\n",
			       sysconf(_SC_NPROCESSORS_CONF), stat_error(),
			       CG_LIMIT);
	/* So that the limits that are set are below those that RAM sets. */
	if (available * 1024ULL < 8 * LIMIT_BEFORE * page_size)
		ksft_exit_skip("needs %lu MiB of available memory, there are %lld\n",
			       8 * LIMIT_BEFORE * page_size >> 20,
			       available / 1024);
	/* A file of one number, like those of a group. */
	if (ru_cg_read("/proc/sys/vm", "dirty_bytes") ||
	    ru_cg_read("/proc/sys/vm", "dirty_background_bytes"))
		ksft_exit_skip("vm.dirty_bytes is set, and the test is about vm.dirty_ratio too\n");
	ru_init();
	if (ru_cg_setup())
		ksft_exit_skip("%s\n", ru_why);
	/*
	 * Until the first periodic flush it counts as late, and statistics are
	 * flushed each time: all is well then, in the first seconds of uptime.
	 */
	while (has_flush_event() && ru_mono_ms() < FLUSH_MS * 3 / 2)
		tick();

	for (i = 0, nr = 0; i < ARRAY_SIZE(rows); i++) {
		here[i] = !rows[i].applies || rows[i].applies();
		if (here[i])
			nr += kinds[RU_CLASSIC] +
			      (kinds[RU_MGLRU] && !rows[i].classic_only);
	}
	ksft_set_plan(nr);
	for (i = 0; i < RU_NR_LRU; i++)
		if (kinds[i])
			run_rows(i);

	/* All rows skipped is a skip: nothing has been checked. */
	if (ksft_cnt.ksft_xskip == ksft_plan) {
		ksft_print_cnts();
		exit(KSFT_SKIP);
	}
	ksft_finished();
}
