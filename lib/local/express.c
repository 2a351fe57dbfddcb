/*
 * express.c - allreduces of up to 64 KiB among few ranks of one host: one-shot without messages
 *
 * Where the ranks of a communicator share one host's memory, one-shot goes like this, whatever the
 * path that leads here (agreed facts decide, so all ranks take it or none):
 *   1  cast: this rank's bytes go on the board, where all others read them; no acknowledgement, no
 *      room to wait for
 *   2  when the bytes of all are there, they are summed in rank order, gdr from the board: the
 *      bits of one-shot
 *
 *   tt_express           the short way there: called by api, for a call like one that went before.
 *                        No request is checked, no plan looked up; what is needed stands in the
 *                        communicator's `express` row. If the others are late, the call goes on as
 *                        an ordinary operation that has cast already
 *   tt_express_advance   the ordinary way: called by run, for an operation with `express` set
 */
#include <string.h>

#include "run/run.h"

extern const struct tt_algorithm tt_allreduce_one_shot;
_Static_assert(TT_SLOT_RANKS <= TT_MAX_SOURCES, "one sum takes them all");
_Static_assert(TT_EXPRESS_RANKS <= TT_SLOT_RANKS && TT_EXPRESS_BYTES <= TT_SLOT_BYTES,
	       "a slot holds every call that the plan binds to slots");

bool tt_express_takes(const struct tt_op *op)
{
	tuttiComm_t c = op->comm;

	return c->slots && op->kept->algorithm == &tt_allreduce_one_shot && op->total > 0 &&
	       op->total <= TT_SLOT_BYTES && c->nranks <= TT_SLOT_RANKS;
}

/* The ranks whose bytes are there, from *from on.
 * 1 all are, lines points at them | 0 not yet | < 0 */
static inline int look(tuttiComm_t c, size_t bytes, uint32_t stamp, const void **lines, int *from)
{
	for (int r = *from; r < c->nranks; r++) {
		int rc = r == c->rank ? 1
				      : c->slots->slot_ops->poll(c->slots, r, bytes, c->slot_posts,
								stamp, &lines[r]);

		*from = r;
		if (rc <= 0)
			return rc;
	}
	return 1;
}

static inline void sum(tuttiComm_t c, tt_reduce_fn *reduce, void *out, const void *in,
		       const void *const *lines, size_t bytes, size_t element_bytes)
{
	size_t step = bytes <= TT_SLOT_SMALL ? TT_SLOT_LINE : bytes;

	for (size_t line = 0, at = 0; at < bytes; line++, at += step) {
		const void *src[TT_SLOT_RANKS];
		size_t some = bytes - at < step ? bytes - at : step;

		for (int r = 0; r < c->nranks; r++)
			src[r] = r == c->rank ? (const char *)in + at
					      : (const char *)lines[r] + line * TT_LINE;
		reduce((char *)out + at, NULL, src, c->nranks, some / element_bytes);
	}
	for (int r = 0; r < c->nranks; r++)
		c->last_received[r] = c->seq;
}

/* ---- the ordinary way ------------------------------------------------------------------------ */

int tt_express_advance(struct tt_op *op)
{
	tuttiComm_t c = op->comm;
	const void *lines[TT_SLOT_RANKS];
	int rc;

	/* run asks for each cursor; in place, a second sum would be one too many */
	if (op->nfinished == op->ncursors)
		return 0;
	if (!op->cast) {
		tt_fault_point(c);
		c->slots->slot_ops->post(c->slots, op->base[TT_IN], op->total, ++c->slot_posts,
					 op->stamp);
		op->cast = true;
	}
	op->awaited = 0;
	rc = look(c, op->total, op->stamp, lines, &op->awaited);
	if (rc <= 0)
		return rc;
	tt_fault_point(c);
	sum(c, op->reduce, op->base[TT_OUT], op->base[TT_IN], lines, op->total, op->element_bytes);
	op->cursor[0].finished = true;
	op->nfinished = op->ncursors;
	return 1;
}

void tt_express_learn(const struct tt_op *op)
{
	const struct tt_request *r = op->request;
	tuttiComm_t c = op->comm;

	if (op->total >= TT_SINGLE_COPY_BYTES || r->barrier || r->scaled || r->op == tuttiAvg ||
	    c->fault_what)
		return;
	c->express[tt_express_row(r->count, r->type, r->op)] = (struct tt_express){
		.reduce = op->reduce,
		.count = r->count,
		.bytes = op->total,
		.type = (uint8_t)r->type,
		.op = (uint8_t)r->op,
		.call = op->call,
		.digest = op->digest,
	};
}

/* ---- the short way --------------------------------------------------------------------------- */

/* in place or apart, and both there */
static bool buffers_fit(const void *in, const void *out, size_t bytes)
{
	return in && out && (in == out || tt_apart(in, bytes, out, bytes));
}

static __attribute__((noinline)) int go_on(tuttiComm_t c, const struct tt_express *x,
					   const void *in, void *out)
{
	struct tt_request r = { .collective = TT_ALLREDUCE, .in = in, .out = out, .count = x->count,
				.type = x->type, .op = x->op, .root = -1, .comm = c };
	struct tt_op op;

	tt_op_init(&op, &r);
	tt_op_resume(&op);
	return tt_run(&op);
}

static int begin_and_end(tuttiComm_t c, const struct tt_express *x, const void *in, void *out)
{
	const void *lines[TT_SLOT_RANKS];
	uint32_t stamp, spins = tt_wait_spins(c);
	int rc, from = 0;

	c->history = tt_mix(c->history, x->digest);
	stamp = (uint32_t)(c->history >> 32);
	tt_control_note(c->ctl, ++c->seq, &x->call);
	c->slots->slot_ops->post(c->slots, in, x->bytes, ++c->slot_posts, stamp);
	while ((rc = look(c, x->bytes, stamp, lines, &from)) == 0 && spins-- > 0)
		tt_cpu_relax();
	if (tt_unlikely(rc <= 0))
		return go_on(c, x, in, out);
	sum(c, x->reduce, out, in, lines, x->bytes, x->bytes / x->count);
	tt_control_done(c->ctl, c->seq);
	atomic_store_explicit(&c->operations,
			      atomic_load_explicit(&c->operations, memory_order_relaxed) + 1,
			      memory_order_relaxed);
	return 0;
}

int tt_express(tuttiComm_t c, const void *in, void *out, size_t count, tuttiDataType_t type,
	       tuttiRedOp_t op)
{
	const struct tt_express *x = &c->express[tt_express_row(count, type, op)];
	struct tt_fpmode mode;
	int rc = 1;

	/* streams' threads may write the row */
	if (atomic_load_explicit(&c->queued, memory_order_acquire) ||
	    x->count != count || x->type != (unsigned)type || x->op != (unsigned)op || !x->reduce ||
	    !buffers_fit(in, out, x->bytes))
		return 1;
	if (tt_comm_begin(c) && !atomic_load_explicit(&c->finalized, memory_order_relaxed) &&
	    !tt_control_broken(c->ctl)) {
		mode = tt_fpmode_enter();
		rc = begin_and_end(c, x, in, out);
		tt_fpmode_leave(mode);
	}
	tt_comm_leave(c);
	return rc;
}
