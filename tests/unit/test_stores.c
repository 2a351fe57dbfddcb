/*
 * test_stores.c - ordinary and non-temporal stores into shared memory: what the trials decide
 *
 * The times of the calls are the test's.
 */
#include <criterion/criterion.h>

#include "run/stores.h"

#define BYTES (64u << 10)

/* Calls of a rank that take cost[0] with ordinary stores, cost[1] with non-temporal ones, and longer
 * if a peer comes late: all but every third one. Returns the calls with non-temporal stores. */
static int run(struct tt_stores *classes, int calls, const uint64_t cost[2])
{
	int n = 0;

	for (int i = 0; i < calls; i++) {
		struct tt_stores_call call = tt_stores_next(classes, BYTES);

		n += call.nontemporal;
		if (!call.began_ns)
			continue;
		call.began_ns = tt_now_ns() - cost[call.nontemporal];
		if (i % 3)
			call.began_ns -= 1000000000 * (uint64_t)(1 + i % 7);
		tt_stores_done(&call);
	}
	return n;
}

static const uint64_t two_cores[2] = { 33500000, 7700000 }, one_core[2] = { 9000000, 12000000 },
		      alike[2] = { 9500000, 9000000 };

Test(stores, of_the_faster_kind_follow_the_first_trials)
{
	struct tt_stores c[TT_STORES_SIZES] = { 0 };

	run(c, 10, two_cores);
	cr_expect_eq(run(c, 64, two_cores), 64);
	cr_expect_geq(run(c, 20000, two_cores), 19800, "trials are at most 1 %% of the calls");
}

Test(stores, change_when_the_ranks_move)
{
	struct tt_stores c[TT_STORES_SIZES] = { 0 };

	run(c, 20000, two_cores);
	run(c, 4200, one_core);
	cr_expect_leq(run(c, 1000, one_core), 100);
	run(c, 4200, two_cores);
	cr_expect_geq(run(c, 1000, two_cores), 900);
}

Test(stores, stay_as_they_are_when_both_take_as_long)
{
	struct tt_stores c[TT_STORES_SIZES] = { 0 };

	cr_expect_leq(run(c, 20000, alike), 200);
}

Test(stores, of_calls_that_are_never_done_are_ordinary)
{
	struct tt_stores c[TT_STORES_SIZES] = { 0 };
	int n = 0;

	for (int i = 0; i < 1000; i++)
		n += tt_stores_next(c, BYTES).nontemporal;
	cr_expect_leq(n, 50);
}

Test(stores, are_non_temporal_when_the_latest_trial_is_old)
{
	struct tt_stores c[TT_STORES_SIZES] = { 0 };

	run(c, 20, one_core);
	cr_expect_eq(run(c, 20, one_core), 0);
	for (int i = 0; i < TT_STORES_SIZES; i++)
		c[i].tried_ns -= 1000000000;
	cr_expect_eq(run(c, 20, one_core), 20);
	run(c, 200, one_core);
	cr_expect_leq(run(c, 20, one_core), 5, "another trial has been");
}
