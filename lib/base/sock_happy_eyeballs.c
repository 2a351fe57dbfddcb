/*
 * sock_happy_eyeballs.c - connect to whichever of several addresses answers first
 *
 * Called by comm. An address that swallows packets must not hold up the next one, so each gets a
 * head start over the next, not a turn. What leads nowhere says so in its own words.
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
#define ENOUGH_NS 2000000000ull          /* for one address, when there are others */
#define SLICE_MS 20
#define AT_ONCE 8

struct runner {
	struct tt_sock_target *to;
	int fd;
	uint64_t until_ns;
};

struct race {
	struct runner running[AT_ONCE];
	unsigned n;
	int code;                        /* TT_SYSTEM: this host cannot go on */
};

/* With nobody listening, a port of the ephemeral range can happen to be chosen as the source port
 * too: TCP then connects the socket to itself. */
static bool is_self(int fd)
{
	struct sockaddr_storage mine = { 0 }, other = { 0 };
	socklen_t a = sizeof(mine), b = sizeof(other);

	return !getsockname(fd, (struct sockaddr *)&mine, &a) &&
	       !getpeername(fd, (struct sockaddr *)&other, &b) && a == b &&
	       !memcmp(&mine, &other, a);
}

static void lose(struct tt_sock_target *c, const char *why)
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
	int fd =
		socket(is_four ? AF_INET : AF_INET6, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

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

static void start(struct race *r, struct tt_sock_target *c, uint64_t until_ns)
{
	struct runner *runner = &r->running[r->n];
	int why;

	*runner = (struct runner){ .to = c, .fd = -1, .until_ns = until_ns };
	why = begin(c, &runner->fd);
	c->tried = true;
	if (!why) {
		r->n++;
		return;
	}
	tt_sock_close(runner->fd);
	errno = why;
	if (runner->fd < 0 && why != EAFNOSUPPORT)
		r->code = tt_sock_fail("cannot make a socket");
	else
		lose(c, strerror(why));
}

static void drop(struct race *r, int i, const char *why)
{
	lose(r->running[i].to, why);
	tt_sock_close(r->running[i].fd);
	r->running[i] = r->running[--r->n];
}

/* Look at all that run, for a slice at most. The number of one that has arrived, or -1. */
static int look(struct race *r)
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

static void expire(struct race *r, uint64_t now)
{
	for (int i = (int)r->n - 1; i >= 0; i--)
		if (now >= r->running[i].until_ns)
			drop(r, i, "no answer");
}

/* End all but the winner; those that were still on their way may be tried again. */
static int finish(struct race *r, int winner, const struct tt_sock_target *list, int *ret_index,
		  int *ret_fd)
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

int tt_sock_happy_eyeballs(struct tt_sock_target *list, int n, const struct tt_patience *patience, int *ret_index,
		 int *ret_fd)
{
	struct race r = { .n = 0 };
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
		if (r.n && (winner = look(&r)) >= 0)
			return finish(&r, winner, list, ret_index, ret_fd);
		expire(&r, tt_now_ns());
		if (!r.n && i >= n)
			return TT_REMOTE;
	}
	while (r.n)
		drop(&r, (int)r.n - 1, "no answer");
	return r.code ? r.code : TT_TIMEOUT;
}
