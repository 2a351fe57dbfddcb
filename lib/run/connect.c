/*
 * connect.c - the state of an operation whose links are not all connected yet
 *
 * Called by message_way.c and p2p.c when an operation starts. A step may need any link of the plan
 * at any time, so all links are connected before the first step. Until then the operation has a way
 * of its own: run.c polls the links in its rounds, as it advances the other operations of the set,
 * and wait.c waits. So no operation of a group waits for the connection of another one, and the
 * steps of a connected operation execute nothing of this file.
 */
#include "run/way.h"

/* 1 all links are connected | 0 connecting.missing is not, and perhaps others | < 0 for
 * connecting.missing */
static int poll_links(struct tt_op *op)
{
	const struct tt_request *r = op->call.request;
	bool p2p = r->collective == TT_SENDRECV;
	const int *peers = p2p ? &r->root : op->bound.plan->peers;
	uint32_t npeers = p2p ? 1 : op->bound.plan->npeers;
	struct tt_op_connecting *co = &op->connecting;
	int rc, worst = 1;

	for (int ch = co->first; ch < co->end; ch++)
		for (uint32_t i = 0; i < npeers; i++) {
			rc = tt_comm_connect(op->comm, op->bound.path, peers[i], ch);
			if (rc < worst) {
				worst = rc;
				co->missing = tt_path_link(op->bound.path, ch, peers[i]);
			}
			if (rc < 0)
				return rc;
		}
	if (worst > 0 && co->connected)
		*co->connected = co->end;
	return worst;
}

int tt_op_connect(struct tt_op *op, int first, int end, int *connected)
{
	int rc;

	op->connecting = (struct tt_op_connecting){ first, end, connected, NULL };
	rc = poll_links(op);
	if (!rc)
		op->way = &tt_connecting_way;
	return rc < 0 ? rc : 0;
}

static int advance(struct tt_op *op)
{
	const struct tt_link *before = op->connecting.missing;
	int rc = poll_links(op);

	if (rc > 0)
		op->way = &tt_message_way;
	return rc ? rc : op->connecting.missing != before;
}

static int waits_for(const struct tt_op *op, uint32_t i, struct tt_endpoint **ret_ep)
{
	const struct tt_link *l = op->connecting.missing;

	(void)i;
	*ret_ep = l ? l->ep : NULL;
	return l ? l->peer : -1;
}

const struct tt_way tt_connecting_way = {
	.name = "connecting",
	.advance = advance,
	.waits_for = waits_for,
};
