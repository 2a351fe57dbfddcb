/*
 * test_encryption.c - encrypted tcp links: the units of seal.h, the wire, and altered bytes
 *
 * Most tests hold both ends of the wire of two endpoints: they record the bytes of rank 0 and
 * present them to rank 1, changed or not.
 */
#include <criterion/criterion.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/support/harness_traffic.h"
#include "tests/support/must.h"
#include "transports/tcp/tcp_sealed.h"

/* ---- units ----------------------------------------------------------------------------------- */

#define UNIT 40

static const uint8_t key[32] = "0123456789abcdef0123456789ab";

struct unit {
	uint8_t bytes[UNIT], tag[TT_TAG];
};

static struct tt_seal side(bool seal, uint64_t first)
{
	struct tt_seal s;

	cr_assert(tt_seal_make(&s, key, seal));
	s.unit = first;
	return s;
}

static struct unit seal_one(struct tt_seal *s, uint8_t content)
{
	struct unit u;

	memset(u.bytes, content, UNIT);
	cr_assert(tt_seal_begin(s) && tt_seal_part(s, u.bytes, u.bytes, 7) &&
		  tt_seal_part(s, u.bytes + 7, u.bytes + 7, UNIT - 7) && tt_seal_end(s, u.tag));
	return u;
}

static bool opens(struct tt_seal *s, const struct unit *sealed, uint8_t content)
{
	struct unit u = *sealed;
	bool good = tt_seal_begin(s) && tt_seal_part(s, u.bytes, u.bytes, UNIT) &&
		    tt_seal_end(s, u.tag);

	for (int i = 0; good && i < UNIT; i++)
		cr_assert_eq(u.bytes[i], content);
	return good;
}

Test(encryption, a_unit_opens_once_in_its_place_and_unchanged, .timeout = 60)
{
	struct tt_seal out = side(true, 0), in;
	struct unit u[3];

	for (uint8_t i = 0; i < 3; i++)
		u[i] = seal_one(&out, i);
	in = side(false, 0);
	cr_assert(opens(&in, &u[0], 0) && opens(&in, &u[1], 1) && opens(&in, &u[2], 2));
	in.unit = 1;
	cr_assert(!opens(&in, &u[0], 0), "repeated");
	in.unit = 1;
	cr_assert(!opens(&in, &u[2], 2), "one left out");
	for (size_t bit = 0; bit < 8 * sizeof(struct unit); bit++) {
		struct unit changed = u[1];

		((uint8_t *)&changed)[bit / 8] ^= (uint8_t)(1 << bit % 8);
		in.unit = 1;
		cr_assert(!opens(&in, &changed, 1), "bit %zu", bit);
	}
	in.unit = 1;
	cr_assert(opens(&in, &u[1], 1));
	tt_seal_free(&in);
	tt_seal_free(&out);
}

Test(encryption, both_sides_replace_the_key_after_the_same_unit, .timeout = 60)
{
	struct tt_seal out = side(true, TT_SEAL_UNITS - 2), in = side(false, TT_SEAL_UNITS - 2),
		       old = side(false, TT_SEAL_UNITS + 1);
	struct unit u;

	for (uint8_t i = 0; i < 6; i++) {
		u = seal_one(&out, i);
		cr_assert(opens(&in, &u, i));
		cr_assert(i != 3 || !opens(&old, &u, i), "the old key opens a unit");
	}
	tt_seal_free(&old);
	tt_seal_free(&in);
	tt_seal_free(&out);
}

static int compare(const void *a, const void *b)
{
	return memcmp(a, b, UNIT);
}

/* Equal units at different places are different bytes: no nonce is used twice under a key. */
Test(encryption, no_key_stream_is_used_twice, .timeout = 120)
{
	enum { UNITS = 3 * TT_SEAL_UNITS };
	struct unit *all = malloc(UNITS * sizeof(*all));
	struct tt_seal out = side(true, 0);

	for (int i = 0; i < UNITS; i++)
		all[i] = seal_one(&out, 0);
	qsort(all, UNITS, sizeof(*all), compare);
	for (int i = 1; i < UNITS; i++)
		cr_assert(compare(&all[i - 1], &all[i]));
	tt_seal_free(&out);
	free(all);
}

/* ---- the wire -------------------------------------------------------------------------------- */

#define MESSAGES 9
#define LARGEST 20000
#define WIRE_BYTES (64 << 10)
#define MARKER "marker that no listener may read"

static const size_t sizes[MESSAGES] = { 4,       0, TT_TCP_SMALL, TT_TCP_SMALL + 1, 1000, 1, 3000,
					LARGEST, 8 };

/* Byte i of message m; the markers are where i is small. */
static uint8_t content(int m, size_t i)
{
	return i < strlen(MARKER) ? (uint8_t)MARKER[i] : (uint8_t)mix((uint64_t)m << 32 | i);
}

/* A rank of two, whose socket's other end the test holds */
struct end {
	struct tt_world world;
	struct tt_endpoint *ep;
	struct tt_link *link;
	int mine, wire, host_of[2];
};

static int dial(void *ctx, int peer, int channel)
{
	return (void)ctx, (void)peer, channel;
}

static int take(void *ctx, int peer, int channel, int *ret_fd, struct tt_data_keys *ret_keys)
{
	struct end *e = ctx;

	(void)channel;
	memset(peer ? ret_keys->send : ret_keys->recv, 1, sizeof(ret_keys->send));
	memset(peer ? ret_keys->recv : ret_keys->send, 2, sizeof(ret_keys->send));
	*ret_fd = e->mine;
	return 1;
}

static void open_end_with(struct end *e, int rank, int encrypt, bool same_host, int fd)
{
	*e = (struct end){ .mine = fd, .wire = -1, .host_of = { 0, !same_host } };
	e->world = (struct tt_world){ .rank = rank,
				      .nranks = 2,
				      .host_of = e->host_of,
				      .message_bytes = LARGEST,
				      .nchannels = 1,
				      .encrypt = encrypt,
				      .dial = dial,
				      .take = take,
				      .ctx = e };
	cr_assert(!tt_tcp.open(&e->world, &e->ep));
	cr_assert(!tt_tcp.connect(e->ep, 1 - rank, 0, &e->link) && tt_tcp.ready(e->link) == 1);
}

static void open_end(struct end *e, int rank, int encrypt, bool same_host)
{
	int fds[2];

	cr_assert(!socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds));
	open_end_with(e, rank, encrypt, same_host, fds[0]);
	e->wire = fds[1];
}

static void close_end(struct end *e)
{
	tt_tcp.close(e->ep);
	close(e->wire);
}

/* The bytes on the wire when rank 0 sends all messages; returns their number. */
static size_t record(int encrypt, bool same_host, uint8_t *wire)
{
	uint8_t *data = malloc(MESSAGES * LARGEST);
	struct end e;
	size_t have = 0;

	open_end(&e, 0, encrypt, same_host);
	for (int m = 0; m < MESSAGES; m++) {
		for (size_t i = 0; i < sizes[m]; i++)
			data[m * LARGEST + i] = content(m, i);
		cr_assert(tt_tcp.post(e.link, data + m * LARGEST, sizes[m], 77) == 1);
	}
	cr_assert(tt_tcp.progress(e.ep) >= 0 && e.link->completed == MESSAGES);
	while (have < WIRE_BYTES) {
		ssize_t n = recv(e.wire, wire + have, WIRE_BYTES - have, MSG_DONTWAIT);

		if (n <= 0)
			break;
		have += (size_t)n;
	}
	cr_assert(have > 4096 && have < WIRE_BYTES);
	close_end(&e);
	free(data);
	return have;
}

enum outcome { RIGHT, WRONG_DATA, WRONG_CALL, ALTERED, LOST };

/* Receives message m, in place (recv) or not (peek). 1 right | 0 wrong | < 0 */
static int receive_message(struct end *e, int m, uint8_t *into)
{
	const void *data = into;
	int rc = m % 2 ? tt_tcp.recv(e->link, into, sizes[m], 77)
		       : tt_tcp.peek(e->link, sizes[m], 77, &data);

	while (rc == 0)
		rc = m % 2 ? tt_tcp.recv(e->link, into, sizes[m], 77)
			   : tt_tcp.peek(e->link, sizes[m], 77, &data);
	if (rc < 0)
		return rc;
	for (size_t i = 0; i < sizes[m]; i++)
		rc &= ((const uint8_t *)data)[i] == content(m, i);
	if (m % 2 == 0)
		tt_tcp.release(e->link);
	return rc;
}

/* The outcome at rank 1, which receives these bytes */
static enum outcome present(int encrypt, const uint8_t *wire, size_t bytes)
{
	static uint8_t into[LARGEST];
	enum outcome outcome = RIGHT;
	struct end e;
	int rc = 1;

	open_end(&e, 1, encrypt, true);
	cr_assert(send(e.wire, wire, bytes, 0) == (ssize_t)bytes);
	shutdown(e.wire, SHUT_WR);
	for (int m = 0; m < MESSAGES && rc == 1; m++) {
		memset(into, 0, sizes[m]);
		rc = receive_message(&e, m, into);
		if (rc >= 0)
			outcome = rc ? RIGHT : WRONG_DATA;
		else if (strstr(tt_error_text(), "data from rank 0 was altered on the way"))
			outcome = ALTERED;
		else
			outcome = rc == TT_USAGE ? WRONG_CALL : LOST;
		for (size_t i = 0; outcome == ALTERED && i < sizes[m]; i++)
			cr_assert_eq(into[i], 0, "message %d keeps bytes that did not open", m);
		if (outcome == ALTERED) /* the verdict stays, and is this host's explanation */
			cr_assert(receive_message(&e, m, into) == TT_REMOTE &&
				  tt_tcp.fault_ops->local(e.ep, true) == TT_REMOTE &&
				  strstr(tt_error_text(), "rank 1: data from rank 0 was altered"));
	}
	close_end(&e);
	return outcome;
}

static bool contains_marker(const uint8_t *wire, size_t bytes)
{
	return memmem(wire, bytes, MARKER, strlen(MARKER)) != NULL;
}

Test(encryption, data_is_readable_on_the_wire_only_where_it_is_not_encrypted, .timeout = 60)
{
	static const struct {
		int encrypt;
		bool same_host, readable;
	} cases[] = { { TT_ENCRYPT_AUTO, true, true }, { TT_ENCRYPT_AUTO, false, false },
		      { TT_ENCRYPT_ON, true, false },  { TT_ENCRYPT_ON, false, false },
		      { TT_ENCRYPT_OFF, true, true },  { TT_ENCRYPT_OFF, false, true } };
	uint8_t *wire = malloc(WIRE_BYTES);

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		size_t bytes = record(cases[i].encrypt, cases[i].same_host, wire);

		cr_expect_eq(contains_marker(wire, bytes), cases[i].readable, "case %zu", i);
	}
	free(wire);
}

/* A host that translates addresses of its own connections may make one side encrypt and the other not: the first
 * message is an error on its receiver, whichever side that is. */
Test(encryption, sides_that_decide_differently_end_with_an_error, .timeout = 60)
{
	uint8_t *wire = malloc(WIRE_BYTES);
	size_t bytes = record(TT_ENCRYPT_OFF, true, wire);

	cr_expect_eq(present(TT_ENCRYPT_ON, wire, bytes), ALTERED);
	bytes = record(TT_ENCRYPT_ON, true, wire);
	cr_expect_not(contains_marker(wire, bytes));
	cr_expect_eq(present(TT_ENCRYPT_OFF, wire, bytes), LOST);
	cr_expect(strstr(tt_error_text(), "rank 1: rank 0 sent bytes that are not a message"), "%s",
		  tt_error_text());
	free(wire);
}

/* A connection from one IPv4 address of this host to another; fds: the client's socket, the server's */
static void connect_tcp(uint32_t from, uint32_t to, int ret_fds[2])
{
	struct sockaddr_in us = { .sin_family = AF_INET, .sin_addr.s_addr = from },
			   them = { .sin_family = AF_INET, .sin_addr.s_addr = to };
	int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	ret_fds[0] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	cr_assert(!bind(listener, (struct sockaddr *)&them, sizeof(them)) && !listen(listener, 1));
	cr_assert(!getsockname(listener, (struct sockaddr *)&them, &(socklen_t){ sizeof(them) }));
	cr_assert(!bind(ret_fds[0], (struct sockaddr *)&us, sizeof(us)));
	cr_assert(!connect(ret_fds[0], (struct sockaddr *)&them, sizeof(them)));
	ret_fds[1] = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
	cr_assert_geq(ret_fds[1], 0);
	close(listener);
}

/* Is the link of two ranks that claim to be on one host encrypted, on both sides, as the transport says? */
static bool link_is_encrypted(int encrypt, uint32_t from, uint32_t to)
{
	bool encrypted[2];
	int fds[2];

	connect_tcp(from, to, fds);
	for (int rank = 0; rank < 2; rank++) {
		struct end e;

		open_end_with(&e, rank, encrypt, true, fds[rank]);
		encrypted[rank] = ((struct tt_tcp_link *)e.link)->sealed != NULL;
		cr_assert_eq(tt_tcp.encrypts(e.ep, 1 - rank), encrypted[rank]);
		tt_tcp.close(e.ep);
	}
	cr_assert_eq(encrypted[0], encrypted[1], "the sides differ");
	return encrypted[0];
}

Test(encryption, a_connection_that_leaves_the_host_is_encrypted_whatever_ranks_say_of_hosts,
     .timeout = 60)
{
	struct tt_address list[TT_ADDRESSES];
	const uint32_t loopback = htonl(INADDR_LOOPBACK);
	uint32_t own = 0;
	int n;

	cr_assert_eq(tt_address_list("", list, &n), 0);
	for (int i = 0; i < n && !own; i++)
		if (list[i].family == 4)
			memcpy(&own, list[i].bytes, sizeof(own));
	cr_expect(!link_is_encrypted(TT_ENCRYPT_AUTO, loopback, loopback));
	cr_expect(link_is_encrypted(TT_ENCRYPT_ON, loopback, loopback));
	if (!own)
		cr_skip_test("skipped: this host has no IPv4 address beside loopback");
	cr_expect(!link_is_encrypted(TT_ENCRYPT_AUTO, own, own));
	cr_expect(!link_is_encrypted(TT_ENCRYPT_OFF, loopback, own));
	/* two addresses, as of two hosts */
	cr_expect(link_is_encrypted(TT_ENCRYPT_AUTO, loopback, own));
}

/* Flips bits of the first 4 KiB one by one, then 10,000 random ones, of these every step-th; returns
 * how often each outcome came. */
static void flip(int encrypt, size_t step, int ret_count[LOST + 1])
{
	uint8_t *wire = malloc(WIRE_BYTES);
	size_t bytes = record(encrypt, true, wire), first = 8 * 4096;
	const char *fewer = getenv("TUTTI_TEST_FEWER");

	if (fewer)
		step *= (size_t)atoi(fewer);
	memset(ret_count, 0, (LOST + 1) * sizeof(int));
	cr_assert_eq(present(encrypt, wire, bytes), RIGHT);
	for (size_t i = 0; i < first + 10000; i += step) {
		size_t bit = i < first ? i : first + mix(i) % (8 * bytes - first);

		wire[bit / 8] ^= (uint8_t)(1 << bit % 8);
		ret_count[present(encrypt, wire, bytes)]++;
		wire[bit / 8] ^= (uint8_t)(1 << bit % 8);
	}
	free(wire);
}

Test(encryption, every_altered_bit_is_an_error_that_names_both_ranks, .timeout = 240)
{
	int count[LOST + 1];

	flip(TT_ENCRYPT_ON, 1, count);
	cr_expect(count[ALTERED] > 0);
	cr_expect_eq(count[RIGHT] + count[WRONG_DATA] + count[WRONG_CALL] + count[LOST], 0,
		     "%d right, %d wrong data, %d wrong calls, %d lost", count[RIGHT],
		     count[WRONG_DATA], count[WRONG_CALL], count[LOST]);
	/* the same bits are wrong data where nothing is encrypted */
	flip(TT_ENCRYPT_OFF, 20, count);
	cr_expect(count[WRONG_DATA] > 0 && count[ALTERED] == 0);
}

/* ---- communicators --------------------------------------------------------------------------- */

static int sums_are_right(tuttiComm_t *comm, int rank, int n, void *arg)
{
	static float x[100000];
	char text[128];

	WANT(!tuttiCommDescribe(*comm, "allreduce", 100000, tuttiFloat, text, sizeof(text)));
	WANT(!strstr(text, " encrypted") == !*(bool *)arg);
	for (size_t count = 1; count <= 100000; count *= 10) {
		for (size_t i = 0; i < count; i++)
			x[i] = (float)(rank + 1);
		WANT(!tuttiAllReduce(x, x, count, tuttiFloat, tuttiSum, *comm, NULL));
		for (size_t i = 0; i < count; i++)
			WANT(x[i] == (float)(n * (n + 1) / 2));
	}
	return 0;
}

Test(encryption, communicators_say_where_they_encrypt, .timeout = 120)
{
	static const struct {
		const char *setting;
		bool encrypted;
	} cases[] = { { "auto", false }, { "on", true }, { "off", false } };

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		bool encrypted = cases[i].encrypted;
		struct ranks r = { .n = 3, .transport = "tcp", .arg = &encrypted };

		setenv("TUTTI_ENCRYPT", cases[i].setting, 1);
		cr_expect_eq(ranks_run(&r, sums_are_right), 0, "%s", cases[i].setting);
	}
}

static int join_with_another_setting(tuttiComm_t *comm, int rank, int nranks, void *arg)
{
	const struct ranks *r = arg;

	setenv("TUTTI_ENCRYPT", rank == 1 ? "off" : "auto", 1);
	WANT(tuttiCommInitRank(comm, nranks, r->id, rank) == tuttiInvalidUsage);
	WANT(strstr(tuttiGetLastError(NULL), "rank 1 has encrypt=off"));
	return 0;
}

Test(encryption, settings_that_differ_are_refused_when_ranks_join, .timeout = 60)
{
	static struct ranks r = { .n = 3, .no_join = true, .limit_s = 50, .arg = &r };

	cr_expect_eq(ranks_run(&r, join_with_another_setting), 0);
}
