// SPDX-License-Identifier: GPL-2.0
/*
 * Is the anon LRU aged only where anon memory can ever be swapped?
 *
 * Aging the anon LRU - taking pages off the active list, looking up through
 * the rmap whether they were referenced, and putting them on the inactive
 * list - pays off when the inactive list is going to be swapped out. Where
 * that cannot happen, because the host has no swap or because a control group
 * has memory.swap.max=0, all of it is wasted.
 *
 * Each row makes HOT bytes of shmem the active anon memory of a control
 * group, puts the group under pressure, and looks at its memory.stat:
 *
 *   classic LRU  Use-once page cache streams past the anon memory. The page
 *                cache never gets to an active list, so pgdeactivate and
 *                pgrefill count anon pages alone.
 *   MGLRU        There is no active list to refill, and as long as there is
 *                page cache anon memory is left alone. So there is none, and
 *                memory.reclaim asks for all the group has: pgscan counts the
 *                anon pages which reclaim looked at.
 *
 * Code under test in mm/vmscan.c: can_age_anon_pages() as shrink_lruvec() and
 * kswapd_age_node() call it, get_swappiness() for MGLRU.
 */
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

#define MB		(1024 * 1024UL)

/*
 * What the group keeps hot. Below 1 GiB, so that inactive_ratio is 1, and
 * 256 pages of 64 KiB, which are 8 batches of reclaim.
 */
#define HOT		(16 * MB)

/* Leaves HOT bytes of the group for page cache. */
#define LIMIT		(2 * HOT)

/*
 * Page cache streamed through the group: the first HOT bytes fit, the other
 * 3 * HOT need reclaim. See AGED_MIN for why that is enough.
 */
#define STREAM		(4 * HOT)

/* Swap for the rows that want free swap: holds all that is hot. */
#define SWAP		(2 * HOT)

/* Swap that gets filled up, or a limit that gets reached. */
#define SWAP_SMALL	(4 * MB)

/* Polls end here: many times what a row takes under emulation. */
#define TIMEOUT_MS	30000

enum swap {
	SWAP_NONE,	/* the host has no swap */
	SWAP_FREE,
	SWAP_FULL,	/* all slots of the device are in use */
};

enum pressure {
	FROM_GROUP,	/* reclaim of the group: its stream, memory.reclaim */
	FROM_OUTSIDE,	/* a task outside streams: kswapd, direct reclaim */
};

static const struct row {
	const char *name;
	enum swap swap;
	const char *swap_max;		/* memory.swap.max of the group */
	const char *parent_swap_max;	/* makes a parent with that limit */
	const char *raise_to;		/* new memory.swap.max, then measure */
	enum pressure pressure;
	bool fill;			/* use up swap, or the limit, first */
	bool neighbour;			/* see hot_bytes() */
	bool classic_only;		/* see below */
	bool aged;			/* what has to happen */
} rows[] = {
	{
		.name = "no swap: anon is not aged",
		.swap = SWAP_NONE, .swap_max = "max",
	}, {
		.name = "swap: anon is aged",
		.swap = SWAP_FREE, .swap_max = "max", .aged = true,
	}, {
		.name = "memory.swap.max=0: anon is not aged",
		.swap = SWAP_FREE, .swap_max = "0",
	}, {
		.name = "memory.swap.max=0 of the parent: anon is not aged",
		.swap = SWAP_FREE, .swap_max = "max", .parent_swap_max = "0",
	}, {
		.name = "memory.swap.max raised: anon is aged",
		.swap = SWAP_FREE, .swap_max = "0", .raise_to = "max",
		.aged = true,
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
		.swap = SWAP_FREE, .swap_max = "small", .fill = true,
		.classic_only = true, .aged = true,
	}, {
		.name = "swap full: anon is aged",
		.swap = SWAP_FULL, .swap_max = "max", .fill = true,
		.classic_only = true, .aged = true,
	},
	/* These fill all RAM with page cache, so they come last. */
	{
		.name = "no swap, kswapd: anon is not aged",
		.swap = SWAP_NONE, .swap_max = "max", .pressure = FROM_OUTSIDE,
		.classic_only = true,
	}, {
		.name = "swap, kswapd: anon is aged",
		.swap = SWAP_FREE, .swap_max = "max", .pressure = FROM_OUTSIDE,
		.classic_only = true, .aged = true,
	}, {
		.name = "memory.swap.max=0, kswapd: anon is not aged",
		.swap = SWAP_FREE, .swap_max = "0", .pressure = FROM_OUTSIDE,
		.classic_only = true,
	}, {
		.name = "swap, kswapd, one beside it may not: aged no more than half",
		.swap = SWAP_FREE, .swap_max = "max", .pressure = FROM_OUTSIDE,
		.neighbour = true, .classic_only = true, .aged = true,
	},
};

/*
 * In the row with a neighbour the group is small, so that there is time to age
 * all of it, and the neighbour, which may not swap and whose pages stay active,
 * is six times its size: whatever the group does, the node as a whole never
 * has as many inactive pages as active ones.
 */
static size_t hot_bytes(const struct row *row)
{
	return row->neighbour ? HOT / 2 : HOT;
}

struct counters {
	long long pgdeactivate;	/* of the group, pages */
	long long pgrefill;	/* of the group, pages */
	long long pgscan;	/* of the group, pages */
	long long active_anon;	/* of the group, MiB */
	long long inactive_anon;	/* of the group, MiB */
	long long reclaimed;	/* by kswapd and direct reclaim, pages */
};

static size_t page_size;

static int read_counters(const char *cg, struct counters *c)
{
	long long active, inactive, kswapd, direct;

	c->pgdeactivate = ru_cg_stat(cg, "pgdeactivate");
	c->pgrefill = ru_cg_stat(cg, "pgrefill");
	c->pgscan = ru_cg_stat(cg, "pgscan");
	active = ru_cg_stat(cg, "active_anon");
	inactive = ru_cg_stat(cg, "inactive_anon");
	kswapd = ru_vmstat("pgsteal_kswapd");
	direct = ru_vmstat("pgsteal_direct");
	if (c->pgdeactivate < 0 || c->pgrefill < 0 || c->pgscan < 0 ||
	    active < 0 || inactive < 0 || kswapd < 0 || direct < 0)
		return -1;
	c->active_anon = active / MB;
	c->inactive_anon = inactive / MB;
	c->reclaimed = kswapd + direct;
	return 0;
}

/* Swap out until there is no slot left, or none that the group may use. */
static void fill_swap(void)
{
	size_t size = 2 * SWAP_SMALL;
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
	READ = 'r',	/* read STREAM bytes once */
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

static __noreturn void member(const char *cg, size_t hot, bool fill, int stream,
			      off_t pos, int in, int out)
{
	static char buf[MB];
	unsigned char order;
	size_t i;
	int fd;

	if (ru_cg_enter(cg))
		_exit(1);
	if (fill)
		fill_swap();

	fd = memfd_create("hot", MFD_CLOEXEC);
	if (fd < 0)
		_exit(1);
	memset(buf, 1, sizeof(buf));
	for (i = 0; i < hot; i += sizeof(buf))
		if (write(fd, buf, sizeof(buf)) != sizeof(buf))
			_exit(1);

	while (read(in, &order, 1) == 1) {
		if (order == HEAT && heat(fd, buf, sizeof(buf), hot))
			_exit(1);
		if (order == READ && ru_stream_read(stream, &pos, STREAM))
			_exit(1);
		if (write(out, &order, 1) != 1)
			_exit(1);
	}
	_exit(0);
}

/* A group with its member, and the pipes to it. */
struct group {
	char cg[PATH_MAX];
	int to, from;
};

/* Hand the member an order and wait until it is done. */
static int tell(const struct group *g, enum order order)
{
	char c = order;

	if (write(g->to, &c, 1) != 1)
		return -1;
	return ru_wait_byte(g->from, TIMEOUT_MS) == c ? 0 : -1;
}

/* Start the member of a group whose limits are set, and have @hot bytes hot. */
static int start(struct group *g, size_t hot, bool fill, int stream, off_t pos)
{
	int to[2], from[2];
	pid_t pid;

	if (ru_pipe(to) || ru_pipe(from))
		return -1;
	pid = ru_fork();
	if (pid < 0)
		return -1;
	if (!pid) {
		/* Or the end of the pipe would not be seen. */
		close(to[1]);
		close(from[0]);
		member(g->cg, hot, fill, stream, pos, to[0], from[1]);
	}
	g->to = to[1];
	g->from = from[0];
	return tell(g, HEAT);
}

/*
 * Stream outside the group until the host has reclaimed @bytes: kswapd has
 * then been through its loop, and past the group, many times.
 */
static int stream_outside(int stream, off_t *pos, size_t bytes)
{
	unsigned long long max = ru_meminfo_kb("MemTotal") * 2048ULL + bytes;
	long long start = ru_vmstat("pgsteal_kswapd") +
			  ru_vmstat("pgsteal_direct");
	unsigned long long done;

	for (done = 0; done < max; done += 4 * MB) {
		if (ru_stream_read(stream, pos, 4 * MB))
			return -1;
		/*
		 * Reading it brings the statistics of all groups up to date,
		 * which reclaim would otherwise decide on when they are
		 * seconds old, and age more than it means to.
		 */
		if (ru_cg_stat(NULL, "pgscan") < 0)
			return -1;
		if (ru_vmstat("pgsteal_kswapd") + ru_vmstat("pgsteal_direct") -
		    start >= (long long)(bytes / page_size))
			return 0;
	}
	snprintf(ru_why, sizeof(ru_why),
		 "reading twice the RAM made the host reclaim less than %zu MiB",
		 bytes / MB);
	return -1;
}

static int press(enum ru_lru lru, const struct row *row, const struct group *g,
		 int stream, off_t *pos)
{
	if (row->pressure == FROM_OUTSIDE)
		/* Long enough for all that is hot, not only for half of it. */
		return stream_outside(stream, pos,
				      row->neighbour ? 4 * STREAM : STREAM);
	if (lru == RU_CLASSIC)
		return tell(g, READ);
	/* Without swap there is not that much to be had: EAGAIN. */
	if (ru_cg_write_bytes(g->cg, "memory.reclaim", HOT) && errno != EAGAIN)
		return -1;
	return 0;
}

static void judge(enum ru_lru lru, const struct row *row,
		  const struct counters *a, const struct counters *b)
{
	long long hot = hot_bytes(row) / page_size;
	/*
	 * Classic, aged: aging goes on, SWAP_CLUSTER_MAX (32) pages for each
	 * pass over the group, until inactive * inactive_ratio >= active, with
	 * a ratio of 1: at least half of the hot pages move. Half of that is
	 * asked for. There are passes enough: reclaiming 3 * HOT takes
	 * 3 * hot / 64 of them if each gets twice what it is after, and each
	 * moves 32, which makes 1.5 * hot.
	 * With pressure from outside it is kswapd that decides how many pages
	 * a pass is after. An eighth of the above is asked for: enough as long
	 * as a pass takes less than a 16th of the STREAM bytes.
	 *
	 * MGLRU, aged: to reclaim what it is asked for, all of the group,
	 * reclaim has to look at all of the anon pages. A quarter of them is
	 * asked for here too.
	 *
	 * Not aged means not one page. What is allowed for is what a passer-by
	 * may do: a 16th of the least that aging does within the group.
	 */
	long long aged_min = row->pressure == FROM_OUTSIDE ? hot / 32 : hot / 4;
	long long not_aged_max = hot / 64;
	long long aged = lru == RU_CLASSIC ? b->pgdeactivate - a->pgdeactivate :
					     b->pgscan - a->pgscan;
	long long refill = b->pgrefill - a->pgrefill;
	bool ok;

	/*
	 * With a neighbour: the node never has enough inactive pages, the group
	 * itself has when half of its own are. Another quarter of them, 16
	 * batches of 4K pages, is for passes that run at the same time.
	 */
	if (row->neighbour)
		ok = aged >= aged_min && aged <= hot * 3 / 4;
	else if (row->aged)
		ok = aged >= aged_min;
	else if (lru == RU_CLASSIC)
		ok = aged <= not_aged_max && refill <= not_aged_max;
	else
		ok = aged <= not_aged_max;

	ksft_print_msg("counters[%s]: pgdeactivate=%lld pgrefill=%lld pgscan=%lld active_anon_mb=%lld inactive_anon_mb=%lld\n",
		       row->name, b->pgdeactivate - a->pgdeactivate, refill,
		       b->pgscan - a->pgscan, b->active_anon,
		       b->inactive_anon);
	ksft_print_msg("%s %lld of %lld hot pages, %s %lld\n",
		       lru == RU_CLASSIC ? "pgdeactivate" : "pgscan",
		       aged, hot, row->aged ? "at least" : "at most",
		       row->aged ? aged_min : not_aged_max);
	if (row->neighbour)
		ksft_print_msg("and at most %lld\n", hot * 3 / 4);
	if (!ok && row->neighbour)
		ksft_print_msg("missing fix: \"mm: vmscan: let kswapd age anon by each memcg's own ratio\"\n");
	else if (!ok && !row->aged)
		ksft_print_msg("missing fix: \"mm: vmscan: do not age anon memory that can never be swapped\"\n");
	ksft_test_result(ok, "%s: %s\n", ru_lru_name[lru], row->name);
}

static void run_row(enum ru_lru lru, const struct row *row, int stream,
		    off_t *pos)
{
	static struct group g, next;
	char parent[PATH_MAX];
	const char *name = ru_lru_name[lru];
	struct counters a, b;

	if (row->swap != SWAP_NONE &&
	    ru_swap_on(row->swap == SWAP_FULL ? SWAP_SMALL : SWAP))
		goto skip;

	if (row->neighbour &&
	    (ru_cg_create(next.cg, NULL, "anon_aging_next") ||
	     ru_cg_write(next.cg, "memory.swap.max", "0") ||
	     start(&next, 3 * HOT, false, stream, *pos)))
		goto skip;

	if (row->parent_swap_max &&
	    (ru_cg_create(parent, NULL, "anon_aging_parent") ||
	     ru_cg_write(parent, "memory.swap.max", row->parent_swap_max)))
		goto skip;
	if (ru_cg_create(g.cg, row->parent_swap_max ? parent : NULL,
			 "anon_aging"))
		goto skip;
	if (row->pressure == FROM_GROUP &&
	    ru_cg_write_bytes(g.cg, "memory.max", LIMIT))
		goto skip;
	if (!strcmp(row->swap_max, "small") ?
	    ru_cg_write_bytes(g.cg, "memory.swap.max", SWAP_SMALL) :
	    ru_cg_write(g.cg, "memory.swap.max", row->swap_max))
		goto skip;

	if (start(&g, hot_bytes(row), row->fill, stream, *pos))
		goto skip;
	*pos += 2 * STREAM;	/* what the member may read, twice at most */

	if (row->raise_to) {
		/* First without, so that nothing but the limit changes. */
		if (press(lru, row, &g, stream, pos) ||
		    ru_cg_write(g.cg, "memory.swap.max", row->raise_to))
			goto skip;
	}

	/* Once more: with RAM full, making the group has aged it already. */
	if (tell(&g, HEAT) || read_counters(g.cg, &a))
		goto skip;
	/* Checks the set-up: MGLRU has generations, and not two lists. */
	if (lru == RU_CLASSIC &&
	    a.active_anon < (long long)(hot_bytes(row) / MB) * 7 / 8) {
		ksft_print_msg("shmem read three times, and %lld of %zu MiB are active\n",
			       a.active_anon, hot_bytes(row) / MB);
		goto fail;
	}
	if (row->fill) {
		long long left = row->swap == SWAP_FULL ?
			ru_meminfo_kb("SwapFree") * 1024 :
			(long long)SWAP_SMALL -
			ru_cg_read(g.cg, "memory.swap.current");

		/* A swapped-in page may have given back its slot. */
		if (left < 0 || left > (long long)SWAP_SMALL / 16) {
			ksft_print_msg("%lld KiB of swap are left\n",
				       left / 1024);
			goto fail;
		}
	}

	if (press(lru, row, &g, stream, pos) || read_counters(g.cg, &b))
		goto skip;
	judge(lru, row, &a, &b);
	return;
skip:
	ksft_test_result_skip("%s: %s: %s\n", name, row->name, ru_why);
	return;
fail:
	ksft_test_result_fail("%s: %s\n", name, row->name);
}

static void run_rows(enum ru_lru lru, bool global)
{
	size_t mark = ru_mark();
	const char *blocked = NULL;
	int stream = -1;
	off_t pos = 0;
	size_t i;

	if (!ru_lru_select(lru))
		stream = ru_stream_open();
	if (stream < 0)
		blocked = ru_why;

	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		const struct row *row = &rows[i];
		size_t row_mark = ru_mark();

		if (lru == RU_MGLRU && row->classic_only)
			continue;
		if (!blocked && row->pressure == FROM_OUTSIDE && !global)
			ksft_test_result_skip("%s: %s: fills all RAM, -g runs it on more than 4 GiB\n",
					      ru_lru_name[lru], row->name);
		else if (blocked)
			ksft_test_result_skip("%s: %s: %s\n", ru_lru_name[lru],
					      row->name, blocked);
		else
			run_row(lru, row, stream, &pos);
		ru_unwind(row_mark);
	}
	ru_unwind(mark);
}

static __noreturn void usage(const char *prog)
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
	size_t i, nr = 0;
	int opt;

	while ((opt = getopt(argc, argv, "l:g")) != -1) {
		switch (opt) {
		case 'l':
			for (i = 0; i < RU_NR_LRU; i++) {
				kinds[i] = !strcmp(optarg, ru_lru_name[i]);
				nr += kinds[i];
			}
			if (!nr)
				usage(argv[0]);
			break;
		case 'g':
			global = true;
			break;
		default:
			usage(argv[0]);
		}
	}
	ksft_print_header();
	page_size = sysconf(_SC_PAGESIZE);

	if (geteuid())
		ksft_exit_skip("needs root: control groups, swapon, lru_gen\n");
	if (ru_meminfo_kb("SwapTotal") < 0)
		ksft_exit_skip("no SwapTotal in /proc/meminfo (CONFIG_PROC_FS)\n");
	/*
	 * Its own swap only: which device is filled up, and whether there is
	 * swap at all, must be in the hands of the test.
	 */
	if (ru_meminfo_kb("SwapTotal") > 0)
		ksft_exit_skip("swap is on; the test wants to decide that: swapoff -a first\n");
	if (ru_meminfo_kb("MemAvailable") * 1024ULL < 8 * HOT)
		ksft_exit_skip("needs %lu MiB of available memory\n",
			       8 * HOT / MB);
	if (ru_meminfo_kb("MemTotal") <= 4LL * 1024 * 1024)
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

	/* All rows skipped is a skip: nothing has been checked. */
	if (ksft_cnt.ksft_xskip == ksft_plan) {
		ksft_print_cnts();
		exit(KSFT_SKIP);
	}
	ksft_finished();
}
