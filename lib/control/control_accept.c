/*
 * control_accept.c - the listener, and guests:
 * connections that have not proved the job's secret yet
 *
 * Called by the service thread. Anybody can connect, say nothing, half a hello or nonsense: a guest
 * costs one of TT_GUESTS places for at most five seconds and disturbs nobody. When descriptors run
 * out, one that is kept spare lets the next guest be told so in words; otherwise epoll would report
 * it for ever.
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

#define GUEST_NS (5 * TT_SECOND)
#define CROWDED_GUEST_NS (TT_SECOND / 4)         /* ... when all places are taken */
#define AT_ONCE 16
#define PAUSE_NS (TT_SECOND / 20)
/* without descriptors for so long: what waits for a guest fails */
#define FULL_NS (2 * TT_SECOND)

static void dismiss(struct tt_control *ctl, struct tt_guest *guest, bool close_fd)
{
	if (guest->dead)
		return;
	guest->dead = true;
	ctl->nguests--;
	epoll_ctl(ctl->epoll, EPOLL_CTL_DEL, guest->fd, NULL);
	if (close_fd)
		tt_sock_close(guest->fd);
}

void tt_guest_bury(struct tt_control *ctl, bool all)
{
	struct tt_guest **at = &ctl->guests, *g;

	while ((g = *at)) {
		if (all)
			dismiss(ctl, g, true);
		if (g->dead) {
			*at = g->next;
			free(g);
		} else {
			at = &g->next;
		}
	}
}

/* ---- letting guests in ----------------------------------------------------------------------- */

static void listen_again(struct tt_control *ctl, bool listen)
{
	struct epoll_event ev = { .events = listen ? EPOLLIN : 0,
				  .data.ptr = &ctl->listener_source };

	ctl->deaf = !listen;
	ctl->hear_again_ns = listen ? TT_NEVER : tt_now_ns() + PAUSE_NS;
	epoll_ctl(ctl->epoll, EPOLL_CTL_MOD, ctl->listener, &ev);
}

/* No descriptor left: give the spare one to the next guest for as long as it takes to tell it. */
static void turn_away(struct tt_control *ctl)
{
	static const uint8_t blank[TT_HELLO_BYTES];
	uint8_t reply[TT_REPLY_BYTES];
	uint64_t now = tt_now_ns();
	int fd;

	if (!ctl->full_since_ns || now - ctl->full_last_ns > TT_SECOND) {
		ctl->full_since_ns = now;
		snprintf(ctl->accept_trouble, sizeof(ctl->accept_trouble),
			 "rank %d cannot accept connections: %s; raise its ulimit -n", ctl->rank,
			 strerror(errno));
		tt_log(TT_LOG_WARN, "%s", ctl->accept_trouble);
	}
	ctl->full_last_ns = now;
	tt_sock_close(ctl->spare);
	fd = accept4(ctl->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	if (fd >= 0 && tt_reply_put(&ctl->key, blank, TT_V_FULL, reply))
		(void)!send(fd, reply, sizeof(reply), MSG_NOSIGNAL | MSG_DONTWAIT);
	if (fd >= 0)
		close(fd);
	ctl->spare = tt_sock_own(open("/dev/null", O_RDONLY | O_CLOEXEC));
	if ((!ctl->joined || now - ctl->taking_ns < TT_SECOND) &&
	    now - ctl->full_since_ns > FULL_NS)
		tt_control_break(ctl, TT_SYSTEM, ctl->rank, 0, ctl->accept_trouble, NULL);
	listen_again(ctl, false);
}

static bool welcome(struct tt_control *ctl, int fd)
{
	struct tt_guest *guest = calloc(1, sizeof(*guest));
	struct epoll_event ev = { .events = EPOLLIN, .data.ptr = guest };

	if (!guest || epoll_ctl(ctl->epoll, EPOLL_CTL_ADD, fd, &ev)) {
		free(guest);
		tt_sock_close(fd);
		return false;
	}
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){ 1 }, sizeof(int));
	tt_sock_settle(fd);
	*guest = (struct tt_guest){
		.source = TT_SRC_GUEST, .next = ctl->guests, .fd = fd, .since_ns = tt_now_ns()
	};
	ctl->guests = guest;
	ctl->nguests++;
	return true;
}

void tt_accept_event(struct tt_control *ctl)
{
	for (int i = 0; i < AT_ONCE; i++) {
		int fd;

		if (ctl->nguests >= TT_GUESTS) {
			listen_again(ctl, false);
			return;
		}
		fd = accept4(ctl->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
		if (fd < 0 && (errno == EMFILE || errno == ENFILE)) {
			turn_away(ctl);
			return;
		}
		if (fd < 0 && errno != EAGAIN && errno != EINTR && errno != ECONNABORTED)
			listen_again(ctl, false);        /* ENOBUFS, ENOMEM: not at once again */
		if (fd < 0)
			return;
		ctl->full_since_ns = 0;
		welcome(ctl, tt_sock_own(fd));
	}
}

uint64_t tt_accept_timers(struct tt_control *ctl, uint64_t now)
{
	uint64_t due = TT_NEVER, patience = ctl->nguests >= TT_GUESTS ? CROWDED_GUEST_NS : GUEST_NS;

	for (struct tt_guest *g = ctl->guests; g; g = g->next) {
		if (!g->dead && now - g->since_ns >= patience)
			dismiss(ctl, g, true);
		else if (!g->dead && g->since_ns + patience < due)
			due = g->since_ns + patience;
	}
	if (ctl->deaf &&
	    (now >= ctl->hear_again_ns || (!ctl->full_since_ns && ctl->nguests < TT_GUESTS / 2)))
		listen_again(ctl, true);
	return ctl->deaf && ctl->hear_again_ns < due ? ctl->hear_again_ns : due;
}

/* ---- the talk -------------------------------------------------------------------------------- */

static enum tt_verdict judge(const struct tt_control *ctl, const struct tt_hello *h)
{
	if (memcmp(h->job, ctl->job, TT_NONCE))
		return TT_V_OTHER_JOB;
	if (h->epoch != ctl->epoch)
		return h->epoch < ctl->epoch ? TT_V_STALE : TT_V_EARLY;
	if (h->to != ctl->rank || (h->purpose != TT_P_REGISTER && h->from >= ctl->nranks) ||
	    h->from == ctl->rank || (h->purpose == TT_P_REGISTER && !ctl->desk) ||
	    (h->purpose == TT_P_TREE && tt_tree_parent(h->from) != ctl->rank) ||
	    (h->purpose == TT_P_RING && !tt_ring_edge(h->from, ctl->rank, ctl->nranks)))
		return TT_V_OTHER_RANK;
	return TT_V_WELCOME;
}

static bool answer_hello(struct tt_control *ctl, struct tt_guest *g)
{
	enum tt_verdict verdict = 0;

	if (!tt_hello_get(g->said, &g->hello, &verdict))
		return false;
	if (verdict == TT_V_WELCOME)
		verdict = judge(ctl, &g->hello);
	if (verdict == TT_V_STALE)
		tt_log(TT_LOG_WARN,
		       "rank %d: rank %d of attempt %d was refused: this is attempt %d of the job",
		       ctl->rank, g->hello.from, g->hello.epoch, ctl->epoch);
	if (!tt_reply_put(&ctl->key, g->said, verdict, g->reply) ||
	    send(g->fd, g->reply, TT_REPLY_BYTES, MSG_NOSIGNAL | MSG_DONTWAIT) != TT_REPLY_BYTES)
		return false;
	g->proving = true;
	g->have = 0;
	return verdict == TT_V_WELCOME;
}

/* A second tt_control_dial of the same (peer,
 * channel) replaces the first, whose dialler has given up. */
static void park(struct tt_control *ctl, int peer, int channel, int fd)
{
	struct tt_parked *p = ctl->parked;

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
	*p = (struct tt_parked){ .next = ctl->parked, .fd = fd, .peer = peer, .channel = channel };
	ctl->parked = p;
}

static void seat(struct tt_control *ctl, const struct tt_hello *h, int fd)
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
		if (ctl->on_socket)
			ctl->on_socket(ctl->am_ctx, h->from, fd);
		else
			tt_sock_close(fd);
		break;
	}
}

static void check_proof(struct tt_control *ctl, struct tt_guest *g)
{
	bool true_one = tt_proof_check(&ctl->key, g->said, g->reply, g->proof);
	uint8_t verdict = true_one ? TT_V_WELCOME : TT_V_OTHER_SECRET;
	bool sent = send(g->fd, &verdict, 1, MSG_NOSIGNAL | MSG_DONTWAIT) == 1;

	dismiss(ctl, g, !true_one || !sent);
	if (true_one && sent)
		seat(ctl, &g->hello, g->fd);
	if (!true_one) {
		tt_log(TT_LOG_WARN,
		       "rank %d: a connection as rank %d was refused: it has another secret",
		       ctl->rank, g->hello.from);
		tt_bootstrap_stranger(ctl, g->hello.from);
	}
}

void tt_guest_event(struct tt_control *ctl, struct tt_guest *g)
{
	while (!g->dead) {
		uint8_t *to = g->proving ? g->proof : g->said;
		size_t want = g->proving ? sizeof(g->proof) : sizeof(g->said);
		ssize_t n = recv(g->fd, to + g->have, want - g->have, MSG_DONTWAIT);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN)
			return;
		if (n > 0)
			g->have += (size_t)n;
		if (n <= 0)
			dismiss(ctl, g, true);
		else if (g->have == want && g->proving)
			check_proof(ctl, g);
		else if (g->have == want && !answer_hello(ctl, g))
			dismiss(ctl, g, true);
	}
}
