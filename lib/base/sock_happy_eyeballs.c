/*
 * sock_happy_eyeballs.c - connect to the first of several addresses that answers
 *
 * Called by control. An address without any answer must not delay the next one, so each target gets
 * a head start over the next, not a turn of its own. A failed target keeps its reason.
 * Source: Happy Eyeballs, RFC 8305.
 */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "base/sock.h"

#define HEAD_START_NS 200000000ull
#define ENOUGH_NS 2000000000ull /* limit of one target, when there are others */
#define SLICE_MS 20
#define AT_ONCE 8

struct connect_attempt {
	struct tt_sock_target *to;
	int fd;
	uint64_t until_ns;
};

struct happy_eyeballs {
	struct connect_attempt running[AT_ONCE];
	unsigned n;
	int code; /* TT_SYSTEM: this host cannot connect at all */
};

/* Without a listener, the kernel may choose a target port of the ephemeral range as the source port
 * too: TCP then connects the socket to itself. */
static bool is_self(int fd)
{
	struct sockaddr_storage mine = { 0 }, other = { 0 };
	socklen_t a = sizeof(mine), b = sizeof(other);

	return !getsockname(fd, (struct sockaddr *)&mine, &a) &&
	       !getpeername(fd, (struct sockaddr *)&other, &b) && a == b &&
	       !memcmp(&mine, &other, a);
}

static void mark_failed(struct tt_sock_target *c, const char *why)
{
	snprintf(c->why, sizeof(c->why), "%s", why);
	c->tried = true;
}

static int begin(const struct tt_sock_target *c, int *ret_fd)
{
	struct sockaddr_in four = { .sin_family = AF_INET, .sin_port = htons((uint16_t)c->port) };
	struct sockaddr_in6 six = { .sin6_family = AF_INET6,
				    .sin6_port = htons((uint16_t)c->port) };
	bool is_four = c->address.family == 4;
	int fd = socket(is_four ? AF_INET : AF_INET6, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK,
			0);

	if (fd < 0)
		return errno;
	memcpy(&four.sin_addr, c->address.bytes, 4);
	memcpy(&six.sin6_addr, c->address.bytes, 16);
	tt_sock_own(fd);
	tt_sock_unpace(fd);
	*ret_fd = fd;
	if (!connect(fd, is_four ? (struct sockaddr *)&four : (struct sockaddr *)&six,
		     is_four ? sizeof(four) : sizeof(six)) ||
	    errno == EINPROGRESS)
		return 0;
	return errno;
}

static void start(struct happy_eyeballs *r, struct tt_sock_target *c, uint64_t until_ns)
{
	struct connect_attempt *a = &r->running[r->n];
	int why;

	*a = (struct connect_attempt){ .to = c, .fd = -1, .until_ns = until_ns };
	why = begin(c, &a->fd);
	c->tried = true;
	if (!why) {
		r->n++;
		return;
	}
	tt_sock_close(a->fd);
	errno = why;
	if (a->fd < 0 && why != EAFNOSUPPORT)
		r->code = tt_sock_fail("cannot make a socket");
	else
		mark_failed(c, strerror(why));
}

static void drop(struct happy_eyeballs *r, int i, const char *why)
{
	mark_failed(r->running[i].to, why);
	tt_sock_close(r->running[i].fd);
	r->running[i] = r->running[--r->n];
}

/* Poll all attempts, for a slice at most. Returns the index of a connected one, or -1. */
static int poll_attempts(struct happy_eyeballs *r)
{
	struct pollfd pfds[AT_ONCE];

	for (unsigned i = 0; i < r->n; i++)
		pfds[i] = (struct pollfd){ .fd = r->running[i].fd, .events = POLLOUT };
	if (poll(pfds, r->n, SLICE_MS) <= 0)
		return -1;
	for (int i = (int)r->n - 1; i >= 0; i--) {
		int why = 0;

		if (!pfds[i].revents)
			continue;
		getsockopt(r->running[i].fd, SOL_SOCKET, SO_ERROR, &why,
			   &(socklen_t){ sizeof(why) });
		if (!why && !is_self(r->running[i].fd))
			return i;
		drop(r, i, strerror(why ? why : ECONNREFUSED));
	}
	return -1;
}

static void expire(struct happy_eyeballs *r, uint64_t now)
{
	for (int i = (int)r->n - 1; i >= 0; i--)
		if (now >= r->running[i].until_ns)
			drop(r, i, "no answer");
}

/* Close all but the winner; targets without an answer yet may be tried again. */
static int finish(struct happy_eyeballs *r, int winner, const struct tt_sock_target *list,
		  int *ret_index, int *ret_fd)
{
	for (int i = 0; i < (int)r->n; i++) {
		if (i == winner)
			continue;
		r->running[i].to->tried = false;
		tt_sock_close(r->running[i].fd);
	}
	*ret_fd = r->running[winner].fd;
	*ret_index = (int)(r->running[winner].to - list);
	setsockopt(*ret_fd, IPPROTO_TCP, TCP_NODELAY, &(int){ 1 }, sizeof(int));
	tt_sock_settle(*ret_fd);
	return 0;
}

int tt_sock_happy_eyeballs(struct tt_sock_target *list, int n, const struct tt_patience *patience,
			   int *ret_index, int *ret_fd)
{
	struct happy_eyeballs r = { .n = 0 };
	uint64_t next_ns = 0;
	int i = 0, winner;

	for (;;) {
		uint64_t now = tt_now_ns(), until = n > 1 ? now + ENOUGH_NS : patience->deadline_ns;

		while (i < n && list[i].tried)
			i++;
		if (i < n && r.n < AT_ONCE && (!r.n || now >= next_ns)) {
			start(&r, &list[i],
			      until < patience->deadline_ns ? until : patience->deadline_ns);
			next_ns = now + HEAD_START_NS;
		}
		if (r.code || now >= patience->deadline_ns ||
		    (patience->stop && patience->stop(patience->ctx)))
			break;
		if (r.n && (winner = poll_attempts(&r)) >= 0)
			return finish(&r, winner, list, ret_index, ret_fd);
		expire(&r, tt_now_ns());
		if (!r.n && i >= n)
			return TT_REMOTE;
	}
	while (r.n)
		drop(&r, (int)r.n - 1, "no answer");
	return r.code ? r.code : TT_TIMEOUT;
}
