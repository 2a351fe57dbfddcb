/*
 * am_send.c - send a message of a caller: dial if there is no connection, send, wait for completion
 *
 * Called by api, quorum and shrink, in the caller's thread. The message is written from the
 * caller's buffer: at once as far as the kernel takes it, then by the service thread while the
 * caller sleeps. A message given up inside its body is copied, because the rest must follow in the
 * stream.
 */
#include <stdlib.h>
#include <string.h>

#include "am/am_internal.h"

/* ---- dialing --------------------------------------------------------------------------------- */

static int fail_gone(struct tt_am *am, int peer)
{
	return tt_fail(TT_REMOTE, "rank %d: rank %d %s", am->rank, peer,
		       am->gone[peer] == tuttiRankLeft ? "has left" : "is dead");
}

/* Connects to peer. One caller dials, others wait for that connection. Locked, except while
 * dialing. */
static int connect_to(struct tt_am *am, int peer, uint64_t deadline_ns)
{
	int rc, fd;

	while (am->dialing[peer] && !am->aborted && tt_am_await(am, deadline_ns))
		;
	if (am->aborted)
		return tt_fail(TT_REMOTE, "rank %d: the communicator was aborted", am->rank);
	if (am->gone[peer] && !am->send_conn[peer])
		return fail_gone(am, peer);
	if (am->send_conn[peer])
		return 0;
	if (am->dialing[peer])
		return tt_fail(TT_TIMEOUT, "rank %d: no connection to rank %d in time", am->rank,
			       peer);
	if ((rc = tt_am_start(am)))
		return rc;
	am->dialing[peer] = true;
	pthread_mutex_unlock(&am->lock);
	rc = tt_control_dial_am(am->ctl, peer, deadline_ns, &am->aborted, &fd);
	pthread_mutex_lock(&am->lock);
	am->dialing[peer] = false;
	if (!rc)
		rc = tt_am_conn_add(am, peer, fd);
	else if (rc == TT_REMOTE && !am->send_conn[peer])
		tt_am_gone(am, peer, tuttiRankDead);
	pthread_cond_broadcast(&am->changed);
	return am->send_conn[peer] ? 0 : rc;
}

/* ---- sending --------------------------------------------------------------------------------- */

/* Gives up a message: removes it from the queue, or copies it if part of it was sent. */
static void withdraw_send(struct tt_am *am, struct tt_am_conn *c, struct tt_am_outgoing *mine)
{
	size_t body = mine->bytes - TT_AM_HEADER_BYTES;
	struct tt_am_outgoing **at = &c->sendq, *copy;

	while (*at != mine)
		at = &(*at)->next;
	if (mine->sent) {
		copy = malloc(sizeof(*copy) + body);
		/* a partial message must not be followed by another message */
		if (!copy) {
			tt_am_conn_end(am, c, tuttiRankDead);
			return;
		}
		*copy = *mine;
		copy->from_caller = false;
		copy->data = memcpy(copy + 1, mine->data, body);
		*at = copy;
		if (c->sendq_last == &mine->next)
			c->sendq_last = &copy->next;
		return;
	}
	*at = mine->next;
	if (c->sendq_last == &mine->next)
		c->sendq_last = at;
}

static int send_to(struct tt_am *am, int peer, const struct tt_am_header *head, const void *data,
		   uint64_t deadline_ns)
{
	struct tt_am_outgoing m = { .data = data,
				    .bytes = TT_AM_HEADER_BYTES + head->bytes,
				    .from_caller = true };
	struct tt_am_conn *c = am->send_conn[peer];
	uint64_t moved = 0, now = tt_now_ns(), wait_ns = deadline_ns > now ? deadline_ns - now : 0;

	tt_am_header_put(head, m.head);
	tt_am_enqueue(am, c, &m);
	while (!m.done && !am->aborted) {
		if (tt_am_await(am, deadline_ns))
			continue;
		if (m.done || m.sent == moved)
			break;
		moved = m.sent; /* slow, but there is progress */
		deadline_ns = tt_now_ns() + wait_ns;
	}
	if (m.done)
		return m.rc ? fail_gone(am, peer) : 0;
	withdraw_send(am, c, &m);
	if (am->aborted)
		return tt_fail(TT_REMOTE, "rank %d: the communicator was aborted", am->rank);
	return tt_fail(
		TT_TIMEOUT,
		"rank %d: rank %d accepted no byte of a message of %llu bytes for %llu ms: rank %d is stopped, or does not receive its messages",
		am->rank, peer, (unsigned long long)head->bytes,
		(unsigned long long)(wait_ns / 1000000), peer);
}

static int send_to_self(struct tt_am *am, const struct tt_am_header *head, const void *data,
			uint64_t deadline_ns)
{
	int rc;

	while (!(rc = tt_unexpected_put(am, head, data)) && !am->aborted)
		if (!tt_am_await(am, deadline_ns))
			return tt_fail(
				TT_TIMEOUT,
				"rank %d: no room for a message of %llu bytes to itself: %zu bytes of messages are queued, not received",
				am->rank, (unsigned long long)head->bytes, am->unexpected_bytes);
	if (rc < 0)
		return rc;
	return rc ? 0 : tt_fail(TT_REMOTE, "rank %d: the communicator was aborted", am->rank);
}

int tt_am_send(struct tt_am *am, int peer, const struct tt_am_header *head, const void *data,
	       uint64_t deadline_ns)
{
	int rc;

	pthread_mutex_lock(&am->lock);
	if (peer == am->rank)
		rc = send_to_self(am, head, data, deadline_ns);
	else if (!(rc = connect_to(am, peer, deadline_ns)))
		rc = send_to(am, peer, head, data, deadline_ns);
	pthread_mutex_unlock(&am->lock);
	return rc;
}
