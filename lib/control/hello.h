/*
 * hello.h - the first message of each side of a new connection, inside TLS (tls.h)
 *
 *   client                                     server
 *   TLS: ClientHello with the identity     ->
 *                                         <-   TLS: ServerHello ... Finished
 *   TLS: Finished
 *   hello: purpose, from, to, context ...  ->
 *                                         <-   verdict
 *
 * TLS proves that both sides hold the job's key, before either message: so only a rank's verdict
 * counts, and the server keeps nothing for a client without the key. A signature in each message
 * proves which rank its sender is (control_identity.c). The client talks to several servers at a
 * time (control_authenticate.c), the server is a state machine of the service thread
 * (control_accept.c), so that a stranger that sends nothing, half a message or malformed bytes
 * delays no rank.
 */
#ifndef TT_HELLO_H
#define TT_HELLO_H

#include "control/frame.h"
#include "control/unique_id.h"

#define TT_PROTOCOL 14
#define TT_PROTOCOL_TEXT "14"
#define TT_SERVER 8 /* bytes of a server's public key */
#define TT_IDENTITY_BYTES (14 + TT_SERVER)
#define TT_HELLO_BYTES 26
#define TT_MONITOR INT32_MAX /* the rank of a monitor (monitor.h): none */

enum tt_purpose { TT_P_REGISTER = 1, TT_P_CONTROL, TT_P_DATA, TT_P_MONITOR, TT_P_RECORD };

enum tt_verdict {
	TT_V_WELCOME = 1,
	TT_V_OTHER_RANK, /* the port belongs to another rank of the job */
	TT_V_FULL,       /* the server has no descriptor left */
	TT_V_STALE,      /* a later attempt listens: the client's is over */
	TT_V_EARLY,      /* an earlier attempt or communicator listens, or a rank that still joins:
			    dial again */
	TT_V_IMPOSTOR,   /* the client lacks the key of the rank that it claims to be */
	TT_V_EXCLUDED,   /* the client is no member of the communicator */
	TT_V_BUSY,       /* as many monitors as may ask at a time ask already */
	TT_V_MANY,       /* the client has as many connections as it may have: dial again */
	TT_VERDICTS
};

/* The only bytes of Tutti in clear: the identity of the PSK in the ClientHello. No name, no address;
 * nothing depends on the secret. Many ranks of many jobs may listen at one port: job and server name
 * one. */
struct tt_psk_identity {
	int protocol;
	uint8_t job[TT_NONCE];
	int rank; /* of the first communicator, the client's */
	/* the first bytes of the server's public key; zeros: rank 0, whose key is not known yet */
	uint8_t server[TT_SERVER];
};
void tt_psk_identity_put(const struct tt_psk_identity *identity,
			 uint8_t ret_bytes[TT_IDENTITY_BYTES]);
/* false: no identity of any version */
bool tt_psk_identity_get(const uint8_t *bytes, size_t have, struct tt_psk_identity *ret_identity);

struct tt_hello {
	enum tt_purpose purpose;
	int from, to; /* ranks of the first communicator */
	/* registration: communicators of the job that the process has already; data: its number; record:
	 * the rank whose business card is wanted */
	int channel;
	int epoch;
	uint64_t context; /* of the control that wants the connection */
};
void tt_hello_put(const struct tt_hello *hello, uint8_t ret_bytes[TT_HELLO_BYTES]);
/* false: malformed */
bool tt_hello_get(const uint8_t bytes[TT_HELLO_BYTES], struct tt_hello *ret_hello);

/* The messages as they are sent, with the sender's public key and its signature (control_identity.c) */
struct tt_hello_message {
	uint8_t hello[TT_HELLO_BYTES];
	uint8_t public_key[TT_PUBLIC_KEY];
	uint8_t certificate[TT_SIGNATURE]; /* of the key, by rank 0; zeros: none */
	uint8_t signature[TT_SIGNATURE];
};
struct tt_verdict_message {
	uint8_t verdict;
	uint8_t public_key[TT_PUBLIC_KEY];
	uint8_t signature[TT_SIGNATURE];
};

/* Does the refusal hold however often the client dials? */
bool tt_verdict_is_final(enum tt_verdict verdict);
/* tt_fail with the sentence of a refusal; 0: of something that is no rank. Returns TT_REMOTE */
int tt_verdict_fail(enum tt_verdict verdict);

#endif
