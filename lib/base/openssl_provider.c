/*
 * openssl_provider.c - the algorithms of OpenSSL that Tutti uses, as a provider of their own
 *
 * Called by openssl.c for each library context. OpenSSL's first fetch of an algorithm makes objects of all
 * algorithms of its kind that the active providers have: of 130 ciphers, where TLS uses one. That took half of
 * the time and of the memory of OpenSSL's start. So this provider passes on a few rows of the default
 * provider's tables. The default provider is loaded, which ties it to the library context, and deactivated, so that
 * no fetch sees it; its implementations stay until the context ends. What TLS needs differs from release to
 * release, so releases on which no join was tried keep the whole default provider.
 */
#include <openssl/core_dispatch.h>
#include <openssl/core_names.h>
#include <openssl/provider.h>
#include <openssl/ssl.h>
#include <string.h>

#include "base/openssl_provider.h"

#define MOST 3 /* algorithms of a kind */

/* The first names of OpenSSL's rows, and these rows once they are known: the same for all contexts. */
static struct kind {
	int operation;
	const char *name[MOST];
	OSSL_ALGORITHM row[MOST + 1]; /* ended by a row of zeros */
} kinds[] = {
	{ .operation = OSSL_OP_DIGEST, .name = { "SHA2-256", "SHA2-512" } },
	/* of TLS and data; of the random numbers */
	{ .operation = OSSL_OP_CIPHER, .name = { "AES-128-GCM", "AES-256-CTR", "AES-256-ECB" } },
	{ .operation = OSSL_OP_MAC, .name = { "HMAC" } },
	{ .operation = OSSL_OP_KDF, .name = { "HKDF", "TLS13-KDF", "PBKDF2" } },
	{ .operation = OSSL_OP_RAND, .name = { "CTR-DRBG", "SEED-SRC" } },
	{ .operation = OSSL_OP_KEYMGMT, .name = { "X25519", "ED25519", "HMAC" } },
	{ .operation = OSSL_OP_KEYEXCH, .name = { "X25519" } },
	/* without ECDSA, TLS lacks ED25519, too, and begins no handshake */
	{ .operation = OSSL_OP_SIGNATURE, .name = { "ED25519", "HMAC", "ECDSA" } },
};

#define KINDS (sizeof(kinds) / sizeof(kinds[0]))

/* the default provider of the context that tt_openssl_choose works at */
static OSSL_PROVIDER *all;

/* ---- the provider ---------------------------------------------------------------------------- */

static const OSSL_ALGORITHM *query(void *provider, int operation, int *no_cache)
{
	(void)provider;
	*no_cache = 0;
	for (size_t i = 0; i < KINDS; i++)
		if (kinds[i].operation == operation)
			return kinds[i].row;
	return NULL;
}

/* Describes X25519 to TLS, as provider-base(7) says. */
static int capabilities(void *provider, const char *capability, OSSL_CALLBACK *report, void *ctx)
{
	static unsigned id = 29, bits = 128; /* RFC 8446, 4.2.7 */
	static int first = TLS1_3_VERSION, last = 0 /* any */, none = -1;
	static char name[] = "x25519", algorithm[] = "X25519";
	static const OSSL_PARAM group[] = {
		OSSL_PARAM_utf8_string(OSSL_CAPABILITY_TLS_GROUP_NAME, name, sizeof(name)),
		OSSL_PARAM_utf8_string(OSSL_CAPABILITY_TLS_GROUP_NAME_INTERNAL, algorithm,
				       sizeof(algorithm)),
		OSSL_PARAM_utf8_string(OSSL_CAPABILITY_TLS_GROUP_ALG, algorithm, sizeof(algorithm)),
		OSSL_PARAM_uint(OSSL_CAPABILITY_TLS_GROUP_ID, &id),
		OSSL_PARAM_uint(OSSL_CAPABILITY_TLS_GROUP_SECURITY_BITS, &bits),
		OSSL_PARAM_int(OSSL_CAPABILITY_TLS_GROUP_MIN_TLS, &first),
		OSSL_PARAM_int(OSSL_CAPABILITY_TLS_GROUP_MAX_TLS, &last),
		OSSL_PARAM_int(OSSL_CAPABILITY_TLS_GROUP_MIN_DTLS, &none),
		OSSL_PARAM_int(OSSL_CAPABILITY_TLS_GROUP_MAX_DTLS, &none),
		OSSL_PARAM_END
	};

	(void)provider;
	return strcmp(capability, "TLS-GROUP") ? 1 : report(group, ctx);
}

/* The implementations receive the context of the default provider, whose they are. */
static int begin(const OSSL_CORE_HANDLE *provider, const OSSL_DISPATCH *core,
		 const OSSL_DISPATCH **ret_functions, void **ret_ctx)
{
	static const OSSL_DISPATCH functions[] = {
		{ OSSL_FUNC_PROVIDER_QUERY_OPERATION, (void (*)(void))query },
		{ OSSL_FUNC_PROVIDER_GET_CAPABILITIES, (void (*)(void))capabilities },
		{ 0, NULL }
	};

	(void)provider, (void)core;
	*ret_functions = functions;
	*ret_ctx = OSSL_PROVIDER_get0_provider_ctx(all);
	return 1;
}

/* ---- the default provider -------------------------------------------------------------------- */

static bool is_named(const OSSL_ALGORITHM *row, const char *name)
{
	size_t bytes = strlen(name);

	return !strncmp(row->algorithm_names, name, bytes) &&
	       (!row->algorithm_names[bytes] || row->algorithm_names[bytes] == ':');
}

/* false: this OpenSSL has not all of them under these names */
static bool choose(struct kind *kind)
{
	int no_cache;
	const OSSL_ALGORITHM *rows = OSSL_PROVIDER_query_operation(all, kind->operation, &no_cache);

	for (int i = 0; i < MOST && kind->name[i]; i++) {
		const OSSL_ALGORITHM *row = rows;

		while (row && row->algorithm_names && !is_named(row, kind->name[i]))
			row++;
		if (!row || !row->algorithm_names)
			return false;
		kind->row[i] = *row;
	}
	return true;
}

static bool choose_all(void)
{
	static bool chosen;

	for (size_t i = 0; i < KINDS && !chosen; i++)
		if (!choose(&kinds[i]))
			return false;
	return chosen = true;
}

bool tt_openssl_is_tried(void)
{
	unsigned long release = OpenSSL_version_num() >> 20; /* major and minor number */

	return release == 0x300 || release == 0x305;
}

bool tt_openssl_choose(OSSL_LIB_CTX *lib)
{
	all = OSSL_PROVIDER_load(lib, "default");
	if (!all)
		return false;
	if (!tt_openssl_is_tried() || !choose_all())
		return true; /* with the whole default provider */
	return OSSL_PROVIDER_add_builtin(lib, "tutti", begin) && OSSL_PROVIDER_load(lib, "tutti") &&
	       OSSL_PROVIDER_unload(all);
}
