/*
 * slot_exchange.c - the way by slots between two ranks, for posts of more than 64 KiB that each takes of the
 * other: reduce-scatter, allgather, alltoall
 *
 *   give   post a piece of the part that the other rank takes; copy this rank's own piece meanwhile
 *   take   the other's post is there: copy it to the output, or sum it with this rank's, in rank order
 *
 * Both ranks work all the time, so no copy has to overlap another one, as messages do it: those keep more
 * memory in the caches. Times by slots to times by messages or single copy, EPYC 9004, ordinary memory, near cores,
 * bytes of the call: alltoall 64 KiB 0.93, 256 KiB 0.89, 1 MiB 0.74, 4 MiB 0.95, 32 MiB 1.0. Pieces of 32 KiB
 * take up to a fifth longer than pieces of 128 KiB. Called by express.c.
 */
#include <string.h>

#include "local/form.h"
#include "local/slots.h"
#include "local/ways.h"

/* Half a page: with its peer's, two such posts of each rank stay in a second cache of 1 MiB. */
#define PIECE (TT_SLOT_BYTES / 2)

/* The last two pieces are halves of the rest: a short post would lie in lines (shm_slots.c). */
static size_t piece_of(size_t left)
{
	if (left >= 2 * PIECE)
		return PIECE;
	return left > PIECE ? tt_slots_half(left) : left;
}

/* The other rank may overwrite this rank's own piece later (in place), so it goes first. */
static void give(struct tt_op *op, const struct tt_form *f, size_t bytes)
{
	size_t done = op->slots.done;
	const char *in = op->bound.base[TT_IN], *own = in + tt_form_from(f) + done;
	char *to = (char *)op->bound.base[TT_OUT] + tt_form_to(f, f->rank) + done;

	op->stores = tt_stores_next(op->comm->calls.slot_stores, bytes);
	tt_slots_copy(op->comm, &op->stores, in + tt_form_posted_from(f) + done, bytes,
		      op->call.stamp);
	tt_slots_count(op->comm, bytes);
	if (!f->need->reduces && to != own)
		tt_op_copy(op, TT_OUT, to, own, bytes);
}

static void take(struct tt_op *op, const struct tt_form *f, const char *theirs, size_t bytes)
{
	size_t done = op->slots.done;
	const char *own = (char *)op->bound.base[TT_IN] + tt_form_from(f) + done;
	char *out = (char *)op->bound.base[TT_OUT] + tt_form_to(f, !f->rank) + done;

	if (f->need->reduces)
		tt_slots_sum_pair(op->comm, op->bound.reduce, out, NULL, own, theirs, bytes,
				  bytes / op->bound.element_bytes);
	else
		tt_slots_copy_pair(out, theirs, bytes, op->bound.past);
}

int tt_slot_exchange_advance(struct tt_op *op, const struct tt_form *f)
{
	tuttiComm_t c = op->comm;
	size_t bytes = piece_of(f->block - op->slots.done);
	const void *posts[2];
	int rc;

	if (!op->slots.posted) {
		rc = tt_slots_ready(c, bytes, &op->slots.awaited);
		if (rc <= 0)
			return rc;
		tt_fault_point(c);
		give(op, f, bytes);
		op->slots.posted = true;
	}
	op->slots.awaited = 0;
	rc = tt_slots_poll(c, bytes, op->call.stamp, posts, &op->slots.awaited);
	if (rc <= 0)
		return rc;
	tt_fault_point(c);
	take(op, f, posts[!c->rank], bytes);
	op->slots.done += bytes;
	op->slots.posted = false;
	if (op->slots.done == f->block)
		op->cursors.nfinished = op->cursors.n;
	return 1;
}
