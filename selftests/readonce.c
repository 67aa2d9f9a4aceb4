// SPDX-License-Identifier: GPL-2.0
/*
 * How much does a task reclaim that has to reclaim for itself?
 *
 * Files that are read once fill memory with page cache faster than kswapd can
 * free it. The readers then meet the min watermark and go into direct reclaim;
 * each such stall should be worth its while, and must not be without end. At
 * the default priority it is to take 1 / 4096 of the page cache of the node, up
 * to 4 MiB: however memory is divided among control groups, and whatever the
 * kind of LRU.
 *
 * The set-up is that of the 2014 report: sparse files on XFS on a loop device,
 * each with a reader that reads 4 KiB at a time (here: a page), all of memory
 * full. Reads are announced as random, so that each brings in one base page and
 * counts are exact; kswapd is at nice 19, and the readers leave no CPU idle, so
 * that it does not keep up.
 *
 * Rows count pgsteal_direct and allocstall_* of /proc/vmstat. Where there is
 * tracefs, the length of the stalls is printed too: nothing is judged by it.
 *
 * Code under test: shrink_node() and what it calls, for global direct reclaim;
 * and beside it memory.reclaim and the limits of control groups.
 */
#define _FILE_OFFSET_BITS 64
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "kselftest.h"
#include "reclaim_util.h"

/* Control groups that share the memory; a reader in each, or all in one. */
#define GROUPS		16
#define MAX_READERS	120

/* Of mm/vmscan.c; sizes are in pages, but for the last one. */
#define DEF_PRIORITY	12
#define CLUSTER		32	/* SWAP_CLUSTER_MAX */
#define LRU_BATCH	64	/* MIN_LRU_BATCH */
#define BATCH_MAX	(4 * 1024 * 1024UL)

/*
 * A batch of MGLRU is 64 pages, and without a fix a stall ends with the first
 * one. To be told from that, what a stall should take has to be half as much
 * again, and what it does take an eighth more.
 */
#define LEAST_EXPECTED	(LRU_BATCH * 3 / 2)
#define LEAST_TAKEN	(LRU_BATCH * 9 / 8)

/* Deleted groups that leave page cache behind, and how many pages each. */
#define DYING		64
#define DYING_PAGES	1024UL

/* Groups with nothing in them. */
#define EMPTY		1000

/* Of a group that memory.reclaim is used on, or that is at its limit. */
#define SMALL		8192UL

/*
 * Stalls to look at: enough for an average, and few enough to be quick. Deleted
 * groups are emptied as it goes: there the first ones tell.
 */
#define STALLS		128
#define DYING_STALLS	32
#define LEAST_STALLS	6

/* Where all of RAM is too much to fill without being asked to. */
#define FILL_MAX_KB	(8LL * 1024 * 1024)

/* Polls end here: many times what a step takes under emulation. */
#define TIMEOUT_MS	60000

#define MIB		(1024 * 1024UL)

static const char fix_classic[] =
	"mm: vmscan: size the batch of direct reclaim by the node";
static const char fix_mglru[] =
	"mm: mglru: size the batch of direct reclaim by the node";
static const char fix_proactive[] =
	"mm: memcg: reclaim what memory.reclaim asks for in parts";

/* What a member is told to do; it echoes what it has done. */
enum order {
	READ = 'r',	/* page by page, until told to stop */
	FILL = 'f',	/* @pages, in any way that is fast */
	HEAT = 'h',	/* the first @pages twice, which makes them active */
	ANON = 'a',	/* touch @pages of anon memory, and keep them */
	SHMEM = 's',	/* likewise of shmem, which is not mapped */
};

/* What the parent asks a member for, and what it answers. */
struct share {
	size_t pages;		/* READ: 0 is without end */
	bool stop;
	long long done;		/* pages that all its readers have read */
	char why[256];
};

struct group {
	char cg[PATH_MAX];
	struct ru_child child;
	struct share *share;
	size_t first, readers;	/* files that it reads */
};

struct counters {
	long long stalls;
	long long direct, kswapd;	/* pgsteal_* */
	long long scan;			/* pgscan_direct */
	long long file;			/* page cache, in pages */
	long long read;
	long long ms;
};

static size_t page_size;
static long scale;			/* 0: READONCE_SCALE is not set */
static const char *lru_name;
static enum ru_lru lru_kind;
static char fs[PATH_MAX];
static char tracing[PATH_MAX];

static size_t pages_of(size_t bytes)
{
	return bytes / page_size;
}

static int why_errno(const char *what)
{
	snprintf(ru_why, sizeof(ru_why), "%s: %s", what, strerror(errno));
	return -1;
}

/*
 * The members of groups, and their readers
 */

struct reader {
	pthread_t thread;
	struct share *share;
	int fd;
	off_t pos;
	enum order order;
	int err;
};

static void *reader(void *arg)
{
	struct reader *r = arg;
	/* No more than the default read_ahead_kb: the kernel stops there. */
	size_t step = r->order == FILL ? pages_of(128 * 1024) * page_size ?:
					 page_size : page_size;
	char *buf = malloc(page_size);
	size_t done = 0;

	r->err = buf ? 0 : ENOMEM;
	while (!r->err && (!r->share->pages || done < r->share->pages) &&
	       !__atomic_load_n(&r->share->stop, __ATOMIC_RELAXED)) {
		if (r->order == FILL)
			r->err = posix_fadvise(r->fd, r->pos, step,
					       POSIX_FADV_WILLNEED);
		else if (pread(r->fd, buf, step, r->pos) != (ssize_t)step)
			r->err = errno ?: EIO;
		r->pos += step;
		done += step / page_size;
		__atomic_add_fetch(&r->share->done, step / page_size,
				   __ATOMIC_RELAXED);
	}
	free(buf);
	return NULL;
}

static int run_readers(struct reader *r, size_t nr, enum order order)
{
	size_t i, started;
	int err = 0;

	for (started = 0; started < nr; started++) {
		r[started].order = order;
		err = pthread_create(&r[started].thread, NULL, reader,
				     &r[started]);
		if (err)
			break;
	}
	for (i = 0; i < started; i++) {
		pthread_join(r[i].thread, NULL);
		err = err ?: r[i].err;
	}
	errno = err;
	return err ? why_errno("a reader") : 0;
}

static int open_file(size_t nr)
{
	char path[PATH_MAX + 32];
	int fd;

	snprintf(path, sizeof(path), "%s/sparse-%zu", fs, nr);
	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	/* 36 GiB as in the report: no reader gets to the end. */
	if (fd < 0 || ftruncate(fd, 36 * 1024 * MIB) ||
	    posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM)) {
		why_errno("cannot make a sparse file");
		if (fd >= 0)
			close(fd);
		return -1;
	}
	return fd;
}

static int heat(int fd, size_t pages)
{
	char *buf = malloc(page_size);
	size_t i;

	for (i = 0; buf && i < 2 * pages; i++)
		if (pread(fd, buf, page_size, i % pages * page_size) !=
		    (ssize_t)page_size)
			break;
	free(buf);
	return i < 2 * pages ? why_errno("a reader") : 0;
}

static int touch_anon(size_t pages)
{
	size_t size = pages * page_size, i;
	char *p = mmap(NULL, size, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		return why_errno("mmap");
	madvise(p, size, MADV_NOHUGEPAGE);
	for (i = 0; i < size; i += page_size)
		*(size_t *)(p + i) = i + 1;
	return 0;
}

/* On the anon lists, and with no young bit to save it from reclaim. */
static int write_shmem(size_t pages)
{
	int fd = memfd_create("readonce", MFD_CLOEXEC);
	char *buf = malloc(page_size);
	size_t i;

	if (fd < 0 || !buf)
		return why_errno("memfd_create");
	memset(buf, 0x5a, page_size);
	for (i = 0; i < pages; i++)
		if (write(fd, buf, page_size) != (ssize_t)page_size)
			return why_errno("write to shmem");
	free(buf);
	return 0;
}

static __noreturn void member(struct group *g)
{
	static struct reader r[MAX_READERS];
	unsigned char order;
	size_t i;

	if (ru_cg_enter(g->cg))
		goto fail;
	for (i = 0; i < g->readers; i++) {
		r[i].share = g->share;
		r[i].fd = open_file(g->first + i);
		if (r[i].fd < 0)
			goto fail;
	}
	while (read(g->child.in, &order, 1) == 1) {
		int ret;

		if (order == ANON)
			ret = touch_anon(g->share->pages);
		else if (order == SHMEM)
			ret = write_shmem(g->share->pages);
		else if (order == HEAT)
			ret = heat(r[0].fd, g->share->pages);
		else
			ret = run_readers(r, g->readers, order);
		if (ret)
			goto fail;
		if (write(g->child.out, &order, 1) != 1)
			break;
	}
	_exit(0);
fail:
	snprintf(g->share->why, sizeof(g->share->why), "%.255s", ru_why);
	_exit(1);
}

/* A group below @parent with a member that reads @readers files. */
static int start(struct group *g, const char *parent, const char *name,
		 size_t first, size_t readers)
{
	pid_t pid;

	if (!g->share) {
		g->share = mmap(NULL, sizeof(*g->share), PROT_READ | PROT_WRITE,
				MAP_SHARED | MAP_ANONYMOUS, -1, 0);
		if (g->share == MAP_FAILED) {
			g->share = NULL;
			return why_errno("mmap");
		}
	}
	memset(g->share, 0, sizeof(*g->share));
	g->first = first;
	g->readers = readers;
	if (ru_cg_create(g->cg, parent, name))
		return -1;
	pid = ru_fork(&g->child);
	if (pid < 0)
		return -1;
	if (!pid)
		member(g);
	return 0;
}

static int wait_done(struct group *g, enum order order)
{
	if (!ru_done(&g->child, order, TIMEOUT_MS * (scale ?: 1)))
		return 0;
	if (g->share->why[0])
		snprintf(ru_why, sizeof(ru_why), "%s", g->share->why);
	return -1;
}

/* Have the members of @nr groups begin with something, @pages in all. */
static int begin(struct group *g, size_t nr, enum order order, size_t pages)
{
	size_t readers = 0, i;

	for (i = 0; i < nr; i++)
		readers += g[i].readers ?: 1;
	for (i = 0; i < nr; i++) {
		g[i].share->pages = (pages + readers - 1) / readers;
		g[i].share->done = 0;
		g[i].share->stop = false;
		if (ru_order(&g[i].child, order))
			return -1;
	}
	return 0;
}

static int end(struct group *g, size_t nr, enum order order)
{
	int ret = 0;
	size_t i;

	for (i = 0; i < nr; i++)
		ret = ret ?: wait_done(&g[i], order);
	return ret;
}

static int tell(struct group *g, size_t nr, enum order order, size_t pages)
{
	return begin(g, nr, order, pages) ?: end(g, nr, order);
}

static void stop(struct group *g, size_t nr)
{
	size_t i;

	for (i = 0; i < nr; i++)
		__atomic_store_n(&g[i].share->stop, true, __ATOMIC_RELAXED);
}

static long long pages_read(struct group *g, size_t nr)
{
	long long sum = 0;
	size_t i;

	for (i = 0; i < nr; i++)
		sum += __atomic_load_n(&g[i].share->done, __ATOMIC_RELAXED);
	return sum;
}

/*
 * Counters
 */

static long long stalls(void)
{
	FILE *f = fopen("/proc/vmstat", "re");
	long long sum = 0, n;
	char name[64];

	if (!f)
		return why_errno("no /proc/vmstat");
	while (fscanf(f, "%63s %lld", name, &n) == 2)
		if (!strncmp(name, "allocstall_", 11))
			sum += n;
	fclose(f);
	return sum;
}

static long long file_pages(void)
{
	return ru_vmstat("nr_inactive_file") + ru_vmstat("nr_active_file");
}

static int read_counters(struct counters *c, struct group *g, size_t nr)
{
	c->stalls = stalls();
	c->direct = ru_vmstat("pgsteal_direct");
	c->kswapd = ru_vmstat("pgsteal_kswapd");
	c->scan = ru_vmstat("pgscan_direct");
	c->file = file_pages();
	c->read = pages_read(g, nr);
	c->ms = ru_mono_ms();
	return c->stalls < 0 || c->direct < 0 || c->kswapd < 0 || c->scan < 0 ?
	       -1 : 0;
}

/* The sum of the high watermarks of all zones, in pages. */
static long long high_wmark(void)
{
	FILE *f = fopen("/proc/zoneinfo", "re");
	long long sum = 0, n;
	char line[256];

	if (!f)
		return why_errno("no /proc/zoneinfo");
	while (fgets(line, sizeof(line), f))
		if (sscanf(line, " high %lld", &n) == 1)
			sum += n;
	fclose(f);
	return sum;
}

/*
 * The length of stalls, where there are tracepoints
 */

static const char * const events[] = {
	"events/vmscan/mm_vmscan_direct_reclaim_begin/enable",
	"events/vmscan/mm_vmscan_direct_reclaim_end/enable",
};

static FILE *trace_file(const char *file, const char *mode)
{
	char path[PATH_MAX + 64];

	if (!tracing[0])
		return NULL;
	snprintf(path, sizeof(path), "%s/%s", tracing, file);
	return fopen(path, mode);
}

static void trace_events(const char *on)
{
	size_t i;

	for (i = 0; i < ARRAY_SIZE(events); i++) {
		FILE *f = trace_file(events[i], "we");

		if (f) {
			fputs(on, f);
			fclose(f);
		}
	}
}

static void trace_begin(void)
{
	/* Opening it for writing empties it. */
	FILE *f = trace_file("trace", "we");

	if (f)
		fclose(f);
	trace_events("1");
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

static void trace_show(const char *name)
{
	static double length[16384];
	static struct {
		int pid;
		double begin;
	} stall[256];
	long long pages, most = 0;
	size_t nr = 0, i;
	double sum = 0;
	char line[512];
	FILE *f;

	f = trace_file("trace", "re");
	if (!f)
		return;
	memset(stall, 0, sizeof(stall));
	/* "readonce-123  [000] .....  1.234567: mm_vmscan_...: nr_...=" */
	while (fgets(line, sizeof(line), f)) {
		char *cpu = strchr(line, '[');
		char *event = strstr(line, ": mm_vmscan_direct_reclaim_");
		char *p;
		double at;
		int pid;

		if (!cpu || !event || line[0] == '#')
			continue;
		*cpu = '\0';
		p = strrchr(line, '-');
		pid = p ? atoi(p + 1) : 0;
		*event = '\0';
		p = strrchr(cpu + 1, ' ');
		at = p ? atof(p) : 0;
		for (i = 0; i < ARRAY_SIZE(stall); i++)
			if (stall[i].pid == pid || !stall[i].pid)
				break;
		if (!pid || i == ARRAY_SIZE(stall) || nr == ARRAY_SIZE(length))
			continue;
		if (strstr(event + 1, "_begin:")) {
			stall[i].pid = pid;
			stall[i].begin = at;
			continue;
		}
		if (!stall[i].begin)
			continue;
		length[nr] = (at - stall[i].begin) * 1e6;
		stall[i].begin = 0;
		sum += length[nr++];
		p = strstr(event + 1, "nr_reclaimed=");
		pages = p ? atoll(p + 13) : 0;
		most = pages > most ? pages : most;
	}
	fclose(f);
	if (!nr)
		return;
	qsort(length, nr, sizeof(length[0]), by_value);
	ksft_print_msg("counters[%s, length]: stalls=%zu most_pages=%lld p50_us=%.0f p99_us=%.0f max_us=%.0f sum_us=%.0f\n",
		       name, nr, most, length[nr / 2], length[nr * 99 / 100],
		       length[nr - 1], sum);
}

/*
 * The rows
 */

static void judged(const char *name, bool ok, const char *fix)
{
	if (!ok && fix)
		ksft_print_msg("missing fix: \"%s\"\n", fix);
	ksft_test_result(ok, "%s: %s\n", lru_name, name);
}

static void skipped(const char *name)
{
	ksft_test_result_skip("%s: %s: %s\n", lru_name, name, ru_why);
}

static bool between(const char *what, long long got, long long lo, long long hi)
{
	ksft_print_msg("%s %lld, at least %lld and at most %lld\n", what, got,
		       lo, hi);
	return got >= lo && got <= hi;
}

/* Have page cache of the groups fill memory, up to where kswapd wakes up. */
static int fill_memory(struct group *g, size_t nr)
{
	long long high = high_wmark(), begun = ru_mono_ms(), left;
	int tries;

	if (high < 0)
		return -1;
	for (tries = 0; tries < 8; tries++) {
		left = ru_vmstat("nr_free_pages") - high;
		if (left <= high / 8) {
			ksft_print_msg("memory is full after %lld ms\n",
				       ru_mono_ms() - begun);
			return 0;
		}
		if (tell(g, nr, FILL, left))
			return -1;
	}
	snprintf(ru_why, sizeof(ru_why),
		 "reading files ahead does not fill memory: %lld MiB are free",
		 (left + high) * (long long)page_size >> 20);
	return -1;
}

/* Wait until the readers have had so many more stalls, or read so much more. */
static int wait_stalls(struct group *g, size_t nr, long long want,
		       long long pages)
{
	const struct timespec tick = { .tv_nsec = 2 * 1000 * 1000 };
	long long limit = ru_mono_ms() + TIMEOUT_MS * (scale ?: 1);
	long long first = stalls(), begun = pages_read(g, nr);

	while (stalls() - first < want && pages_read(g, nr) - begun < pages) {
		if (ru_mono_ms() > limit) {
			snprintf(ru_why, sizeof(ru_why),
				 "the readers make no progress");
			return -1;
		}
		nanosleep(&tick, NULL);
	}
	return 0;
}

/*
 * Memory is full: have the readers go on, and count @want stalls, after a few
 * or from the @first one on.
 */
static int measure(const char *name, struct group *g, size_t nr, long want,
		   bool first, struct counters *c, long long *expected)
{
	long long e = file_pages() >> DEF_PRIORITY;
	/* Should a stall free much of memory, until that is used up again. */
	long long pages = file_pages() / 4;
	int nice = getpriority(PRIO_PROCESS, 0), ret;
	struct counters a;

	*expected = e < (long long)pages_of(BATCH_MAX) ?
		    e : (long long)pages_of(BATCH_MAX);
	if (begin(g, nr, READ, 0))
		return -1;
	/* In time to see what there is to see, with no CPU idle. */
	setpriority(PRIO_PROCESS, 0, -10);
	/*
	 * From the high watermark to the first stalls, then some. A quarter of
	 * memory is more than there is between any two watermarks.
	 */
	ret = first ? 0 : wait_stalls(g, nr, LEAST_STALLS, pages);
	if (!ret) {
		ret = read_counters(&a, g, nr);
		trace_begin();
		ret = ret ?: wait_stalls(g, nr, want * (scale ?: 1), pages);
		trace_events("0");
		ret = ret ?: read_counters(c, g, nr);
	}
	stop(g, nr);
	setpriority(PRIO_PROCESS, 0, nice);
	if (end(g, nr, READ) || ret)
		return -1;
	c->stalls -= a.stalls;
	c->direct -= a.direct;
	c->kswapd -= a.kswapd;
	c->scan -= a.scan;
	c->read -= a.read;
	c->ms -= a.ms;
	trace_show(name);
	ksft_print_msg("counters[%s]: pages_a_stall=%lld expected=%lld allocstall=%lld pgsteal_direct=%lld pgscan_direct=%lld pgsteal_kswapd=%lld read=%lld ms=%lld stalls_per_10000=%lld\n",
		       name, c->stalls ? c->direct / c->stalls : 0, *expected,
		       c->stalls, c->direct, c->scan, c->kswapd, c->read,
		       c->ms, c->read ? c->stalls * 10000 / c->read : 0);
	if (c->stalls >= LEAST_STALLS)
		return 0;
	snprintf(ru_why, sizeof(ru_why),
		 "kswapd keeps up: %lld stalls for %lld pages read", c->stalls,
		 c->read);
	return -1;
}

/*
 * What a stall takes is the share of each group at the default priority, size
 * >> DEF_PRIORITY: in all 1 / 4096 of the page cache. Rounding leaves up to a
 * page of each group behind, and readers that reclaim at the same time share
 * the walk over the groups: each may get half of it and less, down to the 32
 * pages which it is after. The average is to be half at least. At most it may
 * be four times as much: a stall goes on with the next group until it has got
 * enough, takes whole batches of 64 pages, and when the priority drops once,
 * twice as much from each group.
 */
static void row_stall(const char *name, struct group *g, size_t nr, long want,
		      bool first)
{
	long long e, lo;
	struct counters c;

	if (measure(name, g, nr, want, first, &c, &e)) {
		skipped(name);
		return;
	}
	if (e < LEAST_EXPECTED) {
		snprintf(ru_why, sizeof(ru_why),
			 "needs %zu MiB of page cache: of %lld pages one in 4096 is less than %d",
			 LEAST_EXPECTED * page_size << DEF_PRIORITY >> 20,
			 c.file, LEAST_EXPECTED);
		skipped(name);
		return;
	}
	lo = e / 2 > LEAST_TAKEN ? e / 2 : LEAST_TAKEN;
	judged(name, between("pages a stall", c.direct / c.stalls, lo, 4 * e),
	       lru_kind == RU_MGLRU ? fix_mglru : fix_classic);
}

/*
 * What tasks have reclaimed from a group, not counting kswapd, which may still
 * be at it.
 */
static long long stolen(const char *cg)
{
	long long proactive;

	if (ru_cg_settle())
		return -1;
	/* Counted apart since 6.16. */
	proactive = ru_cg_stat(cg, "pgsteal_proactive");
	return ru_cg_stat(cg, "pgsteal_direct") +
	       (proactive > 0 ? proactive : 0);
}

/*
 * Ask for some of a group, and get that: no less, as the group has plenty, and
 * not much more. The kernel asks itself for a part of what is left at a time,
 * with a last part of 32 pages, and each may end with a batch of 64 that was
 * begun; a parent has its groups scanned one by one, and stops with the one
 * that makes up the part. A sixteenth is for what is on its way between lists
 * and the counters of the CPUs.
 */
static bool ask_for(const char *name, const char *cg, long long want)
{
	long long before = stolen(cg), got;

	/* EAGAIN is when not all of it could be had: that shows. */
	if (ru_cg_write_bytes(cg, "memory.reclaim", want * page_size) &&
	    errno != EAGAIN)
		ksft_print_msg("%s\n", ru_why);
	got = stolen(cg) - before;
	ksft_print_msg("counters[%s]: asked=%lld got=%lld\n", name, want, got);
	return between("pages reclaimed", got, want - want / 16,
		       want + want / 16 + 2 * LRU_BATCH);
}

static void row_reclaim(const char *name, const char *cg)
{
	judged(name, ask_for(name, cg, pages_of(24 * MIB)), fix_proactive);
}

/* Groups that are gone, and have left page cache behind. */
static int make_dying(void)
{
	static struct group g;
	size_t i;

	for (i = 0; i < DYING; i++) {
		size_t mark = ru_mark();

		if (start(&g, NULL, "readonce_dying", MAX_READERS + i, 1) ||
		    tell(&g, 1, FILL, DYING_PAGES))
			return -1;
		ru_unwind(mark);
	}
	return 0;
}

/*
 * A group with as much on the anon lists as page cache, which has been used
 * more than once: else reclaim would do with page cache alone. It is asked for
 * a quarter of all. If either gave all of that, it would be left with half, and
 * no more than half of that again may go.
 */
static void row_both(const char *name)
{
	static struct group g;
	long long anon, file;
	bool ok;

	if (ru_swap_on(2 * SMALL * page_size) ||
	    start(&g, NULL, "readonce_both", 0, 1) ||
	    tell(&g, 1, SHMEM, SMALL) || tell(&g, 1, HEAT, SMALL)) {
		skipped(name);
		return;
	}
	ok = ask_for(name, g.cg, SMALL / 2);
	if (ru_cg_settle()) {
		skipped(name);
		return;
	}
	anon = ru_cg_stat(g.cg, "inactive_anon") +
	       ru_cg_stat(g.cg, "active_anon");
	file = ru_cg_stat(g.cg, "inactive_file") +
	       ru_cg_stat(g.cg, "active_file");
	anon /= (long long)page_size;
	file /= (long long)page_size;
	ksft_print_msg("counters[%s]: anon=%lld file=%lld\n", name, anon, file);
	ok &= between("pages left on the anon lists", anon, SMALL / 4,
		      SMALL + SMALL / 16);
	ok &= between("pages of page cache left", file, SMALL / 4,
		      SMALL + SMALL / 16);
	judged(name, ok, fix_proactive);
}

static long long event(const char *cg, const char *key)
{
	char path[PATH_MAX + 32];

	snprintf(path, sizeof(path), "%s/memory.events", cg);
	return ru_key(path, key);
}

/*
 * A parent at its limit has a thousand groups, and one of them has all the
 * memory: reclaim has to find it, and where there is nothing to reclaim, the
 * OOM killer has to come.
 */
static void row_empty(const char *stream, const char *oom)
{
	static struct group g, hog;
	char parent[PATH_MAX];
	long long max, kills;
	bool ok;

	if (ru_cg_create(parent, NULL, "readonce_many") ||
	    ru_cg_create_many(parent, EMPTY) ||
	    ru_cg_write_bytes(parent, "memory.max", SMALL * page_size) ||
	    start(&g, parent, "reader", 0, 1) ||
	    start(&hog, parent, "hog", 0, 0)) {
		skipped(stream);
		skipped(oom);
		return;
	}
	ok = !tell(&g, 1, READ, 4 * SMALL);
	if (!ok)
		ksft_print_msg("%s\n", ru_why);
	max = event(parent, "max");
	ksft_print_msg("counters[%s]: read=%lld max=%lld\n", stream,
		       pages_read(&g, 1), max);
	judged(stream, ok && max > 0, NULL);

	/* It is killed: what it answers is the end of the pipe. */
	ok = tell(&hog, 1, ANON, 4 * SMALL);
	kills = event(parent, "oom_kill");
	ksft_print_msg("counters[%s]: oom_kill=%lld\n", oom, kills);
	ok = ok && kills > 0;
	judged(oom, ok, NULL);
}

static const char groups_stall[] = "16 groups: a stall takes its share";
static const char groups_reclaim[] =
	"memory.reclaim of 16 groups: what is asked for, and not much more";
static const char one_stall[] = "1 group: a stall takes its share";
static const char one_reclaim[] =
	"memory.reclaim of a group: what is asked for, and not much more";
static const char dying_stall[] = "64 deleted groups: a stall takes its share";
static const char both_left[] =
	"memory.reclaim of anon and file: neither is emptied";
static const char many_stream[] = "1000 groups at a limit: a reader goes on";
static const char many_oom[] = "1000 groups at a limit: the OOM killer comes";

#define ROWS	8

/* Page cache of what a row has read is not to be that of deleted groups. */
static void remove_files(size_t first, size_t nr)
{
	char path[PATH_MAX + 32];
	size_t i;

	for (i = first; i < first + nr; i++) {
		snprintf(path, sizeof(path), "%s/sparse-%zu", fs, i);
		unlink(path);
	}
}

static void run_groups(size_t readers)
{
	static struct group g[GROUPS];
	char parent[PATH_MAX], name[32];
	size_t i, each = readers / GROUPS ?: 1;
	int ret;

	ret = ru_cg_create(parent, NULL, "readonce");
	for (i = 0; !ret && i < GROUPS; i++) {
		snprintf(name, sizeof(name), "group%zu", i);
		ret = start(&g[i], parent, name, i * each, each);
	}
	if (ret || fill_memory(g, GROUPS)) {
		skipped(groups_stall);
		skipped(groups_reclaim);
		return;
	}
	row_stall(groups_stall, g, GROUPS, STALLS, false);
	row_reclaim(groups_reclaim, parent);
	remove_files(0, GROUPS * each);
}

static void run_one(size_t readers)
{
	static struct group g;

	if (start(&g, NULL, "readonce", 0, readers) || fill_memory(&g, 1)) {
		skipped(one_stall);
		skipped(one_reclaim);
		return;
	}
	row_stall(one_stall, &g, 1, STALLS, false);
	row_reclaim(one_reclaim, g.cg);
	remove_files(0, readers);
}

static void run_dying(size_t readers)
{
	static struct group g;

	if (make_dying() || start(&g, NULL, "readonce", 0, readers) ||
	    fill_memory(&g, 1)) {
		skipped(dying_stall);
		return;
	}
	row_stall(dying_stall, &g, 1, DYING_STALLS, true);
	remove_files(0, readers);
	remove_files(MAX_READERS, DYING);
}

/* XFS on a loop device, as in the report; ext4 where there is no XFS. */
static int make_fs(size_t readers)
{
	char dev[PATH_MAX], first[sizeof(ru_why) / 2];

	if (ru_loop(dev, 1024 * MIB))
		return -1;
	if (!ru_mount_new(dev, "xfs", fs)) {
		ksft_print_msg("%zu readers, files on XFS\n", readers);
		return 0;
	}
	snprintf(first, sizeof(first), "%.200s", ru_why);
	if (!ru_mount_new(dev, "ext4", fs)) {
		ksft_print_msg("%zu readers, files on ext4: %s\n", readers,
			       first);
		return 0;
	}
	strncat(ru_why, "; ", sizeof(ru_why) - strlen(ru_why) - 1);
	strncat(ru_why, first, sizeof(ru_why) - strlen(ru_why) - 1);
	return -1;
}

static void run_rows(enum ru_lru lru, size_t readers)
{
	static const char * const names[ROWS] = {
		groups_stall, groups_reclaim, one_stall, one_reclaim,
		dying_stall, both_left, many_stream, many_oom,
	};
	size_t mark = ru_mark(), row, i;

	lru_kind = lru;
	lru_name = ru_lru_name[lru];
	if (ru_lru_select(lru) || ru_pin_settings() || ru_shmem_huge_off() ||
	    ru_nice_kswapd(19) || make_fs(readers)) {
		for (i = 0; i < ROWS; i++)
			skipped(names[i]);
		ru_unwind(mark);
		return;
	}
	row = ru_mark();
	if (ru_tracing(tracing)) {
		tracing[0] = '\0';
		ksft_print_msg("no length of stalls: %s\n", ru_why);
		ru_unwind(row);
	}
	row = ru_mark();
	run_groups(readers);
	ru_unwind(row);
	run_one(readers);
	ru_unwind(row);
	run_dying(readers);
	ru_unwind(row);
	row_both(both_left);
	ru_unwind(row);
	row_empty(many_stream, many_oom);
	ru_unwind(mark);
}

static __noreturn void help(const char *prog)
{
	fprintf(stderr, "usage: [READONCE_SCALE=n] %s [-l classic|mglru]\n",
		prog);
	fprintf(stderr, "  -l              only this kind of LRU (default: both)\n");
	fprintf(stderr, "  READONCE_SCALE  16 * n readers, up to the 120 of the report, that\n");
	fprintf(stderr, "                  read n times as much; and as much memory as there is\n");
	exit(KSFT_FAIL);
}

int main(int argc, char **argv)
{
	bool kinds[RU_NR_LRU] = { true, true };
	const char *env = getenv("READONCE_SCALE");
	size_t readers, i, nr;
	long long least_kb;
	int opt;

	while ((opt = getopt(argc, argv, "l:")) != -1)
		if (opt != 'l' || ru_lru_option(optarg, kinds))
			help(argv[0]);
	if (env) {
		scale = atol(env);
		if (scale < 1 || scale > 1000)
			help(argv[0]);
	}
	readers = GROUPS * (scale ?: 1);
	readers = readers < MAX_READERS ? readers : MAX_READERS;

	ksft_print_header();
	page_size = sysconf(_SC_PAGESIZE);
	if (geteuid())
		ksft_exit_skip("needs root: control groups, mount, lru_gen, nice of kswapd\n");
	if (ru_meminfo_kb("SwapTotal") > 0)
		ksft_exit_skip("swap is on, and page cache is to be all there is to reclaim: swapoff -a\n");
	if (!ru_one_node())
		ksft_exit_skip("several NUMA nodes: which one gets reclaimed is not known\n");
	/* The share of a list that has all of it would be too little. */
	least_kb = (LEAST_EXPECTED << DEF_PRIORITY) * (page_size / 1024);
	if (ru_meminfo_kb("MemTotal") < least_kb)
		ksft_exit_skip("needs %lld MiB of RAM, there are %lld\n",
			       least_kb / 1024,
			       ru_meminfo_kb("MemTotal") / 1024);
	if (!scale && ru_meminfo_kb("MemTotal") > FILL_MAX_KB)
		ksft_exit_skip("fills all RAM, of which there is much: READONCE_SCALE=8\n");
	ru_init();
	if (ru_cg_setup())
		ksft_exit_skip("%s\n", ru_why);

	nr = kinds[RU_CLASSIC] + kinds[RU_MGLRU];
	ksft_set_plan(nr * ROWS);
	for (i = 0; i < RU_NR_LRU; i++)
		if (kinds[i])
			run_rows(i, readers);

	if (ru_stuck()) {
		ksft_print_msg("swap of the test is still on\n");
		exit(KSFT_FAIL);
	}
	/* All rows skipped is a skip: nothing has been checked. */
	if (ksft_cnt.ksft_xskip == ksft_plan) {
		ksft_print_cnts();
		exit(KSFT_SKIP);
	}
	ksft_finished();
}
