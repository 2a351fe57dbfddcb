/*
 * test_openssl.c - the library context of OpenSSL that Tutti uses
 */
#include <criterion/criterion.h>
#include <openssl/evp.h>

#include "base/openssl.h"
#include "base/openssl_provider.h"

static void count_cipher(EVP_CIPHER *cipher, void *n)
{
	(void)cipher;
	++*(int *)n;
}

static void count_digest(EVP_MD *digest, void *n)
{
	(void)digest;
	++*(int *)n;
}

static void count_key(EVP_KEYMGMT *key, void *n)
{
	(void)key;
	++*(int *)n;
}

static void skip_other_releases(void)
{
	if (!tt_openssl_is_tried())
		cr_skip_test("this release of OpenSSL keeps all algorithms");
}

/* An object of an algorithm takes time and memory in each process. */
Test(openssl, the_context_makes_objects_of_no_other_algorithms, .timeout = 10)
{
	OSSL_LIB_CTX *lib = tt_openssl();
	int ciphers = 0, digests = 0, keys = 0;

	skip_other_releases();
	cr_assert(lib);
	EVP_CIPHER_do_all_provided(lib, count_cipher, &ciphers);
	EVP_MD_do_all_provided(lib, count_digest, &digests);
	EVP_KEYMGMT_do_all_provided(lib, count_key, &keys);
	cr_expect_eq(ciphers, 3, "%d ciphers", ciphers);
	cr_expect_eq(digests, 2, "%d digests", digests);
	cr_expect_eq(keys, 3, "%d kinds of keys", keys);
}

Test(openssl, the_application_keeps_all_algorithms, .timeout = 10)
{
	EVP_CIPHER *theirs, *ours;

	skip_other_releases();
	cr_assert(tt_openssl());
	theirs = EVP_CIPHER_fetch(NULL, "AES-256-CBC", NULL);
	ours = EVP_CIPHER_fetch(tt_openssl(), "AES-256-CBC", NULL);
	cr_expect(theirs);
	cr_expect_not(ours);
	EVP_CIPHER_free(theirs);
	EVP_CIPHER_free(ours);
}
