/*
 * trace_way.c - the way of a collective that the flight recorder records
 *
 * With TUTTI_TRACE, every collective of a communicator begins by this way, which records the start,
 * begins the way that the call takes without a recorder, and records the end as that way's
 * observer. Without TUTTI_TRACE no row of the plan cache has this way, so a call executes none of
 * this code and no test for it.
 */
#include <stdio.h>

#include "comm/trace.h"
#include "run/way.h"

static unsigned index_of(const struct tt_way *way)
{
	unsigned i = 0;

	while (tt_ways[i] && tt_ways[i] != way)
		i++;
	return tt_ways[i] && i < TT_TRACE_WAYS ? i : TT_TRACE_WAYS - 1;
}

static bool fits(const struct tt_op *op)
{
	(void)op;
	return true;
}

static void name_ways(struct tt_trace_head *head)
{
	for (unsigned i = 0; tt_ways[i] && i < TT_TRACE_WAYS; i++)
		snprintf(head->way[i], sizeof(head->way[i]), "%s", tt_ways[i]->name);
}

static int begin(struct tt_op *op)
{
	struct tt_trace *t = op->comm->trace;

	if (tt_unlikely(!t->head->way[0][0]))
		name_ways(t->head);
	tt_trace_start(t, op->call.seq, &op->call.record, op->bound.block, 0);
	t->observer = NULL;
	op->observer = &tt_trace_way;
	return tt_op_begin_way(op, tt_ways);
}

static void finish(struct tt_op *op)
{
	struct tt_trace *t = op->comm->trace;

	tt_trace_end(t);
	t->now->way = (uint8_t)index_of(op->way);
	if (t->observer)
		t->observer->finish(op);
}

/* ---- repeated calls -------------------------------------------------------------------------- */

static bool prepare(struct tt_plan_row *row, const struct tt_op *op,
		    const struct tt_extents *extents)
{
	struct tt_op inner = *op;
	const struct tt_way *const *way = tt_ways;

	while (!(*way)->fits(&inner))
		way++;
	inner.way = row->traced = *way;
	return (*way)->prepare && (*way)->prepare(row, &inner, extents);
}

static int again(tuttiComm_t c, const struct tt_plan_row *row, const void *in, void *out)
{
	struct tt_trace *t = c->trace;
	int rc;

	tt_trace_start(t, c->calls.seq + 1, &row->call, row->bytes, index_of(row->traced));
	rc = row->traced->again[row->call.collective](c, row, in, out);
	if (tt_likely(!rc))
		tt_trace_end(t);
	else if (rc > 0)
		tt_trace_cancel(t);
	return rc;
}

const struct tt_way tt_trace_way = {
	.name = "trace",
	.fits = fits,
	.begin = begin,
	.finish = finish,
	.prepare = prepare,
	.again = { [0 ... TT_SENDRECV - 1] = again },
};
