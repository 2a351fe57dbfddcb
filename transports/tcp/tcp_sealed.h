/*
 * tcp_sealed.h - messages on an encrypted socket
 *
 * Called by tcp_stream.c and tcp.c; calls seal.c. A message is two units: the header, so that
 * no field of it is believed before its tag is right, and the payload.
 *
 *   header 16 | tag 16 | payload | tag 16          everything but the tags is encrypted
 *
 * A listener sees lengths and times. The receiver hands a message out after the payload's tag; a
 * payload that does not open is overwritten, and the link stays broken.
 *
 * Memory of a link: a buffer of TT_TCP_WIRE bytes for sealed bytes, since the sender's buffer is
 * the caller's. The receiver opens in place, in the stream buffer or the destination.
 */
#ifndef TT_TCP_SEALED_H
#define TT_TCP_SEALED_H

#include "base/sock.h"
#include "transports/seal.h"
#include "transports/tcp/tcp_stream.h"

#define TT_TCP_WIRE (64u << 10)
#define TT_TCP_SEALED_AROUND (sizeof(struct tt_tcp_head) + 2 * TT_TAG)

struct tt_tcp_sealed {
	struct tt_seal out, in;

	uint64_t next; /* post that is being sealed, or is the next one */
	size_t done;   /* bytes of its payload that are sealed; its header is sealed before them */
	size_t from, to; /* bytes of wire that the socket has not accepted */

	size_t opened; /* bytes of the payload being received that are decrypted */
	bool altered;  /* a tag was wrong */
	/* header and tag as received, directly behind them a small payload and its tag, or the tag
	 * of a large one */
	uint8_t received[TT_TCP_SEALED_AROUND + TT_TCP_SMALL];

	uint8_t wire[TT_TCP_WIRE];
};

/* Encrypt the link from its first byte on. 0 | TT_SYSTEM */
int tt_tcp_sealed_make(struct tt_tcp_link *l, const struct tt_data_keys *keys);
void tt_tcp_sealed_free(struct tt_tcp_link *l);

/* Send sealed bytes of the queue. Returns as send. */
ssize_t tt_tcp_sealed_send(struct tt_tcp_link *l);
/* tt_tcp_receive of an encrypted link */
int tt_tcp_sealed_receive(struct tt_tcp_link *l, void *into, size_t bytes, uint32_t stamp);
/* TT_REMOTE with the sentence */
int tt_tcp_sealed_altered(const struct tt_tcp_link *l);

#endif
