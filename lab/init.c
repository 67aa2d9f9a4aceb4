// SPDX-License-Identifier: GPL-2.0
/*
 * The guest's init: mounts what the tests need, runs one test, looks for what
 * the test has left behind, and reboots (QEMU runs with -no-reboot, and a
 * kernel without ACPI cannot power off).
 *
 * The kernel command line says what to run:
 *
 *   mmlab.test=NAME   program in /tests
 *   mmlab.lru=KIND    classic or mglru, handed to the test as "-l KIND"
 *   mmlab.args=A,B    more arguments, separated by commas
 *   mmlab.fault=KIND  go wrong instead, to show that the lab sees it: panic,
 *                     hang or leak
 *   mmlab.delay=US    sleep so long before the test, which moves it against the
 *                     timer tick
 *   mmlab.stamp=1     say before each result when it came
 *   mmlab.profile=1   count all calls of kernel functions during the test
 *
 * A kernel of a distribution has as modules what the lab's has built in: those in
 * /modules are loaded first, in the order of their names, NNN-MODULE.ko, and
 * MODULE.PARAMETER=VALUE on the kernel command line is for them too.
 *
 * The report goes to the console, one "MMLAB: " line each; the parser is
 * lab/mmlab/ktap.py. A log without "MMLAB: end" is that of a crashed guest.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#define ARRAY_SIZE(a)	(sizeof(a) / sizeof((a)[0]))

static char cmdline[4096];

/* The value of @key on the kernel command line, NULL if it is not there. */
static char *param(const char *key)
{
	size_t len = strlen(key);
	char *p = cmdline;

	while ((p = strstr(p, key))) {
		if ((p == cmdline || p[-1] == ' ') && p[len] == '=')
			return strndup(p + len + 1, strcspn(p + len + 1, " \n"));
		p += len;
	}
	return NULL;
}

static int read_file(const char *path, char *buf, size_t size)
{
	int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	ssize_t n;

	if (fd < 0)
		return -1;
	n = read(fd, buf, size - 1);
	close(fd);
	if (n < 0)
		return -1;
	buf[n] = '\0';
	while (n && (buf[n - 1] == '\n' || buf[n - 1] == ' '))
		buf[--n] = '\0';
	return 0;
}

/* A snapshot of the system: lines, one a thing that a test could leave. */
struct snap {
	char **line;
	size_t nr, max;
};

static struct snap *walk;	/* nftw() has no argument for its callback */

static void __attribute__((format(printf, 2, 3)))
add(struct snap *s, const char *fmt, ...)
{
	va_list args;

	if (s->nr == s->max) {
		s->max = s->max ? 2 * s->max : 256;
		s->line = realloc(s->line, s->max * sizeof(*s->line));
	}
	va_start(args, fmt);
	if (!s->line || vasprintf(&s->line[s->nr], fmt, args) < 0)
		abort();
	va_end(args);
	s->nr++;
}

static void add_lines(struct snap *s, const char *kind, const char *path,
		      int words)
{
	FILE *f = fopen(path, "re");
	char line[1024];

	if (!f)
		return;
	while (fgets(line, sizeof(line), f)) {
		line[strcspn(line, "\n")] = '\0';
		if (words == 1)
			line[strcspn(line, " \t")] = '\0';
		add(s, "%s %s", kind, line);
	}
	fclose(f);
}

static void add_names(struct snap *s, const char *kind, const char *path)
{
	DIR *d = opendir(path);
	struct dirent *e;

	if (!d)
		return;
	while ((e = readdir(d)))
		if (strcmp(e->d_name, ".") && strcmp(e->d_name, ".."))
			add(s, "%s %s/%s", kind, path, e->d_name);
	closedir(d);
}

/* Writable files hold settings; what only counts is read-only. */
static int add_setting(const char *path, const struct stat *st, int type,
		       struct FTW *ftw)
{
	/* Writing these is an action, and what they show is not a setting. */
	static const char * const actions[] = {
		"/proc/sys/vm/drop_caches", "/proc/sys/vm/compact_memory",
		"/proc/sys/vm/stat_refresh", "/proc/sys/kernel/ns_last_pid",
	};
	char value[256];
	size_t i;

	(void)ftw;
	if (type != FTW_F || !(st->st_mode & 0200) || strstr(path, "/stats/"))
		return 0;
	for (i = 0; i < ARRAY_SIZE(actions); i++)
		if (!strcmp(path, actions[i]))
			return 0;
	if (!read_file(path, value, sizeof(value)))
		add(walk, "setting %s=%s", path, value);
	return 0;
}

static int add_cgroup(const char *path, const struct stat *st, int type,
		      struct FTW *ftw)
{
	(void)st;
	(void)ftw;
	if (type == FTW_D)
		add(walk, "cgroup %s", path);
	else if (strstr(path, "/cgroup.subtree_control"))
		add_lines(walk, "subtree_control", path, 0);
	return 0;
}

/* User processes that are still there, and the nice value of kswapd. */
static void add_processes(struct snap *s)
{
	DIR *d = opendir("/proc");
	struct dirent *e;

	while (d && (e = readdir(d))) {
		char path[300], stat[512], cmd[256], *p;
		long nice;

		if (atoi(e->d_name) <= 1)
			continue;
		snprintf(path, sizeof(path), "/proc/%s/stat", e->d_name);
		if (read_file(path, stat, sizeof(stat)))
			continue;
		p = strrchr(stat, ')');
		if (strstr(stat, "(kswapd") && p &&
		    sscanf(p + 2, "%*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %ld",
			   &nice) == 1)
			add(s, "nice of %.*s) %ld", (int)(p - stat), stat, nice);
		snprintf(path, sizeof(path), "/proc/%s/cmdline", e->d_name);
		/* Kernel threads have no command line. */
		if (!read_file(path, cmd, sizeof(cmd)) && cmd[0])
			add(s, "process %s %s", e->d_name, cmd);
	}
	if (d)
		closedir(d);
}

static int compare(const void *a, const void *b)
{
	return strcmp(*(char * const *)a, *(char * const *)b);
}

static void snapshot(struct snap *s)
{
	static const char * const settings[] = {
		"/proc/sys/vm", "/proc/sys/kernel", "/sys/kernel/mm",
		"/sys/module/zswap/parameters",
	};
	size_t i;

	memset(s, 0, sizeof(*s));
	add_lines(s, "mount", "/proc/mounts", 0);
	add_lines(s, "swap", "/proc/swaps", 1);
	add_names(s, "device", "/sys/block");
	add_names(s, "null_blk", "/sys/kernel/config/nullb");
	for (i = 0; i < 8; i++) {
		char path[64], file[256];

		snprintf(path, sizeof(path),
			 "/sys/block/loop%zu/loop/backing_file", i);
		if (!read_file(path, file, sizeof(file)))
			add(s, "loop%zu %s", i, file);
	}
	add_names(s, "file", "/tmp");
	add_names(s, "file", "/dev/shm");
	walk = s;
	for (i = 0; i < ARRAY_SIZE(settings); i++)
		nftw(settings[i], add_setting, 16, FTW_PHYS);
	nftw("/sys/fs/cgroup", add_cgroup, 16, FTW_PHYS);
	add_processes(s);
	qsort(s->line, s->nr, sizeof(*s->line), compare);
}

/* Both are sorted; what is in one of them alone is a leak. */
static void report_leaks(const struct snap *a, const struct snap *b)
{
	size_t i = 0, j = 0;

	while (i < a->nr || j < b->nr) {
		int c = i == a->nr ? 1 : j == b->nr ? -1 :
			strcmp(a->line[i], b->line[j]);

		if (c < 0)
			printf("MMLAB: leak gone: %s\n", a->line[i++]);
		else if (c > 0)
			printf("MMLAB: leak new: %s\n", b->line[j++]);
		else
			i++, j++;
	}
}

static void reap(void)
{
	while (waitpid(-1, NULL, WNOHANG) > 0)
		;
}

static double seconds(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec + ts.tv_nsec / 1e9;
}

/* What the test prints, up to the end of the last line. */
static struct {
	int fd;
	double start;
	size_t len;
	char buf[4096];
} out = { .fd = -1 };

/* Put what there is on the console; -1 when there will be no more. */
static int forward(void)
{
	ssize_t n, i;
	char buf[1024];

	while ((n = read(out.fd, buf, sizeof(buf))) > 0) {
		for (i = 0; i < n; i++) {
			out.buf[out.len++] = buf[i];
			if (buf[i] != '\n' && out.len < sizeof(out.buf))
				continue;
			if (!strncmp(out.buf, "ok ", 3) ||
			    !strncmp(out.buf, "not ok ", 7))
				printf("MMLAB: at %.9f\n", seconds() - out.start);
			fwrite(out.buf, 1, out.len, stdout);
			out.len = 0;
		}
	}
	return n < 0 && (errno == EAGAIN || errno == EINTR) ? 0 : -1;
}

/*
 * A terminal for the test, so that its lines pass through here as it prints
 * them: to a pipe stdio would write none before it has a buffer full of them.
 */
static int open_terminal(void)
{
	struct termios raw;
	int slave;

	out.fd = posix_openpt(O_RDWR | O_NOCTTY | O_NONBLOCK | O_CLOEXEC);
	if (out.fd < 0 || grantpt(out.fd) || unlockpt(out.fd))
		return -1;
	slave = open(ptsname(out.fd), O_RDWR | O_NOCTTY | O_CLOEXEC);
	if (slave < 0 || tcgetattr(slave, &raw))
		return -1;
	cfmakeraw(&raw);
	return tcsetattr(slave, TCSANOW, &raw) ? -1 : slave;
}

/* Wait for the test, and reap orphans too; its status. */
static int forward_until_exit(pid_t pid, int children)
{
	struct pollfd fds[] = {
		{ .fd = out.fd, .events = POLLIN },
		{ .fd = children, .events = POLLIN },
	};
	struct signalfd_siginfo info;
	int status = -1, got;
	bool gone = false;

	/* All that it printed has come when no one has the terminal any more. */
	while (poll(fds, ARRAY_SIZE(fds), gone ? 100 : -1)) {
		if (forward() && gone)
			break;
		if (read(children, &info, sizeof(info)) < 0)
			continue;
		while ((got = waitpid(-1, gone ? NULL : &status, WNOHANG)) > 0)
			gone |= got == pid;
	}
	fwrite(out.buf, 1, out.len, stdout);
	close(out.fd);
	return status;
}

static int run(char * const argv[], bool stamp)
{
	int status = -1, children = -1, slave = -1;
	sigset_t chld, old;
	pid_t pid, got;

	sigemptyset(&chld);
	sigaddset(&chld, SIGCHLD);
	sigprocmask(SIG_BLOCK, &chld, &old);
	if (stamp) {
		children = signalfd(-1, &chld, SFD_NONBLOCK | SFD_CLOEXEC);
		slave = open_terminal();
		if (slave < 0 || children < 0) {
			printf("MMLAB: cannot stamp: %s\n", strerror(errno));
			return -1;
		}
	}
	out.start = seconds();
	pid = fork();
	if (!pid) {
		/* Its own group, so that a test can signal itself. */
		setsid();
		sigprocmask(SIG_SETMASK, &old, NULL);
		if (chdir("/tests"))
			_exit(126);
		if (stamp && (dup2(slave, 1) < 0 || dup2(slave, 2) < 0))
			_exit(126);
		execv(argv[0], argv);
		printf("MMLAB: cannot run %s: %s\n", argv[0], strerror(errno));
		_exit(127);
	}
	if (stamp) {
		close(slave);
		return forward_until_exit(pid, children);
	}
	/* Init reaps orphans too. */
	while ((got = waitpid(-1, &status, 0)) != pid)
		if (got < 0 && errno != EINTR)
			return -1;
	return status;
}

#define TRACEFS		"/sys/kernel/tracing"

static int trace_write(const char *file, const char *value)
{
	char path[256];
	int fd, ret;

	snprintf(path, sizeof(path), TRACEFS "/%s", file);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	ret = fd < 0 || write(fd, value, 1) != 1 ? -1 : 0;
	if (fd >= 0)
		close(fd);
	if (ret)
		printf("MMLAB: cannot write %s: %s\n", path, strerror(errno));
	return ret;
}

/* Time asleep is not counted. */
static void profile_start(void)
{
	if (mount("tracefs", TRACEFS, "tracefs", 0, NULL))
		printf("MMLAB: cannot mount tracefs: %s\n", strerror(errno));
	else if (!trace_write("options/sleep-time", "0"))
		trace_write("function_profile_enabled", "1");
}

/* A line for each function and CPU: calls, and microseconds. */
static void profile_print(void)
{
	char path[256], line[512], name[256];
	double us;
	long cpu;
	long hits;
	FILE *f;

	trace_write("function_profile_enabled", "0");
	for (cpu = 0; cpu < sysconf(_SC_NPROCESSORS_ONLN); cpu++) {
		snprintf(path, sizeof(path), TRACEFS "/trace_stat/function%ld", cpu);
		f = fopen(path, "re");
		while (f && fgets(line, sizeof(line), f))
			if (sscanf(line, "%255s %ld %lf", name, &hits, &us) == 3)
				printf("MMLAB: profile %s %ld %.3f\n", name, hits, us);
		if (f)
			fclose(f);
	}
}

/* What is on the kernel command line for a module, as modprobe collects it. */
static void module_params(const char *module, char *buf, size_t size)
{
	size_t len = strlen(module), used = 0;
	const char *p = cmdline;

	buf[0] = '\0';
	while (*(p += strspn(p, " \n"))) {
		size_t word = strcspn(p, " \n");

		if (!strncmp(p, module, len) && p[len] == '.' &&
		    used + word < size)
			used += sprintf(buf + used, "%.*s ",
					(int)(word - len - 1), p + len + 1);
		p += word;
	}
}

static void load_modules(void)
{
	char path[300], params[256];
	struct dirent **names;
	int i, nr, fd;

	nr = scandir("/modules", &names, NULL, alphasort);
	for (i = 0; i < nr; i++) {
		char *name = strchr(names[i]->d_name, '-');
		char *end = strrchr(names[i]->d_name, '.');

		if (!name || !end || strcmp(end, ".ko"))
			continue;
		snprintf(path, sizeof(path), "/modules/%s", names[i]->d_name);
		*end = '\0';
		module_params(name + 1, params, sizeof(params));
		fd = open(path, O_RDONLY | O_CLOEXEC);
		if (fd < 0 || syscall(SYS_finit_module, fd, params, 0))
			printf("MMLAB: cannot load %s: %s\n", name + 1,
			       strerror(errno));
		if (fd >= 0)
			close(fd);
	}
}

static void mount_all(void)
{
	static const struct {
		const char *dir, *type;
	} mounts[] = {
		{ "/proc", "proc" },
		{ "/sys", "sysfs" },
		{ "/dev", "devtmpfs" },
		{ "/dev/pts", "devpts" },
		{ "/dev/shm", "tmpfs" },
		{ "/tmp", "tmpfs" },
		{ "/sys/fs/cgroup", "cgroup2" },
		{ "/sys/kernel/debug", "debugfs" },
		{ "/sys/kernel/config", "configfs" },
	};
	size_t i;

	for (i = 0; i < ARRAY_SIZE(mounts); i++) {
		mkdir(mounts[i].dir, 0755);
		if (mount(mounts[i].type, mounts[i].dir, mounts[i].type, 0, NULL) &&
		    errno != EBUSY)
			printf("MMLAB: cannot mount %s on %s: %s\n",
			       mounts[i].type, mounts[i].dir, strerror(errno));
	}
}

int main(void)
{
	char *argv[32] = { NULL }, *test, *lru, *args, *fault, *delay, path[256];
	bool stamp, profile;
	struct snap before, after;
	struct sysinfo info;
	struct utsname u;
	double start;
	int n = 0, status;

	setvbuf(stdout, NULL, _IOLBF, 0);
	/* File systems may be in modules, and parameters of these in /proc. */
	mkdir("/proc", 0755);
	mount("proc", "/proc", "proc", 0, NULL);
	read_file("/proc/cmdline", cmdline, sizeof(cmdline));
	load_modules();
	mount_all();
	setenv("PATH", "/usr/sbin:/usr/bin:/sbin:/bin", 1);
	setenv("HOME", "/", 1);
	/* Printk from KERN_WARNING up goes to the console as well. */
	uname(&u);
	sysinfo(&info);
	printf("\nMMLAB: boot %s cpus=%ld mem_kb=%lu\n", u.release,
	       sysconf(_SC_NPROCESSORS_ONLN),
	       (unsigned long)(info.totalram * info.mem_unit / 1024));

	test = param("mmlab.test");
	lru = param("mmlab.lru");
	args = param("mmlab.args");
	fault = param("mmlab.fault");
	delay = param("mmlab.delay");
	stamp = param("mmlab.stamp");
	profile = param("mmlab.profile");
	if (profile)
		profile_start();
	if (fault && !strcmp(fault, "panic"))
		return 1;	/* the kernel does not survive its init */
	if (fault && !strcmp(fault, "hang"))
		for (;;)
			pause();
	if (fault) {
		/* A run that ends well, but for the cgroup it leaves. */
		argv[n++] = "/bin/busybox";
		argv[n++] = "sh";
		argv[n++] = "-c";
		argv[n++] = "echo TAP version 13; echo 1..1; echo ok 1 leak; mkdir /sys/fs/cgroup/left";
	} else if (test) {
		snprintf(path, sizeof(path), "/tests/%s", test);
		argv[n++] = path;
		if (lru) {
			argv[n++] = "-l";
			argv[n++] = lru;
		}
	} else {
		printf("MMLAB: nothing to run: no mmlab.test= on the command line\n");
		goto end;
	}
	while (args && n < (int)ARRAY_SIZE(argv) - 1) {
		char *arg = strsep(&args, ",");

		if (*arg)
			argv[n++] = arg;
	}

	if (delay)
		usleep(atoi(delay));
	printf("MMLAB: begin test=%s lru=%s\n", test ?: fault, lru ?: "none");
	snapshot(&before);
	start = seconds();
	status = run(argv, stamp);
	if (status == -1 || WIFSIGNALED(status))
		printf("MMLAB: exit signal %d\n", WTERMSIG(status));
	else
		printf("MMLAB: exit %d\n", WEXITSTATUS(status));
	printf("MMLAB: seconds %.9f\n", seconds() - start);
	reap();
	if (profile)
		profile_print();
	snapshot(&after);
	report_leaks(&before, &after);
end:
	printf("MMLAB: end\n");
	fflush(stdout);
	/* The UART has to get rid of it before the reset. */
	tcdrain(STDOUT_FILENO);
	sync();
	reboot(RB_AUTOBOOT);
	for (;;)
		pause();
}
