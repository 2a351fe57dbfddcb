/*
 * single_copy_pscw.c - copying collectives of crowded ranks: post, start, complete, wait as in
 * MPI's one-sided PSCW, mostly without an address exchange of all ranks
 *
 *   post       a rank that is read exposes the address of its buffer
 *   start      fetch my piece of each peer as soon as it has posted (single_copy.c fetches)
 *   complete   tell a peer, as soon as its piece is here, that this rank reads no more
 *   wait       the call ends when all readers of this rank have completed
 *
 * Called by single_copy.c. Where ranks share cores, an exchange among all ranks costs as many time
 * slices as there are ranks, at either end of a call. Here a rank waits only for the peers that it
 * reads and for its readers: in a broadcast, only for the root. There is no agreement in the call,
 * so its results must be known: an earlier call found that every rank can read every other's
 * ordinary memory, and messages or slots are not to be tried in this one (single_copy_choice.c). A call with
 * an exchange has no post and start, but completes and waits here, too.
 */
#include "local/single_copy.h"
#include "local/ways.h"

bool tt_pscw_is_pairwise(const struct tt_op *op)
{
	return !tt_smsc_sums(op) && tt_smsc_crowded(op->comm);
}

bool tt_pscw_applies(const struct tt_op *op)
{
	const struct tt_single_copy *s = op->comm->single_copy;

	return tt_pscw_is_pairwise(op) && s->memory == TT_SMSC_READABLE &&
	       (s->follows || !tt_slot_way.fits(op));
}

/* Does reader read bytes of rank `of`? */
static bool reads(const struct tt_op *op, int reader, int of)
{
	const struct tt_form f = tt_smsc_form(op);

	return reader != of && tt_form_takes(&f, reader) && tt_form_gives(&f, of);
}

void tt_pscw_post(struct tt_op *op)
{
	tuttiComm_t c = op->comm;
	struct tt_peer_memory mine;
	bool is_read = false;

	for (int r = 0; r < c->nranks; r++) {
		is_read |= reads(op, r, c->rank);
		if (!reads(op, c->rank, r))
			c->single_copy->fetched |= 1u << r;
	}
	tt_fault_point(c);
	if (is_read) {
		c->paths.slots->peer_memory_ops->describe(c->paths.slots, op->bound.base[TT_IN],
							  tt_smsc_in_bytes(op, c->rank), &mine);
		c->paths.slots->peer_memory_ops->post(c->paths.slots, &mine, op->call.seq,
						      op->call.stamp);
	}
	c->single_copy->phase = TT_SMSC_FETCH;
}

int tt_pscw_start(struct tt_op *op, int peer)
{
	struct tt_endpoint *ep = op->comm->paths.slots;
	struct tt_single_copy *s = op->comm->single_copy;
	struct tt_peer_memory *in = &s->of[peer].in;
	int rc = ep->peer_memory_ops->test_start(ep, peer, op->call.seq, op->call.stamp, in);

	if (rc > 0)
		s->in_at[peer] = ep->peer_memory_ops->pointer(ep, peer, in,
							      tt_smsc_in_bytes(op, peer));
	return rc;
}

void tt_pscw_complete(struct tt_op *op, int peer)
{
	struct tt_endpoint *ep = op->comm->paths.slots;

	tt_fault_point(op->comm);
	ep->peer_memory_ops->complete(ep, peer, op->call.seq);
}

bool tt_pscw_test(struct tt_op *op)
{
	tuttiComm_t c = op->comm;

	for (int r = 0; r < c->nranks; r++) {
		op->slots.awaited = r;
		if (reads(op, r, c->rank) &&
		    !c->paths.slots->peer_memory_ops->test_complete(c->paths.slots, r,
								    op->call.seq))
			return false;
		c->calls.last_received[r] = c->calls.seq;
	}
	return true;
}
