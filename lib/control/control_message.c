/*
 * control_message.c - frames of active messages on the connections of the endpoint
 *
 * Called by am. The connections of the tree and the ring carry messages too; a connection to any
 * other rank is made by the first message to it, in the sender's thread, or in the service thread
 * after the sender's deadline (control_dials.c), and then serves all communicators. Both ranks of a
 * pair may connect at once: both connections stay, and each rank sends on the one that it could use
 * first, so that frames stay in order.
 */
#include "control/control_internal.h"

pthread_mutex_t *tt_control_mutex(struct tt_control *ctl)
{
	return &ctl->ep->lock;
}

void tt_control_notify(struct tt_control *ctl)
{
	tt_control_changed(ctl);
}

void tt_control_wake(struct tt_control *ctl)
{
	tt_endpoint_wake(ctl->ep);
}

static struct tt_conn *conn_of(const struct tt_control *ctl, int rank)
{
	return tt_conn_to(ctl->ep, tt_control_peer(ctl, rank));
}

bool tt_control_is_connected(const struct tt_control *ctl, int rank)
{
	return conn_of(ctl, rank) != NULL;
}

bool tt_control_is_open(const struct tt_control *ctl, int rank)
{
	return !tt_set_has(ctl->departed.over, rank) &&
	       tt_conn_is_open(ctl->ep, tt_control_peer(ctl, rank));
}

bool tt_control_has_room(const struct tt_control *ctl, int rank)
{
	const struct tt_conn *conn = conn_of(ctl, rank);

	return conn && tt_conn_has_room(conn);
}

bool tt_control_send_frame(struct tt_control *ctl, int rank, int kind, const struct iovec part[2])
{
	struct tt_conn *conn = conn_of(ctl, rank);

	return !conn || tt_conn_send_parts(ctl->ep, conn, ctl->context, (enum tt_frame)kind, part);
}

/* The connection on which a rank sends its messages need not be the one on which this rank sends. */
static struct tt_conn *conn_with_messages_of(const struct tt_control *ctl, int rank)
{
	int peer = tt_control_peer(ctl, rank);
	struct tt_conn *found = NULL;

	for (struct tt_conn *c = ctl->ep->conns; c; c = c->next)
		if (!c->dead && c->brings_messages && c->peer == peer && (!found || found->over))
			found = c;
	return found;
}

void tt_control_malformed(struct tt_control *ctl, int rank)
{
	struct tt_conn *conn = conn_with_messages_of(ctl, rank);

	if (conn)
		tt_conn_malformed(ctl->ep, conn);
}

void tt_control_frame_no_memory(struct tt_control *ctl, int rank)
{
	struct tt_conn *conn = conn_with_messages_of(ctl, rank);

	if (conn)
		tt_conn_no_memory(ctl->ep, conn);
}

/* Connect, in the place of all threads that wait for this peer; locked, except while connecting. */
static int dial(struct tt_control *ctl, int rank, uint64_t deadline_ns, const atomic_bool *stop)
{
	struct tt_control_endpoint *ep = ctl->ep;
	struct tt_dial dial = tt_dial_of(ctl, rank, TT_P_CONTROL, deadline_ns);
	int peer = tt_control_peer(ctl, rank), rc;
	struct tt_duplex duplex;

	dial.stop = stop;
	tt_set_add(ep->peers.dialed, peer);
	tt_control_unlock(ctl);
	rc = tt_dials_connect(ctl, &dial, &duplex);
	tt_control_lock(ctl);
	tt_set_remove(ep->peers.dialed, peer);
	tt_control_changed(ctl);
	rc = rc ? rc : tt_control_use(ctl, duplex, peer);
	return tt_conn_to(ep, peer) ? 0 : rc;
}

int tt_control_reach_rank(struct tt_control *ctl, int rank, uint64_t deadline_ns,
			  const atomic_bool *stop)
{
	struct tt_control_endpoint *ep = ctl->ep;
	int peer = tt_control_peer(ctl, rank), rc = 0;
	bool late = false;

	tt_control_lock(ctl);
	while (!late && tt_set_has(ep->peers.dialed, peer) && !tt_conn_to(ep, peer) &&
	       !atomic_load(stop))
		late = !tt_endpoint_await(ep, deadline_ns);
	if (late)
		rc = tt_fail(TT_TIMEOUT, "rank %d: no connection to rank %d in time", ctl->rank,
			     rank);
	else if (atomic_load(stop))
		rc = tt_fail(TT_REMOTE, "rank %d: the communicator was aborted", ctl->rank);
	else if (!tt_conn_to(ep, peer))
		rc = dial(ctl, rank, deadline_ns, stop);
	tt_control_unlock(ctl);
	return rc;
}
