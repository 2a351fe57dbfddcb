/*
 * tcp_stream.h - messages on one socket: a header of 16 or 24 bytes, then the payload
 *
 * The header of a message of odd number ends in TT_TCP_ODD zeros, which nobody reads, unless the link is encrypted: the
 * kernel takes the length of two equal segments in a row for the largest of the sender's segments, and acknowledges
 * every second one of that length (tcp_acks.h).
 *
 * tcp.c owns the links and the sleep; tcp_stream.c moves the bytes of one link; tcp_sealed.c has
 * the parts that differ on an encrypted link.
 */
#ifndef TT_TCP_STREAM_H
#define TT_TCP_STREAM_H

#include <sys/uio.h>

#include "transports/transport.h"

#define TT_TCP_QUEUE 64 /* most posts in flight on a link */
/* largest payload that is copied behind its header, and out of there, since send and recv of one piece are faster than
 * sendmsg and recvmsg of two */
#define TT_TCP_SMALL 1024

#define TT_TCP_ODD 8

/* Most bytes that one recv reads ahead: bytes behind the end of a message of up to TT_TCP_SMALL, or of up to
 * TT_TCP_AHEAD / 4 from a peer that only sends */
#define TT_TCP_AHEAD (16u << 10)

struct tt_tcp_head {
	uint16_t magic, version;
	uint32_t bytes, stamp, number;
};

struct tt_tcp_post {
	struct tt_tcp_head head;
	uint8_t odd[TT_TCP_ODD];
	const void *buf;
};

/* Acknowledgements of what the peer sends: tcp_acks.h */
struct tt_tcp_acks {
	bool local, peeks; /* the peer is on this host; the kernel has SO_PEEK_OFF for TCP */
	uint32_t one_way;  /* messages received since this rank sent one */
	/* received bytes that are still in the socket; the messages that end in them; polls without the
	 * next message since the last of these */
	size_t unread;
	uint32_t messages, missed;
};

struct tt_tcp_link {
	struct tt_link base;
	int fd;                       /* -1: the peer has not connected yet */
	struct tt_tcp_sealed *sealed; /* NULL: not encrypted */
	/* bytes of a message on the wire besides its payload, if its number is even, and if it is odd */
	size_t around[2];
	/* errno of the network (not the peer) that ended the connection, or 0 */
	int net_error;
	bool busy; /* the socket has not accepted all posts */
	/* next message was missing at a receive since arm */
	bool awaited;

	/* posts completed..posted-1, modulo TT_TCP_QUEUE */
	struct tt_tcp_post queue[TT_TCP_QUEUE];
	/* bytes of the oldest post that the socket accepted, header included */
	size_t sent;

	/* bytes read ahead of the next messages: at[taken..filled - 1] */
	struct {
		uint8_t *at; /* [TT_TCP_AHEAD] behind buffer */
		size_t taken, filled;
	} ahead;
	/* message being received: its header, and directly behind it the zeros of an odd one */
	struct tt_tcp_head head;
	uint8_t odd[TT_TCP_ODD];
	size_t got; /* bytes received of that message, header included */
	struct tt_tcp_acks acks;
	void *buffer; /* [message_bytes] stream buffer: payload for peek */
};

/* Queue a message; the caller has checked that the queue has room. */
void tt_tcp_enqueue(struct tt_tcp_link *l, const void *buf, size_t bytes, uint32_t stamp);

/* Send as much of the queue as the socket accepts. Returns > 0 some progress | 0 none |
 * TT_REMOTE. */
int tt_tcp_flush(struct tt_tcp_link *l);

/* Continue to receive the next message. Returns 1 into has the payload | 0
 * incomplete | TT_USAGE, TT_REMOTE. Repeats its answer until the caller sets got to 0. */
int tt_tcp_receive(struct tt_tcp_link *l, void *into, size_t bytes, uint32_t stamp);

/* For tcp_sealed.c. piece: make an iovec of a buffer without its first *skip bytes; *skip shrinks
 * by the skipped bytes; the number of iovecs: 0, 1. count: count the bytes that came, or note the
 * error of a recv (errno). 1 some bytes | 0 none yet | TT_REMOTE. check: is the header the expected one? 0 |
 * TT_USAGE, TT_REMOTE */
int tt_tcp_piece(struct iovec *v, const void *buf, size_t bytes, size_t *skip);
int tt_tcp_count(struct tt_tcp_link *l, ssize_t n);
int tt_tcp_check(const struct tt_tcp_link *l, size_t bytes, uint32_t stamp);

/* Note the errno that ended the connection, if the network caused it. */
void tt_tcp_note_error(struct tt_tcp_link *l, int error);

/* Close the stream so that all bytes that the socket accepted still reach the peer. */
void tt_tcp_close_stream(int fd);

#endif
