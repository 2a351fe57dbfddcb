/*
 * tls.c - sessions of TLS 1.3 by OpenSSL
 *
 * The socket is an OpenSSL BIO of our own, because OpenSSL's writes without MSG_NOSIGNAL. A BIO
 * call that did not succeed leaves its errno in the session; OpenSSL's error queue, which the
 * application shares, is left as it was. The process has one SSL_CTX, which takes 0.2 ms to
 * make; a client finds its job's key by its context, a server by its caller's function. Functions
 * that let OpenSSL work do so between tt_openssl_enter and tt_openssl_leave.
 */
#include <errno.h>
#include <openssl/bio.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/openssl.h"
#include "base/sock.h"
#include "control/tls.h"

/* bytes of a handshake; a longer one is no rank's, and a stranger's memory is bounded */
#define HANDSHAKE_MOST 2048
/* records under one key; AES-GCM allows 2^24.5 full ones (RFC 8446, 5.5) */
#define REKEY_RECORDS (1u << 22)

/* Renewals of the library context after handshakes; a stranger can cause one, and none is freed. */
#define RENEWALS_MOST 8

struct tt_tls_context {
	const struct tt_key *key;
	struct tt_psk_identity identity; /* without a server */
};

struct tt_tls {
	SSL *ssl;
	int fd;
	/* during the handshake; the client's: */
	const struct tt_key *key;
	uint8_t identity[TT_IDENTITY_BYTES];
	tt_tls_find_key *find_key; /* the server's */
	void *ctx;                 /* of find_key */
	/* errno of the BIO's latest read and write, 0: success or the end of the stream */
	int read_error, write_error;
	bool ended, is_server, established;
	bool answered; /* server: the client's first message is made with the key */
	size_t received;
	int claimed; /* server: rank of the client's identity, -1: none of this job */
	bool impostor;
	bool bound; /* binding is known: a connection's two statements have it on each side */
	uint8_t binding[TT_BINDING];
	bool drained;     /* the latest read left nothing in the socket */
	unsigned records; /* sent under the present key */
};

/* ---- the socket ------------------------------------------------------------------------------ */

static int bio_read(BIO *bio, char *data, int bytes)
{
	struct tt_tls *tls = BIO_get_data(bio);
	ssize_t n;

	BIO_clear_retry_flags(bio);
	if (!tls->established && tls->received > HANDSHAKE_MOST) {
		tls->read_error = EBADMSG;
		return -1;
	}
	if (!tls->established && (size_t)bytes > HANDSHAKE_MOST + 1 - tls->received)
		bytes = (int)(HANDSHAKE_MOST + 1 - tls->received);
	do
		n = recv(tls->fd, data, (size_t)bytes, MSG_DONTWAIT);
	while (n < 0 && errno == EINTR);
	tls->read_error = n < 0 ? errno : 0;
	tls->drained = n > 0 && n < bytes;
	tls->ended = n == 0;
	tls->received += n > 0 ? (size_t)n : 0;
	if (tls->read_error == EAGAIN)
		BIO_set_retry_read(bio);
	return (int)n;
}

static int bio_write(BIO *bio, const char *data, int bytes)
{
	struct tt_tls *tls = BIO_get_data(bio);
	ssize_t n;

	BIO_clear_retry_flags(bio);
	do
		n = send(tls->fd, data, (size_t)bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
	while (n < 0 && errno == EINTR);
	tls->write_error = n < 0 ? errno : 0;
	if (tls->write_error == EAGAIN)
		BIO_set_retry_write(bio);
	return (int)n;
}

static long bio_ctrl(BIO *bio, int command, long number, void *pointer)
{
	(void)bio, (void)number, (void)pointer;
	return command == BIO_CTRL_FLUSH;
}

/* ---- the PSK --------------------------------------------------------------------------------- */

static SSL_SESSION *psk_session(SSL *ssl, const struct tt_key *key)
{
	static const unsigned char aes_128_gcm_sha256[] = { 0x13, 0x01 };
	const SSL_CIPHER *cipher = SSL_CIPHER_find(ssl, aes_128_gcm_sha256);
	SSL_SESSION *session = SSL_SESSION_new();

	if (session && cipher && SSL_SESSION_set1_master_key(session, key->bytes, TT_KEY) &&
	    SSL_SESSION_set_cipher(session, cipher) &&
	    SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION))
		return session;
	SSL_SESSION_free(session);
	return NULL;
}

static int use_session(SSL *ssl, const EVP_MD *md, const unsigned char **ret_identity,
		       size_t *ret_bytes, SSL_SESSION **ret_session)
{
	const struct tt_tls *tls = SSL_get_app_data(ssl);

	*ret_session = md && EVP_MD_get_type(md) != NID_sha256 ? NULL : psk_session(ssl, tls->key);
	*ret_identity = tls->identity;
	*ret_bytes = TT_IDENTITY_BYTES;
	return *ret_session != NULL;
}

/* The alerts are the reasons that a client without proof gets: 0: internal_error, another version;
 * no session: handshake_failure, another job or rank. */
static int find_session(SSL *ssl, const unsigned char *identity, size_t bytes,
			SSL_SESSION **ret_session)
{
	struct tt_tls *tls = SSL_get_app_data(ssl);
	struct tt_psk_identity client;
	const struct tt_key *key;

	*ret_session = NULL;
	if (!tt_psk_identity_get(identity, bytes, &client))
		return 0;
	key = tls->find_key(tls->ctx, &client);
	if (client.protocol != TT_PROTOCOL)
		return 0;
	if (!key)
		return 1;
	tls->claimed = client.rank;
	*ret_session = psk_session(ssl, key);
	return *ret_session != NULL;
}

/* ---- contexts -------------------------------------------------------------------------------- */

/* The SSL_CTX of the process, and the library context that it was made in. Never freed, like that. */
static struct {
	pthread_mutex_t lock;
	OSSL_LIB_CTX *lib;
	SSL_CTX *ssl;
	BIO_METHOD *bio;
} shared = { .lock = PTHREAD_MUTEX_INITIALIZER };

/* Another thread may hold the lock while this one forks. The SSL_CTX belongs to the parent. */
static void reset(void)
{
	pthread_mutex_init(&shared.lock, NULL);
	shared.ssl = NULL;
}

__attribute__((constructor)) static void watch_forks(void)
{
	pthread_atfork(NULL, NULL, reset);
}

/* All that a configuration file of the system could have set is set here. */
static bool configure(SSL_CTX *ssl)
{
	SSL_CTX_clear_options(ssl, ~(uint64_t)0);
	SSL_CTX_set_options(ssl, SSL_OP_NO_TICKET | SSL_OP_NO_COMPRESSION);
	SSL_CTX_set_mode(ssl, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_RELEASE_BUFFERS |
				      SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
	SSL_CTX_set_security_level(ssl, 2);
	SSL_CTX_set_verify(ssl, SSL_VERIFY_NONE, NULL);
	SSL_CTX_set_session_cache_mode(ssl, SSL_SESS_CACHE_OFF);
	SSL_CTX_set_max_early_data(ssl, 0);
	SSL_CTX_set_quiet_shutdown(ssl, 1);
	SSL_CTX_set_psk_use_session_callback(ssl, use_session);
	SSL_CTX_set_psk_find_session_callback(ssl, find_session);
	return SSL_CTX_set_min_proto_version(ssl, TLS1_3_VERSION) &&
	       SSL_CTX_set_max_proto_version(ssl, TLS1_3_VERSION) &&
	       SSL_CTX_set_ciphersuites(ssl, "TLS_AES_128_GCM_SHA256") &&
	       SSL_CTX_set1_groups_list(ssl, "X25519") && SSL_CTX_set_num_tickets(ssl, 0);
}

static bool make_bio(void)
{
	BIO_METHOD *bio = BIO_meth_new(BIO_TYPE_SOURCE_SINK, "socket of tutti");

	if (bio && BIO_meth_set_read(bio, bio_read) && BIO_meth_set_write(bio, bio_write) &&
	    BIO_meth_set_ctrl(bio, bio_ctrl)) {
		shared.bio = bio;
		return true;
	}
	BIO_meth_free(bio);
	return false;
}

/* Locked. NULL: OpenSSL has the reason */
static SSL_CTX *make_ssl(OSSL_LIB_CTX *lib)
{
	SSL_CTX *ssl = lib ? SSL_CTX_new_ex(lib, NULL, TLS_method()) : NULL;

	if (ssl && configure(ssl) && (shared.bio || make_bio()))
		return ssl;
	SSL_CTX_free(ssl);
	return NULL;
}

static SSL_CTX *take_ssl(void)
{
	OSSL_LIB_CTX *lib = tt_openssl();
	SSL_CTX *ssl;

	pthread_mutex_lock(&shared.lock);
	if (!shared.ssl || shared.lib != lib) {
		SSL_CTX_free(shared.ssl);
		shared.ssl = make_ssl(lib);
		shared.lib = lib;
	}
	ssl = shared.ssl;
	if (ssl)
		SSL_CTX_up_ref(ssl);
	pthread_mutex_unlock(&shared.lock);
	return ssl;
}

int tt_tls_context_make(const struct tt_key *key, const uint8_t job[TT_NONCE], int rank,
			struct tt_tls_context **ret_context)
{
	struct tt_tls_context *context = calloc(1, sizeof(*context));
	char why[160] = "no memory";
	SSL_CTX *ssl = NULL;

	if (!tt_openssl_enter()) {
		free(context);
		return tt_fail(TT_SYSTEM, "rank %d: the process exits", rank);
	}
	ERR_set_mark();
	if (context) {
		context->key = key;
		context->identity = (struct tt_psk_identity){ .protocol = TT_PROTOCOL,
							      .rank = rank };
		memcpy(context->identity.job, job, TT_NONCE);
		ssl = take_ssl();
	}
	if (ERR_peek_last_error())
		ERR_error_string_n(ERR_peek_last_error(), why, sizeof(why));
	ERR_pop_to_mark();
	if (context && !ssl)
		tt_openssl_renew();
	SSL_CTX_free(ssl);
	tt_openssl_leave();
	if (ssl) {
		*ret_context = context;
		return 0;
	}
	free(context);
	return tt_fail(TT_SYSTEM, "rank %d: OpenSSL makes no TLS 1.3 context: %s", rank, why);
}

void tt_tls_context_free(struct tt_tls_context *context)
{
	free(context);
}

/* ---- sessions -------------------------------------------------------------------------------- */

static struct tt_tls *make(SSL_CTX *ssl, int fd, bool is_server)
{
	struct tt_tls *tls = calloc(1, sizeof(*tls));
	BIO *bio = NULL;

	ERR_set_mark();
	if (tls) {
		*tls = (struct tt_tls){ .fd = fd, .is_server = is_server, .claimed = -1 };
		tls->ssl = ssl ? SSL_new(ssl) : NULL;
		if (tls->ssl && SSL_set_app_data(tls->ssl, tls))
			bio = BIO_new(shared.bio);
	}
	ERR_pop_to_mark();
	if (!bio) {
		if (tls)
			SSL_free(tls->ssl);
		free(tls);
		tt_sock_close(fd);
		return NULL;
	}
	SSL_set_read_ahead(tls->ssl, true); /* a flight of messages by one recv */
	BIO_set_data(bio, tls);
	BIO_set_init(bio, 1);
	SSL_set_bio(tls->ssl, bio, bio);
	if (is_server)
		SSL_set_accept_state(tls->ssl);
	else
		SSL_set_connect_state(tls->ssl);
	return tls;
}

/* A session on fd, which is closed if there is none; NULL: no memory, or the process exits */
static struct tt_tls *open_session(int fd, bool is_server)
{
	struct tt_tls *tls;
	SSL_CTX *ssl;

	if (!tt_openssl_enter()) {
		tt_sock_close(fd);
		return NULL;
	}
	ERR_set_mark();
	ssl = take_ssl();
	tls = make(ssl, fd, is_server);
	SSL_CTX_free(ssl);
	ERR_pop_to_mark();
	tt_openssl_leave();
	return tls;
}

struct tt_tls *tt_tls_client(const struct tt_tls_context *context, int fd,
			     const uint8_t server[TT_PUBLIC_KEY])
{
	struct tt_psk_identity identity = context->identity;
	struct tt_tls *tls = open_session(fd, false);

	if (!tls)
		return NULL;
	memcpy(identity.server, server, TT_SERVER);
	tt_psk_identity_put(&identity, tls->identity);
	tls->key = context->key;
	return tls;
}

struct tt_tls *tt_tls_server(int fd, tt_tls_find_key *find_key, void *ctx)
{
	struct tt_tls *tls = open_session(fd, true);

	if (!tls)
		return NULL;
	tls->find_key = find_key;
	tls->ctx = ctx;
	return tls;
}

int tt_tls_release(struct tt_tls *tls)
{
	int fd = tls->fd;

	if (tt_openssl_enter()) {
		SSL_free(tls->ssl);
		tt_openssl_leave();
	}
	free(tls);
	return fd;
}

void tt_tls_close(struct tt_tls *tls)
{
	if (tls)
		tt_sock_close(tt_tls_release(tls));
}

int tt_tls_fd(const struct tt_tls *tls)
{
	return tls->fd;
}

/* ---- handshake ------------------------------------------------------------------------------- */

/* The session keeps a copy of the PSK, which it needs no more. */
static void forget_psk(struct tt_tls *tls)
{
	static const uint8_t zeros[TT_KEY];

	SSL_SESSION_set1_master_key(SSL_get_session(tls->ssl), zeros, TT_KEY);
}

/* OpenSSL may lack an algorithm for ever after a single allocation that failed: a new library context has it. */
static int failed_here(void)
{
	static atomic_int renewals;

	if (atomic_fetch_add(&renewals, 1) < RENEWALS_MOST)
		tt_openssl_renew();
	return tt_fail(TT_REMOTE, "OpenSSL of this process fails in a handshake (no memory?)");
}

/* The reason of OpenSSL for a failed handshake, in words. */
static int refused(struct tt_tls *tls, unsigned long reason)
{
	if (!tls->is_server && !tls->received && !tls->read_error && !tls->ended &&
	    !tls->write_error) {
		tt_openssl_renew();
		return tt_fail(TT_SYSTEM, "OpenSSL cannot begin a session of TLS (no memory?)");
	}
	tls->impostor = tls->claimed >= 0 && reason == SSL_R_BINDER_DOES_NOT_VERIFY;
	if (tls->read_error)
		return tt_fail(TT_REMOTE, "connection lost: %s", strerror(tls->read_error));
	if (tls->ended)
		return tt_fail(TT_REMOTE, "connection closed by the other side");
	switch (reason) {
	case ERR_R_MALLOC_FAILURE:
	case ERR_R_INTERNAL_ERROR:
		return failed_here();
	case SSL_R_BINDER_DOES_NOT_VERIFY:
	case SSL_R_SSLV3_ALERT_ILLEGAL_PARAMETER:
		return tt_fail(TT_REMOTE, "the other side uses a different secret");
	case SSL_R_SSLV3_ALERT_HANDSHAKE_FAILURE:
		return tt_fail(TT_REMOTE, "another job or another rank listens there");
	case SSL_R_TLSV1_ALERT_INTERNAL_ERROR:
		return tt_fail(TT_REMOTE, "another version of Tutti listens there");
	default:
		return tt_verdict_fail(0);
	}
}

int tt_tls_handshake(struct tt_tls *tls)
{
	unsigned long reason;
	int rc;

	if (!tt_openssl_enter())
		return tt_fail(TT_SYSTEM, "the process exits");
	tls->read_error = 0;
	ERR_set_mark();
	rc = SSL_do_handshake(tls->ssl);
	tls->answered = tls->is_server && SSL_session_reused(tls->ssl);
	reason = (unsigned long)ERR_GET_REASON(ERR_peek_last_error());
	ERR_pop_to_mark();
	if (rc == 1)
		forget_psk(tls);
	if (rc == 1) /* bytes behind the first messages may be no TLS: a data socket's */
		SSL_set_read_ahead(tls->ssl, false);
	tt_openssl_leave();
	if (rc != 1)
		return tls->read_error == EAGAIN ? 0 : refused(tls, reason);
	tls->established = true;
	return 1;
}

bool tt_tls_answered(const struct tt_tls *tls)
{
	return tls->answered;
}

uint64_t tt_tls_random(const struct tt_tls *tls)
{
	uint64_t random = 0;

	SSL_get_client_random(tls->ssl, (unsigned char *)&random, sizeof(random));
	return random;
}

int tt_tls_impostor(const struct tt_tls *tls)
{
	return tls->impostor ? tls->claimed : -1;
}

/* ---- messages -------------------------------------------------------------------------------- */

/* The error number of a call of OpenSSL that failed without the socket. The first reason counts: later ones
 * only say where it was noticed. Above older errors, the application's, only the last one can be read. */
static int error_of_openssl(bool above_older)
{
	switch (ERR_GET_REASON(above_older ? ERR_peek_last_error() : ERR_peek_error())) {
	case ERR_R_MALLOC_FAILURE:
		return ENOMEM;
	case SSL_R_TLSV1_ALERT_INTERNAL_ERROR: /* the peer's, for lack of memory there */
		return ECONNRESET;
	default:
		return EBADMSG;
	}
}

ssize_t tt_tls_recv(struct tt_tls *tls, void *data, size_t bytes)
{
	size_t n = 0;
	int failure = 0;
	bool older, done;

	if (!tt_openssl_enter()) {
		errno = ECANCELED;
		return -1;
	}
	tls->read_error = 0;
	older = ERR_peek_error();
	ERR_set_mark();
	done = SSL_read_ex(tls->ssl, data, bytes, &n) == 1;
	if (!done && !tls->read_error)
		failure = error_of_openssl(older);
	ERR_pop_to_mark();
	tt_openssl_leave();
	if (done || (!tls->read_error && tls->ended))
		return (ssize_t)n;
	errno = tls->read_error ? tls->read_error : failure;
	return -1;
}

ssize_t tt_tls_send(struct tt_tls *tls, const void *data, size_t bytes)
{
	size_t n = 0;
	bool older, done;

	/* OpenSSL still wants the bytes that failed; other bytes would end what can be received */
	if (tls->write_error && tls->write_error != EAGAIN) {
		errno = tls->write_error;
		return -1;
	}
	if (!tt_openssl_enter()) {
		errno = ECANCELED;
		return -1;
	}
	tls->write_error = 0;
	older = ERR_peek_error();
	ERR_set_mark();
	if (tls->records >= REKEY_RECORDS && SSL_key_update(tls->ssl, SSL_KEY_UPDATE_NOT_REQUESTED))
		tls->records = 0;
	done = SSL_write_ex(tls->ssl, data, bytes, &n) == 1;
	if (!done && !tls->write_error)
		tls->write_error = error_of_openssl(older);
	ERR_pop_to_mark();
	tt_openssl_leave();
	tls->records += done;
	if (done)
		return (ssize_t)n;
	errno = tls->write_error;
	return -1;
}

void tt_tls_read_ahead(struct tt_tls *tls, bool ahead)
{
	SSL_set_read_ahead(tls->ssl, ahead);
}

bool tt_tls_pending(const struct tt_tls *tls)
{
	return SSL_has_pending(tls->ssl);
}

bool tt_tls_drained(const struct tt_tls *tls)
{
	return tls->drained && !SSL_has_pending(tls->ssl);
}

static bool export(struct tt_tls *tls, const char *label, const uint8_t *context, size_t bytes,
		   uint8_t *ret_out, size_t out_bytes)
{
	bool done;

	if (!tt_openssl_enter())
		return false;
	ERR_set_mark();
	done = SSL_export_keying_material(tls->ssl, ret_out, out_bytes, label, strlen(label),
					  context, bytes, 1) == 1;
	ERR_pop_to_mark();
	tt_openssl_leave();
	return done;
}

bool tt_tls_binding(struct tt_tls *tls, uint8_t ret_binding[TT_BINDING])
{
	if (!tls->bound)
		tls->bound = export(tls, "EXPORTER-Channel-Binding", (const uint8_t *)"", 0,
				    tls->binding, TT_BINDING);
	memcpy(ret_binding, tls->binding, TT_BINDING);
	return tls->bound;
}

bool tt_tls_data_keys(struct tt_tls *tls, const uint8_t hello[TT_HELLO_BYTES],
		      struct tt_data_keys *ret_keys)
{
	uint8_t both[64]; /* of the client's bytes, of the server's */
	bool done = export(tls, "EXPORTER-tutti-data-keys", hello, TT_HELLO_BYTES, both,
			   sizeof(both));

	memcpy(tls->is_server ? ret_keys->recv : ret_keys->send, both, 32);
	memcpy(tls->is_server ? ret_keys->send : ret_keys->recv, both + 32, 32);
	OPENSSL_cleanse(both, sizeof(both));
	return done;
}
