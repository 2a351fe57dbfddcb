/*
 * p2p.c - Send and Recv as operations: a plan of one step
 *
 * Called by operation.c. The two sides name each other, so the peer is no part of the call record
 * that must agree. Messages are numbered per pair and direction, not with the collectives.
 */
#include <stdlib.h>

#include "plan/bind.h"
#include "run/staging.h"

static void bind(struct tt_op *op, size_t bytes)
{
	const struct tt_connectivity facts = tt_comm_connectivity(op->comm);

	size_t tile = tt_connectivity_p2p_tile(&facts, op->comm->paths.world.message_bytes, bytes);

	tt_plan_bind(op->bound.plan, &facts, tile, bytes, &op->bound.tiles);
}

/* A message of no elements travels as one byte, so the other side can check that its count is 0. */
static void bind_step(struct tt_op *op)
{
	const struct tt_request *r = op->call.request;
	struct tt_op_bound *b = &op->bound;
	size_t bytes = r->count * b->element_bytes;
	tt_ref wire = tt_ref_make(TT_WIRE, (uint32_t)r->root);

	op->p2p.step = (struct tt_step){ .op = TT_COPY,
					 .nsrc = 1,
					 .wait_lane = TT_NO_LANE,
					 .nblocks = 1,
					 .dst = r->send ? TT_REF_NONE : tt_ref_make(TT_OUT, 0),
					 .to = r->send ? wire : TT_REF_NONE,
					 .src = { r->send ? tt_ref_make(TT_IN, 0) : wire } };
	op->p2p.plan = (struct tt_plan){ .collective = TT_SENDRECV,
					 .rule = TT_EQUAL,
					 .nblocks = 1,
					 .nlanes = 1,
					 .nsteps = 1,
					 .lanes = { { 0, 1 } },
					 .steps = &op->p2p.step };
	b->plan = &op->p2p.plan;
	if (!bytes)
		b->base[TT_IN] = b->base[TT_OUT] = (char *)&op->comm->memory.barrier_byte;
	bind(op, bytes ? bytes : 1);
	tt_op_place_cursors(op);
	b->past = bytes >= TT_NONTEMPORAL_BYTES;
	b->tiles.width = op->cursors.n = 1; /* messages of one pair keep their order */
	op->cursors.at[0].channel = TT_P2P_CHANNEL;
	op->cursors.at[0].tile = op->p2p.first;
}

/* A message of several tiles uses all ports to its peer, as messages of collectives do: both sides
 * have the same ports, and messages of a pair follow each other, so each channel has its tiles in
 * order. The first tile uses the first channel, whatever the count, so that a mismatch shows. */
static void spread(struct tt_op *op, int n)
{
	uint32_t ntiles = op->bound.tiles.ntiles;

	op->bound.tiles.width = op->cursors.n = ntiles < (uint32_t)n ? ntiles : (uint32_t)n;
	for (uint32_t i = 1; i < op->cursors.n; i++)
		op->cursors.at[i] = (struct tt_cursor){ .tile = i,
							.channel = (uint8_t)(TT_P2P_CHANNEL + i) };
}

/* The peer may read the buffer of a rank that also receives, or shares its core: in one direction, two cores copy a
 * message together, faster than one of them could. Not a buffer that is still filled from a device. */
void tt_p2p_announce(struct tt_link *l, const struct tt_request *r, const void *buffer,
		     size_t bytes, bool exchanges)
{
	if (!r->send) {
		l->receiving = bytes;
	} else {
		l->sending = (exchanges || r->comm->paths.world.crowded) && !r->staging ? bytes : 0;
		l->sending_from = buffer;
	}
}

/* Connects the channels of all ports, whatever the count: the peer's may differ by mistake. */
static int connect_pair(struct tt_op *op, size_t bytes)
{
	const struct tt_path *path = op->bound.path;
	int peer = op->call.request->root, n = 1, rc;
	struct tt_link *l = tt_path_link(path, TT_P2P_CHANNEL, peer);

	if (tt_unlikely(!l)) {
		rc = tt_comm_connect(op->comm, path, peer, TT_P2P_CHANNEL);
		if (rc < 0)
			return rc;
		l = tt_path_link(path, TT_P2P_CHANNEL, peer);
	}
	tt_p2p_announce(l, op->call.request, op->bound.base[TT_IN], bytes, op->p2p.exchanges);
	if (tt_unlikely(l->ports > 1)) {
		n = l->ports < TT_P2P_CHANNELS ? l->ports : TT_P2P_CHANNELS;
		spread(op, n);
	}
	for (int i = 0; i < n; i++) {
		l = i ? tt_path_link(path, TT_P2P_CHANNEL + i, peer) : l;
		rc = l ? l->t->ready(l) : 0;
		if (tt_unlikely(rc < 0))
			return rc;
		if (tt_unlikely(!rc))
			return tt_op_connect(op, TT_P2P_CHANNEL, TT_P2P_CHANNEL + n, NULL);
	}
	return 0;
}

/* Programs without messages have no counters of them. */
static int make_counters(tuttiComm_t c)
{
	size_t n = (size_t)c->nranks;

	c->calls.p2p_sent = calloc(2 * n, sizeof(*c->calls.p2p_sent));
	if (!c->calls.p2p_sent)
		return tt_fail(TT_SYSTEM, "rank %d: no memory to count messages", c->rank);
	c->calls.p2p_received = c->calls.p2p_sent + n;
	return 0;
}

int tt_op_start_p2p(struct tt_op *op)
{
	const struct tt_request *r = op->call.request;
	tuttiComm_t c = op->comm;
	uint64_t *counter;
	int rc;

	if (tt_unlikely(!c->calls.p2p_sent) && (rc = make_counters(c)))
		return rc;
	counter = r->send ? c->calls.p2p_sent : c->calls.p2p_received;
	op->bound = (struct tt_op_bound){ .path = &c->paths.path[c->paths.p2p_path],
					  .base = { (char *)(uintptr_t)r->in, r->out, NULL },
					  .element_bytes = tt_type_bytes(r->type) };
	bind_step(op);
	op->call.record = (struct tt_call){ .collective = TT_SENDRECV,
					    .type = (uint8_t)r->type,
					    .count = r->count };
	op->call.seq = ++counter[r->root];
	op->call.stamp = tt_call_stamp(&op->call.record, op->call.seq);
	op->started = true;
	tt_control_note_message(c->ctl, r->send, r->root, op->call.seq, &op->call.record);
	if (tt_unlikely(op->staging != NULL) && (rc = op->staging->ops->begin(op, false)))
		return rc;
	return connect_pair(op, r->count * op->bound.element_bytes);
}
