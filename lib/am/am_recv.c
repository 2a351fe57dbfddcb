/*
 * am_recv.c - wait for a letter: in the box, on a connection that is held, or yet to come
 *
 * Called by messages, quorum and shrink, in the caller's thread. A waiter is in the list for as
 * long as it waits, so that the connections can fill its buffer (am_unexpected.c).
 */
#include <stdlib.h>
#include <string.h>

#include "am/am_internal.h"

static int too_large(struct tt_am *am, const struct tt_am_header *h, size_t room)
{
	return tt_fail(TT_ARG,
		"rank %d: the message from rank %d with tag %d has %llu bytes, the buffer %zu; it stays",
		am->rank, h->source, h->tag, (unsigned long long)h->bytes, room);
}

/* From the box: 0 | 1 none there | TT_ARG. Locked, but not while it copies. */
static int take_unexpected(struct tt_am *am, struct tt_am_posted *w, struct tt_am_header *ret_head)
{
	const struct tt_am_match *want = w->want;
	struct tt_am_unexpected **at = &am->unexpected, *u;

	while ((u = *at) && !tt_unexpected_matches(want, &u->head))
		at = &u->next;
	if (!u)
		return 1;
	if (!want->probe && u->head.bytes > want->room)
		return too_large(am, &u->head, want->room);
	*ret_head = u->head;
	if (want->probe)
		return 0;
	w->state = TT_POSTED_DONE;                    /* nothing else is to be read into its buffer */
	tt_unexpected_unlink(am, at);
	am->unexpected_bytes -= u->head.bytes;
	tt_unexpected_resume(am);
	pthread_mutex_unlock(&am->lock);
	if (u->head.bytes)
		memcpy(want->to, u->data, u->head.bytes);
	free(u);
	pthread_mutex_lock(&am->lock);
	return 0;
}

/* A connection that is held with such a letter: 0 seen (only to look) | 1 none, or it is being read
 * for waiter | TT_ARG */
static int take_stalled(struct tt_am *am, struct tt_am_posted *posted, struct tt_am_header *ret_head)
{
	const struct tt_am_match *want = posted->want;
	struct tt_am_conn *c = am->conns;

	while (c && (c->dead || !c->stalled || !tt_unexpected_matches(want, &c->head)))
		c = c->next;
	if (!c)
		return 1;
	if (!want->probe && c->head.bytes > want->room)
		return too_large(am, &c->head, want->room);
	*ret_head = c->head;
	if (want->probe)
		return 0;
	c->stalled = false;
	c->posted = posted;
	c->to = want->to;
	posted->state = TT_POSTED_FILLING;
	tt_am_conn_watch(am, c);
	return 1;
}

/* Nobody who could still send it. */
static bool is_no_sender_left(const struct tt_am *am, int source)
{
	for (int r = 0; r < am->nranks; r++)
		if ((source < 0 ? r != am->rank : source == r) &&
		    (!am->gone[r] || tt_am_conn_find(am, r)))
			return false;
	return am->nranks > 1 && source != am->rank;
}

static int fail_no_sender(struct tt_am *am, int source)
{
	if (source < 0)
		return tt_fail(TT_REMOTE, "rank %d: every other rank is dead or has left",
			       am->rank);
	return tt_fail(TT_REMOTE, "rank %d: rank %d %s, and nothing more of it can come",
		       am->rank, source,
		       am->gone[source] == tuttiRankLeft ? "has left" : "is dead");
}

/* The time is over amid a body: the rest of it goes to a letter. false: no memory */
static bool move_to_unexpected(struct tt_am *am, struct tt_am_posted *w)
{
	struct tt_am_conn *c = am->conns;
	struct tt_am_unexpected *u;

	while (c->posted != w)
		c = c->next;
	u = tt_unexpected_alloc(am, &c->head);
	if (!u)
		return false;
	if (c->have)
		memcpy(u->data, c->to, c->have);
	c->unexpected = u;
	c->to = u->data;
	c->posted = NULL;
	return true;
}

static int wait_for(struct tt_am *am, struct tt_am_posted *w, uint64_t deadline_ns,
		    struct tt_am_header *ret_head)
{
	uint64_t patience_ns = am->timeout_ms * 1000000ull;
	int rc;

	for (;;) {
		if (w->state == TT_POSTED_DONE) {
			*ret_head = w->head;
			return 0;
		}
		if (am->aborted)
			return tt_fail(TT_REMOTE, "rank %d: the communicator was aborted",
				       am->rank);
		if (w->state == TT_POSTED_CANCELED)
			return 1;
		if (w->state == TT_POSTED_NOTIFIED)
			w->state = TT_POSTED_WAITING;
		if (w->state == TT_POSTED_WAITING && (rc = take_unexpected(am, w, ret_head)) <= 0)
			return rc;
		if (w->state == TT_POSTED_WAITING && (rc = take_stalled(am, w, ret_head)) <= 0)
			return rc;
		if (w->state == TT_POSTED_WAITING && is_no_sender_left(am, w->want->source))
			return fail_no_sender(am, w->want->source);
		if (tt_am_await(am, deadline_ns))
			continue;
		if (w->state == TT_POSTED_WAITING || patience_ns == 0)
			return 1;
		deadline_ns = tt_now_ns() + patience_ns;         /* its bytes are coming */
		patience_ns = 0;
	}
}

int tt_am_recv(struct tt_am *am, const struct tt_am_match *want, uint64_t deadline_ns,
		 struct tt_am_header *ret_head)
{
	struct tt_am_posted w = { .want = want }, **at;
	int rc;

	pthread_mutex_lock(&am->lock);
	*am->posted_last = &w;
	am->posted_last = &w.next;
	rc = wait_for(am, &w, deadline_ns, ret_head);
	while (w.state == TT_POSTED_FILLING && !move_to_unexpected(am, &w))
		tt_am_await(am, tt_now_ns() + 1000000);
	if (rc && w.state == TT_POSTED_DONE) {        /* the last bytes came while there was no memory */
		*ret_head = w.head;
		rc = 0;
	}
	for (at = &am->posted; *at != &w; at = &(*at)->next)
		;
	*at = w.next;
	if (am->posted_last == &w.next)
		am->posted_last = at;
	pthread_mutex_unlock(&am->lock);
	return rc;
}
