/*
 * trace_late.c - which rank delays the others, and how many calls a second a communicator makes
 *
 * Called by trace_report.c and trace_json.c.
 */
#include <stdlib.h>

#include "perf/commands/trace_files.h"

#define RATE_NS 2000000000 /* rates are of this time */

static int by_delay(const void *a, const void *b)
{
	const struct trace_lateness *x = a, *y = b;

	if (x->alone != y->alone)
		return x->alone < y->alone ? 1 : -1;
	return x->rank - y->rank;
}

/* Adds call seq to all ranks' sums, if all of them have recorded it. */
static void add_call(const struct trace_comm *c, uint64_t seq, struct trace_lateness *sums)
{
	int64_t first = INT64_MAX, last = INT64_MIN, before = INT64_MIN;
	int latest = 0;

	for (int i = 0; i < c->nranks; i++) {
		const struct trace_call *call = trace_find(&c->ranks[i], seq);

		if (!call)
			return;
		if (call->start < first)
			first = call->start;
		if (call->start > last) {
			before = last;
			last = call->start;
			latest = i;
		} else if (call->start > before) {
			before = call->start;
		}
	}
	for (int i = 0; i < c->nranks; i++) {
		int64_t late = trace_find(&c->ranks[i], seq)->start - first;

		sums[i].calls++;
		sums[i].late += (double)late;
		sums[i].worst = late > sums[i].worst ? late : sums[i].worst;
	}
	sums[latest].last++;
	sums[latest].alone += c->nranks > 1 ? (double)(last - before) : 0;
}

struct trace_lateness *trace_late(const struct trace_comm *c)
{
	struct trace_lateness *sums = calloc((size_t)c->nranks, sizeof(*sums));
	const struct trace_rank *r = c->ranks;

	if (!sums)
		return NULL;
	for (int i = 0; i < c->nranks; i++)
		sums[i].rank = c->ranks[i].head.rank;
	for (size_t i = 0; i < r->ncalls; i++)
		add_call(c, r->calls[i].seq, sums);
	qsort(sums, (size_t)c->nranks, sizeof(*sums), by_delay);
	return sums;
}

struct trace_rate trace_rate(const struct trace_comm *c, int64_t now)
{
	const struct trace_rank *r = c->ranks;
	struct trace_rate rate = { 0 };
	int64_t since;
	double s;

	if (trace_last(r) && trace_last(r)->start > now)
		now = trace_last(r)->start; /* of a host whose clock is ahead */
	since = now - RATE_NS;

	if (r->ncalls == TT_TRACE_RECORDS && r->calls[0].start > since)
		since = r->calls[0].start; /* older calls are overwritten */
	s = now > since ? (double)(now - since) / 1e9 : 1;
	for (size_t i = r->ncalls; i > 0 && r->calls[i - 1].start >= since; i--) {
		rate.calls += 1 / s;
		rate.bytes += (double)r->calls[i - 1].bytes / s;
	}
	return rate;
}
