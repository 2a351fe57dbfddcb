/*
 * test_trace.c - the file of the flight recorder: its clock, its ring, and times of its readers
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "comm/trace.h"
#include "perf/commands/trace_files.h"

TestSuite(trace, .timeout = 60);

/* ---- the file -------------------------------------------------------------------------------- */

static struct tt_trace *open_trace(char *dir)
{
	struct tt_trace_head facts = { .comm = 7, .rank = 1, .nranks = 2 };
	struct tt_trace *t = NULL;

	cr_assert_not_null(mkdtemp(dir));
	cr_assert_eq(tt_trace_open(dir, "", &facts, &t), 0, "%s", tt_error_text());
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

/* ---- readers --------------------------------------------------------------------------------- */

Test(trace, events_of_a_long_job_are_exact_to_the_nanosecond)
{
	int64_t begin = 1764000000000000000, later = begin + 10000000000123;
	struct trace_call calls[] = {
		{ .number = 1, .seq = 1, .start = begin, .end = begin + 1999, .awaited = -1 },
		{ .number = 2, .seq = 2, .start = later, .end = later + 3007, .awaited = -1 },
	};
	struct trace_rank rank = { .head = { .nranks = 1 }, .calls = calls, .ncalls = 2 };
	struct trace_comm comm = { &rank, 1 };
	struct trace t = {
		.ranks = &rank, .nranks = 1, .comms = &comm, .ncomms = 1, .first = rank.calls->start
	};
	char *text = NULL;
	size_t bytes;
	FILE *to = open_memstream(&text, &bytes);

	trace_merge_json(&t, to);
	fclose(to);
	cr_expect(strstr(text, "\"ts\": 0.000"), "%s", text);
	cr_expect(strstr(text, "\"dur\": 1.999"), "%s", text);
	cr_expect(strstr(text, "\"ts\": 10000000000.123"), "%s", text);
	cr_expect(strstr(text, "\"dur\": 3.007"), "%s", text);
	free(text);
}

Test(trace, rates_of_a_host_whose_clock_is_ahead_are_those_of_its_calls)
{
	static struct trace_call calls[TT_TRACE_RECORDS];
	struct trace_rank rank = { .calls = calls, .ncalls = TT_TRACE_RECORDS };
	struct trace_comm comm = { &rank, 1 };
	int64_t now = 1764000000000000000;
	struct trace_rate rate;

	for (size_t i = 0; i < TT_TRACE_RECORDS; i++)
		calls[i] = (struct trace_call){ .start = now + (int64_t)(5000000000 + i * 100000),
						.bytes = 4 };
	rate = trace_rate(&comm, now);
	cr_expect_float_eq(rate.calls, 10000, 10, "10,000 calls a second, not %g", rate.calls);
	cr_expect_float_eq(rate.bytes, 40000, 40);
}

Test(trace, a_rank_alone_delays_nobody)
{
	struct trace_call call = { .number = 1, .seq = 1, .start = 1764000000000000000 };
	struct trace_rank rank = { .calls = &call, .ncalls = 1 };
	struct trace_comm comm = { &rank, 1 };
	struct trace_lateness *late = trace_late(&comm);

	cr_assert(late);
	cr_expect_eq(late->calls, 1);
	cr_expect_float_eq(late->alone, 0, 0, "a delay of %g ns", late->alone);
	free(late);
}
