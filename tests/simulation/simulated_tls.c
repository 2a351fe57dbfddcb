/*
 * simulated_tls.c - sessions of TLS without cryptography: the same flights, in clear
 *
 * Replaces lib/control/tls.c, whose work takes milliseconds a rank and draws random numbers that no
 * seed repeats. So a message of a compromised rank, corrupted by the simulation, reaches the protocols
 * as if the rank had sent it so. tests/unit/test_tls.c has the sessions themselves.
 *
 *   client: the identity ->  <- server: flight of 4 bytes  client: flight of 4 bytes ->
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/openssl.h"
#include "base/sock.h"
#include "control/control.h"
#include "control/identity.h"
#include "control/tls.h"
#include "tests/simulation/simulation.h"

#define FLIGHT 4
#define WHOLE 2 /* hello or verdict, and goodbye: records of TLS, which are received whole */

struct simulated_session { /* what the library takes for a struct tt_tls */
	int fd;
	bool is_server, begun, answered;
	size_t have;  /* bytes of the other side's flights */
	int messages; /* sent */
	uint8_t identity[TT_IDENTITY_BYTES];
	tt_tls_find_key *find_key;
	void *ctx;
};

/* The clients' identity, which the library takes for a struct tt_tls_context */
SIM_REPLACE(int, tt_tls_context_make, const struct tt_key *key, const uint8_t job[TT_NONCE],
	    int rank, struct tt_tls_context **ret_context)
{
	struct tt_psk_identity *identity = malloc(sizeof(*identity));

	(void)key;
	if (!identity)
		return tt_fail(TT_SYSTEM, "rank %d: no memory", rank);
	*identity = (struct tt_psk_identity){ .protocol = TT_PROTOCOL, .rank = rank };
	memcpy(identity->job, job, TT_NONCE);
	*ret_context = (struct tt_tls_context *)identity;
	return 0;
}

SIM_REPLACE(void, tt_tls_context_free, struct tt_tls_context *context)
{
	free(context);
}

static struct simulated_session *of(const struct tt_tls *tls)
{
	return (struct simulated_session *)(uintptr_t)tls;
}

static struct tt_tls *make(int fd, bool is_server)
{
	struct simulated_session *tls = calloc(1, sizeof(*tls));

	if (!tls) {
		tt_sock_close(fd);
		return NULL;
	}
	tls->fd = fd;
	tls->is_server = is_server;
	return (struct tt_tls *)tls;
}

SIM_REPLACE(struct tt_tls *, tt_tls_client, const struct tt_tls_context *context, int fd,
	    const uint8_t server[TT_PUBLIC_KEY])
{
	struct tt_psk_identity identity = *(const struct tt_psk_identity *)(uintptr_t)context;
	struct tt_tls *tls = make(fd, false);

	memcpy(identity.server, server, TT_SERVER);
	if (tls)
		tt_psk_identity_put(&identity, of(tls)->identity);
	return tls;
}

SIM_REPLACE(struct tt_tls *, tt_tls_server, int fd, tt_tls_find_key *find_key, void *ctx)
{
	struct tt_tls *tls = make(fd, true);

	if (tls) {
		of(tls)->find_key = find_key;
		of(tls)->ctx = ctx;
	}
	return tls;
}

SIM_REPLACE(int, tt_tls_release, struct tt_tls *tls)
{
	int fd = of(tls)->fd;

	free(tls);
	return fd;
}

SIM_REPLACE(void, tt_tls_close, struct tt_tls *tls)
{
	if (tls)
		tt_sock_close(__wrap_tt_tls_release(tls));
}

SIM_REPLACE(int, tt_tls_fd, const struct tt_tls *tls)
{
	return of(tls)->fd;
}

static void work(uint64_t ns)
{
	int key;

	if (ns)
		sim_sleep(&key, sim->now_ns + ns);
}

static bool send_flight(struct simulated_session *tls, const void *flight, size_t bytes)
{
	return send(tls->fd, flight, bytes, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)bytes;
}

static bool has_key(struct simulated_session *tls)
{
	struct tt_psk_identity client;

	return tt_psk_identity_get(tls->identity, TT_IDENTITY_BYTES, &client) &&
	       client.protocol == TT_PROTOCOL && tls->find_key(tls->ctx, &client);
}

SIM_REPLACE(int, tt_tls_handshake, struct tt_tls *session)
{
	struct simulated_session *tls = of(session);
	size_t first = tls->is_server ? TT_IDENTITY_BYTES : 0, want = first + FLIGHT;

	if (!tls->is_server && !tls->begun && !send_flight(tls, tls->identity, TT_IDENTITY_BYTES))
		return tt_fail(TT_REMOTE, "connection lost: %m");
	tls->begun = true;
	while (tls->have < want) {
		size_t left = (tls->have < first ? first : want) - tls->have;
		uint8_t flight[TT_IDENTITY_BYTES];
		ssize_t n = recv(tls->fd, flight, left, MSG_DONTWAIT);

		if (n < 0 && errno == EAGAIN)
			return 0;
		if (n < 0)
			return tt_fail(TT_REMOTE, "connection lost: %m");
		if (n == 0)
			return tt_fail(TT_REMOTE, "connection closed by the other side");
		if (tls->have < first)
			memcpy(tls->identity + tls->have, flight, (size_t)n);
		tls->have += (size_t)n;
		if (tls->have == first && !has_key(tls))
			return tt_fail(TT_REMOTE, "another job or another rank listens there");
		if (tls->have == first && tls->is_server)
			work(sim_handshake_ns());
		tls->answered = tls->have >= first;
		if (tls->have != (tls->is_server ? first : want))
			continue;
		if (!send_flight(tls, "TLS ", FLIGHT))
			return tt_fail(TT_REMOTE, "connection lost: %m");
	}
	return 1;
}

SIM_REPLACE(bool, tt_tls_answered, const struct tt_tls *tls)
{
	return of(tls)->answered;
}

SIM_REPLACE(uint64_t, tt_tls_random, const struct tt_tls *tls)
{
	(void)tls;
	return 0;
}

SIM_REPLACE(int, tt_tls_impostor, const struct tt_tls *tls)
{
	(void)tls;
	return -1;
}

SIM_REPLACE(ssize_t, tt_tls_recv, struct tt_tls *tls, void *data, size_t bytes)
{
	return recv(of(tls)->fd, data, bytes, MSG_DONTWAIT);
}

SIM_REPLACE(ssize_t, tt_tls_send, struct tt_tls *tls, const void *data, size_t bytes)
{
	int record = of(tls)->messages++ < WHOLE ? MSG_EOR : 0;

	return send(of(tls)->fd, data, bytes, MSG_NOSIGNAL | MSG_DONTWAIT | record);
}

SIM_REPLACE(void, tt_tls_read_ahead, struct tt_tls *tls, bool ahead)
{
	(void)tls, (void)ahead;
}

SIM_REPLACE(bool, tt_tls_pending, const struct tt_tls *tls)
{
	(void)tls;
	return false;
}

SIM_REPLACE(bool, tt_tls_drained, const struct tt_tls *tls)
{
	(void)tls;
	return false;
}

SIM_REPLACE(bool, tt_tls_binding, struct tt_tls *tls, uint8_t ret_binding[TT_BINDING])
{
	(void)tls;
	memset(ret_binding, 0, TT_BINDING);
	return true;
}

SIM_REPLACE(bool, tt_tls_data_keys, struct tt_tls *tls, const uint8_t hello[TT_HELLO_BYTES],
	    struct tt_data_keys *ret_keys)
{
	(void)tls, (void)hello;
	memset(ret_keys, 0, sizeof(*ret_keys));
	return true;
}

/* ---- key pairs: the public half is the private one, a signature is a digest ------------------- */

SIM_REPLACE(OSSL_LIB_CTX *, tt_openssl, void)
{
	return NULL;
}

SIM_REPLACE(bool, tt_identity_make, struct tt_identity *ret_identity)
{
	*ret_identity = (struct tt_identity){ .secret = tt_key_alloc() };
	if (!ret_identity->secret)
		return false;
	for (int i = 0; i < TT_PUBLIC_KEY; i++)
		ret_identity->public_key[i] = (uint8_t)(1 + sim_random(255));
	return true;
}

static uint64_t digest(const uint8_t *public_key, const struct tt_writer *statement)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < TT_PUBLIC_KEY; i++)
		sum = tt_mix(sum, public_key[i]);
	for (size_t i = 0; i < statement->have; i++)
		sum = tt_mix(sum, statement->data[i]);
	return sum;
}

SIM_REPLACE(bool, tt_identity_sign, const struct tt_identity *identity,
	    const struct tt_writer *statement, uint8_t ret_signature[TT_SIGNATURE])
{
	uint64_t sum = digest(identity->public_key, statement);

	memset(ret_signature, 0, TT_SIGNATURE);
	memcpy(ret_signature, &sum, sizeof(sum));
	return !statement->failed;
}

SIM_REPLACE(int, tt_identity_verify, const uint8_t public_key[TT_PUBLIC_KEY],
	    const struct tt_writer *statement, const uint8_t signature[TT_SIGNATURE])
{
	uint64_t sum = digest(public_key, statement);

	if (statement->failed)
		return TT_SYSTEM;
	work(sim_handshake_ns() / 4);
	return tt_public_key_known(public_key) && !memcmp(signature, &sum, sizeof(sum));
}
