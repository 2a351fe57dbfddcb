/*
 * express.c - the way by slots: allreduces of up to 64 KiB among few ranks of one host, one-shot, and
 * of any size between two (slot_pair.c)
 *
 * Where the ranks of a communicator share one host's memory, one-shot runs without messages. Agreed
 * facts decide, so all ranks take this way or none:
 *   1  post: this rank's bytes go to a shared-memory slot, where all others read them; there is no
 *      acknowledgement, and no room to wait for
 *   2  when the posts of all ranks are there, they are summed in rank order, directly from the
 *      slots: the bits of one-shot
 *
 *   advance   called by run for an operation of this way
 *   again     called by tt_run_cached for a call like one that went before, without an operation.
 *             If the other ranks are late, the call goes on as an operation that has posted already
 */
#include <string.h>

#include "local/slots.h"
#include "local/ways.h"
#include "run/number.h"
#include "run/run.h"
#include "run/stores.h"

extern const struct tt_algorithm tt_allreduce_one_shot;
_Static_assert(TT_SLOT_RANKS <= TT_MAX_SOURCES, "one sum takes the posts of all ranks");
_Static_assert(TT_EXPRESS_RANKS <= TT_SLOT_RANKS && TT_EXPRESS_BYTES <= TT_SLOT_BYTES,
	       "a slot holds every call that the plan binds to slots");

/* Two ranks read as many bytes in one-shot as in two-shot, and both give the same bits. */
static bool fits_pair(const struct tt_op *op)
{
	return op->comm->nranks == 2 && op->call.request->collective == TT_ALLREDUCE &&
	       op->bound.cached->algorithm->in_place;
}

static bool fits(const struct tt_op *op)
{
	tuttiComm_t c = op->comm;

	return c->paths.slots && op->bound.tiles.total > 0 &&
	       (fits_pair(op) ||
		(op->bound.cached->algorithm == &tt_allreduce_one_shot &&
		 op->bound.tiles.total <= TT_SLOT_BYTES && c->nranks <= TT_SLOT_RANKS));
}

static inline void sum(tuttiComm_t c, tt_reduce_fn *reduce, void *out, const void *in,
		       const void *const *posts, size_t bytes, size_t element_bytes)
{
	size_t step = bytes <= TT_SLOT_SMALL ? TT_SLOT_LINE : bytes;

	if (bytes > TT_SLOT_SMALL && c->nranks == 2) {
		tt_slots_sum_pair(c, reduce, out, NULL, in, posts[!c->rank], bytes, element_bytes);
		bytes = 0;
	}
	for (size_t line = 0, at = 0; at < bytes; line++, at += step) {
		const void *src[TT_SLOT_RANKS];
		size_t some = bytes - at < step ? bytes - at : step;

		for (int r = 0; r < c->nranks; r++)
			src[r] = r == c->rank ? (const char *)in + at
					      : (const char *)posts[r] + line * TT_LINE;
		reduce((char *)out + at, NULL, src, c->nranks, some / element_bytes);
	}
	for (int r = 0; r < c->nranks; r++)
		c->calls.last_received[r] = c->calls.seq;
}

static inline void post(tuttiComm_t c, const void *in, size_t bytes, uint32_t stamp)
{
	struct tt_stores_call call;

	if (tt_likely(bytes < TT_STORES_LEAST)) {
		tt_slots_post(c, in, bytes, stamp, false);
		return;
	}
	call = tt_stores_next(c->calls.slot_stores, bytes);
	tt_slots_copy(c, &call, in, bytes, stamp);
}

/* ---- as an operation ------------------------------------------------------------------------- */

static int advance(struct tt_op *op)
{
	tuttiComm_t c = op->comm;
	const struct tt_op_bound *b = &op->bound;
	const void *posts[TT_SLOT_RANKS];
	int rc;

	if (b->tiles.total > TT_SLOT_BYTES)
		return tt_slot_pair_advance(op);
	if (!op->slots.posted) {
		tt_fault_point(c);
		post(c, b->base[TT_IN], b->tiles.total, op->call.stamp);
		op->slots.posted = true;
	}
	op->slots.awaited = 0;
	rc = tt_slots_poll(c, b->tiles.total, op->call.stamp, posts, &op->slots.awaited);
	if (rc <= 0)
		return rc;
	tt_fault_point(c);
	sum(c, b->reduce, b->base[TT_OUT], b->base[TT_IN], posts, b->tiles.total, b->element_bytes);
	op->cursors.nfinished = op->cursors.n;
	return 1;
}

int tt_slots_wait_for(const struct tt_op *op, uint32_t i, struct tt_endpoint **ret_ep)
{
	(void)i;
	*ret_ep = op->comm->paths.slots;
	return op->slots.awaited;
}

/* ---- as a repeated call ---------------------------------------------------------------------- */

static bool prepare(struct tt_plan_row *row, const struct tt_op *op,
		    const struct tt_extents *extents)
{
	(void)row;
	(void)extents;
	return op->bound.tiles.total < TT_SINGLE_COPY_BYTES && op->call.request->op != tuttiAvg;
}

/* in place or apart, and neither is NULL */
static bool buffers_fit(const void *in, const void *out, size_t bytes)
{
	return in && out && (in == out || tt_apart(in, bytes, out, bytes));
}

static __attribute__((noinline)) int go_on(tuttiComm_t c, const struct tt_plan_row *row,
					   const void *in, void *out)
{
	bool barrier = row->call.op == TT_CALL_BARRIER;
	struct tt_request r = {
		.collective = TT_ALLREDUCE,
		.barrier = barrier,
		.in = in,
		.out = out,
		.count = row->call.count,
		.type = row->call.type,
		.op = barrier ? tuttiBor : row->call.op,
		.root = -1,
		.comm = c,
	};
	struct tt_op op;

	tt_op_init(&op, &r);
	tt_op_resume(&op, &tt_slot_way);
	return tt_run(&op);
}

static int again(tuttiComm_t c, const struct tt_plan_row *row, const void *in, void *out)
{
	const void *posts[TT_SLOT_RANKS];
	uint32_t stamp, spins;
	int rc, from = 0;

	if (tt_unlikely(!buffers_fit(in, out, row->bytes)))
		return 1;
	spins = tt_wait_spins(c);
	stamp = tt_number_call(c, &row->call, row->digest);
	post(c, in, row->bytes, stamp);
	while ((rc = tt_slots_poll(c, row->bytes, stamp, posts, &from)) == 0 && spins-- > 0)
		tt_cpu_relax();
	if (tt_unlikely(rc <= 0))
		return go_on(c, row, in, out);
	sum(c, row->reduce, out, in, posts, row->bytes, row->bytes / row->key.count);
	tt_control_done(c->ctl, c->calls.seq);
	atomic_store_explicit(&c->calls.operations,
			      atomic_load_explicit(&c->calls.operations, memory_order_relaxed) + 1,
			      memory_order_relaxed);
	return 0;
}

const struct tt_way tt_slot_way = {
	.name = "slots",
	.fits = fits,
	.advance = advance,
	.waits_for = tt_slots_wait_for,
	.prepare = prepare,
	.again = again,
};
