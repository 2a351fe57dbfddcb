/*
 * repeat.c - a collective like one that went before: what was prepared then is used again
 *
 * Called by api: tt_repeat before anything else, tt_repeat_learn after a call that went the long
 * way. A row keeps a prepared operation and what must be equal for it to fit: the call, and how the
 * buffers lie to each other. Only calls that one cursor walks through one tile by messages are
 * kept; for those, looking everything up takes longer than the messages. If the others are late,
 * the operation goes on as any other.
 */
#include <stdalign.h>
#include <stdlib.h>
#include <string.h>

#include "local/single_copy.h"
#include "run/run.h"

#define HEAD_BYTES (offsetof(struct tt_op, cursor) + sizeof(struct tt_cursor))

struct tt_repeat {
	bool seen, used;                       /* request is one that came here; it can be kept */
	struct tt_request request;             /* collective, count, type, op, root */
	size_t in_bytes, out_bytes;            /* of the user's buffers; 0: this rank needs none */
	/* where in the scratch the output is that nobody asked for, or NOT_THERE */
	size_t out_in_scratch;
	alignas(8) char head[HEAD_BYTES];      /* of struct tt_op, as far as one cursor goes */
};
#define NOT_THERE SIZE_MAX

static struct tt_repeat *row_of(tuttiComm_t c, const struct tt_request *r)
{
	size_t h = r->count * 31 + (size_t)r->collective * 7 + (size_t)r->type * 5 +
		   (size_t)r->op * 3 + (size_t)r->root;

	return c->repeats ? &c->repeats[h % TT_REPEATS] : NULL;
}

static bool same_call(const struct tt_request *a, const struct tt_request *b)
{
	return a->count == b->count && a->collective == b->collective && a->type == b->type &&
	       a->op == b->op && a->root == b->root;
}

void tt_repeat_learn(const struct tt_request *r, size_t in_bytes, size_t out_bytes)
{
	struct tt_repeat *row;
	struct tt_op op;

	if (r->collective == TT_SENDRECV || r->scaled || r->barrier || r->comm->fault_what ||
	    !r->count)
		return;
	if (!r->comm->repeats) {
		r->comm->repeats = calloc(TT_REPEATS, sizeof(*row));
		atomic_fetch_add(&r->comm->allocations, 1);
	}
	row = row_of(r->comm, r);
	if (!row || (row->seen && !row->used && same_call(&row->request, r) &&
		     (row->request.in == row->request.out) == (r->in == r->out)))
		return;                          /* no memory, or found not to be kept before */
	*row = (struct tt_repeat){ .seen = true, .request = *r };
	tt_op_init(&op, r);
	if (tt_op_bind(&op) || op.scaled || op.ncursors != 1 || op.ntiles != 1 ||
	    op.kept->channels[op.road != r->comm->path] < 1 || tt_express_takes(&op) ||
	    tt_single_copy_fits(&op) ||
	    (op.base[TT_IN] != r->in && in_bytes) || (op.base[TT_OUT] != r->out && out_bytes))
		return;
	op.started = true;
	*row = (struct tt_repeat){ .seen = true, .used = true, .request = *r, .in_bytes = in_bytes,
				   .out_bytes = out_bytes, .out_in_scratch = NOT_THERE };
	if (!out_bytes && op.base[TT_OUT] != r->out)
		row->out_in_scratch = (size_t)(op.base[TT_OUT] - (char *)r->comm->scratch);
	memcpy(row->head, &op, HEAD_BYTES);
}

/* As they lay then: at the same distance where they touched, else apart. */
static bool buffers_fit(const struct tt_repeat *row, const void *in, const void *out)
{
	if ((row->in_bytes && !in) || (row->out_bytes && !out))
		return false;
	if (!row->in_bytes || !row->out_bytes || tt_apart(in, row->in_bytes, out, row->out_bytes))
		return true;
	return (uintptr_t)out - (uintptr_t)in ==
	       (uintptr_t)row->request.out - (uintptr_t)row->request.in;
}

static int run(struct tt_op *op)
{
	tuttiComm_t c = op->comm;
	uint32_t spins = tt_wait_spins(c);
	int rc;

	op->seq = ++c->seq;
	c->history = tt_mix(c->history, op->digest);
	op->stamp = (uint32_t)(c->history >> 32);
	tt_control_note(c->ctl, op->seq, &op->call);
	do
		rc = tt_cursor_advance(op, op->cursor);
	while (rc == 0 && spins-- > 0 && (tt_cpu_relax(), true));
	if (tt_unlikely(rc < 0 || !op->cursor[0].finished || op->npending))
		return tt_run(op);
	tt_op_finish(op);
	return 0;
}

/* The kept operation for this call, if there is one. */
static bool prepared(const struct tt_request *r, struct tt_op *ret_op)
{
	tuttiComm_t c = r->comm;
	const struct tt_repeat *row = row_of(c, r);

	if (!row || !row->used || !same_call(&row->request, r) || !buffers_fit(row, r->in, r->out))
		return false;
	memcpy(ret_op, row->head, HEAD_BYTES);
	ret_op->request = r;
	ret_op->base[TT_IN] = (char *)(uintptr_t)r->in;
	ret_op->base[TT_OUT] = row->out_in_scratch == NOT_THERE
				       ? r->out
				       : (char *)c->scratch + row->out_in_scratch;
	ret_op->base[TT_SCRATCH] = c->scratch;
	return true;
}

int tt_repeat(const struct tt_request *r)
{
	tuttiComm_t c = r->comm;
	struct tt_fpmode mode;
	struct tt_op op;
	int rc = 1;

	if (r->barrier || atomic_load_explicit(&c->queued, memory_order_acquire))
		return 1;
	if (tt_comm_begin(c) && !atomic_load_explicit(&c->finalized, memory_order_relaxed) &&
	    !tt_control_broken(c->ctl) && prepared(r, &op)) {
		mode = tt_fpmode_enter();
		rc = run(&op);
		tt_fpmode_leave(mode);
	}
	tt_comm_leave(c);
	return rc;
}
