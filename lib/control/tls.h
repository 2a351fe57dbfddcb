/*
 * tls.h - a session of TLS 1.3 over a connected socket, non-blocking
 *
 * Called by control_authenticate.c (client), control_accept.c (server) and control_connection.c.
 * Both sides prove the job's key: an external PSK with a Diffie-Hellman exchange (psk_dhe_ke,
 * X25519), TLS_AES_128_GCM_SHA256. No certificates, tickets, early data or other versions. OpenSSL
 * works in a library context of Tutti's own, so that neither the application's providers nor
 * its configuration file matter, and nothing of the application's is changed.
 *
 * A session has one user at a time: the dialing thread, or the service thread before the proof; then
 * whoever holds the endpoint's lock.
 */
#ifndef TT_TLS_H
#define TT_TLS_H

#include <sys/types.h>

#include "control/hello.h"
#include "control/key.h"

struct tt_tls_context; /* of an endpoint: makes its clients' sessions; thread: any */
struct tt_tls;

#define TT_TLS_BYTES (24u << 10) /* memory of an idle session, measured with OpenSSL 3.0 */

/* The job, the rank and the key that clients prove; key stays valid until free. 0 | TT_SYSTEM */
int tt_tls_context_make(const struct tt_key *key, const uint8_t job[TT_NONCE], int rank,
			struct tt_tls_context **ret_context);
void tt_tls_context_free(struct tt_tls_context *context);

/* A session that owns fd from now on. server: its public key, zeros: rank 0, whose key is not known.
 * NULL: no memory, fd is closed */
struct tt_tls *tt_tls_client(const struct tt_tls_context *context, int fd,
			     const uint8_t server[TT_PUBLIC_KEY]);
/* find_key(ctx) is called in tt_tls_handshake, and returns the key of the job that the client names,
 * NULL: the server has no such job. The client may have another version, which is refused then. */
typedef const struct tt_key *tt_tls_find_key(void *ctx, const struct tt_psk_identity *client);
struct tt_tls *tt_tls_server(int fd, tt_tls_find_key *find_key, void *ctx);
/* Close the descriptor and free the session; NULL: none */
void tt_tls_close(struct tt_tls *tls);
/* Free the session, return the descriptor. The session has read nothing beyond its own messages, unless other bytes
 * came together with the end of the handshake, which no client of Tutti sends. */
int tt_tls_release(struct tt_tls *tls);
int tt_tls_fd(const struct tt_tls *tls);

/* Go on with the handshake. 1: the peer has proved the job's key | 0: call again when fd is readable
 * | TT_REMOTE with the sentence, which nothing proves | TT_SYSTEM, a client before any answer */
int tt_tls_handshake(struct tt_tls *tls);
/* server: has it found the client's first message to be made with the key? A replay is, too. */
bool tt_tls_answered(const struct tt_tls *tls);
/* server: 8 bytes that the client drew for its first message, also in find_key. A replay has the same. */
uint64_t tt_tls_random(const struct tt_tls *tls);
/* server, after TT_REMOTE: the rank that the client claimed to be while it had another secret, -1:
 * the handshake failed for another reason */
int tt_tls_impostor(const struct tt_tls *tls);

/* As recv and send with MSG_DONTWAIT, without SIGPIPE; errno EBADMSG: somebody on the way has
 * changed or added bytes; ENOMEM: OpenSSL has no memory, and the session ends. A send that returned EAGAIN is repeated with the same bytes first. */
ssize_t tt_tls_recv(struct tt_tls *tls, void *data, size_t bytes);
ssize_t tt_tls_send(struct tt_tls *tls, const void *data, size_t bytes);
/* May tt_tls_recv read more from the socket than the message that it returns? At first not: a data
 * socket is used without TLS afterwards. */
void tt_tls_read_ahead(struct tt_tls *tls, bool ahead);
/* Are there received bytes that epoll does not see? */
bool tt_tls_pending(const struct tt_tls *tls);
/* Did the latest tt_tls_recv leave nothing, here and in the socket? Then the next one would find nothing, or what
 * epoll will see. */
bool tt_tls_drained(const struct tt_tls *tls);

/* The channel binding tls-exporter (RFC 9266): bytes that no other session has. false: no memory */
#define TT_BINDING 32
bool tt_tls_binding(struct tt_tls *tls, uint8_t ret_binding[TT_BINDING]);
/* Keys that only the two sides know (RFC 8446, 7.5), bound to the connection's hello. false: no
 * memory */
bool tt_tls_data_keys(struct tt_tls *tls, const uint8_t hello[TT_HELLO_BYTES],
		      struct tt_data_keys *ret_keys);

#endif
