/*
 * tcp_stream.h - messages on one socket: 16 bytes of head, then the payload
 *
 * tcp.c owns the links and the sleeping; tcp_stream.c moves the bytes of one link.
 */
#ifndef TT_TCP_STREAM_H
#define TT_TCP_STREAM_H

#include "transports/transport.h"

#define TT_TCP_QUEUE 64        /* posts under way on a link */
/* payload that is copied next to its head, because one piece is faster than two */
#define TT_TCP_SMALL 240

struct tt_tcp_head {
	uint16_t magic, version;
	uint32_t bytes, stamp, number;
};

struct tt_tcp_post {
	struct tt_tcp_head head;
	const void *buf;
};

struct tt_tcp_link {
	struct tt_link base;
	int fd;                        /* -1: the peer has not dialled yet */
	int net_error;                      /* errno by which the network, not the peer, ended it */
	bool busy;                     /* has posts that the socket did not take at once */
	/* its next message was missing when this rank was about to sleep */
	bool awaited;

	struct tt_tcp_post queue[TT_TCP_QUEUE];        /* posts completed .. posted - 1 */
	size_t sent;                   /* of the oldest, taken by the socket, head included */

	/* of the message that is coming, and behind it the payload if it is small */
	struct tt_tcp_head head;
	uint8_t small[TT_TCP_SMALL];
	size_t got;                    /* bytes of it so far, head included */
	void *buffer;                   /* [message_bytes] where peek lets it land */
};

/* Queue a message; the caller has seen that there is room. */
void tt_tcp_enqueue(struct tt_tcp_link *l, const void *buf, size_t bytes, uint32_t stamp);

/* Give the socket as much of the queue as it takes. > 0 something moved | 0 | TT_REMOTE. */
int tt_tcp_flush(struct tt_tcp_link *l);

/* Read on in the next message, at most to its end. 1 all of it lies at into | 0 | TT_USAGE,
 * TT_REMOTE. The same answer again until got is set to 0. */
int tt_tcp_receive(struct tt_tcp_link *l, void *into, size_t bytes, uint32_t stamp);

/* The connection ended with this errno: if that is the network's doing, remember it. */
void tt_tcp_note_error(struct tt_tcp_link *l, int error);

/* End the stream so that what the socket has taken still reaches the peer. */
void tt_tcp_close_stream(int fd);

#endif
