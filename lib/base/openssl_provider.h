/*
 * openssl_provider.h - restrict a library context of OpenSSL to the algorithms that Tutti uses
 */
#ifndef TT_OPENSSL_PROVIDER_H
#define TT_OPENSSL_PROVIDER_H

#include <openssl/types.h>
#include <stdbool.h>

/* Is the release of OpenSSL in use one that is restricted: 3.0 or 3.5? */
bool tt_openssl_is_tried(void);

/* Loads the only provider of a new context. One caller at a time. false: no memory */
bool tt_openssl_choose(OSSL_LIB_CTX *lib);

#endif
