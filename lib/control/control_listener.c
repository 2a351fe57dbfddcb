/*
 * control_listener.c - the listeners of the process, and the endpoint that a connection is for
 *
 * Called by endpoint.c (open, enter, leave), by the service thread (events, visits) and by
 * control_accept.c (find). All ranks of a process listen at one port: the first opens the listener,
 * the last closes it. It is bound to all addresses; a rank names the chosen ones in its business card.
 * A rank opens another listener in another network namespace, or where the port is outside its range.
 * Rank 0 has a listener of its own, at the port in the unique id; a port that the user chose
 * (TUTTI_ROOT) serves rank 0 of one communicator after the other.
 *
 * Lock order: the lock of the listeners, then one endpoint's. All work on connections without a
 * proof is the service thread's, which holds the former; an endpoint that leaves holds it, too.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/stat.h>

#include "control/control_internal.h"

static struct {
	pthread_mutex_t lock;
	struct tt_listener *first;
	atomic_bool woken; /* something has happened since the latest visit */
	uint64_t due_ns;   /* of the next timer; thread: service */
} listeners;

/* The listeners belong to the parent; another thread may hold the lock while this one forks. */
static void reset(void)
{
	pthread_mutex_init(&listeners.lock, NULL);
	listeners.first = NULL;
	listeners.woken = false;
	listeners.due_ns = TT_NEVER;
}

__attribute__((constructor)) static void watch_forks(void)
{
	reset();
	pthread_atfork(NULL, NULL, reset);
}

/* ---- open and close -------------------------------------------------------------------------- */

/* The calling thread's network namespace */
static uint64_t present_netns(void)
{
	struct stat st = { 0 };

	stat("/proc/thread-self/ns/net", &st);
	return st.st_ino;
}

/* May rank 0 of the next communicator listen there? It gets all registrations, so all others are
 * complete. */
static bool is_for_next_root(const struct tt_listener *l)
{
	bool complete = true;
	int entered = 0;

	for (struct tt_control_endpoint *ep = l->endpoints; ep; ep = ep->listening.next) {
		const struct tt_control *first;

		pthread_mutex_lock(&ep->lock);
		first = tt_endpoint_find(ep, 0);
		complete = complete && ep->auth.from_root && (!first || first->join.has_table);
		pthread_mutex_unlock(&ep->lock);
		entered++;
	}
	return complete && entered == l->users;
}

static bool is_shared(const struct tt_listener *l, const struct tt_control_endpoint *ep,
		      const struct tt_ports *ports, uint64_t netns)
{
	if (!l->users || l->of_root != !ep->peer || l->netns != netns ||
	    (ports->count && (l->port < ports->first || l->port >= ports->first + ports->count)))
		return false;
	return ep->peer || (ep->auth.from_root && is_for_next_root(l));
}

static int open_listener(bool of_root, const struct tt_ports *ports, uint64_t netns,
			 struct tt_listener **ret_l)
{
	struct tt_listener *l = calloc(1, sizeof(*l));
	int rc;

	if (!l)
		return tt_fail(TT_SYSTEM, "no memory for a listener");
	*l = (struct tt_listener){ .watched = { TT_SRC_LISTENER, NULL },
				   .of_root = of_root,
				   .netns = netns,
				   .resume_ns = TT_NEVER };
	rc = tt_sock_among(ports, tt_sock_listen, &l->fd, &l->port);
	if (rc) {
		int why = errno;

		free(l);
		errno = why;
		return rc;
	}
	l->next = listeners.first;
	listeners.first = l;
	*ret_l = l;
	return 0;
}

static int fail_to_open(const struct tt_control_endpoint *ep, const struct tt_ports *ports, int rc)
{
	bool taken = ports->first && ports->count < 2 && errno == EADDRINUSE;

	if (taken && ep->peer)
		return tt_fail(
			TT_SYSTEM,
			"rank %d: TUTTI_PORT_RANGE has port %d alone, which is in use; every process takes one",
			ep->peer, ports->first);
	if (taken && ep->auth.from_root)
		return tt_fail(
			TT_SYSTEM,
			"rank %d: port %d of TUTTI_ROOT (or NCCL_COMM_ID) is taken by another process of this host; choose another port",
			ep->peer, ports->first);
	if (ep->auth.from_root && errno == EADDRINUSE)
		return tt_fail(
			TT_SYSTEM,
			"rank %d: rank 0 listens at one of the ports %d to %d, and all are taken; set TUTTI_ROOT=host:port",
			ep->peer, ports->first, ports->first + ports->count - 1);
	if (taken)
		return tt_fail(
			TT_SYSTEM,
			"rank %d: port %d, where rank 0 must listen, is in use by another process, by "
			"another rank 0 with the same id, or by a rank whose TUTTI_PORT_RANGE has no other port; "
			"make a new id, or widen the range",
			ep->peer, ports->first);
	return tt_fail(rc, "rank %d: %s", ep->peer, tt_error_text());
}

int tt_listener_open(struct tt_control_endpoint *ep, const struct tt_ports *ports)
{
	uint64_t netns = present_netns();
	struct tt_listener *l;
	int rc = 0;

	pthread_mutex_lock(&listeners.lock);
	l = listeners.first;
	while (l && !is_shared(l, ep, ports, netns))
		l = l->next;
	if (!l)
		rc = open_listener(!ep->peer, ports, netns, &l);
	if (!rc) {
		l->users++;
		ep->listening.listener = l;
		ep->listening.port = l->port;
	}
	pthread_mutex_unlock(&listeners.lock);
	return rc ? fail_to_open(ep, ports, rc) : 0;
}

int tt_listener_enter(struct tt_control_endpoint *ep)
{
	struct tt_listener *l = ep->listening.listener;
	int rc = 0;

	pthread_mutex_lock(&listeners.lock);
	if (!l->watching && !tt_service_watch(EPOLL_CTL_ADD, l->fd, EPOLLIN, &l->watched)) {
		rc = tt_fail(TT_SYSTEM, "rank %d: cannot watch its listening socket: %m", ep->peer);
	} else {
		l->watching = true;
		ep->listening.next = l->endpoints;
		ep->listening.entered = true;
		l->endpoints = ep;
	}
	pthread_mutex_unlock(&listeners.lock);
	return rc;
}

void tt_listener_leave(struct tt_control_endpoint *ep)
{
	struct tt_listener *l = ep->listening.listener;
	struct tt_control_endpoint **at;

	if (!l)
		return;
	pthread_mutex_lock(&listeners.lock);
	for (at = &l->endpoints; ep->listening.entered && *at != ep;)
		at = &(*at)->listening.next;
	if (ep->listening.entered)
		*at = ep->listening.next;
	tt_accept_forget(l, ep);
	if (!--l->users)
		tt_accept_close(l);
	listeners.woken = true;
	pthread_mutex_unlock(&listeners.lock);
	ep->listening.listener = NULL;
}

/* ---- the endpoint of a connection ------------------------------------------------------------- */

static bool is_server(const struct tt_control_endpoint *ep, const struct tt_psk_identity *client)
{
	static const uint8_t unknown[TT_SERVER];

	if (memcmp(ep->auth.job, client->job, TT_NONCE))
		return false;
	if (!memcmp(client->server, unknown, TT_SERVER))
		return ep->peer == 0;
	return !memcmp(client->server, ep->auth.identity.public_key, TT_SERVER);
}

struct tt_control_endpoint *tt_listener_find(const struct tt_listener *l,
					     const struct tt_psk_identity *client)
{
	struct tt_control_endpoint *ep = l->endpoints;

	while (ep && !is_server(ep, client))
		ep = ep->listening.next;
	return ep;
}

/* ---- the service thread ---------------------------------------------------------------------- */

void tt_listeners_event(struct tt_watched *watched)
{
	pthread_mutex_lock(&listeners.lock);
	if (watched->source == TT_SRC_LISTENER)
		tt_accept_event((struct tt_listener *)watched);
	else
		tt_unauth_event((struct tt_unauth *)watched);
	listeners.woken = true;
	pthread_mutex_unlock(&listeners.lock);
}

/* Free what has ended; no event of it is left. */
static void reap(void)
{
	struct tt_listener **at = &listeners.first, *l;

	while ((l = *at)) {
		tt_unauth_reap(l);
		if (l->users) {
			at = &l->next;
			continue;
		}
		*at = l->next;
		free(l->in_vain);
		free(l);
	}
}

uint64_t tt_listeners_visit(uint64_t now)
{
	if (!listeners.woken && now < listeners.due_ns)
		return listeners.due_ns;
	listeners.woken = false;
	listeners.due_ns = TT_NEVER;
	pthread_mutex_lock(&listeners.lock);
	for (struct tt_listener *l = listeners.first; l; l = l->next) {
		uint64_t due = l->users ? tt_accept_timers(l, now) : TT_NEVER;

		if (due < listeners.due_ns)
			listeners.due_ns = due;
	}
	reap();
	pthread_mutex_unlock(&listeners.lock);
	return listeners.due_ns;
}

void tt_listeners_reap(void)
{
	pthread_mutex_lock(&listeners.lock);
	reap();
	pthread_mutex_unlock(&listeners.lock);
}
