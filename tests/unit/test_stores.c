/*
 * test_stores.c - ordinary and non-temporal stores into shared memory: what the trials decide
 *
 * The times of the copies and the clock are the test's.
 */
#include <criterion/criterion.h>

#include "run/stores.h"

#define BYTES (64u << 10)
#define TRIAL_CALLS 64 /* as in run/stores.c, for two places */
#define TRIAL_LENGTH 4
#define MS 1000000ull

static uint64_t clock_ns;

/* Calls of a rank whose copies take cost[0] ns with ordinary stores, cost[1] with non-temporal ones; a
 * call takes twice as long. Every `late`-th timed copy is interrupted; 0: none. Returns the calls with
 * non-temporal stores. */
static int run_late(struct tt_stores *classes, int calls, const uint64_t cost[2], int late)
{
	int n = 0, timed = 0;

	for (int i = 0; i < calls; i++) {
		struct tt_stores_call call = tt_stores_next(classes, BYTES, false);
		uint64_t began_ns = clock_ns;

		n += call.nontemporal;
		clock_ns += cost[call.nontemporal];
		if (call.timed && late && ++timed % late == 0)
			clock_ns += MS;
		if (call.timed)
			tt_stores_note(&call, BYTES, began_ns, clock_ns);
		clock_ns += cost[call.nontemporal];
	}
	return n;
}

static int run(struct tt_stores *classes, int calls, const uint64_t cost[2])
{
	return run_late(classes, calls, cost, 0);
}

static const uint64_t distant[2] = { 4100, 1800 }, near[2] = { 1800, 2900 },
		      alike[2] = { 3000, 2000 };

static void begin(void)
{
	clock_ns = 1000 * MS;
}

TestSuite(stores, .init = begin);

Test(stores, of_the_faster_kind_follow_the_first_trial)
{
	struct tt_stores c[TT_STORES_SIZES] = { 0 };

	run(c, 10, distant);
	cr_expect_eq(run(c, 60, distant), 60);
	cr_expect_geq(run(c, 20000, distant), 19950, "trials are at most 1 of 400 calls");
}

Test(stores, change_soon_when_the_ranks_move_apart)
{
	struct tt_stores c[TT_STORES_SIZES] = { 0 };

	cr_expect_leq(run(c, 20000, near), 50);
	run(c, TRIAL_CALLS + 10, distant);
	cr_expect_eq(run(c, 50, distant), 50);
}

Test(stores, change_with_the_next_trial_when_the_ranks_move_together)
{
	struct tt_stores c[TT_STORES_SIZES] = { 0 };

	run(c, 20000, distant);
	run(c, 2000, near);
	cr_expect_eq(run(c, 50, near), 0);
}

Test(stores, stay_ordinary_where_their_reader_would_pay_for_the_difference)
{
	struct tt_stores c[TT_STORES_SIZES] = { 0 };

	cr_expect_leq(run(c, 20000, alike), 50);
}

Test(stores, are_decided_by_copies_that_are_not_interrupted)
{
	struct tt_stores c[TT_STORES_SIZES] = { 0 };

	run(c, 10, distant);
	cr_expect_geq(run_late(c, 20000, distant, 5), 19000, "a trial in 10 ms, 2 s in all");
}

Test(stores, of_calls_without_a_copy_are_ordinary)
{
	struct tt_stores c[TT_STORES_SIZES] = { 0 };

	for (int i = 0; i < 1000; i++)
		cr_expect_not(tt_stores_next(c, BYTES, false).nontemporal);
}

/* Posts of a root go around the pages. Ordinary stores are slow where the page is in memory only, as non-temporal ones
 * have left it. */
/* Posts of a root, of `bytes` each, take turns in `places` places of its pages. */
static void expect_tried_around(size_t bytes, int places)
{
	enum { MOST_PLACES = 128, CALLS = 100000 };
	struct tt_stores c[TT_STORES_SIZES] = { 0 };
	bool in_memory[MOST_PLACES];
	int nontemporal = 0;

	memset(in_memory, true, sizeof(in_memory));
	for (int k = 0; k < TT_STORES_SIZES; k++)
		c[k].prefers = c[k].nontemporal = true;
	for (int i = 0; i < CALLS; i++) {
		struct tt_stores_call call = tt_stores_next(c, bytes, true);
		uint64_t began_ns = clock_ns;

		clock_ns += near[call.nontemporal] +
			    (!call.nontemporal && in_memory[i % places] ? 2 * near[1] : 0);
		in_memory[i % places] = call.nontemporal;
		if (call.timed)
			tt_stores_note(&call, bytes, began_ns, clock_ns);
		nontemporal += i >= CALLS / 2 && call.nontemporal;
	}
	cr_expect_leq(nontemporal, CALLS / 2 / 10, "%zu bytes", bytes);
}

Test(stores, are_tried_around_all_pages)
{
	expect_tried_around(4096, 128);
	expect_tried_around(64 << 10, 8);
}

Test(stores, of_seldom_calls_are_tried_seldom)
{
	struct tt_stores c[TT_STORES_SIZES] = { 0 };
	int n = 0;

	for (int i = 0; i < 1000; i++) {
		n += run(c, 1, near);
		clock_ns += 50 * MS;
	}
	cr_expect_leq(n, 1000 * TRIAL_LENGTH / TRIAL_CALLS + TRIAL_LENGTH);
}
