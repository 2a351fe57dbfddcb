/*
 * am_recv.c - receive a message: from the unexpected queue, a stalled stream, or a later arrival
 *
 * Called by messages, quorum and shrink, in the caller's thread. A posted receive is in am->posted
 * while the caller waits, so that streams can fill its buffer (am_unexpected.c).
 */
#include <stdlib.h>
#include <string.h>

#include "am/am_internal.h"
#include "control/frame.h"

#define SEEK_NS 1000000000ull    /* period of the questions to partitioned ranks */
#define SEEK_MOST_NS 50000000ull /* limit of one question, which may delay a receive's deadline */

static int too_large(struct tt_am *am, const struct tt_am_header *h, size_t room)
{
	return tt_fail(
		TT_ARG,
		"rank %d: the message from rank %d with tag %d has %llu bytes, the buffer %zu; the message stays queued",
		am->rank, h->source, h->tag, (unsigned long long)h->bytes, room);
}

/* Takes a message from the unexpected queue. 0 | 1 none matches | TT_ARG. Locked, except during the
 * copy. */
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
	w->state = TT_POSTED_DONE; /* no other message may fill the buffer */
	tt_unexpected_unlink(am, at);
	am->unexpected_bytes -= u->head.bytes;
	tt_unexpected_resume(am);
	pthread_mutex_unlock(am->lock);
	if (u->head.bytes)
		memcpy(want->to, u->data, u->head.bytes);
	free(u);
	pthread_mutex_lock(am->lock);
	return 0;
}

/* Takes a message from a stalled stream. 0 only with probe | 1 none matches, or the stream now
 * fills the buffer of `posted` | TT_ARG */
static int take_stalled(struct tt_am *am, struct tt_am_posted *posted,
			struct tt_am_header *ret_head)
{
	const struct tt_am_match *want = posted->want;
	struct tt_am_stream *s = am->stalled;

	while (s && !tt_unexpected_matches(want, &s->head))
		s = s->next_stalled;
	if (!s)
		return 1;
	if (!want->probe && s->head.bytes > want->room)
		return too_large(am, &s->head, want->room);
	*ret_head = s->head;
	if (want->probe)
		return 0;
	s->posted = posted;
	s->to = want->to;
	posted->state = TT_POSTED_FILLING;
	tt_stream_resume(am, s);
	return 1;
}

static bool may_send(const struct tt_am *am, int rank)
{
	const struct tt_am_stream *s = tt_stream_at(am, rank);

	return tt_am_lives(am, rank) || tt_control_is_open(am->ctl, rank) || (s && s->stalled);
}

/* True if no live rank can still send a matching message. */
static bool is_no_sender_left(const struct tt_am *am, int source)
{
	for (int r = 0; r < am->nranks; r++)
		if ((source < 0 ? r != am->rank : source == r) && may_send(am, r))
			return false;
	return am->nranks > 1 && source != am->rank;
}

/* A rank that aborted the communicator has left, too: the reason says which. */
static int fail_no_sender(struct tt_am *am, int source)
{
	int culprit;
	const char *why = tt_control_text(am->ctl, &culprit);
	bool known = culprit >= 0 && (source < 0 || source == culprit);

	if (source < 0)
		return tt_fail(TT_REMOTE, "rank %d: every other rank is dead or has left%s%s",
			       am->rank, known ? ": " : "", known ? why : "");
	return tt_fail(TT_REMOTE,
		       "rank %d: rank %d %s, and no further message from it can arrive%s%s",
		       am->rank, source, tt_set_has(am->left, source) ? "has left" : "is dead",
		       known ? ": " : "", known ? why : "");
}

/* Timeout inside a body: the rest of the body goes to the unexpected queue. false: no memory */
static bool move_to_unexpected(struct tt_am *am, struct tt_am_posted *w)
{
	struct tt_am_stream *s;
	struct tt_am_unexpected *u;
	int r = 0;

	while (!(s = tt_stream_at(am, r)) || s->posted != w)
		r++;
	u = tt_unexpected_alloc(am, &s->head);
	if (!u)
		return false;
	if (s->have)
		memcpy(u->data, s->to, s->have);
	s->unexpected = u;
	s->to = u->data;
	s->posted = NULL;
	return true;
}

/* Asks whether a rank is still there: a rank that has left the communicator answers. */
static void ask(struct tt_am *am, int rank, uint64_t deadline_ns)
{
	static const uint8_t no_credit[8];

	if (!tt_am_connect_locked(am, rank, deadline_ns, &am->aborted))
		tt_control_send_frame(am->ctl, rank, TT_F_CREDIT,
				      (struct iovec[2]){
					      { (void *)(uintptr_t)no_credit, sizeof(no_credit) },
					      { NULL, 0 } });
}

/* Asks the partitioned ranks, once in SEEK_NS: no flood reports a rank that leaves or dies after
 * all of its neighbors. Locked, except while connecting. false: it is not time yet */
static bool seek(struct tt_am *am, int source)
{
	bool *partitioned;
	uint64_t now = tt_now_ns();

	if (now < am->seek_ns)
		return false;
	am->seek_ns = now + SEEK_NS;
	partitioned = malloc((size_t)am->nranks * sizeof(*partitioned));
	if (partitioned && tt_control_find_partitioned(am->ctl, partitioned))
		for (int r = 0; r < am->nranks; r++)
			if (partitioned[r] && tt_am_lives(am, r) && (source < 0 || r == source))
				ask(am, r, now + SEEK_MOST_NS);
	free(partitioned);
	return true;
}

/* Waits for a change, or until the next questions are due. false: the deadline has passed */
static bool await_change(struct tt_am *am, const struct tt_am_posted *w, uint64_t deadline_ns)
{
	if (w->state != TT_POSTED_WAITING || am->seek_ns >= deadline_ns)
		return tt_am_await(am, deadline_ns);
	tt_am_await(am, am->seek_ns);
	return true;
}

static int wait_for(struct tt_am *am, struct tt_am_posted *w, uint64_t deadline_ns,
		    struct tt_am_header *ret_head)
{
	uint64_t grace_ns = am->timeout_ms * 1000000ull;
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
		if (w->state == TT_POSTED_WAITING && seek(am, w->want->source))
			continue;
		if (await_change(am, w, deadline_ns))
			continue;
		if (w->state == TT_POSTED_WAITING || grace_ns == 0)
			return 1;
		/* the body is arriving: wait longer, once */
		deadline_ns = tt_now_ns() + grace_ns;
		grace_ns = 0;
	}
}

int tt_am_recv(struct tt_am *am, const struct tt_am_match *want, uint64_t deadline_ns,
	       struct tt_am_header *ret_head)
{
	struct tt_am_posted w = { .want = want }, **at;
	int rc;

	pthread_mutex_lock(am->lock);
	*am->posted_last = &w;
	am->posted_last = &w.next;
	rc = wait_for(am, &w, deadline_ns, ret_head);
	while (w.state == TT_POSTED_FILLING && !move_to_unexpected(am, &w))
		tt_am_await(am, tt_now_ns() + 1000000);
	/* the body became complete while there was no memory */
	if (rc && w.state == TT_POSTED_DONE) {
		*ret_head = w.head;
		rc = 0;
	}
	for (at = &am->posted; *at != &w; at = &(*at)->next)
		;
	*at = w.next;
	if (am->posted_last == &w.next)
		am->posted_last = at;
	pthread_mutex_unlock(am->lock);
	return rc;
}
