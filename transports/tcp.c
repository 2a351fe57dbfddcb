/*
 * tcp.c - messages over TCP: one socket for each (peer, channel), driven by whoever calls
 *
 * Called through tt_tcp by comm and run; tcp_stream.c moves the bytes. Sockets come connected and authenticated from
 * world->dial (at the lower rank) and world->take (at the higher). Only links with something expected or unfinished
 * cost system calls. Buffer sizes are left to the kernel, whose tuning a fixed size would switch off.
 *
 * Sleep: one epoll set, edge-triggered, so that bytes that came early for a later step do not keep a sleeper awake. That
 * is enough, because whoever arms looks at all links of interest once more: what came before is seen then, what comes
 * after is an edge. A send that comes up short is followed by an edge for room. Sockets join the set when the endpoint
 * arms for the first time, because a watched socket is slower (0.1-0.3 us a message) even if nobody waits.
 */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "transports/tcp_stream.h"

#define BLIND_US 1000          /* longest sleep while a socket is not in the set or not there yet */

struct tcp_ep {
	struct tt_endpoint base;
	int epoll, bell;               /* bell: an eventfd for wake */
	int unwatched;                 /* links that wait for take, or that epoll refused */
	bool watching;
	int nbusy;
	struct tt_tcp_link **links;    /* [nranks * nchannels] */
	struct tt_tcp_link **busy;     /* [nbusy] with posts that the socket did not take at once */
	_Atomic size_t memory;
};

static int tcp_probe(char *why, size_t bytes)
{
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0 && errno == EAFNOSUPPORT)
		fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0) {
		snprintf(why, bytes, "socket: %m");
		return 0;
	}
	close(fd);
	return 1;
}

static size_t nlinks(const struct tt_world *world)
{
	return (size_t)world->nranks * (size_t)world->nchannels;
}

static void tcp_close(struct tt_endpoint *base)
{
	struct tcp_ep *ep = (struct tcp_ep *)base;

	for (size_t i = 0; ep->links && i < nlinks(base->world); i++) {
		if (!ep->links[i])
			continue;
		if (ep->links[i]->fd >= 0)
			tt_tcp_hang_up(ep->links[i]->fd);
		free(ep->links[i]->stage);
		free(ep->links[i]);
	}
	if (ep->bell >= 0)
		close(ep->bell);
	if (ep->epoll >= 0)
		close(ep->epoll);
	free(ep->busy);
	free(ep->links);
	free(ep);
}

static int watch(struct tcp_ep *ep, int fd)
{
	struct epoll_event event = { .events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET };

	return epoll_ctl(ep->epoll, EPOLL_CTL_ADD, fd, &event);
}

static int tcp_open(const struct tt_world *world, struct tt_endpoint **ret_ep)
{
	struct tcp_ep *ep;
	int rc;

	if (world->message_bytes > INT32_MAX)
		return tt_fail(TT_ARG, "tcp cannot carry messages of %zu bytes", world->message_bytes);
	ep = calloc(1, sizeof(*ep));
	if (!ep)
		return tt_fail(TT_SYSTEM, "rank %d: no memory for tcp's endpoint", world->rank);
	ep->base = (struct tt_endpoint){ .t = &tt_tcp, .world = world };
	ep->epoll = epoll_create1(EPOLL_CLOEXEC);
	ep->bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	ep->links = calloc(nlinks(world), sizeof(struct tt_tcp_link *));
	ep->busy = calloc(nlinks(world), sizeof(struct tt_tcp_link *));
	ep->memory = sizeof(*ep) + 2 * nlinks(world) * sizeof(struct tt_tcp_link *);
	if (ep->epoll < 0 || ep->bell < 0 || !ep->links || !ep->busy || watch(ep, ep->bell)) {
		rc = tt_fail(TT_SYSTEM, "rank %d: tcp's endpoint (memory, or two descriptors to wait by): %m", world->rank);
		tcp_close(&ep->base);
		return rc;
	}
	*ret_ep = &ep->base;
	return 0;
}

static bool tcp_reaches(struct tt_endpoint *ep, int peer)
{
	return peer != ep->world->rank;
}

/* ---- links ------------------------------------------------------------------------------------------------------ */

static void adopt(struct tcp_ep *ep, struct tt_tcp_link *l, int fd)
{
	int on = 1;

	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	l->fd = fd;
	if (ep->watching)
		ep->unwatched += watch(ep, fd) != 0;
}

static int make(struct tcp_ep *ep, int peer, int channel, struct tt_tcp_link **ret_link)
{
	size_t stage_bytes = (ep->base.world->message_bytes + TT_LINE - 1) / TT_LINE * TT_LINE;
	struct tt_tcp_link *l = calloc(1, sizeof(*l));

	if (l)
		l->stage = aligned_alloc(TT_LINE, stage_bytes ? stage_bytes : TT_LINE);
	if (!l || !l->stage) {
		free(l);
		return tt_fail(TT_SYSTEM, "rank %d: no memory for %zu bytes of messages from rank %d",
			       ep->base.world->rank, stage_bytes, peer);
	}
	l->base = (struct tt_link){ .t = &tt_tcp, .ep = &ep->base, .peer = peer, .channel = channel };
	l->fd = -1;
	ep->memory += sizeof(*l) + stage_bytes;
	*ret_link = l;
	return 0;
}

static int tcp_connect(struct tt_endpoint *base, int peer, int channel, struct tt_link **ret_link)
{
	struct tcp_ep *ep = (struct tcp_ep *)base;
	const struct tt_world *w = base->world;
	struct tt_tcp_link **l = &ep->links[peer * w->nchannels + channel];
	int fd = -1, rc = 0;

	if (!*l) {
		if (w->rank < peer)
			rc = w->dial(w->ctx, peer, channel, &fd);
		if (!rc)
			rc = make(ep, peer, channel, l);
		if (rc && fd >= 0)
			close(fd);
		if (rc)
			return rc;
		if (fd >= 0)
			adopt(ep, *l, fd);
		else
			ep->unwatched++;
	}
	*ret_link = &(*l)->base;
	return 0;
}

static int tcp_ready(struct tt_link *base)
{
	struct tt_tcp_link *l = (struct tt_tcp_link *)base;
	struct tcp_ep *ep = (struct tcp_ep *)base->ep;
	int fd, rc;

	if (tt_likely(l->fd >= 0))
		return 1;
	rc = base->ep->world->take(base->ep->world->ctx, base->peer, base->channel, &fd);
	if (rc <= 0)
		return rc;
	ep->unwatched--;
	adopt(ep, l, fd);
	return 1;
}

/* ---- messages --------------------------------------------------------------------------------------------------- */

static int tcp_post(struct tt_link *base, const void *buf, size_t bytes, uint32_t stamp)
{
	struct tt_tcp_link *l = (struct tt_tcp_link *)base;
	struct tcp_ep *ep = (struct tcp_ep *)base->ep;
	int rc;

	if (base->posted - base->completed == TT_TCP_QUEUE)
		return 0;
	tt_tcp_enqueue(l, buf, bytes, stamp);
	if (l->busy)
		return 1;
	rc = tt_tcp_flush(l);
	if (rc < 0)
		return rc;
	if (base->completed < base->posted) {
		l->busy = true;
		ep->busy[ep->nbusy++] = l;
	}
	return 1;
}

static int tcp_progress(struct tt_endpoint *base)
{
	struct tcp_ep *ep = (struct tcp_ep *)base;
	int moved = 0;

	for (int i = ep->nbusy - 1; i >= 0; i--) {
		struct tt_tcp_link *l = ep->busy[i];
		int rc = tt_tcp_flush(l);

		if (rc < 0)
			return rc;
		moved |= rc;
		if (l->base.completed == l->base.posted) {
			l->busy = false;
			ep->busy[i] = ep->busy[--ep->nbusy];
		}
	}
	return moved;
}

static int tcp_peek(struct tt_link *base, size_t bytes, uint32_t stamp, const void **ret_data)
{
	struct tt_tcp_link *l = (struct tt_tcp_link *)base;
	int rc = tt_tcp_receive(l, l->stage, bytes, stamp);

	if (rc > 0)
		*ret_data = l->stage;
	return rc;
}

static void tcp_release(struct tt_link *base)
{
	((struct tt_tcp_link *)base)->got = 0;
	base->received++;
}

static int tcp_recv(struct tt_link *base, void *dst, size_t bytes, uint32_t stamp)
{
	int rc = tt_tcp_receive((struct tt_tcp_link *)base, dst, bytes, stamp);

	if (rc > 0)
		tcp_release(base);
	return rc;
}

/* ---- sleep ------------------------------------------------------------------------------------------------------ */

static uint32_t tcp_arm(struct tt_endpoint *base)
{
	struct tcp_ep *ep = (struct tcp_ep *)base;

	for (size_t i = 0; !ep->watching && i < nlinks(base->world); i++)
		if (ep->links[i] && ep->links[i]->fd >= 0)
			ep->unwatched += watch(ep, ep->links[i]->fd) != 0;
	ep->watching = true;
	return 0;
}

static void tcp_doze(struct tt_endpoint *base, uint32_t ticket, uint32_t timeout_us)
{
	struct tcp_ep *ep = (struct tcp_ep *)base;
	struct epoll_event events[16];
	uint32_t us = ep->unwatched && timeout_us > BLIND_US ? BLIND_US : timeout_us;
	long rc = -1;

	(void)ticket;
#ifdef SYS_epoll_pwait2
	struct timespec limit = { us / 1000000, (long)(us % 1000000) * 1000 };

	rc = syscall(SYS_epoll_pwait2, ep->epoll, events, 16, &limit, NULL, 0);
	if (rc >= 0 || errno != ENOSYS)
		return;
#endif
	if (rc < 0)
		epoll_wait(ep->epoll, events, 16, (int)((us + 999) / 1000));
}

static void tcp_disarm(struct tt_endpoint *ep)
{
	(void)ep;
}

static void tcp_wake(struct tt_endpoint *base)
{
	eventfd_write(((struct tcp_ep *)base)->bell, 1);
}

static size_t tcp_memory(struct tt_endpoint *base)
{
	return atomic_load(&((struct tcp_ep *)base)->memory);
}

const struct tt_transport tt_tcp = {
	.name = "tcp",
	.help = "TCP between any ranks; the calling thread drives the sockets",
	.flags = TT_T_POST,
	.probe = tcp_probe,
	.open = tcp_open,
	.reaches = tcp_reaches,
	.connect = tcp_connect,
	.ready = tcp_ready,
	.post = tcp_post,
	.peek = tcp_peek,
	.release = tcp_release,
	.recv = tcp_recv,
	.progress = tcp_progress,
	.arm = tcp_arm,
	.doze = tcp_doze,
	.disarm = tcp_disarm,
	.wake = tcp_wake,
	.memory = tcp_memory,
	.close = tcp_close,
};
