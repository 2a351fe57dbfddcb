/*
 * handshake.h - two ranks prove to each other that they hold
 * the job's secret, before anything else is said
 *
 *   client                                     server
 *   hello: job, from, to, purpose, nonce  ->
 *                                         <-   reply: verdict, nonce,
 *                                              HMAC(secret, "server" + hello + reply)
 *   proof: HMAC(secret, "client" + ...)   ->
 *                                         <-   welcome, or: other secret
 *
 * The dialling rank runs it blocking (control_connect.c), the accepting
 * one as a state machine of the service thread (control_accept.c), so a
 * stranger who says nothing, half a hello or nonsense holds up nobody.
 */
#ifndef TT_HANDSHAKE_H
#define TT_HANDSHAKE_H

#include "base/sock.h"
#include "control/unique_id.h"

#define TT_KEY 32                        /* bytes of a job's key, made from the id's secret */
#define TT_MAC 32
#define TT_HELLO_BYTES 48
#define TT_REPLY_BYTES 56

enum tt_purpose { TT_P_REGISTER = 1, TT_P_TREE, TT_P_RING, TT_P_DATA, TT_P_AM };

enum tt_verdict {
	TT_V_WELCOME = 1,                /* go on; after the proof: come in */
	TT_V_OTHER_JOB,                  /* the port is another job's */
	TT_V_OTHER_RANK,                 /* the port is another rank's */
	TT_V_OTHER_VERSION,              /* of this protocol */
	TT_V_OTHER_SECRET,
	TT_V_FULL,                       /* the process has no descriptor left */
	TT_V_STALE,                      /* a later attempt listens: the client's is over */
	TT_V_EARLY                       /* an earlier attempt still listens there: come back */
};

struct tt_hello {
	uint8_t job[TT_NONCE];
	enum tt_purpose purpose;
	int from, to, channel, epoch;
	uint8_t nonce[16];
};

struct tt_key { uint8_t bytes[TT_KEY]; };

/* The key of a job, and of a communicator split from it, are made from what only its ranks know. */
void tt_key_make(const void *secret, size_t bytes, const char *label, uint64_t number, uint8_t *ret,
		 size_t ret_bytes);

/* client: blocking, bounded by patience. 0 | TT_REMOTE with the sentence; *ret_verdict why, 0 when
 * the other side is not a rank of Tutti or went away. */
int tt_handshake_dial(int fd, const struct tt_key *key, const struct tt_hello *hello,
		      const struct tt_patience *patience, enum tt_verdict *ret_verdict);

/* server, step by step. hello_get: false for what no rank sends; *ret_verdict OTHER_VERSION when
 * only that differs. */
bool tt_hello_get(const uint8_t wire[TT_HELLO_BYTES], struct tt_hello *ret_hello,
		  enum tt_verdict *ret_verdict);
void tt_hello_put(const struct tt_hello *hello, uint8_t ret_wire[TT_HELLO_BYTES]);
/* false: no random bytes */
bool tt_reply_put(const struct tt_key *key, const uint8_t hello[TT_HELLO_BYTES],
		  enum tt_verdict verdict, uint8_t ret_wire[TT_REPLY_BYTES]);
bool tt_proof_check(const struct tt_key *key, const uint8_t hello[TT_HELLO_BYTES],
		    const uint8_t reply[TT_REPLY_BYTES], const uint8_t proof[TT_MAC]);

#endif
