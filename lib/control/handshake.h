/*
 * handshake.h - mutual authentication of a connection: both ranks prove that they hold the job's
 * secret before any other message
 *
 *   client                                     server
 *   hello: job, from, to, purpose, nonce  ->
 *                                         <-   reply: verdict, nonce,
 *                                              HMAC(secret, "server" + hello + reply)
 *   proof: HMAC(secret, "client" + ...)   ->
 *                                         <-   welcome, or: other secret
 *
 * A side believes the other only after its proof: a verdict other than welcome is final only with
 * the server's HMAC, and the server keeps nothing for a client without one. The client talks to
 * several servers at a time (control_authenticate.c), the server is a state machine of the service
 * thread (control_accept.c), so that a stranger that sends nothing, half a message or malformed
 * bytes delays no rank.
 */
#ifndef TT_HANDSHAKE_H
#define TT_HANDSHAKE_H

#include "base/sock.h"
#include "control/unique_id.h"

#define TT_KEY 32 /* bytes of a job's key, made from the id's secret */
#define TT_MAC 32
#define TT_HELLO_BYTES 56
#define TT_REPLY_BYTES 56

enum tt_purpose { TT_P_REGISTER = 1, TT_P_CONTROL, TT_P_DATA };

enum tt_verdict {
	TT_V_WELCOME = 1,   /* send the proof; after the proof: connected */
	TT_V_OTHER_JOB,     /* the port belongs to another job */
	TT_V_OTHER_RANK,    /* the port belongs to another rank */
	TT_V_OTHER_VERSION, /* of this protocol */
	TT_V_OTHER_SECRET,
	TT_V_FULL,  /* the server has no descriptor left; after the proof */
	TT_V_STALE, /* a later attempt listens: the client's is over */
	TT_V_EARLY  /* an earlier attempt still listens: dial again later */
};

struct tt_hello {
	uint8_t job[TT_NONCE];
	enum tt_purpose purpose;
	int from, to, channel, epoch; /* from, to: ranks of the first communicator */
	uint64_t context;             /* of the control that wants the connection */
	uint8_t nonce[16];
};

struct tt_key {
	uint8_t bytes[TT_KEY];
};
/* A key in a page of its own, which core dumps leave out; free overwrites the key. NULL: no memory */
struct tt_key *tt_key_alloc(void);
void tt_key_free(struct tt_key *key);

/* Derive the key of a job, or of a communicator split from it, from a secret of its ranks. */
void tt_key_make(const void *secret, size_t bytes, const char *label, uint64_t number, uint8_t *ret,
		 size_t ret_bytes);

/* A client's handshake. begin sends the hello. read takes the bytes that have come: 1: the server
 * has proved the secret and welcomes | 0: call again when fd is readable | TT_REMOTE with the
 * sentence. finish sends the proof and waits for the welcome. *ret_verdict is a refusal of a server
 * that has proved the secret, else 0. 0 | TT_REMOTE, TT_TIMEOUT, TT_SYSTEM */
struct tt_handshake {
	uint8_t hello[TT_HELLO_BYTES], reply[TT_REPLY_BYTES];
	size_t have; /* bytes of reply */
};
int tt_handshake_begin(struct tt_handshake *h, int fd, const struct tt_hello *hello,
		       const struct tt_patience *patience);
int tt_handshake_read(struct tt_handshake *h, int fd, const struct tt_key *key,
		      enum tt_verdict *ret_verdict);
int tt_handshake_finish(struct tt_handshake *h, int fd, const struct tt_key *key,
			const struct tt_patience *patience, enum tt_verdict *ret_verdict);

/* The keys of a data socket after its handshake */
void tt_handshake_keys(const struct tt_key *key, const uint8_t hello[TT_HELLO_BYTES],
		       const uint8_t reply[TT_REPLY_BYTES], bool is_server,
		       struct tt_data_keys *ret_keys);

/* server, step by step. hello_get: false: malformed; *ret_verdict OTHER_VERSION when only the
 * version differs. */
bool tt_hello_get(const uint8_t bytes[TT_HELLO_BYTES], struct tt_hello *ret_hello,
		  enum tt_verdict *ret_verdict);
void tt_hello_put(const struct tt_hello *hello, uint8_t ret_bytes[TT_HELLO_BYTES]);
/* Signed unless the hello is of another job or version. false: no random bytes */
bool tt_reply_put(const struct tt_key *key, const uint8_t hello[TT_HELLO_BYTES],
		  enum tt_verdict verdict, uint8_t ret_bytes[TT_REPLY_BYTES]);
bool tt_proof_check(const struct tt_key *key, const uint8_t hello[TT_HELLO_BYTES],
		    const uint8_t reply[TT_REPLY_BYTES], const uint8_t proof[TT_MAC]);

#endif
