/*
 * test_tls.c - sessions of TLS between two ends, with a relay between them that records or changes
 * the bytes
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/openssl.h"
#include "base/sock.h"
#include "control/tls.h"
#include "tests/support/tls_pair.h"

static int receives; /* calls of recv in this process */

ssize_t recv(int fd, void *data, size_t bytes, int flags)
{
	receives++;
	return recvfrom(fd, data, bytes, flags, NULL, NULL);
}

#define MARKER "a host name, a setting and the text of a tag"

struct relay {
	struct tt_tls *client, *server;
	int fd[2];     /* the relay's ends: to the client, to the server */
	size_t passed; /* bytes of both directions */
	long flip;     /* bit that changes on the way, -1: none */
	uint8_t seen[1 << 12];
};

static struct tt_tls_context *context_of(uint8_t key_byte, uint8_t job_byte, int rank)
{
	struct tt_key *key = tt_key_alloc(); /* lives as long as the test */
	struct tt_tls_context *context;

	cr_assert(key);
	key->bytes[0] = key_byte;
	cr_assert_eq(tt_tls_context_make(key, (uint8_t[TT_NONCE]){ job_byte }, rank, &context), 0);
	return context;
}

/* The server's job is number 2. */
static struct tt_key server_key = { { 1 } };

static const struct tt_key *find_key(void *ctx, const struct tt_psk_identity *client)
{
	(void)ctx;
	return client->job[0] == 2 ? &server_key : NULL;
}

static struct relay make(struct tt_tls_context *client, long flip)
{
	int a[2], b[2];
	struct relay r = { .flip = flip };

	cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, a), 0);
	cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, b), 0);
	r.client = tt_tls_client(client, a[0], (uint8_t[TT_PUBLIC_KEY]){ 0 });
	r.server = tt_tls_server(b[0], find_key, NULL);
	r.fd[0] = a[1];
	r.fd[1] = b[1];
	return r;
}

static void unmake(struct relay *r)
{
	tt_tls_close(r->client);
	tt_tls_close(r->server);
	close(r->fd[0]);
	close(r->fd[1]);
}

/* Move what has come; returns the number of bytes. */
static size_t pass(struct relay *r)
{
	size_t before = r->passed;

	for (int from = 0; from < 2; from++) {
		uint8_t *at = r->seen + r->passed;
		ssize_t n = recv(r->fd[from], at, sizeof(r->seen) - r->passed, MSG_DONTWAIT);

		if (n <= 0)
			continue;
		if (r->flip >= (long)r->passed * 8 && r->flip < (long)(r->passed + (size_t)n) * 8)
			r->seen[r->flip / 8] ^= (uint8_t)(1 << r->flip % 8);
		cr_assert_eq(send(r->fd[!from], at, (size_t)n, MSG_NOSIGNAL), n);
		r->passed += (size_t)n;
	}
	return r->passed - before;
}

/* Handshake of both sides, until nothing moves any more; *ret: 1, 0 or the error of each. */
static void shake(struct relay *r, int *ret_client, int *ret_server)
{
	*ret_client = *ret_server = 0;
	do {
		if (!*ret_client)
			*ret_client = tt_tls_handshake(r->client);
		if (!*ret_server)
			*ret_server = tt_tls_handshake(r->server);
	} while (pass(r));
}

/* The client sends the marker. true: it arrived; other bytes never do. */
static bool deliver(struct relay *r)
{
	char got[sizeof(MARKER)] = "";
	ssize_t n;

	(void)!tt_tls_send(r->client, MARKER, sizeof(MARKER));
	pass(r);
	n = tt_tls_recv(r->server, got, sizeof(got));
	cr_assert(n <= 0 || (n == sizeof(MARKER) && !strcmp(got, MARKER)), "wrong bytes");
	return n > 0;
}

Test(tls, a_listener_sees_no_text, .timeout = 60)
{
	struct tt_tls_context *context = context_of(1, 2, 3);
	struct relay r = make(context, -1);
	int client, server;

	shake(&r, &client, &server);
	cr_assert(client == 1 && server == 1);
	cr_assert(deliver(&r));
	for (size_t word = 0; word + 6 < sizeof(MARKER); word++)
		cr_assert_not(memmem(r.seen, r.passed, &MARKER[word], 6));
	unmake(&r);
	tt_tls_context_free(context);
}

/* A sample of the bits of a connection. A changed length may also leave both sides waiting, and the
 * version in a record's header is ignored (RFC 8446, 5.1). */
Test(tls, a_changed_bit_never_makes_other_data, .timeout = 120)
{
	struct tt_tls_context *context = context_of(1, 2, 3);
	size_t bits = 8, errors = 0;

	for (long flip = 0; (size_t)flip < bits; flip += 13) {
		struct relay r = make(context, flip);
		int client, server;

		shake(&r, &client, &server);
		if (client == 1 && server == 1)
			errors += !deliver(&r);
		else
			errors += client < 0 || server < 0;
		bits = 8 * r.passed > bits ? 8 * r.passed : bits;
		unmake(&r);
	}
	cr_assert_gt(errors, 100, "%zu bits tried", bits / 13);
	tt_tls_context_free(context);
}

/* The application may have left any error in the queue that it shares with the library. */
Test(tls, an_older_error_of_the_application_does_not_explain_altered_data, .timeout = 60)
{
	struct tt_tls_context *context = context_of(1, 2, 3);
	struct relay r = make(context, -1);
	int client, server;

	shake(&r, &client, &server);
	cr_assert(client == 1 && server == 1);
	ERR_raise(ERR_LIB_USER, ERR_R_MALLOC_FAILURE);
	r.flip = (long)(r.passed + 20) * 8;
	cr_expect_not(deliver(&r));
	cr_expect_eq(errno, EBADMSG, "%s", strerror(errno));
	cr_expect_eq(ERR_GET_REASON(ERR_get_error()), ERR_R_MALLOC_FAILURE);
	cr_expect_eq(ERR_get_error(), 0);
	unmake(&r);
	tt_tls_context_free(context);
}

Test(tls, another_secret_and_another_job_are_named_and_a_stranger_gets_an_alert_only, .timeout = 60)
{
	static const struct {
		uint8_t key, job;
		const char *text;
		int impostor;
	} cases[] = { { 9, 2, "a different secret", 3 }, { 1, 9, "another job", -1 } };

	for (int i = 0; i < 2; i++) {
		struct tt_tls_context *other = context_of(cases[i].key, cases[i].job, 3);
		struct relay r = make(other, -1);
		int client, server;

		shake(&r, &client, &server);
		cr_assert(client < 0 && server < 0);
		cr_assert_eq(tt_tls_impostor(r.server), cases[i].impostor);
		/* 7 bytes of a plain alert, after the client's first message */
		cr_assert_eq(r.seen[r.passed - 7], 21);
		cr_assert(r.passed < 512 && r.passed > 7);
		unmake(&r);
		r = make(other, -1);
		while (!(client = tt_tls_handshake(r.client))) {
			pass(&r);
			tt_tls_handshake(r.server);
			pass(&r);
		}
		cr_assert(strstr(tt_error_text(), cases[i].text), "%s", tt_error_text());
		unmake(&r);
		tt_tls_context_free(other);
	}
}

Test(tls, another_version_is_named, .timeout = 60)
{
	struct tt_tls_context *context = context_of(1, 2, 3);
	struct relay r = make(context, -1);
	uint8_t *job;
	int client;

	cr_assert_eq(tt_tls_handshake(r.client), 0);
	pass(&r);
	job = memmem(r.seen, r.passed, (uint8_t[TT_NONCE]){ 2 }, TT_NONCE);
	cr_assert(job);
	unmake(&r);
	r = make(context, (job - r.seen - 2) * 8); /* two bytes of the version precede the job */
	while (!(client = tt_tls_handshake(r.client))) {
		pass(&r);
		tt_tls_handshake(r.server);
		pass(&r);
	}
	cr_assert(client < 0 && strstr(tt_error_text(), "another version of Tutti"), "%s",
		  tt_error_text());
	cr_assert_eq(tt_tls_impostor(r.server), -1);
	unmake(&r);
	tt_tls_context_free(context);
}

/* OpenSSL has no memory at this request, once; 0: it has. */
static int requests_left;

static void *request(void *old, size_t bytes, const char *file, int line)
{
	(void)file;
	(void)line;
	return requests_left && --requests_left == 0 ? NULL : realloc(old, bytes);
}

static void *first_request(size_t bytes, const char *file, int line)
{
	return request(NULL, bytes, file, line);
}

static void release(void *old, const char *file, int line)
{
	(void)file;
	(void)line;
	free(old);
}

/* Before Criterion uses OpenSSL, which takes no functions later */
static bool counts_requests;

__attribute__((constructor)) static void count_requests(void)
{
	counts_requests = CRYPTO_set_mem_functions(first_request, request, release) == 1;
}

/* Does the server's part of a handshake fail in this process where the k-th request finds no memory? */
static bool fails_here(struct tt_tls_context *context, int k)
{
	struct relay r = make(context, -1);
	int rc;

	cr_assert_eq(tt_tls_handshake(r.client), 0);
	pass(&r);
	requests_left = k;
	rc = tt_tls_handshake(r.server);
	requests_left = 0;
	unmake(&r);
	return rc < 0 && strstr(tt_error_text(), "OpenSSL of this process fails");
}

/* A library context is never freed, so without a limit these handshakes fill the memory, and each context has an
 * address of its own. */
Test(tls, handshakes_that_fail_here_renew_the_library_context_eight_times_at_most, .timeout = 60)
{
	struct tt_tls_context *context;
	int failures = 0, renewals = 0;

	cr_assert(counts_requests);
	context = context_of(1, 2, 3);
	for (int k = 1; k <= 100; k++) {
		const OSSL_LIB_CTX *before = tt_openssl();

		failures += fails_here(context, k);
		renewals += tt_openssl() != before;
	}
	cr_expect_gt(failures, 16, "%d handshakes failed here", failures);
	cr_expect_eq(renewals, 8, "%d renewals after %d failures", renewals, failures);
	tt_tls_context_free(context);
}

/* Data sockets are used without TLS after the verdict. */
Test(tls, a_session_leaves_no_byte_behind_and_both_sides_get_the_same_keys, .timeout = 60)
{
	struct tt_tls_context *context = context_of(1, 2, 3);
	struct relay r = make(context, -1);
	uint8_t hello[TT_HELLO_BYTES] = { 1 }, got[8];
	struct tt_data_keys c, s;
	int client, server, fd[2];

	shake(&r, &client, &server);
	cr_assert(client == 1 && server == 1);
	cr_assert(deliver(&r));
	cr_assert_eq(tt_tls_send(r.server, "w", 1), 1); /* the verdict, and the stream behind it */
	cr_assert_eq(send(tt_tls_fd(r.server), "raw", 3, 0), 3);
	pass(&r);
	cr_assert_eq(tt_tls_recv(r.client, got, 1), 1);
	cr_assert(tt_tls_data_keys(r.client, hello, &c) && tt_tls_data_keys(r.server, hello, &s));
	cr_assert(!memcmp(c.send, s.recv, 32) && !memcmp(c.recv, s.send, 32));
	cr_assert(memcmp(c.send, c.recv, 32));
	fd[0] = tt_tls_release(r.client);
	fd[1] = tt_tls_release(r.server);
	r.client = r.server = NULL;
	cr_assert_eq(recv(fd[0], got, sizeof(got), MSG_DONTWAIT), 3);
	cr_assert(recv(fd[1], got, sizeof(got), MSG_DONTWAIT) < 0 && errno == EAGAIN);
	close(fd[0]);
	close(fd[1]);
	unmake(&r);
	tt_tls_context_free(context);
}

/* A rank says goodbye, and closes with bytes unread: what fails to be sent is not the end of what
 * can be received. */
Test(tls, a_message_before_the_end_is_received_after_sends_that_failed, .timeout = 60)
{
	static const char large[1000];
	struct tt_tls_context *context = context_of(1, 2, 3);
	struct tt_tls *client, *server;
	char got[sizeof(MARKER)] = "";

	cr_assert(tls_pair(context, &server_key, &server, &client));
	cr_assert_eq(tt_tls_send(server, MARKER, sizeof(MARKER)), sizeof(MARKER));
	tt_tls_close(server);
	for (size_t bytes = sizeof(large); bytes; bytes /= 10) {
		cr_assert_eq(tt_tls_send(client, large, bytes), -1);
		cr_assert_eq(errno, EPIPE);
	}
	cr_assert_eq(tt_tls_recv(client, got, sizeof(got)), sizeof(MARKER));
	cr_assert_str_eq(got, MARKER);
	cr_assert_eq(tt_tls_recv(client, got, sizeof(got)), 0);
	tt_tls_close(client);
	tt_tls_context_free(context);
}

/* A message costs one call of recv, not one for the header of its record and one for the rest. */
Test(tls, reading_ahead_takes_all_that_has_come, .timeout = 60)
{
	struct tt_tls_context *context = context_of(1, 2, 3);
	struct tt_tls *client, *server;
	char got[8];

	cr_assert(tls_pair(context, &server_key, &server, &client));
	cr_assert_eq(tt_tls_send(client, "first", 6), 6);
	cr_assert_eq(tt_tls_send(client, "second", 7), 7);
	tt_tls_read_ahead(server, true);
	cr_assert_eq(tt_tls_recv(server, got, sizeof(got)), 6);
	cr_assert(tt_tls_pending(server));
	cr_assert_lt(recv(tt_tls_fd(server), got, 1, MSG_PEEK | MSG_DONTWAIT), 0);
	tt_tls_read_ahead(server, false);
	cr_assert_eq(tt_tls_recv(server, got, sizeof(got)), 7);
	cr_assert_str_eq(got, "second");
	cr_assert_not(tt_tls_pending(server));
	tt_tls_close(client);
	tt_tls_close(server);
	tt_tls_context_free(context);
}

/* A handshake needs one recv for each flight, not two for each of the four messages of the server's; one more where
 * a side is asked before the flight has come. */
Test(tls, a_flight_of_a_handshake_is_taken_by_one_recv, .timeout = 60)
{
	struct tt_tls_context *context = context_of(1, 2, 3);
	struct tt_tls *client, *server;
	int fd[2];

	cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fd), 0);
	client = tt_tls_client(context, fd[0], (uint8_t[TT_PUBLIC_KEY]){ 0 });
	server = tt_tls_server(fd[1], find_key, NULL);
	receives = 0;
	cr_assert_eq(tt_tls_handshake(client), 0);
	cr_assert_eq(tt_tls_handshake(server), 0);
	cr_assert_eq(tt_tls_handshake(client), 1);
	cr_assert_eq(tt_tls_handshake(server), 1);
	cr_expect_leq(receives, 5, "%d", receives);
	tt_tls_close(client);
	tt_tls_close(server);
	tt_tls_context_free(context);
}

/* A connection asks epoll, not the socket, whether there is more. */
Test(tls, a_short_read_has_drained_the_socket, .timeout = 60)
{
	struct tt_tls_context *context = context_of(1, 2, 3);
	struct tt_tls *client, *server;
	char got[8];

	cr_assert(tls_pair(context, &server_key, &server, &client));
	tt_tls_read_ahead(server, true);
	cr_assert_eq(tt_tls_send(client, "first", 6), 6);
	cr_assert_eq(tt_tls_send(client, "second", 7), 7);
	cr_assert_eq(tt_tls_recv(server, got, sizeof(got)), 6);
	cr_expect_not(tt_tls_drained(server), "the second is here");
	cr_assert_eq(tt_tls_recv(server, got, sizeof(got)), 7);
	cr_expect(tt_tls_drained(server));
	cr_assert_lt(tt_tls_recv(server, got, sizeof(got)), 0);
	cr_expect_not(tt_tls_drained(server), "an empty read says nothing");
	tt_tls_close(client);
	tt_tls_close(server);
	tt_tls_context_free(context);
}

/* The length of the next record, with its header. */
static int next_record(struct tt_tls *tls)
{
	uint8_t head[5];

	cr_assert_eq(recv(tt_tls_fd(tls), head, sizeof(head), MSG_PEEK | MSG_DONTWAIT), 5);
	return 5 + head[3] * 256 + head[4];
}

/* A record of one byte has 23 bytes, a KeyUpdate 27 (RFC 8446, 4.6.3 and 5.2). */
Test(tls, keys_are_renewed_before_they_wear_out, .timeout = 1200)
{
	struct tt_tls_context *context = context_of(1, 2, 3);
	struct tt_tls *client, *server;
	int updates = 0;

	if (!getenv("TT_TIER") || !strcmp(getenv("TT_TIER"), "default"))
		cr_skip_test("four million records: only in tier full");
	cr_assert(tls_pair(context, &server_key, &server, &client));
	for (uint32_t i = 0; i < (1u << 22) + 10; i++) {
		uint8_t got = 0;

		cr_assert_eq(tt_tls_send(client, &(uint8_t){ (uint8_t)i }, 1), 1);
		updates += next_record(server) == 27;
		cr_assert_eq(tt_tls_recv(server, &got, 1), 1);
		cr_assert_eq(got, (uint8_t)i);
	}
	cr_assert_eq(updates, 1);
	tt_tls_close(client);
	tt_tls_close(server);
	tt_tls_context_free(context);
}
