/*
 * test_wait_hook.c - the function that a waiting rank calls now and then
 */
#include <criterion/criterion.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>

#include "tests/support/must.h"

#define CALLS 200 /* more than rounds that spin or yield: some of them are between sleeps */

static atomic_int called[2];

static int count(void *ctx)
{
	atomic_fetch_add(&called[*(int *)ctx], 1);
	return 0;
}

/* Rank 1 begins when the hook of rank 0 was called: the hook serves what rank 1 needs. */
static int waiting(tuttiComm_t *comm, int rank, int n, void *arg)
{
	float x = 1;
	int before;

	(void)arg, (void)n;
	MUST(tuttiAllReduce(&x, &x, 1, tuttiFloat32, tuttiSum, *comm, NULL));
	atomic_store(&called[rank], 0);
	MUST(tuttiCommSetWaitHook(*comm, count, &rank));
	MUST(tuttiBarrier(*comm, NULL));
	before = atomic_load(&called[0]);
	while (rank == 1 && atomic_load(&called[0]) < before + CALLS)
		sched_yield();
	MUST(tuttiAllReduce(&x, &x, 1, tuttiFloat32, tuttiSum, *comm, NULL));
	WANT(x == 4);
	MUST(tuttiCommSetWaitHook(*comm, NULL, NULL));
	before = atomic_load(&called[rank]);
	for (int i = 0; i < 100; i++)
		MUST(tuttiBarrier(*comm, NULL));
	WANT(atomic_load(&called[rank]) == before);
	return 0;
}

static void run(rank_fn *fn, const char *transport, int timeout_ms)
{
	struct ranks r = {
		.n = 2, .threads = true, .transport = transport, .timeout_ms = timeout_ms
	};

	cr_expect_eq(ranks_run(&r, fn), 0);
}

Test(wait_hook, a_rank_that_waits_in_shared_memory_calls_it_until_it_is_removed, .timeout = 60)
{
	run(waiting, "shm", 0);
}

Test(wait_hook, a_rank_that_waits_over_tcp_calls_it_until_it_is_removed, .timeout = 60)
{
	run(waiting, "tcp", 0);
}

static int always(void *ctx)
{
	(void)ctx;
	return 1;
}

static int late(tuttiComm_t *comm, int rank, int n, void *arg)
{
	tuttiResult_t state = tuttiSuccess;
	float x = 1;

	(void)arg, (void)n;
	MUST(tuttiCommSetWaitHook(*comm, always, NULL));
	MUST(tuttiBarrier(*comm, NULL));
	if (rank == 0) {
		WANT(tuttiAllReduce(&x, &x, 1, tuttiFloat32, tuttiSum, *comm, NULL) ==
			     tuttiTimeout &&
		     strstr(tuttiGetLastError(*comm), "timed out"));
	} else {
		while (!state)
			MUST((sched_yield(), tuttiCommGetAsyncError(*comm, &state)));
	}
	return 0;
}

Test(wait_hook, a_wait_has_its_deadline_although_the_hook_always_moves_something, .timeout = 60)
{
	run(late, "shm", 400);
}

/* A stream's thread calls the hook too. */
static int behind_a_stream(tuttiComm_t *comm, int rank, int n, void *arg)
{
	tuttiStream_t s;
	float x = 1;

	(void)arg, (void)n;
	MUST(tuttiStreamCreate(&s));
	atomic_store(&called[rank], 0);
	MUST(tuttiCommSetWaitHook(*comm, count, &rank));
	MUST(tuttiBarrier(*comm, NULL));
	while (rank == 1 && atomic_load(&called[0]) < CALLS)
		sched_yield();
	MUST(tuttiAllReduce(&x, &x, 1, tuttiFloat32, tuttiSum, *comm, s));
	MUST(tuttiStreamDestroy(s));
	WANT(x == 2);
	MUST(tuttiCommSetWaitHook(*comm, NULL, NULL));
	return 0;
}

Test(wait_hook, the_thread_of_a_stream_calls_it, .timeout = 60)
{
	run(behind_a_stream, "shm", 0);
}
