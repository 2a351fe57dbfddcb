/*
 * eager.c - Send and Recv of a message of one tile that goes through shared memory at once, without an operation
 *
 * Called by run.c before it makes operations. A message of one tile needs no plan, no cursor and no set:
 * a send has room in the ring, a receive finds its message within the spins of a wait. If not, nothing has
 * changed, and the message becomes an operation (p2p.c), which also meets errors again and reports them.
 * Numbers, stamps and the call log are those of p2p.c.
 */
#include "run/op.h"
#include "run/run.h"

/* The link of a message of one tile in shared memory; NULL: another kind, or not connected */
static struct tt_link *link_of(const struct tt_request *r, size_t bytes)
{
	tuttiComm_t c = r->comm;
	struct tt_link *l;

	if (r->collective != TT_SENDRECV || r->staging || !c->calls.p2p_sent || bytes == 0 ||
	    bytes > c->paths.eager_bytes)
		return NULL;
	l = tt_path_link(&c->paths.path[c->paths.p2p_path], TT_P2P_CHANNEL, r->root);
	return l && l->t->get ? l : NULL;
}

static bool receive_from(struct tt_link *l, void *out, size_t bytes, uint32_t stamp, tuttiComm_t c)
{
	int rc = l->t->get(l, out, bytes, stamp, true);
	uint32_t yields = 0;

	if (rc)
		return rc > 0;
	while (rc == 0 && tt_wait_yield(c, &yields))
		rc = l->t->get(l, out, bytes, stamp, true);
	for (uint32_t left = tt_wait_spins(c); rc == 0 && left > 0; left--) {
		tt_cpu_relax();
		rc = l->t->get(l, out, bytes, stamp, true);
	}
	if (rc > 0)
		tt_wait_spun(c);
	return rc > 0;
}

bool tt_eager(const struct tt_request *r)
{
	tuttiComm_t c = r->comm;
	size_t bytes = r->count * tt_type_bytes(r->type);
	struct tt_link *l = link_of(r, bytes);
	const struct tt_call call = { .collective = TT_SENDRECV,
				      .type = (uint8_t)r->type,
				      .count = r->count };
	uint64_t *counter, number;
	uint32_t stamp;

	if (!l || tt_control_broken(c->ctl))
		return false;
	counter = (r->send ? c->calls.p2p_sent : c->calls.p2p_received) + r->root;
	number = *counter + 1;
	stamp = tt_call_stamp(&call, number);
	if (!r->send && !receive_from(l, r->out, bytes, stamp, c))
		return false;
	tt_control_note_message(c->ctl, r->send, r->root, number, &call);
	tt_fault_point(c);
	if (r->send && l->t->put(l, r->in, bytes, stamp) <= 0)
		return false; /* the operation has the same number */
	*counter = number;
	if (!r->send)
		c->calls.last_received[r->root] = c->calls.seq;
	tt_control_done_message(c->ctl);
	tt_op_count(c);
	return true;
}

/* Sends come first: a receive may wait for what this rank's sends cause. Messages of one pair and direction
 * keep their order, since the first message that has to wait ends its pass. */
uint64_t tt_eager_set(const struct tt_request *requests, size_t n)
{
	uint64_t done = 0;

	for (size_t i = 0; i < n; i++)
		if (n > TT_EAGER_MOST || requests[i].collective != TT_SENDRECV)
			return 0;
	for (int sends = 1; sends >= 0; sends--)
		for (size_t i = 0; i < n; i++) {
			if (requests[i].send != sends)
				continue;
			if (!tt_eager(&requests[i]))
				return done;
			done |= 1ull << i;
		}
	return done;
}
