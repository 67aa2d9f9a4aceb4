// SPDX-License-Identifier: GPL-2.0
/*
 * Are huge pages split, and the unmapped part of them freed, when reclaim wants
 * memory from where they are charged and are, and no others?
 *
 * An anon huge page of which a part is unmapped goes on the deferred split
 * queue. All of it stays charged until the shrinker of that queue splits it.
 * There is a queue for each control group and NUMA node, and it is shrunk along
 * with the LRU lists of both. Code under test in mm/huge_memory.c:
 * deferred_split_count(), deferred_split_scan(), and what puts a huge page on
 * the queue and takes it off again.
 *
 * Each row has a member of a control group map huge pages, unmap the second
 * half of some, and then either reads use-once page cache within the group,
 * which has a limit, or has the shrinker scan one queue through its debugfs
 * file. Looked at are thp_split_page, the memory that is charged and no longer
 * mapped, and the shrinker's own count.
 */
#define _FILE_OFFSET_BITS 64
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "kselftest.h"
#include "reclaim_util.h"

#ifndef MADV_FREE
#define MADV_FREE	8
#endif

/* From uapi/linux/mempolicy.h; there is no need for libnuma. */
#define MPOL_DEFAULT	0
#define MPOL_BIND	2
#define MPOL_MF_MOVE	2

#define THP_DIR		"/sys/kernel/mm/transparent_hugepage"
#define SHRINKER_DIR	"/sys/kernel/debug/shrinker"
#define SHRINKER	"thp-deferred_split-"

/*
 * Numbers of PMD-sized huge pages, called huge pages from here on; limits and
 * streams are counted in their size too, so that all holds for any page size.
 */
#define HALF		64	/* half unmapped in a row under pressure */
#define FEW		16	/* where any number will do */
#define BEHIND_FULL	48	/* fully mapped ones ... */
#define BEHIND_HALF	48	/* ... which are queued ahead of these */
#define CACHE		32	/* room for page cache below a limit */

/*
 * Smaller ones: 16 base pages each, of which there are as many pages as there
 * are in MTHP_SPACE huge pages.
 */
#define MTHP_PAGES	16
#define MTHP_SPACE	64

/* Polls end here: many times what a row takes under emulation. */
#define TIMEOUT_MS	60000

#define MAX_NODES	64

static const char fix_weigh[] =
	"mm: thp: weigh the deferred split queue in base pages";
static const char fix_underused[] =
	"mm: thp: do not queue THPs that cannot be underused";
static const char fix_node[] =
	"mm: thp: a deferred split queue for each memcg and node";
static const char fix_migrate[] =
	"mm: migrate: queue the copy of a THP that was queued for splitting";

static size_t page_size;
static size_t thp_size;
static long thp_pages;			/* of base pages, in a huge page */
static char shrinker_count[PATH_MAX];
static char shrinker_scan[PATH_MAX];
static char mthp_dir[PATH_MAX / 2];	/* of huge pages of MTHP_PAGES */
static int nodes[2] = { -1, -1 };	/* the first two that have memory */
static int stream = -1;			/* of page cache, for a row ... */
static off_t stream_pos;		/* ... and how far its member got */

/* What the member of a group maps; zeroes are none, and any node. */
struct load {
	int full[2];		/* fully mapped huge pages, on nodes[i] */
	int half[2];		/* the same, half unmapped */
	size_t size;		/* of a huge page, if not PMD-sized */
	int stream;		/* so much page cache is read for each READ */
};

struct group {
	char cg[PATH_MAX];
	char next[PATH_MAX];		/* where LEAVE goes */
	struct ru_child child;
};

static int why(const char *text)
{
	snprintf(ru_why, sizeof(ru_why), "%s", text);
	return -1;
}

static long long read_number(const char *path)
{
	char buf[64] = "";
	FILE *f = fopen(path, "re");
	char *end;
	long long val;

	if (!f || !fgets(buf, sizeof(buf), f)) {
		snprintf(ru_why, sizeof(ru_why), "cannot read %s: %s", path,
			 strerror(errno));
		if (f)
			fclose(f);
		return -1;
	}
	fclose(f);
	val = strtoll(buf, &end, 10);
	if (end == buf) {
		snprintf(ru_why, sizeof(ru_why), "no number in %s", path);
		return -1;
	}
	return val;
}

/* Memory of this task is from nodes[i] from now on, for i < 0 from any. */
static int bind_to(int i)
{
	unsigned long mask[MAX_NODES / (8 * sizeof(long)) + 1] = { 0 };
	int nid = i < 0 ? -1 : nodes[i];
	long ret;

	/* Without NUMA there is the one node, and no system call. */
	if (nodes[1] < 0)
		return 0;
	if (nid >= 0)
		mask[nid / (8 * sizeof(long))] |=
			1UL << nid % (8 * sizeof(long));
	ret = syscall(SYS_set_mempolicy, nid < 0 ? MPOL_DEFAULT : MPOL_BIND,
		      nid < 0 ? NULL : mask, nid < 0 ? 0 : MAX_NODES + 1);
	if (ret)
		snprintf(ru_why, sizeof(ru_why), "set_mempolicy: %s",
			 strerror(errno));
	return ret ? -1 : 0;
}

static unsigned long stamp(size_t page)
{
	return 0x5a5a000000000000UL | page;
}

/*
 * @nr huge pages of @size in a mapping of their own. The first @keep bytes of
 * each stay mapped, with the number of the page written to each page.
 */
static char *map_huge(int nr, size_t size, size_t keep)
{
	size_t len = nr * size, align = thp_size, i, j;
	char *raw, *p;

	raw = mmap(NULL, len + align, PROT_READ | PROT_WRITE,
		   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (raw == MAP_FAILED)
		goto fail;
	p = (char *)(((uintptr_t)raw + align - 1) & ~(align - 1));
	if (madvise(p, len, MADV_HUGEPAGE))
		goto fail;
	for (i = 0; i < len; i += page_size)
		*(unsigned long *)(p + i) = stamp(i / page_size);
	/* khugepaged is not to make huge pages again of what gets split. */
	if (madvise(p, len, MADV_NOHUGEPAGE))
		goto fail;
	for (j = 0; keep < size && j < len; j += size)
		if (madvise(p + j + keep, size - keep, MADV_DONTNEED))
			goto fail;
	return p;
fail:
	snprintf(ru_why, sizeof(ru_why), "cannot map %d huge pages: %s", nr,
		 strerror(errno));
	return NULL;
}

static int check_huge(const char *p, int nr, size_t size, size_t keep)
{
	size_t i;

	for (i = 0; i < nr * size; i += page_size) {
		if (i % size >= keep)
			continue;
		if (*(const unsigned long *)(p + i) != stamp(i / page_size)) {
			snprintf(ru_why, sizeof(ru_why),
				 "page %zu of %zu has other contents than were written",
				 i / page_size, nr * size / page_size);
			return -1;
		}
	}
	return 0;
}

/* What a member is told to do; it echoes what it has done. */
enum order {
	MAP = 'm',
	READ = 'r',	/* stream page cache */
	CHECK = 'c',	/* is what was written still there? */
	PIN = 'p',	/* hold a reference to each of the half[0] */
	UNPIN = 'u',
	MOVE = 'n',	/* migrate half[0] to nodes[1] */
	LEAVE = 'l',	/* the group, for another one */
	STORM = 's',
};

static int storm(void);

/* A page of each huge page goes to a pipe, which holds a reference to it. */
static int pin(int *pipefd, char *p, int nr)
{
	int i;

	if (pipe2(pipefd, O_NONBLOCK))
		return why("pipe");
	for (i = 0; i < nr; i++) {
		struct iovec iov = { p + i * thp_size, page_size };

		if (vmsplice(pipefd[1], &iov, 1, SPLICE_F_NONBLOCK) !=
		    (ssize_t)page_size)
			return why("vmsplice does not take a page");
	}
	return 0;
}

static int move_to_second_node(char *p, size_t len)
{
	unsigned long mask[MAX_NODES / (8 * sizeof(long)) + 1] = { 0 };

	mask[nodes[1] / (8 * sizeof(long))] |=
		1UL << nodes[1] % (8 * sizeof(long));
	if (syscall(SYS_mbind, p, len, MPOL_BIND, mask, MAX_NODES + 1,
		    MPOL_MF_MOVE)) {
		snprintf(ru_why, sizeof(ru_why), "mbind: %s", strerror(errno));
		return -1;
	}
	return 0;
}

static __noreturn void member(struct group *g, const struct load *load)
{
	size_t size = load->size ?: thp_size;
	char *full[2] = { NULL }, *half[2] = { NULL };
	int pipefd[2] = { -1, -1 };
	unsigned char order;
	int i, ret;

	if (ru_cg_enter(g->cg))
		goto fail;
	while (read(g->child.in, &order, 1) == 1) {
		ret = 0;
		switch (order) {
		case MAP:
			for (i = 0; i < 2; i++) {
				if (bind_to(i))
					goto fail;
				if (load->full[i])
					full[i] = map_huge(load->full[i], size,
							   size);
				if (load->half[i])
					half[i] = map_huge(load->half[i], size,
							   size / 2);
				if ((load->full[i] && !full[i]) ||
				    (load->half[i] && !half[i]))
					goto fail;
			}
			break;
		case READ:
			ret = bind_to(-1) ?:
			      ru_stream_read(stream, &stream_pos,
					     load->stream * thp_size);
			break;
		case CHECK:
			for (i = 0; i < 2; i++) {
				if (full[i])
					ret = ret ?: check_huge(full[i],
						load->full[i], size, size);
				if (half[i])
					ret = ret ?: check_huge(half[i],
						load->half[i], size, size / 2);
			}
			break;
		case PIN:
			ret = pin(pipefd, half[0], load->half[0]);
			break;
		case UNPIN:
			close(pipefd[0]);
			close(pipefd[1]);
			break;
		case MOVE:
			ret = move_to_second_node(half[0],
						  load->half[0] * size);
			break;
		case LEAVE:
			ret = ru_cg_enter(g->next);
			break;
		case STORM:
			ret = storm();
			break;
		}
		if (ret)
			goto fail;
		if (write(g->child.out, &order, 1) != 1)
			break;
	}
	_exit(0);
fail:
	/* Not buffered, as the parent's part of the buffer is here as well. */
	dprintf(STDOUT_FILENO, "# task in the group: %s\n", ru_why);
	_exit(1);
}

/* The member is gone, or stuck, in a row that had all it needs. */
static bool lost;

static int tell(struct group *g, enum order order)
{
	int ret = ru_tell(&g->child, order, TIMEOUT_MS);

	/* That it gets no huge pages is for the row to skip. */
	if (ret && order != MAP)
		lost = true;
	return ret;
}

/*
 * The shrinker's count of a group on each node that the system could have, in
 * the order of node numbers. A group with nothing queued is not in the file.
 */
static int queued(const struct group *g, long long *count)
{
	char line[2048];
	struct stat st;
	FILE *f;

	memset(count, 0, MAX_NODES * sizeof(*count));
	if (stat(g->cg, &st))
		return why("cannot stat the control group");
	f = fopen(shrinker_count, "re");
	if (!f)
		return why("cannot read the count of the shrinker");
	while (fgets(line, sizeof(line), f)) {
		char *p = line;
		int i;

		if (strtoull(p, &p, 10) != st.st_ino)
			continue;
		for (i = 0; i < MAX_NODES && *p && *p != '\n'; i++)
			count[i] = strtoll(p, &p, 10);
	}
	fclose(f);
	return 0;
}

static long long queued_on(const struct group *g, int i)
{
	long long count[MAX_NODES];

	return queued(g, count) ? -1 : count[nodes[i] < 0 ? 0 : nodes[i]];
}

static long long queued_all(const struct group *g)
{
	long long count[MAX_NODES], sum = 0;
	int i;

	if (queued(g, count))
		return -1;
	for (i = 0; i < MAX_NODES; i++)
		sum += count[i];
	return sum;
}

/* Have the shrinker scan @nr of what a group has queued on nodes[@i]. */
static int scan_nr(const char *cg, int i, long nr)
{
	char value[96];
	struct stat st;

	if (stat(cg, &st))
		return why("cannot stat the control group");
	snprintf(value, sizeof(value), "%llu %d %ld",
		 (unsigned long long)st.st_ino, nodes[i] < 0 ? 0 : nodes[i],
		 nr);
	return ru_write(shrinker_scan, value);
}

/* Or all of it: more than there is, in pages as in huge pages. */
static int scan(const char *cg, int i)
{
	return scan_nr(cg, i, 4 * HALF * thp_pages);
}

/* Charged to the group and mapped by nobody, in pages. */
static long long unmapped(const struct group *g)
{
	long long active, inactive, anon;

	if (ru_cg_settle())
		return -1;
	active = ru_cg_stat(g->cg, "active_anon");
	inactive = ru_cg_stat(g->cg, "inactive_anon");
	anon = ru_cg_stat(g->cg, "anon");
	if (active < 0 || inactive < 0 || anon < 0)
		return -1;
	return (active + inactive - anon) / (long long)page_size;
}

/* Makes a group, with a limit of so many huge pages or none, and its member. */
static int set_up(struct group *g, const struct load *load, int limit,
		  const char *parent)
{
	long long have = ru_vmstat("thp_fault_alloc");
	int want = load->full[0] + load->full[1] + load->half[0] +
		   load->half[1];
	pid_t pid;

	if (ru_cg_create(g->cg, parent, "thp_deferred_split"))
		return -1;
	if (limit && ru_cg_write_bytes(g->cg, "memory.max", limit * thp_size))
		return -1;
	/* One for each row, whose page cache goes with it. */
	if (load->stream) {
		stream = ru_stream_open();
		if (stream < 0)
			return -1;
	}
	pid = ru_fork(&g->child);
	if (pid < 0)
		return -1;
	if (!pid)
		member(g, load);
	if (!want)
		return 0;
	if (tell(g, MAP))
		return -1;
	if (load->size)
		return 0;
	have = ru_vmstat("thp_fault_alloc") - have;
	if (have < want) {
		snprintf(ru_why, sizeof(ru_why),
			 "%lld of %d page faults got a huge page", have, want);
		return -1;
	}
	return 0;
}

/*
 * What a row streams so that @queue huge pages which are queued get scanned,
 * and @half of them split.
 *
 * A pass of reclaim over the group is after SWAP_CLUSTER_MAX (32) pages, of
 * which MGLRU makes 64 (MIN_LRU_BATCH). As long as 8 huge pages are queued,
 * each pass wants at least 32 pages of the queue too, and scans a huge page of
 * n pages with probability 32/n. So there is at the least one such scan, on
 * average, for two huge pages' worth of page cache reclaimed, and to have twice
 * as many as are queued takes four times as much. What fits below the limit,
 * and in place of what gets freed, comes on top.
 */
static int stream_for(int queue, int half)
{
	return CACHE + half / 2 + 4 * queue + CACHE / 4;
}

static bool pressed(long long reclaimed, int queue)
{
	return reclaimed >= 4LL * queue * thp_pages;
}

/*
 * Of those half unmapped 3/4 have to be split. Each pass scans one or does
 * not, independently of the others: with 64 queued, an average of 128 times
 * with a standard deviation of 11, and it takes 48; with 96, 192 and 14, where
 * it takes 84 to get to 36 of the last 48. Of the last 8 not all need be split:
 * less than 4096 pages are too few for a fraction to be taken of them at
 * DEF_PRIORITY, as on the LRU lists.
 */
static int min_split(int half)
{
	return half * 3 / 4;
}

/*
 * A quarter of the halves may be left; another sixteenth is for counters that
 * have not settled. That is 20 MiB for 64 huge pages of 2 MiB.
 */
static long long max_left(int half)
{
	return 5LL * half * (thp_pages / 2) / 16;
}

struct row;

struct ctx {
	const char *lru;
	const struct row *row;
};

static const char *row_name(const struct ctx *c);
static void result(const struct ctx *c, bool ok, const char *fix);
static int set_max_ptes_none(long nr);

/* The rows. Each returns 0 when it has judged, -1 to be skipped for ru_why. */

/* Page cache that fits is no reason to split anything. */
static int row_no_pressure(const struct ctx *c)
{
	const struct load load = {
		.half = { HALF }, .stream = CACHE / 2,
	};
	static struct group g;
	long long split, left, max, count;

	if (set_up(&g, &load, HALF + CACHE, NULL))
		return -1;
	split = ru_vmstat("thp_split_page");
	if (tell(&g, READ))
		return -1;
	split = ru_vmstat("thp_split_page") - split;
	left = unmapped(&g);
	count = queued_all(&g);
	/* All the halves, but for what statistics have not seen yet. */
	max = HALF * (thp_pages / 2);
	ksft_print_msg("thp_split_page %lld, none; unmapped and charged %lld pages of %lld, queued %lld\n",
		       split, left, max, count);
	result(c, !split && left >= max * 15 / 16 && count > 0, NULL);
	return 0;
}

static int press(const struct ctx *c, const struct load *load, const char *fix)
{
	int half = load->half[0] + load->half[1];
	int all = half + load->full[0] + load->full[1];
	static struct group g;
	long long split, stolen, slabs, left;
	bool ok;

	if (set_up(&g, load, all + CACHE, NULL) || ru_cg_settle())
		return -1;
	split = ru_vmstat("thp_split_page");
	slabs = ru_vmstat("slabs_scanned");
	stolen = ru_cg_stat(g.cg, "pgsteal");
	if (split < 0 || slabs < 0 || stolen < 0 || tell(&g, READ))
		return -1;
	split = ru_vmstat("thp_split_page") - split;
	slabs = ru_vmstat("slabs_scanned") - slabs;
	left = unmapped(&g);
	stolen = ru_cg_stat(g.cg, "pgsteal") - stolen;
	if (left < 0)
		return -1;
	ksft_print_msg("counters[%s]: thp_split_page=%lld unmapped_left=%lld pgsteal=%lld slabs_scanned=%lld\n",
		       row_name(c), split, left, stolen, slabs);
	if (!pressed(stolen, all)) {
		snprintf(ru_why, sizeof(ru_why),
			 "the stream had %lld pages reclaimed, less than %lld",
			 stolen, 4LL * all * thp_pages);
		return -1;
	}
	ksft_print_msg("thp_split_page %lld of %d, at least %d; unmapped and charged %lld pages, at most %lld\n",
		       split, half, min_split(half), left, max_left(half));
	ok = split >= min_split(half) && left <= max_left(half);
	if (tell(&g, CHECK)) {
		ksft_print_msg("%s: what was mapped is not what it was\n",
			       ru_why);
		ok = false;
		fix = NULL;
	}
	result(c, ok, fix);
	return 0;
}

static int row_pressure(const struct ctx *c)
{
	const struct load load = {
		.half = { HALF }, .stream = stream_for(HALF, HALF),
	};

	return press(c, &load, fix_weigh);
}

static int row_behind(const struct ctx *c)
{
	const struct load load = {
		.full = { BEHIND_FULL }, .half = { BEHIND_HALF },
		.stream = stream_for(BEHIND_FULL + BEHIND_HALF, BEHIND_HALF),
	};

	return press(c, &load, fix_weigh);
}

/* As above, but the full ones are queued, and have to be looked at. */
static int row_behind_candidates(const struct ctx *c)
{
	if (set_max_ptes_none(thp_pages / 2))
		return -1;
	return row_behind(c);
}

/* What is queued counts in base pages. */
static int judge_count(const struct ctx *c, const struct load *load,
		       long long want, const char *fix)
{
	static struct group g;
	long long count;

	if (set_up(&g, load, 0, NULL))
		return -1;
	count = queued_all(&g);
	if (count < 0)
		return -1;
	ksft_print_msg("counters[%s]: queued=%lld\n", row_name(c), count);
	ksft_print_msg("queued %lld pages, exactly %lld\n", count, want);
	result(c, count == want, count ? fix_weigh : fix);
	return 0;
}

static int row_count_half(const struct ctx *c)
{
	const struct load load = { .half = { FEW } };

	return judge_count(c, &load, FEW * thp_pages, NULL);
}

static int row_count_full(const struct ctx *c)
{
	const struct load load = { .full = { FEW } };
	static struct group g;
	long long count;

	if (set_up(&g, &load, 0, NULL))
		return -1;
	count = queued_all(&g);
	if (count < 0)
		return -1;
	ksft_print_msg("counters[%s]: queued=%lld\n", row_name(c), count);
	ksft_print_msg("queued %lld pages, none\n", count);
	result(c, !count, fix_underused);
	return 0;
}

static int row_count_candidates(const struct ctx *c)
{
	const struct load load = { .full = { FEW } };

	if (set_max_ptes_none(thp_pages / 2))
		return -1;
	return judge_count(c, &load, FEW * thp_pages, NULL);
}

static long long mthp_stat(const char *name)
{
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "%s/stats/%s", mthp_dir, name);
	return read_number(path);
}

/* Huge pages of MTHP_PAGES, and no others. */
static int only_mthp(void)
{
	char path[PATH_MAX + 256];
	struct dirent *e;
	DIR *d = opendir(THP_DIR);
	int ret = d ? 0 : why("cannot read " THP_DIR);

	while (!ret && (e = readdir(d))) {
		if (strncmp(e->d_name, "hugepages-", 10))
			continue;
		snprintf(path, sizeof(path), THP_DIR "/%s/enabled", e->d_name);
		/* Some sizes are for shmem alone. */
		if (!access(path, F_OK))
			ret = ru_set(path, strcmp(e->d_name,
						  strrchr(mthp_dir, '/') + 1) ?
				     "never" : "madvise");
	}
	if (d)
		closedir(d);
	return ret;
}

/*
 * Smaller ones are weighed by their own size: there is as much memory in them
 * as in MTHP_SPACE huge pages, which makes as many pages on the queue, and the
 * same bounds. Where one of these is scanned once in 16 passes, so are 32 of
 * them, two in each pass.
 */
static int row_mthp(const struct ctx *c)
{
	const int nr = MTHP_SPACE * thp_pages / MTHP_PAGES;
	const struct load load = {
		.half = { nr }, .size = MTHP_PAGES * page_size,
		.stream = stream_for(MTHP_SPACE, MTHP_SPACE),
	};
	static struct group g;
	long long allocated, count, split, stolen, left;
	bool ok;

	if (only_mthp())
		return -1;
	allocated = mthp_stat("anon_fault_alloc");
	if (set_up(&g, &load, MTHP_SPACE + CACHE, NULL) || ru_cg_settle())
		return -1;
	allocated = mthp_stat("anon_fault_alloc") - allocated;
	if (allocated < nr) {
		snprintf(ru_why, sizeof(ru_why),
			 "%lld of %d page faults got a huge page of %d pages",
			 allocated, nr, MTHP_PAGES);
		return -1;
	}
	count = queued_all(&g);
	split = mthp_stat("split");
	stolen = ru_cg_stat(g.cg, "pgsteal");
	if (count < 0 || split < 0 || stolen < 0 || tell(&g, READ))
		return -1;
	split = mthp_stat("split") - split;
	left = unmapped(&g);
	stolen = ru_cg_stat(g.cg, "pgsteal") - stolen;
	if (left < 0)
		return -1;
	ksft_print_msg("counters[%s]: queued=%lld split=%lld unmapped_left=%lld pgsteal=%lld\n",
		       row_name(c), count, split, left, stolen);
	if (!pressed(stolen, MTHP_SPACE))
		return why("the stream had too little reclaimed");
	ksft_print_msg("queued %lld pages, exactly %ld; split %lld of %d, at least %d; unmapped and charged %lld pages, at most %lld\n",
		       count, MTHP_SPACE * thp_pages, split, nr,
		       min_split(nr), left, max_left(MTHP_SPACE));
	ok = count == MTHP_SPACE * thp_pages && split >= min_split(nr) &&
	     left <= max_left(MTHP_SPACE);
	if (tell(&g, CHECK)) {
		ksft_print_msg("%s\n", ru_why);
		ok = false;
	}
	result(c, ok, fix_weigh);
	return 0;
}

/* Pressure on one group, and the neighbour's stays as it is. */
static int row_neighbour(const struct ctx *c)
{
	const struct load load = {
		.half = { BEHIND_HALF },
		.stream = stream_for(BEHIND_HALF, BEHIND_HALF),
	};
	const struct load idle = { .half = { FEW } };
	static struct group g, next;
	char parent[PATH_MAX];
	long long before, after, split, kswapd;

	/* Below another parent: both go by the same name. */
	if (ru_cg_create(parent, NULL, "thp_deferred_split_next") ||
	    set_up(&next, &idle, 0, parent) ||
	    set_up(&g, &load, BEHIND_HALF + CACHE, NULL))
		return -1;
	before = queued_all(&next);
	split = ru_vmstat("thp_split_page");
	kswapd = ru_vmstat("pgscan_kswapd");
	if (before < 0 || split < 0 || kswapd < 0 || tell(&g, READ))
		return -1;
	split = ru_vmstat("thp_split_page") - split;
	after = queued_all(&next);
	/* That is pressure on the node, and so on everybody. */
	if (ru_vmstat("pgscan_kswapd") != kswapd)
		return why("kswapd ran: a node is short of memory");
	ksft_print_msg("counters[%s]: thp_split_page=%lld queued_before=%lld queued_after=%lld\n",
		       row_name(c), split, before, after);
	ksft_print_msg("queued in the other group %lld, as before: %lld; thp_split_page %lld of %d, at least %d\n",
		       after, before, split, BEHIND_HALF,
		       min_split(BEHIND_HALF));
	result(c, before > 0 && after == before &&
	       split >= min_split(BEHIND_HALF),
	       after == before ? fix_weigh : NULL);
	return 0;
}

static const struct load on_both = { .half = { FEW / 2, FEW } };

/* Each node has its own count: twice as much is queued on the second. */
static int row_node_count(const struct ctx *c)
{
	static struct group g;
	long long first, second;

	if (set_up(&g, &on_both, 0, NULL))
		return -1;
	first = queued_on(&g, 0);
	second = queued_on(&g, 1);
	ksft_print_msg("counters[%s]: node0=%lld node1=%lld\n", row_name(c),
		       first, second);
	ksft_print_msg("queued on the first node %lld, on the second %lld, twice as much\n",
		       first, second);
	result(c, first > 0 && second == 2 * first, fix_node);
	return 0;
}

/* Pressure on nodes[@i] leaves the other node alone. */
static int node_scan(const struct ctx *c, int i)
{
	static struct group g;
	long long own, other, before, split;

	if (set_up(&g, &on_both, 0, NULL))
		return -1;
	before = queued_on(&g, !i);
	split = ru_vmstat("thp_split_page");
	if (before < 0 || split < 0 || scan(g.cg, i))
		return -1;
	split = ru_vmstat("thp_split_page") - split;
	own = queued_on(&g, i);
	other = queued_on(&g, !i);
	ksft_print_msg("counters[%s]: thp_split_page=%lld left_here=%lld other_before=%lld other_after=%lld\n",
		       row_name(c), split, own, before, other);
	ksft_print_msg("thp_split_page %lld, exactly %d; queued here %lld, none, on the other node %lld, as before: %lld\n",
		       split, on_both.half[i], own, other, before);
	result(c, split == on_both.half[i] && !own && before > 0 &&
	       other == before, fix_node);
	return 0;
}

static int row_node_first(const struct ctx *c)
{
	return node_scan(c, 0);
}

static int row_node_second(const struct ctx *c)
{
	return node_scan(c, 1);
}

/*
 * A scan that is after SWAP_CLUSTER_MAX (32) pages gets that many on average,
 * and not a huge page each time. Scans for half the pages that are queued come
 * to half of the huge pages: with 64 of 512 pages each, 512 scans, and one in
 * 16 has an effect, which makes 32 with a standard deviation of 5.5; from 8 to
 * 56 is more than four of these either way. With larger base pages, and so more
 * of them in a huge page, there are more scans and the deviation is the same.
 */
static int row_fraction(const struct ctx *c)
{
	const long batch = 32, nr = HALF * thp_pages / 2 / batch;
	const struct load load = { .half = { HALF } };
	const int min = HALF / 8, max = HALF - HALF / 8;
	static struct group g;
	long long split;
	long i;

	if (set_up(&g, &load, 0, NULL))
		return -1;
	split = ru_vmstat("thp_split_page");
	for (i = 0; i < nr; i++)
		if (scan_nr(g.cg, 0, batch))
			return -1;
	split = ru_vmstat("thp_split_page") - split;
	ksft_print_msg("counters[%s]: scans=%ld thp_split_page=%lld\n",
		       row_name(c), nr, split);
	ksft_print_msg("thp_split_page %lld of %d, %d to %d\n", split, HALF,
		       min, max);
	result(c, split >= min && split <= max, fix_weigh);
	return 0;
}

/*
 * One that is migrated is not forgotten: either it is split on the occasion,
 * as newer kernels do, or the copy is queued on its node.
 */
static int row_migrate(const struct ctx *c)
{
	const struct load load = { .half = { FEW } };
	static struct group g;
	long long before, first, second, moved, split;

	if (set_up(&g, &load, 0, NULL))
		return -1;
	before = queued_on(&g, 0);
	moved = ru_vmstat("thp_migration_success");
	split = ru_vmstat("thp_split_page");
	if (before < 0 || moved < 0 || split < 0 || tell(&g, MOVE))
		return -1;
	moved = ru_vmstat("thp_migration_success") - moved;
	split = ru_vmstat("thp_split_page") - split;
	if (moved + split < FEW) {
		snprintf(ru_why, sizeof(ru_why),
			 "%lld of %d huge pages were migrated, %lld split",
			 moved, FEW, split);
		return -1;
	}
	first = queued_on(&g, 0);
	second = queued_on(&g, 1);
	ksft_print_msg("counters[%s]: migrated=%lld thp_split_page=%lld before=%lld node0=%lld node1=%lld\n",
		       row_name(c), moved, split, before, first, second);
	ksft_print_msg("migrated %lld, split %lld; queued on the first node %lld, none, on the second %lld, %d/%d of %lld\n",
		       moved, split, first, second, (int)(FEW - split), FEW,
		       before);
	result(c, before > 0 && !first &&
	       second * FEW == before * (FEW - split), fix_migrate);
	return 0;
}

/* One that is pinned cannot be split, and has to stay on the queue. */
static int row_pinned(const struct ctx *c)
{
	const struct load load = { .half = { FEW / 2 } };
	static struct group g;
	long long before, pinned, after, failed, split;
	bool ok;

	if (set_up(&g, &load, 0, NULL))
		return -1;
	before = queued_all(&g);
	if (before < 0 || tell(&g, PIN))
		return -1;
	failed = ru_vmstat("thp_split_page");
	if (scan(g.cg, 0))
		return -1;
	failed = ru_vmstat("thp_split_page") - failed;
	pinned = queued_all(&g);
	if (tell(&g, UNPIN))
		return -1;
	split = ru_vmstat("thp_split_page");
	if (scan(g.cg, 0))
		return -1;
	split = ru_vmstat("thp_split_page") - split;
	after = queued_all(&g);
	ksft_print_msg("counters[%s]: queued=%lld pinned=%lld unpinned=%lld\n",
		       row_name(c), before, pinned, after);
	ksft_print_msg("pinned: thp_split_page %lld, none, queued %lld, all of %lld; not any more: thp_split_page %lld, exactly %d, queued %lld, none\n",
		       failed, pinned, before, split, FEW / 2, after);
	ok = before > 0 && !failed && pinned == before && split == FEW / 2 &&
	     !after;
	if (tell(&g, CHECK)) {
		ksft_print_msg("%s\n", ru_why);
		ok = false;
	}
	result(c, ok, NULL);
	return 0;
}

/*
 * When a group is removed its queue goes to the parent, and what is on it can
 * still be split. Kernels which have that have the smaller huge pages too.
 */
static int row_removed(const struct ctx *c)
{
	const struct timespec tick = { .tv_nsec = 10 * 1000 * 1000 };
	const struct load load = { .half = { FEW } };
	static struct group g, parent;
	long long before, after, split, left, end;

	if (ru_cg_create(parent.cg, NULL, "thp_deferred_split_parent") ||
	    ru_cg_create(g.next, parent.cg, "thp_deferred_split_stay") ||
	    set_up(&g, &load, 0, parent.cg))
		return -1;
	before = queued_all(&g);
	if (before < 0 || tell(&g, LEAVE))
		return -1;
	if (rmdir(g.cg))
		return why("cannot remove the control group");
	/* A while later, by a worker. */
	end = ru_mono_ms() + TIMEOUT_MS / 10;
	while (!(after = queued_all(&parent)) && ru_mono_ms() < end)
		nanosleep(&tick, NULL);
	split = ru_vmstat("thp_split_page");
	if (after < 0 || split < 0 || scan(parent.cg, 0))
		return -1;
	split = ru_vmstat("thp_split_page") - split;
	left = queued_all(&parent);
	ksft_print_msg("counters[%s]: before=%lld after=%lld thp_split_page=%lld left=%lld\n",
		       row_name(c), before, after, split, left);
	ksft_print_msg("queued in the parent %lld, as in the group before: %lld; thp_split_page %lld, exactly %d; queued then %lld, none\n",
		       after, before, split, FEW, left);
	result(c, before > 0 && after == before && split == FEW && !left, NULL);
	return 0;
}

/*
 * The storm: threads which unmap, free, move, lock and share parts of huge
 * pages in all ways there are, while those are split by reclaim and through
 * debugfs, and khugepaged makes new ones. No page may ever have other contents
 * than it should.
 */
#define THREADS		4
#define STORM_THPS	4		/* of each thread */
#define STORM_OPS	120		/* of each thread, at the least ... */
#define STORM_SPLITS	(THREADS * STORM_THPS)	/* ... and until so many */

struct thread {
	int id;
	char *base;			/* STORM_THPS huge pages ... */
	char *spare;			/* ... and as much address space */
	unsigned short *want;		/* for each page, see page_ok() */
	unsigned int seed;
	unsigned short gen;
	const char *failed;
	size_t page;
	int done;
};

static int storm_is_over;		/* there were STORM_SPLITS */

#define MAY_BE_ZERO	0x8000		/* MADV_FREE */
#define GEN		0x7fff		/* 0: never written to, or given back */

static size_t storm_pages(void)
{
	return STORM_THPS * thp_pages;
}

static uint64_t storm_stamp(const struct thread *t, size_t page, int gen)
{
	return (uint64_t)(t->id + 1) << 56 | (uint64_t)page << 24 | gen;
}

static bool page_ok(const struct thread *t, size_t page)
{
	const uint64_t *p = (void *)(t->base + page * page_size);
	const uint64_t *last = p + page_size / sizeof(*p) - 1;
	int gen = t->want[page] & GEN;
	uint64_t have = *p, end = *last;

	if (gen && have == storm_stamp(t, page, gen) && end == have)
		return true;
	return (!gen || t->want[page] & MAY_BE_ZERO) && !have && !end;
}

/* Looks at pages without an order, a few for each huge page. */
static bool storm_check(struct thread *t, size_t nr)
{
	while (nr--) {
		size_t page = rand_r(&t->seed) % storm_pages();

		if (!page_ok(t, page)) {
			t->page = page;
			return false;
		}
	}
	return true;
}

static void storm_write(struct thread *t, size_t first, size_t nr)
{
	size_t page;

	t->gen = t->gen % (GEN - 1) + 1;
	for (page = first; page < first + nr; page++) {
		uint64_t *p = (void *)(t->base + page * page_size);

		*p = storm_stamp(t, page, t->gen);
		p[page_size / sizeof(*p) - 1] = *p;
		t->want[page] = t->gen;
	}
}

static void storm_want(struct thread *t, size_t first, size_t nr, bool zero)
{
	size_t page;

	for (page = first; page < first + nr; page++)
		t->want[page] = zero ? 0 : t->want[page] | MAY_BE_ZERO;
}

static bool storm_share(struct thread *t)
{
	int status;
	pid_t pid = fork();

	if (!pid) {
		size_t nr = storm_pages() / 2;

		/* The parent has threads: nothing but system calls here. */
		if (!storm_check(t, 16))
			_exit(1);
		madvise(t->base + thp_size / 4, nr * page_size, MADV_DONTNEED);
		_exit(0);
	}
	if (pid < 0 || !storm_check(t, 16))
		return false;
	return waitpid(pid, &status, 0) == pid && WIFEXITED(status) &&
	       !WEXITSTATUS(status);
}

static void *storm_thread(void *arg)
{
	struct thread *t = arg;
	int op;

	for (op = 0; !t->failed; op++) {
		size_t first = rand_r(&t->seed) % storm_pages();
		size_t nr = rand_r(&t->seed) % thp_pages + 1;
		char *p = t->base + first * page_size, *q;
		size_t len;

		if (op >= STORM_OPS &&
		    __atomic_load_n(&storm_is_over, __ATOMIC_RELAXED))
			break;
		if (nr > storm_pages() - first)
			nr = storm_pages() - first;
		len = nr * page_size;
		q = t->spare + first * page_size;
		switch (rand_r(&t->seed) % 7) {
		case 0:
			storm_want(t, first, nr, true);
			if (madvise(p, len, MADV_DONTNEED))
				t->failed = "MADV_DONTNEED";
			break;
		case 1:
			storm_want(t, first, nr, false);
			if (madvise(p, len, MADV_FREE))
				t->failed = "MADV_FREE";
			break;
		case 2:
			storm_want(t, first, nr, true);
			if (munmap(p, len) ||
			    mmap(p, len, PROT_READ | PROT_WRITE, MAP_FIXED |
				 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != p ||
			    madvise(p, len, MADV_HUGEPAGE))
				t->failed = "munmap";
			break;
		case 3:
			/*
			 * There and back. Nobody takes the hole meanwhile: all
			 * that the other threads map has a fixed address. Not
			 * all kernels move more than one mapping at a time.
			 */
			if (mremap(p, len, len, MREMAP_MAYMOVE | MREMAP_FIXED,
				   q) != q) {
				if (errno != EFAULT)
					t->failed = "mremap";
				break;
			}
			if (mremap(q, len, len, MREMAP_MAYMOVE | MREMAP_FIXED,
				   p) != p)
				t->failed = "mremap back";
			break;
		case 4:
			if (op % 4 == 0 && !storm_share(t))
				t->failed = "fork";
			break;
		case 5:
			/*
			 * Part of a huge page is locked while that may be
			 * split, and not for longer: MADV_DONTNEED refuses.
			 */
			if (mlock(p, len)) {
				t->failed = "mlock";
				break;
			}
			storm_write(t, first, nr);
			if (!storm_check(t, 32))
				t->failed = "contents of locked memory";
			if (munlock(p, len))
				t->failed = "munlock";
			break;
		default:
			/* All of a huge page, for there to be huge ones. */
			first -= first % thp_pages;
			storm_want(t, first, thp_pages, true);
			madvise(t->base + first * page_size, thp_size,
				MADV_DONTNEED);
			nr = thp_pages;
			storm_write(t, first, nr);
			break;
		}
		if (op % 2)
			storm_write(t, first, nr);
		if (!t->failed && !storm_check(t, 32))
			t->failed = "contents";
	}
	for (t->page = 0; !t->failed && t->page < storm_pages(); t->page++)
		if (!page_ok(t, t->page))
			t->failed = "contents at the end";
	__atomic_store_n(&t->done, 1, __ATOMIC_RELEASE);
	return NULL;
}

static int storm(void)
{
	static struct thread threads[THREADS];
	long long split = ru_vmstat("thp_split_page");
	long long end = ru_mono_ms() + TIMEOUT_MS / 2;
	size_t len = STORM_THPS * thp_size;
	pthread_t id[THREADS];
	int i, ret = 0, started;
	char *raw;

	for (i = 0; i < THREADS; i++) {
		struct thread *t = &threads[i];

		t->id = i;
		t->seed = i + 1;
		t->want = calloc(storm_pages(), sizeof(*t->want));
		raw = mmap(NULL, 2 * len + thp_size, PROT_NONE, MAP_PRIVATE |
			   MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
		if (raw == MAP_FAILED || !t->want)
			return why("cannot map memory, or keep track of it");
		t->base = (char *)(((uintptr_t)raw + thp_size - 1) &
				   ~(thp_size - 1));
		t->spare = t->base + len;
		if (mprotect(t->base, len, PROT_READ | PROT_WRITE) ||
		    madvise(t->base, len, MADV_HUGEPAGE))
			return why("cannot map memory, or keep track of it");
		storm_write(t, 0, storm_pages());
	}
	for (started = 0; started < THREADS; started++)
		if (pthread_create(&id[started], NULL, storm_thread,
				   &threads[started]))
			break;
	/* Reclaim all the while. */
	for (i = 0; i < started; i++) {
		while (!__atomic_load_n(&threads[i].done, __ATOMIC_ACQUIRE)) {
			ret = ret ?: ru_stream_read(stream, &stream_pos,
						    thp_size);
			if (ret || ru_mono_ms() > end ||
			    ru_vmstat("thp_split_page") - split >= STORM_SPLITS)
				__atomic_store_n(&storm_is_over, 1,
						 __ATOMIC_RELAXED);
		}
		pthread_join(id[i], NULL);
	}
	if (started < THREADS)
		return why("cannot start a thread");
	for (i = 0; i < THREADS && !ret; i++) {
		if (!threads[i].failed)
			continue;
		snprintf(ru_why, sizeof(ru_why), "thread %d, page %zu: %s", i,
			 threads[i].page, threads[i].failed);
		ret = -1;
	}
	return ret;
}

/* Scans all there is on both nodes, again and again, until it is killed. */
static int start_scanner(const struct group *g, struct ru_child *scanner)
{
	pid_t pid = ru_fork(scanner);

	if (pid)
		return pid < 0 ? -1 : 0;
	while (1) {
		if (scan(g->cg, 0) || (nodes[1] >= 0 && scan(g->cg, 1)) ||
		    queued_all(g) < 0)
			_exit(1);
	}
}

static int row_storm(const struct ctx *c)
{
	/* A stream that is as long as it takes. */
	const struct load load = { .stream = 1 };
	const struct timespec tick = { .tv_nsec = 10 * 1000 * 1000 };
	static struct ru_child scanner;
	static struct group g;
	long long split, left, end;
	size_t mark;
	bool ok;

	/*
	 * khugepaged joins in. The limit has room for what is written, for as
	 * much that is unmapped and not split yet, and for copies.
	 */
	if (ru_set(THP_DIR "/khugepaged/scan_sleep_millisecs", "10") ||
	    ru_set(THP_DIR "/khugepaged/pages_to_scan", "4096") ||
	    set_up(&g, &load, 3 * THREADS * STORM_THPS + CACHE / 2, NULL))
		return -1;
	mark = ru_mark();
	if (start_scanner(&g, &scanner))
		return -1;
	split = ru_vmstat("thp_split_page");
	ok = !tell(&g, STORM);
	split = ru_vmstat("thp_split_page") - split;
	if (!ok)
		ksft_print_msg("%s\n", ru_why);
	ru_unwind(mark);
	/* The member goes, and what it had on a queue with it; reaped later. */
	kill(g.child.pid, SIGKILL);
	end = ru_mono_ms() + TIMEOUT_MS / 10;
	while ((left = queued_all(&g)) > 0 && ru_mono_ms() < end)
		nanosleep(&tick, NULL);
	ksft_print_msg("counters[%s]: thp_split_page=%lld queued_left=%lld\n",
		       row_name(c), split, left);
	ksft_print_msg("thp_split_page %lld, at least %d; queued in the end %lld, none\n",
		       split, STORM_SPLITS, left);
	/* As many as there were to begin with: it goes on until then. */
	result(c, ok && split >= STORM_SPLITS && !left, NULL);
	return 0;
}

enum needs {
	TWO_NODES = 1,
	SHRINKERS = 2,		/* CONFIG_SHRINKER_DEBUG */
	MTHP = 4,		/* not planned without */
	UNDERUSED = 8,		/* not planned without */
};

static const struct row {
	const char *name;
	int (*run)(const struct ctx *c);
	int needs;
} rows[] = {
	{ "no pressure: nothing is split", row_no_pressure, SHRINKERS },
	{ "pressure: half-unmapped huge pages are split", row_pressure, 0 },
	{ "pressure: half-unmapped huge pages behind mapped ones are split",
	  row_behind, 0 },
	{ "pressure: half-unmapped huge pages behind candidates are split",
	  row_behind_candidates, UNDERUSED },
	{ "pressure: half-unmapped smaller huge pages are split",
	  row_mthp, MTHP | SHRINKERS },
	{ "pressure: those of another group are left alone",
	  row_neighbour, SHRINKERS },
	{ "half-unmapped huge pages are queued by size", row_count_half,
	  SHRINKERS },
	{ "mapped huge pages are not queued", row_count_full, SHRINKERS },
	{ "max_ptes_none lowered: mapped huge pages are queued",
	  row_count_candidates, SHRINKERS | UNDERUSED },
	{ "each node has its own queue", row_node_count,
	  SHRINKERS | TWO_NODES },
	{ "scan of the first node: the second is left alone", row_node_first,
	  SHRINKERS | TWO_NODES },
	{ "scan of the second node: the first is left alone", row_node_second,
	  SHRINKERS | TWO_NODES },
	{ "scans for half the pages: half of the huge pages are split",
	  row_fraction, SHRINKERS },
	{ "migration: split, or queued on the new node", row_migrate,
	  SHRINKERS | TWO_NODES },
	{ "pinned: stays queued, and is split later", row_pinned, SHRINKERS },
	{ "removed group: queued in the parent", row_removed,
	  SHRINKERS | MTHP },
	{ "storm: contents stay, nothing is left queued", row_storm,
	  SHRINKERS },
};

static const char *row_name(const struct ctx *c)
{
	return c->row->name;
}

static void result(const struct ctx *c, bool ok, const char *fix)
{
	if (!ok && fix)
		ksft_print_msg("missing fix: \"%s\"\n", fix);
	ksft_test_result(ok, "%s: %s\n", c->lru, c->row->name);
}

static int set_max_ptes_none(long nr)
{
	char value[32];

	snprintf(value, sizeof(value), "%ld", nr);
	return ru_set(THP_DIR "/khugepaged/max_ptes_none", value);
}

/* What an administrator may have set, as by default; khugepaged asleep. */
static int pin_thp_settings(void)
{
	if (ru_set(THP_DIR "/enabled", "madvise") ||
	    ru_set(THP_DIR "/defrag", "madvise") ||
	    ru_set(THP_DIR "/khugepaged/scan_sleep_millisecs", "86400000") ||
	    set_max_ptes_none(thp_pages - 1))
		return -1;
	if (!access(THP_DIR "/shrink_underused", F_OK) &&
	    ru_set(THP_DIR "/shrink_underused", "1"))
		return -1;
	return 0;
}

/* The debugfs files of the shrinker; ru_why says it if there are none. */
static void find_shrinker(void)
{
	DIR *d = opendir(SHRINKER_DIR);
	struct dirent *e;

	while (d && (e = readdir(d))) {
		if (strncmp(e->d_name, SHRINKER, strlen(SHRINKER)))
			continue;
		snprintf(shrinker_count, sizeof(shrinker_count),
			 SHRINKER_DIR "/%s/count", e->d_name);
		snprintf(shrinker_scan, sizeof(shrinker_scan),
			 SHRINKER_DIR "/%s/scan", e->d_name);
	}
	if (d)
		closedir(d);
}

static void find_mthp(void)
{
	snprintf(mthp_dir, sizeof(mthp_dir), THP_DIR "/hugepages-%zukB",
		 MTHP_PAGES * page_size / 1024);
	if (access(mthp_dir, F_OK))
		mthp_dir[0] = '\0';
}

/* The first two nodes with memory; possible nodes must not leave any out. */
static void find_nodes(void)
{
	char line[256], *p = line;
	FILE *f;

	f = fopen("/sys/devices/system/node/possible", "re");
	if (!f)
		return;
	if (!fgets(line, sizeof(line), f) || strncmp(line, "0", 1) ||
	    strchr(line, ','))
		line[0] = '\0';
	fclose(f);
	if (!line[0])
		return;
	f = fopen("/sys/devices/system/node/has_memory", "re");
	if (!f)
		return;
	if (!fgets(line, sizeof(line), f))
		line[0] = '\0';
	fclose(f);
	nodes[0] = strtol(p, &p, 10);
	if (*p == '-')
		nodes[1] = nodes[0] + 1;
	else if (*p == ',')
		nodes[1] = strtol(p + 1, NULL, 10);
	if (nodes[1] >= MAX_NODES)
		nodes[1] = -1;
}

static bool planned(const struct row *row)
{
	if (row->needs & MTHP && !mthp_dir[0])
		return false;
	return !(row->needs & UNDERUSED) ||
	       !access(THP_DIR "/shrink_underused", F_OK);
}

static void run_rows(enum ru_lru lru)
{
	static const char no_shrinker[] =
		"no queue in " SHRINKER_DIR " (CONFIG_SHRINKER_DEBUG)";
	static const char one_node[] =
		"one NUMA node: numa=fake=2 makes two (CONFIG_NUMA_EMU)";
	char blocked[sizeof(ru_why)] = "";
	size_t mark = ru_mark();
	size_t i;

	if (ru_lru_select(lru) || ru_pin_settings() || pin_thp_settings())
		memcpy(blocked, ru_why, sizeof(blocked));

	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		const struct ctx c = { ru_lru_name[lru], &rows[i] };
		const char *skip = NULL;
		size_t row_mark = ru_mark();

		if (!planned(&rows[i]))
			continue;
		lost = false;
		if (blocked[0])
			skip = blocked;
		else if (rows[i].needs & SHRINKERS && !shrinker_count[0])
			skip = no_shrinker;
		else if (rows[i].needs & TWO_NODES && nodes[1] < 0)
			skip = one_node;
		else if (rows[i].run(&c))
			skip = ru_why;
		if (skip && lost) {
			/* OOM, as it may be: what the row is there to see. */
			ksft_print_msg("it ends with: %s\n", skip);
			ksft_test_result_fail("%s: %s\n", c.lru, rows[i].name);
		} else if (skip) {
			ksft_test_result_skip("%s: %s: %s\n", c.lru,
					      rows[i].name, skip);
		}
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
	size_t i, need, nr = 0;
	int opt;

	while ((opt = getopt(argc, argv, "l:")) != -1) {
		if (opt != 'l' || ru_lru_option(optarg, kinds))
			help(argv[0]);
	}

	ksft_print_header();
	page_size = sysconf(_SC_PAGESIZE);
	if (geteuid())
		ksft_exit_skip("needs root: control groups, debugfs, lru_gen\n");
	if (access(THP_DIR "/enabled", F_OK))
		ksft_exit_skip("no " THP_DIR " (CONFIG_TRANSPARENT_HUGEPAGE)\n");
	if (read_number(THP_DIR "/hpage_pmd_size") <= 0)
		ksft_exit_skip("%s\n", ru_why);
	thp_size = read_number(THP_DIR "/hpage_pmd_size");
	thp_pages = thp_size / page_size;
	/* With swap anon memory would be reclaimed, and be split for that. */
	if (ru_meminfo_kb("SwapTotal") > 0)
		ksft_exit_skip("swap is on: swapoff -a\n");
	/* The kernel turns huge pages off for less, give or take. */
	if (ru_meminfo_kb("MemTotal") < 512 * 1024)
		ksft_exit_skip("huge pages are off, with less than 512 MiB of RAM\n");
	available = ru_meminfo_kb("MemAvailable");
	if (available < 0)
		ksft_exit_skip("%s (CONFIG_PROC_FS)\n", ru_why);
	/* The largest group there is, and half of that for all the rest. */
	need = (BEHIND_FULL + BEHIND_HALF + CACHE) * 3 / 2 * thp_size >> 20;
	if ((size_t)available >> 10 < need)
		ksft_exit_skip("needs %zu MiB of available memory, there are %lld\n",
			       need, available >> 10);
	find_shrinker();
	find_mthp();
	find_nodes();
	ru_init();
	if (ru_cg_setup())
		ksft_exit_skip("%s\n", ru_why);

	for (i = 0, nr = 0; i < ARRAY_SIZE(rows); i++)
		nr += planned(&rows[i]) * (kinds[RU_CLASSIC] + kinds[RU_MGLRU]);
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
