/*
 * control_connection.c - one connection of an endpoint: frames in, frames out
 *
 * Called by the service thread (events) and by every file of control that sends. A send never
 * blocks: bytes that the kernel does not take are queued. The queue of a stopped peer takes no
 * statuses beyond STATUS_ROOM, because statuses are repeated. Frames of messages wait at their
 * senders while the queue has MESSAGE_ROOM bytes: other frames overtake all that wait there. After
 * BURST bytes at once the service thread sends the rest, so that nobody waits long for the lock.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "control/control_internal.h"

#define MESSAGE_ROOM TT_FRAME_MESSAGE /* bytes queued beyond which messages wait */
/* ... and statuses are dropped */
#define STATUS_ROOM (MESSAGE_ROOM + TT_FRAME_MESSAGE + (64u << 10))
#define READ_TURN (128u << 10) /* bytes of one connection before the others have their turn */
#define READ_AT_ONCE (8u << 10)
#define KEEP_ROOM 4096u /* bytes of a buffer for input that is empty, and stays allocated */
/* bytes of the queue from the beginning, so that an abort fits without memory */
#define OUT_ROOM (TT_FRAME_HEAD + TT_ABORT_BYTES)
#define DIRECT 4096u       /* bytes of a frame that are copied on its way, at least */
#define BURST (512u << 10) /* bytes of messages that senders write under one hold of the lock */

void tt_conn_free(struct tt_conn *conn)
{
	free(conn->in);
	free(conn->out.data);
	free(conn);
}

struct tt_conn *tt_conn_add(struct tt_control_endpoint *ep, struct tt_duplex duplex, int peer,
			    bool registration)
{
	struct tt_conn *conn = calloc(1, sizeof(*conn));

	if (conn)
		*conn = (struct tt_conn){ .watched = { TT_SRC_CONN, ep },
					  .duplex = duplex,
					  .peer = peer,
					  .registration = registration,
					  .out = { .data = malloc(OUT_ROOM), .room = OUT_ROOM } };
	if (!conn || !conn->out.data || !tt_duplex_begin(&duplex, ep, conn)) {
		tt_duplex_close(&duplex);
		if (conn)
			tt_conn_free(conn);
		return NULL;
	}
	tt_conns_put(ep, conn);
	pthread_cond_broadcast(&ep->changed);
	return conn;
}

/* Break the controls that have the peer: its frame is malformed, or there is no memory for it. */
static void break_all(struct tt_control_endpoint *ep, const struct tt_conn *conn, bool malformed)
{
	char text[160];

	for (struct tt_control *ctl = ep->controls; ctl; ctl = ctl->next) {
		int rank = tt_control_rank(ctl, conn->peer);

		if (rank < 0)
			continue;
		if (malformed)
			snprintf(text, sizeof(text),
				 "rank %d sent rank %d a malformed control frame", rank, ctl->rank);
		else
			snprintf(text, sizeof(text),
				 "rank %d: no memory for a control frame of rank %d", ctl->rank,
				 rank);
		tt_control_break(ctl, malformed ? TT_INTERNAL : TT_SYSTEM,
				 malformed ? rank : ctl->rank, 0, text, -1);
	}
}

/* ---- out ------------------------------------------------------------------------------------- */

static void watch(struct tt_conn *conn, bool writing)
{
	if (conn->writing == writing)
		return;
	conn->writing = writing;
	tt_duplex_watch(&conn->duplex, conn, writing);
}

/* Give back the memory of an empty queue. */
static void shrink(struct tt_writer *out)
{
	uint8_t *smaller = realloc(out->data, OUT_ROOM);

	if (!smaller)
		return;
	out->data = smaller;
	out->room = OUT_ROOM;
}

/* Write what the kernel takes; returns the bytes. The service thread finds the end of a connection
 * that failed here when it reads from it. */
static size_t write_some(struct tt_conn *conn, const uint8_t *data, size_t bytes)
{
	size_t sent = 0;

	while (sent < bytes) {
		ssize_t n = tt_duplex_send(&conn->duplex, data + sent, bytes - sent);

		if (n < 0 && errno != EAGAIN) {
			sent = bytes; /* undeliverable */
			conn->error = errno;
			if (!tt_sock_is_remote_error(errno))
				tt_duplex_shutdown(&conn->duplex, SHUT_RDWR);
		}
		if (n < 0)
			break;
		sent += (size_t)n;
	}
	return sent;
}

/* The bytes of the queue, which begin behind those that are sent */
static size_t queued(const struct tt_conn *conn)
{
	return conn->out.have - conn->out_sent;
}

/* Remove the bytes that are sent once they are as many as the others, so that a byte moves once. */
static void compact(struct tt_conn *conn)
{
	struct tt_writer *out = &conn->out;

	if (conn->out_sent < queued(conn))
		return;
	memmove(out->data, out->data + conn->out_sent, queued(conn));
	out->have = queued(conn);
	conn->out_sent = 0;
	if (!out->have && out->room > OUT_ROOM)
		shrink(out);
}

static void push(struct tt_conn *conn)
{
	conn->out_sent += write_some(conn, conn->out.data + conn->out_sent, queued(conn));
	compact(conn);
	if (conn->closing && !conn->out.have)
		tt_duplex_shutdown(&conn->duplex, SHUT_WR);
	watch(conn, conn->out.have > 0 || conn->burst >= BURST);
}

/* Write a frame without the queue; queue what the kernel does not take. A frame of which a part is
 * missing ends the connection. */
static void send_direct(struct tt_conn *conn, const struct iovec part[2])
{
	for (int i = 0; i < 2; i++) {
		const uint8_t *data = part[i].iov_base;
		size_t bytes = part[i].iov_len,
		       sent = conn->out.have ? 0 : write_some(conn, data, bytes);

		if (sent < bytes)
			tt_put_bytes(&conn->out, data + sent, bytes - sent);
	}
	if (conn->out.failed) {
		conn->no_memory = true;
		conn->out.failed = false;
		tt_duplex_shutdown(&conn->duplex, SHUT_RDWR);
	}
	watch(conn, conn->out.have > 0 || conn->burst >= BURST);
}

/* A large second part is written from the caller's memory. */
bool tt_conn_send_parts(struct tt_control_endpoint *ep, struct tt_conn *conn, uint64_t context,
			enum tt_frame kind, const struct iovec part[2])
{
	struct tt_frame_head head = { kind, context, part[0].iov_len + part[1].iov_len };
	uint8_t start[DIRECT];
	struct tt_writer first = TT_WRITER_INTO(start);
	size_t before = conn->out.have, bytes = TT_FRAME_HEAD + head.bytes;
	bool direct = !before && TT_FRAME_HEAD + part[0].iov_len <= DIRECT,
	     whole = !direct || bytes <= DIRECT;
	struct tt_writer *w = direct ? &first : &conn->out;

	if (conn->dead || conn->over || (kind == TT_F_STATUS && queued(conn) > STATUS_ROOM))
		return true;
	tt_put_frame_head(w, &head);
	for (int i = 0; i < (whole ? 2 : 1); i++)
		tt_put_bytes(w, part[i].iov_base, part[i].iov_len);
	if (w->failed) { /* out of memory: send no partial frame */
		w->have = before;
		w->failed = false;
		return false;
	}
	if (!tt_frame_is_repeated(kind)) {
		ep->sent.frames++;
		ep->sent.bytes += bytes;
	}
	if (kind == TT_F_MESSAGE)
		conn->burst += bytes;
	if (direct)
		send_direct(conn, (struct iovec[2]){ { start, first.have },
						     whole ? (struct iovec){ NULL, 0 } : part[1] });
	else if (!before)
		push(conn);
	return true;
}

void tt_conn_send(struct tt_control_endpoint *ep, struct tt_conn *conn, uint64_t context,
		  enum tt_frame kind, const void *data, size_t bytes)
{
	const struct iovec part[2] = { { (void *)(uintptr_t)data, bytes }, { NULL, 0 } };

	if (!tt_conn_send_parts(ep, conn, context, kind, part) && !tt_frame_is_repeated(kind))
		break_all(ep, conn, false);
}

bool tt_conn_has_room(const struct tt_conn *conn)
{
	return !conn->dead && !conn->over && queued(conn) < MESSAGE_ROOM && conn->burst < BURST;
}

/* The queue has room: controls with messages for the peer send on, in turn. */
static void refill(struct tt_control_endpoint *ep, struct tt_conn *conn)
{
	unsigned n = 0;

	for (struct tt_control *ctl = ep->controls; ctl; ctl = ctl->next)
		n++;
	for (unsigned i = 0; i < n && !conn->registration && tt_conn_has_room(conn); i++) {
		struct tt_control *ctl = ep->controls;

		for (unsigned turn = conn->turn++ % n; turn; turn--)
			ctl = ctl->next;
		if (tt_control_rank(ctl, conn->peer) >= 0)
			tt_observers_room(ctl, tt_control_rank(ctl, conn->peer));
	}
}

size_t tt_conn_unsent(const struct tt_conn *conn)
{
	return conn->dead ? 0 : queued(conn) + tt_duplex_unsent(&conn->duplex);
}

/* ---- in -------------------------------------------------------------------------------------- */

static void end(struct tt_control_endpoint *ep, struct tt_conn *conn)
{
	if (conn->dead)
		return;
	tt_conn_close(ep, conn);
	/* a peer that ends it orderly has said goodbye before, or has given up connecting */
	if (conn->registration || conn->over)
		return;
	for (struct tt_control *ctl = ep->controls; ctl; ctl = ctl->next)
		if (tt_control_rank(ctl, conn->peer) >= 0)
			tt_observers_over(ctl, tt_control_rank(ctl, conn->peer), tuttiRankDead);
}

void tt_conn_end(struct tt_conn *conn)
{
	conn->over = conn->closing = true;
	if (!conn->dead)
		push(conn);
}

/* This host cannot send to the peer, or receive from it; or somebody on the way has changed bytes. */
static void break_failed(struct tt_control_endpoint *ep, const struct tt_conn *conn)
{
	bool altered = conn->error == EBADMSG;
	char text[160];

	for (struct tt_control *ctl = ep->controls; ctl; ctl = ctl->next) {
		int rank = tt_control_rank(ctl, conn->peer);

		if (rank < 0)
			continue;
		snprintf(text, sizeof(text), "rank %d: its connection to rank %d %s%s", ctl->rank,
			 rank, altered ? "was altered on the way" : "failed: ",
			 altered ? "" : strerror(conn->error));
		tt_control_break(ctl, altered ? TT_REMOTE : TT_SYSTEM, altered ? -1 : ctl->rank, 0,
				 text, -1);
	}
}

/* A rank of a join counts as a peer, too, from its welcome on. */
static void lost(struct tt_control_endpoint *ep, struct tt_conn *conn)
{
	bool known = !conn->registration || conn->registered ||
		     (!conn->over && tt_bootstrap_lost(tt_endpoint_find(ep, 0), conn->peer));

	end(ep, conn);
	if (known && !conn->over && !tt_sock_is_remote_error(conn->error)) {
		break_failed(ep, conn);
		return;
	}
	for (struct tt_control *ctl = ep->controls; ctl && known && !conn->over; ctl = ctl->next)
		if (tt_control_rank(ctl, conn->peer) >= 0)
			tt_flood_death(ctl, tt_control_rank(ctl, conn->peer), conn->error);
}

void tt_conn_no_memory(struct tt_control_endpoint *ep, struct tt_conn *conn)
{
	break_all(ep, conn, false);
	end(ep, conn);
}

void tt_conn_malformed(struct tt_control_endpoint *ep, struct tt_conn *conn)
{
	end(ep, conn);
	if (conn->registration)
		tt_log(TT_LOG_WARN, "rank %d: a malformed registration as rank %d was dropped",
		       ep->peer, conn->peer);
	else
		break_all(ep, conn, true);
}

/* The next frame of data, or the next piece of a frame of messages, from *at on. 1 | 0: more bytes
 * are needed | < 0: malformed */
static int next_frame(struct tt_conn *conn, const uint8_t *data, size_t have, size_t *at,
		      struct tt_frame_head *ret_head)
{
	int rc;

	while (!conn->message_left) {
		if ((rc = tt_frame_next(data + *at, have - *at, ret_head)) <= 0)
			return rc;
		*at += TT_FRAME_HEAD;
		if (ret_head->kind != TT_F_MESSAGE)
			return 1;
		conn->message = *ret_head;
		conn->message_left = ret_head->bytes;
	}
	*ret_head = conn->message;
	ret_head->bytes = conn->message_left < have - *at ? conn->message_left : have - *at;
	conn->message_left -= ret_head->bytes;
	return ret_head->bytes > 0;
}

/* Handle the frames at the start of data; returns the bytes handled. */
static size_t frames(struct tt_control_endpoint *ep, struct tt_conn *conn, const uint8_t *data,
		     size_t have)
{
	struct tt_frame_head head;
	size_t at = 0;
	int rc;

	while (!conn->dead && (rc = next_frame(conn, data, have, &at, &head)) != 0) {
		if (rc < 0 || !tt_endpoint_frame(ep, conn, &head, data + at))
			tt_conn_malformed(ep, conn);
		else
			at += head.bytes;
	}
	return at;
}

/* Room for `bytes` more. The buffer grows with the bytes received, not with an announced length. */
static bool make_room(struct tt_conn *conn, size_t bytes)
{
	size_t room = conn->in_room + conn->in_room / 2 + 4096;
	uint8_t *larger;

	if (conn->in_room >= conn->in_have + bytes)
		return true;
	if (room < conn->in_have + bytes)
		room = conn->in_have + bytes;
	larger = realloc(conn->in, room);
	if (!larger)
		return false;
	conn->in = larger;
	conn->in_room = room;
	return true;
}

/* Handle bytes that have come, after those of an incomplete frame; keep the last incomplete frame.
 * false: no memory */
static bool handle(struct tt_control_endpoint *ep, struct tt_conn *conn, const uint8_t *data,
		   size_t bytes)
{
	size_t done;

	if (!conn->in_have) {
		done = frames(ep, conn, data, bytes);
		data += done;
		bytes -= done;
	}
	if (conn->dead || !bytes)
		return true;
	if (!make_room(conn, bytes))
		return false;
	memcpy(conn->in + conn->in_have, data, bytes);
	conn->in_have += bytes;
	done = frames(ep, conn, conn->in, conn->in_have);
	conn->in_have -= done;
	memmove(conn->in, conn->in + done, conn->in_have);
	if (!conn->in_have && conn->in_room > KEEP_ROOM) {
		free(conn->in);
		conn->in = NULL;
		conn->in_room = 0;
	}
	return true;
}

/* Read the next bytes of a frame of messages to their destination, other bytes to the buffer; returns as
 * recv. */
static ssize_t read_some(struct tt_control_endpoint *ep, struct tt_conn *conn,
			 uint8_t buffer[READ_AT_ONCE], uint8_t **ret_data)
{
	struct tt_control *ctl = conn->message_left > DIRECT && !conn->in_have
					 ? tt_endpoint_find(ep, conn->message.context)
					 : NULL;
	int rank = ctl && !conn->registration ? tt_control_rank(ctl, conn->peer) : -1;
	size_t room = 0;

	*ret_data = rank >= 0 ? tt_observers_destination(ctl, rank, &room) : NULL;
	if (room > conn->message_left)
		room = conn->message_left;
	if (room <= DIRECT) {
		*ret_data = buffer;
		room = READ_AT_ONCE;
	}
	return tt_duplex_recv(&conn->duplex, *ret_data, room);
}

static void readable(struct tt_control_endpoint *ep, struct tt_conn *conn)
{
	uint8_t buffer[READ_AT_ONCE];

	tt_duplex_read_ahead(&conn->duplex, true);
	for (size_t done = 0;
	     !conn->dead && (done < READ_TURN || tt_duplex_pending(&conn->duplex));) {
		uint8_t *data;
		ssize_t n;

		if (done >= READ_TURN) /* only what has been read ahead */
			tt_duplex_read_ahead(&conn->duplex, false);
		n = read_some(ep, conn, buffer, &data);
		if (n < 0 && errno == EAGAIN)
			return;
		if (n <= 0) {
			conn->error = n < 0 ? errno : conn->error;
			conn->no_memory ? tt_conn_no_memory(ep, conn) : lost(ep, conn);
			return;
		}
		done += (size_t)n;
		if (!handle(ep, conn, data, (size_t)n))
			tt_conn_no_memory(ep, conn);
		if (!conn->dead && tt_duplex_drained(&conn->duplex))
			return;
	}
}

void tt_conn_event(struct tt_control_endpoint *ep, struct tt_conn *conn, uint32_t events)
{
	if (!conn->dead && (events & EPOLLOUT)) {
		conn->burst = 0;
		push(conn);
		refill(ep, conn);
	}
	if (!conn->dead && (events & (EPOLLIN | EPOLLHUP | EPOLLERR)))
		readable(ep, conn);
}
