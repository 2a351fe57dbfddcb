/*
 * control_accept.c - unauthenticated connections: accepted, secret not yet proved
 *
 * Called by control_listener.c. The client's first message names a job and one of its ranks here; the
 * client proves the job's key by TLS, then the rank's endpoint judges the hello. Any process can
 * connect and send nothing, half a hello or malformed bytes: an unauthenticated connection holds a
 * descriptor for five seconds at most, less where others wait (control_admission.c), and delays no
 * other connection. When descriptors run out, an unauthenticated connection is dropped; without any,
 * one handshake at a time gets the reserve descriptor, so that a rank, which proves itself, receives
 * TT_V_FULL. Strangers alone end nothing.
 */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "control/control_internal.h"

#define HANDSHAKE_NS (5 * TT_SECOND)
/* connections that one event accepts, at most, and how long it may take: then handshakes that have begun go on, else a
 * full listener would drop ranks whose hello it has not read yet */
#define AT_ONCE 16
#define TURN_NS (TT_SECOND / 1000)
#define PAUSE_NS (TT_SECOND / 100)
/* time without descriptors after which joining and tt_control_take fail */
#define FULL_NS (2 * TT_SECOND)

static void drop(struct tt_unauth *u, bool close_fd)
{
	if (u->dead)
		return;
	u->dead = true;
	if (u->tls && !u->proven && tt_tls_answered(u->tls))
		tt_admission_note_in_vain(u->listener, tt_tls_random(u->tls));
	tt_admission_count(u->listener, -1);
	if (u->listener->resume_ns != TT_NEVER)
		u->listener->resume_ns = 0; /* there is room now */
	tt_service_watch(EPOLL_CTL_DEL, u->fd, 0, NULL);
	if (close_fd && u->tls)
		tt_tls_close(u->tls);
	else if (close_fd)
		tt_sock_close(u->fd);
	if (u->reserve)
		tt_service_keep_reserve();
}

void tt_unauth_reap(struct tt_listener *l)
{
	struct tt_unauth **at = &l->unauth, *u;

	while ((u = *at)) {
		if (u->dead) {
			*at = u->next;
			free(u);
		} else {
			at = &u->next;
		}
	}
}

/* ---- accept ---------------------------------------------------------------------------------- */

static void set_listening(struct tt_listener *l, bool listen)
{
	l->resume_ns = listen ? TT_NEVER : tt_now_ns() + PAUSE_NS;
	tt_service_watch(EPOLL_CTL_MOD, l->fd, listen ? EPOLLIN : 0, &l->watched);
}

/* The source of a quota: an IPv4 address, or a network of IPv6, whose hosts have 2^64 addresses. */
static struct tt_address source_of(const struct sockaddr_in6 *from)
{
	const uint8_t *p = from->sin6_addr.s6_addr;
	struct tt_address a = { .family = 6 };

	if (from->sin6_family == AF_INET) {
		a.family = 4;
		memcpy(a.bytes, &((const struct sockaddr_in *)(const void *)from)->sin_addr, 4);
	} else if (IN6_IS_ADDR_V4MAPPED(&from->sin6_addr)) {
		a.family = 4;
		memcpy(a.bytes, p + 12, 4);
	} else {
		memcpy(a.bytes, p, 8);
	}
	return a;
}

static bool accept_one(const struct tt_listener *l, bool reserve, int *ret_fd,
		       struct tt_address *ret_source)
{
	struct sockaddr_in6 from = { 0 };

	if (reserve && !tt_service_give_reserve())
		return false;
	*ret_fd = accept4(l->fd, (struct sockaddr *)&from, &(socklen_t){ sizeof(from) },
			  SOCK_CLOEXEC | SOCK_NONBLOCK);
	if (*ret_fd < 0)
		return false;
	*ret_source = source_of(&from);
	return true;
}

static void add_unauth(struct tt_listener *l, int fd, const struct tt_address *source, bool reserve)
{
	struct tt_unauth *u = calloc(1, sizeof(*u));

	tt_sock_own(fd);
	if (!u || !tt_service_watch(EPOLL_CTL_ADD, fd, EPOLLIN, u)) {
		free(u);
		tt_sock_close(fd);
		if (reserve)
			tt_service_keep_reserve();
		return;
	}
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){ 1 }, sizeof(int));
	tt_sock_settle(fd);
	*u = (struct tt_unauth){ .watched = { TT_SRC_UNAUTH, NULL },
				 .next = l->unauth,
				 .listener = l,
				 .other_version = -1,
				 .fd = fd,
				 .source = *source,
				 .since_ns = tt_now_ns(),
				 .reserve = reserve };
	l->unauth = u;
	tt_admission_count(l, 1);
	tt_unauth_event(u); /* a rank's first message is there already */
}

/* Break the controls that wait for a connection. ep is locked. */
static void break_waiting(struct tt_control_endpoint *ep, uint64_t now)
{
	for (struct tt_control *ctl = ep->controls; ctl; ctl = ctl->next)
		if (!ctl->join.complete || ctl->join.awaits || now - ctl->join.claim_ns < TT_SECOND)
			tt_control_break(ctl, TT_SYSTEM, ctl->rank, 0, ep->listening.trouble, -1);
}

/* No descriptor is left for a rank, or for any connection. That breaks a join, or a call that waits
 * for a connection, when it lasts. ep is locked. */
static void note_full(struct tt_control_endpoint *ep, bool warn)
{
	struct tt_listening *l = &ep->listening;
	uint64_t now = tt_now_ns();
	bool news = !l->full_since_ns || now - l->full_last_ns > TT_SECOND;

	if (news) {
		l->full_since_ns = now;
		snprintf(l->trouble, sizeof(l->trouble),
			 "rank %d cannot accept connections: %s; raise its ulimit -n", ep->peer,
			 strerror(EMFILE));
	}
	if (news && warn)
		tt_log(TT_LOG_WARN, "%s", l->trouble);
	l->full_last_ns = now;
	if (now - l->full_since_ns > FULL_NS)
		break_waiting(ep, now);
}

static void note_all_full(struct tt_listener *l)
{
	for (struct tt_control_endpoint *ep = l->endpoints; ep; ep = ep->listening.next) {
		pthread_mutex_lock(&ep->lock);
		note_full(ep, ep == l->endpoints);
		pthread_mutex_unlock(&ep->lock);
		ep->served.woken = true;
	}
}

/* No descriptor left: drop a stranger and come back, or serve one handshake with the reserve. */
static void accept_without_descriptor(struct tt_listener *l)
{
	struct tt_unauth *victim = tt_admission_victim(l);
	struct tt_address source;
	int fd;

	if (victim)
		drop(victim, true);
	else if (!l->nunauth && accept_one(l, true, &fd, &source))
		add_unauth(l, fd, &source, true);
	else {
		set_listening(l, false);
		if (!l->nunauth) /* strangers hold none: the program has them all */
			note_all_full(l);
	}
	if (!l->nunauth)
		tt_service_keep_reserve();
}

void tt_accept_event(struct tt_listener *l)
{
	uint64_t first_ns = 0, latest_ns = 0; /* accepted in this round */

	/* else closed after epoll has reported the event */
	for (int i = 0; i < AT_ONCE && l->fd >= 0 && latest_ns - first_ns < TURN_NS; i++) {
		struct tt_unauth *victim;
		enum tt_admission admission = tt_admission_next(l, &victim);
		struct tt_address source;
		int fd;

		if (admission == TT_ADMIT_LATER || !accept_one(l, false, &fd, &source)) {
			if (admission != TT_ADMIT_LATER && (errno == EMFILE || errno == ENFILE))
				accept_without_descriptor(l);
			else if (admission == TT_ADMIT_LATER ||
				 (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED))
				set_listening(l, false); /* ENOBUFS, ENOMEM: after a pause */
			return;
		}
		if (admission == TT_ADMIT_COMPETE && !tt_admission_compete(l, &source, &victim)) {
			close(fd);
			continue;
		}
		if (victim)
			drop(victim, true);
		add_unauth(l, fd, &source, false);
		latest_ns = l->unauth ? l->unauth->since_ns : latest_ns;
		first_ns = first_ns ? first_ns : latest_ns;
	}
}

uint64_t tt_accept_timers(struct tt_listener *l, uint64_t now)
{
	uint64_t due = TT_NEVER;

	for (struct tt_unauth *u = l->unauth; u; u = u->next) {
		if (!u->dead && now - u->since_ns >= HANDSHAKE_NS)
			drop(u, true);
		else if (!u->dead && u->since_ns + HANDSHAKE_NS < due)
			due = u->since_ns + HANDSHAKE_NS;
	}
	if (now >= l->resume_ns)
		set_listening(l, true);
	return l->resume_ns < due ? l->resume_ns : due;
}

void tt_accept_forget(struct tt_listener *l, const struct tt_control_endpoint *ep)
{
	for (struct tt_unauth *u = l->unauth; u; u = u->next)
		if (!ep || u->ep == ep)
			drop(u, true);
}

void tt_accept_close(struct tt_listener *l)
{
	tt_accept_forget(l, NULL);
	tt_service_watch(EPOLL_CTL_DEL, l->fd, 0, NULL);
	tt_sock_close(l->fd);
	l->fd = -1;
}

/* ---- handshake ------------------------------------------------------------------------------- */

/* At most one warning of a kind a second about strangers, who may be many. */
static bool may_warn(struct tt_control_endpoint *ep, int kind)
{
	uint64_t now = tt_now_ns(), last = ep->listening.warned_ns[kind];

	if (last && now - last < TT_SECOND)
		return false;
	ep->listening.warned_ns[kind] = now;
	return true;
}

/* Does the client of a registration want the next communicator of TUTTI_ROOT? It is a process of this
 * communicator, or replaces a rank that is gone. Another process is a rank that came twice. */
static bool wants_next(const struct tt_control *ctl, const struct tt_hello *h)
{
	return ctl->ep->auth.from_root && ctl->join.has_table &&
	       (h->channel || (h->from < ctl->nranks && (tt_set_has(ctl->departed.left, h->from) ||
							 tt_set_has(ctl->departed.dead, h->from))));
}

static enum tt_verdict judge_monitor(const struct tt_control_endpoint *ep)
{
	const struct tt_control *first = tt_endpoint_find(ep, 0);

	if (first && !first->join.complete)
		return TT_V_EARLY;
	return tt_monitor_may_ask(ep) ? TT_V_WELCOME : TT_V_BUSY;
}

static enum tt_verdict judge(struct tt_control_endpoint *ep, const struct tt_hello *h)
{
	const struct tt_control *ctl = tt_endpoint_find(ep, h->context);
	size_t bytes;

	if (h->purpose == TT_P_MONITOR) /* of any attempt: it is no part of the job */
		return judge_monitor(ep);
	if (h->epoch != ep->auth.epoch)
		return h->epoch < ep->auth.epoch ? TT_V_STALE : TT_V_EARLY;
	if (h->to != ep->peer || h->from == ep->peer ||
	    (h->purpose != TT_P_REGISTER && h->from >= ep->npeers) ||
	    (h->purpose == TT_P_REGISTER && !(ctl && ctl->join.root)))
		return TT_V_OTHER_RANK;
	if (h->purpose == TT_P_RECORD)
		return tt_directory_group(&ep->peers.directory, h->channel, &bytes) ? TT_V_WELCOME
										    : TT_V_EARLY;
	if (h->purpose == TT_P_REGISTER && wants_next(ctl, h))
		return TT_V_EARLY;
	if (h->purpose == TT_P_REGISTER)
		return ctl->join.has_table && tt_conns_registering(ep) >= TT_LATE_CONNS
			       ? TT_V_MANY
			       : TT_V_WELCOME;
	if (ctl && tt_control_rank(ctl, h->from) < 0)
		return TT_V_EXCLUDED;
	/* of any context: a rank that was shrunk away may name one that is to come */
	if (h->purpose == TT_P_CONTROL && tt_conns_of(ep, h->from) >= TT_PEER_CONNS)
		return TT_V_MANY;
	if (h->purpose == TT_P_DATA && h->channel >= TT_DATA_CHANNELS)
		return TT_V_OTHER_RANK;
	if (!ctl && h->purpose == TT_P_DATA) /* maybe of a split that this rank has not completed */
		return ep->forming ? TT_V_EARLY : TT_V_OTHER_RANK;
	return TT_V_WELCOME;
}

static void connected(struct tt_control_endpoint *ep, const struct tt_hello *h,
		      const uint8_t key[TT_PUBLIC_KEY], struct tt_duplex duplex)
{
	struct tt_control *ctl = tt_endpoint_find(ep, h->context);
	struct tt_conn *conn;

	switch (h->purpose) {
	case TT_P_REGISTER:
		conn = tt_conn_add(ep, duplex, h->from, true);
		if (conn) {
			memcpy(conn->public_key, key, TT_PUBLIC_KEY);
			tt_bootstrap_entered(ctl, conn);
		}
		break;
	case TT_P_CONTROL:
		conn = tt_conn_add(ep, duplex, h->from, false);
		if (conn && duplex.pipe)
			tt_endpoint_connected(ep, conn, h->context);
		else if (conn)
			conn->unconfirmed = true;
		/* this rank may be gone before the CONFIRM comes */
		if (conn && conn->unconfirmed && tt_endpoint_leaves(ep))
			tt_flood_connected(ep, conn);
		break;
	case TT_P_DATA:
		tt_parked_add(ep, h, duplex.tls);
		break;
	case TT_P_MONITOR:
		tt_monitor_add(ep, duplex.tls);
		break;
	case TT_P_RECORD:
		tt_holders_answer(ep, h->channel, duplex.tls);
		break;
	}
}

bool tt_accept_local(struct tt_control_endpoint *ep, const struct tt_hello *h,
		     const uint8_t key[TT_PUBLIC_KEY], struct tt_pipe *pipe)
{
	if (judge(ep, h) != TT_V_WELCOME)
		return false;
	connected(ep, h, key, (struct tt_duplex){ .pipe = pipe });
	return true;
}

static void note_other_key(struct tt_control_endpoint *ep, int claimed)
{
	if (may_warn(ep, 2))
		tt_log(TT_LOG_WARN,
		       "rank %d: a process that claims to be rank %d was refused: it has the secret, but not "
		       "the key of rank %d",
		       ep->peer, claimed, claimed);
}

/* The client holds the job's key. u->ep is locked. */
static void answer_hello(struct tt_unauth *u, const struct tt_hello *h,
			 const struct tt_hello_message *message)
{
	struct tt_control_endpoint *ep = u->ep;
	struct tt_verdict_message answer;
	enum tt_verdict verdict = judge(ep, h);
	bool sent;

	if (verdict == TT_V_STALE && may_warn(ep, 0))
		tt_log(TT_LOG_WARN,
		       "rank %d: rank %d of attempt %d was refused: this is attempt %d of the job",
		       ep->peer, h->from, h->epoch, ep->auth.epoch);
	if (verdict == TT_V_WELCOME)
		verdict = tt_hello_check(ep, u->tls, h, message);
	if (verdict == TT_V_IMPOSTOR)
		note_other_key(ep, h->from);
	if (verdict == TT_V_WELCOME && u->reserve)
		verdict = TT_V_FULL;
	answer.verdict = (uint8_t)verdict;
	sent = verdict && tt_verdict_sign(ep, u->tls, message->hello, &answer) &&
	       tt_tls_send(u->tls, &answer, sizeof(answer)) == sizeof(answer);
	drop(u, verdict != TT_V_WELCOME || !sent);
	if (verdict == TT_V_FULL && h->purpose != TT_P_MONITOR) /* which breaks no call */
		note_full(ep, true);
	if (verdict == TT_V_WELCOME && sent) {
		ep->listening.full_since_ns = 0;
		connected(ep, h, message->public_key, (struct tt_duplex){ .tls = u->tls });
	}
}

/* Of a client without a proof: a hint, which ends nothing. */
static void note_refused(struct tt_control_endpoint *ep, int claimed, enum tt_refusal why)
{
	struct tt_control *ctl;
	char who[64];

	pthread_mutex_lock(&ep->lock);
	ctl = tt_endpoint_find(ep, 0);
	if (claimed == TT_MONITOR)
		snprintf(who, sizeof(who), "a monitor");
	else
		snprintf(who, sizeof(who), "a process that claims to be rank %d", claimed);
	if (may_warn(ep, 1))
		tt_log(TT_LOG_WARN, "rank %d: %s was refused: it %s%s", ep->peer, who,
		       why == TT_OTHER_SECRET ? "used a different "
					      : "has another version of Tutti",
		       why == TT_OTHER_SECRET ? tt_secret_name(ep) : "");
	if (ctl)
		tt_bootstrap_refused(ctl, claimed, why);
	pthread_mutex_unlock(&ep->lock);
}

static const struct tt_key *find_key(void *ctx, const struct tt_psk_identity *client)
{
	struct tt_unauth *u = ctx;

	u->ep = tt_listener_find(u->listener, client);
	u->other_version = client->protocol == TT_PROTOCOL ? -1 : client->rank;
	if (tt_admission_was_in_vain(u->listener, tt_tls_random(u->tls)))
		return NULL;
	return u->ep ? u->ep->auth.key : NULL;
}

/* A client that was served at another address has gone, and its first message is not worth a
 * handshake. */
static bool has_gone(int fd)
{
	struct pollfd pfd = { .fd = fd, .events = POLLRDHUP };

	return poll(&pfd, 1, 0) > 0 && pfd.revents;
}

/* 1: TLS is established | 0: not yet | < 0: drop the connection */
static int shake_hands(struct tt_unauth *u)
{
	int rc;

	if (!u->tls) {
		if (has_gone(u->fd))
			return TT_REMOTE;
		u->tls = tt_tls_server(u->fd, find_key, u);
		if (!u->tls)
			u->fd = -1;
	}
	rc = u->tls ? tt_tls_handshake(u->tls) : TT_SYSTEM;
	u->proven = rc > 0;
	if (rc < 0 && u->tls && tt_tls_impostor(u->tls) >= 0)
		note_refused(u->ep, tt_tls_impostor(u->tls), TT_OTHER_SECRET);
	if (rc < 0 && u->ep && u->other_version >= 0)
		note_refused(u->ep, u->other_version, TT_OTHER_VERSION);
	return rc;
}

void tt_unauth_event(struct tt_unauth *u)
{
	struct tt_hello_message message;
	struct tt_hello hello;
	ssize_t n = 0;
	int rc;

	if (u->dead)
		return;
	rc = shake_hands(u);
	if (rc > 0)
		n = tt_tls_recv(u->tls, &message, sizeof(message));
	if (rc == 0 || (rc > 0 && n < 0 && errno == EAGAIN))
		return;
	if (rc < 0 || n != sizeof(message) || !tt_hello_get(message.hello, &hello)) {
		drop(u, true);
		return;
	}
	pthread_mutex_lock(&u->ep->lock);
	answer_hello(u, &hello, &message);
	pthread_mutex_unlock(&u->ep->lock);
	u->ep->served.woken = true;
}
