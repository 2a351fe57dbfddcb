/*
 * openssl.h - the library context of OpenSSL that every use of OpenSSL in Tutti names; the
 * beginning and the end of a use; a digest
 *
 * The application's providers and a configuration file (OPENSSL_CONF) do not affect this context. It has
 * the algorithms that Tutti uses, and no others (openssl_provider.h). A process has one, since each context
 * takes some of the 1024 keys of thread-specific data; the child of a fork makes its own.
 */
#ifndef TT_OPENSSL_H
#define TT_OPENSSL_H

#include <openssl/types.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* NULL: no memory. Thread: any */
OSSL_LIB_CTX *tt_openssl(void);

/* Begin and end a use of OpenSSL, not within another use. OPENSSL_cleanup, which a program's exit calls if the
 * program initialized OpenSSL before Tutti, waits for the end of the use. false: OpenSSL has freed its
 * state; the caller fails without OpenSSL. tt_digest, OPENSSL_cleanse and a cipher that has its key
 * need no enter. A thread of the program that has called Tutti and ends while the program exits is not
 * waited for: OPENSSL_cleanup (3.0) and the end of such a thread free the same list. Thread: any; false
 * takes the exiting thread no time, others up to 2 s of the exit. */
bool tt_openssl_enter(void);
void tt_openssl_leave(void);

/* OpenSSL had no memory. A library context remembers an algorithm that it had no memory for as one
 * that it lacks, so tt_openssl makes another. Thread: any */
void tt_openssl_renew(void);

/* SHA-256; needs neither memory nor a library context. */
#define TT_DIGEST 32
void tt_digest(const void *data, size_t bytes, uint8_t ret_digest[TT_DIGEST]);

#endif
