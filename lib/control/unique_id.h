/*
 * unique_id.h - what the 128 bytes of a unique id mean
 *
 * Called by bootstrap. An id names where rank 0 listens and holds the secret of the job.
 */
#ifndef TT_UNIQUE_ID_H
#define TT_UNIQUE_ID_H

#include "base/sock.h"
#include "tutti.h"

#define TT_SECRET 16
#define TT_NONCE 8
#define TT_ID_ADDRESSES 5

struct tt_id {
	bool from_root;                  /* the user named the address, not the maker's host */
	int port, naddresses;
	/* rank 0 listens at the first of port, port + 1, ... that is free; 1: only port */
	int nports;
	int epoch;                       /* attempt of the job; ranks of another one are refused */
	uint64_t place;                  /* of the maker: who is there too may use its loopback */
	uint8_t secret[TT_SECRET];
	uint8_t nonce[TT_NONCE];         /* tells jobs apart; not secret */
	struct tt_address addresses[TT_ID_ADDRESSES];
};
/* Where ranks meet whom an engine started: all know the place and the secret. */
struct tt_where {
	const char *job;                 /* a text that no other job has; not secret */
	int port, nports, epoch;         /* as in struct tt_id */
	struct tt_address addresses[TT_ADDRESSES];
	int naddresses;
};
int tt_id_at(const struct tt_where *where, const char *secret, tuttiUniqueId *ret_id);
/* TUTTI_ROOT, "host:port" or "[IPv6]:port", in its parts. 0 | TT_ARG */
int tt_id_split_root(const char *host_port, char *host, size_t room, int *ret_port);

void tt_id_pack(const struct tt_id *id, tuttiUniqueId *ret_id);
/* 0 | TT_ARG: these bytes are not an id */
int tt_id_unpack(const tuttiUniqueId *bytes, struct tt_id *ret_id);

/* This process no longer needs the port that tt_id_make reserved. */
void tt_id_release(int port);

/* Numbers that tell places apart: the boot of the kernel and the network namespace; override
 * instead of the boot. */
uint64_t tt_id_place(const char *override);

#endif
