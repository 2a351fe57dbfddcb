/*
 * test_trace.c - the file of the flight recorder: its clock, while calls start in any rhythm
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "comm/trace.h"

TestSuite(trace, .timeout = 60);

static struct tt_trace *open_trace(char *dir)
{
	struct tt_trace_head facts = { .comm = 7, .rank = 1, .nranks = 2 };
	struct tt_trace *t = NULL;

	cr_assert_not_null(mkdtemp(dir));
	cr_assert_eq(tt_trace_open(dir, &facts, &t), 0, "%s", tt_error_text());
	return t;
}

static void close_trace(struct tt_trace *t, const char *dir)
{
	char path[100];

	tt_trace_close(t);
	snprintf(path, sizeof(path), "%s/%016x.%d.tutti", dir, 7, 1);
	cr_expect_eq(unlink(path), 0, "%s is the file of rank 1", path);
	rmdir(dir);
}

/* Ticks are times by the rate of the latest pair of clocks: a rate that was measured over a
 * millisecond says little about a call that starts an hour later. */
Test(trace, a_start_is_at_most_twice_as_late_as_the_latest_pair_of_clocks)
{
	char dir[] = "/tmp/tutti-trace-XXXXXX";
	struct tt_trace *t = open_trace(dir);
	struct tt_call call = { .count = 1 };

	for (uint64_t i = 1; i <= 30; i++) {
		const struct tt_trace_head *h = t->head;

		usleep(i % 3 ? 1000 : 3000);
		tt_trace_start(t, i, &call, 4, 0);
		cr_expect_leq(t->now->start - h->made.ticks,
			      2 * (h->later[h->latest].ticks - h->made.ticks),
			      "call %d starts later than twice the time of the rate", (int)i);
		tt_trace_end(t);
	}
	close_trace(t, dir);
}

Test(trace, a_pair_of_clocks_that_is_replaced_stays_whole)
{
	char dir[] = "/tmp/tutti-trace-XXXXXX";
	struct tt_trace *t = open_trace(dir);

	for (int i = 0; i < 5; i++) {
		unsigned before = t->head->latest;
		struct tt_trace_clock pair = t->head->later[before];

		usleep(1000);
		tt_trace_clock(t);
		cr_expect_neq(t->head->latest, before);
		cr_expect_eq(t->head->later[before].ticks, pair.ticks);
		cr_expect_eq(t->head->later[before].ns, pair.ns);
		cr_expect_gt(t->head->later[t->head->latest].ticks, pair.ticks);
	}
	close_trace(t, dir);
}

/* The record's ring: the slot after the last one is the first. */
Test(trace, a_call_that_is_cancelled_leaves_the_record_before_it)
{
	char dir[] = "/tmp/tutti-trace-XXXXXX";
	struct tt_trace *t = open_trace(dir);
	struct tt_call call = { .count = 1 };

	for (uint64_t i = 1; i <= TT_TRACE_RECORDS + 1; i++) {
		const struct tt_trace_record *before = t->now;

		tt_trace_start(t, i, &call, 4, 0);
		tt_trace_cancel(t);
		cr_assert_eq(t->now, before, "call %d", (int)i);
		tt_trace_start(t, i, &call, 4, 0);
		tt_trace_end(t);
	}
	cr_expect_eq(t->now, t->records);
	cr_expect_eq(t->now->number, TT_TRACE_RECORDS + 1);
	close_trace(t, dir);
}
