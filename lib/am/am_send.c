/*
 * am_send.c - send a message of a caller: connect if there is no connection, send, wait for
 * completion
 *
 * Called by api, quorum and shrink, in the caller's thread. Frames are cut from the caller's buffer:
 * at once as far as credit and connection allow, then by the service thread while the caller
 * sleeps. A message given up inside its body is copied, because the rest must follow in the stream.
 */
#include <stdlib.h>
#include <string.h>

#include "am/am_internal.h"

/* ---- connecting ------------------------------------------------------------------------------ */

static int fail_gone(struct tt_am *am, int peer)
{
	int culprit;
	const char *why = tt_control_text(am->ctl, &culprit);

	return tt_fail(TT_REMOTE, "rank %d: rank %d %s%s%s", am->rank, peer,
		       tt_set_has(am->left, peer) ? "has left" : "is dead",
		       culprit == peer ? ": " : "", culprit == peer ? why : "");
}

static bool is_gone(const struct tt_am *am, int peer)
{
	return tt_set_has(am->left, peer) ||
	       (!tt_am_lives(am, peer) && !tt_control_is_open(am->ctl, peer));
}

static int fail_aborted(const struct tt_am *am)
{
	return tt_fail(TT_REMOTE, "rank %d: the communicator was aborted", am->rank);
}

int tt_am_connect_locked(struct tt_am *am, int peer, uint64_t deadline_ns, const atomic_bool *stop)
{
	int rc = 0;

	if (!am->aborted && !is_gone(am, peer) && !tt_control_is_connected(am->ctl, peer)) {
		pthread_mutex_unlock(am->lock);
		rc = tt_control_reach_rank(am->ctl, peer, deadline_ns, stop);
		pthread_mutex_lock(am->lock);
		if (rc == TT_REMOTE && !atomic_load(stop))
			tt_am_gone(am, peer, tuttiRankDead);
	}
	if (am->aborted)
		return fail_aborted(am);
	return is_gone(am, peer) ? fail_gone(am, peer) : rc;
}

int tt_am_connect(struct tt_am *am, int peer, uint64_t deadline_ns, const atomic_bool *stop)
{
	int rc;

	pthread_mutex_lock(am->lock);
	rc = tt_am_connect_locked(am, peer, deadline_ns, stop);
	pthread_mutex_unlock(am->lock);
	return rc;
}

/* ---- sending --------------------------------------------------------------------------------- */

/* Gives up a message: removes it from the queue, or copies it if part of it was sent. */
static void withdraw_send(struct tt_am *am, int peer, struct tt_am_outgoing *mine)
{
	struct tt_am_stream *s = tt_stream_at(am, peer);
	size_t body = mine->bytes - TT_AM_HEADER_BYTES;
	struct tt_am_outgoing **at = &s->sendq, *copy = NULL;

	while (*at != mine)
		at = &(*at)->next;
	if (mine->sent && !am->aborted)
		copy = malloc(sizeof(*copy) + body);
	/* a partial message must not be followed by another message */
	s->cut |= mine->sent && !copy;
	if (copy) {
		*copy = *mine;
		copy->from_caller = false;
		copy->data = memcpy(copy + 1, mine->data, body);
	}
	*at = copy ? copy : mine->next;
	if (s->sendq_last == &mine->next)
		s->sendq_last = copy ? &copy->next : at;
}

static int fail_cut(const struct tt_am *am, int peer)
{
	return tt_fail(
		TT_SYSTEM,
		"rank %d: an earlier message to rank %d was given up without memory for its rest",
		am->rank, peer);
}

static int send_to(struct tt_am *am, int peer, const struct tt_am_header *head, const void *data,
		   uint64_t deadline_ns)
{
	struct tt_am_outgoing m = { .data = data,
				    .bytes = TT_AM_HEADER_BYTES + head->bytes,
				    .from_caller = true };
	struct tt_am_stream *s = tt_stream_of(am, peer);
	uint64_t moved = 0, now = tt_now_ns(), wait_ns = deadline_ns > now ? deadline_ns - now : 0;

	if (!s)
		return tt_fail(TT_SYSTEM, "rank %d: no memory for messages to rank %d", am->rank,
			       peer);
	if (s->cut)
		return fail_cut(am, peer);
	tt_am_header_put(head, m.head);
	tt_stream_enqueue(am, s, &m);
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
	withdraw_send(am, peer, &m);
	if (am->aborted)
		return fail_aborted(am);
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

	pthread_mutex_lock(am->lock);
	if (peer == am->rank)
		rc = send_to_self(am, head, data, deadline_ns);
	else if (!(rc = tt_am_connect_locked(am, peer, deadline_ns, &am->aborted)))
		rc = send_to(am, peer, head, data, deadline_ns);
	pthread_mutex_unlock(am->lock);
	return rc;
}
