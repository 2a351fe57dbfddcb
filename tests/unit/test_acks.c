/*
 * test_acks.c - acknowledgements of a peer that only sends (tcp_acks.h): two ranks of this process on a real TCP
 * connection; the kernel counts the segments
 *
 * A busy machine delivers some packets late, which adds polls and acknowledgements; so the least of TRIES counts.
 */
#include <criterion/criterion.h>
#include <limits.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "transports/tcp/tcp_stream.h"

#define LARGEST (100u << 10)
#define STAMP 7
#define TRIES 10

struct acks_rank {
	struct tt_world world;
	struct tt_endpoint *ep;
	struct tt_link *link;
	int fd, host_of[2];
};

static int dial(void *ctx, int peer, int channel)
{
	return (void)ctx, (void)peer, channel;
}

static int take(void *ctx, int peer, int channel, int *ret_fd, struct tt_data_keys *ret_keys)
{
	(void)peer, (void)channel, (void)ret_keys;
	*ret_fd = ((struct acks_rank *)ctx)->fd;
	return 1;
}

/* Returns the connected sockets. */
static void connect_pair(int ret_fd[2])
{
	struct sockaddr_in at = { .sin_family = AF_INET,
				  .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	ret_fd[0] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	cr_assert(!bind(listener, (struct sockaddr *)&at, sizeof(at)) && !listen(listener, 1));
	cr_assert(!getsockname(listener, (struct sockaddr *)&at, &(socklen_t){ sizeof(at) }));
	cr_assert(!connect(ret_fd[0], (struct sockaddr *)&at, sizeof(at)));
	ret_fd[1] = accept(listener, NULL, NULL);
	cr_assert(ret_fd[1] >= 0);
	close(listener);
}

static void open_in(struct acks_rank s[2], bool same_host, bool crowded)
{
	int fd[2];

	connect_pair(fd);
	for (int rank = 0; rank < 2; rank++) {
		s[rank] = (struct acks_rank){ .fd = fd[rank], .host_of = { 0, !same_host } };
		s[rank].world = (struct tt_world){ .rank = rank,
						   .nranks = 2,
						   .host_of = s[rank].host_of,
						   .message_bytes = LARGEST,
						   .nchannels = 1,
						   .crowded = crowded,
						   .encrypt = TT_ENCRYPT_OFF,
						   .dial = dial,
						   .take = take,
						   .ctx = &s[rank] };
		cr_assert(!tt_tcp.open(&s[rank].world, &s[rank].ep));
		cr_assert(!tt_tcp.connect(s[rank].ep, 1 - rank, 0, &s[rank].link));
		cr_assert(tt_tcp.ready(s[rank].link) == 1);
	}
}

static void open_sides(struct acks_rank s[2], bool same_host)
{
	open_in(s, same_host, false);
}

static void close_sides(struct acks_rank s[2])
{
	tt_tcp.close(s[0].ep);
	tt_tcp.close(s[1].ep);
}

static bool peeks(const struct acks_rank *s)
{
	return ((const struct tt_tcp_link *)s->link)->acks.peeks;
}

static unsigned segments_sent(const struct acks_rank *s)
{
	struct tcp_info info = { 0 };

	cr_assert(!getsockopt(s->fd, IPPROTO_TCP, TCP_INFO, &info, &(socklen_t){ sizeof(info) }));
	return info.tcpi_segs_out;
}

static int bytes_in_socket(const struct acks_rank *s)
{
	int n = -1;

	cr_assert(!ioctl(s->fd, FIONREAD, &n));
	return n;
}

/* Returns the number of polls without the message. */
static int receive(struct acks_rank *s, void *into, size_t bytes)
{
	int rc, polls = 0;

	while ((rc = tt_tcp.recv(s->link, into, bytes, STAMP)) == 0)
		polls++;
	cr_assert_eq(rc, 1, "%s", tt_error_text());
	return polls;
}

static void pass(struct acks_rank s[2], void *data, size_t bytes)
{
	cr_assert(tt_tcp.post(s[0].link, data, bytes, STAMP) == 1);
	receive(&s[1], data, bytes);
}

/* Acknowledgements of 256 messages, each received before the next is sent. The kernel acknowledges the first ones of a
 * connection at once, and any bytes that are more than the largest segment so far, or than 536. */
static unsigned count_once(bool same_host, size_t bytes, size_t largest)
{
	static char data[50000];
	struct acks_rank s[2];
	unsigned before;

	open_sides(s, same_host);
	for (int i = 0; i < 16; i++)
		pass(s, data, i == 8 ? largest : bytes);
	before = segments_sent(&s[1]);
	for (int i = 0; i < 256; i++)
		pass(s, data, bytes);
	before = segments_sent(&s[1]) - before;
	close_sides(s);
	return before;
}

static unsigned acknowledgements(bool same_host, size_t bytes, size_t largest)
{
	unsigned least = UINT_MAX, n;

	for (int i = 0; i < TRIES; i++) {
		n = count_once(same_host, bytes, largest);
		least = n < least ? n : least;
	}
	return least;
}

Test(acks, a_peer_of_this_host_that_only_sends_gets_few, .timeout = 60)
{
	static const struct {
		size_t bytes, largest;
		unsigned most; /* acknowledgements */
	} cases[] = { { 4, 4, 64 },        { 200, 200, 100 },   { 200, 50000, 64 },
		      { 1000, 50000, 64 }, { 4000, 50000, 64 }, { 16000, 50000, 140 } };
	struct acks_rank s[2];
	bool can_peek;

	open_sides(s, true);
	can_peek = peeks(&s[1]);
	close_sides(s);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		unsigned n = acknowledgements(true, cases[i].bytes, cases[i].largest);

		cr_assert_leq(n, can_peek ? cases[i].most : 160, "%u of 256 messages of %zu bytes",
			      n, cases[i].bytes);
	}
}

Test(acks, the_kernel_decides_between_hosts, .timeout = 60)
{
	cr_assert_geq(acknowledgements(false, 4, 4), 200);
}

Test(acks, a_rank_about_to_sleep_leaves_nothing_unread, .timeout = 60)
{
	char data[64] = { 0 };
	struct acks_rank s[2];

	open_sides(s, true);
	for (int i = 0; i < 7; i++)
		pass(s, data, sizeof(data));
	cr_assert(bytes_in_socket(&s[1]) > 0 || !peeks(&s[1]));
	tt_tcp.arm(s[1].ep);
	cr_assert_eq(tt_tcp.recv(s[1].link, data, sizeof(data), STAMP), 0);
	cr_assert_eq(bytes_in_socket(&s[1]), 0);
	tt_tcp.disarm(s[1].ep);
	close_sides(s);
}

/* A rank without a core of its own sleeps so often that it would remove few messages at once. */
Test(acks, a_crowded_rank_takes_its_messages_at_once, .timeout = 60)
{
	char data[64] = { 0 };
	struct acks_rank s[2];

	open_in(s, true, true);
	for (int i = 0; i < 7; i++) {
		pass(s, data, sizeof(data));
		cr_assert_eq(bytes_in_socket(&s[1]), 0);
	}
	close_sides(s);
}

/* Fill the socket of s[1] with `count` messages, and receive the first. Returns the bytes that are left in the socket. */
static int left_behind_one(struct acks_rank s[2], char *data, size_t bytes, int count)
{
	int all = 0;

	for (int i = 0; i < count; i++) {
		all += (int)(sizeof(struct tt_tcp_head) + bytes);
		all += s[0].link->posted % 2 ? TT_TCP_ODD : 0;
		cr_assert(tt_tcp.post(s[0].link, data, bytes, STAMP) == 1);
	}
	while (bytes_in_socket(&s[1]) < all)
		tt_tcp.progress(s[0].ep);
	cr_assert_eq(receive(&s[1], data, bytes), 0);
	return bytes_in_socket(&s[1]);
}

/* The messages behind it need no system call: none is in the socket any more. */
Test(acks, a_recv_for_a_small_message_takes_those_behind_it, .timeout = 60)
{
	static char data[LARGEST];
	struct acks_rank s[2];

	open_in(s, true, true);
	cr_assert_eq(left_behind_one(s, data, 64, 20), 0);
	for (int i = 1; i < 20; i++)
		cr_assert_eq(receive(&s[1], data, 64), 0);
	/* a peer that only sends, messages that are copied in less time than a recv takes */
	cr_assert_eq(left_behind_one(s, data, 4000, 3), 0);
	for (int i = 1; i < 3; i++)
		cr_assert_eq(receive(&s[1], data, 4000), 0);
	/* a larger one is received into its place, and no byte behind it */
	cr_assert_gt(left_behind_one(s, data, 16000, 2), 16000);
	cr_assert_eq(receive(&s[1], data, 16000), 0);
	close_sides(s);
}

/* Ten packets fill the congestion window; the kernel's timer would acknowledge them after 40 ms, some 100,000 polls.
 * The poll that has removed the ten finds the next ones, unless the kernel delivers them a little later. */
Test(acks, no_message_waits_for_one, .timeout = 60)
{
	char data[64][64] = { 0 };
	int least = INT_MAX;
	struct acks_rank s[2];

	for (int i = 0; i < TRIES; i++) {
		int polls = 0;

		open_sides(s, true);
		for (int round = 0; round < 8; round++) {
			for (int j = 0; j < 64; j++)
				cr_assert(tt_tcp.post(s[0].link, data[j], 64, STAMP) == 1);
			for (int j = 0; j < 64; j++)
				polls += receive(&s[1], data[j], 64);
		}
		least = polls < least ? polls : least;
		close_sides(s);
	}
	cr_assert_lt(least, 32, "%d empty polls in the best of %d tries", least, TRIES);
}

Test(acks, the_end_behind_unread_messages_is_seen, .timeout = 60)
{
	char data[64] = { 0 };
	struct acks_rank s[2];
	int rc;

	open_sides(s, true);
	for (int i = 0; i < 5; i++)
		cr_assert(tt_tcp.post(s[0].link, data, sizeof(data), STAMP) == 1);
	tt_tcp.close(s[0].ep);
	for (int i = 0; i < 5; i++)
		receive(&s[1], data, sizeof(data));
	while ((rc = tt_tcp.recv(s[1].link, data, sizeof(data), STAMP)) == 0)
		;
	cr_assert_eq(rc, TT_REMOTE);
	cr_assert(strstr(tt_error_text(), "closed the connection"));
	tt_tcp.close(s[1].ep);
}

/* ---- any order of messages -------------------------------------------------------------------- */

#define DIRECTIONS 2
#define MOST_AHEAD 12

struct stream {
	size_t bytes[MOST_AHEAD];
	unsigned char *data[MOST_AHEAD];
	uint64_t sent, received;
};

static unsigned char content(int from, uint64_t number, size_t i)
{
	return (unsigned char)(from * 101 + number * 31 + i * 7 + (i >> 8));
}

static size_t some_size(unsigned *random)
{
	static const size_t most[] = { 16, 240, 3000, 16u << 10, LARGEST };

	return 1 + (size_t)rand_r(random) % most[rand_r(random) % 5];
}

static void send_one(struct acks_rank *s, struct stream *t, int from, unsigned *random)
{
	int at = (int)(t->sent % MOST_AHEAD);

	t->bytes[at] = some_size(random);
	for (size_t i = 0; i < t->bytes[at]; i++)
		t->data[at][i] = content(from, t->sent, i);
	cr_assert_eq(tt_tcp.post(s->link, t->data[at], t->bytes[at], STAMP), 1);
	t->sent++;
}

static void receive_one(struct acks_rank s[2], struct stream *t, int from, unsigned char *into)
{
	size_t bytes = t->bytes[t->received % MOST_AHEAD];
	int rc;

	while ((rc = tt_tcp.recv(s[!from].link, into, bytes, STAMP)) == 0)
		cr_assert(tt_tcp.progress(s[from].ep) >= 0);
	cr_assert_eq(rc, 1, "%s", tt_error_text());
	for (size_t i = 0; i < bytes; i++)
		cr_assert_eq(into[i], content(from, t->received, i), "byte %zu of %zu", i, bytes);
	t->received++;
}

static void pass_any(bool crowded)
{
	static unsigned char into[LARGEST];
	struct stream streams[DIRECTIONS] = { 0 };
	unsigned random = 1;
	struct acks_rank s[2];

	open_in(s, true, crowded);
	for (int i = 0; i < DIRECTIONS * MOST_AHEAD; i++)
		streams[i % DIRECTIONS].data[i / DIRECTIONS] = malloc(LARGEST);
	for (int step = 0; step < 3000; step++) {
		/* one direction for a while, then the other */
		int from = step / 60 % 3 == 2 ? rand_r(&random) % 2 : step / 60 % 3;
		struct stream *t = &streams[from];

		if (t->sent - t->received < MOST_AHEAD && rand_r(&random) % 2)
			send_one(&s[from], t, from, &random);
		else if (t->received < t->sent)
			receive_one(s, t, from, into);
	}
	for (int from = 0; from < DIRECTIONS; from++)
		while (streams[from].received < streams[from].sent)
			receive_one(s, &streams[from], from, into);
	for (int i = 0; i < DIRECTIONS * MOST_AHEAD; i++)
		free(streams[i % DIRECTIONS].data[i / DIRECTIONS]);
	close_sides(s);
}

Test(acks, messages_of_any_length_and_order_arrive, .timeout = 120)
{
	pass_any(false);
	pass_any(true);
}
