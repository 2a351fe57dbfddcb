/*
 * operation.c - from a request to an operation: find the plan, bind blocks to bytes, number the
 * call, begin its way
 *
 * Called by run. The sizes of messages (unit, tile, width, group) are computed from the call, the
 * plan and the message size that all ranks agreed on, so both ends of every message come to the
 * same length.
 */
#include <string.h>

#include "comm/trace.h"
#include "mem/copy.h"
#include "plan/bind.h"
#include "run/number.h"
#include "run/staging.h"
#include "run/way.h"

void tt_op_init(struct tt_op *op, const struct tt_request *r)
{
	op->next = op->then = NULL;
	op->comm = r->comm;
	op->way = &tt_message_way;
	op->observer = NULL;
	op->staging = r->staging;
	op->started = op->complete = false;
	op->call.request = r;
	op->slots = (struct tt_op_slots){ 0 };
	op->stores = (struct tt_stores_call){ 0 };
	op->cursors.n = op->cursors.nfinished = 0;
	op->cursors.preposts = false;
	op->posts.n = 0;
	op->p2p.first = 0;
	op->p2p.exchanges = false;
}

/* ---- bind ------------------------------------------------------------------------------------ */

void tt_op_bind_plan(const struct tt_op *op, size_t bytes, struct tt_binding *ret_binding)
{
	const struct tuttiComm *c = op->comm;
	const struct tt_connectivity facts = tt_comm_connectivity(c);

	tt_plan_bind(op->bound.plan, &facts, c->paths.world.message_bytes, bytes, ret_binding);
}

void tt_op_place_cursors(struct tt_op *op)
{
	const struct tt_binding *b = &op->bound.tiles;

	op->cursors.n = op->bound.plan->nlanes * b->width;
	op->cursors.preposts = op->bound.path->preposts && b->tile_bytes >= TT_LARGE_BYTES;
	for (uint32_t i = 0; i < op->cursors.n; i++)
		op->cursors.at[i] = (struct tt_cursor){ .tile = i % b->width,
							.lane = (uint8_t)(i / b->width),
							.channel = (uint8_t)i };
}

static size_t lines(size_t bytes)
{
	return (bytes + TT_LINE - 1) & ~(size_t)(TT_LINE - 1);
}

/* The communicator's scratch holds the plan's scratch blocks, outputs that this rank need not give,
 * and inputs that are copied first (scaled by a pre-multiplied sum or for an average; alltoall in
 * place). */
static int bind_scratch(struct tt_op *op)
{
	const struct tt_request *r = op->call.request;
	struct tt_op_bound *b = &op->bound;
	size_t plan_bytes = lines(tt_binding_scratch(&b->tiles, b->plan));
	bool own_out = r->collective == TT_REDUCE && r->root != op->comm->rank;
	bool own_in = (b->scaled && (own_out || r->collective == TT_REDUCE_SCATTER)) ||
		      (r->collective == TT_ALLTOALL && r->in == r->out);
	size_t out_bytes = own_out ? lines(b->block) : 0;
	size_t in_bytes = own_in ? b->block * b->plan->in_blocks : 0;
	char *p = NULL;

	if (b->block == 0)
		return 0;
	if (r->collective == TT_REDUCE && own_in)
		in_bytes = b->block;
	if (plan_bytes + out_bytes + in_bytes &&
	    !(p = tt_comm_scratch(op->comm, plan_bytes + out_bytes + in_bytes)))
		return TT_SYSTEM;
	b->base[TT_SCRATCH] = tt_scratch_base(p, tt_binding_unused(&b->tiles, b->plan));
	if (own_out)
		b->base[TT_OUT] = p + plan_bytes;
	if (own_in)
		b->base[TT_IN] = p + plan_bytes + out_bytes;
	else if (b->scaled)
		b->base[TT_IN] = b->base[TT_OUT];
	if (r->collective == TT_ALLTOALL && own_in)
		tt_copy(b->base[TT_IN], r->in, in_bytes);
	return 0;
}

/* Between two ranks, a sum in place has read each line a few tiles before it writes it, so the line
 * is in the cache. With more ranks it was evicted (measured with n = 4 and 8 on 2 cores). */
static bool rereads(const struct tt_request *r)
{
	return r->comm->nranks == 2 && r->in == r->out && tt_needs[r->collective].reduces;
}

static const struct tt_way *first_way(const struct tt_op *op)
{
	const struct tt_way *const *way = tt_ways;

	if (op->comm->trace)
		return &tt_trace_way;
	while (!(*way)->fits(op))
		way++;
	return *way;
}

int tt_op_bind(struct tt_op *op)
{
	const struct tt_request *r = op->call.request;
	struct tt_op_bound *b = &op->bound;
	struct tt_plan_row *row;
	int rc = tt_plan_cache_find(r, false, &row);

	if (rc)
		return rc;
	op->call.record = row->call;
	op->call.digest = row->digest;
	*b = (struct tt_op_bound){
		.plan = row->cached->plan,
		.cached = row->cached,
		.path = row->path,
		.reduce = row->reduce,
		.base = { (char *)(uintptr_t)r->in, r->out, NULL },
		.block = row->bytes,
		.element_bytes = tt_type_bytes(r->type),
		.tiles = row->binding,
		.past = tt_request_bytes(r) >= TT_NONTEMPORAL_BYTES && !rereads(r),
		.scaled = r->scaled || (r->op == tuttiAvg && tt_average_scales(r->type)),
	};
	if (tt_unlikely(!row->way))
		row->way = first_way(op);
	op->way = row->way;
	tt_op_place_cursors(op);
	return bind_scratch(op);
}

static void scale_inputs(struct tt_op *op)
{
	const struct tt_request *r = op->call.request;
	size_t count = r->count *
		       (r->collective == TT_REDUCE_SCATTER ? op->bound.plan->in_blocks : 1);

	if (r->scaled)
		tt_scale(op->bound.base[TT_IN], r->in, &r->scalar, count, r->type);
	else
		tt_average_scale(op->bound.base[TT_IN], r->in, (uint32_t)op->comm->nranks, count,
				 r->type);
}

/* ---- start ----------------------------------------------------------------------------------- */

static const struct tt_way *const *entry_of(const struct tt_way *way)
{
	const struct tt_way *const *entry = tt_ways;

	while (*entry != way)
		entry++;
	return entry;
}

int tt_op_begin_way(struct tt_op *op, const struct tt_way *const *from)
{
	while (!(*from)->fits(op) || ((*from)->takes && !(*from)->takes(op)))
		from++;
	op->way = *from;
	return op->way->begin ? op->way->begin(op) : 0;
}

void tt_op_observe(struct tt_op *op, const struct tt_way *way)
{
	if (op->observer == &tt_trace_way)
		op->comm->trace->observer = way;
	else
		op->observer = way;
}

int tt_op_decline(struct tt_op *op)
{
	int rc;

	op->cursors.n = op->bound.plan->nlanes * op->bound.tiles.width;
	rc = tt_op_begin_way(op, entry_of(op->way) + 1);
	return rc ? tt_op_error_starting(op, rc) : 1;
}

static int start_collective(struct tt_op *op)
{
	tuttiComm_t c = op->comm;
	int rc = tt_op_bind(op);

	if (rc)
		return rc;
	op->call.stamp = tt_number_call(c, &op->call.record, op->call.digest);
	op->call.seq = c->calls.seq;
	op->started = true; /* only now can error texts name the call */
	rc = tt_op_begin_way(op, entry_of(op->way));
	if (tt_unlikely(op->staging != NULL) && !rc)
		rc = op->staging->ops->begin(op, !tt_op_by_messages(op) || op->bound.scaled);
	if (tt_unlikely(op->bound.scaled) && !rc)
		scale_inputs(op);
	return rc;
}

int tt_op_start(struct tt_op *op)
{
	return op->call.request->collective == TT_SENDRECV ? tt_op_start_p2p(op)
							   : start_collective(op);
}

void tt_op_resume(struct tt_op *op, const struct tt_way *way)
{
	tt_op_bind(op);
	op->started = op->slots.posted = true;
	op->way = way;
	op->call.seq = op->comm->calls.seq;
	op->call.stamp = tt_stamp_now(op->comm);
}

/* ---- finish ---------------------------------------------------------------------------------- */

static void finish_collective(struct tt_op *op)
{
	const struct tt_request *r = op->call.request;
	tuttiComm_t c = op->comm;

	if (r->op == tuttiAvg && (r->collective != TT_REDUCE || r->root == c->rank))
		tt_average_finish(op->bound.base[TT_OUT], (uint32_t)c->nranks, r->count, r->type);
	tt_control_done(c->ctl, op->call.seq);
	if (op->way->finish)
		op->way->finish(op);
	if (tt_unlikely(op->observer != NULL))
		op->observer->finish(op);
}

void tt_op_finish(struct tt_op *op)
{
	tuttiComm_t c = op->comm;

	if (op->call.request->collective == TT_SENDRECV)
		tt_control_done_message(c->ctl);
	else
		finish_collective(op);
	if (tt_unlikely(op->staging != NULL))
		op->staging->ops->end(op);
	op->complete = true;
	tt_op_count(c);
}
