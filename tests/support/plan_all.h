/* plan_all.h - builds the plans of all ranks by an algorithm of the table; for test_algorithms.c,
 * test_plan_bytes.c and test_algorithm_names.c */
#ifndef TESTS_PLAN_ALL_H
#define TESTS_PLAN_ALL_H

#include <criterion/criterion.h>
#include <string.h>

#include "algorithms/algorithms.h"

enum { MOST = 40 };

static struct tt_plan *plans[MOST];

static inline void build_all(const struct tt_algorithm *a, const char *name, int n, int root,
		      const struct tt_topology *t)
{
	for (int r = 0; r < n; r++) {
		struct tt_shape shape = { .collective = a->collective, .nranks = n, .rank = r,
					  .root = root, .topology = t };

		cr_assert_eq(tt_plan_build(a, name, &shape, &plans[r]), TT_OK, "%s n = %d: %s",
			     name, n, tt_error_text());
	}
}

static inline void free_all(int n)
{
	for (int r = 0; r < n; r++)
		tt_plan_free(plans[r]);
}

/* Numbers the hosts in order of their lowest rank. */
static inline struct tt_topology topology_of(int n, int *host_of)
{
	struct tt_topology t = { .nranks = n, .host_of = host_of };
	int number[MOST];

	memset(number, -1, sizeof(number));
	for (int r = 0; r < n; r++) {
		if (number[host_of[r]] < 0)
			number[host_of[r]] = t.nhosts++;
		host_of[r] = number[host_of[r]];
	}
	return t;
}

#endif
