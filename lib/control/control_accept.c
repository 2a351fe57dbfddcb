/*
 * control_accept.c - the listener, and unauthenticated connections: accepted, secret not yet proved
 *
 * Called by the service thread. Any process can connect and send nothing, half a hello or malformed
 * bytes: an unauthenticated connection occupies one of TT_UNAUTH_MOST slots for five seconds at
 * most and delays no other connection. When descriptors run out, a reserve descriptor is given up
 * to accept the next connection and answer TT_V_FULL; without an accept epoll would report the
 * connection for ever.
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
#define CROWDED_HANDSHAKE_NS (TT_SECOND / 4) /* ... when all slots are taken */
#define AT_ONCE 16
#define PAUSE_NS (TT_SECOND / 20)
/* time without descriptors after which joining and tt_control_take fail */
#define FULL_NS (2 * TT_SECOND)

static void drop(struct tt_control *ctl, struct tt_unauth *u, bool close_fd)
{
	if (u->dead)
		return;
	u->dead = true;
	ctl->listener.nunauth--;
	epoll_ctl(ctl->service.epoll, EPOLL_CTL_DEL, u->fd, NULL);
	if (close_fd)
		tt_sock_close(u->fd);
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

	ctl->listener.paused = !listen;
	ctl->listener.resume_ns = listen ? TT_NEVER : tt_now_ns() + PAUSE_NS;
	epoll_ctl(ctl->service.epoll, EPOLL_CTL_MOD, ctl->listener.fd, &ev);
}

/* No descriptor left: accept one connection with the reserve descriptor, answer TT_V_FULL, close. */
static void refuse_full(struct tt_control *ctl)
{
	static const uint8_t blank[TT_HELLO_BYTES];
	uint8_t reply[TT_REPLY_BYTES];
	uint64_t now = tt_now_ns();
	int fd;

	if (!ctl->listener.full_since_ns || now - ctl->listener.full_last_ns > TT_SECOND) {
		ctl->listener.full_since_ns = now;
		snprintf(ctl->listener.trouble, sizeof(ctl->listener.trouble),
			 "rank %d cannot accept connections: %s; raise its ulimit -n", ctl->rank,
			 strerror(errno));
		tt_log(TT_LOG_WARN, "%s", ctl->listener.trouble);
	}
	ctl->listener.full_last_ns = now;
	tt_sock_close(ctl->listener.reserve_fd);
	fd = accept4(ctl->listener.fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	if (fd >= 0 && tt_reply_put(&ctl->auth.key, blank, TT_V_FULL, reply))
		(void)!send(fd, reply, sizeof(reply), MSG_NOSIGNAL | MSG_DONTWAIT);
	if (fd >= 0)
		close(fd);
	ctl->listener.reserve_fd = tt_sock_own(open("/dev/null", O_RDONLY | O_CLOEXEC));
	if ((!ctl->join.complete || now - ctl->listener.claim_ns < TT_SECOND) &&
	    now - ctl->listener.full_since_ns > FULL_NS)
		tt_control_break(ctl, TT_SYSTEM, ctl->rank, 0, ctl->listener.trouble, NULL);
	set_listening(ctl, false);
}

static bool add_unauth(struct tt_control *ctl, int fd)
{
	struct tt_unauth *u = calloc(1, sizeof(*u));
	struct epoll_event ev = { .events = EPOLLIN, .data.ptr = u };

	if (!u || epoll_ctl(ctl->service.epoll, EPOLL_CTL_ADD, fd, &ev)) {
		free(u);
		tt_sock_close(fd);
		return false;
	}
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){ 1 }, sizeof(int));
	tt_sock_settle(fd);
	*u = (struct tt_unauth){ .source = TT_SRC_UNAUTH,
				 .next = ctl->listener.unauth,
				 .fd = fd,
				 .since_ns = tt_now_ns() };
	ctl->listener.unauth = u;
	ctl->listener.nunauth++;
	return true;
}

void tt_accept_event(struct tt_control *ctl)
{
	for (int i = 0; i < AT_ONCE; i++) {
		int fd;

		if (ctl->listener.nunauth >= TT_UNAUTH_MOST) {
			set_listening(ctl, false);
			return;
		}
		fd = accept4(ctl->listener.fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
		if (fd < 0 && (errno == EMFILE || errno == ENFILE)) {
			refuse_full(ctl);
			return;
		}
		if (fd < 0 && errno != EAGAIN && errno != EINTR && errno != ECONNABORTED)
			set_listening(ctl, false); /* ENOBUFS, ENOMEM: retry after a pause */
		if (fd < 0)
			return;
		ctl->listener.full_since_ns = 0;
		add_unauth(ctl, tt_sock_own(fd));
	}
}

uint64_t tt_accept_timers(struct tt_control *ctl, uint64_t now)
{
	uint64_t due = TT_NEVER, patience = ctl->listener.nunauth >= TT_UNAUTH_MOST
						    ? CROWDED_HANDSHAKE_NS
						    : HANDSHAKE_NS;

	for (struct tt_unauth *u = ctl->listener.unauth; u; u = u->next) {
		if (!u->dead && now - u->since_ns >= patience)
			drop(ctl, u, true);
		else if (!u->dead && u->since_ns + patience < due)
			due = u->since_ns + patience;
	}
	if (ctl->listener.paused &&
	    (now >= ctl->listener.resume_ns ||
	     (!ctl->listener.full_since_ns && ctl->listener.nunauth < TT_UNAUTH_MOST / 2)))
		set_listening(ctl, true);
	return ctl->listener.paused && ctl->listener.resume_ns < due ? ctl->listener.resume_ns
								     : due;
}

/* ---- handshake ------------------------------------------------------------------------------- */

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
	if (verdict == TT_V_STALE)
		tt_log(TT_LOG_WARN,
		       "rank %d: rank %d of attempt %d was refused: this is attempt %d of the job",
		       ctl->rank, u->hello.from, u->hello.epoch, ctl->auth.epoch);
	if (!tt_reply_put(&ctl->auth.key, u->hello_bytes, verdict, u->reply) ||
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

static void check_proof(struct tt_control *ctl, struct tt_unauth *u)
{
	bool genuine = tt_proof_check(&ctl->auth.key, u->hello_bytes, u->reply, u->proof);
	uint8_t verdict = genuine ? TT_V_WELCOME : TT_V_OTHER_SECRET;
	bool sent = send(u->fd, &verdict, 1, MSG_NOSIGNAL | MSG_DONTWAIT) == 1;

	drop(ctl, u, !genuine || !sent);
	if (genuine && sent)
		connected(ctl, &u->hello, u->fd);
	if (!genuine) {
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
