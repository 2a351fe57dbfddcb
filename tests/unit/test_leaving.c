/*
 * test_leaving.c - how long a rank that leaves waits for a peer that takes no bytes, by a clock that only its
 * own sleeps move
 */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "tests/support/endpoint_peer.h"

#define MS 1000000ull

/* The library's calls of clock_gettime and nanosleep reach these functions. The clock stands still between the sleeps of
 * the thread that leaves. */
static _Thread_local bool clock_stands;
static _Thread_local uint64_t slept_ns;

int clock_gettime(clockid_t clock, struct timespec *ret_time)
{
	if (!clock_stands)
		return (int)syscall(SYS_clock_gettime, clock, ret_time);
	*ret_time = (struct timespec){ .tv_sec = 1000000 + (time_t)(slept_ns / TT_SECOND),
				       .tv_nsec = (long)(slept_ns % TT_SECOND) };
	return 0;
}

int nanosleep(const struct timespec *time, struct timespec *ret_left)
{
	if (!clock_stands)
		return (int)syscall(SYS_nanosleep, time, ret_left);
	slept_ns += (uint64_t)time->tv_sec * TT_SECOND + (uint64_t)time->tv_nsec;
	return 0;
}

/* Time for which rank 1 of a broken, or intact, communicator waits when it leaves, beside a stopped peer whose socket is
 * full. In the end the peer is gone. */
static uint64_t leave_beside_a_stopped_peer(bool is_broken)
{
	static uint8_t zeros[1 << 16];
	struct fixture f = make(1);
	struct tt_tls *stopped = connect_peer(&f, 9);

	cr_assert_eq(tt_endpoint_start(f.ep), 0, "%s", tt_error_text());
	tt_control_lock(f.ctl);
	while (tt_conn_unsent(f.ep->conns) < sizeof(zeros))
		tt_conn_send(f.ep, f.ep->conns, 0, TT_F_GATHER_DOWN, zeros, sizeof(zeros));
	tt_control_unlock(f.ctl);
	if (is_broken)
		tt_control_raise(f.ctl, TT_REMOTE, 1, "rank 1 aborted the communicator");
	clock_stands = true;
	slept_ns = 0;
	tt_control_leave(f.ctl);
	clock_stands = false;
	tt_tls_close(stopped);
	return slept_ns;
}

Test(leaving, a_rank_that_aborts_waits_for_no_stopped_peer, .timeout = 60)
{
	uint64_t waited_ns = leave_beside_a_stopped_peer(true);

	cr_expect_lt(waited_ns, 100 * MS, "%d ms", (int)(waited_ns / MS));
}

/* A peer that is slow gets the goodbye. */
Test(leaving, a_rank_that_leaves_in_order_waits_for_five_seconds, .timeout = 60)
{
	uint64_t waited_ns = leave_beside_a_stopped_peer(false);

	cr_expect(waited_ns >= 5000 * MS && waited_ns < 5100 * MS, "%d ms", (int)(waited_ns / MS));
}
