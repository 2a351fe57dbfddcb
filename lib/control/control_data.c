/*
 * control_data.c - data sockets: the lower rank of a pair dials in a thread, both ranks poll
 *
 * Called by transports, through comm. A dial takes as long as the network and the peer's service
 * thread need, so a thread works through the dials of this rank; it exists while there are some. As
 * long as dials wait, another thread helps after every MORE_NS, at most TT_DIALERS: one alone would
 * wait 255 times, when rank 0 dials 255 ranks that share two cores. The caller's thread never waits.
 */
#include <openssl/crypto.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/thread.h"
#include "control/control_internal.h"

#define MORE_NS (TT_SECOND / 100)

static struct tt_data_dial *next_dial(struct tt_control *ctl)
{
	struct tt_data_dial *d = ctl->dialer.dials;

	while (d && d->begun)
		d = d->next;
	return d;
}

/* Thread: dialer. Fields of a dial that is not finished do not change. */
static void *work(void *arg)
{
	struct tt_dialer_thread *thread = arg;
	struct tt_control *ctl = thread->ctl;
	struct tt_data_dial *d;

	tt_control_lock(ctl);
	while ((d = next_dial(ctl))) {
		struct tt_dial dial = tt_dial_of(ctl, d->peer, TT_P_DATA, d->deadline_ns);
		struct tt_duplex duplex;
		int rc;

		d->begun = true;
		dial.channel = d->channel;
		dial.network = true;
		tt_control_unlock(ctl);
		rc = tt_control_connect(ctl, &dial, &duplex);
		tt_control_lock(ctl);
		if (!rc && !tt_tls_data_keys(duplex.tls, dial.hello, &d->keys)) {
			tt_tls_close(duplex.tls);
			rc = tt_fail(TT_SYSTEM, "rank %d: no memory to connect to rank %d",
				     ctl->rank, d->peer);
		}
		if (rc)
			snprintf(d->text, sizeof(d->text), "%s", tt_error_text());
		d->code = rc;
		d->fd = rc ? -1 : tt_tls_release(duplex.tls);
		tt_observers_connected(ctl);
	}
	thread->working = false;
	tt_control_unlock(ctl);
	return NULL;
}

/* A thread that has finished its work, or is about to */
static void join_thread(struct tt_dialer_thread *t)
{
	if (t->started)
		pthread_join(t->thread, NULL);
	t->started = false;
}

static bool is_working(struct tt_dialer_thread *t)
{
	bool working;

	tt_control_lock(t->ctl);
	working = t->working;
	tt_control_unlock(t->ctl);
	return working;
}

static int start_thread(struct tt_control *ctl, struct tt_dialer_thread *t)
{
	int rc;

	t->ctl = ctl;
	t->working = true;
	rc = tt_thread_start(&t->thread, "tutti-dialer", work, t);
	t->started = rc == 0;
	if (!rc)
		return 0;
	t->working = false;
	return tt_fail(TT_SYSTEM, "rank %d: cannot start a thread: %s", ctl->rank, strerror(rc));
}

/* Starts one more dialer thread, up to TT_DIALERS. If it cannot start, the others do its work. */
static int add_dialer(struct tt_control *ctl)
{
	struct tt_dialer_thread *idle = NULL;
	bool others = false;
	int rc;

	for (int i = 0; i < TT_DIALERS; i++) {
		struct tt_dialer_thread *t = &ctl->dialer.thread[i];

		if (t->started && is_working(t))
			others = true;
		else
			idle = t;
	}
	if (!idle || (others && tt_now_ns() < ctl->dialer.started_ns + MORE_NS))
		return 0;
	join_thread(idle);
	rc = start_thread(ctl, idle);
	ctl->dialer.started_ns = tt_now_ns();
	return others ? 0 : rc;
}

int tt_control_dial(struct tt_control *ctl, int peer, int channel, uint64_t deadline_ns)
{
	struct tt_data_dial *d = calloc(1, sizeof(*d)), **at;

	if (!d)
		return tt_fail(TT_SYSTEM, "rank %d: no memory to connect to rank %d", ctl->rank,
			       peer);
	d->peer = peer;
	d->channel = channel;
	d->deadline_ns = deadline_ns;
	d->fd = -1;
	tt_control_lock(ctl);
	for (at = &ctl->dialer.dials; *at;)
		at = &(*at)->next;
	*at = d;
	tt_control_unlock(ctl);
	return add_dialer(ctl);
}

static void free_dial(struct tt_data_dial *d)
{
	OPENSSL_cleanse(&d->keys, sizeof(d->keys));
	free(d);
}

/* 1 | 0 not finished | < 0 it failed. Locked. */
static int take_dialed(struct tt_control *ctl, int peer, int channel, int *ret_fd,
		       struct tt_data_keys *ret_keys)
{
	struct tt_data_dial **at = &ctl->dialer.dials, *d;

	while ((d = *at) && (d->peer != peer || d->channel != channel))
		at = &d->next;
	if (!d)
		return 0;
	if (d->code)
		return tt_fail(d->code, "%s", d->text);
	if (d->fd < 0)
		return 0;
	*at = d->next;
	*ret_fd = d->fd;
	*ret_keys = d->keys;
	free_dial(d);
	return 1;
}

/* ---- accepted ones, until they are taken ------------------------------------------------------- */

static void forget_parked(struct tt_control_endpoint *ep, struct tt_parked *p)
{
	struct tt_parked **at = &ep->listening.parked;

	while (*at != p)
		at = &(*at)->next;
	*at = p->next;
	if (p->fd >= 0)
		tt_sock_close(p->fd);
	OPENSSL_cleanse(p, sizeof(*p));
	free(p);
}

/* The peer, which has got the verdict, would wait for this rank until its deadline. */
static void no_memory(struct tt_control_endpoint *ep, const struct tt_hello *h)
{
	struct tt_control *ctl = tt_endpoint_find(ep, h->context);
	char text[96];

	if (!ctl)
		return;
	snprintf(text, sizeof(text), "rank %d: no memory for a connection of rank %d", ctl->rank,
		 tt_control_rank(ctl, h->from));
	tt_control_break(ctl, TT_SYSTEM, ctl->rank, 0, text, -1);
}

/* The peer has dialed again, so it has given up the connection that this rank has taken, and what this
 * rank has sent on it is lost. */
static void break_taken(struct tt_control *ctl, const struct tt_hello *h)
{
	int rank = ctl ? tt_control_rank(ctl, h->from) : -1;
	char text[128];

	if (rank < 0)
		return;
	snprintf(text, sizeof(text),
		 "rank %d: the network has lost the connection to rank %d (channel %u)", ctl->rank,
		 rank, (unsigned)h->channel);
	tt_control_break(ctl, TT_REMOTE, rank, 0, text, -1);
}

/* A second tt_control_dial of the same (peer, channel) replaces the first one, which its dialer has
 * given up. */
void tt_parked_add(struct tt_control_endpoint *ep, const struct tt_hello *h, struct tt_tls *tls)
{
	struct tt_parked *p = ep->listening.parked, *fresh = calloc(1, sizeof(*fresh));
	struct tt_control *ctl = tt_endpoint_find(ep, h->context);
	uint8_t hello[TT_HELLO_BYTES];

	tt_hello_put(h, hello);
	if (!fresh || !tt_tls_data_keys(tls, hello, &fresh->keys)) {
		free(fresh);
		tt_tls_close(tls);
		no_memory(ep, h);
		return;
	}
	fresh->fd = tt_tls_release(tls);
	fresh->context = h->context;
	fresh->peer = h->from;
	fresh->channel = h->channel;
	while (p && (p->context != h->context || p->peer != h->from || p->channel != h->channel))
		p = p->next;
	fresh->next = ep->listening.parked;
	ep->listening.parked = fresh;
	if (p && p->fd < 0)
		break_taken(ctl, h);
	if (p)
		forget_parked(ep, p);
	if (ctl)
		tt_observers_connected(ctl);
}

void tt_parked_close(struct tt_control_endpoint *ep, uint64_t context)
{
	struct tt_parked *next;

	for (struct tt_parked *p = ep->listening.parked; p; p = next) {
		next = p->next;
		if (p->context == context)
			forget_parked(ep, p);
	}
}

/* 1 | 0 the peer has not dialed yet. Locked. */
static int take_parked(struct tt_control *ctl, int peer, int channel, bool once, int *ret_fd,
		       struct tt_data_keys *ret_keys)
{
	struct tt_parked *p = ctl->ep->listening.parked;
	int from = tt_control_peer(ctl, peer);

	while (p && (p->context != ctl->context || p->peer != from || p->channel != channel))
		p = p->next;
	if (!p || p->fd < 0) {
		ctl->join.claim_ns = tt_now_ns();
		return 0;
	}
	*ret_fd = p->fd;
	*ret_keys = p->keys;
	p->fd = -1; /* taken */
	OPENSSL_cleanse(&p->keys, sizeof(p->keys));
	if (once)
		forget_parked(ctl->ep, p);
	return 1;
}

int tt_control_take(struct tt_control *ctl, int peer, int channel, bool once, int *ret_fd,
		    struct tt_data_keys *ret_keys)
{
	struct tt_data_keys keys;
	bool dials, waits;
	int rc;

	if (tt_control_broken(ctl))
		return tt_control_fail(ctl);
	tt_control_lock(ctl);
	rc = ctl->rank < peer ? take_dialed(ctl, peer, channel, ret_fd, &keys)
			      : take_parked(ctl, peer, channel, once, ret_fd, &keys);
	dials = ctl->dialer.dials != NULL;
	waits = next_dial(ctl) != NULL;
	tt_control_unlock(ctl);
	if (rc < 0 || (!rc && !waits))
		return rc;
	if (!rc)
		return add_dialer(ctl);
	for (int i = 0; i < TT_DIALERS && !dials; i++)
		join_thread(&ctl->dialer.thread[i]);
	tt_sock_set_blocking(*ret_fd, true);
	*ret_keys = keys;
	OPENSSL_cleanse(&keys, sizeof(keys));
	return 1;
}

void tt_dialer_stop(struct tt_control *ctl)
{
	struct tt_data_dial *d;

	for (int i = 0; i < TT_DIALERS; i++)
		if (ctl->dialer.thread[i].started)
			atomic_store(&ctl->broken, TT_REMOTE); /* ends a dial in progress */
	for (int i = 0; i < TT_DIALERS; i++)
		join_thread(&ctl->dialer.thread[i]);
	while ((d = ctl->dialer.dials)) {
		ctl->dialer.dials = d->next;
		tt_sock_close(d->fd);
		free_dial(d);
	}
}
