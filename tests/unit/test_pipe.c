/*
 * test_pipe.c - a pipe between two endpoints of one process: bytes, ends, events, memory
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "control/pipe.h"
#include "tests/support/ranks.h"

TestSuite(pipe, .timeout = 60);

#define BYTES (8u << 20)
#define PIECE 200000

static uint8_t byte_at(size_t i)
{
	return (uint8_t)(i * 2654435761u >> 13);
}

/* Send BYTES in pieces of random sizes. */
static void *send_all(void *arg)
{
	struct tt_pipe *end = arg;
	static uint8_t piece[PIECE];

	for (size_t at = 0, k = 0; at < BYTES; k++) {
		size_t n = 1 + random_of(1, k) % (k % 2 ? 50 : PIECE), sent = 0;

		n = n < BYTES - at ? n : BYTES - at;
		for (size_t i = 0; i < n; i++)
			piece[i] = byte_at(at + i);
		for (ssize_t now; sent<n; sent += now> 0 ? (size_t)now : 0) {
			now = tt_pipe_send(end, piece + sent, n - sent);
			if (now < 0)
				sched_yield();
		}
		at += n;
	}
	tt_pipe_close(end);
	return NULL;
}

Test(pipe, bytes_come_in_order_and_then_the_end_of_the_stream)
{
	static uint8_t piece[PIECE];
	struct tt_pipe *end[2];
	pthread_t sender;
	size_t at = 0;
	ssize_t n;

	cr_assert(tt_pipe_make(end));
	cr_assert_eq(pthread_create(&sender, NULL, send_all, end[0]), 0);
	for (size_t k = 0; (n = tt_pipe_recv(end[1], piece, 1 + random_of(2, k) % PIECE)); k++) {
		if (n < 0) {
			cr_assert_eq(errno, EAGAIN);
			sched_yield();
			continue;
		}
		for (size_t i = 0; i < (size_t)n; i++)
			cr_assert_eq(piece[i], byte_at(at + i), "byte %zu", at + i);
		at += (size_t)n;
	}
	cr_assert_eq(at, BYTES);
	pthread_join(sender, NULL);
	cr_assert_eq(tt_pipe_send(end[1], "x", 1), -1);
	cr_assert_eq(errno, EPIPE);
	tt_pipe_close(end[1]);
}

/* Send until there is no room. */
static size_t fill(struct tt_pipe *end)
{
	static const uint8_t zeros[1000];
	size_t sent = 0;
	ssize_t n;

	while ((n = tt_pipe_send(end, zeros, sizeof(zeros))) > 0)
		sent += (size_t)n;
	cr_assert_eq(errno, EAGAIN);
	return sent;
}

Test(pipe, has_room_for_some_bytes_and_gives_memory_back)
{
	static uint8_t all[TT_PIPE_ROOM];
	struct tt_pipe *end[2];
	size_t before;

	cr_assert(tt_pipe_make(end));
	before = tt_pipe_memory(end[1]);
	for (int round = 0; round < 3; round++) {
		cr_assert_eq(fill(end[0]), TT_PIPE_ROOM);
		cr_assert_geq(tt_pipe_memory(end[1]), TT_PIPE_ROOM);
		cr_assert_eq(tt_pipe_recv(end[1], all, sizeof(all)), TT_PIPE_ROOM);
	}
	cr_assert_eq(tt_pipe_send(end[0], "x", 1), 1);
	cr_assert_eq(tt_pipe_recv(end[1], all, sizeof(all)), 1);
	cr_assert_eq(tt_pipe_memory(end[1]), before);
	tt_pipe_close(end[0]);
	tt_pipe_close(end[1]);
}

Test(pipe, events_are_levels)
{
	static uint8_t all[TT_PIPE_ROOM];
	struct tt_pipe *end[2];

	cr_assert(tt_pipe_make(end));
	cr_assert_eq(tt_pipe_events(end[0]) | tt_pipe_events(end[1]), 0);
	tt_pipe_watch(end[0], true);
	cr_assert_eq(tt_pipe_events(end[0]), EPOLLOUT);
	fill(end[0]);
	cr_assert_eq(tt_pipe_events(end[0]), 0);
	cr_assert_eq(tt_pipe_events(end[1]), EPOLLIN);
	cr_assert_eq(tt_pipe_recv(end[1], all, 1), 1);
	cr_assert_eq(tt_pipe_events(end[0]), 0, "an event for every byte");
	cr_assert_eq(tt_pipe_recv(end[1], all, sizeof(all)), TT_PIPE_ROOM - 1);
	cr_assert_eq(tt_pipe_events(end[0]), EPOLLOUT);
	cr_assert_eq(tt_pipe_events(end[1]), 0);
	tt_pipe_watch(end[0], false);
	cr_assert_eq(tt_pipe_events(end[0]), 0);
	tt_pipe_shutdown(end[0], SHUT_WR);
	cr_assert_eq(tt_pipe_events(end[1]), EPOLLIN);
	cr_assert_eq(tt_pipe_recv(end[1], all, 1), 0);
	cr_assert_eq(tt_pipe_send(end[1], "x", 1), 1, "the other direction is open");
	tt_pipe_shutdown(end[0], SHUT_RDWR);
	cr_assert_eq(tt_pipe_events(end[0]), EPOLLIN);
	cr_assert_eq(tt_pipe_recv(end[0], all, 1), 0);
	cr_assert_eq(tt_pipe_send(end[1], "x", 1), -1);
	tt_pipe_close(end[0]);
	tt_pipe_close(end[1]);
}
