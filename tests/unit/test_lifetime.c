/*
 * test_lifetime.c - the end of communicators: stale handles, fork, abort; all ranks in one thread
 */
#include <criterion/criterion.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "comm/comm.h"
#include "tests/support/must.h"

/* ---- handles --------------------------------------------------------------------------------- */

/* A stale handle is refused, also after other communicators were created and memory was reused. */
static int stale(tuttiComm_t *comm, int rank, int n, void *arg)
{
	tuttiComm_t gone[20], made;
	tuttiStream_t was, is;
	float x = 1;

	(void)arg, (void)n;
	for (int i = 0; i < 20; i++) {
		MUST(tuttiCommSplit(*comm, 0, rank, &gone[i], NULL));
		MUST(i % 2 ? tuttiCommDestroy(gone[i]) : tuttiCommAbort(gone[i]));
		memset(malloc(10000), 0x5a, 10000);
	}
	MUST(tuttiCommSplit(*comm, 0, rank, &made, NULL));
	for (int i = 0; i < 20; i++) {
		WANT(tuttiAllReduce(&x, &x, 1, tuttiFloat32, tuttiSum, gone[i], NULL) ==
		     tuttiInvalidArgument);
		WANT(strstr(tuttiGetLastError(NULL), "destroyed"));
		WANT(tuttiCommDestroy(gone[i]) == tuttiInvalidArgument);
	}
	MUST(tuttiAllReduce(&x, &x, 1, tuttiFloat32, tuttiSum, made, NULL));
	MUST(tuttiCommDestroy(made));
	MUST(tuttiStreamCreate(&was));
	MUST(tuttiStreamDestroy(was));
	MUST(tuttiStreamCreate(&is));
	WANT(tuttiStreamSynchronize(was) == tuttiInvalidArgument &&
	     tuttiStreamDestroy(was) == tuttiInvalidArgument);
	WANT(tuttiAllReduce(&x, &x, 1, tuttiFloat32, tuttiSum, *comm, was) == tuttiInvalidArgument);
	MUST(tuttiStreamDestroy(is));
	return 0;
}

Test(lifetime, a_destroyed_handle_is_refused_after_memory_is_reused, .timeout = 60)
{
	run_both(stale, 2);
}

/* All ranks in one thread: joins run concurrently in a group, and so do operations. */
Test(lifetime, one_thread_can_be_all_ranks, .timeout = 60)
{
	tuttiComm_t comms[3];
	float in[3][1000], out[3][1000];

	cr_assert_eq(tuttiCommInitAll(comms, 3, NULL), tuttiSuccess, "%s", tuttiGetLastError(NULL));
	for (int round = 0; round < 20; round++) {
		tuttiGroupStart();
		for (int r = 0; r < 3; r++) {
			for (int i = 0; i < 1000; i++)
				in[r][i] = (float)(i + r);
			tuttiAllReduce(in[r], out[r], 1000, tuttiFloat32, tuttiSum, comms[r], NULL);
		}
		cr_assert_eq(tuttiGroupEnd(), tuttiSuccess, "%s", tuttiGetLastError(NULL));
		for (int r = 0; r < 3; r++)
			for (int i = 0; i < 1000; i++)
				cr_assert_eq(out[r][i], (float)(3 * i + 3));
	}
	for (int r = 0; r < 3; r++)
		cr_expect_eq(tuttiCommDestroy(comms[r]), tuttiSuccess);
}

/* An id made before fork serves children that join;
 * a communicator made before fork is refused in the child. */
static int forked(tuttiComm_t *comm, int rank, int n, void *arg)
{
	float x = 1;
	int status;
	pid_t child;

	(void)arg, (void)rank;
	child = fork();
	if (child == 0)
		_exit(tuttiAllReduce(&x, &x, 1, tuttiFloat32, tuttiSum, *comm, NULL) ==
					      tuttiInvalidArgument &&
				      strstr(tuttiGetLastError(NULL), "fork")
			      ? 0
			      : 1);
	waitpid(child, &status, 0);
	WANT(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	MUST(tuttiAllReduce(&x, &x, 1, tuttiFloat32, tuttiSum, *comm, NULL));
	WANT(x == (float)n);
	return 0;
}

Test(lifetime, a_communicator_is_refused_in_a_forked_child, .timeout = 60)
{
	run_both(forked, 3);
}

/* Rank 1 calls when rank 0 has tried to free, so the calls of rank 0 are not complete before. */
static int freed_in_flight(tuttiComm_t *comm, int rank, int n, void *arg)
{
	const size_t bytes = 1 << 20;
	void *running, *queued, *other;
	tuttiStream_t s;

	(void)arg, (void)n;
	MUST(tuttiMemAlloc(&running, bytes));
	MUST(tuttiMemAlloc(&queued, bytes));
	MUST(tuttiMemAlloc(&other, bytes));
	MUST(tuttiStreamCreate(&s));
	if (rank == 1)
		MUST(tuttiMsgRecv(NULL, 0, 0, 0, -1, *comm, NULL));
	MUST(tuttiAllReduce(running, running, bytes, tuttiInt8, tuttiSum, *comm, s));
	/* the end of the memory only */
	MUST(tuttiAllReduce(other, (char *)queued + bytes - 8, 8, tuttiInt8, tuttiSum, *comm, s));
	if (rank == 0) {
		WANT(tuttiMemFree(running) == tuttiInvalidUsage &&
		     strstr(tuttiGetLastError(NULL), "a buffer of allreduce on a stream"));
		WANT(tuttiMemFree(queued) == tuttiInvalidUsage);
		WANT(tuttiMemFree((char *)queued + 8) == tuttiInvalidArgument);
		MUST(tuttiMsgSend(NULL, 0, 1, 0, 0, *comm));
	}
	MUST(tuttiStreamSynchronize(s));
	MUST(tuttiMemFree(running));
	MUST(tuttiMemFree(queued));
	MUST(tuttiMemFree(other));
	MUST(tuttiStreamDestroy(s));
	return 0;
}

Test(lifetime, memory_in_flight_is_not_freed, .timeout = 60)
{
	run_both(freed_in_flight, 2);
}

static void *abort_a_sleeper(void *arg)
{
	tuttiComm_t comm = arg;
	uint64_t sleeps = atomic_load(&comm->wait.sleeps);

	while (atomic_load(&comm->wait.sleeps) < sleeps + 5)
		usleep(1000);
	return (void *)(size_t)tuttiCommAbort(comm);
}

/* Rank 0 waits in a call; another thread of rank 0 aborts: every rank's call ends with an error. */
static int aborted(tuttiComm_t *comm, int rank, int n, void *arg)
{
	tuttiResult_t rc, state = tuttiSuccess;
	float x[4] = { 1 };
	pthread_t t;

	(void)arg;
	for (; rank == n - 1 && !state; usleep(1000)) /* calls after the abort */
		MUST(tuttiCommGetAsyncError(*comm, &state));
	if (rank == 0)
		WANT(!pthread_create(&t, NULL, abort_a_sleeper, *comm));
	rc = tuttiAllReduce(x, x, 4, tuttiFloat32, tuttiSum, *comm, NULL);
	WANT(rc == tuttiRemoteError && strstr(tuttiGetLastError(NULL), "abort"));
	if (rank == 0) {
		pthread_join(t, NULL);
		*comm = NULL;
	}
	return 0;
}

Test(lifetime, abort_ends_the_calls_of_every_rank, .timeout = 60)
{
	run_both(aborted, 3);
}

/* Abort does not wait for another communicator's operation earlier in the stream: queued calls of
 * the aborted one fail in place. */
static int abort_queued(tuttiComm_t *comm, int rank, int n, void *arg)
{
	tuttiComm_t other;
	tuttiStream_t stream;
	tuttiResult_t state = tuttiSuccess;
	float x = 1, y = 1;

	(void)arg;
	MUST(tuttiCommSplit(*comm, 0, rank, &other, NULL));
	if (rank == 0) {
		MUST(tuttiStreamCreate(&stream));
		MUST(tuttiAllReduce(&x, &x, 1, tuttiFloat32, tuttiSum, *comm, stream));
		MUST(tuttiAllReduce(&y, &y, 1, tuttiFloat32, tuttiSum, other, stream));
		MUST(tuttiGroupStart());
		MUST(tuttiAllReduce(&y, &y, 1, tuttiFloat32, tuttiSum, other, stream));
		MUST(tuttiAllReduce(&x, &x, 1, tuttiFloat32, tuttiSum, *comm, stream));
		MUST(tuttiGroupEnd());
		/* no other rank has made the first call before the abort */
		MUST(tuttiCommAbort(other));
		WANT(tuttiStreamSynchronize(stream) == tuttiRemoteError &&
		     strstr(tuttiGetLastError(NULL), "abort"));
		MUST(tuttiStreamDestroy(stream));
	} else {
		while (!state)
			MUST(tuttiCommGetAsyncError(other, &state));
		MUST(tuttiAllReduce(&x, &x, 1, tuttiFloat32, tuttiSum, *comm, NULL));
		MUST(tuttiAllReduce(&x, &x, 1, tuttiFloat32, tuttiSum, *comm, NULL));
		MUST(tuttiCommAbort(other));
	}
	WANT(x == (float)(n * n) && y == 1);
	return 0;
}

Test(lifetime, abort_does_not_wait_for_other_communicators, .timeout = 60)
{
	struct ranks r = { .n = 2, .timeout_ms = 100000, .limit_s = 20 };

	cr_expect_eq(ranks_run(&r, abort_queued), 0);
	r.transport = "tcp";
	cr_expect_eq(ranks_run(&r, abort_queued), 0);
}

/* Threads of one rank call repeatedly while another thread aborts: each gets an error, none
 * accesses freed memory. */
static void *call_on(void *comm)
{
	tuttiResult_t rc = tuttiSuccess;

	while (!rc)
		rc = tuttiCommGetAsyncError(comm, &rc) ? tuttiInvalidArgument : rc;
	return (void *)(size_t)rc;
}

static int abort_among_callers(tuttiComm_t *comm, int rank, int n, void *arg)
{
	(void)arg, (void)n;
	for (int i = 0; i < 20; i++) {
		tuttiComm_t c;
		pthread_t t[3];
		void *rc;

		MUST(tuttiCommSplit(*comm, 0, rank, &c, NULL));
		for (int k = 0; k < 3; k++)
			pthread_create(&t[k], NULL, call_on, c);
		MUST(tuttiCommAbort(c));
		for (int k = 0; k < 3; k++) {
			pthread_join(t[k], &rc);
			WANT((size_t)rc != tuttiSuccess);
		}
	}
	return 0;
}

Test(lifetime, abort_may_race_with_calls, .timeout = 60)
{
	run_both(abort_among_callers, 2);
}
