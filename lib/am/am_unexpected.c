/*
 * am_unexpected.c - match incoming messages: to a posted receive, the unexpected queue, or stalled
 *
 * Called by am_stream.c, am_recv.c and tuttiMsgCancel. A message that matches a posted receive goes
 * directly into the buffer of that receive. Other messages go to the unexpected queue, while there
 * is room. Without room the stream is stalled (back-pressure): the header can be probed and
 * received, the body stays with the sender.
 */
#include <stdlib.h>
#include <string.h>

#include "am/am_internal.h"

bool tt_unexpected_matches(const struct tt_am_match *want, const struct tt_am_header *h)
{
	return want->kind == h->kind && (want->source < 0 || want->source == h->source) &&
	       (want->tag < 0 || want->tag == h->tag);
}

/* ---- from a stream --------------------------------------------------------------------------- */

static struct tt_am_posted *find_posted(struct tt_am *am, const struct tt_am_header *h)
{
	for (struct tt_am_posted *w = am->posted; w; w = w->next)
		if (w->state == TT_POSTED_WAITING && !w->want->probe && w->want->room >= h->bytes &&
		    tt_unexpected_matches(w->want, h))
			return w;
	return NULL;
}

struct tt_am_unexpected *tt_unexpected_alloc(struct tt_am *am, const struct tt_am_header *h)
{
	struct tt_am_unexpected *u = aligned_alloc(64, (sizeof(*u) + h->bytes + 63) / 64 * 64);

	if (!u)
		return NULL;
	u->next = NULL;
	u->head = *h;
	am->unexpected_bytes += h->bytes;
	return u;
}

/* Returns NULL if there is no room. Small messages of the library always get room; a result waits
 * for its receive, like a message of the user. */
static struct tt_am_unexpected *alloc_if_room(struct tt_am *am, const struct tt_am_header *h)
{
	if ((h->kind == TT_AM_USER_MESSAGE || h->kind == TT_AM_RESULT) &&
	    (h->bytes > am->unexpected_most ||
	     am->unexpected_bytes > am->unexpected_most - h->bytes))
		return NULL;
	return tt_unexpected_alloc(am, h);
}

bool tt_unexpected_route(struct tt_am *am, struct tt_am_stream *s)
{
	s->posted = find_posted(am, &s->head);
	s->unexpected = s->posted ? NULL : alloc_if_room(am, &s->head);
	if (s->posted) {
		s->posted->state = TT_POSTED_FILLING;
		s->to = s->posted->want->to;
	} else if (s->unexpected) {
		s->to = s->unexpected->data;
	}
	return s->posted || s->unexpected;
}

static void append(struct tt_am *am, struct tt_am_unexpected *u)
{
	struct tt_am_posted *w = find_posted(am, &u->head);

	if (w)
		w->state = TT_POSTED_NOTIFIED;
	*am->unexpected_last = u;
	am->unexpected_last = &u->next;
	pthread_cond_broadcast(&am->changed);
}

static void complete_posted(struct tt_am *am, struct tt_am_posted *w, const struct tt_am_header *h)
{
	w->head = *h;
	w->state = TT_POSTED_DONE;
	pthread_cond_broadcast(&am->changed);
}

void tt_unexpected_unlink(struct tt_am *am, struct tt_am_unexpected **at)
{
	struct tt_am_unexpected *u = *at;

	*at = u->next;
	if (am->unexpected_last == &u->next)
		am->unexpected_last = at;
}

void tt_unexpected_arrived(struct tt_am *am, struct tt_am_stream *s)
{
	s->posted ? complete_posted(am, s->posted, &s->head) : append(am, s->unexpected);
}

void tt_unexpected_lost(struct tt_am *am, struct tt_am_stream *s)
{
	if (s->posted)
		s->posted->state = TT_POSTED_WAITING;
	if (s->unexpected)
		am->unexpected_bytes -= s->head.bytes;
	free(s->unexpected);
	s->unexpected = NULL;
	s->posted = NULL;
}

/* ---- whole messages -------------------------------------------------------------------------- */

bool tt_unexpected_place(struct tt_am *am, const struct tt_am_header *h, const void *data)
{
	struct tt_am_posted *w = find_posted(am, h);
	struct tt_am_unexpected *u = w ? NULL : alloc_if_room(am, h);

	if (!w && !u)
		return false;
	if (h->bytes)
		memcpy(w ? w->want->to : u->data, data, h->bytes);
	w ? complete_posted(am, w, h) : append(am, u);
	return true;
}

int tt_unexpected_put(struct tt_am *am, const struct tt_am_header *head, const void *data)
{
	struct tt_am_header h = *head;
	uint8_t *to;

	h.source = am->rank;
	if (h.kind == TT_AM_CONTRIBUTION) {
		to = tt_quorum_begin(am, &h);
		if (to && h.bytes)
			memcpy(to, data, h.bytes);
		if (to)
			tt_quorum_arrived(am, &h);
		return 1;
	}
	if (!tt_unexpected_place(am, &h, data))
		return 0;
	am->sent_bytes += h.bytes;
	am->messages++;
	return 1;
}

void tt_unexpected_resume(struct tt_am *am)
{
	struct tt_am_stream *s, *next;

	for (s = am->stalled; s; s = next) {
		next = s->next_stalled;
		if (tt_unexpected_route(am, s))
			tt_stream_resume(am, s);
		else if (s->head.bytes <= am->unexpected_most)
			return; /* else smaller messages of other ranks would overtake this one for ever */
	}
	/* sends of this rank to itself may wait for room, too */
	pthread_cond_broadcast(&am->changed);
}

/* ---- cancel ---------------------------------------------------------------------------------- */

static void discard(struct tt_am *am, struct tt_am_unexpected **at)
{
	struct tt_am_unexpected *u = *at;

	tt_unexpected_unlink(am, at);
	am->unexpected_bytes -= u->head.bytes;
	free(u);
}

static uint64_t drop(struct tt_am *am, const struct tt_am_match *match, uint64_t version)
{
	struct tt_am_unexpected **at = &am->unexpected, *u;
	uint64_t dropped = 0;

	while ((u = *at)) {
		if (tt_unexpected_matches(match, &u->head) &&
		    (u->head.version < version || version == UINT64_MAX)) {
			discard(am, at);
			dropped++;
		} else {
			at = &u->next;
		}
	}
	return dropped;
}

void tt_am_drop(struct tt_am *am, enum tt_am_kind kind)
{
	struct tt_am_match match = { .kind = kind, .source = -1, .tag = -1 };

	pthread_mutex_lock(am->lock);
	drop(am, &match, UINT64_MAX);
	for (struct tt_am_stream *s = am->stalled, *next; s; s = next) {
		next = s->next_stalled;
		if (s->head.kind == kind)
			tt_stream_resume(am, s); /* without a destination: discarded */
	}
	tt_unexpected_resume(am);
	pthread_mutex_unlock(am->lock);
}

uint64_t tt_am_cancel(struct tt_am *am, int source, int tag, uint64_t version)
{
	struct tt_am_match match = { .kind = TT_AM_USER_MESSAGE, .source = source, .tag = tag };
	uint64_t dropped;

	pthread_mutex_lock(am->lock);
	dropped = drop(am, &match, version);
	for (struct tt_am_posted *w = am->posted; w; w = w->next)
		if (w->state == TT_POSTED_WAITING && w->want->kind == TT_AM_USER_MESSAGE &&
		    w->want->source == source && w->want->tag == tag)
			w->state = TT_POSTED_CANCELED;
	tt_unexpected_resume(am);
	pthread_cond_broadcast(&am->changed);
	pthread_mutex_unlock(am->lock);
	return dropped;
}

void tt_unexpected_free(struct tt_am *am)
{
	struct tt_am_unexpected *next;

	for (struct tt_am_unexpected *u = am->unexpected; u; u = next) {
		next = u->next;
		free(u);
	}
	am->unexpected = NULL;
}
