/*
 * handshake.c - the messages of the mutual authentication, and its client
 *
 * Called by control_authenticate.c and control_accept.c. All cryptography is libcrypto's.
 */
#include <errno.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "control/handshake.h"
#include "control/frame.h"

#define HELLO_MAGIC 0x48495454u /* "TTIH" */
#define REPLY_MAGIC 0x52495454u /* "TTIR" */
#define PROTOCOL 2
#define REPLY_SIGNED (TT_REPLY_BYTES - TT_MAC)

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

void tt_key_make(const void *secret, size_t bytes, const char *label, uint64_t number, uint8_t *ret,
		 size_t ret_bytes)
{
	uint8_t sum[EVP_MAX_MD_SIZE];
	char text[64];

	snprintf(text, sizeof(text), "tutti %s %llu", label, (unsigned long long)number);
	HMAC(EVP_sha256(), secret, (int)bytes, (const uint8_t *)text, strlen(text), sum, NULL);
	memcpy(ret, sum, ret_bytes);
	OPENSSL_cleanse(sum, sizeof(sum));
}

/* A proof covers its side's role, the hello and the reply, so that no message of one handshake can
 * be replayed in another. */
static void sign(const struct tt_key *key, const char *role, const uint8_t hello[TT_HELLO_BYTES],
		 const uint8_t reply[TT_REPLY_BYTES], uint8_t ret_mac[TT_MAC])
{
	uint8_t signed_bytes[6 + TT_HELLO_BYTES + REPLY_SIGNED];

	memcpy(signed_bytes, role, 6);
	memcpy(signed_bytes + 6, hello, TT_HELLO_BYTES);
	memcpy(signed_bytes + 6 + TT_HELLO_BYTES, reply, REPLY_SIGNED);
	HMAC(EVP_sha256(), key->bytes, TT_KEY, signed_bytes, sizeof(signed_bytes), ret_mac, NULL);
}

void tt_handshake_keys(const struct tt_key *key, const uint8_t hello[TT_HELLO_BYTES],
		       const uint8_t reply[TT_REPLY_BYTES], bool is_server,
		       struct tt_data_keys *ret_keys)
{
	sign(key, "to cli", hello, reply, is_server ? ret_keys->send : ret_keys->recv);
	sign(key, "to ser", hello, reply, is_server ? ret_keys->recv : ret_keys->send);
}

void tt_hello_put(const struct tt_hello *hello, uint8_t ret_bytes[TT_HELLO_BYTES])
{
	struct tt_writer w = { .data = ret_bytes, .room = TT_HELLO_BYTES };

	tt_put(&w, HELLO_MAGIC, 4);
	tt_put(&w, PROTOCOL, 2);
	tt_put(&w, hello->purpose, 2);
	tt_put_bytes(&w, hello->job, TT_NONCE);
	tt_put(&w, (uint32_t)hello->from, 4);
	tt_put(&w, (uint32_t)hello->to, 4);
	tt_put(&w, (uint32_t)hello->channel, 4);
	tt_put(&w, (uint32_t)hello->epoch, 4);
	tt_put(&w, hello->context, 8);
	tt_put_bytes(&w, hello->nonce, sizeof(hello->nonce));
}

bool tt_hello_get(const uint8_t bytes[TT_HELLO_BYTES], struct tt_hello *ret_hello,
		  enum tt_verdict *ret_verdict)
{
	struct tt_reader r = { .at = bytes, .left = TT_HELLO_BYTES };
	uint64_t magic = tt_get(&r, 4), protocol = tt_get(&r, 2);

	ret_hello->purpose = (enum tt_purpose)tt_get_upto(&r, 2, TT_P_DATA);
	tt_get_copy(&r, ret_hello->job, TT_NONCE);
	ret_hello->from = (int)tt_get_upto(&r, 4, INT32_MAX);
	ret_hello->to = (int)tt_get_upto(&r, 4, INT32_MAX);
	ret_hello->channel = (int)tt_get_upto(&r, 4, INT32_MAX);
	ret_hello->epoch = (int)tt_get_upto(&r, 4, INT32_MAX);
	ret_hello->context = tt_get(&r, 8);
	if (magic != HELLO_MAGIC)
		return false;
	*ret_verdict = protocol == PROTOCOL ? TT_V_WELCOME : TT_V_OTHER_VERSION;
	return protocol != PROTOCOL || (!r.failed && ret_hello->purpose);
}

bool tt_reply_put(const struct tt_key *key, const uint8_t hello[TT_HELLO_BYTES],
		  enum tt_verdict verdict, uint8_t ret_bytes[TT_REPLY_BYTES])
{
	struct tt_writer w = { .data = ret_bytes, .room = TT_REPLY_BYTES };
	uint8_t nonce[16], mac[TT_MAC];

	if (RAND_bytes(nonce, sizeof(nonce)) != 1)
		return false;
	tt_put(&w, REPLY_MAGIC, 4);
	tt_put(&w, PROTOCOL, 2);
	tt_put(&w, verdict, 2);
	tt_put_bytes(&w, nonce, sizeof(nonce));
	if (verdict != TT_V_OTHER_JOB && verdict != TT_V_OTHER_VERSION)
		sign(key, "server", hello, ret_bytes, mac);
	else
		memset(mac, 0, sizeof(mac));
	tt_put_bytes(&w, mac, TT_MAC);
	return true;
}

bool tt_proof_check(const struct tt_key *key, const uint8_t hello[TT_HELLO_BYTES],
		    const uint8_t reply[TT_REPLY_BYTES], const uint8_t proof[TT_MAC])
{
	uint8_t mac[TT_MAC];

	sign(key, "client", hello, reply, mac);
	return !CRYPTO_memcmp(mac, proof, TT_MAC);
}

static int refused(enum tt_verdict verdict)
{
	static const char *const why[] = {
		[TT_V_OTHER_JOB] = "another job listens there",
		[TT_V_OTHER_RANK] = "another rank listens there",
		[TT_V_OTHER_VERSION] = "another version of Tutti listens there",
		[TT_V_OTHER_SECRET] = "the other side has another secret",
		[TT_V_FULL] = "the other side has no file descriptor left (raise its ulimit -n)",
		[TT_V_STALE] =
			"a later attempt of this job listens there; this rank's attempt is over",
		[TT_V_EARLY] = "an earlier attempt of this job still listens there",
	};

	if (verdict < TT_V_OTHER_JOB || verdict > TT_V_EARLY)
		return tt_fail(TT_REMOTE, "something that is not a rank of Tutti listens there");
	return tt_fail(TT_REMOTE, "%s", why[verdict]);
}

int tt_handshake_begin(struct tt_handshake *h, int fd, const struct tt_hello *hello,
		       const struct tt_patience *patience)
{
	struct tt_hello mine = *hello;

	h->have = 0;
	if (RAND_bytes(mine.nonce, sizeof(mine.nonce)) != 1)
		return tt_fail(TT_SYSTEM, "no random bytes for a handshake");
	tt_hello_put(&mine, h->hello);
	return tt_sock_send(fd, h->hello, sizeof(h->hello), patience);
}

/* A server with another secret learns of it by the proof, and can name this rank. */
static int judge(struct tt_handshake *h, int fd, const struct tt_key *key,
		 enum tt_verdict *ret_verdict)
{
	struct tt_reader r = { .at = h->reply, .left = sizeof(h->reply) };
	uint64_t magic = tt_get(&r, 4), protocol = tt_get(&r, 2);
	enum tt_verdict verdict = (enum tt_verdict)tt_get(&r, 2);
	uint8_t mac[TT_MAC];
	bool proved;

	if (magic != REPLY_MAGIC)
		return refused(0);
	if (protocol != PROTOCOL)
		return refused(TT_V_OTHER_VERSION);
	sign(key, "server", h->hello, h->reply, mac);
	proved = !CRYPTO_memcmp(mac, h->reply + REPLY_SIGNED, TT_MAC);
	if (verdict == TT_V_WELCOME && proved)
		return 1;
	if (verdict != TT_V_WELCOME) {
		*ret_verdict = proved ? verdict : 0;
		return refused(verdict);
	}
	sign(key, "client", h->hello, h->reply, mac);
	(void)!send(fd, mac, sizeof(mac), MSG_NOSIGNAL | MSG_DONTWAIT);
	return refused(TT_V_OTHER_SECRET);
}

int tt_handshake_read(struct tt_handshake *h, int fd, const struct tt_key *key,
		      enum tt_verdict *ret_verdict)
{
	*ret_verdict = 0;
	while (h->have < sizeof(h->reply)) {
		ssize_t n = recv(fd, h->reply + h->have, sizeof(h->reply) - h->have, MSG_DONTWAIT);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN)
			return 0;
		if (n < 0)
			return tt_fail(TT_REMOTE, "connection lost: %m");
		if (n == 0)
			return tt_fail(TT_REMOTE, "connection closed by the other side");
		h->have += (size_t)n;
	}
	return judge(h, fd, key, ret_verdict);
}

int tt_handshake_finish(struct tt_handshake *h, int fd, const struct tt_key *key,
			const struct tt_patience *patience, enum tt_verdict *ret_verdict)
{
	uint8_t mac[TT_MAC], welcome;
	int rc;

	*ret_verdict = 0;
	sign(key, "client", h->hello, h->reply, mac);
	if ((rc = tt_sock_send(fd, mac, sizeof(mac), patience)) ||
	    (rc = tt_sock_recv(fd, &welcome, 1, patience)))
		return rc;
	if (welcome == TT_V_WELCOME)
		return 0;
	*ret_verdict = (enum tt_verdict)welcome;
	return refused(*ret_verdict);
}
