// SPDX-License-Identifier: GPL-2.0
/*
 * Is the anon LRU aged where, and only where, anon memory can be swapped?
 *
 * Aging the anon LRU - taking pages off the active list, looking up through
 * the rmap whether they were referenced, and putting them on the inactive
 * list - pays off when the inactive list is going to be swapped out. Where
 * that cannot happen, because the host has no swap or because a control group
 * has memory.swap.max=0, all of it is wasted. Where it can, aging has to stop
 * when there are inactive pages enough.
 *
 * Each row makes some shmem the active anon memory of a control group, puts
 * the group under pressure, and looks at its memory.stat:
 *
 *   classic LRU  Use-once page cache streams past the anon memory. The page
 *                cache never gets to an active list, so pgdeactivate and
 *                pgrefill count anon pages alone. Code under test in
 *                mm/vmscan.c: can_age_anon_pages(), and how shrink_lruvec() and
 *                kswapd_age_node() decide that inactive pages are few.
 *   MGLRU        There is no active list to refill, and as long as there is
 *                page cache anon memory is left alone. So there is none, and
 *                memory.reclaim asks for as much as is hot: pgscan counts the
 *                anon pages which reclaim looked at. Code under test:
 *                get_swappiness(), which has always known the limit.
 */
#define _FILE_OFFSET_BITS 64
#define _GNU_SOURCE
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "kselftest.h"
#include "reclaim_util.h"

#ifndef MADV_PAGEOUT
#define MADV_PAGEOUT	21
#endif

/* All sizes are in pages: the bounds hold for 4K as for 64K pages. */
#define SWAP_CLUSTER_MAX	32UL	/* a batch of reclaim, from swap.h */

/*
 * What the group keeps hot: 64 batches, 8 MiB of 4K pages. With page cache and
 * all it stays below 1 GiB, where inactive_ratio is 1, with 64K pages too.
 */
#define HOT		(64 * SWAP_CLUSTER_MAX)

/* Swap that gets filled up, or a limit that gets reached. */
#define SWAP_SMALL	256UL

/* Polls end here: many times what a row takes under emulation. */
#define TIMEOUT_MS	30000

/* A row that has to fill all RAM is left out above that much, but for -g. */
#define GLOBAL_MAX_KB	(4LL * 1024 * 1024)

enum swap {
	SWAP_NONE,	/* the host has no swap */
	SWAP_FREE,
	SWAP_FULL,	/* all slots of the device are in use */
};

enum pressure {
	FROM_GROUP,	/* reclaim of the group: its stream, memory.reclaim */
	FROM_OUTSIDE,	/* a task outside streams: kswapd, direct reclaim */
};

enum outcome {
	NOT_AGED,
	AGED,
	HALF_AGED,	/* aged, and no further than to the ratio */
};

static const struct row {
	const char *name;
	enum swap swap;
	const char *swap_max;		/* memory.swap.max, if not "max" */
	bool swap_max_small;		/* it is SWAP_SMALL */
	const char *parent_swap_max;	/* makes a parent with that limit */
	const char *raise_to;		/* new memory.swap.max, then measure */
	enum pressure pressure;
	bool fill;			/* use up swap, or the limit, first */
	bool neighbour;			/* see hot_pages() */
	bool classic_only;		/* see below */
	enum outcome outcome;
} rows[] = {
	{
		.name = "no swap: anon is not aged",
		.swap = SWAP_NONE,
	}, {
		.name = "swap: anon is aged",
		.swap = SWAP_FREE, .outcome = AGED,
	}, {
		.name = "memory.swap.max=0: anon is not aged",
		.swap = SWAP_FREE, .swap_max = "0",
	}, {
		.name = "memory.swap.max=0 of the parent: anon is not aged",
		.swap = SWAP_FREE, .parent_swap_max = "0",
	}, {
		.name = "memory.swap.max raised: anon is aged",
		.swap = SWAP_FREE, .swap_max = "0", .raise_to = "max",
		.outcome = AGED,
	},
	/*
	 * Swap, or the limit, that is merely used up comes back, and the
	 * classic LRU has its lists in order by then. MGLRU leaves anon memory
	 * alone for that long: nothing to ask of it here. Nor is there below:
	 * when MGLRU gets to the anon memory of a group, with page cache left
	 * elsewhere, is not for a test to say.
	 */
	{
		.name = "memory.swap.max reached: anon is aged",
		.swap = SWAP_FREE, .swap_max_small = true, .fill = true,
		.classic_only = true, .outcome = AGED,
	}, {
		.name = "swap full: anon is aged",
		.swap = SWAP_FULL, .fill = true,
		.classic_only = true, .outcome = AGED,
	}, {
		.name = "swap: half of the anon stays active",
		.swap = SWAP_FREE,
		.classic_only = true, .outcome = HALF_AGED,
	},
	/* These fill all RAM with page cache, so they come last. */
	{
		.name = "no swap, kswapd: anon is not aged",
		.swap = SWAP_NONE, .pressure = FROM_OUTSIDE,
		.classic_only = true,
	}, {
		.name = "swap, kswapd: anon is aged",
		.swap = SWAP_FREE, .pressure = FROM_OUTSIDE,
		.classic_only = true, .outcome = AGED,
	}, {
		.name = "memory.swap.max=0, kswapd: anon is not aged",
		.swap = SWAP_FREE, .swap_max = "0", .pressure = FROM_OUTSIDE,
		.classic_only = true,
	}, {
		.name = "swap, kswapd, a neighbour: half of the anon stays active",
		.swap = SWAP_FREE, .pressure = FROM_OUTSIDE, .neighbour = true,
		.classic_only = true, .outcome = HALF_AGED,
	},
};

static const char fix_ratio[] =
	"mm: vmscan: rebalance anon lists by their own size";
static const char fix_swap[] =
	"mm: vmscan: do not age anon memory that can never be swapped";

/* All in pages. */
struct counters {
	long long pgdeactivate;
	long long pgrefill;
	long long pgscan;
	long long active;
	long long inactive;
};

/* A group with its member, and the pipes to it. */
struct group {
	char cg[PATH_MAX];
	struct ru_child child;
};

static size_t page_size;

/*
 * In the row with a neighbour the group is small, so that there is time to age
 * all of it. The neighbour may not swap, its pages stay active, and there are
 * six times as many of them: whatever happens to the group, the node as a
 * whole never has as many inactive pages as active ones.
 */
static size_t hot_pages(const struct row *row)
{
	return row->neighbour ? HOT / 2 : HOT;
}

/* The group may have twice what is hot: the other half is for page cache. */
static size_t limit_pages(void)
{
	return 2 * HOT;
}

/* One quarter of that fits, the other three need reclaim. See judge(). */
static size_t stream_pages(void)
{
	return 4 * HOT;
}

static size_t mib(long long pages)
{
	return pages * page_size >> 20;
}

static int read_counters(const char *cg, struct counters *c)
{
	if (ru_cg_settle())
		return -1;
	c->pgdeactivate = ru_cg_stat(cg, "pgdeactivate");
	c->pgrefill = ru_cg_stat(cg, "pgrefill");
	c->pgscan = ru_cg_stat(cg, "pgscan");
	c->active = ru_cg_stat(cg, "active_anon");
	c->inactive = ru_cg_stat(cg, "inactive_anon");
	if (c->pgdeactivate < 0 || c->pgrefill < 0 || c->pgscan < 0 ||
	    c->active < 0 || c->inactive < 0)
		return -1;
	c->active /= page_size;
	c->inactive /= page_size;
	return 0;
}

/* Swap out until there is no slot left, or none that the group may use. */
static void fill_swap(void)
{
	size_t size = 2 * SWAP_SMALL * page_size;
	char *p = mmap(NULL, size, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		_exit(1);
	madvise(p, size, MADV_NOHUGEPAGE);
	memset(p, 0x5a, size);
	madvise(p, size, MADV_PAGEOUT);
}

/* What the member of the group is told to do; it echoes what it has done. */
enum order {
	HEAT = 'h',	/* make its shmem active */
	READ = 'r',	/* stream page cache */
};

/*
 * New shmem starts on the inactive list. The first read marks a page
 * referenced, the second one activates it; one more, as the last pages of a
 * pass may wait in a per-CPU batch.
 */
static int heat(int fd, char *buf, size_t size, size_t hot)
{
	size_t i;
	int pass;

	for (pass = 0; pass < 3; pass++)
		for (i = 0; i < hot; i += size)
			if (pread(fd, buf, size, i) != (ssize_t)size)
				return -1;
	return 0;
}

static __noreturn void member(const struct group *g, size_t hot, bool fill,
			      int stream, off_t pos)
{
	static char buf[1024 * 1024];
	unsigned char order;
	size_t i;
	int fd;

	hot *= page_size;
	if (ru_cg_enter(g->cg))
		goto fail;
	if (fill)
		fill_swap();

	snprintf(ru_why, sizeof(ru_why), "cannot make and read shmem");
	fd = memfd_create("hot", MFD_CLOEXEC);
	if (fd < 0)
		goto fail;
	memset(buf, 1, sizeof(buf));
	for (i = 0; i < hot; i += sizeof(buf))
		if (write(fd, buf, sizeof(buf)) != sizeof(buf))
			goto fail;

	while (read(g->child.in, &order, 1) == 1) {
		if (order == HEAT && heat(fd, buf, sizeof(buf), hot))
			goto fail;
		if (order == READ &&
		    ru_stream_read(stream, &pos, stream_pages() * page_size))
			goto fail;
		if (write(g->child.out, &order, 1) != 1)
			goto fail;
	}
	_exit(0);
fail:
	/* Not buffered, as the parent's part of the buffer is here as well. */
	dprintf(STDOUT_FILENO, "# task in the group: %s\n", ru_why);
	_exit(1);
}

/* Hand the member an order and wait until it is done. */
static int tell(struct group *g, enum order order)
{
	return ru_tell(&g->child, order, TIMEOUT_MS);
}

/* Start the member of a group whose limits are set, and have its pages hot. */
static int start(struct group *g, size_t hot, bool fill, int stream, off_t pos)
{
	pid_t pid = ru_fork(&g->child);

	if (pid < 0)
		return -1;
	if (!pid)
		member(g, hot, fill, stream, pos);
	return tell(g, HEAT);
}

/*
 * kswapd ages as long as active pages outnumber inactive ones in the node. They
 * have to even with all of the group inactive, whatever else the host has.
 */
static int node_stays_low(const struct row *row)
{
	long long inactive = ru_vmstat("nr_inactive_anon");
	long long active = ru_vmstat("nr_active_anon");
	long long hot = hot_pages(row);

	if (active < 0 || inactive < 0)
		return -1;
	/* Up to 1 GiB of anon memory inactive_ratio is 1. */
	if (mib(active + inactive) < 1024 && inactive + hot < active - hot)
		return 0;
	snprintf(ru_why, sizeof(ru_why),
		 "the host has %zu MiB of inactive and %zu of active anon memory",
		 mib(inactive), mib(active));
	return -1;
}

/*
 * Stream outside the group until kswapd has reclaimed @pages, or the group has
 * been aged by @enough: kswapd has then been past it often.
 */
static int stream_outside(const struct group *g, int stream, off_t *pos,
			  long long pages, long long enough)
{
	unsigned long long max = ru_meminfo_kb("MemTotal") * 2048ULL +
				 pages * page_size;
	long long aged = ru_cg_stat(g->cg, "pgdeactivate");
	long long kswapd = ru_vmstat("pgsteal_kswapd");
	unsigned long long done;
	const size_t chunk = 4 * 1024 * 1024;

	for (done = 0; done < max; done += chunk) {
		if (ru_stream_read(stream, pos, chunk))
			return -1;
		if (ru_vmstat("pgsteal_kswapd") - kswapd >= pages)
			return 0;
		if (enough &&
		    ru_cg_stat(g->cg, "pgdeactivate") - aged >= enough)
			return 0;
	}
	snprintf(ru_why, sizeof(ru_why),
		 "reading twice the RAM had kswapd reclaim less than %zu MiB",
		 mib(pages));
	return -1;
}

/*
 * Put the group under pressure, and make sure that it was. Returns 0, or -1
 * with the reason in ru_why.
 */
static int press(enum ru_lru lru, const struct row *row, struct group *g,
		 int stream, off_t *pos)
{
	long long scan, want;

	if (row->pressure == FROM_OUTSIDE) {
		/*
		 * Four times what goes through a group, or until what has to
		 * happen has: aging ends when half of the hot pages have moved,
		 * or a few less. Settling makes sure that kswapd does not go by
		 * what was true before the group was there.
		 */
		want = row->outcome == AGED ? hot_pages(row) * 3 / 8 : 0;
		if (ru_cg_settle())
			return -1;
		return stream_outside(g, stream, pos, 4 * stream_pages(), want);
	}
	if (lru == RU_CLASSIC) {
		/* At least two of the three quarters that do not fit. */
		want = stream_pages() / 2;
		scan = ru_cg_stat(g->cg, "pgscan");
		if (scan < 0 || tell(g, READ) || ru_cg_settle())
			return -1;
		scan = ru_cg_stat(g->cg, "pgscan") - scan;
		if (scan >= want)
			return 0;
		snprintf(ru_why, sizeof(ru_why),
			 "the stream had reclaim scan %lld pages, less than %lld",
			 scan, want);
		return -1;
	}
	/*
	 * EAGAIN says that reclaim tried all it could. It has to where anon
	 * memory may not be swapped, as there is hardly anything else.
	 */
	if (!ru_cg_write_bytes(g->cg, "memory.reclaim", HOT * page_size)) {
		if (row->outcome == AGED)
			return 0;
		snprintf(ru_why, sizeof(ru_why),
			 "memory.reclaim found %lu pages which are not anon",
			 HOT);
		return -1;
	}
	return errno == EAGAIN ? 0 : -1;
}

static void judge(enum ru_lru lru, const struct row *row,
		  const struct counters *a, const struct counters *b)
{
	long long hot = hot_pages(row);
	/*
	 * Classic, aged: aging goes on, SWAP_CLUSTER_MAX pages for each pass
	 * over the group, until inactive * inactive_ratio >= active; the ratio
	 * is 1 below 1 GiB, so half of the hot pages move. Half of that is
	 * asked for. There are passes enough: reclaiming 3 * hot pages takes
	 * 3 * hot / 64 of them if each gets twice what it is after, and each
	 * moves 32, which makes 1.5 * hot.
	 *
	 * MGLRU, aged: to reclaim what it is asked for, all of the group,
	 * reclaim has to look at all of the anon pages. A quarter of them is
	 * asked for here too.
	 *
	 * Not aged means not one page. Four batches are allowed for, a quarter
	 * of the least that aging does, should the counters not have settled.
	 *
	 * Half aged: the ratio is met with half of the pages active. Each page
	 * swapped out meanwhile makes room for another deactivation, and each
	 * CPU may be in the middle of a batch; half of the half is for that.
	 */
	long long aged_min = hot / 4;
	long long not_aged_max = hot / 16;
	long long active_min = hot / 4;
	long long deactivated = b->pgdeactivate - a->pgdeactivate;
	long long refill = b->pgrefill - a->pgrefill;
	long long scan = b->pgscan - a->pgscan;
	long long aged = lru == RU_CLASSIC ? deactivated : scan;
	const char *what = lru == RU_CLASSIC ? "pgdeactivate" : "pgscan";
	const char *fix = row->outcome == HALF_AGED ? fix_ratio : fix_swap;
	bool ok;

	ksft_print_msg("counters[%s]: pgdeactivate=%lld pgrefill=%lld pgscan=%lld active_anon=%lld inactive_anon=%lld\n",
		       row->name, deactivated, refill, scan, b->active,
		       b->inactive);
	switch (row->outcome) {
	case AGED:
		ok = aged >= aged_min;
		ksft_print_msg("%s %lld of %lld hot pages, at least %lld\n",
			       what, aged, hot, aged_min);
		break;
	case HALF_AGED:
		ok = aged >= aged_min && b->active >= active_min;
		ksft_print_msg("%s %lld of %lld hot pages, at least %lld; active_anon %lld, at least %lld\n",
			       what, aged, hot, aged_min, b->active,
			       active_min);
		break;
	default:
		ok = aged <= not_aged_max &&
		     (lru == RU_MGLRU || refill <= not_aged_max);
		ksft_print_msg("%s %lld of %lld hot pages, at most %lld\n",
			       what, aged, hot, not_aged_max);
		break;
	}
	/* Neither fix is for a host without swap: 2.6.37 has that one. */
	if (!ok && row->swap != SWAP_NONE && lru == RU_CLASSIC &&
	    (row->outcome == NOT_AGED ||
	     (row->outcome == HALF_AGED && b->active < active_min)))
		ksft_print_msg("missing fix: \"%s\"\n", fix);
	ksft_test_result(ok, "%s: %s\n", ru_lru_name[lru], row->name);
}

/* Sets the swap and the groups of a row up; 0, or -1 with ru_why. */
static int set_up(const struct row *row, struct group *g, int stream,
		  off_t *pos)
{
	static struct group next;
	char parent[PATH_MAX];

	if (row->swap != SWAP_NONE &&
	    ru_swap_on((row->swap == SWAP_FULL ? SWAP_SMALL : 2 * HOT) *
		       page_size))
		return -1;
	if (row->swap == SWAP_NONE && ru_meminfo_kb("SwapTotal") > 0) {
		snprintf(ru_why, sizeof(ru_why), "swap is on");
		return -1;
	}

	if (row->neighbour &&
	    (ru_cg_create(next.cg, NULL, "anon_aging_next") ||
	     ru_cg_write(next.cg, "memory.swap.max", "0") ||
	     start(&next, 3 * HOT, false, stream, *pos)))
		return -1;

	if (row->parent_swap_max &&
	    (ru_cg_create(parent, NULL, "anon_aging_parent") ||
	     ru_cg_write(parent, "memory.swap.max", row->parent_swap_max)))
		return -1;
	if (ru_cg_create(g->cg, row->parent_swap_max ? parent : NULL,
			 "anon_aging"))
		return -1;
	if (row->pressure == FROM_GROUP &&
	    ru_cg_write_bytes(g->cg, "memory.max", limit_pages() * page_size))
		return -1;
	if (row->swap_max_small &&
	    ru_cg_write_bytes(g->cg, "memory.swap.max", SWAP_SMALL * page_size))
		return -1;
	if (row->swap_max &&
	    ru_cg_write(g->cg, "memory.swap.max", row->swap_max))
		return -1;

	if (start(g, hot_pages(row), row->fill, stream, *pos))
		return -1;
	/* What the member may read, twice at most. */
	*pos += 2 * stream_pages() * page_size;
	return 0;
}

/* Whether a row has the hot pages and the full swap that it is about. */
static int check_set_up(enum ru_lru lru, const struct row *row,
			const struct group *g, const struct counters *a)
{
	/* MGLRU has generations: which of them counts as active may vary. */
	long long have = lru == RU_CLASSIC ? a->active :
					     a->active + a->inactive;

	if (have < (long long)hot_pages(row) * 7 / 8) {
		snprintf(ru_why, sizeof(ru_why),
			 "shmem was read three times, but %lld of %zu pages are hot",
			 have, hot_pages(row));
		return -1;
	}
	if (row->fill) {
		long long left;

		if (row->swap == SWAP_FULL)
			left = ru_meminfo_kb("SwapFree") * 1024;
		else
			left = (long long)(SWAP_SMALL * page_size) -
			       ru_cg_read(g->cg, "memory.swap.current");
		if (left) {
			snprintf(ru_why, sizeof(ru_why),
				 "swap could not be used up: %lld KiB are left",
				 left / 1024);
			return -1;
		}
	}
	return row->neighbour ? node_stays_low(row) : 0;
}

static void run_row(enum ru_lru lru, const struct row *row, int stream,
		    off_t *pos)
{
	static struct group g;
	struct counters a, b;

	if (set_up(row, &g, stream, pos))
		goto skip;

	if (row->raise_to) {
		/* First without, so that nothing but the limit changes. */
		if (press(lru, row, &g, stream, pos) ||
		    ru_cg_write(g.cg, "memory.swap.max", row->raise_to))
			goto skip;
	}

	/* Once more where there was pressure: it has aged the group already. */
	if ((row->raise_to || row->pressure == FROM_OUTSIDE) && tell(&g, HEAT))
		goto skip;
	if (read_counters(g.cg, &a) || check_set_up(lru, row, &g, &a))
		goto skip;

	if (press(lru, row, &g, stream, pos) || read_counters(g.cg, &b))
		goto skip;
	judge(lru, row, &a, &b);
	return;
skip:
	ksft_test_result_skip("%s: %s: %s\n", ru_lru_name[lru], row->name,
			      ru_why);
}

static void run_rows(enum ru_lru lru, bool global)
{
	const char *all_ram = "fills all RAM, of which there is much: -g";
	const char *one_node = "which NUMA node gets reclaimed is not known";
	size_t mark = ru_mark();
	char blocked[sizeof(ru_why)] = "";
	int stream = -1;
	off_t pos = 0;
	size_t i;

	if (!ru_lru_select(lru) && !ru_shmem_huge_off() && !ru_pin_settings())
		stream = ru_stream_open();
	if (stream < 0)
		memcpy(blocked, ru_why, sizeof(blocked));

	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		const struct row *row = &rows[i];
		size_t row_mark = ru_mark();
		const char *why = NULL;

		if (lru == RU_MGLRU && row->classic_only)
			continue;
		if (blocked[0])
			why = blocked;
		else if (row->pressure == FROM_OUTSIDE && !global)
			why = all_ram;
		else if (row->pressure == FROM_OUTSIDE && !ru_one_node())
			why = one_node;

		if (why)
			ksft_test_result_skip("%s: %s: %s\n", ru_lru_name[lru],
					      row->name, why);
		else
			run_row(lru, row, stream, &pos);
		ru_unwind(row_mark);
	}
	ru_unwind(mark);
}

static __noreturn void help(const char *prog)
{
	fprintf(stderr, "usage: %s [-l classic|mglru] [-g]\n", prog);
	fprintf(stderr, "  -l  only this kind of LRU (default: both)\n");
	fprintf(stderr, "  -g  rows which fill all RAM on large machines too\n");
	exit(KSFT_FAIL);
}

int main(int argc, char **argv)
{
	bool kinds[RU_NR_LRU] = { true, true };
	bool global = false;
	long long available;
	size_t i, nr = 0;
	int opt;

	while ((opt = getopt(argc, argv, "l:g")) != -1) {
		switch (opt) {
		case 'l':
			if (ru_lru_option(optarg, kinds))
				help(argv[0]);
			break;
		case 'g':
			global = true;
			break;
		default:
			help(argv[0]);
		}
	}

	ksft_print_header();
	page_size = sysconf(_SC_PAGESIZE);
	if (geteuid())
		ksft_exit_skip("needs root: control groups, swapon, lru_gen\n");
	/*
	 * Its own swap only: which device is filled up, and whether there is
	 * swap at all, must be in the hands of the test.
	 */
	if (ru_meminfo_kb("SwapTotal") > 0)
		ksft_exit_skip("swap is on, and the test has to decide that: swapoff -a\n");
	available = ru_meminfo_kb("MemAvailable");
	if (available < 0)
		ksft_exit_skip("%s (CONFIG_PROC_FS)\n", ru_why);
	if (available * 1024ULL < 10 * HOT * page_size)
		ksft_exit_skip("needs %zu MiB of available memory, there are %lld\n",
			       mib(10 * HOT), available / 1024);
	if (ru_meminfo_kb("MemTotal") <= GLOBAL_MAX_KB)
		global = true;
	ru_init();
	if (ru_cg_setup())
		ksft_exit_skip("%s\n", ru_why);

	for (i = 0, nr = 0; i < ARRAY_SIZE(rows); i++)
		nr += kinds[RU_CLASSIC] +
		      (kinds[RU_MGLRU] && !rows[i].classic_only);
	ksft_set_plan(nr);
	for (i = 0; i < RU_NR_LRU; i++)
		if (kinds[i])
			run_rows(i, global);

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
