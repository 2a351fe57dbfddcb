/*
 * express.c - the way by slots, in one step: collectives whose posts have up to 64 KiB (allreduce, or two ranks where
 * lines stay shared, mem/peer_lines.h), or 16 KiB, or 256 KiB if ranks share cores, among up to 64 ranks of one host;
 * of any size between two ranks without a root (slot_pair.c, slot_pieces.c), and where ranks share cores and only copy
 * (slot_pieces.c)
 *
 * Where the ranks of a communicator share one host's memory, algorithms of one step run without
 * messages. The form of the collective (form.h) says who gives and who takes. Agreed facts decide, so
 * all ranks take this way or none:
 *   1  post: each giver's input goes to a shared-memory slot, where all others read it
 *   2  take: when the posts of all givers are there, a taker copies its pieces of them, or sums
 *      them in rank order, directly from the slots: the bits of one-shot, reduce-to-one and direct
 *   3  release: where not all ranks post, takers say that they have read (slots.h)
 *
 *   advance   called by run for an operation of this way
 *   again     called by tt_run_cached for a call like one that went before, without an operation.
 *             If the other ranks are late, the call goes on as an operation
 */
#include <string.h>

#include "local/form.h"
#include "local/slots.h"
#include "local/ways.h"
#include "run/number.h"
#include "run/run.h"
#include "run/stores.h"

_Static_assert(TT_EXPRESS_RANKS <= TT_SLOT_RANKS && TT_EXPRESS_BYTES <= TT_SLOT_BYTES &&
		       TT_EXPRESS_CROWDED_BYTES <= TT_SLOT_BYTES,
	       "a slot holds every call that the plan binds to slots");

/* Is it a call between two ranks, each of which gives and takes? Two ranks read as many bytes in
 * one-shot as in two-shot, with the same bits. */
static bool fits_pair(const struct tt_op *op)
{
	const struct tt_need *need = &tt_needs[op->call.request->collective];

	return op->comm->nranks == 2 && need->in_all && need->out_all && op->bound.block > 0 &&
	       (!need->reduces || op->bound.cached->algorithm->in_place);
}

static bool fits(const struct tt_op *op)
{
	const struct tt_connectivity facts = tt_comm_connectivity(op->comm);

	return op->comm->paths.slots && (fits_pair(op) || tt_slot_pieces_fit(op, &facts) ||
					 tt_plan_on_slots(op->bound.plan, &facts, op->bound.block));
}

#define INLINE static inline __attribute__((always_inline)) /* so that forms are folded */

/* ---- post ------------------------------------------------------------------------------------ */

/* May this rank begin the round? 1 | 0: *ret_missing reads an older post of this rank | < 0 */
INLINE int ready(tuttiComm_t c, const struct tt_form *f, int *ret_missing)
{
	return tt_form_gives(f, f->rank) ? tt_slots_ready(c, tt_form_posted(f), ret_missing) : 1;
}

INLINE void post(tuttiComm_t c, const struct tt_form *f, const char *in, uint32_t stamp)
{
	size_t bytes = tt_form_posted(f);
	struct tt_stores_call call;

	if (!tt_form_gives(f, f->rank)) {
		tt_slots_pass(c);
		return;
	}
	in += tt_form_posted_from(f);
	if (tt_likely(f->block < TT_STORES_LEAST)) {
		tt_slots_post(c, in, bytes, stamp, false);
	} else {
		call = tt_stores_next(c->calls.slot_stores, bytes, !tt_form_is_full(f));
		if (f->need->in_parts && f->nranks > 2)
			tt_slots_post_parts(c, &call, in, f->block, f->block, stamp);
		else
			tt_slots_copy(c, &call, in, bytes, stamp);
	}
	tt_slots_count(c, tt_form_sent(f));
}

/* ---- take ------------------------------------------------------------------------------------ */

/* The posts that this rank takes, from rank *from on, as tt_slots_poll */
INLINE int poll(tuttiComm_t c, const struct tt_form *f, uint32_t stamp, const void **posts,
		int *from)
{
	size_t bytes = tt_form_posted(f);

	if (tt_form_is_full(f))
		return tt_slots_poll(c, bytes, stamp, posts, from);
	for (int r = tt_form_takes(f, f->rank) ? *from : f->nranks; r < f->nranks; r++) {
		int rc = r == f->rank || !tt_form_gives(f, r)
				 ? 1
				 : tt_slots_poll_peer(c, r, bytes, stamp, &posts[r]);

		*from = r;
		if (rc <= 0)
			return rc;
	}
	return 1;
}

/* Returns the bytes of a post without gaps, joined in room if the post is in lines. Whole lines are
 * copied, since the compiler inlines a copy of constant size. */
INLINE const char *joined(char *room, const char *post, size_t bytes)
{
	if (bytes <= TT_SLOT_LINE || bytes > TT_SLOT_SMALL)
		return post;
	for (size_t at = 0; at < bytes; at += TT_SLOT_LINE, post += TT_LINE)
		memcpy(room + at, post, TT_SLOT_LINE);
	return room;
}

/* Sums more posts than one call of reduce takes: the first eight, then their sum and seven more, as
 * the plans do; in parts that stay in the cache, since out may be this rank's input. */
static __attribute__((noinline)) void sum_many(const struct tt_form *f, tt_reduce_fn *reduce,
					       char *out, const char *in, const void *const *posts,
					       size_t count)
{
	enum { PART = 4096 };
	char part[PART] __attribute__((aligned(TT_LINE))), room[TT_MAX_SOURCES][TT_SLOT_SMALL];
	size_t posted = tt_form_posted(f), width = f->block / count;
	const void *src[TT_MAX_SOURCES];

	for (size_t at = 0, some; at < f->block; at += some) {
		int n = 0;

		some = f->block - at < PART ? f->block - at : PART;
		for (int r = 0; r < f->nranks; r++) {
			bool last = r == f->nranks - 1;

			src[n] = r == f->rank ? in + at
					      : joined(room[n], posts[r], posted) +
							tt_form_piece(f) + at;
			if (++n < TT_MAX_SOURCES && !last)
				continue;
			reduce(last ? out + at : part, NULL, src, n, some / width);
			src[0] = part;
			n = 1;
		}
	}
}

/* One call of reduce for all lines. posts[] may be changed; posts[rank] is free for this rank's input. */
INLINE void sum(tuttiComm_t c, const struct tt_form *f, tt_reduce_fn *reduce, char *out,
		const char *in, const void **posts, size_t count)
{
	size_t bytes = tt_form_posted(f), piece = tt_form_piece(f);
	char room[TT_MAX_SOURCES][TT_SLOT_SMALL];

	in += tt_form_from(f);
	if (tt_unlikely(f->nranks > TT_MAX_SOURCES)) {
		sum_many(f, reduce, out, in, posts, count);
		return;
	}
	if (bytes > TT_SLOT_SMALL && f->nranks == 2) {
		tt_slots_sum_pair(c, reduce, out, NULL, in, posts[!f->rank], bytes, count);
		if (tt_readers_own && !tt_form_is_full(f)) /* the giver writes there again */
			tt_own_lines((void *)posts[!f->rank], bytes);
		return;
	}
	if (bytes > TT_SLOT_LINE || piece)
		for (int r = 0; r < f->nranks; r++)
			if (r != f->rank)
				posts[r] = joined(room[r], posts[r], bytes) + piece;
	posts[f->rank] = in;
	reduce(out, NULL, posts, f->nranks, count);
}

/* Copies this rank's piece of a post. A post in lines has flags between its bytes. */
INLINE void copy_post(const struct tt_form *f, char *out, const char *post)
{
	size_t bytes = tt_form_posted(f), at = tt_form_piece(f), left = f->block, some;

	if (bytes > TT_SLOT_SMALL && f->nranks == 2) {
		if (tt_form_is_full(f))
			tt_copy_ahead(out, post, left);
		else if (tt_readers_own)
			tt_copy_and_own(out, (void *)(uintptr_t)post, left);
		else
			tt_copy_from_giver(out, post, left);
	} else if (bytes > TT_SLOT_SMALL) {
		tt_copy(out, post + at, left);
	} else {
		for (; left; left -= some, at += some, out += some) {
			size_t begun = at % TT_SLOT_LINE, rest = TT_SLOT_LINE - begun;

			some = left < rest ? left : rest;
			memcpy(out, post + at / TT_SLOT_LINE * TT_LINE + begun, some);
		}
	}
}

/* Copies the pieces of all givers, this rank's own first: the others may overwrite its input. */
INLINE void copy(const struct tt_form *f, char *out, const char *in, const void *const *posts)
{
	char *to = out + tt_form_to(f, f->rank);

	if (tt_form_has_input(f, f->rank) && to != in + tt_form_from(f))
		tt_copy(to, in + tt_form_from(f), f->block);
	for (int r = 0; r < f->nranks; r++)
		if (r != f->rank && tt_form_gives(f, r))
			copy_post(f, out + tt_form_to(f, r), posts[r]);
}

/* Sums or copies the posts of all givers, which have arrived, and ends the round. */
INLINE void take(tuttiComm_t c, const struct tt_form *f, tt_reduce_fn *reduce, void *out,
		 const void *in, const void **posts, size_t count)
{
	if (tt_form_takes(f, f->rank)) {
		if (f->need->reduces)
			sum(c, f, reduce, out, in, posts, count);
		else
			copy(f, out, in, posts);
	}
	if (!tt_form_is_full(f))
		tt_slots_release(c, tt_form_posted(f));
}

/* ---- as an operation ------------------------------------------------------------------------- */

/* Long calls, and those that post parts: without this rank's own */
static bool in_pieces(const struct tt_form *f)
{
	if (f->nranks == 2)
		return tt_form_posted(f) > TT_EXPRESS_BYTES &&
		       (tt_form_is_full(f) || !f->need->reduces);
	return !f->need->reduces && tt_form_posted(f) >= TT_EXPRESS_BYTES;
}

static int advance(struct tt_op *op)
{
	tuttiComm_t c = op->comm;
	const struct tt_op_bound *b = &op->bound;
	const struct tt_form f = tt_form_of(c, op->call.request->collective, op->call.request->root,
					    b->block);
	const void *posts[TT_SLOT_RANKS];
	int rc;

	if (in_pieces(&f))
		return op->call.request->collective == TT_ALLREDUCE
			       ? tt_slot_pair_advance(op)
			       : tt_slot_pieces_advance(op, &f);
	if (!op->slots.posted) {
		rc = ready(c, &f, &op->slots.awaited);
		if (rc <= 0)
			return rc;
		tt_fault_point(c);
		post(c, &f, b->base[TT_IN], op->call.stamp);
		op->slots.posted = true;
	}
	op->slots.awaited = 0;
	rc = poll(c, &f, op->call.stamp, posts, &op->slots.awaited);
	if (rc <= 0)
		return rc;
	tt_fault_point(c);
	take(c, &f, b->reduce, b->base[TT_OUT], b->base[TT_IN], posts, op->call.request->count);
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
	const struct tt_request *r = op->call.request;
	const struct tt_form f = tt_form_of(op->comm, r->collective, r->root, op->bound.block);

	(void)row;
	(void)extents;
	return tt_form_given(&f) < TT_SINGLE_COPY_BYTES && r->op != tuttiAvg;
}

/* No needed buffer is NULL; they are in place (this rank's own piece stays where it is) or apart. */
INLINE bool buffers_fit(const struct tt_form *f, const char *in, const char *out)
{
	bool input = tt_form_has_input(f, f->rank), takes = tt_form_takes(f, f->rank);

	if ((input && !in) || (takes && !out))
		return false;
	return !input || !takes || in + tt_form_from(f) == out + tt_form_to(f, f->rank) ||
	       tt_apart(in, tt_form_given(f), out, tt_form_taken(f));
}

static __attribute__((noinline)) int go_on(tuttiComm_t c, const struct tt_plan_row *row,
					   const void *in, void *out, bool posted)
{
	bool barrier = row->call.op == TT_CALL_BARRIER;
	struct tt_request r = {
		.collective = row->call.collective,
		.barrier = barrier,
		.in = in,
		.out = out,
		.count = row->call.count,
		.type = row->call.type,
		.op = barrier ? tuttiBor : row->call.op,
		.root = row->call.root,
		.comm = c,
	};
	struct tt_op op;

	tt_op_init(&op, &r);
	tt_op_resume(&op, &tt_slot_way);
	op.slots.posted = posted;
	return tt_run(&op);
}

/* Spends one spin. false: none is left. *left: the remaining spins, UNKNOWN_SPINS before the first
 * one */
#define UNKNOWN_SPINS UINT32_MAX
INLINE bool spins(tuttiComm_t c, uint32_t *left)
{
	if (*left == UNKNOWN_SPINS)
		*left = tt_wait_spins(c);
	tt_cpu_relax();
	return (*left)-- > 0;
}

INLINE int call_again(tuttiComm_t c, const struct tt_plan_row *row, const void *in, void *out,
		      unsigned collective)
{
	const struct tt_form f = tt_form_of(c, collective, row->call.root, row->bytes);
	const void *posts[TT_SLOT_RANKS];
	uint32_t stamp, left = UNKNOWN_SPINS, yields = 0;
	int rc, from = 0, reader;

	if (tt_unlikely(!buffers_fit(&f, in, out)))
		return 1;
	stamp = tt_number_call(c, &row->call, row->digest);
	if (tt_unlikely(ready(c, &f, &reader) <= 0))
		return go_on(c, row, in, out, false);
	post(c, &f, in, stamp);
	do
		rc = poll(c, &f, stamp, posts, &from);
	while (rc == 0 && (spins(c, &left) || tt_wait_yield(c, &yields)));
	if (tt_unlikely(rc <= 0))
		return go_on(c, row, in, out, true);
	if (left != UNKNOWN_SPINS)
		tt_wait_spun(c);
	take(c, &f, row->reduce, out, in, posts, row->key.count);
	tt_control_done(c->ctl, c->calls.seq);
	tt_op_count(c);
	return 0;
}

/* The form of each collective is folded into its own copy of call_again. The copies stay functions of
 * their own: in one function, the variables of the small allreduce go to the stack. */
#define COPY(name, collective)                                                                  \
	static __attribute__((noinline)) int name(tuttiComm_t c, const struct tt_plan_row *row, \
						  const void *in, void *out)                    \
	{                                                                                       \
		return call_again(c, row, in, out, collective);                                 \
	}
COPY(allreduce, TT_ALLREDUCE)
COPY(reduce, TT_REDUCE)
COPY(broadcast, TT_BROADCAST)
COPY(allgather, TT_ALLGATHER)
COPY(reduce_scatter, TT_REDUCE_SCATTER)
COPY(alltoall, TT_ALLTOALL)
COPY(gather, TT_GATHER)
COPY(scatter, TT_SCATTER)

const struct tt_way tt_slot_way = {
	.name = "slots",
	.fits = fits,
	.advance = advance,
	.waits_for = tt_slots_wait_for,
	.prepare = prepare,
	.again = { [TT_ALLREDUCE] = allreduce,
		   [TT_REDUCE] = reduce,
		   [TT_BROADCAST] = broadcast,
		   [TT_ALLGATHER] = allgather,
		   [TT_REDUCE_SCATTER] = reduce_scatter,
		   [TT_ALLTOALL] = alltoall,
		   [TT_GATHER] = gather,
		   [TT_SCATTER] = scatter },
};
