/*
 * control_connection.c - one control connection: frames in, frames out
 *
 * Called by the service thread (events) and by every file of control that sends. A send never
 * blocks: bytes that the kernel does not take are queued. The queue of a stopped peer takes no
 * statuses beyond STATUS_ROOM, because statuses are repeated.
 */
#include <errno.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "control/control_internal.h"

#define STATUS_ROOM (64u << 10) /* bytes queued beyond which statuses are dropped */
#define READ_AT_ONCE (64u << 10)

struct tt_conn *tt_conn_add(struct tt_control *ctl, int fd, int peer, unsigned roles)
{
	struct tt_conn *conn = calloc(1, sizeof(*conn));
	struct epoll_event ev = { .events = EPOLLIN, .data.ptr = conn };

	if (conn)
		*conn = (struct tt_conn){ .source = TT_SRC_CONN,
					  .next = ctl->conns,
					  .fd = fd,
					  .peer = peer,
					  .roles = roles };
	tt_sock_set_blocking(fd, false);
	/* Traffic is sparse, with bursts: BBR, the default of some systems, paces such a burst for
	 * seconds. */
	setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "reno", 4);
	if (!conn || epoll_ctl(ctl->service.epoll, EPOLL_CTL_ADD, fd, &ev)) {
		tt_sock_close(fd);
		free(conn);
		return NULL;
	}
	ctl->conns = conn;
	pthread_cond_broadcast(&ctl->changed);
	return conn;
}

struct tt_conn *tt_conn_to(struct tt_control *ctl, int peer, unsigned roles)
{
	for (struct tt_conn *c = ctl->conns; c; c = c->next)
		if (!c->dead && c->peer == peer && (c->roles & roles))
			return c;
	return NULL;
}

/* ---- out ------------------------------------------------------------------------------------- */

static void watch(struct tt_control *ctl, struct tt_conn *conn, bool writing)
{
	struct epoll_event ev = { .events = EPOLLIN | (writing ? EPOLLOUT : 0), .data.ptr = conn };

	if (conn->writing == writing)
		return;
	conn->writing = writing;
	epoll_ctl(ctl->service.epoll, EPOLL_CTL_MOD, conn->fd, &ev);
}

/* The service thread finds a connection that failed here when it reads from the connection. */
static void push(struct tt_control *ctl, struct tt_conn *conn)
{
	size_t sent = 0;

	while (sent < conn->out.have) {
		ssize_t n = send(conn->fd, conn->out.data + sent, conn->out.have - sent,
				 MSG_NOSIGNAL | MSG_DONTWAIT);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno != EAGAIN) {
			sent = conn->out.have; /* undeliverable */
			conn->error = errno;
		}
		if (n < 0)
			break;
		sent += (size_t)n;
	}
	conn->out.have -= sent;
	if (conn->out.have)
		memmove(conn->out.data, conn->out.data + sent, conn->out.have);
	if (conn->closing && !conn->out.have)
		shutdown(conn->fd, SHUT_WR);
	watch(ctl, conn, conn->out.have > 0);
}

void tt_conn_send(struct tt_control *ctl, struct tt_conn *conn, enum tt_frame kind,
		  const void *data, size_t bytes)
{
	size_t before = conn->out.have;

	if (conn->dead || conn->over || (kind == TT_F_STATUS && before > STATUS_ROOM))
		return;
	tt_put(&conn->out, bytes, 4);
	tt_put(&conn->out, kind, 1);
	tt_put_bytes(&conn->out, data, bytes);
	if (conn->out.failed) { /* out of memory: send no partial frame */
		conn->out.have = before;
		conn->out.failed = false;
		return;
	}
	if (kind != TT_F_MISSING && kind != TT_F_STATUS) {
		ctl->sent.frames++;
		ctl->sent.bytes += bytes + TT_FRAME_HEAD;
	}
	if (!before)
		push(ctl, conn);
}

void tt_conn_send_all(struct tt_control *ctl, unsigned roles, const struct tt_conn *except,
		      enum tt_frame kind, const void *data, size_t bytes)
{
	for (struct tt_conn *c = ctl->conns; c; c = c->next)
		if (c != except && (c->roles & roles))
			tt_conn_send(ctl, c, kind, data, bytes);
}

bool tt_conn_all_sent(struct tt_control *ctl)
{
	int pending;

	for (struct tt_conn *c = ctl->conns; c; c = c->next)
		if (!c->dead && (c->out.have || (!ioctl(c->fd, SIOCOUTQ, &pending) && pending)))
			return false;
	return true;
}

/* ---- in -------------------------------------------------------------------------------------- */

static void end(struct tt_control *ctl, struct tt_conn *conn)
{
	if (conn->dead)
		return;
	conn->dead = true;
	epoll_ctl(ctl->service.epoll, EPOLL_CTL_DEL, conn->fd, NULL);
	tt_sock_close(conn->fd);
}

void tt_conn_end(struct tt_control *ctl, struct tt_conn *conn)
{
	conn->over = conn->closing = true;
	if (!conn->dead)
		push(ctl, conn);
}

static void lost(struct tt_control *ctl, struct tt_conn *conn)
{
	end(ctl, conn);
	tt_flood_death(ctl, conn);
}

static void malformed(struct tt_control *ctl, struct tt_conn *conn)
{
	char text[128];

	end(ctl, conn);
	if (conn->roles & TT_ROLE_REGISTER) {
		tt_log(TT_LOG_WARN, "rank %d: a malformed registration as rank %d was dropped",
		       ctl->rank, conn->peer);
		return;
	}
	snprintf(text, sizeof(text), "rank %d sent rank %d a malformed control frame", conn->peer,
		 ctl->rank);
	tt_control_break(ctl, TT_INTERNAL, conn->peer, 0, text, NULL);
}

/* Handle the whole frames at the start of the buffer; keep the rest. */
static void frames(struct tt_control *ctl, struct tt_conn *conn)
{
	size_t at = 0, bytes = 0;
	enum tt_frame kind = 0;
	int rc;

	while (!conn->dead &&
	       (rc = tt_frame_next(conn->in + at, conn->in_have - at, &kind, &bytes)) != 0) {
		if (rc < 0 ||
		    !tt_control_frame(ctl, conn, kind, conn->in + at + TT_FRAME_HEAD, bytes)) {
			malformed(ctl, conn);
			return;
		}
		at += TT_FRAME_HEAD + bytes;
	}
	if (at)
		memmove(conn->in, conn->in + at, conn->in_have - at);
	conn->in_have -= at;
}

/* The buffer grows with the bytes received, not with an announced length. */
static bool make_room(struct tt_conn *conn)
{
	size_t room = conn->in_room + conn->in_room / 2 + 4096;
	uint8_t *larger;

	if (conn->in_room > conn->in_have)
		return true;
	larger = realloc(conn->in, room);
	if (!larger)
		return false;
	conn->in = larger;
	conn->in_room = room;
	return true;
}

static void readable(struct tt_control *ctl, struct tt_conn *conn)
{
	for (size_t done = 0; done < READ_AT_ONCE && !conn->dead;) {
		ssize_t n;

		if (!make_room(conn))
			return;
		n = recv(conn->fd, conn->in + conn->in_have, conn->in_room - conn->in_have,
			 MSG_DONTWAIT);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN)
			return;
		if (n <= 0) {
			conn->error = n < 0 ? errno : conn->error;
			lost(ctl, conn);
			return;
		}
		conn->in_have += (size_t)n;
		done += (size_t)n;
		frames(ctl, conn);
	}
}

void tt_conn_event(struct tt_control *ctl, struct tt_conn *conn, uint32_t events)
{
	if (!conn->dead && (events & EPOLLOUT))
		push(ctl, conn);
	if (!conn->dead && (events & (EPOLLIN | EPOLLHUP | EPOLLERR)))
		readable(ctl, conn);
}

void tt_conn_reap(struct tt_control *ctl)
{
	struct tt_conn **at = &ctl->conns, *c;

	while ((c = *at)) {
		if (!c->dead) {
			at = &c->next;
			continue;
		}
		*at = c->next;
		free(c->in);
		free(c->out.data);
		free(c->early);
		free(c);
	}
}
