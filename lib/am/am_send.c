/*
 * am_send.c - a caller's letter: dial if there is no connection yet, send, wait until it is out
 *
 * Called by api, quorum and shrink calls, in the caller's thread. A letter is written from where it
 * lies: at once as far as the kernel takes it, by the service thread after that, while the caller
 * sleeps. What is given up amid its body is copied, since the stream must go on.
 */
#include <stdlib.h>
#include <string.h>

#include "am/am_internal.h"

/* ---- dialling -------------------------------------------------------------------------------- */

static int gone(struct tt_am *mail, int peer)
{
	return tt_fail(TT_REMOTE, "rank %d: rank %d %s", mail->rank, peer,
		       mail->gone[peer] == tuttiRankLeft ? "has left" : "is dead");
}

/* A connection to peer; one caller dials, others wait for it. Locked, but not while it dials. */
static int reach(struct tt_am *mail, int peer, uint64_t deadline_ns)
{
	int rc, fd;

	while (mail->dialling[peer] && !mail->cut && tt_am_await(mail, deadline_ns))
		;
	if (mail->cut)
		return tt_fail(TT_REMOTE, "rank %d: the communicator was aborted", mail->rank);
	if (mail->gone[peer] && !mail->out[peer])
		return gone(mail, peer);
	if (mail->out[peer])
		return 0;
	if (mail->dialling[peer])
		return tt_fail(TT_TIMEOUT, "rank %d: no connection to rank %d in time", mail->rank,
			       peer);
	if ((rc = tt_am_start(mail)))
		return rc;
	mail->dialling[peer] = true;
	pthread_mutex_unlock(&mail->lock);
	rc = tt_control_dial_am(mail->ctl, peer, deadline_ns, &fd);
	pthread_mutex_lock(&mail->lock);
	mail->dialling[peer] = false;
	if (!rc)
		rc = tt_am_conn_add(mail, peer, fd);
	else if (rc == TT_REMOTE && !mail->out[peer])
		tt_am_gone(mail, peer, tuttiRankDead);
	pthread_cond_broadcast(&mail->changed);
	return mail->out[peer] ? 0 : rc;
}

/* ---- a caller's letter ----------------------------------------------------------------------- */

/* The caller gives up: what has not begun is taken back, the rest of what has begun is copied. */
static void leave_parcel(struct tt_am *mail, struct tt_am_conn *c, struct tt_am_outgoing *mine)
{
	size_t body = mine->bytes - TT_HEAD_BYTES;
	struct tt_am_outgoing **at = &c->out, *copy;

	while (*at != mine)
		at = &(*at)->next;
	if (mine->sent) {
		copy = malloc(sizeof(*copy) + body);
		if (!copy) {                     /* half a letter must not be followed by another */
			tt_am_conn_end(mail, c, tuttiRankDead);
			return;
		}
		*copy = *mine;
		copy->callers = false;
		copy->data = memcpy(copy + 1, mine->data, body);
		*at = copy;
		if (c->out_last == &mine->next)
			c->out_last = &copy->next;
		return;
	}
	*at = mine->next;
	if (c->out_last == &mine->next)
		c->out_last = at;
}

static int deliver(struct tt_am *mail, int peer, const struct tt_am_header *head,
		   const void *data, uint64_t deadline_ns)
{
	struct tt_am_outgoing p = { .data = data,
			       .bytes = TT_HEAD_BYTES + head->bytes,
			       .callers = true };
	struct tt_am_conn *c = mail->out[peer];
	uint64_t moved = 0, now = tt_now_ns(), wait_ns = deadline_ns > now ? deadline_ns - now : 0;

	tt_am_header_put(head, p.head);
	tt_am_append(mail, c, &p);
	while (!p.done && !mail->cut) {
		if (tt_am_await(mail, deadline_ns))
			continue;
		if (p.done || p.sent == moved)
			break;
		moved = p.sent;                  /* slow, but it moves */
		deadline_ns = tt_now_ns() + wait_ns;
	}
	if (p.done)
		return p.rc ? gone(mail, peer) : 0;
	leave_parcel(mail, c, &p);
	if (mail->cut)
		return tt_fail(TT_REMOTE, "rank %d: the communicator was aborted", mail->rank);
	return tt_fail(TT_TIMEOUT,
		"rank %d: rank %d took nothing of a message of %llu bytes for %llu ms: it is stopped, "
		"or does not receive what it has got",
				 mail->rank, peer, (unsigned long long)head->bytes,
				 (unsigned long long)(wait_ns / 1000000));
}

static int deliver_here(struct tt_am *mail, const struct tt_am_header *head, const void *data,
			uint64_t deadline_ns)
{
	int rc;

	while (!(rc = tt_unexpected_put(mail, head, data)) && !mail->cut)
		if (!tt_am_await(mail, deadline_ns))
			return tt_fail(TT_TIMEOUT,
				"rank %d: no room for a message of %llu bytes to itself: it has %zu bytes "
				"that it did not receive", mail->rank,
				(unsigned long long)head->bytes, mail->box_bytes);
	if (rc < 0)
		return rc;
	return rc ? 0 : tt_fail(TT_REMOTE, "rank %d: the communicator was aborted", mail->rank);
}

int tt_am_send(struct tt_am *mail, int peer, const struct tt_am_header *head,
		 const void *data, uint64_t deadline_ns)
{
	int rc;

	pthread_mutex_lock(&mail->lock);
	if (peer == mail->rank)
		rc = deliver_here(mail, head, data, deadline_ns);
	else if (!(rc = reach(mail, peer, deadline_ns)))
		rc = deliver(mail, peer, head, data, deadline_ns);
	pthread_mutex_unlock(&mail->lock);
	return rc;
}
