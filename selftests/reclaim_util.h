/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the reclaim tests share: counters, control groups, swap devices made
 * for one test, a source of use-once page cache, and an undo stack which puts
 * everything back on exit and on signals.
 *
 * Every function that sets something up returns 0, or -1 after it has stored
 * the reason, with the missing CONFIG, tool or privilege, in ru_why.
 */
#ifndef __RECLAIM_UTIL_H
#define __RECLAIM_UTIL_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* The kselftest.h of 6.1 does not have these. */
#ifndef __noreturn
#define __noreturn	__attribute__((__noreturn__))
#endif
#ifndef __printf
#define __printf(a, b)	__attribute__((format(printf, a, b)))
#endif
#ifndef ARRAY_SIZE
#define ARRAY_SIZE(arr)	(sizeof(arr) / sizeof((arr)[0]))
#endif

/* Why the last call that failed did so, for ksft_*_skip(). */
extern char ru_why[512];

/* Which of the two LRU implementations the kernel runs. */
enum ru_lru {
	RU_CLASSIC,
	RU_MGLRU,
	RU_NR_LRU,
};

extern const char * const ru_lru_name[RU_NR_LRU];

/* Undo stack; ru_unwind() takes back all that was done since the mark. */
void ru_init(void);
size_t ru_mark(void);
void ru_unwind(size_t mark);
bool ru_stuck(void);

/* Files; ru_set() restores the previous content when it is unwound. */
int ru_write(const char *path, const char *value);
int ru_set(const char *path, const char *value);
long long ru_key(const char *path, const char *key);
long long ru_vmstat(const char *key);
long long ru_meminfo_kb(const char *key);
long long ru_mono_ms(void);

/* LRU kind; -1 when the kernel does not have that kind. */
int ru_lru_select(enum ru_lru kind);
int ru_lru_option(const char *arg, bool kinds[RU_NR_LRU]);
int ru_shmem_huge_off(void);
int ru_pin_settings(void);
bool ru_one_node(void);

/* Control groups; @path must hold PATH_MAX bytes. */
int ru_cg_setup(void);
int ru_cg_writeback(void);
int ru_cg_create(char *path, const char *parent, const char *name);
int ru_cg_write(const char *cg, const char *file, const char *value);
int ru_cg_write_bytes(const char *cg, const char *file, size_t bytes);
long long ru_cg_read(const char *cg, const char *file);
long long ru_cg_stat(const char *cg, const char *key);
int ru_cg_settle(void);
int ru_cg_enter(const char *cg);

/* Block devices which last until they are unwound. */
int ru_swap_on(size_t bytes);
int ru_stream_open(void);
int ru_stream_read(int fd, off_t *pos, size_t bytes);

/*
 * A child that takes orders: a byte each, which it sends back when it is done.
 * The child uses @in and @out, the parent @to and @from.
 */
struct ru_child {
	pid_t pid;
	int in, out;
	int to, from;
};

pid_t ru_fork(struct ru_child *child);
int ru_order(struct ru_child *child, unsigned char order);
int ru_done(struct ru_child *child, unsigned char order, int timeout_ms);
int ru_tell(struct ru_child *child, unsigned char order, int timeout_ms);

/*
 * A disk which takes @delay_ns for @depth requests of @request_pages each; as
 * fast as it gets when the delay is 0.
 */
struct ru_disk_spec {
	unsigned long mb;
	bool keeps_data;	/* else what is written is gone */
	unsigned long delay_ns;
	unsigned long depth;
	unsigned long request_pages;
};

int ru_disk_make(char *dev, const struct ru_disk_spec *spec);

/* Several swap devices; @dev and @dir must hold PATH_MAX bytes. */
int ru_disk(char *dev, size_t bytes, bool rotational);
int ru_swap_disk(char *dev, size_t bytes, int prio, bool rotational);
int ru_swap_file(const char *path, size_t bytes, int prio);
long long ru_swap_used(const char *path);
long long ru_disk_reads(const char *dev);
int ru_mount_new(const char *dev, const char *type, char *dir);
int ru_pin_cpu(void);
int ru_cg_drop_swapcache(const char *cg, int timeout_ms);

/* Dirty limits, and what has been written to a disk. */
int ru_disk_open(const char *path, int flags);
long long ru_disk_written(const char *dev);
int ru_dirty_limits(size_t bytes);

/* Counting of trace events; @dir must hold PATH_MAX bytes. */
int ru_trace_has(const char *event);
int ru_tracing(char *dir);
int ru_trace_start(char *dir, const char *event, const char *filter);
long long ru_trace_count(const char *dir);

/* For direct reclaim: who does it, what is read, and many groups. */
int ru_nice_kswapd(int nice);
int ru_loop(char *dev, size_t bytes);
int ru_cg_create_many(const char *parent, int nr);

#endif /* __RECLAIM_UTIL_H */
