/*
 * am_connection.c - the sockets of active messages: outgoing and incoming messages
 *
 * Called by am_send.c, quorum_coordinator.c and the service thread. A message is a header of 48
 * bytes and a body. The sender writes as many bytes as the kernel takes; the service thread writes
 * the rest, directly from the caller's buffer.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "base/sock.h"
#include "am/am_internal.h"
#include "control/frame.h"

/* limit of bytes read from one socket before the next socket */
#define READ_AT_ONCE (1u << 20)

/* ---- headers --------------------------------------------------------------------------------- */

void tt_am_header_put(const struct tt_am_header *h, uint8_t ret_raw[TT_AM_HEADER_BYTES])
{
	struct tt_writer w = { .data = ret_raw, .room = TT_AM_HEADER_BYTES };

	memset(ret_raw, 0, TT_AM_HEADER_BYTES);
	tt_put(&w, h->kind, 4);
	tt_put(&w, (uint32_t)h->tag, 4);
	tt_put(&w, h->version, 8);
	tt_put(&w, h->bytes, 8);
	for (int i = 0; i < 4; i++)
		tt_put(&w, h->call[i], 4);
}

static bool header_get(const uint8_t raw[TT_AM_HEADER_BYTES], struct tt_am_header *ret_head)
{
	struct tt_reader r = { .at = raw, .left = TT_AM_HEADER_BYTES };

	ret_head->kind = (enum tt_am_kind)tt_get_upto(&r, 4, TT_AM_KINDS - 1);
	ret_head->tag = (int)tt_get_upto(&r, 4, INT32_MAX);
	ret_head->version = tt_get(&r, 8);
	ret_head->bytes = tt_get_upto(&r, 8, SIZE_MAX / 4);
	for (int i = 0; i < 4; i++)
		ret_head->call[i] = (uint32_t)tt_get(&r, 4);
	return !r.failed && ret_head->kind;
}

/* ---- connections ----------------------------------------------------------------------------- */

struct tt_am_conn *tt_am_conn_find(const struct tt_am *am, int peer)
{
	struct tt_am_conn *c = am->conns;

	while (c && (c->dead || c->peer != peer))
		c = c->next;
	return c;
}

void tt_am_conn_watch(struct tt_am *am, struct tt_am_conn *c)
{
	struct epoll_event ev = {
		.events = (c->stalled ? 0u : EPOLLIN) | (c->sendq ? EPOLLOUT : 0u), .data.ptr = c
	};

	if (c->dead || (c->watched && c->events == ev.events))
		return;
	c->events = ev.events;
	epoll_ctl(am->epoll, c->watched ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, c->fd, &ev);
	c->watched = true;
}

int tt_am_conn_add(struct tt_am *am, int peer, int fd)
{
	struct tt_am_conn *c = calloc(1, sizeof(*c));

	if (!c) {
		tt_sock_close(fd);
		return tt_fail(TT_SYSTEM, "rank %d: no memory for a connection with rank %d",
			       am->rank, peer);
	}
	tt_sock_set_blocking(fd, false);
	c->fd = fd;
	c->peer = peer;
	c->sendq_last = &c->sendq;
	c->next = am->conns;
	am->conns = c;
	if (!am->send_conn[peer])
		am->send_conn[peer] = c;
	tt_am_conn_watch(am, c);
	pthread_cond_broadcast(&am->changed);
	return 0;
}

static void complete_send(struct tt_am *am, struct tt_am_outgoing *m, int rc)
{
	if (m->payload)
		tt_am_payload_drop(m->payload);
	if (!m->from_caller) {
		free(m);
		return;
	}
	m->rc = rc;
	m->done = true;
	pthread_cond_broadcast(&am->changed);
}

void tt_am_conn_end(struct tt_am *am, struct tt_am_conn *c, tuttiRankState_t how)
{
	struct tt_am_outgoing *m;

	if (c->dead)
		return;
	c->dead = true;
	tt_sock_close(c->fd); /* epoll drops the socket with this */
	while ((m = c->sendq)) {
		c->sendq = m->next;
		complete_send(am, m, TT_REMOTE);
	}
	c->sendq_last = &c->sendq;
	if (c->in_body)
		tt_unexpected_lost(am, c);
	if (am->send_conn[c->peer] == c)
		am->send_conn[c->peer] = tt_am_conn_find(am, c->peer);
	if (how && !tt_am_conn_find(am, c->peer))
		tt_am_gone(am, c->peer, how);
	pthread_cond_broadcast(&am->changed);
}

void tt_am_conn_reap(struct tt_am *am)
{
	struct tt_am_conn **at = &am->conns, *c;

	while ((c = *at)) {
		if (!c->dead) {
			at = &c->next;
			continue;
		}
		*at = c->next;
		free(c);
	}
}

/* ---- outgoing -------------------------------------------------------------------------------- */

void tt_am_payload_drop(struct tt_am_payload *payload)
{
	if (--payload->refs == 0)
		free(payload);
}

/* Sends queued messages, as many bytes as the kernel takes now. A failed connection is detected by
 * the service thread's read. */
static void send_queued(struct tt_am *am, struct tt_am_conn *c)
{
	struct tt_am_outgoing *m;

	while ((m = c->sendq)) {
		size_t head = m->sent < TT_AM_HEADER_BYTES ? TT_AM_HEADER_BYTES - m->sent : 0,
		       body = m->sent + head - TT_AM_HEADER_BYTES;
		struct iovec iov[2] = {
			{ .iov_base = m->head + TT_AM_HEADER_BYTES - head, .iov_len = head },
			{ .iov_base = (void *)(uintptr_t)(m->data ? m->data + body : NULL),
			  .iov_len = m->bytes - TT_AM_HEADER_BYTES - body },
		};
		struct msghdr msg = { .msg_iov = iov + !head, .msg_iovlen = head ? 2 : 1 };
		ssize_t n = sendmsg(c->fd, &msg, MSG_NOSIGNAL | MSG_DONTWAIT);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			break;
		m->sent += (size_t)n;
		if (m->sent < m->bytes)
			continue;
		c->sendq = m->next;
		if (!c->sendq)
			c->sendq_last = &c->sendq;
		am->sent_bytes += m->bytes - TT_AM_HEADER_BYTES;
		am->messages++;
		complete_send(am, m, 0);
	}
	tt_am_conn_watch(am, c);
}

void tt_am_enqueue(struct tt_am *am, struct tt_am_conn *c, struct tt_am_outgoing *m)
{
	bool idle = !c->sendq;

	*c->sendq_last = m;
	c->sendq_last = &m->next;
	if (idle)
		send_queued(am, c);
}

/* Without memory the message is dropped: the peer waits until its deadline. */
void tt_am_post(struct tt_am *am, int peer, const struct tt_am_header *head,
		struct tt_am_payload *payload)
{
	struct tt_am_conn *c = am->send_conn[peer];
	struct tt_am_outgoing *m = c ? calloc(1, sizeof(*m)) : NULL;

	if (!m)
		return;
	tt_am_header_put(head, m->head);
	m->bytes = TT_AM_HEADER_BYTES + head->bytes;
	if (payload) {
		payload->refs++;
		m->payload = payload;
		m->data = payload->data;
	}
	tt_am_enqueue(am, c, m);
}

/* ---- incoming -------------------------------------------------------------------------------- */

/* The library's own messages get memory without a bound of the queue, so each kind has its size and
 * its sender. */
static bool is_allowed(const struct tt_am *am, const struct tt_am_header *h)
{
	switch (h->kind) {
	case TT_AM_PROPOSAL:
		return h->bytes <= TT_AM_PROPOSAL_BYTES;
	case TT_AM_DECISION:
		return h->bytes <= TT_AM_DECISION_BYTES((size_t)am->nranks);
	case TT_AM_OUTCOME:
		return h->source == 0 && h->bytes <= TUTTI_QUORUM_RANKS / 8;
	case TT_AM_RESULT:
		return h->source == 0;
	case TT_AM_GOODBYE:
		return h->bytes == 0;
	default:
		return true;
	}
}

static bool begin_body(struct tt_am *am, struct tt_am_conn *c)
{
	c->head.source = c->peer;
	if (!header_get(c->raw, &c->head)) {
		tt_log(TT_LOG_WARN, "rank %d: rank %d sent a message with an invalid header",
		       am->rank, c->peer);
		tt_am_conn_end(am, c, tuttiRankDead);
		return false;
	}
	if (!is_allowed(am, &c->head)) {
		tt_log(TT_LOG_WARN, "rank %d: rank %d sent a message of kind %d with %zu bytes",
		       am->rank, c->peer, c->head.kind, c->head.bytes);
		tt_am_conn_end(am, c, tuttiRankDead);
		return false;
	}
	c->in_body = true;
	c->have = 0;
	if (c->head.kind == TT_AM_GOODBYE)
		tt_am_gone(am, c->peer, tuttiRankLeft);
	else if (c->head.kind == TT_AM_CONTRIBUTION)
		c->to = tt_quorum_begin(am, &c->head);
	else
		tt_unexpected_route(am, c);
	return !c->stalled;
}

static void end_body(struct tt_am *am, struct tt_am_conn *c)
{
	if (c->head.kind == TT_AM_CONTRIBUTION && c->to)
		tt_quorum_arrived(am, &c->head);
	else if (c->unexpected || c->posted)
		tt_unexpected_arrived(am, c);
	c->in_body = false;
	c->to = NULL;
	c->unexpected = NULL;
	c->posted = NULL;
	c->have = 0;
}

void tt_am_conn_resume(struct tt_am *am, struct tt_am_conn *c)
{
	c->stalled = false;
	if (c->head.bytes == 0) /* nothing more arrives of this message */
		end_body(am, c);
	tt_am_conn_watch(am, c);
}

/* Reads up to `want` bytes. > 0 bytes | 0 nothing to read, or connection ended */
static size_t receive(struct tt_am *am, struct tt_am_conn *c, void *to, size_t want)
{
	static __thread uint8_t discard[64 << 10];
	ssize_t n;

	if (!to && want > sizeof(discard))
		want = sizeof(discard);
	do
		n = recv(c->fd, to ? to : discard, want, MSG_DONTWAIT);
	while (n < 0 && errno == EINTR);
	if (n > 0)
		return (size_t)n;
	if (n == 0 || errno != EAGAIN)
		tt_am_conn_end(am, c, tuttiRankDead);
	return 0;
}

static void read_messages(struct tt_am *am, struct tt_am_conn *c)
{
	for (size_t done = 0, n; done < READ_AT_ONCE && !c->dead && !c->stalled; done += n) {
		if (!c->in_body) {
			n = receive(am, c, c->raw + c->have, TT_AM_HEADER_BYTES - c->have);
			c->have += n;
			if (!n || (c->have == TT_AM_HEADER_BYTES && !begin_body(am, c)))
				return;
		} else if (c->have < c->head.bytes) {
			n = receive(am, c, c->to ? c->to + c->have : NULL, c->head.bytes - c->have);
			c->have += n;
			if (!n)
				return;
		} else {
			n = 0;
		}
		if (c->in_body && c->have == c->head.bytes)
			end_body(am, c);
	}
}

void tt_am_conn_event(struct tt_am *am, struct tt_am_conn *c, uint32_t events)
{
	if (!c->dead && (events & EPOLLOUT))
		send_queued(am, c);
	if (!c->dead && c->stalled && (events & (EPOLLHUP | EPOLLERR))) {
		/* epoll would report the condition again and again */
		epoll_ctl(am->epoll, EPOLL_CTL_DEL, c->fd, NULL);
		c->watched = false;
		return;
	}
	if (!c->dead && (events & (EPOLLIN | EPOLLHUP | EPOLLERR)))
		read_messages(am, c);
	tt_am_conn_watch(am, c);
}
