/*
 * must.h - checks that end the function of a rank, and a run over shm and over tcp; for suites that
 * use ranks.h
 */
#ifndef TESTS_MUST_H
#define TESTS_MUST_H

#include <criterion/criterion.h>
#include <stdio.h>

#include "tests/support/ranks.h"

#define MUST(call) WANT(!(call))
#define WANT(condition)                                                                            \
	do {                                                                                       \
		if (!(condition)) {                                                                \
			fprintf(stderr, "rank %d: %s:%d: false: %s; %s\n", ranks_rank(), __FILE__, \
				__LINE__, #condition, tuttiGetLastError(NULL));                    \
			return 1;                                                                  \
		}                                                                                  \
	} while (0)

static inline void run_both(rank_fn *fn, int n)
{
	struct ranks r = { .n = n };

	cr_expect_eq(ranks_run(&r, fn), 0, "n %d, shm", n);
	r.transport = "tcp";
	cr_expect_eq(ranks_run(&r, fn), 0, "n %d, tcp", n);
}

#endif
