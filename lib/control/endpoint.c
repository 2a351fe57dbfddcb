/*
 * endpoint.c - make an endpoint, run its service thread, give frames to the controls
 *
 * Called by control.c and bootstrap.c. The service thread sleeps in epoll until a connection is
 * readable, a peer connects, a timer is due or tt_endpoint_wake is called. The thread works under
 * ep->lock and never blocks there.
 *
 * A peer may be the first to know that a split is decided: its frames for the new control come
 * before this rank has made that control. They are kept while a split or shrink is in progress.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "base/thread.h"
#include "control/control_internal.h"

#define EVENTS 32
#define EARLY_MOST (4u << 20) /* bytes of early frames */

struct tt_early {
	struct tt_early *next;
	int peer;
	struct tt_frame_head head;
	uint8_t data[];
};

/* ---- make and free --------------------------------------------------------------------------- */

int tt_endpoint_watch(struct tt_control_endpoint *ep, int fd, enum tt_source *source)
{
	struct epoll_event ev = { .events = EPOLLIN, .data.ptr = source };

	if (epoll_ctl(ep->service.epoll, EPOLL_CTL_ADD, fd, &ev))
		return tt_fail(TT_SYSTEM, "rank %d: epoll: %m", ep->peer);
	return 0;
}

static int open_descriptors(struct tt_control_endpoint *ep, const struct tt_ports *ports)
{
	int rc = tt_sock_among(ports, tt_sock_listen, &ep->listener.fd, &ep->listener.port);
	char what[64];

	if (rc && ep->peer && ports->first && ports->count < 2 && errno == EADDRINUSE)
		return tt_fail(
			TT_SYSTEM,
			"rank %d: TUTTI_PORT_RANGE has port %d alone, which is in use; every rank takes one",
			ep->peer, ports->first);
	if (rc && ports->first && ports->count < 2 && errno == EADDRINUSE)
		return tt_fail(
			TT_SYSTEM,
			"rank %d: port %d, where rank 0 must listen, is in use by another process, "
			"or by another rank 0 with the same id; make a new id",
			ep->peer, ports->first);
	if (rc)
		return tt_fail(rc, "rank %d: %s", ep->peer, tt_error_text());
	ep->service.epoll = tt_sock_own(epoll_create1(EPOLL_CLOEXEC));
	ep->service.wake = ep->service.epoll < 0
				   ? -1
				   : tt_sock_own(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
	ep->listener.reserve_fd = ep->service.wake < 0
					  ? -1
					  : tt_sock_own(open("/dev/null", O_RDONLY | O_CLOEXEC));
	if (ep->listener.reserve_fd < 0) {
		snprintf(what, sizeof(what), "rank %d: cannot watch its connections", ep->peer);
		return tt_sock_fail(what);
	}
	rc = tt_endpoint_watch(ep, ep->service.wake, &ep->service.wake_source);
	return rc ? rc : tt_endpoint_watch(ep, ep->listener.fd, &ep->listener.source);
}

int tt_endpoint_make(int peer, int npeers, struct tt_control_endpoint **ret_ep)
{
	struct tt_control_endpoint *ep = calloc(1, sizeof(*ep));
	pthread_condattr_t attr;
	int rc = 0;

	if (!ep)
		return tt_fail(TT_SYSTEM, "rank %d: no memory for the control of %d ranks", peer,
			       npeers);
	ep->peer = peer;
	ep->npeers = npeers;
	ep->pid = getpid();
	ep->service.wake_source = TT_SRC_WAKE;
	ep->listener.source = TT_SRC_LISTENER;
	ep->listener.resume_ns = TT_NEVER;
	ep->service.epoll = ep->service.wake = ep->listener.fd = ep->listener.reserve_fd = -1;
	pthread_mutex_init(&ep->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&ep->changed, &attr);
	pthread_condattr_destroy(&attr);
	ep->service.in = malloc(TT_READ_AT_ONCE);
	ep->auth.key = tt_key_alloc();
	ep->peers.business_cards = calloc((size_t)npeers, sizeof(*ep->peers.business_cards));
	ep->peers.best_address = calloc((size_t)npeers, sizeof(*ep->peers.best_address));
	ep->peers.dialed = calloc((size_t)npeers, sizeof(*ep->peers.dialed));
	if (!ep->service.in || !ep->auth.key || !ep->peers.business_cards ||
	    !ep->peers.best_address || !ep->peers.dialed)
		rc = tt_fail(TT_SYSTEM, "rank %d: no memory for %d ranks", peer, npeers);
	if (rc)
		tt_endpoint_free(ep);
	else
		*ret_ep = ep;
	return rc;
}

int tt_endpoint_authenticate(struct tt_control_endpoint *ep, const struct tt_id *id)
{
	memcpy(ep->auth.job, id->nonce, TT_NONCE);
	ep->auth.epoch = id->epoch;
	if (!tt_key_make(id->secret, id->nonce, ep->auth.key))
		return tt_fail(TT_SYSTEM, "rank %d: no memory for the key of the job", ep->peer);
	if (ep->npeers == 1)
		return 0;
	if (!tt_identity_make(&ep->auth.identity))
		return tt_fail(TT_SYSTEM, "rank %d: no memory for a key pair", ep->peer);
	return tt_tls_context_make(ep->auth.key, ep->auth.job, ep->peer, &ep->auth.tls);
}

/* Ranks of this process learn of the endpoint before its port answers. */
int tt_endpoint_listen(struct tt_control_endpoint *ep, const struct tt_ports *ports)
{
	tt_local_enter(ep);
	return open_descriptors(ep, ports);
}

static void drop_early(struct tt_control_endpoint *ep)
{
	struct tt_early *next;

	for (struct tt_early *e = ep->early; e; e = next) {
		next = e->next;
		free(e);
	}
	ep->early = NULL;
	ep->early_bytes = 0;
}

void tt_endpoint_free(struct tt_control_endpoint *ep)
{
	tt_local_leave(ep);
	if (ep->service.running) {
		pthread_mutex_lock(&ep->lock);
		ep->service.stop = true;
		pthread_mutex_unlock(&ep->lock);
		tt_endpoint_wake(ep);
		pthread_join(ep->service.thread, NULL);
	}
	tt_unauth_reap(ep, true);
	for (struct tt_conn *c = ep->conns; c; c = c->next) {
		if (!c->dead)
			tt_duplex_close(&c->duplex);
		c->dead = true;
	}
	tt_conn_reap(ep);
	drop_early(ep);
	tt_sock_close(ep->listener.fd);
	tt_sock_close(ep->listener.reserve_fd);
	tt_sock_close(ep->service.wake);
	tt_sock_close(ep->service.epoll);
	pthread_cond_destroy(&ep->changed);
	pthread_mutex_destroy(&ep->lock);
	tt_tls_context_free(ep->auth.tls);
	tt_key_free(ep->auth.key);
	tt_identity_free(&ep->auth.identity);
	free(ep->peers.business_cards);
	free(ep->peers.best_address);
	free(ep->peers.dialed);
	free(ep->service.in);
	free(ep);
}

void tt_endpoint_end(struct tt_control_endpoint *ep)
{
	for (struct tt_conn *c = ep->conns; c; c = c->next) {
		tt_conn_send(ep, c, 0, TT_F_END, NULL, 0);
		tt_conn_end(ep, c);
	}
}

/* ---- contexts -------------------------------------------------------------------------------- */

struct tt_control *tt_endpoint_find(const struct tt_control_endpoint *ep, uint64_t context)
{
	struct tt_control *ctl = ep->controls;

	while (ctl && ctl->context != context)
		ctl = ctl->next;
	return ctl;
}

/* false: too many bytes, or no memory */
static bool keep_early(struct tt_control_endpoint *ep, int peer, const struct tt_frame_head *head,
		       const uint8_t *data)
{
	struct tt_early *e, **at = &ep->early;

	if (ep->early_bytes + sizeof(*e) + head->bytes > EARLY_MOST)
		return false;
	e = malloc(sizeof(*e) + head->bytes);
	if (!e)
		return false;
	*e = (struct tt_early){ .peer = peer, .head = *head };
	memcpy(e->data, data, head->bytes);
	ep->early_bytes += sizeof(*e) + head->bytes;
	while (*at)
		at = &(*at)->next;
	*at = e;
	return true;
}

bool tt_endpoint_frame(struct tt_control_endpoint *ep, struct tt_conn *conn,
		       const struct tt_frame_head *head, const uint8_t *data)
{
	struct tt_control *ctl = tt_endpoint_find(ep, head->context);

	if (head->kind == TT_F_END) {
		conn->over = true;
		return true;
	}
	if (ctl)
		return tt_control_frame(ctl, conn, head->kind, data, head->bytes);
	/* else a control that this rank has left, or does not have yet; no rank sends messages
	 * before all ranks have the communicator */
	return !head->context || !ep->forming || head->kind == TT_F_MESSAGE ||
	       keep_early(ep, conn->peer, head, data);
}

void tt_endpoint_enter(struct tt_control_endpoint *ep, struct tt_control *ctl)
{
	struct tt_control **last = &ep->controls;
	struct tt_early **at = &ep->early, *e;

	while (*last)
		last = &(*last)->next;
	*last = ctl;
	while ((e = *at)) {
		struct tt_conn *conn = tt_conn_to(ep, e->peer);

		if (e->head.context != ctl->context) {
			at = &e->next;
			continue;
		}
		*at = e->next;
		ep->early_bytes -= sizeof(*e) + e->head.bytes;
		if (conn && !tt_control_frame(ctl, conn, e->head.kind, e->data, e->head.bytes))
			tt_conn_malformed(ep, conn);
		free(e);
	}
}

void tt_endpoint_leave(struct tt_control_endpoint *ep, struct tt_control *ctl)
{
	struct tt_control **at = &ep->controls;

	while (*at != ctl)
		at = &(*at)->next;
	*at = ctl->next;
	tt_parked_close(ep, ctl->context);
	while (ctl->observers.running)
		pthread_cond_wait(&ep->changed, &ep->lock);
}

void tt_endpoint_forming(struct tt_control_endpoint *ep, bool begin)
{
	ep->forming += begin ? 1 : -1;
	if (!ep->forming)
		drop_early(ep);
}

/* ---- the service thread ---------------------------------------------------------------------- */

void tt_endpoint_wake(struct tt_control_endpoint *ep)
{
	if (ep->service.wake >= 0)
		(void)!write(ep->service.wake, &(uint64_t){ 1 }, sizeof(uint64_t));
}

bool tt_endpoint_await(struct tt_control_endpoint *ep, uint64_t deadline_ns)
{
	struct timespec until = { .tv_sec = (time_t)(deadline_ns / TT_SECOND),
				  .tv_nsec = (long)(deadline_ns % TT_SECOND) };

	return pthread_cond_timedwait(&ep->changed, &ep->lock, &until) != ETIMEDOUT;
}

static void dispatch(struct tt_control_endpoint *ep, const struct epoll_event *ev)
{
	uint64_t count;

	switch (*(enum tt_source *)ev->data.ptr) {
	case TT_SRC_WAKE:
		(void)!read(ep->service.wake, &count, sizeof(count));
		break;
	case TT_SRC_LISTENER:
		tt_accept_event(ep);
		break;
	case TT_SRC_UNAUTH:
		tt_unauth_event(ep, ev->data.ptr);
		break;
	case TT_SRC_CONN:
		tt_conn_event(ep, ev->data.ptr, ev->events);
		break;
	}
}

/* Run the timers that are due; returns the time to the next one, -1: none. */
static int timers(struct tt_control_endpoint *ep)
{
	uint64_t now = tt_now_ns(), due = tt_accept_timers(ep, now), d;

	for (struct tt_control *ctl = ep->controls; ctl; ctl = ctl->next) {
		if ((d = tt_status_timers(ctl, now)) < due)
			due = d;
		if ((d = tt_bootstrap_timers(ctl, now)) < due)
			due = d;
		if ((d = tt_observers_timers(ctl, now)) < due)
			due = d;
	}
	if (due == TT_NEVER)
		return -1;
	return due <= now ? 0 : (int)((due - now) / 1000000) + 1;
}

static struct tt_control *find_broken(const struct tt_control_endpoint *ep)
{
	struct tt_control *ctl = ep->controls;

	while (ctl && !ctl->observers.broken_due)
		ctl = ctl->next;
	return ctl;
}

/* Call the observers of controls that broke; unlocked meanwhile. */
static void notify_broken(struct tt_control_endpoint *ep)
{
	struct tt_control *ctl;

	while ((ctl = find_broken(ep))) {
		ctl->observers.broken_due = false;
		ctl->observers.running = true;
		pthread_mutex_unlock(&ep->lock);
		tt_observers_broken(ctl);
		pthread_mutex_lock(&ep->lock);
		ctl->observers.running = false;
		pthread_cond_broadcast(&ep->changed);
	}
}

static void *serve(void *arg)
{
	struct tt_control_endpoint *ep = arg;
	struct epoll_event ev[EVENTS];

	pthread_mutex_lock(&ep->lock);
	while (!ep->service.stop) {
		int n, timeout_ms;

		notify_broken(ep);
		timeout_ms = timers(ep);
		tt_conn_reap(ep);
		tt_unauth_reap(ep, false);
		if (tt_conn_pipes_ready(ep))
			timeout_ms = 0;
		pthread_mutex_unlock(&ep->lock);
		n = epoll_wait(ep->service.epoll, ev, EVENTS, timeout_ms);
		pthread_mutex_lock(&ep->lock);
		for (int i = 0; i < n; i++)
			dispatch(ep, &ev[i]);
		tt_conn_pipes_serve(ep);
	}
	pthread_mutex_unlock(&ep->lock);
	return NULL;
}

int tt_endpoint_start(struct tt_control_endpoint *ep)
{
	int rc;

	if (ep->npeers == 1)
		return 0;
	rc = tt_thread_start(&ep->service.thread, "tutti-control", serve, ep);
	if (rc)
		return tt_fail(TT_SYSTEM, "rank %d: cannot start a thread: %s", ep->peer,
			       strerror(rc));
	ep->service.running = true;
	tt_local_open(ep);
	return 0;
}
