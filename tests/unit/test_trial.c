/*
 * test_trial.c - which of two ways is faster: what trials decide, and what they cost
 *
 * The times of the calls are the test's.
 */
#include <criterion/criterion.h>

#include "base/trial.h"

#define TRIAL 3 /* calls of a trial, as in base/trial.c */
#define SOON 8  /* calls between two trials: the least, and the most */
#define LATE 128

/* Calls that take cost[way] ns, the first one after the other way `cold` ns longer. Returns those of way 1. */
static int run_cold(struct tt_trial *t, int calls, const uint64_t cost[2], uint64_t cold)
{
	int n = 0;

	for (int i = 0; i < calls; i++) {
		unsigned before = t->way, way = tt_trial_next(t, NULL);

		cr_assert(way == before || !tt_trial_is_timed(t), "call %d", i);
		tt_trial_note(t, cost[way] + (way != before ? cold : 0));
		n += way == 1;
	}
	return n;
}

static int run(struct tt_trial *t, int calls, const uint64_t cost[2])
{
	return run_cold(t, calls, cost, 0);
}

static const uint64_t zero_wins[2] = { 1000, 1200 }, one_wins[2] = { 1200, 1000 };

Test(trial, decides_after_one_trial_of_each_way)
{
	for (unsigned way = 0; way < 2; way++)
		for (unsigned faster = 0; faster < 2; faster++) {
			struct tt_trial t = { 0 };

			tt_trial_begin(&t, way);
			cr_expect_eq(run(&t, TRIAL, faster ? one_wins : zero_wins),
				     way ? TRIAL : 0);
			cr_expect_not(t.judged);
			cr_expect_eq(run(&t, TRIAL, faster ? one_wins : zero_wins),
				     way ? 0 : TRIAL);
			cr_expect_eq(run(&t, SOON, faster ? one_wins : zero_wins),
				     faster ? SOON : 0, "begins with %u", way);
			cr_expect(t.judged && t.prefers == faster);
		}
}

Test(trial, takes_the_slower_way_less_and_less_often)
{
	struct tt_trial t = { 0 };

	tt_trial_begin(&t, 0);
	run(&t, 1000, zero_wins);
	cr_expect_eq(run(&t, 100 * (LATE + TRIAL), zero_wins), 100 * TRIAL);
}

Test(trial, keeps_what_it_knows_of_a_way_that_is_left_now_and_then)
{
	struct tt_trial t = { 0 };
	int calls = 0;

	tt_trial_begin(&t, 0);
	run(&t, 1000, zero_wins);
	for (int i = 0; i < 10; i++) {
		while (t.way == 0)
			run(&t, 1, zero_wins);
		tt_trial_prefer(&t, 0);
		cr_assert(t.way == 0 && t.prefers == 0 && t.judged && t.gap == LATE);
		calls += run(&t, LATE, zero_wins);
	}
	cr_expect_eq(calls, 0, "trials come as seldom as before");
}

/* Calls between two trials need no times, but those before a trial do: it compares with them. */
Test(trial, is_settled_between_trials_until_shortly_before_the_next_one)
{
	struct tt_trial t = { 0 };

	tt_trial_begin(&t, 0);
	while (!t.judged) {
		cr_assert_not(tt_trial_is_settled(&t));
		run(&t, 1, one_wins);
	}
	for (int i = 0, settled = 0; i < 5; i++, settled = 0) {
		for (; tt_trial_is_settled(&t); settled++)
			cr_assert_eq(tt_trial_next(&t, NULL), 1);
		cr_expect_gt(settled, 0);
		for (int timed = 0; timed < TRIAL - 1; timed++) {
			cr_assert_not(tt_trial_is_settled(&t));
			run(&t, 1, one_wins);
			cr_expect(t.way == 1 && tt_trial_is_timed(&t));
		}
		cr_expect_eq(run(&t, TRIAL, one_wins), 0, "a trial of the other way");
		cr_expect_eq(run(&t, 1, one_wins), 1);
	}
}

Test(trial, times_no_call_that_follows_the_other_way)
{
	struct tt_trial t = { 0 };

	tt_trial_begin(&t, 0);
	run_cold(&t, 1000, one_wins, 100000);
	cr_expect_eq(t.prefers, 1);
	cr_expect_eq(tt_trial_least(&t, 0), 1200);
	cr_expect_eq(tt_trial_least(&t, 1), 1000);
}

Test(trial, does_not_time_its_first_call)
{
	struct tt_trial t = { 0 };

	tt_trial_begin(&t, 0);
	tt_trial_next(&t, NULL);
	cr_expect_not(tt_trial_is_timed(&t));
	tt_trial_note(&t, 1);
	cr_expect_eq(tt_trial_least(&t, 0), 0);
	tt_trial_next(&t, NULL);
	cr_expect(tt_trial_is_timed(&t));
	tt_trial_note(&t, 500);
	cr_expect_eq(tt_trial_least(&t, 0), 500);
}

/* Other load makes all calls of a trial's neighborhood slow, except those of the slower way. */
Test(trial, changes_only_for_a_way_that_wins_twice_in_a_row)
{
	struct tt_trial t = { 0 };

	tt_trial_begin(&t, 0);
	run(&t, 2 * TRIAL + 1, zero_wins);
	for (int i = 0; i < 20; i++) {
		while (t.way == 0)
			run(&t, 1, zero_wins);
		while (t.way == 1) {
			tt_trial_note(&t, 100);
			tt_trial_next(&t, NULL);
		}
		cr_assert_eq(t.prefers, 0, "after one trial");
		cr_assert_eq(t.left, SOON - 1, "the next trial comes soon");
		cr_assert_eq(run(&t, SOON - 1, zero_wins), 0);
		cr_assert_eq(run(&t, TRIAL, zero_wins), TRIAL);
		run(&t, 1, zero_wins);
		cr_assert_eq(t.prefers, 0, "the slower way has lost again");
	}
}

Test(trial, follows_a_machine_that_changes)
{
	struct tt_trial t = { 0 };

	tt_trial_begin(&t, 0);
	run(&t, 5000, zero_wins);
	run(&t, LATE + TRIAL + SOON + TRIAL, one_wins);
	cr_expect_eq(t.prefers, 1);
	cr_expect_geq(run(&t, 1000, one_wins), 950);
}

/* Each rank has other times; the sums decide, so that all go the same way. */
Test(trial, of_several_ranks_compares_the_times_that_they_agree_on)
{
	struct tt_trial t[2] = { 0 };
	const uint64_t *cost[2] = { zero_wins, (const uint64_t[]){ 3000, 1000 } };

	tt_trial_begin(&t[0], 0);
	tt_trial_begin(&t[1], 0);
	for (int i = 0; i < 500; i++) {
		uint64_t sums[2] = { 0 };

		for (int r = 0; r < 2; r++)
			for (unsigned way = 0; way < 2; way++)
				sums[way] += tt_trial_least(&t[r], way);
		for (int r = 0; r < 2; r++)
			tt_trial_note(&t[r], cost[r][tt_trial_next(&t[r], sums)]);
		cr_assert_eq(t[0].way, t[1].way, "call %d", i);
	}
	cr_expect(t[0].prefers == 1 && t[1].prefers == 1);
}

Test(trial, of_calls_longer_than_its_counters_still_compares)
{
	static const uint64_t cost[2] = { 9000000000u, 1000000000u };
	struct tt_trial t = { 0 };

	tt_trial_begin(&t, 0);
	run(&t, 100, cost);
	cr_expect_eq(t.prefers, 1);
	cr_expect_eq(tt_trial_least(&t, 0), UINT32_MAX);
}

Test(trial, that_begins_again_keeps_its_times_and_forgets_its_judgment)
{
	struct tt_trial t = { 0 };

	tt_trial_begin(&t, 0);
	run(&t, 100, one_wins);
	tt_trial_begin(&t, 0);
	cr_expect(!t.judged && t.prefers == 0);
	cr_expect_eq(tt_trial_least(&t, 1), 1000);
	cr_expect_eq(run(&t, TRIAL, one_wins), 0);
}
