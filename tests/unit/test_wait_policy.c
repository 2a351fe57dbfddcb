/*
 * test_wait_policy.c - a waiting rank sleeps instead of yielding where yields are slow or while it
 * connects, and elsewhere after some yields; time in which its process was stopped does not count
 *
 * This file replaces sched_yield, tcp's sleep and the clock, so that they take exactly the time that a
 * test sets: the real scheduling does not count. Computing threads compete for the core. The tests read
 * comm->pause_ms, because wait.c does not publish its pause.
 */
#include <criterion/criterion.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "run/op.h"
#include "tests/support/ranks.h"

#define COMPETITORS 6 /* computing threads, more than ranks */
#define SLOW_NS 2000000
#define QUICK_NS 1000

static atomic_int slow_yields; /* yields that take SLOW_NS; later ones QUICK_NS */
static atomic_bool end;
static atomic_int *yields; /* of one rank, shared; NULL: not counted */

static _Thread_local int clock_reads; /* of the exact clock */

/* the clock of this thread: its lag behind the real clock, its last value, and the duration of the
 * yield since then (0: no yield, time passes as usual) */
static _Thread_local int64_t lag_ns, last_ns, step_ns;

int clock_gettime(clockid_t id, struct timespec *t)
{
	int64_t now;

	if (syscall(SYS_clock_gettime, id, t))
		return -1;
	if (id != CLOCK_MONOTONIC && id != CLOCK_MONOTONIC_COARSE)
		return 0;
	clock_reads += id == CLOCK_MONOTONIC;
	now = t->tv_sec * 1000000000l + t->tv_nsec;
	if (step_ns)
		lag_ns = now - last_ns - step_ns;
	step_ns = 0;
	last_ns = now - lag_ns;
	t->tv_sec = last_ns / 1000000000;
	t->tv_nsec = last_ns % 1000000000;
	return 0;
}

/* Rank 0 lets rank 1 make its call in a yield. Shared */
static struct late_call {
	atomic_int asked, gone; /* calls that rank 1 may make, and has made */
	atomic_bool pauses;     /* rank 0 yields no more */
} * late;
static int yields_left; /* of a call of rank 0, until rank 1 may make its own */

static void let_the_late_rank_go(void)
{
	int asked = atomic_fetch_add(&late->asked, 1) + 1;

	while (atomic_load(&late->gone) < asked)
		usleep(100);
}

int sched_yield(void)
{
	if (yields)
		atomic_fetch_add(yields, 1);
	if (late && yields_left && --yields_left == 0)
		let_the_late_rank_go();
	step_ns = atomic_fetch_sub(&slow_yields, 1) > 0 ? SLOW_NS : QUICK_NS;
	return 0;
}

static _Thread_local int64_t stop_ns; /* a stop of the process, in the second sleep */
static _Thread_local atomic_int *sleeps;

int ppoll(struct pollfd *fds, nfds_t n, const struct timespec *limit, const sigset_t *mask)
{
	struct timespec left = limit ? *limit : (struct timespec){ 0 };

	if (sleeps && atomic_fetch_add(sleeps, 1) == 1)
		lag_ns -= stop_ns;
	return (int)syscall(SYS_ppoll, fds, n, limit ? &left : NULL, mask, _NSIG / 8);
}

static void *compute(void *arg)
{
	(void)arg;
	while (!atomic_load_explicit(&end, memory_order_relaxed))
		;
	return NULL;
}

/* Rank 0 waits for rank 1, which is late in each barrier. Rank 0 pauses if want->pauses, else
 * not. */
static int wait_for_a_late_rank(tuttiComm_t *comm, int rank, int nranks, void *arg)
{
	enum { CALLS = 20 };
	const struct {
		int slow;
		bool pauses;
	} *want = arg;
	pthread_t competitors[COMPETITORS];
	uint32_t longest = 0;
	int bad = 0;

	(void)nranks;
	for (int i = 0; i < COMPETITORS && rank == 0; i++)
		if (pthread_create(&competitors[i], NULL, compute, NULL))
			return 1;
	for (int i = 0; i < CALLS && !bad; i++) {
		atomic_store(&slow_yields, rank == 0 ? want->slow : 0);
		if (rank == 1)
			usleep(20000);
		bad = tuttiBarrier(*comm, NULL);
		longest = (*comm)->wait.pause_ms > longest ? (*comm)->wait.pause_ms : longest;
	}
	atomic_store(&end, true);
	for (int i = 0; i < COMPETITORS && rank == 0; i++)
		pthread_join(competitors[i], NULL);
	if (rank == 0 && (longest > 0) != want->pauses)
		bad = fprintf(stderr, "%d slow yields in a wait: paused for %u ms\n", want->slow,
			      longest);
	return bad;
}

Test(wait_policy, a_rank_sleeps_where_yields_are_slow_but_not_after_one_slow_yield, .timeout = 60)
{
	static const struct {
		int slow;
		bool pauses;
	} want[] = { { 1000, true }, { 1, false } };

	setenv("TUTTI_WAIT", "yield", 1);
	for (int i = 0; i < 2; i++) {
		struct ranks r = { .n = 2, .transport = "shm", .arg = (void *)&want[i] };

		cr_expect_eq(ranks_run(&r, wait_for_a_late_rank), 0, "%d slow yields",
			     want[i].slow);
	}
	unsetenv("TUTTI_WAIT");
}

enum { RECEIVE, EXCHANGE, BARRIER, KINDS };

static int call_of(int kind, int rank, tuttiComm_t c)
{
	int in = 1, out = 0;

	switch (kind) {
	case RECEIVE:
		return rank ? tuttiSend(&in, 1, tuttiInt32, 0, c, NULL)
			    : tuttiRecv(&out, 1, tuttiInt32, 1, c, NULL) || out != 1;
	case EXCHANGE:
		return tuttiGroupStart() || tuttiSend(&in, 1, tuttiInt32, !rank, c, NULL) ||
		       tuttiRecv(&out, 1, tuttiInt32, !rank, c, NULL) || tuttiGroupEnd() ||
		       out != 1;
	default:
		return tuttiBarrier(c, NULL);
	}
}

/* Rank 1 makes its call in the yield of rank 0's that is `after` before the end of yields_left. */
static int call_late(tuttiComm_t c, int rank, int kind, int after)
{
	int i = atomic_load(&late->gone), bad;

	if (rank == 0) {
		atomic_store(&late->pauses, c->wait.pause_ms > 0);
		yields_left = after;
		clock_reads = 0;
		bad = call_of(kind, rank, c);
		yields_left = 0;
		return bad;
	}
	while (atomic_load(&late->asked) <= i && !atomic_load(&late->pauses))
		usleep(100);
	bad = call_of(kind, rank, c);
	atomic_fetch_add(&late->gone, 1);
	return bad;
}

/* Operations read the exact clock when they begin to wait. */
static int wait_without_operations(tuttiComm_t *comm, int rank, int nranks, void *arg)
{
	(void)nranks;
	(void)arg;
	for (int kind = 0; kind < KINDS; kind++) {
		if (call_of(kind, rank, *comm) || call_of(kind, rank, *comm) ||
		    tuttiBarrier(*comm, NULL) || call_late(*comm, rank, kind, 3))
			return fprintf(stderr, "%d: %s\n", kind, tuttiGetLastError(NULL));
		if (rank == 0 && clock_reads)
			return fprintf(stderr, "call %d: an operation waits\n", kind);
		if (call_late(*comm, rank, kind, 30)) /* now an operation waits */
			return fprintf(stderr, "%d: %s\n", kind, tuttiGetLastError(NULL));
	}
	return 0;
}

/* Yields of waits without operations count, too: rank 0 pauses when they are slow. */
static int wait_in_slow_yields(tuttiComm_t *comm, int rank, int nranks, void *arg)
{
	pthread_t competitors[COMPETITORS];
	bool paused = false;
	int bad = tuttiBarrier(*comm, NULL);

	(void)nranks;
	(void)arg;
	for (int i = 0; i < COMPETITORS && rank == 0; i++)
		if (pthread_create(&competitors[i], NULL, compute, NULL))
			return 1;
	for (int i = 0; i < 20 && !bad; i++) {
		atomic_store(&slow_yields, 1);
		bad = call_late(*comm, rank, RECEIVE, 1);
		paused |= (*comm)->wait.pause_ms > 0;
	}
	atomic_store(&end, true);
	for (int i = 0; i < COMPETITORS && rank == 0; i++)
		pthread_join(competitors[i], NULL);
	return bad || (rank == 0 && !paused);
}

static void with_a_late_rank(int (*of_ranks)(tuttiComm_t *, int, int, void *))
{
	struct ranks r = { .n = 2, .transport = "shm", .limit_s = 30 };

	late = mmap(NULL, sizeof(*late), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	cr_assert_neq((void *)late, MAP_FAILED);
	setenv("TUTTI_WAIT", "yield", 1);
	cr_expect_eq(ranks_run(&r, of_ranks), 0);
	unsetenv("TUTTI_WAIT");
	munmap(late, sizeof(*late));
	late = NULL;
}

/* An operation costs as much as a switch between two ranks. */
Test(wait_policy, a_rank_that_shares_its_core_yields_before_it_makes_an_operation, .timeout = 60)
{
	with_a_late_rank(wait_without_operations);
}

Test(wait_policy, a_rank_sleeps_where_yields_without_an_operation_are_slow, .timeout = 60)
{
	with_a_late_rank(wait_in_slow_yields);
}

/* Rank 1 is in the barrier, and rank 0, which dials, is late. */
static int connect_to_a_late_rank(tuttiComm_t *comm, int rank, int nranks, void *arg)
{
	atomic_int *of_rank_1 = arg;

	(void)nranks;
	if (rank == 1) {
		yields = of_rank_1;
		atomic_store(yields, 0);
		return tuttiBarrier(*comm, NULL);
	}
	while (atomic_load(of_rank_1) < 0)
		usleep(1000);
	usleep(200000);
	if (atomic_load(of_rank_1))
		return fprintf(stderr, "%d yields\n", atomic_load(of_rank_1));
	return tuttiBarrier(*comm, NULL);
}

/* Its peers need the cores for their handshakes. */
Test(wait_policy, a_rank_that_connects_does_not_yield, .timeout = 60)
{
	atomic_int *of_rank_1 = mmap(NULL, sizeof(*of_rank_1), PROT_READ | PROT_WRITE,
				     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	struct ranks r = { .n = 2, .transport = "tcp", .arg = of_rank_1 };

	cr_assert_neq((void *)of_rank_1, MAP_FAILED);
	atomic_init(of_rank_1, -1);
	setenv("TUTTI_WAIT", "yield", 1);
	cr_expect_eq(ranks_run(&r, connect_to_a_late_rank), 0);
	unsetenv("TUTTI_WAIT");
	munmap(of_rank_1, sizeof(*of_rank_1));
}

/* Rank 0 waits for rank 1, which is late by 20 ms from the last yield that rank 0 owes to it. */
static int wait_long(tuttiComm_t *comm, int rank, int nranks, void *arg)
{
	enum { LEAST = 20, MOST = 200 };
	atomic_int *of_rank_0 = arg;

	(void)nranks;
	if (tuttiBarrier(*comm, NULL))
		return 1;
	if (rank == 0) {
		yields = of_rank_0;
		return tuttiBarrier(*comm, NULL);
	}
	while (atomic_load(of_rank_0) < LEAST)
		usleep(1000);
	usleep(20000);
	if (atomic_load(of_rank_0) > MOST)
		return fprintf(stderr, "%d yields\n", atomic_load(of_rank_0));
	return tuttiBarrier(*comm, NULL);
}

/* More yields cost more than a sleep: other programs run, and ranks that have nothing to do. */
Test(wait_policy, a_rank_that_waits_long_sleeps_after_some_yields, .timeout = 60)
{
	atomic_int *of_rank_0 = mmap(NULL, sizeof(*of_rank_0), PROT_READ | PROT_WRITE,
				     MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	cr_assert_neq((void *)of_rank_0, MAP_FAILED);
	setenv("TUTTI_WAIT", "yield", 1);
	for (int tcp = 0; tcp < 2; tcp++) {
		struct ranks r = { .n = 2, .transport = tcp ? "tcp" : "shm", .arg = of_rank_0 };

		atomic_store(of_rank_0, 0);
		cr_expect_eq(ranks_run(&r, wait_long), 0, "%s", r.transport);
	}
	unsetenv("TUTTI_WAIT");
	munmap(of_rank_0, sizeof(*of_rank_0));
}

/* A wait that found its message within all its spins: the peer has a core of its own. */
static int spin_on(tuttiComm_t *comm, int rank, int nranks, void *arg)
{
	tuttiComm_t c = *comm;

	(void)rank;
	(void)nranks;
	(void)arg;
	c->wait.policy = TT_WAIT_SPIN;
	c->wait.impatience = 12;
	for (int i = 0; i < 256; i++) { /* one of them tries all spins */
		struct tt_wait w = { .comm = c, .idle = 1, .spins = tt_wait_spins(c) };

		tt_wait_reset(&w);
	}
	return c->wait.impatience != 0;
}

Test(wait_policy, one_full_spin_that_succeeds_ends_all_halvings, .timeout = 60)
{
	struct ranks r = { .n = 1, .transport = "shm" };

	cr_expect_eq(ranks_run(&r, spin_on), 0);
}

/* Rank 0 is stopped for longer than the timeout in its second sleep, and rank 1 comes after its fourth. */
static int stop_in_a_sleep(tuttiComm_t *comm, int rank, int nranks, void *arg)
{
	atomic_int *of_rank_0 = arg;

	(void)nranks;
	if (tuttiBarrier(*comm, NULL))
		return 1;
	if (rank == 0) {
		sleeps = of_rank_0;
		stop_ns = 100000000000;
	}
	while (rank && atomic_load(of_rank_0) < 4)
		usleep(1000);
	if (tuttiBarrier(*comm, NULL))
		return fprintf(stderr, "%s\n", tuttiGetLastError(NULL));
	return 0;
}

Test(wait_policy, a_rank_that_was_stopped_waits_on, .timeout = 60)
{
	atomic_int *of_rank_0 = mmap(NULL, sizeof(*of_rank_0), PROT_READ | PROT_WRITE,
				     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	struct ranks r = { .n = 2, .transport = "tcp", .limit_s = 20, .arg = of_rank_0 };

	cr_assert_neq((void *)of_rank_0, MAP_FAILED);
	cr_expect_eq(ranks_run(&r, stop_in_a_sleep), 0);
	munmap(of_rank_0, sizeof(*of_rank_0));
}
