/*
 * test_wait_policy.c - a rank stops yielding where yields are dear, and only there
 *
 * sched_yield and the clock are this file's, so that a yield takes as long as a test wants and no
 * longer: the core's real turns do not count. Threads that compute are the strangers that want the
 * core. Looked at from inside: wait.c tells its pause to nobody else.
 */
#include <criterion/criterion.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "comm/comm.h"
#include "tests/support/ranks.h"

#define STRANGERS 6              /* more than there are ranks */
#define SLOW_NS 2000000
#define QUICK_NS 1000

static atomic_int slow_yields;   /* the next so many take SLOW_NS, the others QUICK_NS */
static atomic_bool end;

/* of this thread: how far its clock is behind the real one, what that said last, and by how much
 * a yield moves it on (0: time goes by itself) */
static _Thread_local int64_t behind_ns, said_ns, step_ns;

int clock_gettime(clockid_t id, struct timespec *t)
{
	int64_t now;

	if (syscall(SYS_clock_gettime, id, t))
		return -1;
	if (id != CLOCK_MONOTONIC)
		return 0;
	now = t->tv_sec * 1000000000l + t->tv_nsec;
	if (step_ns)
		behind_ns = now - said_ns - step_ns;
	step_ns = 0;
	said_ns = now - behind_ns;
	t->tv_sec = said_ns / 1000000000;
	t->tv_nsec = said_ns % 1000000000;
	return 0;
}

int sched_yield(void)
{
	step_ns = atomic_fetch_sub(&slow_yields, 1) > 0 ? SLOW_NS : QUICK_NS;
	return 0;
}

static void *compute(void *arg)
{
	(void)arg;
	while (!atomic_load_explicit(&end, memory_order_relaxed))
		;
	return NULL;
}

/* Rank 0 waits for rank 1, which is late each time. Its longest pause must be as *arg has it. */
static int wait_for_the_late(tuttiComm_t *comm, int rank, int nranks, void *arg)
{
	enum { CALLS = 20 };
	const struct { int slow; bool pauses; } *want = arg;
	pthread_t strangers[STRANGERS];
	uint32_t longest = 0;
	int bad = 0;

	(void)nranks;
	for (int i = 0; i < STRANGERS && rank == 0; i++)
		if (pthread_create(&strangers[i], NULL, compute, NULL))
			return 1;
	for (int i = 0; i < CALLS && !bad; i++) {
		atomic_store(&slow_yields, rank == 0 ? want->slow : 0);
		if (rank == 1)
			usleep(20000);
		bad = tuttiBarrier(*comm, NULL);
		longest = (*comm)->wait.pause_ms > longest ? (*comm)->wait.pause_ms : longest;
	}
	atomic_store(&end, true);
	for (int i = 0; i < STRANGERS && rank == 0; i++)
		pthread_join(strangers[i], NULL);
	if (rank == 0 && (longest > 0) != want->pauses)
		bad = fprintf(stderr, "%d slow yields in a wait: paused for %u ms\n", want->slow,
			      longest);
	return bad;
}

Test(waits, where_yields_are_dear_a_rank_sleeps_and_a_single_long_one_is_not_dear, .timeout = 60)
{
	static const struct { int slow; bool pauses; } want[] = { { 1000, true }, { 1, false } };

	setenv("TUTTI_WAIT", "yield", 1);
	for (int i = 0; i < 2; i++) {
		struct ranks r = { .n = 2, .transport = "shm", .arg = (void *)&want[i] };

		cr_expect_eq(ranks_run(&r, wait_for_the_late), 0, "%d slow yields", want[i].slow);
	}
	unsetenv("TUTTI_WAIT");
}
