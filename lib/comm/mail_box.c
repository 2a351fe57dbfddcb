/*
 * mail_box.c - letters that have come, and who waits for them
 *
 * Called by callers (receive, cancel) and by the connections. A letter that somebody waits for is
 * read straight into his buffer; others are kept, as many as there is room for. Beyond that a
 * connection is held: its letter's head can be seen and asked for, its body stays with the sender.
 */
#include <stdlib.h>
#include <string.h>

#include "comm/mail_inside.h"

static bool fits(const struct tt_mail_want *want, const struct tt_letter_head *h)
{
	return want->kind == h->kind && (want->source < 0 || want->source == h->source) &&
	       (want->tag < 0 || want->tag == h->tag);
}

/* ---- from a connection ----------------------------------------------------------------------- */

static struct tt_waiter *find_waiter(struct tt_mail *mail, const struct tt_letter_head *h)
{
	for (struct tt_waiter *w = mail->waiters; w; w = w->next)
		if (w->state == TT_W_WAITING && !w->want->look && w->want->room >= h->bytes &&
		    fits(w->want, h))
			return w;
	return NULL;
}

static struct tt_letter *make_letter(struct tt_mail *mail, const struct tt_letter_head *h)
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
	return make_letter(mail, h);
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

static void unlink_letter(struct tt_mail *mail, struct tt_letter **at)
{
	struct tt_letter *l = *at;

	*at = l->next;
	if (mail->box_last == &l->next)
		mail->box_last = at;
}

static void discard(struct tt_mail *mail, struct tt_letter **at)
{
	struct tt_letter *l = *at;

	unlink_letter(mail, at);
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

/* ---- receiving ------------------------------------------------------------------------------- */

/* There is room again: those that were held read on. */
static void make_way(struct tt_mail *mail)
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

static int too_large(struct tt_mail *mail, const struct tt_letter_head *h, size_t room)
{
	return tt_fail(TT_ARG,
		"rank %d: the message from rank %d with tag %d has %llu bytes, the buffer %zu; it stays",
		mail->rank, h->source, h->tag, (unsigned long long)h->bytes, room);
}

/* From the box: 0 | 1 none there | TT_ARG. Locked, but not while it copies. */
static int take_kept(struct tt_mail *mail, struct tt_waiter *w, struct tt_letter_head *ret_head)
{
	const struct tt_mail_want *want = w->want;
	struct tt_letter **at = &mail->box, *l;

	while ((l = *at) && !fits(want, &l->head))
		at = &l->next;
	if (!l)
		return 1;
	if (!want->look && l->head.bytes > want->room)
		return too_large(mail, &l->head, want->room);
	*ret_head = l->head;
	if (want->look)
		return 0;
	w->state = TT_W_DONE;                    /* nothing else is to be read into its buffer */
	unlink_letter(mail, at);
	mail->box_bytes -= l->head.bytes;
	make_way(mail);
	pthread_mutex_unlock(&mail->lock);
	if (l->head.bytes)
		memcpy(want->to, l->data, l->head.bytes);
	free(l);
	pthread_mutex_lock(&mail->lock);
	return 0;
}

/* A connection that is held with such a letter: 0 seen (only to look) | 1 none, or it is being read
 * for waiter | TT_ARG */
static int ask_held(struct tt_mail *mail, struct tt_waiter *waiter, struct tt_letter_head *ret_head)
{
	const struct tt_mail_want *want = waiter->want;
	struct tt_mail_conn *c = mail->conns;

	while (c && (c->dead || !c->held || !fits(want, &c->head)))
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
	waiter->state = TT_W_FILLING;
	tt_mail_conn_watch(mail, c);
	return 1;
}

/* Nobody who could still send it. */
static bool hopeless(const struct tt_mail *mail, int source)
{
	for (int r = 0; r < mail->nranks; r++)
		if ((source < 0 ? r != mail->rank : source == r) &&
		    (!mail->gone[r] || tt_mail_live(mail, r)))
			return false;
	return mail->nranks > 1 && source != mail->rank;
}

static int no_hope(struct tt_mail *mail, int source)
{
	if (source < 0)
		return tt_fail(TT_REMOTE, "rank %d: every other rank is dead or has left",
			       mail->rank);
	return tt_fail(TT_REMOTE, "rank %d: rank %d %s, and nothing more of it can come",
		       mail->rank, source,
		       mail->gone[source] == tuttiRankLeft ? "has left" : "is dead");
}

/* The time is over amid a body: the rest of it goes to a letter. false: no memory */
static bool withdraw(struct tt_mail *mail, struct tt_waiter *w)
{
	struct tt_mail_conn *c = mail->conns;
	struct tt_letter *l;

	while (c->waiter != w)
		c = c->next;
	l = make_letter(mail, &c->head);
	if (!l)
		return false;
	if (c->have)
		memcpy(l->data, c->to, c->have);
	c->letter = l;
	c->to = l->data;
	c->waiter = NULL;
	return true;
}

static int wait_for(struct tt_mail *mail, struct tt_waiter *w, uint64_t deadline_ns,
		    struct tt_letter_head *ret_head)
{
	uint64_t patience_ns = mail->timeout_ms * 1000000ull;
	int rc;

	for (;;) {
		if (w->state == TT_W_DONE) {
			*ret_head = w->head;
			return 0;
		}
		if (mail->cut)
			return tt_fail(TT_REMOTE, "rank %d: the communicator was aborted",
				       mail->rank);
		if (w->state == TT_W_CANCELLED)
			return 1;
		if (w->state == TT_W_CALLED)
			w->state = TT_W_WAITING;
		if (w->state == TT_W_WAITING && (rc = take_kept(mail, w, ret_head)) <= 0)
			return rc;
		if (w->state == TT_W_WAITING && (rc = ask_held(mail, w, ret_head)) <= 0)
			return rc;
		if (w->state == TT_W_WAITING && hopeless(mail, w->want->source))
			return no_hope(mail, w->want->source);
		if (tt_mail_await(mail, deadline_ns))
			continue;
		if (w->state == TT_W_WAITING || patience_ns == 0)
			return 1;
		deadline_ns = tt_now_ns() + patience_ns;         /* its bytes are coming */
		patience_ns = 0;
	}
}

int tt_mail_recv(struct tt_mail *mail, const struct tt_mail_want *want, uint64_t deadline_ns,
		 struct tt_letter_head *ret_head)
{
	struct tt_waiter w = { .want = want }, **at;
	int rc;

	pthread_mutex_lock(&mail->lock);
	*mail->waiters_last = &w;
	mail->waiters_last = &w.next;
	rc = wait_for(mail, &w, deadline_ns, ret_head);
	while (w.state == TT_W_FILLING && !withdraw(mail, &w))
		tt_mail_await(mail, tt_now_ns() + 1000000);
	if (rc && w.state == TT_W_DONE) {        /* the last bytes came while there was no memory */
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

/* ---- cancel ---------------------------------------------------------------------------------- */

static uint64_t drop(struct tt_mail *mail, const struct tt_mail_want *such, uint64_t version)
{
	struct tt_letter **at = &mail->box, *l;
	uint64_t dropped = 0;

	while ((l = *at)) {
		if (fits(such, &l->head) && (l->head.version < version || version == UINT64_MAX)) {
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
	make_way(mail);
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
