/*
 * am_unexpected.c - where letters go that come: to who waits for them, into the box, or nowhere yet
 *
 * Called by the connections, by am_recv.c, and to cancel. A letter that somebody waits for is
 * read straight into his buffer; others are kept, as many as there is room for. Beyond that a
 * connection is held: its letter's head can be seen and asked for, its body stays with the sender.
 */
#include <stdlib.h>
#include <string.h>

#include "am/am_internal.h"

bool tt_box_fits(const struct tt_mail_want *want, const struct tt_letter_head *h)
{
	return want->kind == h->kind && (want->source < 0 || want->source == h->source) &&
	       (want->tag < 0 || want->tag == h->tag);
}

/* ---- from a connection ----------------------------------------------------------------------- */

static struct tt_waiter *find_waiter(struct tt_mail *mail, const struct tt_letter_head *h)
{
	for (struct tt_waiter *w = mail->waiters; w; w = w->next)
		if (w->state == TT_W_WAITING && !w->want->look && w->want->room >= h->bytes &&
		    tt_box_fits(w->want, h))
			return w;
	return NULL;
}

struct tt_letter *tt_box_letter(struct tt_mail *mail, const struct tt_letter_head *h)
{
	struct tt_letter *l = aligned_alloc(64, (sizeof(*l) + h->bytes + 63) / 64 * 64);

	if (!l)
		return NULL;
	l->next = NULL;
	l->head = *h;
	mail->box_bytes += h->bytes;
	return l;
}

/* NULL: no room. What is not a user's is small, or wanted already: it always finds room. */
static struct tt_letter *find_room(struct tt_mail *mail, const struct tt_letter_head *h)
{
	if (h->kind == TT_M_MESSAGE &&
	    (h->bytes > TT_MAIL_BOX || mail->box_bytes > TT_MAIL_BOX - h->bytes))
		return NULL;
	return tt_box_letter(mail, h);
}

void tt_box_place(struct tt_mail *mail, struct tt_mail_conn *c)
{
	c->waiter = find_waiter(mail, &c->head);
	c->letter = c->waiter ? NULL : find_room(mail, &c->head);
	c->held = !c->waiter && !c->letter;
	if (c->waiter) {
		c->waiter->state = TT_W_FILLING;
		c->to = c->waiter->want->to;
	} else if (c->letter) {
		c->to = c->letter->data;
	} else {
		pthread_cond_broadcast(&mail->changed);
	}
}

static void keep(struct tt_mail *mail, struct tt_letter *l)
{
	struct tt_waiter *w = find_waiter(mail, &l->head);

	if (w)
		w->state = TT_W_CALLED;
	*mail->box_last = l;
	mail->box_last = &l->next;
	pthread_cond_broadcast(&mail->changed);
}

static void hand_over(struct tt_mail *mail, struct tt_waiter *w, const struct tt_letter_head *h)
{
	w->head = *h;
	w->state = TT_W_DONE;
	pthread_cond_broadcast(&mail->changed);
}

void tt_box_unlink(struct tt_mail *mail, struct tt_letter **at)
{
	struct tt_letter *l = *at;

	*at = l->next;
	if (mail->box_last == &l->next)
		mail->box_last = at;
}

static void discard(struct tt_mail *mail, struct tt_letter **at)
{
	struct tt_letter *l = *at;

	tt_box_unlink(mail, at);
	mail->box_bytes -= l->head.bytes;
	free(l);
}

/* An offer that was made too late is answered at once. */
static bool answer_standing(struct tt_mail *mail, const struct tt_letter_head *h)
{
	struct tt_letter_head answer = { .kind = TT_M_DECISION, .version = h->version };

	if (h->kind != TT_M_OFFER || !mail->standing || h->version > mail->standing_version)
		return false;
	answer.bytes = mail->standing->bytes;
	tt_mail_post(mail, h->source, &answer, mail->standing);
	return true;
}

void tt_mail_stand(struct tt_mail *mail, uint64_t version, const void *decision, size_t bytes)
{
	struct tt_shared *s = NULL;

	if (decision)
		s = aligned_alloc(64, (sizeof(*s) + bytes + 63) / 64 * 64);
	if (s) {
		s->users = 1;
		s->bytes = bytes;
		memcpy(s->data, decision, bytes);
	}
	pthread_mutex_lock(&mail->lock);
	if (mail->standing)
		tt_shared_drop(mail->standing);
	mail->standing = s;
	mail->standing_version = version;
	for (struct tt_letter **at = &mail->box; *at;) {
		if (answer_standing(mail, &(*at)->head))
			discard(mail, at);
		else
			at = &(*at)->next;
	}
	pthread_mutex_unlock(&mail->lock);
}

void tt_box_arrived(struct tt_mail *mail, struct tt_mail_conn *c)
{
	if (c->letter && answer_standing(mail, &c->head)) {
		mail->box_bytes -= c->head.bytes;
		free(c->letter);
		return;
	}
	c->waiter ? hand_over(mail, c->waiter, &c->head) : keep(mail, c->letter);
}

void tt_box_lost(struct tt_mail *mail, struct tt_mail_conn *c)
{
	if (c->waiter)
		c->waiter->state = TT_W_WAITING;
	if (c->letter)
		mail->box_bytes -= c->head.bytes;
	free(c->letter);
	c->letter = NULL;
	c->waiter = NULL;
}

int tt_box_put(struct tt_mail *mail, const struct tt_letter_head *head, const void *data)
{
	struct tt_letter_head h = *head;
	struct tt_waiter *w;
	struct tt_letter *l;
	uint8_t *to;

	h.source = mail->rank;
	if (h.kind == TT_M_GIVE) {
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

void tt_box_make_way(struct tt_mail *mail)
{
	for (struct tt_mail_conn *c = mail->conns; c; c = c->next) {
		if (c->dead || !c->held)
			continue;
		tt_box_place(mail, c);
		if (c->held)
			return;
		tt_mail_conn_watch(mail, c);
	}
	pthread_cond_broadcast(&mail->changed);  /* letters to oneself wait as well */
}

/* ---- cancel ---------------------------------------------------------------------------------- */

static uint64_t drop(struct tt_mail *mail, const struct tt_mail_want *such, uint64_t version)
{
	struct tt_letter **at = &mail->box, *l;
	uint64_t dropped = 0;

	while ((l = *at)) {
		if (tt_box_fits(such, &l->head) &&
		    (l->head.version < version || version == UINT64_MAX)) {
			discard(mail, at);
			dropped++;
		} else {
			at = &l->next;
		}
	}
	return dropped;
}

void tt_mail_forget(struct tt_mail *mail, enum tt_mail_kind kind)
{
	struct tt_mail_want such = { .kind = kind, .source = -1, .tag = -1 };

	pthread_mutex_lock(&mail->lock);
	drop(mail, &such, UINT64_MAX);
	pthread_mutex_unlock(&mail->lock);
}

uint64_t tt_mail_cancel(struct tt_mail *mail, int source, int tag, uint64_t version)
{
	struct tt_mail_want such = { .kind = TT_M_MESSAGE, .source = source, .tag = tag };
	uint64_t dropped;

	pthread_mutex_lock(&mail->lock);
	dropped = drop(mail, &such, version);
	for (struct tt_waiter *w = mail->waiters; w; w = w->next)
		if (w->state == TT_W_WAITING && w->want->kind == TT_M_MESSAGE &&
		    w->want->source == source && w->want->tag == tag)
			w->state = TT_W_CANCELLED;
	tt_box_make_way(mail);
	pthread_cond_broadcast(&mail->changed);
	pthread_mutex_unlock(&mail->lock);
	return dropped;
}

void tt_box_free(struct tt_mail *mail)
{
	struct tt_letter *next;

	for (struct tt_letter *l = mail->box; l; l = next) {
		next = l->next;
		free(l);
	}
	mail->box = NULL;
	if (mail->standing)
		tt_shared_drop(mail->standing);
}
