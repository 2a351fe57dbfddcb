/*
 * control_identity.c - proofs that a connection's other side is the rank that it says
 *
 * Called by control_accept.c, control_authenticate.c and the bootstrap. All ranks hold the job's
 * key, so TLS shows that the other side belongs to the job, not which rank it is. Each rank has a
 * key pair (identity.h), and signs the first message of a connection together with a value of this
 * session that no other has: a signature serves nowhere else, also not to one who holds the job's
 * key and sits between two ranks.
 *
 *   rank r -> rank 0    registration: rank 0 binds r to the key that signed it
 *   rank 0 -> rank r    PARENT: the parent's key; a certificate, rank 0's signature of r's key
 *   rank r -> parent    hello with the certificate
 *   rank 0 -> all       TABLE: every rank's key, signed by rank 0; in a large job HOSTS, with the keys
 *                       of the holders, and TABLE to the holders, each of whose groups is signed
 *   rank r -> rank s    hello; s has the table, or takes the certificate
 *
 * The job's key alone protects the registration: of two processes that say to be one rank, rank 0
 * believes the first, and the second ends the join.
 */
#include <stdlib.h>
#include <string.h>

#include "control/control_internal.h"

#define TEXT 64
#define STATEMENT (TEXT + TT_NONCE + 4 + TT_BINDING + sizeof(struct tt_hello_message))

/* Begin a statement of this job: w is empty. */
static void begin(const struct tt_control_endpoint *ep, const char *what, struct tt_writer *w)
{
	tt_put_text(w, what);
	tt_put_bytes(w, ep->auth.job, TT_NONCE);
}

/* A statement of one side of a connection. The hello has the client's attempt: the server's may be
 * another, which is its verdict. */
static void state(const struct tt_control_endpoint *ep, const char *side, struct tt_tls *tls,
		  const uint8_t hello[TT_HELLO_BYTES], struct tt_writer *w)
{
	uint8_t binding[TT_BINDING];

	begin(ep, side, w);
	w->failed |= !tt_tls_binding(tls, binding);
	tt_put_bytes(w, binding, TT_BINDING);
	tt_put_bytes(w, hello, TT_HELLO_BYTES);
}

static void state_verdict(const struct tt_control_endpoint *ep, struct tt_tls *tls,
			  const uint8_t hello[TT_HELLO_BYTES],
			  const struct tt_verdict_message *message, struct tt_writer *w)
{
	state(ep, "tutti: verdict of a server", tls, hello, w);
	tt_put(w, message->verdict, 1);
}

/* ---- the client ------------------------------------------------------------------------------ */

bool tt_hello_sign(const struct tt_control_endpoint *ep, struct tt_tls *tls,
		   struct tt_hello_message *message)
{
	uint8_t bytes[STATEMENT];
	struct tt_writer w = TT_WRITER_INTO(bytes);

	state(ep, "tutti: hello of a client", tls, message->hello, &w);
	memcpy(message->public_key, ep->auth.identity.public_key, TT_PUBLIC_KEY);
	memcpy(message->certificate, ep->auth.certificate, TT_SIGNATURE);
	return tt_identity_sign(&ep->auth.identity, &w, message->signature);
}

int tt_verdict_check(const struct tt_control_endpoint *ep, struct tt_tls *tls,
		     const uint8_t hello[TT_HELLO_BYTES], const uint8_t key[TT_PUBLIC_KEY],
		     const struct tt_verdict_message *message)
{
	uint8_t bytes[STATEMENT];
	struct tt_writer w = TT_WRITER_INTO(bytes);

	if (tt_public_key_known(key) && !tt_public_key_is(message->public_key, key))
		return 0;
	state_verdict(ep, tls, hello, message, &w);
	return tt_identity_verify(message->public_key, &w, message->signature);
}

/* ---- the server ------------------------------------------------------------------------------ */

bool tt_verdict_sign(const struct tt_control_endpoint *ep, struct tt_tls *tls,
		     const uint8_t hello[TT_HELLO_BYTES], struct tt_verdict_message *message)
{
	uint8_t bytes[STATEMENT];
	struct tt_writer w = TT_WRITER_INTO(bytes);

	state_verdict(ep, tls, hello, message, &w);
	memcpy(message->public_key, ep->auth.identity.public_key, TT_PUBLIC_KEY);
	return tt_identity_sign(&ep->auth.identity, &w, message->signature);
}

static void state_certificate(const struct tt_control_endpoint *ep, int rank,
			      const uint8_t public_key[TT_PUBLIC_KEY], struct tt_writer *w)
{
	begin(ep, "tutti: key of a rank", w);
	tt_put(w, (uint32_t)ep->auth.epoch, 4);
	tt_put(w, (uint32_t)rank, 4);
	tt_put_bytes(w, public_key, TT_PUBLIC_KEY);
}

/* Is the key in the directory, or certified by rank 0, as the rank's? 1 | 0 | TT_SYSTEM */
static int is_key_of(const struct tt_control_endpoint *ep, int rank,
		     const struct tt_hello_message *message)
{
	struct tt_business_card record;
	uint8_t bytes[STATEMENT];
	struct tt_writer w = TT_WRITER_INTO(bytes);
	const uint8_t *key = rank ? record.public_key : ep->peers.root_key;

	tt_directory_get(&ep->peers.directory, rank, &record);
	if (tt_public_key_known(key))
		return tt_public_key_is(message->public_key, key);
	state_certificate(ep, rank, message->public_key, &w);
	return tt_identity_verify(ep->peers.root_key, &w, message->certificate);
}

enum tt_verdict tt_hello_check(const struct tt_control_endpoint *ep, struct tt_tls *tls,
			       const struct tt_hello *hello, const struct tt_hello_message *message)
{
	uint8_t bytes[STATEMENT];
	struct tt_writer w = TT_WRITER_INTO(bytes);
	int holds = 1;

	bool of_rank = hello->purpose != TT_P_REGISTER && hello->purpose != TT_P_MONITOR;

	if (of_rank && !tt_public_key_known(ep->peers.root_key))
		return TT_V_EARLY; /* this rank has not registered */
	if (of_rank)
		holds = is_key_of(ep, hello->from, message);
	state(ep, "tutti: hello of a client", tls, message->hello, &w);
	if (holds == 1)
		holds = tt_identity_verify(message->public_key, &w, message->signature);
	return holds < 0 ? 0 : holds ? TT_V_WELCOME : TT_V_IMPOSTOR;
}

/* ---- rank 0 ---------------------------------------------------------------------------------- */

void tt_certificate_put(const struct tt_control_endpoint *ep, int rank, struct tt_writer *w)
{
	uint8_t bytes[STATEMENT], signature[TT_SIGNATURE];
	struct tt_writer statement = TT_WRITER_INTO(bytes);
	struct tt_business_card record;

	tt_directory_get(&ep->peers.directory, rank, &record);
	state_certificate(ep, rank, record.public_key, &statement);
	if (tt_identity_sign(&ep->auth.identity, &statement, signature))
		tt_put_bytes(w, signature, sizeof(signature));
	else
		w->failed = true;
}

void tt_table_begin(const struct tt_control_endpoint *ep, struct tt_writer *table)
{
	begin(ep, "tutti: table of business cards", table);
	tt_put(table, (uint32_t)ep->auth.epoch, 4);
}

void tt_hosts_begin(const struct tt_control_endpoint *ep, struct tt_writer *hosts)
{
	begin(ep, "tutti: hosts and holders", hosts);
	tt_put(hosts, (uint32_t)ep->auth.epoch, 4);
}

static void state_group(const struct tt_control_endpoint *ep, int group, const uint8_t *records,
			size_t bytes, struct tt_writer *w)
{
	begin(ep, "tutti: some business cards", w);
	tt_put(w, (uint32_t)ep->auth.epoch, 4);
	tt_put(w, (uint32_t)group, 4);
	tt_put_bytes(w, records, bytes);
}

void tt_group_sign(const struct tt_control_endpoint *ep, int group, size_t at,
		   struct tt_writer *table)
{
	uint8_t signature[TT_SIGNATURE];
	struct tt_writer w = { 0 };

	state_group(ep, group, table->data + at, table->have - at, &w);
	if (tt_identity_sign(&ep->auth.identity, &w, signature))
		tt_put_bytes(table, signature, sizeof(signature));
	else
		table->failed = true;
	free(w.data);
}

int tt_group_check(const struct tt_control_endpoint *ep, int group, const uint8_t *records,
		   size_t bytes)
{
	struct tt_writer w = { 0 };
	int holds = 0;

	if (bytes < TT_SIGNATURE)
		return 0;
	bytes -= TT_SIGNATURE;
	state_group(ep, group, records, bytes, &w);
	holds = tt_identity_verify(ep->peers.root_key, &w, records + bytes);
	free(w.data);
	return holds;
}

void tt_table_sign(const struct tt_control_endpoint *ep, struct tt_writer *table)
{
	uint8_t signature[TT_SIGNATURE];

	if (tt_identity_sign(&ep->auth.identity, table, signature))
		tt_put_bytes(table, signature, sizeof(signature));
	else
		table->failed = true;
}

bool tt_table_open(const struct tt_control_endpoint *ep,
		   void begin_it(const struct tt_control_endpoint *ep, struct tt_writer *w),
		   const uint8_t *table, size_t bytes, struct tt_reader *ret_records)
{
	uint8_t start[STATEMENT];
	struct tt_writer w = TT_WRITER_INTO(start);

	begin_it(ep, &w);
	if (bytes < w.have + TT_SIGNATURE || memcmp(table, start, w.have))
		return false;
	*ret_records = (struct tt_reader){ .at = table + w.have,
					   .left = bytes - w.have - TT_SIGNATURE };
	return true;
}

int tt_table_check(const struct tt_control_endpoint *ep, const uint8_t *table, size_t bytes)
{
	struct tt_writer statement = { .data = (uint8_t *)(uintptr_t)table,
				       .have = bytes - TT_SIGNATURE };

	return tt_identity_verify(ep->peers.root_key, &statement, table + statement.have);
}
