/*
 * tcp.c - messages over TCP: one socket for each (peer, channel), driven by the calling thread
 *
 * Called through tt_tcp by comm and run; tcp_stream.c moves the bytes. Sockets come connected and
 * authenticated from world->take; between hosts their bytes are encrypted (tcp_sealed.c). Only links
 * with an expected message or unfinished posts cost system calls; tcp_acks.c saves acknowledgements.
 * The kernel tunes the socket buffers; a fixed size would switch its tuning off.
 *
 * Sleep: poll only the awaited sockets. A rank that arms polls all links of interest once more. The
 * awaited links are those whose next message was missing in these polls, and those with unfinished
 * posts. Bytes that arrive early for a later step wake no rank, and between sleeps no socket is
 * watched: an epoll set costs 0.1-0.3 us for each arriving message, also when no rank waits.
 */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/crypto.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "transports/tcp/tcp_acks.h"
#include "transports/tcp/tcp_sealed.h"

#define NO_BELL_US 1000 /* longest sleep without a bell */

struct tcp_ep {
	struct tt_endpoint base;
	atomic_int bell; /* eventfd for wake, made before the first sleep; -1: none yet */
	bool armed;
	int nlinks, nbusy, nawaited;
	int room;                   /* links for which the lists below have room */
	struct tt_tcp_link **links; /* [nlinks] those in use, in the order of their first use */
	struct tt_tcp_link **busy;  /* [nbusy] links with unfinished posts */
	/* [nawaited] links whose next message was missing since arm */
	struct tt_tcp_link **awaited;
	struct pollfd *watched; /* [2 * room + 1] arguments of ppoll in doze */
	_Atomic size_t memory;
};

static int tcp_probe(char *why, size_t bytes)
{
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0 && errno == EAFNOSUPPORT)
		fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0) {
		tt_sock_fail("cannot make a socket");
		snprintf(why, bytes, "%s", tt_error_text());
		return 0;
	}
	close(fd);
	return 1;
}

static void tcp_close(struct tt_endpoint *base)
{
	struct tcp_ep *ep = (struct tcp_ep *)base;

	for (int i = 0; i < ep->nlinks; i++) {
		if (ep->links[i]->fd >= 0)
			tt_tcp_close_stream(ep->links[i]->fd);
		tt_tcp_sealed_free(ep->links[i]);
		free(ep->links[i]->buffer);
		free(ep->links[i]);
	}
	if (atomic_load(&ep->bell) >= 0)
		close(atomic_load(&ep->bell));
	free(ep->watched);
	free(ep->awaited);
	free(ep->busy);
	free(ep->links);
	free(ep);
}

static int tcp_open(const struct tt_world *world, struct tt_endpoint **ret_ep)
{
	struct tcp_ep *ep;

	if (world->message_bytes > INT32_MAX)
		return tt_fail(TT_ARG, "tcp cannot carry messages of %zu bytes",
			       world->message_bytes);
	ep = calloc(1, sizeof(*ep));
	if (ep)
		ep->watched = malloc(sizeof(*ep->watched));
	if (!ep || !ep->watched) {
		free(ep);
		return tt_fail(TT_SYSTEM, "rank %d: no memory for the tcp endpoint", world->rank);
	}
	ep->base = (struct tt_endpoint){ .t = &tt_tcp, .world = world };
	atomic_init(&ep->bell, -1);
	ep->memory = sizeof(*ep) + sizeof(*ep->watched);
	*ret_ep = &ep->base;
	return 0;
}

static bool tcp_reaches(struct tt_endpoint *ep, int peer)
{
	return peer != ep->world->rank;
}

static int tcp_alike(const struct tt_endpoint *ep, int peer)
{
	return tt_world_side(ep->world, peer);
}

/* ---- links ----------------------------------------------------------------------------------- */

/* false: no memory, and the list is as before */
static bool grow(struct tt_tcp_link ***list, size_t room)
{
	struct tt_tcp_link **larger = realloc(*list, room * sizeof(struct tt_tcp_link *));

	if (larger)
		*list = larger;
	return larger != NULL;
}

/* Make room for one more link in all lists. A rank has links to few of many ranks. */
static bool make_room(struct tcp_ep *ep)
{
	size_t room = ep->room ? 2 * (size_t)ep->room : 16;
	struct pollfd *watched;

	if (ep->nlinks < ep->room)
		return true;
	if (!grow(&ep->links, room) || !grow(&ep->busy, room) || !grow(&ep->awaited, room))
		return false;
	watched = realloc(ep->watched, (2 * room + 1) * sizeof(*watched));
	if (!watched)
		return false;
	ep->watched = watched;
	ep->memory += (room - (size_t)ep->room) *
		      (3 * sizeof(struct tt_tcp_link *) + 2 * sizeof(*ep->watched));
	ep->room = (int)room;
	return true;
}

static struct tt_tcp_link *find(const struct tcp_ep *ep, int peer, int channel)
{
	for (int i = 0; i < ep->nlinks; i++)
		if (ep->links[i]->base.peer == peer && ep->links[i]->base.channel == channel)
			return ep->links[i];
	return NULL;
}

static int make(struct tcp_ep *ep, int peer, int channel, struct tt_tcp_link **ret_link)
{
	size_t buffer_bytes = (ep->base.world->message_bytes + TT_LINE - 1) / TT_LINE * TT_LINE;
	struct tt_tcp_link *l = make_room(ep) ? calloc(1, sizeof(*l)) : NULL;

	if (l)
		l->buffer = aligned_alloc(TT_LINE, buffer_bytes + TT_TCP_AHEAD);
	if (!l || !l->buffer) {
		free(l);
		return tt_fail(TT_SYSTEM,
			       "rank %d: no memory for %zu bytes of messages from rank %d",
			       ep->base.world->rank, buffer_bytes, peer);
	}
	l->base = (struct tt_link){
		.t = &tt_tcp, .ep = &ep->base, .peer = peer, .channel = channel
	};
	l->fd = -1;
	l->ahead.at = (uint8_t *)l->buffer + buffer_bytes;
	l->around[0] = sizeof(struct tt_tcp_head);
	l->around[1] = l->around[0] + TT_TCP_ODD;
	ep->links[ep->nlinks++] = l;
	ep->memory += sizeof(*l) + buffer_bytes + TT_TCP_AHEAD;
	*ret_link = l;
	return 0;
}

static int tcp_connect(struct tt_endpoint *base, int peer, int channel, struct tt_link **ret_link)
{
	struct tcp_ep *ep = (struct tcp_ep *)base;
	const struct tt_world *w = base->world;
	struct tt_tcp_link *l = find(ep, peer, channel);
	int rc;

	if (!l) {
		rc = make(ep, peer, channel, &l);
		if (!rc && w->rank < peer)
			rc = w->dial(w->ctx, peer, channel);
		if (rc)
			return rc;
	}
	*ret_link = &l->base;
	return 0;
}

/* auto: what ranks say of their hosts may be false, by TUTTI_HOST_ID, or because a virtual machine and its clone
 * seem to be one. Bytes that leave this host are encrypted. Where an address translation inside the host
 * makes the ends decide differently, the first message is an error on its receiver. */
static bool seals(const struct tt_world *w, int peer, int fd)
{
	return tt_world_encrypts(w, peer) ||
	       (w->encrypt == TT_ENCRYPT_AUTO && !tt_sock_is_inside_host(fd));
}

static bool tcp_encrypts(const struct tt_endpoint *base, int peer)
{
	const struct tcp_ep *ep = (const struct tcp_ep *)base;
	bool sealed = tt_world_encrypts(base->world, peer);

	for (int i = 0; i < ep->nlinks && !sealed; i++)
		sealed = ep->links[i]->base.peer == peer && ep->links[i]->sealed;
	return sealed;
}

static int tcp_ready(struct tt_link *base)
{
	struct tt_tcp_link *l = (struct tt_tcp_link *)base;
	struct tcp_ep *ep = (struct tcp_ep *)base->ep;
	const struct tt_world *w = base->ep->world;
	struct tt_data_keys keys;
	int fd, rc, on = 1;

	if (tt_likely(l->fd >= 0))
		return 1;
	rc = w->take(w->ctx, base->peer, base->channel, &fd, &keys);
	if (rc <= 0)
		return rc;
	rc = seals(w, base->peer, fd) ? tt_tcp_sealed_make(l, &keys) : 0;
	OPENSSL_cleanse(&keys, sizeof(keys));
	if (rc) {
		close(fd);
		return rc;
	}
	if (l->sealed)
		ep->memory += sizeof(*l->sealed);
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	l->fd = fd;
	tt_tcp_acks_begin(l);
	return 1;
}

/* ---- messages -------------------------------------------------------------------------------- */

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

/* Continue to receive the next message; while armed, note a link whose message is missing. */
static int receive(struct tt_tcp_link *l, void *into, size_t bytes, uint32_t stamp)
{
	struct tcp_ep *ep = (struct tcp_ep *)l->base.ep;
	int rc = tt_tcp_receive(l, into, bytes, stamp);

	if (rc == 0 && tt_tcp_acks_missed(l, ep->armed)) {
		rc = tt_tcp_receive(l, into, bytes, stamp);
		if (rc == 0 &&
		    ep->armed) /* a part of a message; unread bytes would end the sleep */
			tt_tcp_acks_missed(l, true);
	}
	if (tt_unlikely(ep->armed) && rc == 0 && !l->awaited) {
		l->awaited = true;
		ep->awaited[ep->nawaited++] = l;
	}
	return rc;
}

static int tcp_peek(struct tt_link *base, size_t bytes, uint32_t stamp, const void **ret_data)
{
	struct tt_tcp_link *l = (struct tt_tcp_link *)base;
	int rc = receive(l, l->buffer, bytes, stamp);

	if (rc > 0)
		*ret_data = l->buffer;
	return rc;
}

static void tcp_release(struct tt_link *base)
{
	struct tt_tcp_link *l = (struct tt_tcp_link *)base;

	l->got = 0;
	base->received++;
	tt_tcp_acks_received(l);
}

static int tcp_recv(struct tt_link *base, void *dst, size_t bytes, uint32_t stamp)
{
	int rc = receive((struct tt_tcp_link *)base, dst, bytes, stamp);

	if (rc > 0)
		tcp_release(base);
	return rc;
}

/* Report altered data, or a network error of any socket, also of sockets without a receive since. */
static int tcp_fault(struct tt_endpoint *base, bool broken)
{
	struct tcp_ep *ep = (struct tcp_ep *)base;

	(void)broken;
	for (int i = 0; i < ep->nlinks; i++) {
		struct tt_tcp_link *l = ep->links[i];
		socklen_t bytes = sizeof(int);
		int error = 0;

		if (l->fd < 0)
			continue;
		if (l->sealed && l->sealed->altered)
			return tt_tcp_sealed_altered(l);
		if (!l->net_error && !getsockopt(l->fd, SOL_SOCKET, SO_ERROR, &error, &bytes))
			tt_tcp_note_error(l, error);
		if (l->net_error)
			return tt_fail(
				TT_REMOTE,
				"rank %d: the network has lost the connection to rank %d (channel %d): %s",
				base->world->rank, l->base.peer, l->base.channel,
				strerror(l->net_error));
	}
	return 0;
}

/* ---- sleep ----------------------------------------------------------------------------------- */

/* The bell exists before the caller looks for a reason not to sleep, so that no wake is lost. Without
 * a descriptor for the bell sleeps are short. */
static uint32_t tcp_arm(struct tt_endpoint *base)
{
	struct tcp_ep *ep = (struct tcp_ep *)base;

	if (atomic_load(&ep->bell) < 0)
		atomic_store(&ep->bell, eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
	ep->armed = true;
	return 0;
}

static void tcp_doze(struct tt_endpoint *base, uint32_t ticket, uint32_t timeout_us)
{
	struct tcp_ep *ep = (struct tcp_ep *)base;
	int bell = atomic_load(&ep->bell);
	uint32_t us = bell < 0 && timeout_us > NO_BELL_US ? NO_BELL_US : timeout_us;
	struct timespec limit = { us / 1000000, (long)(us % 1000000) * 1000 };
	eventfd_t rings;
	nfds_t n = 0;

	(void)ticket;
	ep->watched[n++] = (struct pollfd){ .fd = bell, .events = POLLIN };
	for (int i = 0; i < ep->nawaited; i++)
		ep->watched[n++] = (struct pollfd){ .fd = ep->awaited[i]->fd,
						    .events = POLLIN | POLLRDHUP };
	for (int i = 0; i < ep->nbusy; i++)
		ep->watched[n++] = (struct pollfd){ .fd = ep->busy[i]->fd, .events = POLLOUT };
	if (ppoll(ep->watched, n, &limit, NULL) > 0 && ep->watched[0].revents)
		eventfd_read(bell, &rings);
}

static void tcp_disarm(struct tt_endpoint *base)
{
	struct tcp_ep *ep = (struct tcp_ep *)base;

	while (ep->nawaited > 0)
		ep->awaited[--ep->nawaited]->awaited = false;
	ep->armed = false;
}

static void tcp_wake(struct tt_endpoint *base)
{
	int bell = atomic_load(&((struct tcp_ep *)base)->bell);

	if (bell >= 0)
		eventfd_write(bell, 1);
}

static size_t tcp_memory(struct tt_endpoint *base)
{
	return atomic_load(&((struct tcp_ep *)base)->memory);
}

static const struct tt_fault_ops fault_ops = { .local = tcp_fault };

const struct tt_transport tt_tcp = {
	.name = "tcp",
	.help = "TCP between any ranks; the calling thread drives the sockets",
	.flags = TT_T_POST,
	.spins = 500, /* system calls of about 450 ns: some 220 us */
	.fault_ops = &fault_ops,
	.probe = tcp_probe,
	.open = tcp_open,
	.reaches = tcp_reaches,
	.alike = tcp_alike,
	.connect = tcp_connect,
	.encrypts = tcp_encrypts,
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
