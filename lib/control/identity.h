/*
 * identity.h - the key pair of a rank: Ed25519 (RFC 8032), and statements that a rank signs
 *
 * Called by endpoint.c (make, free) and control_identity.c, which has the statements. The private
 * half lives in a page like the key of a job; OpenSSL has a copy while a rank signs.
 */
#ifndef TT_IDENTITY_H
#define TT_IDENTITY_H

#include <string.h>

#include "control/frame.h"
#include "control/key.h"

struct tt_identity {
	struct tt_key *secret;
	uint8_t public_key[TT_PUBLIC_KEY];
};
/* false: no memory, or no random numbers */
bool tt_identity_make(struct tt_identity *ret_identity);
void tt_identity_free(struct tt_identity *identity);

/* false: no memory, also for the statement */
bool tt_identity_sign(const struct tt_identity *identity, const struct tt_writer *statement,
		      uint8_t ret_signature[TT_SIGNATURE]);
/* Did the owner of the key sign the statement? The owner of an unknown key, of zeros, did not. 1 | 0 |
 * TT_SYSTEM: no memory. No sentence */
int tt_identity_verify(const uint8_t public_key[TT_PUBLIC_KEY], const struct tt_writer *statement,
		       const uint8_t signature[TT_SIGNATURE]);

static inline bool tt_public_key_known(const uint8_t public_key[TT_PUBLIC_KEY])
{
	static const uint8_t unknown[TT_PUBLIC_KEY];

	return memcmp(public_key, unknown, TT_PUBLIC_KEY);
}
/* Is it the key of which a rank knows at least the first bytes? */
static inline bool tt_public_key_is(const uint8_t key[TT_PUBLIC_KEY],
				    const uint8_t known[TT_PUBLIC_KEY])
{
	return !memcmp(key, known, TT_KEY_KNOWN);
}

#endif
