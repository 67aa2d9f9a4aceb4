/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Stands in for tools/testing/selftests/kselftest.h when the tests are built
 * without a kernel tree (make -C selftests): the part of its interface that
 * they use, and no more. Inside a tree this file is not used.
 */
#ifndef __KSELFTEST_H
#define __KSELFTEST_H

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#define __noreturn	__attribute__((__noreturn__))
#define __printf(a, b)	__attribute__((format(printf, a, b)))
#define ARRAY_SIZE(arr)	(sizeof(arr) / sizeof((arr)[0]))

#define KSFT_PASS	0
#define KSFT_FAIL	1
#define KSFT_SKIP	4

struct ksft_count {
	unsigned int ksft_pass;
	unsigned int ksft_fail;
	unsigned int ksft_xskip;
};

static struct ksft_count ksft_cnt;
static unsigned int ksft_plan;

static inline unsigned int ksft_test_num(void)
{
	return ksft_cnt.ksft_pass + ksft_cnt.ksft_fail + ksft_cnt.ksft_xskip;
}

static inline void ksft_print_header(void)
{
	setvbuf(stdout, NULL, _IOLBF, 0);
	printf("TAP version 13\n");
}

static inline void ksft_set_plan(unsigned int plan)
{
	ksft_plan = plan;
	printf("1..%u\n", plan);
}

static inline void ksft_print_cnts(void)
{
	if (ksft_plan != ksft_test_num())
		printf("# Planned tests != run tests (%u != %u)\n", ksft_plan,
		       ksft_test_num());
	printf("# Totals: pass:%u fail:%u skip:%u\n", ksft_cnt.ksft_pass,
	       ksft_cnt.ksft_fail, ksft_cnt.ksft_xskip);
}

#define KSFT_PRINT(name, head, ...)					\
static inline __printf(1, 2) void					\
name(const char *msg, ...)						\
{									\
	va_list args;							\
									\
	va_start(args, msg);						\
	printf(head, ##__VA_ARGS__);					\
	vprintf(msg, args);						\
	va_end(args);							\
}

KSFT_PRINT(ksft_print_msg, "# ")
KSFT_PRINT(ksft_test_result_pass, "ok %u ",
	   (ksft_cnt.ksft_pass++, ksft_test_num()))
KSFT_PRINT(ksft_test_result_fail, "not ok %u ",
	   (ksft_cnt.ksft_fail++, ksft_test_num()))
KSFT_PRINT(ksft_test_result_skip, "ok %u # SKIP ",
	   (ksft_cnt.ksft_xskip++, ksft_test_num()))

#define ksft_test_result(condition, fmt, ...) do {			\
	if (condition)							\
		ksft_test_result_pass(fmt, ##__VA_ARGS__);		\
	else								\
		ksft_test_result_fail(fmt, ##__VA_ARGS__);		\
} while (0)

static inline __noreturn __printf(1, 2) void ksft_exit_skip(const char *msg, ...)
{
	va_list args;

	va_start(args, msg);
	printf("1..0 # SKIP ");
	vprintf(msg, args);
	va_end(args);
	exit(KSFT_SKIP);
}

static inline __noreturn void ksft_finished(void)
{
	ksft_print_cnts();
	exit(ksft_cnt.ksft_fail || ksft_plan != ksft_test_num() ? KSFT_FAIL :
	     KSFT_PASS);
}

#endif /* __KSELFTEST_H */
