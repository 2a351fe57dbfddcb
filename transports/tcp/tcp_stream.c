/*
 * tcp_stream.c - messages on one socket, without a thread and without waiting
 *
 * Called by tcp.c. Both sides know the order and the sizes of messages, so there is no rendezvous:
 * the sender sends, TCP's flow control stalls it, and the receiver reads header and payload in one
 * system call. A large payload goes directly into its destination. A recv for a small message reads
 * ahead: it takes the messages behind it, too, if the sender has run ahead. The next calls find theirs
 * without a system call, and the kernel acknowledges them at once. Among ranks that share cores a root
 * has often run ahead: scatter of 256 B among four on two cores makes 0.02 to 0.7 recvs a call.
 */
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/sock.h"
#include "transports/tcp/tcp_acks.h"
#include "transports/tcp/tcp_sealed.h"

#define MAGIC 0x5474
#define VERSION 2
#define HEAD sizeof(struct tt_tcp_head)
#define PIECES 16 /* most pieces of one sendmsg: eight messages */
_Static_assert(offsetof(struct tt_tcp_link, odd) ==
		       offsetof(struct tt_tcp_link, head) + sizeof(struct tt_tcp_head),
	       "the header of an odd message is received in one piece");
_Static_assert(offsetof(struct tt_tcp_post, odd) == sizeof(struct tt_tcp_head),
	       "the header of an odd message is sent in one piece");
#define DRAIN_STEPS 4096

void tt_tcp_note_error(struct tt_tcp_link *l, int error)
{
	if (tt_sock_is_network_error(error))
		l->net_error = error;
}

int tt_tcp_piece(struct iovec *v, const void *buf, size_t bytes, size_t *skip)
{
	if (*skip >= bytes) {
		*skip -= bytes;
		return 0;
	}
	v->iov_base = (char *)buf + *skip;
	v->iov_len = bytes - *skip;
	*skip = 0;
	return 1;
}

/* ---- sending --------------------------------------------------------------------------------- */

void tt_tcp_enqueue(struct tt_tcp_link *l, const void *buf, size_t bytes, uint32_t stamp)
{
	struct tt_link *base = &l->base;

	l->queue[base->posted % TT_TCP_QUEUE] = (struct tt_tcp_post){
		.head = { MAGIC, VERSION, (uint32_t)bytes, stamp, (uint32_t)base->posted },
		.buf = buf,
	};
	l->acks.one_way = 0;
	base->posted++;
	base->messages++;
	base->sent_bytes += bytes;
}

static size_t gather(const struct tt_tcp_link *l, struct iovec *iov)
{
	size_t n = 0, skip = l->sent;

	for (uint64_t i = l->base.completed; i < l->base.posted && n < PIECES; i++) {
		const struct tt_tcp_post *p = &l->queue[i % TT_TCP_QUEUE];

		n += (size_t)tt_tcp_piece(&iov[n], &p->head, l->around[i % 2], &skip);
		n += (size_t)tt_tcp_piece(&iov[n], p->buf, p->head.bytes, &skip);
	}
	return n;
}

/* Send the oldest post as one copied piece if it is small and the only one; else as many posts as
 * fit into one sendmsg. Returns as sendmsg. */
static ssize_t send_some(struct tt_tcp_link *l)
{
	const struct tt_tcp_post *p = &l->queue[l->base.completed % TT_TCP_QUEUE];
	size_t head = l->around[l->base.completed % 2];
	struct iovec iov[PIECES + 1];
	struct msghdr msg = { .msg_iov = iov };

	if (l->base.posted - l->base.completed == 1 && l->sent == 0 &&
	    p->head.bytes <= TT_TCP_SMALL) {
		char whole[HEAD + TT_TCP_ODD + TT_TCP_SMALL];

		memcpy(whole, p, HEAD + TT_TCP_ODD);
		memcpy(whole + head, p->buf, p->head.bytes);
		return send(l->fd, whole, head + p->head.bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
	}
	msg.msg_iovlen = gather(l, iov);
	return sendmsg(l->fd, &msg, MSG_NOSIGNAL | MSG_DONTWAIT);
}

static void count_sent(struct tt_tcp_link *l, size_t bytes)
{
	l->sent += bytes;
	while (l->base.completed < l->base.posted) {
		size_t whole = l->around[l->base.completed % 2] +
			       l->queue[l->base.completed % TT_TCP_QUEUE].head.bytes;

		if (l->sent < whole)
			break;
		l->sent -= whole;
		l->base.completed++;
	}
}

int tt_tcp_flush(struct tt_tcp_link *l)
{
	int moved = 0;

	while (l->base.completed < l->base.posted) {
		ssize_t n = tt_unlikely(l->sealed != NULL) ? tt_tcp_sealed_send(l) : send_some(l);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && (errno == EAGAIN || errno == ENOBUFS))
			break;
		if (n < 0) {
			tt_tcp_note_error(l, errno);
			return tt_fail(
				TT_REMOTE,
				"rank %d: the connection to rank %d (channel %d) is lost: %m",
				l->base.ep->world->rank, l->base.peer, l->base.channel);
		}
		count_sent(l, (size_t)n);
		moved = 1;
	}
	return moved;
}

/* ---- receiving ------------------------------------------------------------------------------- */

/* TT_REMOTE with the sentence */
static int lost(const struct tt_tcp_link *l, const char *how)
{
	return tt_fail(
		TT_REMOTE,
		"rank %d: rank %d %s (channel %d, %llu messages received, %zu bytes of the next)",
		l->base.ep->world->rank, l->base.peer, how, l->base.channel,
		(unsigned long long)l->base.received, l->got);
}

int tt_tcp_check(const struct tt_tcp_link *l, size_t bytes, uint32_t stamp)
{
	const struct tt_tcp_head *h = &l->head;

	if (tt_likely(h->magic == MAGIC && h->version == VERSION &&
		      h->number == (uint32_t)l->base.received && h->bytes == bytes &&
		      h->stamp == stamp))
		return 0;
	if (h->magic != MAGIC || h->version != VERSION || h->number != (uint32_t)l->base.received)
		return lost(l, "sent bytes that are not a message");
	return tt_fail(
		TT_USAGE,
		"rank %d: rank %d sent %u bytes of call %08x (channel %d, message %u) where %zu bytes of "
		"call %08x are expected: the ranks make different calls",
		l->base.ep->world->rank, l->base.peer, h->bytes, h->stamp, l->base.channel,
		h->number, bytes, stamp);
}

/* Move bytes that were read ahead into header and payload of the message being received. */
static void take_ahead(struct tt_tcp_link *l, char *into, size_t head, size_t bytes)
{
	const uint8_t *from = l->ahead.at + l->ahead.taken;
	size_t have = l->ahead.filled - l->ahead.taken, n;

	if (have > head + bytes - l->got)
		have = head + bytes - l->got;
	l->ahead.taken += have;
	if (l->got < head) {
		n = have < head - l->got ? have : head - l->got;
		memcpy((char *)&l->head + l->got, from, n);
		l->got += n;
		from += n;
		have -= n;
	}
	if (have)
		memcpy(into + (l->got - head), from, have);
	l->got += have;
}

static bool reads_ahead(const struct tt_tcp_link *l, size_t bytes)
{
	return bytes <= TT_TCP_SMALL ||
	       (bytes <= TT_TCP_AHEAD / 4 && l->acks.one_way >= TT_TCP_ONE_WAY);
}

/* Returns as recvmsg. */
static ssize_t receive_rest(struct tt_tcp_link *l, void *into, size_t bytes, int flags)
{
	size_t head = l->around[l->base.received % 2];
	struct iovec iov[2];
	struct msghdr msg = { .msg_iov = iov };
	size_t skip = l->got;

	msg.msg_iovlen += (size_t)tt_tcp_piece(&iov[msg.msg_iovlen], &l->head, head, &skip);
	msg.msg_iovlen += (size_t)tt_tcp_piece(&iov[msg.msg_iovlen], into, bytes, &skip);
	return recvmsg(l->fd, &msg, MSG_DONTWAIT | flags);
}

int tt_tcp_count(struct tt_tcp_link *l, ssize_t n)
{
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return 0;
	if (n < 0) {
		tt_tcp_note_error(l, errno);
		return lost(l, strerror(errno));
	}
	if (n == 0)
		return lost(l, "closed the connection");
	l->base.arrived += (size_t)n;
	return 1;
}

/* Receive bytes of the message from the socket, which holds the next one. Returns as tt_tcp_count. */
static int read_socket(struct tt_tcp_link *l, void *into, size_t head, size_t bytes)
{
	int flags = tt_tcp_acks_flags(l, bytes), rc;
	bool ahead = reads_ahead(l, bytes);
	ssize_t n = ahead ? recv(l->fd, l->ahead.at, TT_TCP_AHEAD, MSG_DONTWAIT | flags)
			  : receive_rest(l, into, bytes, flags);

	rc = tt_tcp_count(l, n);
	if (rc <= 0)
		return rc;
	if (flags & MSG_PEEK)
		l->acks.unread += (size_t)n;
	if (ahead) {
		l->ahead.taken = 0;
		l->ahead.filled = (size_t)n;
		take_ahead(l, into, head, bytes);
	} else {
		l->got += (size_t)n;
	}
	return 1;
}

int tt_tcp_receive(struct tt_tcp_link *l, void *into, size_t bytes, uint32_t stamp)
{
	size_t head = l->around[l->base.received % 2];
	bool headless = l->got < HEAD;
	int rc;

	if (tt_unlikely(l->sealed != NULL))
		return tt_tcp_sealed_receive(l, into, bytes, stamp);
	if (!headless && (rc = tt_tcp_check(l, bytes, stamp)))
		return rc;
	if (l->got < head + bytes && l->ahead.taken < l->ahead.filled)
		take_ahead(l, into, head, bytes);
	if (l->got < head + bytes && (rc = read_socket(l, into, head, bytes)) <= 0)
		return rc;
	if (headless && l->got >= HEAD && (rc = tt_tcp_check(l, bytes, stamp)))
		return rc;
	return l->got == head + bytes;
}

/* Drains the socket first: the close of a socket with unread bytes resets the connection, and the
 * peer would lose bytes in flight. */
void tt_tcp_close_stream(int fd)
{
	char sink[16384];

	shutdown(fd, SHUT_WR);
	for (int i = 0; i < DRAIN_STEPS && recv(fd, sink, sizeof(sink), MSG_DONTWAIT) > 0; i++)
		;
	close(fd);
}
