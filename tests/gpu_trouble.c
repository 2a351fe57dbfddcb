/*
 * gpu_trouble.c - wrong uses, different calls, and ranks that are late, die or abort: everything comes to an end, in words
 */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "gpu_team.h"

static int wrong_uses(tuttiComm_t *comm, int rank, int n, void *arg)
{
	const struct tt_cuda *cu = tt_cuda_here();
	tuttiStream_t host_stream;
	int wrong = 0;
	tt_cuptr p;
	void *d;

	(void)arg, (void)rank, (void)n;
	cu->mem_alloc(&p, 4096);
	d = (void *)(uintptr_t)p;
	tuttiStreamCreate(&host_stream);
	wrong += tuttiAllReduce(d, d, 10, tuttiInt32, tuttiSum, *comm, host_stream) != tuttiInvalidArgument;
	wrong += !strstr(tuttiGetLastError(NULL), "CUDA stream");
	wrong += tuttiAlltoAll(d, d, 10, tuttiInt32, *comm, NULL) != tuttiInvalidArgument;
	wrong += tuttiAllReduce(d, (char *)d + 4, 10, tuttiInt32, tuttiSum, *comm, NULL) != tuttiInvalidArgument;
	wrong += tuttiAllReduceQuorum(d, d, 10, tuttiInt32, tuttiSum, 1, 0, *comm, NULL, NULL) != tuttiInvalidArgument;
	wrong += tuttiMsgSend(d, 40, 0, 0, 0, *comm) != tuttiInvalidArgument;
	wrong += tuttiStreamSynchronize((tuttiStream_t)16) != tuttiInvalidArgument;
	wrong += tuttiAllReduce(d, d, 10, tuttiInt32, tuttiSum, *comm, NULL) != tuttiSuccess;
	tuttiStreamDestroy(host_stream);
	cu->mem_free(p);
	return wrong;
}

static void what_cannot_be_is_refused_in_words_and_breaks_nothing(void)
{
	claim(team_play(2, MEET, true, wrong_uses) == 0);
	claim(team_play(2, ORDERED, false, wrong_uses) == 0);
}

/* One thread has both ranks: groups, with a stream each, with none, and with one for both, which cannot be. */
static void one_thread_drives_two_ranks_in_groups(void)
{
	const struct tt_cuda *cu = harness_cuda();
	int x[100], wrong = 0;
	tuttiComm_t c[2];
	tt_custream s[2];
	tt_cuptr p[2];

	claim(cu && tuttiCommInitAll(c, 2, NULL) == tuttiSuccess);
	for (int k = 0; k < 6 && !gpu_broken; k++) {
		for (int r = 0; r < 2; r++) {
			if (!k)
				cu->mem_alloc(&p[r], sizeof(x)), cu->stream_create(&s[r], TT_CU_STREAM_APART);
			for (int i = 0; i < 100; i++)
				x[i] = i + k + r;
			cu->htod(p[r], x, sizeof(x));
		}
		tuttiGroupStart();
		for (int r = 0; r < 2; r++)
			tuttiAllReduce((void *)(uintptr_t)p[r], (void *)(uintptr_t)p[r], 100, tuttiInt32, tuttiSum, c[r],
				       k == 5 ? s[0] : k % 2 ? s[r] : NULL);
		claim(tuttiGroupEnd() == (k == 5 ? tuttiInvalidUsage : tuttiSuccess));
		for (int r = 0; r < 2; r++) {
			cu->stream_synchronize(s[r]);
			cu->dtoh(x, p[r], sizeof(x));
			for (int i = 0; i < 100; i++)
				wrong += k < 5 && x[i] != 2 * (i + k) + 1;
		}
	}
	claim(wrong == 0);
	for (int r = 0; r < 2 && cu; r++)
		claim(tuttiCommDestroy(c[r]) == tuttiSuccess);
}

/* Rank 1 calls something else: both hear of it, and their streams come to an end. */
static int differently(tuttiComm_t *comm, int rank, int n, void *arg)
{
	const struct tt_cuda *cu = tt_cuda_here();
	tuttiResult_t rc = tuttiSuccess;
	tt_custream s;
	tt_cuptr p;
	void *d;

	(void)arg, (void)n;
	cu->mem_alloc(&p, 1 << 20);
	cu->stream_create(&s, TT_CU_STREAM_APART);
	d = (void *)(uintptr_t)p;
	tuttiAllReduce(d, d, 60000, tuttiFloat32, rank == 1 ? tuttiMax : tuttiSum, *comm, s);
	cu->stream_synchronize(s);
	for (int i = 0; i < 5000 && rc == tuttiSuccess; i++) {
		usleep(1000);
		tuttiCommGetAsyncError(*comm, &rc);
	}
	if (rc != tuttiInvalidUsage || !strstr(tuttiGetLastError(*comm), "allreduce"))
		fprintf(stderr, "rank %d: %d %s\n", rank, rc, tuttiGetLastError(*comm));
	else if (tuttiAllReduce(d, d, 10, tuttiFloat32, tuttiSum, *comm, s) == tuttiInvalidUsage)
		n = 0;
	cu->stream_destroy(s), cu->mem_free(p);
	return n;
}

static void different_calls_are_an_error_on_every_rank(void)
{
	claim(team_play(2, MEET, true, differently) == 0);
	claim(team_play(2, ORDERED, false, differently) == 0);
}

/* The last rank does not come within the deadline, or dies, or aborts. */
static const char *fate;

static int without_the_last(tuttiComm_t *comm, int rank, int n, void *arg)
{
	const struct tt_cuda *cu = tt_cuda_here();
	tuttiResult_t rc = tuttiSuccess;
	tt_custream s;
	tt_cuptr p;
	void *d;

	(void)arg;
	cu->mem_alloc(&p, 1 << 20);
	cu->stream_create(&s, TT_CU_STREAM_APART);
	d = (void *)(uintptr_t)p;
	tuttiAllReduce(d, d, 60000, tuttiFloat32, tuttiSum, *comm, s);
	cu->stream_synchronize(s);
	if (rank == n - 1 && !strcmp(fate, "die"))
		kill(getpid(), SIGKILL);
	if (rank == n - 1 && !strcmp(fate, "abort")) {
		tuttiCommAbort(*comm);
		*comm = NULL;
		return 0;
	}
	if (rank < n - 1)
		tuttiAllReduce(d, d, 60000, tuttiFloat32, tuttiSum, *comm, s);
	for (int i = 0; i < 10000 && rc == tuttiSuccess; i++) {
		usleep(1000);
		tuttiCommGetAsyncError(*comm, &rc);
	}
	cu->stream_synchronize(s);             /* it comes to an end */
	if (rc != (!strcmp(fate, "late") ? tuttiTimeout : tuttiRemoteError) || !strstr(tuttiGetLastError(*comm), "rank 2")) {
		fprintf(stderr, "rank %d: %d %s\n", rank, rc, tuttiGetLastError(*comm));
		return 1;
	}
	cu->stream_destroy(s), cu->mem_free(p);
	return 0;
}

static int play_short(int way, bool threads)
{
	struct team t = { .ranks = { .n = 3, .threads = threads, .no_join = true, .limit_s = 50, .timeout_ms = 1000 },
			  .fn = without_the_last, .way = way };

	t.ranks.arg = &t;
	if (way == STAGED)
		setenv("TUTTI_GPU", "staged", 1);
	return team_failures(&t);
}

static void a_rank_that_does_not_come_is_named_and_streams_go_on(void)
{
	fate = "late";
	claim(play_short(MEET, true) == 0);
	claim(play_short(ORDERED, false) == 0);
	claim(play_short(STAGED, false) == 0);
}

static void a_rank_that_dies_or_aborts_ends_the_others_calls(void)
{
	fate = "die";
	claim(play_short(ORDERED, false) == 1);        /* the dead one counts as failed */
	fate = "abort";
	claim(play_short(ORDERED, false) == 0);
	claim(play_short(MEET, true) == 0);
}
static void a_plan_ends_when_a_rank_does_not_come_dies_or_calls_something_else(void)
{
	setenv("TUTTI_ALGO", "ring", 1);
	claim(team_play(2, ORDERED, false, differently) == 0);
	fate = "late";
	claim(play_short(MEET, true) == 0);
	fate = "die";
	claim(play_short(ORDERED, false) == 1);
}

const struct gpu_case gpu_trouble[] = {
	GPU_CASE(what_cannot_be_is_refused_in_words_and_breaks_nothing),
	GPU_CASE(one_thread_drives_two_ranks_in_groups),
	GPU_CASE(different_calls_are_an_error_on_every_rank),
	GPU_CASE(a_rank_that_does_not_come_is_named_and_streams_go_on),
	GPU_CASE(a_rank_that_dies_or_aborts_ends_the_others_calls),
	GPU_CASE(a_plan_ends_when_a_rank_does_not_come_dies_or_calls_something_else),
	{ NULL, NULL, false },
};
