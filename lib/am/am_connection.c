/*
 * am_connection.c - the sockets of mail: letters out, letters in
 *
 * Called by am_send.c, quorum_coordinator.c and the service thread. A letter is a head of 48 bytes and its
 * body. What the kernel does not take at once is written by the service thread, from where it lies.
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

#define READ_AT_ONCE (1u << 20)          /* of one socket, before others have their turn */

/* ---- heads ----------------------------------------------------------------------------------- */

void tt_am_header_put(const struct tt_am_header *h, uint8_t ret_raw[TT_HEAD_BYTES])
{
	struct tt_writer w = { .data = ret_raw, .room = TT_HEAD_BYTES };

	memset(ret_raw, 0, TT_HEAD_BYTES);
	tt_put(&w, h->kind, 4);
	tt_put(&w, (uint32_t)h->tag, 4);
	tt_put(&w, h->version, 8);
	tt_put(&w, h->bytes, 8);
	for (int i = 0; i < 4; i++)
		tt_put(&w, h->call[i], 4);
}

static bool get_head(const uint8_t raw[TT_HEAD_BYTES], struct tt_am_header *ret_head)
{
	struct tt_reader r = { .at = raw, .left = TT_HEAD_BYTES };

	ret_head->kind = (enum tt_am_kind)tt_get_upto(&r, 4, TT_AM_KINDS - 1);
	ret_head->tag = (int)tt_get_upto(&r, 4, INT32_MAX);
	ret_head->version = tt_get(&r, 8);
	ret_head->bytes = tt_get_upto(&r, 8, SIZE_MAX / 4);
	for (int i = 0; i < 4; i++)
		ret_head->call[i] = (uint32_t)tt_get(&r, 4);
	return !r.failed && ret_head->kind;
}

/* ---- connections ----------------------------------------------------------------------------- */

struct tt_am_conn *tt_am_live(const struct tt_am *mail, int peer)
{
	struct tt_am_conn *c = mail->conns;

	while (c && (c->dead || c->peer != peer))
		c = c->next;
	return c;
}

void tt_am_conn_watch(struct tt_am *mail, struct tt_am_conn *c)
{
	struct epoll_event ev = { .events = (c->held ? 0u : EPOLLIN) | (c->out ? EPOLLOUT : 0u),
				  .data.ptr = c };

	if (c->dead || (c->watched && c->events == ev.events))
		return;
	c->events = ev.events;
	epoll_ctl(mail->epoll, c->watched ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, c->fd, &ev);
	c->watched = true;
}

int tt_am_conn_add(struct tt_am *mail, int peer, int fd)
{
	struct tt_am_conn *c = calloc(1, sizeof(*c));

	if (!c) {
		tt_sock_close(fd);
		return tt_fail(TT_SYSTEM, "rank %d: no memory for a connection with rank %d",
			       mail->rank, peer);
	}
	tt_sock_set_blocking(fd, false);
	c->fd = fd;
	c->peer = peer;
	c->out_last = &c->out;
	c->next = mail->conns;
	mail->conns = c;
	if (!mail->out[peer])
		mail->out[peer] = c;
	tt_am_conn_watch(mail, c);
	pthread_cond_broadcast(&mail->changed);
	return 0;
}

static void finish(struct tt_am *mail, struct tt_am_outgoing *p, int rc)
{
	if (p->shared)
		tt_am_payload_drop(p->shared);
	if (!p->callers) {
		free(p);
		return;
	}
	p->rc = rc;
	p->done = true;
	pthread_cond_broadcast(&mail->changed);
}

void tt_am_conn_end(struct tt_am *mail, struct tt_am_conn *c, tuttiRankState_t how)
{
	struct tt_am_outgoing *p;

	if (c->dead)
		return;
	c->dead = true;
	tt_sock_close(c->fd);                    /* leaves epoll with it */
	while ((p = c->out)) {
		c->out = p->next;
		finish(mail, p, TT_REMOTE);
	}
	c->out_last = &c->out;
	if (c->in_body)
		tt_unexpected_lost(mail, c);
	if (mail->out[c->peer] == c)
		mail->out[c->peer] = tt_am_live(mail, c->peer);
	if (how && !tt_am_live(mail, c->peer))
		tt_am_gone(mail, c->peer, how);
	pthread_cond_broadcast(&mail->changed);
}

void tt_am_bury(struct tt_am *mail)
{
	struct tt_am_conn **at = &mail->conns, *c;

	while ((c = *at)) {
		if (!c->dead) {
			at = &c->next;
			continue;
		}
		*at = c->next;
		free(c);
	}
}

/* ---- out ------------------------------------------------------------------------------------- */

void tt_am_payload_drop(struct tt_am_payload *shared)
{
	if (--shared->users == 0)
		free(shared);
}

/* What the kernel takes now. A connection that fails is
 * found by the service thread when it reads it. */
static void push(struct tt_am *mail, struct tt_am_conn *c)
{
	struct tt_am_outgoing *p;

	while ((p = c->out)) {
		size_t head = p->sent < TT_HEAD_BYTES ? TT_HEAD_BYTES - p->sent : 0,
		       body = p->sent + head - TT_HEAD_BYTES;
		struct iovec iov[2] = {
			{ .iov_base = p->head + TT_HEAD_BYTES - head, .iov_len = head },
			{ .iov_base = (void *)(uintptr_t)(p->data ? p->data + body : NULL),
			  .iov_len = p->bytes - TT_HEAD_BYTES - body },
		};
		struct msghdr msg = { .msg_iov = iov + !head, .msg_iovlen = head ? 2 : 1 };
		ssize_t n = sendmsg(c->fd, &msg, MSG_NOSIGNAL | MSG_DONTWAIT);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			break;
		p->sent += (size_t)n;
		if (p->sent < p->bytes)
			continue;
		c->out = p->next;
		if (!c->out)
			c->out_last = &c->out;
		mail->sent_bytes += p->bytes - TT_HEAD_BYTES;
		mail->letters++;
		finish(mail, p, 0);
	}
	tt_am_conn_watch(mail, c);
}

void tt_am_append(struct tt_am *mail, struct tt_am_conn *c, struct tt_am_outgoing *p)
{
	bool idle = !c->out;

	*c->out_last = p;
	c->out_last = &p->next;
	if (idle)
		push(mail, c);
}

/* Without memory for it the peer waits until its deadline. */
void tt_am_post(struct tt_am *mail, int peer, const struct tt_am_header *head,
		  struct tt_am_payload *shared)
{
	struct tt_am_conn *c = mail->out[peer];
	struct tt_am_outgoing *p = c ? calloc(1, sizeof(*p)) : NULL;

	if (!p)
		return;
	tt_am_header_put(head, p->head);
	p->bytes = TT_HEAD_BYTES + head->bytes;
	if (shared) {
		shared->users++;
		p->shared = shared;
		p->data = shared->data;
	}
	tt_am_append(mail, c, p);
}

/* ---- in -------------------------------------------------------------------------------------- */

static bool begin_body(struct tt_am *mail, struct tt_am_conn *c)
{
	c->head.source = c->peer;
	if (!get_head(c->raw, &c->head)) {
		tt_log(TT_LOG_WARN, "rank %d: rank %d sent a letter that makes no sense",
		       mail->rank, c->peer);
		tt_am_conn_end(mail, c, tuttiRankDead);
		return false;
	}
	c->in_body = true;
	c->have = 0;
	if (c->head.kind == TT_AM_BYE)
		tt_am_gone(mail, c->peer, tuttiRankLeft);
	else if (c->head.kind == TT_AM_GIVE)
		c->to = tt_quorum_place(mail, &c->head);
	else
		tt_unexpected_place(mail, c);
	return !c->held;
}

static void end_body(struct tt_am *mail, struct tt_am_conn *c)
{
	if (c->head.kind == TT_AM_GIVE && c->to)
		tt_quorum_arrived(mail, &c->head);
	else if (c->letter || c->waiter)
		tt_unexpected_arrived(mail, c);
	c->in_body = false;
	c->to = NULL;
	c->letter = NULL;
	c->waiter = NULL;
	c->have = 0;
}

/* > 0 bytes | 0 nothing there now, or it has ended */
static size_t take(struct tt_am *mail, struct tt_am_conn *c, void *to, size_t want)
{
	static __thread uint8_t nowhere[64 << 10];
	ssize_t n;

	if (!to && want > sizeof(nowhere))
		want = sizeof(nowhere);
	do
		n = recv(c->fd, to ? to : nowhere, want, MSG_DONTWAIT);
	while (n < 0 && errno == EINTR);
	if (n > 0)
		return (size_t)n;
	if (n == 0 || errno != EAGAIN)
		tt_am_conn_end(mail, c, tuttiRankDead);
	return 0;
}

static void read_letters(struct tt_am *mail, struct tt_am_conn *c)
{
	for (size_t done = 0, n; done < READ_AT_ONCE && !c->dead && !c->held; done += n) {
		if (!c->in_body) {
			n = take(mail, c, c->raw + c->have, TT_HEAD_BYTES - c->have);
			c->have += n;
			if (!n || (c->have == TT_HEAD_BYTES && !begin_body(mail, c)))
				return;
		} else if (c->have < c->head.bytes) {
			n = take(mail, c, c->to ? c->to + c->have : NULL, c->head.bytes - c->have);
			c->have += n;
			if (!n)
				return;
		} else {
			n = 0;
		}
		if (c->in_body && c->have == c->head.bytes)
			end_body(mail, c);
	}
}

void tt_am_conn_event(struct tt_am *mail, struct tt_am_conn *c, uint32_t events)
{
	if (!c->dead && (events & EPOLLOUT))
		push(mail, c);
	if (!c->dead && c->held && (events & (EPOLLHUP | EPOLLERR))) {
		/* or it would be reported for ever */
		epoll_ctl(mail->epoll, EPOLL_CTL_DEL, c->fd, NULL);
		c->watched = false;
		return;
	}
	if (!c->dead && (events & (EPOLLIN | EPOLLHUP | EPOLLERR)))
		read_letters(mail, c);
	tt_am_conn_watch(mail, c);
}
