/*
 * control_accept.c - the listener, and unauthenticated connections: accepted, secret not yet proved
 *
 * Called by the service thread. Any process can connect and send nothing, half a hello or malformed
 * bytes: an unauthenticated connection holds a descriptor for five seconds at most, less where
 * others wait (control_admission.c), and delays no other connection. When descriptors run out, an
 * unauthenticated connection is dropped; without any, one handshake at a time gets the reserve
 * descriptor, so that a rank, which proves itself, receives TT_V_FULL. Strangers alone end nothing.
 */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "control/control_internal.h"

#define HANDSHAKE_NS (5 * TT_SECOND)
#define AT_ONCE 16
#define PAUSE_NS (TT_SECOND / 100)
/* time without descriptors after which joining and tt_control_take fail */
#define FULL_NS (2 * TT_SECOND)

static void open_reserve(struct tt_control *ctl)
{
	if (ctl->listener.reserve_fd < 0)
		ctl->listener.reserve_fd = tt_sock_own(open("/dev/null", O_RDONLY | O_CLOEXEC));
}

static void drop(struct tt_control *ctl, struct tt_unauth *u, bool close_fd)
{
	if (u->dead)
		return;
	u->dead = true;
	tt_admission_count(ctl, -1);
	epoll_ctl(ctl->service.epoll, EPOLL_CTL_DEL, u->fd, NULL);
	if (close_fd)
		tt_sock_close(u->fd);
	if (u->reserve)
		open_reserve(ctl);
}

void tt_unauth_reap(struct tt_control *ctl, bool all)
{
	struct tt_unauth **at = &ctl->listener.unauth, *u;

	while ((u = *at)) {
		if (all)
			drop(ctl, u, true);
		if (u->dead) {
			*at = u->next;
			free(u);
		} else {
			at = &u->next;
		}
	}
}

/* ---- accept ---------------------------------------------------------------------------------- */

static void set_listening(struct tt_control *ctl, bool listen)
{
	struct epoll_event ev = { .events = listen ? EPOLLIN : 0,
				  .data.ptr = &ctl->listener.source };

	ctl->listener.resume_ns = listen ? TT_NEVER : tt_now_ns() + PAUSE_NS;
	epoll_ctl(ctl->service.epoll, EPOLL_CTL_MOD, ctl->listener.fd, &ev);
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

static bool accept_one(struct tt_control *ctl, bool reserve, int *ret_fd,
		       struct tt_address *ret_source)
{
	struct sockaddr_in6 from = { 0 };

	if (reserve) {
		tt_sock_close(ctl->listener.reserve_fd);
		ctl->listener.reserve_fd = -1;
	}
	*ret_fd = accept4(ctl->listener.fd, (struct sockaddr *)&from, &(socklen_t){ sizeof(from) },
			  SOCK_CLOEXEC | SOCK_NONBLOCK);
	if (*ret_fd < 0)
		return false;
	*ret_source = source_of(&from);
	return true;
}

static void add_unauth(struct tt_control *ctl, int fd, const struct tt_address *source,
		       bool reserve)
{
	struct tt_unauth *u = calloc(1, sizeof(*u));
	struct epoll_event ev = { .events = EPOLLIN, .data.ptr = u };

	tt_sock_own(fd);
	if (!u || epoll_ctl(ctl->service.epoll, EPOLL_CTL_ADD, fd, &ev)) {
		free(u);
		tt_sock_close(fd);
		if (reserve)
			open_reserve(ctl);
		return;
	}
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){ 1 }, sizeof(int));
	tt_sock_settle(fd);
	*u = (struct tt_unauth){ .kind = TT_SRC_UNAUTH,
				 .next = ctl->listener.unauth,
				 .fd = fd,
				 .source = *source,
				 .since_ns = tt_now_ns(),
				 .reserve = reserve };
	ctl->listener.unauth = u;
	tt_admission_count(ctl, 1);
	tt_unauth_event(ctl, u); /* a rank's hello is there already */
}

/* No descriptor left: drop a stranger and come back, or serve one handshake with the reserve. */
static void accept_without_descriptor(struct tt_control *ctl)
{
	struct tt_unauth *victim = tt_admission_victim(ctl);
	struct tt_address source;
	int fd;

	if (victim)
		drop(ctl, victim, true);
	else if (!ctl->listener.nunauth && ctl->listener.reserve_fd >= 0 &&
		 accept_one(ctl, true, &fd, &source))
		add_unauth(ctl, fd, &source, true);
	else
		set_listening(ctl, false);
	if (!ctl->listener.nunauth)
		open_reserve(ctl);
}

void tt_accept_event(struct tt_control *ctl)
{
	for (int i = 0; i < AT_ONCE; i++) {
		struct tt_unauth *victim;
		enum tt_admission admission = tt_admission_next(ctl, &victim);
		struct tt_address source;
		int fd;

		if (admission == TT_ADMIT_LATER || !accept_one(ctl, false, &fd, &source)) {
			if (admission != TT_ADMIT_LATER && (errno == EMFILE || errno == ENFILE))
				accept_without_descriptor(ctl);
			else if (admission == TT_ADMIT_LATER ||
				 (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED))
				set_listening(ctl, false); /* ENOBUFS, ENOMEM: after a pause */
			return;
		}
		if (admission == TT_ADMIT_COMPETE && !tt_admission_compete(ctl, &source, &victim)) {
			close(fd);
			continue;
		}
		if (victim)
			drop(ctl, victim, true);
		add_unauth(ctl, fd, &source, false);
	}
}

uint64_t tt_accept_timers(struct tt_control *ctl, uint64_t now)
{
	uint64_t due = TT_NEVER;

	for (struct tt_unauth *u = ctl->listener.unauth; u; u = u->next) {
		if (!u->dead && now - u->since_ns >= HANDSHAKE_NS)
			drop(ctl, u, true);
		else if (!u->dead && u->since_ns + HANDSHAKE_NS < due)
			due = u->since_ns + HANDSHAKE_NS;
	}
	if (now >= ctl->listener.resume_ns)
		set_listening(ctl, true);
	return ctl->listener.resume_ns < due ? ctl->listener.resume_ns : due;
}

/* ---- handshake ------------------------------------------------------------------------------- */

/* At most one warning a second about strangers, who may be many. */
static bool may_warn(struct tt_control *ctl)
{
	uint64_t now = tt_now_ns(), last = ctl->listener.warned_ns;

	if (last && now - last < TT_SECOND)
		return false;
	ctl->listener.warned_ns = now;
	return true;
}

static enum tt_verdict judge(const struct tt_control *ctl, const struct tt_hello *h)
{
	if (memcmp(h->job, ctl->auth.job, TT_NONCE))
		return TT_V_OTHER_JOB;
	if (h->epoch != ctl->auth.epoch)
		return h->epoch < ctl->auth.epoch ? TT_V_STALE : TT_V_EARLY;
	if (h->to != ctl->rank || (h->purpose != TT_P_REGISTER && h->from >= ctl->nranks) ||
	    h->from == ctl->rank || (h->purpose == TT_P_REGISTER && !ctl->join.root) ||
	    (h->purpose == TT_P_TREE && tt_tree_parent(h->from) != ctl->rank) ||
	    (h->purpose == TT_P_RING && !tt_ring_edge(h->from, ctl->rank, ctl->nranks)))
		return TT_V_OTHER_RANK;
	return TT_V_WELCOME;
}

static bool answer_hello(struct tt_control *ctl, struct tt_unauth *u)
{
	enum tt_verdict verdict = 0;

	if (!tt_hello_get(u->hello_bytes, &u->hello, &verdict))
		return false;
	if (verdict == TT_V_WELCOME)
		verdict = judge(ctl, &u->hello);
	if (verdict == TT_V_STALE && may_warn(ctl))
		tt_log(TT_LOG_WARN,
		       "rank %d: rank %d of attempt %d was refused: this is attempt %d of the job",
		       ctl->rank, u->hello.from, u->hello.epoch, ctl->auth.epoch);
	if (!tt_reply_put(ctl->auth.key, u->hello_bytes, verdict, u->reply) ||
	    send(u->fd, u->reply, TT_REPLY_BYTES, MSG_NOSIGNAL | MSG_DONTWAIT) != TT_REPLY_BYTES)
		return false;
	u->proving = true;
	u->have = 0;
	return verdict == TT_V_WELCOME;
}

/* A second tt_control_dial of the same (peer, channel) replaces the first one, which its dialer has
 * given up. */
static void park(struct tt_control *ctl, int peer, int channel, int fd)
{
	struct tt_parked *p = ctl->listener.parked;

	while (p && (p->peer != peer || p->channel != channel))
		p = p->next;
	if (p) {
		tt_sock_close(p->fd);
		p->fd = fd;
		return;
	}
	p = malloc(sizeof(*p));
	if (!p) {
		tt_sock_close(fd);
		return;
	}
	*p = (struct tt_parked){
		.next = ctl->listener.parked, .fd = fd, .peer = peer, .channel = channel
	};
	ctl->listener.parked = p;
}

static void connected(struct tt_control *ctl, const struct tt_hello *h, int fd)
{
	struct tt_conn *conn;

	switch (h->purpose) {
	case TT_P_REGISTER:
		conn = tt_conn_add(ctl, fd, h->from, TT_ROLE_REGISTER);
		if (conn)
			tt_bootstrap_entered(ctl, conn);
		break;
	case TT_P_TREE:
		if (tt_conn_add(ctl, fd, h->from, TT_ROLE_CHILD))
			tt_join_attached(ctl, h->from);
		break;
	case TT_P_RING:
		tt_conn_add(ctl, fd, h->from, TT_ROLE_RING);
		break;
	case TT_P_DATA:
		park(ctl, h->from, h->channel, fd);
		break;
	case TT_P_AM:
		tt_observers_socket(ctl, h->from, fd);
		break;
	}
}

/* A rank received TT_V_FULL: no descriptor is left. That breaks a join, or a call that waits for a data
 * socket, when it lasts. */
static void note_full(struct tt_control *ctl)
{
	struct tt_listener *l = &ctl->listener;
	uint64_t now = tt_now_ns();

	if (!l->full_since_ns || now - l->full_last_ns > TT_SECOND) {
		l->full_since_ns = now;
		snprintf(l->trouble, sizeof(l->trouble),
			 "rank %d cannot accept connections: %s; raise its ulimit -n", ctl->rank,
			 strerror(EMFILE));
		tt_log(TT_LOG_WARN, "%s", l->trouble);
	}
	l->full_last_ns = now;
	if ((!ctl->join.complete || now - l->claim_ns < TT_SECOND) &&
	    now - l->full_since_ns > FULL_NS)
		tt_control_break(ctl, TT_SYSTEM, ctl->rank, 0, l->trouble, NULL);
}

static void check_proof(struct tt_control *ctl, struct tt_unauth *u)
{
	bool genuine = tt_proof_check(ctl->auth.key, u->hello_bytes, u->reply, u->proof);
	uint8_t verdict = !genuine ? TT_V_OTHER_SECRET : u->reserve ? TT_V_FULL : TT_V_WELCOME;
	bool sent = send(u->fd, &verdict, 1, MSG_NOSIGNAL | MSG_DONTWAIT) == 1;

	drop(ctl, u, verdict != TT_V_WELCOME || !sent);
	if (verdict == TT_V_FULL)
		note_full(ctl);
	if (verdict == TT_V_WELCOME && sent) {
		ctl->listener.full_since_ns = 0;
		connected(ctl, &u->hello, u->fd);
	}
	if (!genuine) {
		if (may_warn(ctl))
			tt_log(TT_LOG_WARN,
			       "rank %d: a connection as rank %d was refused: it has another secret",
			       ctl->rank, u->hello.from);
		tt_bootstrap_wrong_secret(ctl, u->hello.from);
	}
}

void tt_unauth_event(struct tt_control *ctl, struct tt_unauth *u)
{
	while (!u->dead) {
		uint8_t *to = u->proving ? u->proof : u->hello_bytes;
		size_t want = u->proving ? sizeof(u->proof) : sizeof(u->hello_bytes);
		ssize_t n = recv(u->fd, to + u->have, want - u->have, MSG_DONTWAIT);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN)
			return;
		if (n > 0)
			u->have += (size_t)n;
		if (n <= 0)
			drop(ctl, u, true);
		else if (u->have == want && u->proving)
			check_proof(ctl, u);
		else if (u->have == want && !answer_hello(ctl, u))
			drop(ctl, u, true);
	}
}
