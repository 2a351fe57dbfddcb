/*
 * endpoint.c - make and free an endpoint, give frames to the controls
 *
 * Called by control.c, bootstrap.c and, for frames, by the service thread.
 *
 * A peer may be the first to know that a split is decided: its frames for the new control come
 * before this rank has made that control. They are kept while a split or shrink is in progress.
 */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

#include "control/control_internal.h"

/* bytes of early frames of one peer, over all its connections: a rank that was shrunk away fills no room of the
 * others */
#define EARLY_MOST (4u << 20)

struct tt_early {
	struct tt_early *next;
	int peer;
	struct tt_frame_head head;
	uint8_t data[];
};

/* ---- make and free --------------------------------------------------------------------------- */

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
	pthread_mutex_init(&ep->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&ep->changed, &attr);
	pthread_condattr_destroy(&attr);
	ep->auth.key = tt_key_alloc();
	ep->peers.dialed = tt_set_make(npeers);
	if (!tt_directory_make(&ep->peers.directory, npeers) || !ep->auth.key ||
	    !tt_sparse_make(&ep->peers.best_address, npeers) || !ep->peers.dialed ||
	    !tt_sparse_make(&ep->early_of, npeers))
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
	ep->auth.from_root = id->from_root;
	ep->auth.epoch = id->epoch;
	if (ep->npeers == 1) /* it connects to nobody, so OpenSSL need not start */
		return 0;
	if (!tt_key_make(id->secret, id->nonce, ep->auth.key))
		return tt_fail(TT_SYSTEM, "rank %d: no memory for the key of the job", ep->peer);
	if (!tt_identity_make(&ep->auth.identity))
		return tt_fail(TT_SYSTEM, "rank %d: no memory for a key pair", ep->peer);
	return 0;
}

int tt_endpoint_tls(struct tt_control_endpoint *ep)
{
	return tt_tls_context_make(ep->auth.key, ep->auth.job, ep->peer, &ep->auth.tls);
}

/* Ranks of this process learn of the endpoint before its port answers. */
int tt_endpoint_listen(struct tt_control_endpoint *ep, const struct tt_ports *ports)
{
	int rc;

	tt_local_enter(ep);
	rc = tt_service_open(ep);
	return rc ? rc : tt_listener_open(ep, ports);
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
	for (int i = tt_sparse_next(&ep->early_of, 0); i < INT_MAX;
	     i = tt_sparse_next(&ep->early_of, i + 1))
		tt_sparse_set(&ep->early_of, i, NULL);
}

void tt_endpoint_free(struct tt_control_endpoint *ep)
{
	tt_local_leave(ep);
	tt_listener_leave(ep);
	pthread_mutex_lock(&ep->lock);
	tt_dials_end(ep);
	tt_conn_close_all(ep);
	tt_monitor_close_all(ep);
	pthread_mutex_unlock(&ep->lock);
	tt_service_leave(ep);
	tt_conn_reap(ep);
	tt_monitor_reap(ep);
	tt_service_close(ep);
	drop_early(ep);
	tt_id_file_remove(ep->id_file);
	pthread_cond_destroy(&ep->changed);
	pthread_mutex_destroy(&ep->lock);
	tt_tls_context_free(ep->auth.tls);
	tt_key_free(ep->auth.key);
	tt_identity_free(&ep->auth.identity);
	tt_directory_free(&ep->peers.directory);
	tt_sparse_free(&ep->peers.best_address);
	tt_sparse_free(&ep->early_of);
	free(ep->peers.dialed);
	free(ep->index.more);
	free(ep);
}

bool tt_endpoint_leaves(const struct tt_control_endpoint *ep)
{
	for (const struct tt_control *ctl = ep->controls; ctl; ctl = ctl->next)
		if (!ctl->departed.leaving)
			return false;
	return ep->controls || ep->ended;
}

void tt_endpoint_end_conn(struct tt_control_endpoint *ep, struct tt_conn *conn)
{
	tt_conn_send(ep, conn, 0, TT_F_END, NULL, 0);
	tt_conn_end(conn);
}

void tt_endpoint_end(struct tt_control_endpoint *ep)
{
	ep->ended = true;
	tt_dials_end(ep);
	for (struct tt_conn *c = ep->conns; c; c = c->next)
		if (c->unconfirmed) /* the goodbyes were for connections in use */
			tt_flood_connected(ep, c);
	for (struct tt_conn *c = ep->conns; c; c = c->next)
		tt_endpoint_end_conn(ep, c);
}

/* ---- contexts -------------------------------------------------------------------------------- */

struct tt_control *tt_endpoint_find(const struct tt_control_endpoint *ep, uint64_t context)
{
	struct tt_control *ctl = ep->controls;

	while (ctl && ctl->context != context)
		ctl = ctl->next;
	return ctl;
}

static size_t early_of(const struct tt_control_endpoint *ep, int peer)
{
	return (size_t)tt_sparse_get(&ep->early_of, peer);
}

/* Without memory the connection ends. false: too many bytes */
static bool keep_early(struct tt_control_endpoint *ep, struct tt_conn *conn,
		       const struct tt_frame_head *head, const uint8_t *data)
{
	const size_t bytes = sizeof(struct tt_early) + head->bytes;
	const size_t sum = early_of(ep, conn->peer) + bytes;
	struct tt_early *e;

	if (sum > EARLY_MOST)
		return false;
	e = malloc(bytes);
	if (!e || !tt_sparse_set(&ep->early_of, conn->peer, (void *)sum)) {
		free(e);
		tt_conn_no_memory(ep, conn);
		return true;
	}
	*e = (struct tt_early){ .peer = conn->peer, .head = *head };
	memcpy(e->data, data, head->bytes);
	ep->early_bytes += bytes;
	*(ep->early ? &ep->early_last->next : &ep->early) = e;
	ep->early_last = e;
	return true;
}

void tt_endpoint_connected(struct tt_control_endpoint *ep, struct tt_conn *conn, uint64_t context)
{
	struct tt_control *ctl = tt_endpoint_find(ep, context);

	tt_flood_connected(ep, conn);
	if (ctl && !context && tt_tree_child(conn->peer, ep->peer))
		tt_join_attached(ctl, conn->peer);
}

bool tt_endpoint_frame(struct tt_control_endpoint *ep, struct tt_conn *conn,
		       const struct tt_frame_head *head, const uint8_t *data)
{
	struct tt_control *ctl = tt_endpoint_find(ep, head->context);

	if (head->kind == TT_F_END) {
		conn->over = true;
		return true;
	}
	if (head->kind == TT_F_CONFIRM) {
		if (!conn->unconfirmed)
			return false;
		tt_conn_confirm(ep, conn);
		tt_endpoint_connected(ep, conn, head->context);
		return true;
	}
	conn->brings_messages |= tt_frame_is_message(head->kind);
	if (ctl)
		return tt_control_frame(ctl, conn, head->kind, data, head->bytes);
	/* else a control that this rank has left, or does not have yet; no rank sends messages
	 * before all ranks have the communicator, so messages belong to one that was left */
	if (tt_frame_is_message(head->kind)) {
		if (!conn->registration)
			tt_conn_send(ep, conn, head->context, TT_F_LEFT, NULL, 0);
		return true;
	}
	return !head->context || !ep->forming || keep_early(ep, conn, head, data);
}

void tt_endpoint_enter(struct tt_control_endpoint *ep, struct tt_control *ctl)
{
	struct tt_control **last = &ep->controls;
	struct tt_early **at = &ep->early, *e, *before = NULL;

	while (*last)
		last = &(*last)->next;
	*last = ctl;
	while ((e = *at)) {
		struct tt_conn *conn = tt_conn_from(ep, e->peer);
		size_t bytes = sizeof(*e) + e->head.bytes;

		if (e->head.context != ctl->context) {
			at = &e->next;
			before = e;
			continue;
		}
		*at = e->next;
		ep->early_bytes -= bytes;
		tt_sparse_set(&ep->early_of, e->peer, (void *)(early_of(ep, e->peer) - bytes));
		if (conn && !tt_control_frame(ctl, conn, e->head.kind, e->data, e->head.bytes))
			tt_conn_malformed(ep, conn);
		free(e);
	}
	ep->early_last = before;
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
	if (ep->served.entered)
		tt_service_wake(ep);
}

bool tt_endpoint_await(struct tt_control_endpoint *ep, uint64_t deadline_ns)
{
	struct timespec until = { .tv_sec = (time_t)(deadline_ns / TT_SECOND),
				  .tv_nsec = (long)(deadline_ns % TT_SECOND) };

	return pthread_cond_timedwait(&ep->changed, &ep->lock, &until) != ETIMEDOUT;
}

int tt_endpoint_start(struct tt_control_endpoint *ep)
{
	int rc;

	if (ep->npeers == 1)
		return 0;
	if ((rc = tt_service_enter(ep)) || (rc = tt_listener_enter(ep)))
		return rc;
	tt_local_open(ep);
	return 0;
}
