/*
 * slot_pair.c - the way by slots between two ranks, for allreduces of more than 64 KiB: two-shot
 *
 *   give   post the half of the input that the other rank sums
 *   sum    the other's post is there: sum this rank's half, in rank order, and post the result
 *   take   the other's result is there: copy it
 *
 * A long call takes several pieces of at most two pages, none of them short. Every element is summed once, by
 * the kernel of one-shot and in its order, so the bits are the same. A rank copies, reads or writes 4.5 bytes for
 * each byte of the call where one-shot touches 5, or 4 where the sum also writes the post: EPYC 9004, 1 MiB, us,
 * near cores: 59 and 66; distant cores: 82 and 95. Called by express.c.
 */
#include "local/slots.h"
#include "local/ways.h"

/* Bytes of a page that are read while the lines of as many further ones are fetched */
#define STRIDE 1024u

/* Fetch lines as owner: this rank writes its next post there. Of the first stride and the second at once */
static void fetch_ahead(const char *page, size_t at, size_t bytes)
{
	size_t from = at ? at + STRIDE : 0, to = at + 2 * STRIDE;

	for (to = to < bytes ? to : bytes; from < to; from += TT_LINE)
		tt_fetch_to_write(page + from);
}

void tt_slots_sum_pair(tuttiComm_t c, tt_reduce_fn *reduce, char *out, char *room, const char *in,
		       const char *theirs, size_t bytes, size_t count)
{
	const char *first = c->rank ? theirs : in, *second = c->rank ? in : theirs;
	size_t width = bytes / count;

	if (!tt_readers_own) {
		tt_reduce_from_peer(reduce, out, room, (const void *[]){ first, second }, 2, bytes,
				    width);
		return;
	}
	for (size_t at = 0, some; at < bytes; at += some) {
		some = bytes - at < STRIDE ? bytes - at : STRIDE;
		fetch_ahead(theirs, at, bytes);
		reduce(out + at, room ? room + at : NULL,
		       (const void *[]){ first + at, second + at }, 2, some / width);
	}
}

void tt_slots_copy_pair(char *out, const char *theirs, size_t bytes, bool past)
{
	if (past)
		tt_copy_nontemporal(out, theirs, bytes);
	else
		tt_copy_ahead(out, theirs, bytes);
}

/* A piece of the call: bytes at `keep` are summed by this rank, bytes at `give` by the other. Parts
 * begin at whole lines, so at whole elements. */
struct piece {
	size_t keep, keep_bytes, give, give_bytes;
};

/* The last two pieces are halves of the rest: a piece of less than a line could not be divided. */
static struct piece piece_of(const struct tt_op *op)
{
	size_t at = op->slots.done, left = op->bound.tiles.total - at, bytes = left, first;

	if (left >= 4 * TT_SLOT_BYTES)
		bytes = 2 * TT_SLOT_BYTES;
	else if (left > 2 * TT_SLOT_BYTES)
		bytes = tt_slots_half(left);
	first = tt_slots_half(bytes);
	if (op->comm->rank == 0)
		return (struct piece){ at, first, at + first, bytes - first };
	return (struct piece){ at + first, bytes - first, at, first };
}

static void give(struct tt_op *op, const struct piece *p)
{
	op->stores = tt_stores_next(op->comm->calls.slot_stores, p->give_bytes, false);
	tt_slots_copy(op->comm, &op->stores, op->bound.base[TT_IN] + p->give, p->give_bytes,
		      op->call.stamp);
	tt_slots_count(op->comm, p->give_bytes);
}

/* Ordinary stores write the result to its post as well. */
static void sum(struct tt_op *op, const struct piece *p, const char *theirs)
{
	tuttiComm_t c = op->comm;
	char *out = op->bound.base[TT_OUT] + p->keep, *room = NULL;

	if (!op->stores.nontemporal)
		room = tt_slots_room(c, p->keep_bytes);
	tt_slots_sum_pair(c, op->bound.reduce, out, room, op->bound.base[TT_IN] + p->keep, theirs,
			  p->keep_bytes, p->keep_bytes / op->bound.element_bytes);
	if (room)
		tt_slots_post(c, room, p->keep_bytes, op->call.stamp, false);
	else
		tt_slots_copy(c, &op->stores, out, p->keep_bytes, op->call.stamp);
	tt_slots_count(c, p->keep_bytes);
}

static void take(struct tt_op *op, const struct piece *p, const char *theirs)
{
	tt_slots_copy_pair(op->bound.base[TT_OUT] + p->give, theirs, p->give_bytes, op->bound.past);
	op->slots.done += p->keep_bytes + p->give_bytes;
}

int tt_slot_pair_advance(struct tt_op *op)
{
	tuttiComm_t c = op->comm;
	struct piece p = piece_of(op);
	const void *posts[2];
	int rc;

	if (!op->slots.posted) {
		rc = tt_slots_ready(c, p.give_bytes, &op->slots.awaited);
		if (rc <= 0)
			return rc;
		tt_fault_point(c);
		give(op, &p);
		op->slots.posted = true;
	}
	op->slots.awaited = 0;
	rc = tt_slots_poll(c, op->slots.summed ? p.give_bytes : p.keep_bytes, op->call.stamp, posts,
			   &op->slots.awaited);
	if (rc <= 0)
		return rc;
	tt_fault_point(c);
	if (!op->slots.summed) {
		sum(op, &p, posts[!c->rank]);
	} else {
		take(op, &p, posts[!c->rank]);
		op->slots.posted = false;
		if (op->slots.done == op->bound.tiles.total)
			op->cursors.nfinished = op->cursors.n;
	}
	op->slots.summed = !op->slots.summed;
	return 1;
}
