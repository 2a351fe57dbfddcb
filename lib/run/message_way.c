/*
 * message_way.c - the way by messages: cursors execute the plan's steps over links
 *
 * Called by run.c and operation.c through tt_message_way; step.c executes the steps. Calls are
 * prepared: the plan cache keeps a copy of the bound operation, and of the layout that its buffers
 * must have. A repeated call puts its buffers into the copy and places the cursors at the first
 * tiles; if it waits too long, it goes on as any other operation.
 */
#include <stdalign.h>
#include <stdlib.h>
#include <string.h>

#include "run/number.h"
#include "run/run.h"
#include "run/way.h"

/* ---- links ----------------------------------------------------------------------------------- */

/* How many channels of the plan are connected, on the operation's path */
static int *channels_of(const struct tt_op *op)
{
	return &op->bound.cached->channels[op->bound.path != op->comm->paths.path];
}

/* Messages to ranks of this host go into shared memory. */
static inline void count(struct tt_op *op, size_t bytes)
{
	if (bytes >= TT_STORES_LEAST && op->comm->hosts.ranks_here > 1)
		op->stores = tt_stores_next(
			op->comm->calls.message_stores[op->call.request->collective], bytes, false);
}

static int begin(struct tt_op *op)
{
	int *channels = channels_of(op), n = (int)op->cursors.n;

	count(op, tt_request_bytes(op->call.request));
	return tt_likely(*channels >= n) ? 0 : tt_op_connect(op, *channels, n, channels);
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
	size_t bytes; /* of the call; if large, copies bypass the caches, unless in place */
	alignas(struct tt_op) char head[HEAD_BYTES]; /* the operation, with its first cursor */
};

static bool prepare(struct tt_plan_row *row, const struct tt_op *op,
		    const struct tt_extents *extents)
{
	const struct tt_request *r = op->call.request;
	struct tt_prepared *p = row->prepared;

	if (op->bound.scaled || *channels_of(op) < (int)op->cursors.n ||
	    (op->bound.base[TT_IN] != r->in && extents->in) ||
	    (op->bound.base[TT_OUT] != r->out && extents->out))
		return false;
	if (!p && !(p = malloc(sizeof(*p))))
		return false;
	if (!row->prepared)
		atomic_fetch_add(&op->comm->memory.allocations, 1);
	row->prepared = p;
	p->request = *r;
	p->extents = *extents;
	p->bytes = tt_request_bytes(r);
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

/* The copy of a prepared operation, before its first step, with the buffers of this call */
static inline void restart(struct tt_op *op, const struct tt_prepared *p, const void *in, void *out)
{
	char *scratch = p->request.comm->memory.scratch;

	memcpy(op, p->head, HEAD_BYTES);
	op->posts.n = 0;
	op->call.request = &p->request;
	op->bound.base[TT_IN] = (char *)(uintptr_t)in;
	op->bound.base[TT_OUT] = p->out_in_scratch == NOT_THERE ? out : scratch + p->out_in_scratch;
	op->bound.base[TT_SCRATCH] = tt_scratch_base(scratch, p->unused_scratch);
	if (tt_unlikely(p->bytes >= TT_NONTEMPORAL_BYTES) && in != out)
		op->bound.past = true;
	if (op->cursors.n > 1)
		tt_op_place_cursors(op);
}

/* Advance until the operation is complete (true), `spins` rounds have moved nothing, or it fails;
 * the next advance meets the failure again. */
static inline bool advance_all(struct tt_op *op, uint32_t spins)
{
	bool waited = false;
	int rc;

	while ((rc = advance(op)) >= 0 && op->cursors.nfinished < op->cursors.n) {
		if (rc > 0)
			continue;
		if (spins-- == 0)
			return false;
		waited = true;
		tt_cpu_relax();
	}
	if (waited)
		tt_wait_spun(op->comm);
	return rc >= 0 && (op->posts.n == 0 || tt_op_settled(op));
}

static int again(tuttiComm_t c, const struct tt_plan_row *row, const void *in, void *out)
{
	const struct tt_prepared *p = row->prepared;
	struct tt_op op;

	if (!buffers_fit(p, in, out))
		return 1;
	restart(&op, p, in, out);
	op.call.stamp = tt_number_call(c, &row->call, row->digest);
	op.call.seq = c->calls.seq;
	op.started = true;
	count(&op, p->bytes);
	if (!advance_all(&op, tt_wait_spins(c)))
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
	.again = { [0 ... TT_SENDRECV - 1] = again },
};
