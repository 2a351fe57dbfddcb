/*
 * slot_pieces.c - the way by slots for calls of any size, in pieces: between two ranks, each of which gives and
 * takes (reduce-scatter, allgather, alltoall); of ranks that share cores, every collective that only copies
 *
 *   give   post a piece of each part that other ranks take; copy this rank's own piece meanwhile
 *   take   the posts of all givers are there: copy the pieces to the output, or sum them in rank order
 *
 * A piece is a round of posts, so a root may be several pieces ahead of its readers.
 *
 * Two ranks that both give and take work all the time, so no copy has to overlap another one, as messages do it:
 * those keep more memory in the caches. Times by slots to times by messages or single copy, EPYC 9004, ordinary
 * memory, near cores, bytes of the call: alltoall 64 KiB 0.93, 256 KiB 0.89, 1 MiB 0.74, 4 MiB 0.95, 32 MiB 1.0.
 * Pieces of 32 KiB take up to a fifth longer than pieces of 128 KiB.
 *
 * Ranks that share cores cannot overlap copies either, and copy pieces that are in the caches faster than the kernel
 * copies all: n = 4 on 2 cores, times by pieces to times by single copy, 4 MiB: gather 0.35, broadcast 0.74, allgather
 * 0.71, alltoall 0.83. Called by express.c.
 */
#include <string.h>

#include "local/form.h"
#include "local/slots.h"
#include "local/ways.h"

/* Half a page: with its peer's, two such posts of each rank stay in a second cache of 1 MiB. */
#define PIECE_OF_TWO (TT_SLOT_BYTES / 2)

/* Copies of ranks that outnumber cores. Not a broadcast to more than two ranks a core: context switches take longer than
 * a copy by the kernel. Not a scatter: the root would copy all parts before any rank takes its own. */
bool tt_slot_pieces_fit(const struct tt_op *op, const struct tt_connectivity *p)
{
	unsigned collective = op->call.request->collective;

	return p->one_host && !p->over_tcp && p->cores && p->nranks > p->cores &&
	       p->nranks <= TT_EXPRESS_RANKS && op->bound.block > 0 &&
	       !tt_needs[collective].reduces && collective != TT_SCATTER &&
	       (collective != TT_BROADCAST || p->nranks <= 2 * p->cores);
}

/* Parts in a post: one for each rank, or one for all */
static size_t parts(const struct tt_form *f)
{
	return f->need->in_parts && f->nranks > 2 ? (size_t)f->nranks : 1;
}

/* Bytes of each part in a piece. The last two pieces are halves of the rest: a short post would lie in lines
 * (shm_slots.c). */
static size_t piece_of(const struct tt_form *f, size_t left)
{
	size_t most = f->nranks == 2 ? PIECE_OF_TWO : TT_SLOT_BYTES / parts(f) / TT_LINE * TT_LINE;

	if (left >= 2 * most)
		return most;
	return left > most ? tt_slots_half(left) : left;
}

static void post(struct tt_op *op, const struct tt_form *f, size_t bytes)
{
	static const struct tt_stores_call ordinary;

	if (!tt_form_gives(f, f->rank)) {
		tt_slots_pass(op->comm);
		return;
	}
	if (parts(f) > 1) {
		tt_slots_post_parts(op->comm, &ordinary, op->bound.base[TT_IN] + op->slots.done,
				    f->block, bytes, op->call.stamp);
	} else {
		op->stores = tt_stores_next(op->comm->calls.slot_stores, bytes, false);
		tt_slots_copy(op->comm, &op->stores,
			      op->bound.base[TT_IN] + tt_form_posted_from(f) + op->slots.done,
			      bytes, op->call.stamp);
	}
	tt_slots_count(op->comm, f->need->out_all ? bytes * (size_t)(f->nranks - 1) : bytes);
}

/* Other ranks may overwrite this rank's own piece later (in place), so it goes before theirs. */
static void copy_own(struct tt_op *op, const struct tt_form *f, size_t bytes)
{
	const char *own;
	char *to;

	if (f->need->reduces || !tt_form_has_input(f, f->rank) || !tt_form_takes(f, f->rank))
		return;
	own = op->bound.base[TT_IN] + tt_form_from(f) + op->slots.done;
	to = op->bound.base[TT_OUT] + tt_form_to(f, f->rank) + op->slots.done;
	if (to != own)
		tt_op_copy(op, TT_OUT, to, own, bytes);
}

/* As tt_slots_poll, of the posts that this rank takes */
static int poll(struct tt_op *op, const struct tt_form *f, size_t posted, const void **posts)
{
	int rc = 1;

	op->slots.awaited = 0;
	if (tt_form_is_full(f))
		return tt_slots_poll(op->comm, posted, op->call.stamp, posts, &op->slots.awaited);
	for (int r = 0; tt_form_takes(f, f->rank) && r < f->nranks && rc > 0; r++) {
		if (r == f->rank || !tt_form_gives(f, r))
			continue;
		rc = tt_slots_poll_peer(op->comm, r, posted, op->call.stamp, &posts[r]);
		op->slots.awaited = r;
	}
	return rc;
}

/* Are the outputs of all ranks of the host larger than its last cache? */
static bool no_cache_keeps(const struct tt_form *f)
{
	return tt_form_is_full(f) &&
	       tt_form_taken(f) * (size_t)f->nranks >= 4 * (size_t)TT_NONTEMPORAL_BYTES;
}

static void take(struct tt_op *op, const struct tt_form *f, const void *const *posts, size_t bytes)
{
	char *out = (char *)op->bound.base[TT_OUT] + op->slots.done;
	size_t piece = parts(f) > 1 ? bytes * (size_t)f->rank : 0;
	bool past = op->bound.past || no_cache_keeps(f);

	for (int r = 0; r < f->nranks; r++) {
		char *to = out + tt_form_to(f, r);

		if (r == f->rank || !tt_form_gives(f, r))
			continue;
		if (f->need->reduces)
			tt_slots_sum_pair(op->comm, op->bound.reduce, to, NULL,
					  op->bound.base[TT_IN] + tt_form_from(f) + op->slots.done,
					  posts[r], bytes, bytes / op->bound.element_bytes);
		else if (f->nranks == 2)
			tt_slots_copy_pair(to, posts[r], bytes, op->bound.past);
		else if (past)
			tt_copy_nontemporal(to, (const char *)posts[r] + piece, bytes);
		else
			tt_copy_from_peer(to, (const char *)posts[r] + piece, bytes);
	}
}

int tt_slot_pieces_advance(struct tt_op *op, const struct tt_form *f)
{
	tuttiComm_t c = op->comm;
	size_t bytes = piece_of(f, f->block - op->slots.done), posted = bytes * parts(f);
	const void *posts[TT_SLOT_RANKS];
	int rc;

	if (!op->slots.posted) {
		rc = tt_form_gives(f, f->rank) ? tt_slots_ready(c, posted, &op->slots.awaited) : 1;
		if (rc <= 0)
			return rc;
		tt_fault_point(c);
		post(op, f, bytes);
		copy_own(op, f, bytes);
		op->slots.posted = true;
	}
	rc = poll(op, f, posted, posts);
	if (rc <= 0)
		return rc;
	tt_fault_point(c);
	if (tt_form_takes(f, f->rank))
		take(op, f, posts, bytes);
	if (!tt_form_is_full(f))
		tt_slots_release(c, posted);
	op->slots.done += bytes;
	op->slots.posted = false;
	if (op->slots.done == f->block)
		op->cursors.nfinished = op->cursors.n;
	return 1;
}
