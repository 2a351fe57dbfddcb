/*
 * tls_pair.h - two ends of an established session of TLS, for a test that is a rank's peer
 */
#ifndef TLS_PAIR_H
#define TLS_PAIR_H

#include <sys/socket.h>
#include <unistd.h>

#include "control/tls.h"

/* For tt_tls_server: every client's key */
static inline const struct tt_key *tls_any_client(void *key, const struct tt_psk_identity *client)
{
	(void)client;
	return key;
}

/* key: the context's. false: no descriptor, or the handshake failed */
static inline bool tls_pair(struct tt_tls_context *context, struct tt_key *key,
			    struct tt_tls **ret_server, struct tt_tls **ret_client)
{
	int fds[2], client = 0, server = 0;

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds))
		return false;
	*ret_server = tt_tls_server(fds[0], tls_any_client, key);
	*ret_client = tt_tls_client(context, fds[1], (uint8_t[TT_PUBLIC_KEY]){ 0 });
	while (client >= 0 && server >= 0 && !(client && server)) {
		client = client ? client : tt_tls_handshake(*ret_client);
		server = server ? server : tt_tls_handshake(*ret_server);
	}
	return client == 1 && server == 1;
}

/* The first message of a client that is rank 1 of the job. Returns its bytes, 0: no session */
static inline size_t tls_client_hello(const uint8_t job[TT_NONCE], const struct tt_key *key,
				      uint8_t *ret_bytes, size_t room)
{
	struct tt_tls_context *context;
	struct tt_tls *tls;
	ssize_t n = 0;
	int fds[2];

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds) ||
	    tt_tls_context_make(key, job, 1, &context))
		return 0;
	tls = tt_tls_client(context, fds[0], (uint8_t[TT_PUBLIC_KEY]){ 0 });
	if (tls && tt_tls_handshake(tls) == 0)
		n = recv(fds[1], ret_bytes, room, 0);
	tt_tls_close(tls);
	tt_tls_context_free(context);
	close(fds[1]);
	return n > 0 ? (size_t)n : 0;
}

#endif
