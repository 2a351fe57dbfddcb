/*
 * openssl.c - see openssl.h
 */
#define OPENSSL_SUPPRESS_DEPRECATED /* of the digest: its successor allocates, and reads OPENSSL_CONF */
#include <openssl/crypto.h>
#include <openssl/sha.h>
#include <pthread.h>
#include <stdatomic.h>

#include "base/openssl.h"

/* Never freed: a thread that has used it still needs it when the thread ends. */
static _Atomic(OSSL_LIB_CTX *) library;

OSSL_LIB_CTX *tt_openssl(void)
{
	OSSL_LIB_CTX *present = library, *made;

	if (present)
		return present;
	/* Else the end of the process frees what other threads, which may join, still use. No effect where the
	 * program has initialized OpenSSL before. */
	OPENSSL_init_crypto(OPENSSL_INIT_NO_ATEXIT, NULL);
	made = OSSL_LIB_CTX_new();
	if (!made || atomic_compare_exchange_strong(&library, &present, made))
		return made;
	OSSL_LIB_CTX_free(made);
	return present;
}

void tt_openssl_renew(void)
{
	library = NULL;
}

/* In the child of a fork the locks of a library context may be held for ever. */
__attribute__((constructor)) static void renew_in_children(void)
{
	pthread_atfork(NULL, NULL, tt_openssl_renew);
}

void tt_digest(const void *data, size_t bytes, uint8_t ret_digest[TT_DIGEST])
{
	SHA256_CTX state;

	SHA256_Init(&state);
	SHA256_Update(&state, data, bytes);
	SHA256_Final(ret_digest, &state);
}
