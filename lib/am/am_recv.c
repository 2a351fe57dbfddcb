/*
 * am_recv.c - wait for a letter: in the box, on a connection that is held, or yet to come
 *
 * Called by messages, quorum and shrink, in the caller's thread. A waiter is in the list for as
 * long as it waits, so that the connections can fill its buffer (am_unexpected.c).
 */
#include <stdlib.h>
#include <string.h>

#include "am/am_internal.h"

static int too_large(struct tt_am *mail, const struct tt_am_header *h, size_t room)
{
	return tt_fail(TT_ARG,
		"rank %d: the message from rank %d with tag %d has %llu bytes, the buffer %zu; it stays",
		mail->rank, h->source, h->tag, (unsigned long long)h->bytes, room);
}

/* From the box: 0 | 1 none there | TT_ARG. Locked, but not while it copies. */
static int take_kept(struct tt_am *mail, struct tt_am_posted *w, struct tt_am_header *ret_head)
{
	const struct tt_am_match *want = w->want;
	struct tt_am_unexpected **at = &mail->box, *l;

	while ((l = *at) && !tt_unexpected_fits(want, &l->head))
		at = &l->next;
	if (!l)
		return 1;
	if (!want->look && l->head.bytes > want->room)
		return too_large(mail, &l->head, want->room);
	*ret_head = l->head;
	if (want->look)
		return 0;
	w->state = TT_POSTED_DONE;                    /* nothing else is to be read into its buffer */
	tt_unexpected_unlink(mail, at);
	mail->box_bytes -= l->head.bytes;
	tt_unexpected_make_way(mail);
	pthread_mutex_unlock(&mail->lock);
	if (l->head.bytes)
		memcpy(want->to, l->data, l->head.bytes);
	free(l);
	pthread_mutex_lock(&mail->lock);
	return 0;
}

/* A connection that is held with such a letter: 0 seen (only to look) | 1 none, or it is being read
 * for waiter | TT_ARG */
static int ask_held(struct tt_am *mail, struct tt_am_posted *waiter, struct tt_am_header *ret_head)
{
	const struct tt_am_match *want = waiter->want;
	struct tt_am_conn *c = mail->conns;

	while (c && (c->dead || !c->held || !tt_unexpected_fits(want, &c->head)))
		c = c->next;
	if (!c)
		return 1;
	if (!want->look && c->head.bytes > want->room)
		return too_large(mail, &c->head, want->room);
	*ret_head = c->head;
	if (want->look)
		return 0;
	c->held = false;
	c->waiter = waiter;
	c->to = want->to;
	waiter->state = TT_POSTED_FILLING;
	tt_am_conn_watch(mail, c);
	return 1;
}

/* Nobody who could still send it. */
static bool hopeless(const struct tt_am *mail, int source)
{
	for (int r = 0; r < mail->nranks; r++)
		if ((source < 0 ? r != mail->rank : source == r) &&
		    (!mail->gone[r] || tt_am_live(mail, r)))
			return false;
	return mail->nranks > 1 && source != mail->rank;
}

static int no_hope(struct tt_am *mail, int source)
{
	if (source < 0)
		return tt_fail(TT_REMOTE, "rank %d: every other rank is dead or has left",
			       mail->rank);
	return tt_fail(TT_REMOTE, "rank %d: rank %d %s, and nothing more of it can come",
		       mail->rank, source,
		       mail->gone[source] == tuttiRankLeft ? "has left" : "is dead");
}

/* The time is over amid a body: the rest of it goes to a letter. false: no memory */
static bool withdraw(struct tt_am *mail, struct tt_am_posted *w)
{
	struct tt_am_conn *c = mail->conns;
	struct tt_am_unexpected *l;

	while (c->waiter != w)
		c = c->next;
	l = tt_unexpected_make(mail, &c->head);
	if (!l)
		return false;
	if (c->have)
		memcpy(l->data, c->to, c->have);
	c->letter = l;
	c->to = l->data;
	c->waiter = NULL;
	return true;
}

static int wait_for(struct tt_am *mail, struct tt_am_posted *w, uint64_t deadline_ns,
		    struct tt_am_header *ret_head)
{
	uint64_t patience_ns = mail->timeout_ms * 1000000ull;
	int rc;

	for (;;) {
		if (w->state == TT_POSTED_DONE) {
			*ret_head = w->head;
			return 0;
		}
		if (mail->cut)
			return tt_fail(TT_REMOTE, "rank %d: the communicator was aborted",
				       mail->rank);
		if (w->state == TT_POSTED_CANCELLED)
			return 1;
		if (w->state == TT_POSTED_CALLED)
			w->state = TT_POSTED_WAITING;
		if (w->state == TT_POSTED_WAITING && (rc = take_kept(mail, w, ret_head)) <= 0)
			return rc;
		if (w->state == TT_POSTED_WAITING && (rc = ask_held(mail, w, ret_head)) <= 0)
			return rc;
		if (w->state == TT_POSTED_WAITING && hopeless(mail, w->want->source))
			return no_hope(mail, w->want->source);
		if (tt_am_await(mail, deadline_ns))
			continue;
		if (w->state == TT_POSTED_WAITING || patience_ns == 0)
			return 1;
		deadline_ns = tt_now_ns() + patience_ns;         /* its bytes are coming */
		patience_ns = 0;
	}
}

int tt_am_recv(struct tt_am *mail, const struct tt_am_match *want, uint64_t deadline_ns,
		 struct tt_am_header *ret_head)
{
	struct tt_am_posted w = { .want = want }, **at;
	int rc;

	pthread_mutex_lock(&mail->lock);
	*mail->waiters_last = &w;
	mail->waiters_last = &w.next;
	rc = wait_for(mail, &w, deadline_ns, ret_head);
	while (w.state == TT_POSTED_FILLING && !withdraw(mail, &w))
		tt_am_await(mail, tt_now_ns() + 1000000);
	if (rc && w.state == TT_POSTED_DONE) {        /* the last bytes came while there was no memory */
		*ret_head = w.head;
		rc = 0;
	}
	for (at = &mail->waiters; *at != &w; at = &(*at)->next)
		;
	*at = w.next;
	if (mail->waiters_last == &w.next)
		mail->waiters_last = at;
	pthread_mutex_unlock(&mail->lock);
	return rc;
}
