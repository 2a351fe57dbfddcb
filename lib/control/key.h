/*
 * key.h - the key of a job, from the secret of its unique id; such a secret, from a text of the user
 *
 * Called by endpoint.c, tls.c and unique_id.c (stretch). A holder of the key can
 * register as a rank that has not registered yet, so the key lives in a page of its own.
 */
#ifndef TT_KEY_H
#define TT_KEY_H

#include "control/unique_id.h"

#define TT_KEY 32

struct tt_key {
	uint8_t bytes[TT_KEY];
};
/* A key in a page that core dumps leave out; free overwrites the key. NULL: no memory */
struct tt_key *tt_key_alloc(void);
void tt_key_free(struct tt_key *key);

/* HKDF-SHA-256 (RFC 5869) of the secret; salt: the job; info: use and version of the key. false: no
 * memory */
bool tt_key_make(const uint8_t secret[TT_SECRET], const uint8_t job[TT_NONCE],
		 struct tt_key *ret_key);

/* PBKDF2 (RFC 8018) of the user's secret. false: no memory */
bool tt_secret_stretch(const char *secret, const uint8_t *salt, size_t bytes,
		       uint8_t ret_secret[TT_SECRET]);

#endif
