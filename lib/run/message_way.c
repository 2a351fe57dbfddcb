/*
 * message_way.c - the way by messages: cursors execute the plan's steps over links
 *
 * Called by run.c and operation.c through tt_message_way; step.c executes the steps. Small calls
 * that one cursor carries through one tile are prepared: binding them takes longer than their
 * messages. The plan cache then keeps a copy of the bound operation, and of the layout that its
 * buffers must have; a call that waits too long goes on as any other operation.
 */
#include <stdalign.h>
#include <stdlib.h>
#include <string.h>

#include "run/number.h"
#include "run/run.h"
#include "run/way.h"

/* ---- links ----------------------------------------------------------------------------------- */

/* A peer on sockets connects when it comes to the call; until then other ranks are asked. */
int tt_op_connect(struct tt_op *op, int peer, int channel)
{
	struct tt_link *l = op->bound.path->links[channel * op->comm->nranks + peer];
	struct tt_blocked stuck;

	if (tt_likely(l && l->t->ready(l) > 0))
		return 0;
	tt_op_error_describe(op, &stuck);
	return tt_comm_connect(op->comm, op->bound.path, peer, channel, &stuck,
			       tt_deadline_ns(op->comm->settings.timeout_ms));
}

/* How many channels of the plan are connected, on the operation's path */
static int *channels_of(const struct tt_op *op)
{
	return &op->bound.cached->channels[op->bound.path != op->comm->paths.path];
}

/* A step may need any link of the plan at any time, so all links are connected before the first. */
static int begin(struct tt_op *op)
{
	int *channels = channels_of(op), rc = 0;

	for (int ch = *channels; !rc && ch < (int)op->cursors.n; ch++) {
		for (uint32_t i = 0; !rc && i < op->bound.plan->npeers; i++)
			rc = tt_op_connect(op, op->bound.plan->peers[i], ch);
		if (!rc)
			*channels = ch + 1;
	}
	return rc;
}

static int advance(struct tt_op *op)
{
	int moved = 0;

	for (uint32_t i = 0; i < op->cursors.n; i++) {
		struct tt_cursor *cu = &op->cursors.at[i];
		int rc = cu->finished ? 0 : tt_cursor_advance(op, cu);

		if (tt_unlikely(rc < 0))
			return rc;
		moved |= rc;
	}
	return moved;
}

static bool fits(const struct tt_op *op)
{
	(void)op;
	return true;
}

/* ---- prepared calls -------------------------------------------------------------------------- */

#define HEAD_BYTES (offsetof(struct tt_op, cursors.at) + sizeof(struct tt_cursor))
#define NOT_THERE SIZE_MAX

struct tt_prepared {
	struct tt_request request;
	struct tt_extents extents; /* of the user's buffers */
	size_t unused_scratch;     /* tt_binding_unused */
	size_t out_in_scratch;     /* offset of an output that only the plan needs */
	alignas(struct tt_op) char head[HEAD_BYTES]; /* the bound operation, with one cursor */
};

static bool prepare(struct tt_plan_row *row, const struct tt_op *op,
		    const struct tt_extents *extents)
{
	const struct tt_request *r = op->call.request;
	struct tt_prepared *p = row->prepared;

	if (op->bound.scaled || op->cursors.n != 1 || op->bound.tiles.ntiles != 1 ||
	    *channels_of(op) < 1 || (op->bound.base[TT_IN] != r->in && extents->in) ||
	    (op->bound.base[TT_OUT] != r->out && extents->out))
		return false;
	if (!p && !(p = malloc(sizeof(*p))))
		return false;
	if (!row->prepared)
		atomic_fetch_add(&op->comm->memory.allocations, 1);
	row->prepared = p;
	p->request = *r;
	p->extents = *extents;
	p->unused_scratch = tt_binding_unused(&op->bound.tiles, op->bound.plan);
	p->out_in_scratch = NOT_THERE;
	if (!extents->out && op->bound.base[TT_OUT] != r->out)
		p->out_in_scratch = (size_t)(op->bound.base[TT_OUT] -
					     (char *)op->comm->memory.scratch);
	memcpy(p->head, op, HEAD_BYTES);
	return true;
}

/* The layout of the prepared call: the same distance if its buffers touched, else apart. */
static bool buffers_fit(const struct tt_prepared *p, const void *in, const void *out)
{
	if ((p->extents.in && !in) || (p->extents.out && !out))
		return false;
	if (!p->extents.in || !p->extents.out || tt_apart(in, p->extents.in, out, p->extents.out))
		return true;
	return (uintptr_t)out - (uintptr_t)in ==
	       (uintptr_t)p->request.out - (uintptr_t)p->request.in;
}

static int again(tuttiComm_t c, const struct tt_plan_row *row, const void *in, void *out)
{
	const struct tt_prepared *p = row->prepared;
	uint32_t spins = tt_wait_spins(c);
	struct tt_op op;
	int rc;

	if (!buffers_fit(p, in, out))
		return 1;
	memcpy(&op, p->head, HEAD_BYTES);
	op.posts.n = 0;
	op.call.request = &p->request;
	op.bound.base[TT_IN] = (char *)(uintptr_t)in;
	op.bound.base[TT_OUT] = p->out_in_scratch == NOT_THERE
					? out
					: (char *)c->memory.scratch + p->out_in_scratch;
	op.bound.base[TT_SCRATCH] = (char *)c->memory.scratch - p->unused_scratch;
	op.call.stamp = tt_number_call(c, &row->call, row->digest);
	op.call.seq = c->calls.seq;
	op.started = true;
	do
		rc = tt_cursor_advance(&op, op.cursors.at);
	while (rc == 0 && spins-- > 0 && (tt_cpu_relax(), true));
	if (tt_unlikely(rc < 0 || !op.cursors.at[0].finished || op.posts.n))
		return tt_run(&op);
	tt_op_finish(&op);
	return 0;
}

const struct tt_way tt_message_way = {
	.name = "messages",
	.fits = fits,
	.begin = begin,
	.advance = advance,
	.waits_for = tt_cursor_waits_for,
	.prepare = prepare,
	.again = again,
};
