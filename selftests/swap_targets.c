// SPDX-License-Identifier: GPL-2.0
/*
 * Does swap with several devices read back as well as swap with one?
 *
 * Swap readahead comes in two kinds. Where seeks are cheap a fault reads what
 * is next to the page in its VMA, wherever on the device that is; on a
 * rotational device, and for shmem, it reads the aligned block of slots around
 * the slot of the page. Either kind has a window that grows with the pages
 * which were read ahead and then needed, up to 1 << page-cluster, and that
 * shrinks to one page when they are not: random reads do not read ahead.
 *
 * That a second device is there must not change any of it. Each row makes the
 * devices, has a task in a control group of its own swap out, drops the swap
 * cache, has the task read back in some pattern, and looks at its major faults
 * and at pswpin, swap_ra and swap_ra_hit of /proc/vmstat. What was read is
 * compared with what was written.
 *
 * Code under test: swapin_readahead() and what it calls in mm/swap_state.c, and
 * how mm/swapfile.c picks the device for a page. None of it depends on the kind
 * of LRU; what comes before it, reclaim, does.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/swap.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "kselftest.h"
#include "reclaim_util.h"

#ifndef MADV_PAGEOUT
#define MADV_PAGEOUT	21
#endif

/* All sizes are in pages: the bounds hold for 4K as for 64K pages. */

/* What a row swaps out, if it does not say. */
#define REGION		4096UL

/* What is read one page after the other, and where that starts. */
#define SEQ		2048UL
#define SEQ_FROM	256UL

/*
 * Random blocks: 8 pages, the window of the default page-cluster, which is how
 * a heap is used: somewhere, and then around there. They start on any page, so
 * that it does not matter how slots are aligned to pages, which differs from
 * device to device; and each has twice its size to itself.
 */
#define BLOCK		8UL
#define BLOCKS		(REGION / (2 * BLOCK))

/*
 * Random pages are two windows apart, so that none is within a window around
 * another one, be it centred on the page or aligned.
 */
#define STRIDES		2UL

/* Two devices hold the pages of a VMA in turn, in runs of half a window. */
#define RUN		4UL

/*
 * Slots are handed to the CPUs in such batches by kernels before 6.15
 * (SWAP_SLOTS_CACHE_SIZE): so many may be in use with no page in them, or be
 * left over from the device that came before.
 */
#define SLOTS_CACHE	64UL

/* A device that gets full: more than a cluster of 4K pages, less than two. */
#define SMALL		600UL

#define MAX_DEVS	16

/* Polls end here: many times what a row takes under emulation. */
#define TIMEOUT_MS	30000

#define PAGE_CLUSTER	"/proc/sys/vm/page-cluster"
/* With 2 swapoff fails when what is left does not cover all that is mapped. */
#define OVERCOMMIT	"/proc/sys/vm/overcommit_memory"
#define VMA_RA		"/sys/kernel/mm/swap/vma_ra_enabled"
#define ZSWAP		"/sys/module/zswap/parameters/enabled"
#define PMD_SIZE	"/sys/kernel/mm/transparent_hugepage/hpage_pmd_size"

static const char fix_policy[] =
	"mm/swap_state: choose readahead by the device of the entry";
static const char fix_rotate[] =
	"mm/swapfile: let rotational devices take longer turns";
static const char fix_state[] =
	"mm/swap_state: cluster readahead state for each device";

enum pattern {
	READ_SEQ,	/* @count pages from @from on, see struct share */
	READ_BLOCKS,	/* all BLOCKS, shuffled */
	READ_RANDOM,	/* likewise, but @stride apart and shuffled */
	READ_TWO_SEQ,	/* @count pages from @from on, and from @other on */
	READ_SEQ_RANDOM, /* likewise, but random pages from @other on */
};

/* What the parent asks the task in the group for, and what it answers. */
struct share {
	size_t pages;		/* of the region */
	bool shmem;
	enum pattern pattern;
	size_t from;
	size_t count;
	bool runs;		/* every other RUN of pages, else all of them */
	size_t other;
	size_t stride;		/* of random pages */
	bool shuffled;		/* swap out in random order */
	bool stop;		/* leave the LOOP */

	long long majflt;	/* of the reads, or of those from @from on */
	long long majflt_other;
	long long rounds;	/* that the LOOP has made */
	long long loop_majflt;
	char why[512];
};

struct worker {
	struct ru_child child;
	struct share *share;
	bool dropped;		/* nothing is in the swap cache */
	char cg[PATH_MAX];
};

struct counters {
	long long majflt;
	long long pswpin;
	long long swap_ra;
	long long swap_ra_hit;
};

struct row {
	const char *name;
	/* Judges the row: 0, or -1 with ru_why when it could not be run. */
	int (*run)(const struct row *row);
	size_t ssd, rotational;	/* devices of the same priority */
	bool idle_disk;		/* and a rotational one which is not used */
	bool idle_file;		/* it is a file on such a disk */
	int page_cluster;	/* if not the default, 3; -1 for 0 */
	enum pattern pattern;
	bool shmem;
	size_t pages;
	const char *like;	/* row to be no worse than, and its fix */
	const char *fix;
};

static size_t page_size;
static long quick_rounds = 3, stress_seconds;

/* Results of the rows that others are compared with. */
static struct {
	const char *name;
	struct counters c;
} done[8];
static size_t nr_done;

/*
 * The task in the group
 */

static uint64_t *region;
static struct share *share;

static uint64_t *page(size_t i)
{
	return region + i * (page_size / sizeof(*region));
}

/* The number of the @i-th page that is swapped out, or read in order. */
static size_t nth(size_t i)
{
	return share->from + (share->runs ? i / RUN * 2 * RUN + i % RUN : i);
}

/* Never zero: pages of zeroes do not get to the device. */
static uint64_t tag(size_t i)
{
	return (i + 1) * 0x9e3779b97f4a7c15ULL;
}

/* Always the same order, so that a row does the same in each run. */
static size_t next_random(uint64_t *seed)
{
	*seed ^= *seed << 13;
	*seed ^= *seed >> 7;
	*seed ^= *seed << 17;
	return *seed >> 11;
}

static size_t *order;

static void shuffle(size_t n)
{
	uint64_t seed = 0x2545f4914f6cdd1dULL;
	size_t i;

	for (i = 0; i < n; i++) {
		size_t j = next_random(&seed) % (i + 1);

		order[i] = order[j];
		order[j] = i;
	}
}

static long long majflt(void)
{
	struct rusage ru;

	getrusage(RUSAGE_SELF, &ru);
	return ru.ru_majflt;
}

static __noreturn void give_up(const char *what, size_t i)
{
	snprintf(share->why, sizeof(share->why), "%s, page %zu", what, i);
	_exit(1);
}

/* Read page @i; returns the number of major faults that took. */
static long long touch(size_t i)
{
	long long before = majflt();

	if (__atomic_load_n(page(i), __ATOMIC_RELAXED) != tag(i))
		give_up("memory is not what it was", i);
	return majflt() - before;
}

static void fill(void)
{
	size_t size = share->pages * page_size, i;

	if (!region) {
		region = mmap(NULL, size, PROT_READ | PROT_WRITE,
			      (share->shmem ? MAP_SHARED : MAP_PRIVATE) |
			      MAP_ANONYMOUS, -1, 0);
		if (region == MAP_FAILED)
			give_up("mmap", 0);
		/* Huge pages are swapped out whole. */
		madvise(region, size, MADV_NOHUGEPAGE);
	}
	for (i = 0; i < share->pages; i++)
		*page(i) = tag(i);
}

static void swap_out(void)
{
	size_t i;

	if (!share->shuffled && !share->runs) {
		madvise(page(share->from), share->count * page_size,
			MADV_PAGEOUT);
		return;
	}
	shuffle(share->count);
	for (i = 0; i < share->count; i++) {
		madvise(page(nth(share->shuffled ? order[i] : i)), page_size,
			MADV_PAGEOUT);
	}
}

static void read_back(void)
{
	long long faults = 0, other = 0;
	uint64_t seed = 0x9e3779b97f4a7c15ULL;
	size_t i, j;

	switch (share->pattern) {
	case READ_SEQ:
		for (i = 0; i < share->count; i++)
			faults += touch(nth(i));
		break;
	case READ_BLOCKS:
		shuffle(share->count);
		for (i = 0; i < share->count; i++) {
			size_t first = order[i] * 2 * BLOCK +
				       next_random(&seed) % (BLOCK + 1);

			for (j = 0; j < BLOCK; j++)
				faults += touch(first + j);
		}
		break;
	case READ_RANDOM:
		shuffle(share->count);
		for (i = 0; i < share->count; i++)
			faults += touch(share->from + order[i] * share->stride);
		break;
	case READ_TWO_SEQ:
		for (i = 0; i < share->count; i++) {
			faults += touch(share->from + i);
			other += touch(share->other + i);
		}
		break;
	case READ_SEQ_RANDOM:
		shuffle(share->count / share->stride);
		for (i = 0; i < share->count; i++) {
			faults += touch(share->from + i);
			if (i % share->stride != share->stride / 2)
				continue;
			j = order[i / share->stride];
			other += touch(share->other + j * share->stride);
		}
		break;
	}
	share->majflt = faults;
	share->majflt_other = other;
}

/* The swapped out pages become those of two tasks, which both read them. */
static void read_forked(void)
{
	long long faults;
	int status = -1;
	pid_t pid = fork();
	size_t i;

	if (pid < 0)
		give_up("fork", 0);
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		read_back();
		/* From here on the pages are its own. */
		for (i = 0; i < share->count; i++)
			*page(share->from + i) = 0;
		_exit(0);
	}
	if (waitpid(pid, &status, 0) != pid || status)
		_exit(1);
	faults = share->majflt;
	read_back();
	share->majflt += faults;
}

/* Swap out, have the swap cache freed, and read back, until told to stop. */
static void loop(const char *cg)
{
	size_t size = share->pages * page_size;

	while (!__atomic_load_n(&share->stop, __ATOMIC_RELAXED)) {
		madvise(region, size, MADV_PAGEOUT);
		/* Not all of it may be there to reclaim: no matter. */
		ru_cg_write_bytes(cg, "memory.reclaim", size);
		read_back();
		share->loop_majflt += share->majflt;
		__atomic_add_fetch(&share->rounds, 1, __ATOMIC_RELAXED);
	}
}

enum task {
	FILL = 'f',
	OUT = 'o',
	READ = 'r',
	READ_FORKED = 'c',
	FREE = 'd',
	LOOP = 'l',
};

static __noreturn void work(const struct worker *w)
{
	unsigned char task;

	share = w->share;
	if (ru_cg_enter(w->cg) || ru_pin_cpu()) {
		snprintf(share->why, sizeof(share->why), "%s", ru_why);
		_exit(1);
	}
	order = calloc(share->pages, sizeof(*order));
	if (!order)
		give_up("calloc", 0);
	/* What the group swaps out is the region, and nothing else of it. */
	if (mlockall(MCL_CURRENT))
		give_up("mlockall", 0);

	while (read(w->child.in, &task, 1) == 1) {
		switch (task) {
		case FILL:
			fill();
			break;
		case OUT:
			swap_out();
			break;
		case READ:
			read_back();
			break;
		case READ_FORKED:
			read_forked();
			break;
		case FREE:
			madvise(region, share->pages * page_size,
				MADV_DONTNEED);
			break;
		case LOOP:
			loop(w->cg);
			break;
		}
		if (write(w->child.out, &task, 1) != 1)
			break;
	}
	_exit(0);
}

/*
 * The rows
 *
 * What goes wrong until the task has its memory is a skip. From then on all has
 * been there, and it is the kernel that did not swap out, or not back in what
 * was written.
 */
static bool under_test;

static int tell(struct worker *w, enum task what)
{
	if (!ru_tell(&w->child, what, TIMEOUT_MS))
		return 0;
	if (w->share->why[0])
		snprintf(ru_why, sizeof(ru_why), "%s", w->share->why);
	return -1;
}

/* A task in a new group, with @pages of memory. */
static int start(struct worker *w, const char *name, size_t pages, bool shmem)
{
	pid_t pid;

	/* Left to the end of the program: a few pages in all. */
	w->share = mmap(NULL, sizeof(*w->share), PROT_READ | PROT_WRITE,
			MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (w->share == MAP_FAILED) {
		snprintf(ru_why, sizeof(ru_why), "mmap: %s", strerror(errno));
		return -1;
	}
	w->share->pages = pages;
	w->share->shmem = shmem;
	if (ru_cg_create(w->cg, NULL, name))
		return -1;
	pid = ru_fork(&w->child);
	if (pid < 0)
		return -1;
	if (!pid)
		work(w);
	if (tell(w, FILL))
		return -1;
	under_test = true;
	return 0;
}

/* Swap out @count pages from @from on, and make sure of it. */
static int page_out(struct worker *w, size_t from, size_t count, bool in_order)
{
	long long before = ru_cg_read(w->cg, "memory.swap.current");
	long long want = count * page_size, got = 0;
	int tries;

	w->share->from = from;
	w->share->count = count;
	w->share->shuffled = !in_order;
	w->dropped = false;
	/* Again for what was on its way between lists. */
	for (tries = 0; tries < 3; tries++) {
		if (tell(w, OUT))
			return -1;
		got = ru_cg_read(w->cg, "memory.swap.current") - before;
		if (got >= want)
			return 0;
	}
	snprintf(ru_why, sizeof(ru_why),
		 "%lld of %zu pages could be swapped out",
		 got / (long long)page_size, count);
	return -1;
}

static int read_vmstat(struct counters *c)
{
	c->pswpin = ru_vmstat("pswpin");
	c->swap_ra = ru_vmstat("swap_ra");
	c->swap_ra_hit = ru_vmstat("swap_ra_hit");
	return c->pswpin < 0 || c->swap_ra < 0 || c->swap_ra_hit < 0 ? -1 : 0;
}

/* Have the task read what is swapped out, from swap, and count. */
static int in(struct worker *w, enum task what, enum pattern pattern,
	      size_t from, size_t count, struct counters *c)
{
	struct counters a;

	w->share->pattern = pattern;
	w->share->from = from;
	w->share->count = count;
	/* Once: reclaim is not to take what has been read meanwhile. */
	if (!w->dropped && ru_cg_drop_swapcache(w->cg, TIMEOUT_MS))
		return -1;
	w->dropped = true;
	if (read_vmstat(&a) || tell(w, what) || read_vmstat(c))
		return -1;
	c->majflt = w->share->majflt + w->share->majflt_other;
	c->pswpin -= a.pswpin;
	c->swap_ra -= a.swap_ra;
	c->swap_ra_hit -= a.swap_ra_hit;
	return 0;
}

static void show(const struct row *row, const char *what,
		 const struct counters *c)
{
	ksft_print_msg("counters[%s%s]: majflt=%lld pswpin=%lld swap_ra=%lld swap_ra_hit=%lld\n",
		       row->name, what, c->majflt, c->pswpin, c->swap_ra,
		       c->swap_ra_hit);
}

static bool at_most(const char *what, long long n, long long max)
{
	ksft_print_msg("%s %lld, at most %lld%s\n", what, n, max,
		       n > max ? "  <--" : "");
	return n <= max;
}

static bool at_least(const char *what, long long n, long long min)
{
	ksft_print_msg("%s %lld, at least %lld%s\n", what, n, min,
		       n < min ? "  <--" : "");
	return n >= min;
}

static const char *lru_name;

static void judged(const struct row *row, bool ok)
{
	under_test = false;
	if (!ok && row->fix)
		ksft_print_msg("missing fix: \"%s\"\n", row->fix);
	ksft_test_result(ok, "%s: %s\n", lru_name, row->name);
}

static int page_cluster(const struct row *row)
{
	return row->page_cluster < 0 ? 0 : row->page_cluster ?: 3;
}

/*
 * Reading in order takes a fault for each window. A window ends where the page
 * table does, at the latest, and starts anew behind: the cut one had few pages
 * to hit, so the next is smaller, and it takes a third to be back at the full
 * size. The first two come before there are any hits. So three for each table
 * that the @span of addresses has, which may be one more than fit into it, and
 * three to start with.
 */
static long long windows_max(size_t windows, size_t span)
{
	size_t ptes = page_size / sizeof(uint64_t);

	return windows + 3 * (span / ptes + 2);
}

static long long seq_max(size_t pages, size_t window)
{
	return window == 1 ? (long long)pages :
			     windows_max(pages / window, pages);
}

/*
 * A block is in two aligned blocks of slots at most, or in three half as large.
 * The window after a jump is at least half the one before, and the hits in a
 * block bring it back: two or three faults a block. Four, half of what there
 * are without readahead, is too many. A second device must not add a tenth.
 */
static long long blocks_max(void)
{
	return 4 * BLOCKS;
}

/*
 * The first jump after a stream still finds the hits of the stream and reads a
 * full window, of which all but one page are in vain. From then on there are
 * no hits, and each window is half the last one, down to a single page.
 */
static long long random_ra_max(size_t window)
{
	long long ra = 0;

	for (; window > 1; window /= 2)
		ra += window - 1;
	return ra;
}

/* No worse than the row that it has to be like, give or take a tenth. */
static bool like(const struct row *row, const struct counters *c)
{
	bool ok;
	size_t i;

	if (!row->like) {
		if (nr_done < ARRAY_SIZE(done)) {
			done[nr_done].name = row->name;
			done[nr_done++].c = *c;
		}
		return true;
	}
	for (i = 0; i < nr_done; i++)
		if (!strcmp(done[i].name, row->like))
			break;
	if (i == nr_done) {
		ksft_print_msg("nothing to compare with: \"%s\" was not run\n",
			       row->like);
		return false;
	}
	ok = at_most("majflt, compared with one device,", c->majflt,
		     done[i].c.majflt * 11 / 10);
	ok &= at_most("pswpin, compared with one device,", c->pswpin,
		      done[i].c.pswpin * 11 / 10);
	return ok;
}

static char dev[MAX_DEVS][PATH_MAX];

/*
 * Disks with room for all that a row swaps out on any of them. Kernels with
 * batches of slots only use these while there are five for each CPU free.
 */
static int disks(size_t pages, size_t ssd, size_t rotational)
{
	size_t spare = 5 * SLOTS_CACHE * (sysconf(_SC_NPROCESSORS_ONLN) + 1);
	/* The header takes a page. */
	size_t bytes = (pages + spare + 1) * page_size, i;

	for (i = 0; i < ssd + rotational; i++)
		if (ru_swap_disk(dev[i], bytes, 10, i >= ssd))
			return -1;
	return 0;
}

/* Pages in use on a device; ru_why is for the case that these are too few. */
static long long used(size_t i)
{
	long long bytes = ru_swap_used(dev[i]);

	if (bytes >= 0)
		snprintf(ru_why, sizeof(ru_why),
			 "%lld pages on device %zu",
			 bytes / (long long)page_size, i);
	return bytes < 0 ? -1 : bytes / (long long)page_size;
}

static int idle(const struct row *row)
{
	char disk[PATH_MAX], dir[PATH_MAX], path[PATH_MAX + 16];

	if (row->idle_disk)
		return ru_swap_disk(disk, SMALL * page_size, 0, true);
	if (!row->idle_file)
		return 0;
	/* What the least XFS takes: 300 MiB, but for its log not written to. */
	if (ru_disk(disk, 320UL << 20, true) || ru_mount_new(disk, "xfs", dir))
		return -1;
	snprintf(path, sizeof(path), "%s/swap", dir);
	return ru_swap_file(path, SMALL * page_size, 0);
}

static int set_up(const struct row *row, struct worker *w)
{
	size_t pages = row->pages ?: REGION;
	char value[16];

	snprintf(value, sizeof(value), "%d", page_cluster(row));
	if (ru_set(PAGE_CLUSTER, value) ||
	    disks(pages, row->ssd, row->rotational) || idle(row))
		return -1;
	return start(w, "swap_targets", pages, row->shmem);
}

/* Reading with one pattern, or in order and then at random. */
static int run_read(const struct row *row)
{
	static struct worker w;
	size_t window = 1UL << page_cluster(row);
	/* VMA readahead has to be what finds the neighbours. */
	bool in_order = row->rotational || row->shmem;
	size_t seq = row->pattern == READ_RANDOM ? SEQ / 2 : SEQ;
	struct counters c;
	bool ok;

	if (set_up(row, &w) || page_out(&w, 0, w.share->pages, in_order))
		return -1;
	if (row->pattern == READ_BLOCKS) {
		if (in(&w, READ, READ_BLOCKS, 0, BLOCKS, &c))
			return -1;
		show(row, "", &c);
		if (window == 1)
			ok = at_most("swap_ra", c.swap_ra, 0);
		else
			ok = at_most("majflt", c.majflt, blocks_max());
		judged(row, like(row, &c) && ok);
		return 0;
	}

	if (in(&w, READ, READ_SEQ, SEQ_FROM, seq, &c))
		return -1;
	show(row, "", &c);
	ok = at_most("majflt", c.majflt, seq_max(seq, window));
	/* What was read ahead gets needed, but for what the ends stick out. */
	ok &= at_most("pswpin", c.pswpin, seq + 2 * window);
	if (window == 1)
		ok &= at_most("swap_ra", c.swap_ra, 0);
	ok &= like(row, &c);
	if (row->pattern == READ_SEQ) {
		judged(row, ok);
		return 0;
	}

	w.share->stride = STRIDES * window;
	if (in(&w, READ, READ_RANDOM, SEQ_FROM + seq + 2 * window,
	       (w.share->pages - SEQ_FROM - seq) / w.share->stride - 2, &c))
		return -1;
	show(row, ", random", &c);
	ok &= at_most("swap_ra of random reads", c.swap_ra,
		      random_ra_max(window));
	/* And windows for streams only leave each random page to its fault. */
	ok &= at_least("majflt of random reads", c.majflt, w.share->count);
	judged(row, ok);
	return 0;
}

/*
 * Two streams of one task, each on a rotational device of its own, or one and
 * random reads.
 */
static int run_streams(const struct row *row)
{
	static struct worker w;
	size_t window = 1UL << page_cluster(row);
	/* Slots left over from the first device: not looked at. */
	size_t skip = 4 * SLOTS_CACHE, half = REGION / 2;
	size_t count = half - skip;
	struct counters c;
	bool ok;

	/* The first device gets full, and all the rest goes to the other. */
	if (ru_swap_disk(dev[0], (half + 1) * page_size, 10, true) ||
	    set_up(row, &w) || page_out(&w, 0, half, true) ||
	    ru_swap_disk(dev[1], REGION * page_size, 10, true) ||
	    page_out(&w, half, half, true))
		return -1;
	if (used(1) < (long long)(half - skip))
		return -1;
	w.share->other = half + skip;
	w.share->stride = STRIDES * window;
	if (in(&w, READ, row->pattern, skip, count, &c))
		return -1;
	show(row, "", &c);
	ok = at_most("majflt of the stream", w.share->majflt,
		     seq_max(count, window));
	if (row->pattern == READ_TWO_SEQ) {
		ok &= at_most("majflt of the other stream",
			      w.share->majflt_other, seq_max(count, window));
		ok &= at_most("pswpin", c.pswpin, 2 * (count + 2 * window));
	} else {
		size_t jumps = count / w.share->stride;

		ok &= at_least("majflt of random reads", w.share->majflt_other,
			       jumps);
		/* The stream reads all its pages but for the faults ahead. */
		ok &= at_most("pswpin", c.pswpin, count + 2 * window + jumps +
			      random_ra_max(window));
	}
	judged(row, ok);
	return 0;
}

/*
 * A VMA with pages on an SSD and on a rotational device in turn. A fault on the
 * SSD must not have the other one seek; to read all of it in order must take no
 * more faults for that.
 */
static int run_mixed(const struct row *row)
{
	static struct worker w;
	/* Slots left over from the first device: not looked at. */
	size_t skip = 4 * SLOTS_CACHE, count = REGION / 2 - skip;
	size_t window = 1UL << page_cluster(row);
	long long before, after;
	struct counters c;
	bool ok;

	/* The first device gets full, and all the rest goes to the other. */
	if (ru_swap_disk(dev[0], (REGION / 2 + 1) * page_size, 10, true) ||
	    set_up(row, &w))
		return -1;
	w.share->runs = true;
	if (page_out(&w, RUN, REGION / 2, true) ||
	    ru_swap_disk(dev[1], REGION * page_size, 10, false) ||
	    page_out(&w, 0, REGION / 2, true))
		return -1;
	if (used(1) < (long long)count)
		return -1;

	/* Only what is on the SSD, in one half of what there is. */
	if (ru_cg_drop_swapcache(w.cg, TIMEOUT_MS))
		return -1;
	w.dropped = true;
	before = ru_disk_reads(dev[0]);
	if (in(&w, READ, READ_SEQ, 2 * skip, count / 2, &c))
		return -1;
	after = ru_disk_reads(dev[0]);
	if (before < 0 || after < before)
		return -1;
	show(row, ", SSD", &c);
	/*
	 * With the neighbours it would be as many as there are between the
	 * runs. Some, as udev may have a look at a disk that was written to.
	 */
	ok = at_most("pages read from the rotational device",
		     (after - before) * 512 / (long long)page_size, count / 16);

	/*
	 * All of the other half: a window of addresses for those on the SSD,
	 * and one of slots, which are half of the pages, for the others.
	 */
	w.share->runs = false;
	if (in(&w, READ, READ_SEQ, 2 * skip + count, count, &c))
		return -1;
	show(row, "", &c);
	ok &= at_most("majflt", c.majflt,
		      windows_max(count / window, count) +
		      windows_max(count / 2 / window, count));
	/* Which takes reads of that disk, and has them counted. */
	ok &= at_least("pages read from the rotational device",
		       (ru_disk_reads(dev[0]) - after) * 512 /
		       (long long)page_size, count / 2 - SLOTS_CACHE);
	judged(row, ok);
	return 0;
}

/*
 * SWAPFILE_CLUSTER, or more: it is a huge page where these are swapped out
 * whole, which is not to be seen from here, and 256 pages elsewhere.
 */
static size_t swap_cluster(void)
{
	char line[32] = "";
	FILE *f = fopen(PMD_SIZE, "re");

	if (!f)
		return 256;
	if (!fgets(line, sizeof(line), f))
		line[0] = '\0';
	fclose(f);
	return strtoul(line, NULL, 10) / page_size ?: 256;
}

/* What a row swaps out is in memory, then on the disks; leave as much alone. */
static int fits(size_t pages)
{
	if (ru_meminfo_kb("MemAvailable") * 1024ULL >= 4 * pages * page_size)
		return 0;
	snprintf(ru_why, sizeof(ru_why),
		 "needs %zu MiB of available memory, as clusters of swap have %zu pages",
		 4 * pages * page_size >> 20, swap_cluster());
	return -1;
}

/*
 * The device with the higher priority is used up before the other is used. It
 * has room for more than a cluster, after which equal ones would take turns.
 */
static int run_priority(const struct row *row)
{
	static struct worker w;
	bool rotational = row->rotational;
	size_t first = swap_cluster() + 2 * SLOTS_CACHE;
	size_t size = first + 2 * SLOTS_CACHE, pages = 2 * size;
	long long hi, lo;
	bool ok;

	if (fits(pages) ||
	    ru_swap_disk(dev[0], (size + 1) * page_size, 20, rotational) ||
	    ru_swap_disk(dev[1], pages * page_size, 10, rotational) ||
	    start(&w, "swap_targets", pages, false) ||
	    page_out(&w, 0, first, true))
		return -1;
	hi = used(0);
	lo = used(1);
	ksft_print_msg("counters[%s]: high=%lld low=%lld\n", row->name, hi, lo);
	ok = at_least("pages on the one first in line", hi, first);
	ok &= at_most("pages on the other", lo, 0);

	if (page_out(&w, first, pages - first, true))
		return -1;
	hi = used(0);
	lo = used(1);
	ksft_print_msg("counters[%s, full]: high=%lld low=%lld\n", row->name,
		       hi, lo);
	ok &= at_least("pages on the one first in line, full", hi, size);
	ok &= at_least("pages on the other", lo, pages - size);
	judged(row, ok);
	return 0;
}

/*
 * Devices of the same priority share. An SSD is no more than a cluster ahead of
 * another one, as each CPU takes one at a time. Rotational devices, of which
 * slots are taken one after the other, are no more than SWAP_TURN, or the batch
 * of SLOTS_CACHE. One more batch may be with a CPU.
 */
static int run_sharing(const struct row *row)
{
	static struct worker w;
	size_t nr = row->ssd + row->rotational;
	size_t turn = row->ssd ? swap_cluster() : SLOTS_CACHE;
	size_t pages = 4 * turn * nr, i;
	long long least = LLONG_MAX, most = 0;
	bool ok;

	if (fits(pages) || disks(pages, row->ssd, row->rotational) ||
	    start(&w, "swap_targets", pages, false) ||
	    page_out(&w, 0, pages, true))
		return -1;
	for (i = 0; i < nr; i++) {
		long long n = used(i);

		ksft_print_msg("counters[%s, device %zu]: used=%lld\n",
			       row->name, i, n);
		if (n < 0)
			return -1;
		least = n < least ? n : least;
		most = n > most ? n : most;
	}
	ok = at_most("pages between the least and the most used device",
		     most - least, turn + SLOTS_CACHE);
	judged(row, ok);
	return 0;
}

/* A device that is full is passed by, and used again when there is room. */
static int run_full(const struct row *row)
{
	static struct worker w;
	struct counters c;
	bool ok;

	if (ru_swap_disk(dev[0], (SMALL + 1) * page_size, 10, true) ||
	    ru_swap_disk(dev[1], REGION * page_size, 10, true) ||
	    start(&w, "swap_targets", REGION / 2, false) ||
	    page_out(&w, 0, REGION / 2, true))
		return -1;
	ok = at_least("pages on the small device", used(0), SMALL);
	if (in(&w, READ, READ_SEQ, 0, REGION / 2, &c) || tell(&w, FREE))
		return -1;
	show(row, "", &c);
	ok &= at_most("pages left on it", used(0), SLOTS_CACHE);
	if (tell(&w, FILL) || page_out(&w, 0, REGION / 2, true))
		return -1;
	ok &= at_least("pages on it again", used(0), SMALL);
	judged(row, ok);
	return 0;
}

/* Swapped out pages of two tasks; the second one finds what the first read. */
static int run_forked(const struct row *row)
{
	static struct worker w;
	struct counters c;
	bool ok;

	if (set_up(row, &w) || page_out(&w, 0, w.share->pages, false) ||
	    in(&w, READ_FORKED, READ_SEQ, SEQ_FROM, SEQ, &c))
		return -1;
	show(row, "", &c);
	ok = at_most("majflt of both tasks", c.majflt,
		     seq_max(SEQ, 1UL << page_cluster(row)));
	judged(row, ok);
	return 0;
}

/* Wait until a task of the LOOP has made another round. */
static int next_round(const struct worker *w)
{
	const struct timespec tick = { .tv_nsec = 1000 * 1000 };
	long long limit = ru_mono_ms() + TIMEOUT_MS;
	long long before = __atomic_load_n(&w->share->rounds, __ATOMIC_RELAXED);

	while (__atomic_load_n(&w->share->rounds, __ATOMIC_RELAXED) == before) {
		if (w->share->why[0] || ru_mono_ms() > limit) {
			snprintf(ru_why, sizeof(ru_why), "a task: %.400s",
				 w->share->why[0] ? w->share->why :
						    "no progress");
			return -1;
		}
		nanosleep(&tick, NULL);
	}
	return 0;
}

/*
 * Devices go and come while two tasks swap in and out. All they read has to be
 * right, and swapoff to succeed.
 */
static int run_swapoff(const struct row *row)
{
	static struct worker w[2];
	size_t nr = row->ssd + row->rotational, i;
	long long end = ru_mono_ms() + stress_seconds * 1000;
	struct counters a, b;
	long long pages = 0;
	bool ok;
	long n;

	if (disks(REGION, row->ssd, row->rotational) || read_vmstat(&a))
		return -1;
	for (i = 0; i < ARRAY_SIZE(w); i++) {
		if (start(&w[i], i ? "swap_targets_b" : "swap_targets_a",
			  REGION / 2, false))
			return -1;
		w[i].share->pattern = READ_SEQ;
		w[i].share->from = 0;
		w[i].share->count = w[i].share->pages;
		if (ru_order(&w[i].child, LOOP))
			return -1;
	}
	for (n = 0; n < quick_rounds || ru_mono_ms() < end; n++) {
		char *d = dev[n % nr];

		/* Each task gets round, and the device its share. */
		do {
			for (i = 0; i < ARRAY_SIZE(w); i++)
				if (next_round(&w[i]))
					return -1;
		} while (!used(n % nr) && ru_mono_ms() < end + TIMEOUT_MS);
		pages += used(n % nr);
		if (swapoff(d) || swapon(d, SWAP_FLAG_PREFER | 10)) {
			snprintf(ru_why, sizeof(ru_why), "%.100s: %s", d,
				 strerror(errno));
			return -1;
		}
	}
	for (i = 0; i < ARRAY_SIZE(w); i++) {
		w[i].share->stop = true;
		if (ru_done(&w[i].child, LOOP, TIMEOUT_MS))
			return -1;
	}
	if (read_vmstat(&b))
		return -1;
	b.majflt = w[0].share->loop_majflt + w[1].share->loop_majflt;
	b.swap_ra -= a.swap_ra;
	b.swap_ra_hit -= a.swap_ra_hit;
	b.pswpin -= a.pswpin;
	show(row, "", &b);
	ksft_print_msg("counters[%s]: swapoff=%ld rounds=%lld\n", row->name, n,
		       w[0].share->rounds + w[1].share->rounds);
	/* Or else nothing was there that could have gone wrong. */
	ok = at_least("pages on the devices that went", pages, n);
	ok &= at_least("majflt", b.majflt, n);
	ok &= at_least("swap_ra", b.swap_ra, n);
	judged(row, ok);
	return 0;
}

static const char one_ssd[] = "one SSD: reading in order";
static const char one_disk[] = "one rotational device: random blocks";

static const struct row rows[] = {
	{
		.name = one_ssd, .run = run_read, .ssd = 1,
		.fix = fix_policy,
	}, {
		.name = "an SSD beside an idle rotational device: reading in order",
		.run = run_read, .ssd = 1, .idle_disk = true,
		.like = one_ssd, .fix = fix_policy,
	}, {
		.name = "an SSD beside an idle file on a rotational disk: reading in order",
		.run = run_read, .ssd = 1, .idle_file = true,
		.like = one_ssd, .fix = fix_policy,
	}, {
		.name = "an SSD beside an idle rotational device: a forked task",
		.run = run_forked, .ssd = 1, .idle_disk = true,
		.fix = fix_policy,
	}, {
		.name = "an SSD beside an idle rotational device: shmem",
		.run = run_read, .ssd = 1, .idle_disk = true, .shmem = true,
	}, {
		.name = "pages on an SSD and a rotational device in turn",
		.run = run_mixed, .fix = fix_policy,
	}, {
		.name = one_disk, .run = run_read, .rotational = 1,
		.pattern = READ_BLOCKS,
	}, {
		.name = "2 rotational devices: random blocks",
		.run = run_read, .rotational = 2, .pattern = READ_BLOCKS,
		.like = one_disk, .fix = fix_rotate,
	}, {
		.name = "4 rotational devices: random blocks",
		.run = run_read, .rotational = 4, .pattern = READ_BLOCKS,
		.like = one_disk, .fix = fix_rotate,
	}, {
		.name = "16 rotational devices: random blocks",
		.run = run_read, .rotational = 16, .pattern = READ_BLOCKS,
		.like = one_disk, .fix = fix_rotate,
	}, {
		.name = "4 SSDs: random blocks",
		.run = run_read, .ssd = 4, .pattern = READ_BLOCKS,
	}, {
		.name = "4 rotational devices, page-cluster 0: random blocks",
		.run = run_read, .rotational = 4, .pattern = READ_BLOCKS,
		.page_cluster = -1,
	}, {
		.name = "two streams on two rotational devices",
		.run = run_streams, .pattern = READ_TWO_SEQ, .fix = fix_state,
	}, {
		.name = "a stream and random reads on two rotational devices",
		.run = run_streams, .pattern = READ_SEQ_RANDOM,
		.fix = fix_state,
	}, {
		.name = "SSD, page-cluster 0: in order, random",
		.run = run_read, .ssd = 1, .pattern = READ_RANDOM,
		.page_cluster = -1,
	}, {
		.name = "SSD, page-cluster 3: in order, random",
		.run = run_read, .ssd = 1, .pattern = READ_RANDOM,
	}, {
		.name = "SSD, page-cluster 5: in order, random",
		.run = run_read, .ssd = 1, .pattern = READ_RANDOM,
		.page_cluster = 5,
	}, {
		.name = "rotational, page-cluster 0: in order, random",
		.run = run_read, .rotational = 1, .pattern = READ_RANDOM,
		.page_cluster = -1,
	}, {
		.name = "rotational, page-cluster 3: in order, random",
		.run = run_read, .rotational = 1, .pattern = READ_RANDOM,
	}, {
		.name = "rotational, page-cluster 5: in order, random",
		.run = run_read, .rotational = 1, .pattern = READ_RANDOM,
		.page_cluster = 5,
	}, {
		.name = "priorities, SSDs: the higher one fills up first",
		.run = run_priority,
	}, {
		.name = "priorities, rotational: the higher one fills up first",
		.run = run_priority, .rotational = 1,
	}, {
		.name = "4 rotational devices share",
		.run = run_sharing, .rotational = 4,
	}, {
		.name = "4 SSDs share",
		.run = run_sharing, .ssd = 4,
	}, {
		.name = "a full device is passed by, and used again",
		.run = run_full,
	}, {
		.name = "swapoff while pages are read ahead",
		.run = run_swapoff, .ssd = 2, .rotational = 1,
	},
};

static void run_rows(enum ru_lru lru)
{
	char blocked[sizeof(ru_why)] = "";
	size_t mark = ru_mark();
	size_t i;

	lru_name = ru_lru_name[lru];
	nr_done = 0;
	if (ru_lru_select(lru) || ru_shmem_huge_off() || ru_pin_settings() ||
	    (!access(VMA_RA, F_OK) && ru_set(VMA_RA, "true")) ||
	    (!access(ZSWAP, F_OK) && ru_set(ZSWAP, "N")) ||
	    ru_set(OVERCOMMIT, "0"))
		memcpy(blocked, ru_why, sizeof(blocked));

	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		size_t row_mark = ru_mark();

		if (blocked[0])
			memcpy(ru_why, blocked, sizeof(ru_why));
		if (blocked[0] || rows[i].run(&rows[i])) {
			if (under_test) {
				ksft_print_msg("it ends with: %s\n", ru_why);
				judged(&rows[i], false);
			} else {
				ksft_test_result_skip("%s: %s: %s\n", lru_name,
						      rows[i].name, ru_why);
			}
		}
		ru_unwind(row_mark);
	}
	ru_unwind(mark);
}

static __noreturn void help(const char *prog)
{
	fprintf(stderr, "usage: %s [-l classic|mglru] [-s seconds]\n", prog);
	fprintf(stderr, "  -l  only this kind of LRU (default: both)\n");
	fprintf(stderr, "  -s  how long devices go and come at least\n");
	exit(KSFT_FAIL);
}

int main(int argc, char **argv)
{
	bool kinds[RU_NR_LRU] = { true, true };
	size_t i, nr = 0, need;
	long long available;
	int opt;

	while ((opt = getopt(argc, argv, "l:s:")) != -1) {
		switch (opt) {
		case 'l':
			if (ru_lru_option(optarg, kinds))
				help(argv[0]);
			break;
		case 's':
			stress_seconds = atol(optarg);
			break;
		default:
			help(argv[0]);
		}
	}

	ksft_print_header();
	page_size = sysconf(_SC_PAGESIZE);
	if (geteuid())
		ksft_exit_skip("needs root: control groups, swapon, lru_gen\n");
	/* Which device a page goes to must be in the hands of the test. */
	if (ru_meminfo_kb("SwapTotal") > 0)
		ksft_exit_skip("swap is on, and the test has to decide that: swapoff -a\n");
	available = ru_meminfo_kb("MemAvailable");
	if (available < 0)
		ksft_exit_skip("%s (CONFIG_PROC_FS)\n", ru_why);
	/* The region, its copy on the disks, and as much to leave alone. */
	need = 4 * 2 * REGION * page_size;
	if (available * 1024ULL < need)
		ksft_exit_skip("needs %zu MiB of available memory, there are %lld\n",
			       need >> 20, available / 1024);
	ru_init();
	if (ru_cg_setup())
		ksft_exit_skip("%s\n", ru_why);

	nr = kinds[RU_CLASSIC] + kinds[RU_MGLRU];
	ksft_set_plan(nr * ARRAY_SIZE(rows));
	for (i = 0; i < RU_NR_LRU; i++)
		if (kinds[i])
			run_rows(i);

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
