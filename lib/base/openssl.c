/*
 * openssl.c - see openssl.h
 */
#include <openssl/crypto.h>
#include <stdatomic.h>

#include "base/openssl.h"

/* Never freed: a thread that has used it still needs it when the thread ends. */
static _Atomic(OSSL_LIB_CTX *) library;

OSSL_LIB_CTX *tt_openssl(void)
{
	OSSL_LIB_CTX *present = library, *made;

	if (present)
		return present;
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
