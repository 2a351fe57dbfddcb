/*
 * seal.h - authenticated encryption of one direction of a connection: AES-GCM with a counter as
 * nonce
 *
 * Called by tcp_sealed.c and verbs_qp.c; calls libcrypto. Both sides seal and open the same sequence of units, a
 * tag behind each. The nonce of a unit is its number, so that a unit that is altered, left out,
 * repeated or moved opens nowhere.
 *
 * The key has 128 bits because the secret of a job has 128: 256 would protect nothing more and
 * take 1.2 times the time. It comes from the handshake of this connection and serves one direction,
 * so (key, number) never repeats. After TT_SEAL_UNITS units both sides replace the key by bytes of
 * its own key stream: under one key stay fewer than 2^36 blocks of units of 16 MiB, the largest
 * tile, and a key that is learned later opens no earlier unit.
 */
#ifndef TT_SEAL_H
#define TT_SEAL_H

#include <openssl/evp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TT_TAG 16 /* bytes */
#define TT_SEAL_UNITS (1u << 16)

struct tt_seal {
	EVP_CIPHER_CTX *ctx;
	uint8_t salt[12]; /* nonce of unit 0 */
	uint64_t unit;    /* number of the unit that begins next */
	bool seals;       /* else opens */
};

/* Make the sealing (seal) or opening side; overwritten and freed by free. false: no memory */
bool tt_seal_make(struct tt_seal *s, const uint8_t key[32], bool seal);
void tt_seal_free(struct tt_seal *s);

/* A unit is begin, parts, end; out may be in. Nothing is allocated. end writes the tag, or checks
 * the tag: false: not the unit that the other side sealed; its bytes must not be used. The other
 * functions fail only in libcrypto. */
bool tt_seal_begin(struct tt_seal *s);
bool tt_seal_part(struct tt_seal *s, void *out, const void *in, size_t bytes);
bool tt_seal_end(struct tt_seal *s, uint8_t tag[TT_TAG]);
/* A unit in place. false: as end, or in libcrypto */
bool tt_seal_whole(struct tt_seal *s, void *data, size_t bytes, uint8_t tag[TT_TAG]);

#endif
