/*
 * single_copy_pscw.c - copying collectives of crowded ranks: each is read by those who need it, and
 * nobody meets
 *
 *   offer   whoever is read says where its buffer is
 *   fetch   what I need of each, as soon as it has offered (single_copy.c does that)
 *   leave   over when all that read this rank have said that they are through
 *
 * Called by single_copy.c. Where ranks share cores, a meeting of all costs as many turns on the core as
 * there are ranks, at either end of a call; so here a rank waits for those it reads and those who
 * read it, and for nobody else: of a broadcast, only for the root. What is left out is the
 * agreement, so all that it is about must be known: that everyone can read everyone's ordinary
 * memory, which one earlier call found out, and that messages are not to be tried (single_copy_choice.c).
 */
#include "local/single_copy.h"

bool tt_pscw_take(const struct tt_op *op)
{
	tuttiComm_t c = op->comm;

	return !tt_single_copy_sums(op) && c->reads == TT_READS && c->slots->peer_memory_ops && c->cores &&
	       c->nranks > c->cores;
}

/* Does reader need bytes of `of`? */
static bool reads(const struct tt_op *op, int reader, int of)
{
	int root = op->request->root;

	switch (op->request->collective) {
	case TT_BROADCAST:
	case TT_SCATTER:
		return of == root && reader != root;
	case TT_GATHER:
		return reader == root && of != root;
	default:
		return reader != of;
	}
}

void tt_pscw_begin(struct tt_op *op)
{
	tuttiComm_t c = op->comm;
	struct tt_peer_memory mine;
	bool wanted = false;

	for (int r = 0; r < c->nranks; r++) {
		wanted |= reads(op, r, c->rank);
		if (!reads(op, c->rank, r))
			op->fetched |= 1u << r;
	}
	tt_fault_point(c);
	if (wanted) {
		c->slots->peer_memory_ops->describe(c->slots, op->base[TT_IN], tt_single_copy_in_bytes(op, c->rank),
				       &mine);
		c->slots->peer_memory_ops->post(c->slots, &mine, op->seq, op->stamp);
	}
	op->phase = TT_SINGLE_COPY_FETCH;
}

int tt_pscw_of(struct tt_op *op, int peer)
{
	struct tt_endpoint *ep = op->comm->slots;
	struct tt_peer_memory *in = &op->met[peer].in;
	int rc = ep->peer_memory_ops->test_start(ep, peer, op->seq, op->stamp, in);

	if (rc > 0)
		op->in_at[peer] = ep->peer_memory_ops->pointer(ep, peer, in, tt_single_copy_in_bytes(op, peer));
	return rc;
}

void tt_pscw_leave(struct tt_op *op)
{
	struct tt_endpoint *ep = op->comm->slots;

	tt_fault_point(op->comm);
	ep->peer_memory_ops->complete(ep, op->seq);
	op->phase = TT_SINGLE_COPY_LEAVE;
}

bool tt_pscw_left(struct tt_op *op)
{
	tuttiComm_t c = op->comm;

	for (int r = 0; r < c->nranks; r++) {
		op->awaited = r;
		if (reads(op, r, c->rank) && !c->slots->peer_memory_ops->test_complete(c->slots, r, op->seq))
			return false;
		c->last_received[r] = c->seq;
	}
	return true;
}
