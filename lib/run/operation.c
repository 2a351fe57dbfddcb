/*
 * operation.c - from a call to an operation: pick the plan,
 * bind blocks to bytes, cut tiles, number it
 *
 * Called by run. What decides message sizes (unit, tile, width, group) is computed from the call,
 * the plan and the message size that all ranks agreed on, so that both ends of every message come
 * to the same length.
 */
#include <string.h>

#include "mem/copy.h"
#include "plan/bind.h"
#include "local/single_copy.h"

void tt_op_init(struct tt_op *op, const struct tt_request *r)
{
	op->next = op->then = NULL;
	op->comm = r->comm;
	op->request = r;
	op->started = op->complete = op->express = op->cast = op->direct = false;
	op->preposts = false;
	op->ncursors = op->nfinished = op->npending = 0;
	op->trial = NULL;
	op->pipeline = r->pipeline;
	op->gdr = r->gdr;
}

/* A block larger than a message is cut into tiles;
 * blocks smaller than one travel several to a message. */
static void bind(const struct tt_op *op, size_t bytes, struct tt_binding *ret_binding)
{
	const struct tuttiComm *c = op->comm;
	const struct tt_connectivity paths = { .nranks = c->nranks, .one_host = c->one_host,
					.over_tcp = c->over_tcp, .cores = c->cores };

	tt_plan_bind(op->plan, &paths, c->world.message_bytes, bytes, ret_binding);
}

static void cut_tiles(struct tt_op *op, const struct tt_binding *b)
{
	op->unit = b->unit;
	op->total = b->total;
	op->tile_bytes = b->tile_bytes;
	op->ntiles = b->ntiles;
	op->group = b->group;
	op->width = b->width;
	op->ncursors = op->plan->nlanes * op->width;
	op->preposts = op->road->preposts && op->tile_bytes >= TT_LARGE_BYTES;
	for (uint32_t i = 0; i < op->ncursors; i++)
		op->cursor[i] = (struct tt_cursor){ .tile = i % op->width,
						    .lane = (uint8_t)(i / op->width),
						    .channel = (uint8_t)i };
}

static size_t lines(size_t bytes)
{
	return (bytes + TT_LINE - 1) & ~(size_t)(TT_LINE - 1);
}

/* Scratch of the plan, outputs that this rank need not give, and inputs that must be copied first
 * (scaled by a pre-multiplied sum or for an average; alltoall in place) come out of the
 * communicator's scratch. */
static int bind_scratch(struct tt_op *op)
{
	const struct tt_request *r = op->request;
	size_t bytes = r->count * op->element_bytes,
	       plan_bytes = lines(op->plan->scratch_blocks * op->unit);
	bool own_out = r->collective == TT_REDUCE && r->root != op->comm->rank;
	bool own_in = (op->scaled && (own_out || r->collective == TT_REDUCE_SCATTER)) ||
		      (r->collective == TT_ALLTOALL && r->in == r->out);
	size_t out_bytes = own_out ? lines(bytes) : 0;
	size_t in_bytes = own_in ? bytes * op->plan->in_blocks : 0;
	char *p = NULL;

	if (bytes == 0)
		return 0;
	if (r->collective == TT_REDUCE && own_in)
		in_bytes = bytes;
	if (plan_bytes + out_bytes + in_bytes &&
	    !(p = tt_comm_scratch(op->comm, plan_bytes + out_bytes + in_bytes)))
		return TT_SYSTEM;
	op->base[TT_SCRATCH] = p;
	if (own_out)
		op->base[TT_OUT] = p + plan_bytes;
	if (own_in)
		op->base[TT_IN] = p + plan_bytes + out_bytes;
	else if (op->scaled)
		op->base[TT_IN] = op->base[TT_OUT];
	if (r->collective == TT_ALLTOALL && own_in)
		memcpy(op->base[TT_IN], r->in, in_bytes);
	return 0;
}

/* Between two ranks a sum in place has read, a few tiles before, each line that it writes: that is
 * in the cache already. Among more, too much has come between (n = 4 and 8 on 2 cores). */
static bool rereads(const struct tt_request *r)
{
	return r->comm->nranks == 2 && r->in == r->out && tt_needs[r->collective].reduces;
}

int tt_op_bind(struct tt_op *op)
{
	const struct tt_request *r = op->request;
	struct tt_memo *m;
	size_t bytes;
	int rc;

	op->element_bytes = tt_type_bytes(r->type);
	op->base[TT_IN] = (char *)(uintptr_t)r->in;
	op->base[TT_OUT] = r->out;
	op->block = bytes = r->count * op->element_bytes;
	rc = tt_plan_cache_find(r->comm, r->collective, tt_request_bytes(r), r->root < 0 ? 0 : r->root,
			  &m);

	if (rc)
		return rc;
	op->kept = m->kept;
	op->plan = op->kept->plan;
	op->road = &r->comm->path[m->road];
	op->call = (struct tt_call){ .collective = (uint8_t)r->collective, .type = (uint8_t)r->type,
				     .op = r->scaled ? tuttiNumOps : (uint8_t)r->op,
				     .algorithm = op->kept->number, .root = r->root,
				     .count = r->count };
	if (r->barrier)
		op->call.op = TT_CALL_BARRIER;
	op->reduce = tt_reduce_kernel(r->type, r->op);
	op->past = tt_request_bytes(r) >= TT_NONTEMPORAL_BYTES && !rereads(r);
	op->scaled = r->scaled || (r->op == tuttiAvg && tt_average_scales(r->type));
	if (tt_unlikely(!m->bound))
		bind(op, bytes, &m->binding);
	if (tt_unlikely(!m->bound || memcmp(&m->call, &op->call, sizeof(m->call)))) {
		m->call = op->call;
		m->digest = tt_call_digest(&op->call);
		m->bound = true;
	}
	op->digest = m->digest;
	cut_tiles(op, &m->binding);
	return bind_scratch(op);
}

static void scale_inputs(struct tt_op *op)
{
	const struct tt_request *r = op->request;
	size_t count = r->count * (r->collective == TT_REDUCE_SCATTER ? op->plan->in_blocks : 1);

	if (r->scaled)
		tt_scale(op->base[TT_IN], r->in, &r->scalar, count, r->type);
	else
		tt_average_scale(op->base[TT_IN], r->in, (uint32_t)op->comm->nranks, count,
				 r->type);
}

/* Send and Recv are a plan of one step. The two sides name each other, so the peer is no part of
 * what must agree. A message of no elements travels as a byte, so that the other side's count is
 * seen to be 0, too. */
static void prepare_p2p(struct tt_op *op)
{
	struct tt_binding b;
	const struct tt_request *r = op->request;
	size_t bytes = r->count * op->element_bytes;
	tt_ref wire = tt_ref_make(TT_WIRE, (uint32_t)r->root);

	op->own_step = (struct tt_step){ .op = TT_COPY,
					 .nsrc = 1,
					 .wait_lane = TT_NO_LANE,
					 .nblocks = 1,
					 .dst = r->send ? TT_REF_NONE : tt_ref_make(TT_OUT, 0),
					 .to = r->send ? wire : TT_REF_NONE,
					 .src = { r->send ? tt_ref_make(TT_IN, 0) : wire } };
	op->own_plan = (struct tt_plan){ .collective = TT_SENDRECV, .rule = TT_EQUAL, .nblocks = 1,
					 .nlanes = 1, .nsteps = 1, .lanes = { { 0, 1 } },
					 .steps = &op->own_step };
	op->plan = &op->own_plan;
	op->call = (struct tt_call){ .collective = TT_SENDRECV,
				     .type = (uint8_t)r->type,
				     .count = r->count };
	if (!bytes)
		op->base[TT_IN] = op->base[TT_OUT] = (char *)&op->comm->barrier_byte;
	bind(op, bytes ? bytes : 1, &b);
	cut_tiles(op, &b);
	op->past = bytes >= TT_NONTEMPORAL_BYTES;
	op->width = op->ncursors = 1;           /* messages of one pair keep their order */
	op->cursor[0].channel = TT_P2P_CHANNEL;
}

/* A peer on sockets connects when it comes to the call: meanwhile the others are asked. */
static int connect_link(struct tt_op *op, int peer, int channel)
{
	struct tt_link *l = op->road->links[channel * op->comm->nranks + peer];
	struct tt_blocked stuck;

	if (tt_likely(l && l->t->ready(l) > 0))
		return 0;
	tt_op_error_describe(op, &stuck);
	return tt_comm_connect(op->comm, op->road, peer, channel, &stuck,
			       tt_deadline_ns(op->comm->timeout_ms));
}

/* A step may need any link of the plan at any time,
 * so all of them are connected before the first. */
static int connect_links(struct tt_op *op)
{
	int *channels = &op->kept->channels[op->road != op->comm->path], rc = 0;

	for (int ch = *channels; !rc && ch < (int)op->ncursors; ch++) {
		for (uint32_t i = 0; !rc && i < op->plan->npeers; i++)
			rc = connect_link(op, op->plan->peers[i], ch);
		if (!rc)
			*channels = ch + 1;
	}
	return rc;
}

/* A message of several tiles goes over all ports to its peer, as those of collectives do: both
 * sides have the same ones, and messages of a pair go one after the other, so each channel has its
 * tiles in order. The first tile goes by the first channel, whatever the count, so that a mismatch
 * is seen. All channels are connected with the first, which is when members of a set take care not
 * to wait for each other in a ring. */
static int spread(struct tt_op *op, int ports)
{
	int rc = 0, n = ports < TT_P2P_CHANNELS ? ports : TT_P2P_CHANNELS;

	for (int i = 1; i < n && !rc; i++)
		rc = connect_link(op, op->request->root, TT_P2P_CHANNEL + i);
	op->width = op->ncursors = op->ntiles < (uint32_t)n ? op->ntiles : (uint32_t)n;
	for (uint32_t i = 1; i < op->ncursors; i++)
		op->cursor[i] = (struct tt_cursor){ .tile = i,
						    .channel = (uint8_t)(TT_P2P_CHANNEL + i) };
	return rc;
}

static int connect_pair(struct tt_op *op)
{
	struct tt_link **l =
		&op->road->links[TT_P2P_CHANNEL * op->comm->nranks + op->request->root];
	int rc = connect_link(op, op->request->root, TT_P2P_CHANNEL);

	return tt_likely(rc || (*l)->ports <= 1) ? rc : spread(op, (*l)->ports);
}

static int start_p2p(struct tt_op *op)
{
	const struct tt_request *r = op->request;
	uint64_t *counter = r->send ? op->comm->p2p_sent : op->comm->p2p_received;

	op->road = &op->comm->path[op->comm->p2p_path];
	op->element_bytes = tt_type_bytes(r->type);
	op->base[TT_IN] = (char *)(uintptr_t)r->in;
	op->base[TT_OUT] = r->out;
	prepare_p2p(op);
	op->seq = ++counter[r->root];
	op->started = true;
	op->stamp = tt_call_stamp(&op->call, op->seq);
	tt_control_note_message(op->comm->ctl, r->send, r->root, op->seq, &op->call);
	if (tt_unlikely(op->pipeline != NULL)) {
		int rc = tt_pipeline_begin(op, false);

		if (rc)
			return rc;
	}
	return connect_pair(op);
}

/* On the board, or by its plan, whose links are then connected. */
static int by_messages(struct tt_op *op)
{
	op->express = tt_express_takes(op);
	if (op->express ||
	    tt_likely(op->kept->channels[op->road != op->comm->path] >= (int)op->ncursors))
		return 0;
	return connect_links(op);
}

int tt_op_otherwise(struct tt_op *op)
{
	int rc;

	op->direct = false;
	op->ncursors = op->plan->nlanes * op->width;
	rc = by_messages(op);
	return rc ? tt_op_error_starting(op, rc) : 1;
}

static int start_collective(struct tt_op *op)
{
	tuttiComm_t c = op->comm;
	int rc = tt_op_bind(op);

	if (rc)
		return rc;
	op->seq = ++c->seq;
	op->started = true;
	c->history = tt_mix(c->history, op->digest);
	op->stamp = (uint32_t)(c->history >> 32);
	tt_control_note(c->ctl, op->seq, &op->call);
	if (tt_single_copy_takes(op))
		tt_single_copy_begin(op);
	else if ((rc = by_messages(op)))
		return rc;
	if (tt_unlikely(op->gdr != NULL) && (rc = tt_gdr_begin(op)))
		return rc;
	if (tt_unlikely(op->pipeline != NULL) &&
	    (rc = tt_pipeline_begin(op, op->express || op->direct || op->scaled)))
		return rc;
	if (tt_unlikely(op->scaled))
		scale_inputs(op);
	return 0;
}

/* Started is what has a call and a number: only then can a sentence tell them. */
int tt_op_start(struct tt_op *op)
{
	return op->request->collective == TT_SENDRECV ? start_p2p(op) : start_collective(op);
}

/* The plan was found when the row was learnt, so nothing can fail here. */
void tt_op_resume(struct tt_op *op)
{
	op->started = op->express = op->cast = true;
	tt_op_bind(op);
	op->seq = op->comm->seq;
	op->stamp = (uint32_t)(op->comm->history >> 32);
}

void tt_op_finish(struct tt_op *op)
{
	const struct tt_request *r = op->request;
	tuttiComm_t c = op->comm;

	if (r->collective == TT_SENDRECV) {
		tt_control_done_message(c->ctl);
	} else {
		if (r->op == tuttiAvg && (r->collective != TT_REDUCE || r->root == c->rank))
			tt_average_finish(op->base[TT_OUT], (uint32_t)c->nranks, r->count, r->type);
		tt_control_done(c->ctl, op->seq);
		if (op->express)
			tt_express_learn(op);
		else if (op->trial)
			tt_single_copy_choice_learn(op);
	}
	if (tt_unlikely(op->gdr != NULL))
		tt_gdr_end(op);
	if (tt_unlikely(op->pipeline != NULL))
		tt_pipeline_end(op);
	op->complete = true;
	atomic_store_explicit(&c->operations,
			      atomic_load_explicit(&c->operations, memory_order_relaxed) + 1,
			      memory_order_relaxed);
}
