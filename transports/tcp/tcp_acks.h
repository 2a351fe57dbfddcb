/*
 * tcp_acks.h - fewer acknowledgements for a peer that only sends
 *
 * Called by tcp.c and tcp_stream.c. In a stream of small messages one way, the kernel acknowledges each message at the
 * recv that empties the socket. An acknowledgement takes 0.6 us of both sides, the message itself 1.7 us. Two settings
 * save most of them, only within a host, where no packet is lost and no congestion window has to grow:
 *
 *   pingpong mode   a socket in this mode of the kernel acknowledges every second message. It enters the mode when it
 *                   answers a message, or by TCP_QUICKACK 0; it leaves the mode when an acknowledgement is due for
 *                   40 ms. A rank that only receives enters it at the second message in a row, and every 64 messages.
 *   peeks           recv with MSG_PEEK does not empty the socket, so nothing is acknowledged. A rank that only receives
 *                   takes its messages so, each behind the one before (SO_PEEK_OFF, Linux 6.9), and removes the bytes
 *                   of several messages at once. The link counts them as unread. A rank without a core of its own
 *                   sleeps too often for peeks: gather of 64 B among eight on two cores took 1.5 times as long.
 *
 * No message waits for an acknowledgement on a loopback link: a sender may have ten packets in flight at least, and each
 * message is one. Unread bytes are removed when a message is missing and eight are unread, or few are unread for 32 polls,
 * or this rank has sent since, or is about to sleep for this link; when they are 32 KiB; and before a larger message. The
 * kernel's own timer acknowledges them 40 ms after the rank has left the call.
 */
#ifndef TT_TCP_ACKS_H
#define TT_TCP_ACKS_H

#include "transports/tcp/tcp_stream.h"

#define TT_TCP_ONE_WAY 2 /* messages in a row that make a peer one that only sends */

/* A link has its socket. */
void tt_tcp_acks_begin(struct tt_tcp_link *l);

/* The parts of the functions below for a peer that only sends, or sent several messages before */
int tt_tcp_acks_peek(struct tt_tcp_link *l, size_t bytes);
void tt_tcp_acks_count(struct tt_tcp_link *l);
bool tt_tcp_acks_miss(struct tt_tcp_link *l, bool sleeps);

/* Flags of a recv for a message of bytes: 0 | MSG_PEEK: the caller adds the received bytes to unread */
static inline int tt_tcp_acks_flags(struct tt_tcp_link *l, size_t bytes)
{
	return l->acks.one_way < TT_TCP_ONE_WAY && !l->acks.unread ? 0 : tt_tcp_acks_peek(l, bytes);
}

/* A message was received completely. */
static inline void tt_tcp_acks_received(struct tt_tcp_link *l)
{
	if (++l->acks.one_way >= TT_TCP_ONE_WAY || l->acks.unread)
		tt_tcp_acks_count(l);
}

/* The next message is missing. sleeps: the rank is about to sleep. true: the unread bytes were removed, which
 * acknowledges them, and the message may have come meanwhile */
static inline bool tt_tcp_acks_missed(struct tt_tcp_link *l, bool sleeps)
{
	return l->acks.unread && tt_tcp_acks_miss(l, sleeps);
}

#endif
