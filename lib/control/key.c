/*
 * key.c - derive the key of a job from a secret, and a secret from a text (key.h)
 */
#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/kdf.h>
#include <openssl/params.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/openssl.h"
#include "control/hello.h"
#include "control/key.h"

static size_t page(void)
{
	return (size_t)sysconf(_SC_PAGESIZE);
}

struct tt_key *tt_key_alloc(void)
{
	void *key = mmap(NULL, page(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (key == MAP_FAILED)
		return NULL;
	madvise(key, page(), MADV_DONTDUMP);
	return key;
}

void tt_key_free(struct tt_key *key)
{
	if (!key)
		return;
	OPENSSL_cleanse(key, sizeof(*key));
	munmap(key, page());
}

#define STRETCH_ROUNDS 10000 /* slows down guesses of a secret of words */

/* false: no memory */
static bool derive(const char *name, const OSSL_PARAM *params, uint8_t *ret_bytes, size_t bytes)
{
	EVP_KDF_CTX *ctx;
	EVP_KDF *kdf;
	bool made;

	if (!tt_openssl_enter())
		return false;
	kdf = EVP_KDF_fetch(tt_openssl(), name, NULL);
	ctx = kdf ? EVP_KDF_CTX_new(kdf) : NULL;
	made = ctx && EVP_KDF_derive(ctx, ret_bytes, bytes, params) == 1;
	EVP_KDF_CTX_free(ctx);
	EVP_KDF_free(kdf);
	if (!made)
		tt_openssl_renew();
	tt_openssl_leave();
	return made;
}

bool tt_key_make(const uint8_t secret[TT_SECRET], const uint8_t job[TT_NONCE],
		 struct tt_key *ret_key)
{
	char info[] = "tutti: external PSK of TLS 1.3, protocol " TT_PROTOCOL_TEXT;
	const OSSL_PARAM params[] = {
		OSSL_PARAM_construct_utf8_string(OSSL_KDF_PARAM_DIGEST, "SHA256", 0),
		OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_KEY, (void *)secret, TT_SECRET),
		OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_SALT, (void *)job, TT_NONCE),
		OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_INFO, info, sizeof(info) - 1),
		OSSL_PARAM_construct_end()
	};

	return derive("HKDF", params, ret_key->bytes, TT_KEY);
}

bool tt_secret_stretch(const char *secret, const uint8_t *salt, size_t bytes,
		       uint8_t ret_secret[TT_SECRET])
{
	unsigned rounds = STRETCH_ROUNDS;
	const OSSL_PARAM params[] = {
		OSSL_PARAM_construct_utf8_string(OSSL_KDF_PARAM_DIGEST, "SHA256", 0),
		OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_PASSWORD, (void *)secret,
						  strlen(secret)),
		OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_SALT, (void *)salt, bytes),
		OSSL_PARAM_construct_uint(OSSL_KDF_PARAM_ITER, &rounds), OSSL_PARAM_construct_end()
	};

	return derive("PBKDF2", params, ret_secret, TT_SECRET);
}
