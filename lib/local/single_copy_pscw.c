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

bool tt_offers_take(const struct tt_op *op)
{
	tuttiComm_t c = op->comm;

	return !tt_direct_sums(op) && c->reads == TT_READS && c->caster->t->offer && c->cores &&
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

void tt_offers_begin(struct tt_op *op)
{
	tuttiComm_t c = op->comm;
	struct tt_remote mine;
	bool wanted = false;

	for (int r = 0; r < c->nranks; r++) {
		wanted |= reads(op, r, c->rank);
		if (!reads(op, c->rank, r))
			op->fetched |= 1u << r;
	}
	tt_fault_point(c);
	if (wanted) {
		c->caster->t->describe(c->caster, op->base[TT_IN], tt_direct_in_bytes(op, c->rank),
				       &mine);
		c->caster->t->offer(c->caster, &mine, op->seq, op->stamp);
	}
	op->phase = TT_DIRECT_FETCH;
}

int tt_offers_of(struct tt_op *op, int peer)
{
	struct tt_endpoint *ep = op->comm->caster;
	struct tt_remote *in = &op->met[peer].in;
	int rc = ep->t->offered(ep, peer, op->seq, op->stamp, in);

	if (rc > 0)
		op->in_at[peer] = ep->t->at(ep, peer, in, tt_direct_in_bytes(op, peer));
	return rc;
}

void tt_offers_leave(struct tt_op *op)
{
	struct tt_endpoint *ep = op->comm->caster;

	tt_fault_point(op->comm);
	ep->t->leave(ep, op->seq);
	op->phase = TT_DIRECT_LEAVE;
}

bool tt_offers_left(struct tt_op *op)
{
	tuttiComm_t c = op->comm;

	for (int r = 0; r < c->nranks; r++) {
		op->awaited = r;
		if (reads(op, r, c->rank) && !c->caster->t->left(c->caster, r, op->seq))
			return false;
		c->heard[r] = c->seq;
	}
	return true;
}
