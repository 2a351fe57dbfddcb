/*
 * am_unexpected.c - where letters go that come: to who waits for them, into the box, or nowhere yet
 *
 * Called by the connections, by am_recv.c, and to cancel. A letter that somebody waits for is
 * read gdr into his buffer; others are kept, as many as there is room for. Beyond that a
 * connection is held: its letter's head can be seen and asked for, its body stays with the sender.
 */
#include <stdlib.h>
#include <string.h>

#include "am/am_internal.h"

bool tt_unexpected_fits(const struct tt_am_match *want, const struct tt_am_header *h)
{
	return want->kind == h->kind && (want->source < 0 || want->source == h->source) &&
	       (want->tag < 0 || want->tag == h->tag);
}

/* ---- from a connection ----------------------------------------------------------------------- */

static struct tt_am_posted *find_waiter(struct tt_am *mail, const struct tt_am_header *h)
{
	for (struct tt_am_posted *w = mail->waiters; w; w = w->next)
		if (w->state == TT_POSTED_WAITING && !w->want->look && w->want->room >= h->bytes &&
		    tt_unexpected_fits(w->want, h))
			return w;
	return NULL;
}

struct tt_am_unexpected *tt_unexpected_make(struct tt_am *mail, const struct tt_am_header *h)
{
	struct tt_am_unexpected *l = aligned_alloc(64, (sizeof(*l) + h->bytes + 63) / 64 * 64);

	if (!l)
		return NULL;
	l->next = NULL;
	l->head = *h;
	mail->box_bytes += h->bytes;
	return l;
}

/* NULL: no room. What is not a user's is small, or wanted already: it always finds room. */
static struct tt_am_unexpected *find_room(struct tt_am *mail, const struct tt_am_header *h)
{
	if (h->kind == TT_AM_MESSAGE &&
	    (h->bytes > TT_AM_UNEXPECTED_BYTES || mail->box_bytes > TT_AM_UNEXPECTED_BYTES - h->bytes))
		return NULL;
	return tt_unexpected_make(mail, h);
}

void tt_unexpected_place(struct tt_am *mail, struct tt_am_conn *c)
{
	c->waiter = find_waiter(mail, &c->head);
	c->letter = c->waiter ? NULL : find_room(mail, &c->head);
	c->held = !c->waiter && !c->letter;
	if (c->waiter) {
		c->waiter->state = TT_POSTED_FILLING;
		c->to = c->waiter->want->to;
	} else if (c->letter) {
		c->to = c->letter->data;
	} else {
		pthread_cond_broadcast(&mail->changed);
	}
}

static void keep(struct tt_am *mail, struct tt_am_unexpected *l)
{
	struct tt_am_posted *w = find_waiter(mail, &l->head);

	if (w)
		w->state = TT_POSTED_CALLED;
	*mail->box_last = l;
	mail->box_last = &l->next;
	pthread_cond_broadcast(&mail->changed);
}

static void hand_over(struct tt_am *mail, struct tt_am_posted *w, const struct tt_am_header *h)
{
	w->head = *h;
	w->state = TT_POSTED_DONE;
	pthread_cond_broadcast(&mail->changed);
}

void tt_unexpected_unlink(struct tt_am *mail, struct tt_am_unexpected **at)
{
	struct tt_am_unexpected *l = *at;

	*at = l->next;
	if (mail->box_last == &l->next)
		mail->box_last = at;
}

static void discard(struct tt_am *mail, struct tt_am_unexpected **at)
{
	struct tt_am_unexpected *l = *at;

	tt_unexpected_unlink(mail, at);
	mail->box_bytes -= l->head.bytes;
	free(l);
}

/* An offer that was made too late is answered at once. */
static bool answer_standing(struct tt_am *mail, const struct tt_am_header *h)
{
	struct tt_am_header answer = { .kind = TT_AM_DECISION, .version = h->version };

	if (h->kind != TT_AM_OFFER || !mail->standing || h->version > mail->standing_version)
		return false;
	answer.bytes = mail->standing->bytes;
	tt_am_post(mail, h->source, &answer, mail->standing);
	return true;
}

void tt_am_decide(struct tt_am *mail, uint64_t version, const void *decision, size_t bytes)
{
	struct tt_am_payload *s = NULL;

	if (decision)
		s = aligned_alloc(64, (sizeof(*s) + bytes + 63) / 64 * 64);
	if (s) {
		s->users = 1;
		s->bytes = bytes;
		memcpy(s->data, decision, bytes);
	}
	pthread_mutex_lock(&mail->lock);
	if (mail->standing)
		tt_am_payload_drop(mail->standing);
	mail->standing = s;
	mail->standing_version = version;
	for (struct tt_am_unexpected **at = &mail->box; *at;) {
		if (answer_standing(mail, &(*at)->head))
			discard(mail, at);
		else
			at = &(*at)->next;
	}
	pthread_mutex_unlock(&mail->lock);
}

void tt_unexpected_arrived(struct tt_am *mail, struct tt_am_conn *c)
{
	if (c->letter && answer_standing(mail, &c->head)) {
		mail->box_bytes -= c->head.bytes;
		free(c->letter);
		return;
	}
	c->waiter ? hand_over(mail, c->waiter, &c->head) : keep(mail, c->letter);
}

void tt_unexpected_lost(struct tt_am *mail, struct tt_am_conn *c)
{
	if (c->waiter)
		c->waiter->state = TT_POSTED_WAITING;
	if (c->letter)
		mail->box_bytes -= c->head.bytes;
	free(c->letter);
	c->letter = NULL;
	c->waiter = NULL;
}

int tt_unexpected_put(struct tt_am *mail, const struct tt_am_header *head, const void *data)
{
	struct tt_am_header h = *head;
	struct tt_am_posted *w;
	struct tt_am_unexpected *l;
	uint8_t *to;

	h.source = mail->rank;
	if (h.kind == TT_AM_GIVE) {
		to = tt_quorum_place(mail, &h);
		if (to && h.bytes)
			memcpy(to, data, h.bytes);
		if (to)
			tt_quorum_arrived(mail, &h);
		return 1;
	}
	w = find_waiter(mail, &h);
	l = w ? NULL : find_room(mail, &h);
	if (!w && !l)
		return 0;
	if (h.bytes)
		memcpy(w ? w->want->to : l->data, data, h.bytes);
	mail->sent_bytes += h.bytes;
	mail->letters++;
	w ? hand_over(mail, w, &h) : keep(mail, l);
	return 1;
}

void tt_unexpected_make_way(struct tt_am *mail)
{
	for (struct tt_am_conn *c = mail->conns; c; c = c->next) {
		if (c->dead || !c->held)
			continue;
		tt_unexpected_place(mail, c);
		if (c->held)
			return;
		tt_am_conn_watch(mail, c);
	}
	pthread_cond_broadcast(&mail->changed);  /* letters to oneself wait as well */
}

/* ---- cancel ---------------------------------------------------------------------------------- */

static uint64_t drop(struct tt_am *mail, const struct tt_am_match *such, uint64_t version)
{
	struct tt_am_unexpected **at = &mail->box, *l;
	uint64_t dropped = 0;

	while ((l = *at)) {
		if (tt_unexpected_fits(such, &l->head) &&
		    (l->head.version < version || version == UINT64_MAX)) {
			discard(mail, at);
			dropped++;
		} else {
			at = &l->next;
		}
	}
	return dropped;
}

void tt_am_forget(struct tt_am *mail, enum tt_am_kind kind)
{
	struct tt_am_match such = { .kind = kind, .source = -1, .tag = -1 };

	pthread_mutex_lock(&mail->lock);
	drop(mail, &such, UINT64_MAX);
	pthread_mutex_unlock(&mail->lock);
}

uint64_t tt_am_cancel(struct tt_am *mail, int source, int tag, uint64_t version)
{
	struct tt_am_match such = { .kind = TT_AM_MESSAGE, .source = source, .tag = tag };
	uint64_t dropped;

	pthread_mutex_lock(&mail->lock);
	dropped = drop(mail, &such, version);
	for (struct tt_am_posted *w = mail->waiters; w; w = w->next)
		if (w->state == TT_POSTED_WAITING && w->want->kind == TT_AM_MESSAGE &&
		    w->want->source == source && w->want->tag == tag)
			w->state = TT_POSTED_CANCELLED;
	tt_unexpected_make_way(mail);
	pthread_cond_broadcast(&mail->changed);
	pthread_mutex_unlock(&mail->lock);
	return dropped;
}

void tt_unexpected_free(struct tt_am *mail)
{
	struct tt_am_unexpected *next;

	for (struct tt_am_unexpected *l = mail->box; l; l = next) {
		next = l->next;
		free(l);
	}
	mail->box = NULL;
	if (mail->standing)
		tt_am_payload_drop(mail->standing);
}
