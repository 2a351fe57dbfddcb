/*
 * sockets.c - bare sockets as a contender of perf/compare: the limit of small messages over TCP between two ranks
 *
 * A message is a header of 16 or 24 bytes and the payload: one send, and a loop of recv that finds both. Nothing
 * checks, orders, plans or logs the calls. Acknowledgements are saved as in transports/tcp/tcp_acks.h. perf/compare
 * --limit starts the ranks; PEER_PORT is a free port.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "perf/peers/peer.h"

#define HEAD 16
#define ODD 8 /* bytes behind the header of each second message, so that lengths differ */
/* largest message that is copied behind its header, in bytes: TT_TCP_SMALL */
#define WHOLE 1024
#define PEEK (16 << 10) /* largest message that MSG_PEEK receives */
#define UNREAD 8        /* messages that are removed from the socket at once */
#define POLLS 32        /* polls in vain after which fewer are removed */
#define TRIES 10000     /* to connect, one each millisecond */

static int rank, fd = -1, peeks;
static float *other; /* [PEER_MAX_BYTES] the other rank's input of a sum */

static int failed(const char *what)
{
	perror(what);
	return 1;
}

static int number(const char *variable)
{
	return getenv(variable) ? atoi(getenv(variable)) : 0;
}

/* Rank 0 listens, rank 1 tries until rank 0 does. Returns the connected socket or -1. */
static int connected(const struct sockaddr_in *at)
{
	int s = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), tries = TRIES;

	if (s < 0)
		return -1;
	setsockopt(s, IPPROTO_TCP, TCP_CONGESTION, "reno", 4);
	if (rank == 0) {
		setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &(int){ 1 }, sizeof(int));
		if (bind(s, (const struct sockaddr *)at, sizeof(*at)) || listen(s, 1))
			return -1;
		return accept(s, NULL, NULL);
	}
	while (connect(s, (const struct sockaddr *)at, sizeof(*at))) {
		if (errno != ECONNREFUSED || --tries == 0)
			return -1;
		usleep(1000);
	}
	return s;
}

static int join(int *ret_rank, int *ret_n)
{
	struct sockaddr_in at = { .sin_family = AF_INET,
				  .sin_port = htons((uint16_t)number("PEER_PORT")),
				  .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	size_t bytes = (size_t)number("PEER_MAX_BYTES") + sizeof(float);

	*ret_rank = rank = number("PEER_RANK");
	*ret_n = number("PEER_RANKS");
	if (*ret_n != 2) {
		fprintf(stderr, "bare sockets are for two ranks\n");
		return 1;
	}
	other = malloc(bytes);
	fd = other ? connected(&at) : -1;
	if (fd < 0)
		return failed("connect");
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){ 1 }, sizeof(int));
	peeks = !setsockopt(fd, SOL_SOCKET, SO_PEEK_OFF, &(int){ 0 }, sizeof(int));
	return 0;
}

static void leave(void)
{
	close(fd);
	free(other);
}

/* ---- messages -------------------------------------------------------------------------------- */

/* A message that is sent or received */
struct socket_message {
	char *payload; /* NULL: none */
	size_t bytes, head, done;
};

static struct socket_message make(const void *payload, size_t bytes, unsigned *number)
{
	size_t head = payload ? HEAD + (*number)++ % 2 * ODD : 0;

	return (struct socket_message){ (char *)(uintptr_t)payload, payload ? bytes : 0, head, 0 };
}

static int is_open(const struct socket_message *m)
{
	return m->done < m->head + m->bytes;
}

/* Header and payload without their first bytes. Returns the number of pieces. */
static size_t pieces(struct iovec iov[2], char *head, const struct socket_message *m)
{
	if (m->done < m->head) {
		iov[0] = (struct iovec){ head + m->done, m->head - m->done };
		iov[1] = (struct iovec){ m->payload, m->bytes };
		return 2;
	}
	iov[0] = (struct iovec){ m->payload + (m->done - m->head), m->head + m->bytes - m->done };
	return 1;
}

static ssize_t send_some(const struct socket_message *m)
{
	char whole[HEAD + ODD + WHOLE];
	struct iovec iov[2];
	struct msghdr msg = { .msg_iov = iov };

	memset(whole, 'T', m->head);
	if (m->bytes <= WHOLE && m->done == 0) {
		memcpy(whole + m->head, m->payload, m->bytes);
		return send(fd, whole, m->head + m->bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
	}
	msg.msg_iovlen = pieces(iov, whole, m);
	return sendmsg(fd, &msg, MSG_NOSIGNAL | MSG_DONTWAIT);
}

static ssize_t receive_some(const struct socket_message *m, int flags)
{
	static char whole[HEAD + ODD + WHOLE];
	size_t left = m->head + m->bytes - m->done;
	struct iovec iov[2];
	struct msghdr msg = { .msg_iov = iov };
	ssize_t n;

	if (m->bytes <= WHOLE) {
		n = recv(fd, whole + m->done, left, MSG_DONTWAIT | flags);
		if (n == (ssize_t)left)
			memcpy(m->payload, whole + m->head, m->bytes);
		return n;
	}
	msg.msg_iovlen = pieces(iov, whole, m);
	return recvmsg(fd, &msg, MSG_DONTWAIT | flags);
}

/* ---- acknowledgements ------------------------------------------------------------------------ */

static unsigned one_way, unread_messages, missed;
static size_t unread;

static void remove_unread(void)
{
	char sink[4096];
	ssize_t n;

	while (unread > 0 &&
	       (n = recv(fd, sink, unread < sizeof(sink) ? unread : sizeof(sink), MSG_TRUNC)) > 0)
		unread -= (size_t)n;
	unread_messages = missed = 0;
}

/* MSG_PEEK for a small message of a peer that only sends */
static int peek_flag(const struct socket_message *in)
{
	if (peeks && in->bytes <= PEEK && (unread || one_way > 1))
		return MSG_PEEK;
	remove_unread();
	return 0;
}

static void count_missed(void)
{
	if (unread && (one_way == 0 || unread_messages >= UNREAD || ++missed == POLLS))
		remove_unread();
}

static void count_received(void)
{
	missed = 0;
	unread_messages += unread > 0;
	if (unread >= 2 * PEEK)
		remove_unread();
	if (one_way % 64 == 2)
		setsockopt(fd, IPPROTO_TCP, TCP_QUICKACK, &(int){ 0 }, sizeof(int));
}

/* ---- exchange -------------------------------------------------------------------------------- */

static int receive_more(struct socket_message *in)
{
	int flag = peek_flag(in);
	ssize_t n = receive_some(in, flag);

	if (n == 0 || (n < 0 && errno != EAGAIN))
		return failed("recv");
	if (n < 0) {
		count_missed();
		return 0;
	}
	in->done += (size_t)n;
	unread += flag ? (size_t)n : 0;
	if (!is_open(in))
		count_received();
	return 0;
}

static int send_more(struct socket_message *out)
{
	ssize_t n = send_some(out);

	if (n < 0 && errno != EAGAIN)
		return failed("send");
	out->done += n > 0 ? (size_t)n : 0;
	return 0;
}

/* to NULL: only receive. from NULL: only send. */
static int exchange(const void *to, void *from, size_t bytes)
{
	static unsigned sent, received;
	struct socket_message out = make(to, bytes, &sent), in = make(from, bytes, &received);

	one_way = to ? 0 : one_way + 1;
	while (is_open(&out) || is_open(&in))
		if ((is_open(&out) && send_more(&out)) || (is_open(&in) && receive_more(&in)))
			return 1;
	return 0;
}

/* ---- calls ----------------------------------------------------------------------------------- */

static void add(float *out, const float *a, const float *b, size_t count)
{
	for (size_t i = 0; i < count; i++)
		out[i] = a[i] + b[i];
}

static int allreduce(const float *in, float *out, size_t count)
{
	if (exchange(in, other, count * sizeof(float)))
		return 1;
	add(out, in, other, count);
	return 0;
}

static int broadcast(const float *in, float *out, size_t count)
{
	return exchange(rank == 0 ? in : NULL, rank == 0 ? NULL : out, count * sizeof(float));
}

static int reduce(const float *in, float *out, size_t count)
{
	if (exchange(rank == 0 ? NULL : in, rank == 0 ? other : NULL, count * sizeof(float)))
		return 1;
	if (rank == 0)
		add(out, in, other, count);
	return 0;
}

static int allgather(const float *in, float *out, size_t count)
{
	memcpy(out + (size_t)rank * count, in, count * sizeof(float));
	return exchange(in, out + (size_t)!rank * count, count * sizeof(float));
}

static int reduce_scatter(const float *in, float *out, size_t count)
{
	if (exchange(in + (size_t)!rank * count, other, count * sizeof(float)))
		return 1;
	add(out, in + (size_t)rank * count, other, count);
	return 0;
}

static int alltoall(const float *in, float *out, size_t count)
{
	size_t to = (size_t)!rank * count, own = (size_t)rank * count;

	memcpy(out + own, in + own, count * sizeof(float));
	return exchange(in + to, out + to, count * sizeof(float));
}

static int gather(const float *in, float *out, size_t count)
{
	if (rank == 0)
		memcpy(out, in, count * sizeof(float));
	return exchange(rank == 0 ? NULL : in, rank == 0 ? out + count : NULL,
			count * sizeof(float));
}

static int scatter(const float *in, float *out, size_t count)
{
	if (rank == 0)
		memcpy(out, in, count * sizeof(float));
	return exchange(rank == 0 ? in + count : NULL, rank == 0 ? NULL : out,
			count * sizeof(float));
}

static int pingpong(const float *in, float *out, size_t count)
{
	size_t bytes = count * sizeof(float);

	if (rank == 0)
		return exchange(in, NULL, bytes) || exchange(NULL, out, bytes);
	return exchange(NULL, out, bytes) || exchange(in, NULL, bytes);
}

static int sendrecv(const float *in, float *out, size_t count)
{
	return exchange(in, out, count * sizeof(float));
}

const struct peer peer = {
	.open = join,
	.close = leave,
	.calls = { allreduce, broadcast, reduce, allgather, reduce_scatter, alltoall, gather,
		   scatter, pingpong, sendrecv },
};
