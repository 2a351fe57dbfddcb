/*
 * identity.c - see identity.h
 */
#include <openssl/core_names.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/params.h>
#include <sys/random.h>

#include "base/openssl.h"
#include "control/identity.h"

_Static_assert(TT_KEY == 32, "the private half of an Ed25519 key");

/* Both halves, since OpenSSL computes a public half that is not given. NULL: no memory */
static EVP_PKEY *key_pair(OSSL_LIB_CTX *lib, const struct tt_identity *identity)
{
	OSSL_PARAM halves[] = { OSSL_PARAM_construct_octet_string(OSSL_PKEY_PARAM_PRIV_KEY,
								  identity->secret->bytes, TT_KEY),
				OSSL_PARAM_construct_octet_string(
					OSSL_PKEY_PARAM_PUB_KEY,
					(void *)(uintptr_t)identity->public_key, TT_PUBLIC_KEY),
				OSSL_PARAM_construct_end() };
	EVP_PKEY_CTX *ctx = lib ? EVP_PKEY_CTX_new_from_name(lib, "ED25519", NULL) : NULL;
	EVP_PKEY *pair = NULL;

	if (ctx && EVP_PKEY_fromdata_init(ctx) == 1)
		EVP_PKEY_fromdata(ctx, &pair, EVP_PKEY_KEYPAIR, halves);
	EVP_PKEY_CTX_free(ctx);
	return pair;
}

bool tt_identity_make(struct tt_identity *ret_identity)
{
	struct tt_identity new = { .secret = tt_key_alloc() };
	size_t bytes = TT_PUBLIC_KEY;
	OSSL_LIB_CTX *lib;
	EVP_PKEY *pair;
	bool made;

	if (!new.secret || getrandom(new.secret->bytes, TT_KEY, 0) != TT_KEY ||
	    !tt_openssl_enter()) {
		tt_key_free(new.secret);
		return false;
	}
	lib = tt_openssl();
	ERR_set_mark();
	pair = lib ? EVP_PKEY_new_raw_private_key_ex(lib, "ED25519", NULL, new.secret->bytes,
						     TT_KEY)
		   : NULL;
	made = pair && EVP_PKEY_get_raw_public_key(pair, new.public_key, &bytes) == 1;
	EVP_PKEY_free(pair);
	ERR_pop_to_mark();
	if (!made)
		tt_openssl_renew();
	tt_openssl_leave();
	if (made)
		*ret_identity = new;
	else
		tt_key_free(new.secret);
	return made;
}

void tt_identity_free(struct tt_identity *identity)
{
	tt_key_free(identity->secret);
	identity->secret = NULL;
}

bool tt_identity_sign(const struct tt_identity *identity, const struct tt_writer *statement,
		      uint8_t ret_signature[TT_SIGNATURE])
{
	size_t bytes = TT_SIGNATURE;
	OSSL_LIB_CTX *lib;
	EVP_MD_CTX *ctx;
	EVP_PKEY *pair;
	bool signs;

	if (statement->failed || !tt_openssl_enter())
		return false;
	lib = tt_openssl();
	ERR_set_mark();
	ctx = EVP_MD_CTX_new();
	pair = key_pair(lib, identity);
	signs = ctx && pair && EVP_DigestSignInit_ex(ctx, NULL, NULL, lib, NULL, pair, NULL) == 1 &&
		EVP_DigestSign(ctx, ret_signature, &bytes, statement->data, statement->have) == 1;
	EVP_MD_CTX_free(ctx);
	EVP_PKEY_free(pair); /* overwrites its copy of the private half */
	ERR_pop_to_mark();
	if (!signs)
		tt_openssl_renew();
	tt_openssl_leave();
	return signs;
}

/* OpenSSL puts no error into its queue for a false signature, but for every other failure. */
static int verify(EVP_MD_CTX *ctx, const struct tt_writer *statement,
		  const uint8_t signature[TT_SIGNATURE])
{
	unsigned long before = ERR_peek_last_error();

	if (EVP_DigestVerify(ctx, signature, TT_SIGNATURE, statement->data, statement->have) == 1)
		return 1;
	return ERR_peek_last_error() == before ? 0 : TT_SYSTEM;
}

int tt_identity_verify(const uint8_t public_key[TT_PUBLIC_KEY], const struct tt_writer *statement,
		       const uint8_t signature[TT_SIGNATURE])
{
	EVP_PKEY *key = NULL;
	int rc = TT_SYSTEM;
	OSSL_LIB_CTX *lib;
	EVP_MD_CTX *ctx;

	if (statement->failed || !tt_public_key_known(public_key))
		return statement->failed ? TT_SYSTEM : 0;
	if (!tt_openssl_enter())
		return TT_SYSTEM;
	lib = tt_openssl();
	ERR_set_mark();
	ctx = EVP_MD_CTX_new();
	if (lib)
		key = EVP_PKEY_new_raw_public_key_ex(lib, "ED25519", NULL, public_key,
						     TT_PUBLIC_KEY);
	if (ctx && key && EVP_DigestVerifyInit_ex(ctx, NULL, NULL, lib, NULL, key, NULL) == 1)
		rc = verify(ctx, statement, signature);
	EVP_MD_CTX_free(ctx);
	EVP_PKEY_free(key);
	ERR_pop_to_mark();
	if (rc < 0)
		tt_openssl_renew();
	tt_openssl_leave();
	return rc;
}
