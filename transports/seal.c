/* seal.c - see seal.h */
#include <openssl/crypto.h>
#include <string.h>

#include "base/openssl.h"
#include "transports/seal.h"

#define KEY 16

bool tt_seal_make(struct tt_seal *s, const uint8_t key[32], bool seal)
{
	EVP_CIPHER *cipher;
	bool made;

	*s = (struct tt_seal){ .seals = seal };
	if (!tt_openssl_enter())
		return false;
	cipher = EVP_CIPHER_fetch(tt_openssl(), "AES-128-GCM", NULL);
	s->ctx = EVP_CIPHER_CTX_new();
	memcpy(s->salt, key + KEY, sizeof(s->salt));
	made = cipher && s->ctx && EVP_CipherInit_ex(s->ctx, cipher, NULL, key, s->salt, seal);
	EVP_CIPHER_free(cipher); /* the context keeps it */
	if (!made)
		tt_openssl_renew();
	tt_openssl_leave();
	return made;
}

void tt_seal_free(struct tt_seal *s)
{
	EVP_CIPHER_CTX_free(s->ctx); /* overwrites its key */
	OPENSSL_cleanse(s, sizeof(*s));
}

static bool set_nonce(struct tt_seal *s)
{
	uint8_t nonce[sizeof(s->salt)];

	memcpy(nonce, s->salt, sizeof(nonce));
	for (int i = 0; i < 8; i++)
		nonce[sizeof(nonce) - 1 - (size_t)i] ^= (uint8_t)(s->unit >> 8 * i);
	return EVP_CipherInit_ex(s->ctx, NULL, NULL, NULL, nonce, -1);
}

/* Both directions of counter mode turn zeros into the key stream. */
static bool replace_key(struct tt_seal *s)
{
	uint8_t next[KEY + sizeof(s->salt)] = { 0 };
	bool good = set_nonce(s) && tt_seal_part(s, next, next, sizeof(next)) &&
		    EVP_CipherInit_ex(s->ctx, NULL, NULL, next, NULL, -1);

	memcpy(s->salt, next + KEY, sizeof(s->salt));
	OPENSSL_cleanse(next, sizeof(next));
	return good;
}

bool tt_seal_begin(struct tt_seal *s)
{
	bool good = (s->unit == 0 || s->unit % TT_SEAL_UNITS || replace_key(s)) && set_nonce(s);

	s->unit++;
	return good;
}

bool tt_seal_part(struct tt_seal *s, void *out, const void *in, size_t bytes)
{
	int n;

	return EVP_CipherUpdate(s->ctx, out, &n, in, (int)bytes);
}

bool tt_seal_end(struct tt_seal *s, uint8_t tag[TT_TAG])
{
	int n;

	if (!s->seals && !EVP_CIPHER_CTX_ctrl(s->ctx, EVP_CTRL_AEAD_SET_TAG, TT_TAG, tag))
		return false;
	if (EVP_CipherFinal_ex(s->ctx, tag, &n) != 1)
		return false;
	return !s->seals || EVP_CIPHER_CTX_ctrl(s->ctx, EVP_CTRL_AEAD_GET_TAG, TT_TAG, tag);
}

bool tt_seal_whole(struct tt_seal *s, void *data, size_t bytes, uint8_t tag[TT_TAG])
{
	return tt_seal_begin(s) && tt_seal_part(s, data, data, bytes) && tt_seal_end(s, tag);
}
