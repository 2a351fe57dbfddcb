/*
 * test_calls.c - what surrounds the collectives: groups, streams, point to point, split, operations, counters
 */
#include <criterion/criterion.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/base.h"
#include "ranks.h"

#define MUST(call)                                                                                                    \
	do {                                                                                                          \
		tuttiResult_t must_rc = (call);                                                                       \
		if (must_rc) {                                                                                        \
			fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call, tuttiGetLastError(NULL));       \
			return 1;                                                                                     \
		}                                                                                                     \
	} while (0)
#define WANT(condition)                                                                                               \
	do {                                                                                                          \
		if (!(condition)) {                                                                                   \
			fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);                       \
			return 1;                                                                                     \
		}                                                                                                     \
	} while (0)

static void run_both(rank_fn *fn, int n)
{
	struct ranks r = { .n = n };

	cr_expect_eq(ranks_run(&r, fn), 0, "n %d, shm", n);
	r.transport = "tcp";
	cr_expect_eq(ranks_run(&r, fn), 0, "n %d, tcp", n);
}

/* Everybody sends to everybody and to itself, several messages a pair, big and empty ones, all in one group. */
static int exchange(tuttiComm_t *comm, int rank, int n, void *arg)
{
	static const size_t counts[] = { 1, 0, 300000, 7 };
	int *out[16][4], *in[16][4];

	(void)arg;
	MUST(tuttiGroupStart());
	for (int k = 0; k < 4; k++)
		for (int p = 0; p < n; p++) {
			out[p][k] = malloc(counts[k] * sizeof(int) + 1);
			in[p][k] = calloc(counts[k] + 1, sizeof(int));
			for (size_t i = 0; i < counts[k]; i++)
				out[p][k][i] = (int)i + 1000 * rank + 100 * p + k;
			MUST(tuttiSend(out[p][k], counts[k], tuttiInt32, p, *comm, NULL));
			MUST(tuttiRecv(in[p][k], counts[k], tuttiInt32, p, *comm, NULL));
		}
	MUST(tuttiGroupEnd());
	for (int k = 0; k < 4; k++)
		for (int p = 0; p < n; p++) {
			for (size_t i = 0; i < counts[k]; i++)
				WANT(in[p][k][i] == (int)i + 1000 * p + 100 * rank + k);
			free(out[p][k]);
			free(in[p][k]);
		}
	return 0;
}

Test(calls, a_group_of_sends_and_receives_runs_at_once, .timeout = 60)
{
	for (int n = 1; n <= 4; n++)
		run_both(exchange, n);
}

static int ping_pong(tuttiComm_t *comm, int rank, int n, void *arg)
{
	double x = 0;

	(void)arg;
	for (int i = 0; i < 1000; i++) {
		int from = i % n, to = (i + 1) % n;
		double y = i;

		if (rank == from)
			MUST(tuttiSend(&y, 1, tuttiFloat64, to, *comm, NULL));
		if (rank == to) {
			MUST(tuttiRecv(&x, 1, tuttiFloat64, from, *comm, NULL));
			WANT(x == i);
		}
	}
	return 0;
}

Test(calls, sends_and_receives_without_a_group_pair_up, .timeout = 60)
{
	run_both(ping_pong, 2);
	run_both(ping_pong, 3);
}

/* Operations of two streams and of the caller on one communicator: results depend on call order only. */
static int streams(tuttiComm_t *comm, int rank, int n, void *arg)
{
	enum { LEN = 50000 };
	static float a[LEN], b[LEN], c[LEN], d[LEN];
	tuttiStream_t s1, s2;

	(void)arg;
	MUST(tuttiStreamCreate(&s1));
	MUST(tuttiStreamCreate(&s2));
	for (int round = 0; round < 50; round++) {
		for (int i = 0; i < LEN; i++)
			a[i] = (float)(rank + i % 5), c[i] = (float)(2 * rank + round);
		MUST(tuttiAllReduce(a, b, LEN, tuttiFloat32, tuttiSum, *comm, s1));
		MUST(tuttiAllReduce(c, d, LEN, tuttiFloat32, tuttiMax, *comm, s2));
		MUST(tuttiBarrier(*comm, NULL));
		MUST(tuttiStreamSynchronize(s1));
		MUST(tuttiStreamSynchronize(s2));
		for (int i = 0; i < LEN; i++)
			WANT(b[i] == (float)(n * (n - 1) / 2 + n * (i % 5)) && d[i] == (float)(2 * (n - 1) + round));
	}
	WANT(tuttiStreamQuery(s1) == tuttiSuccess);
	MUST(tuttiStreamDestroy(s1));
	MUST(tuttiStreamDestroy(s2));
	return 0;
}

Test(calls, streams_run_behind_the_caller_in_call_order, .timeout = 60)
{
	run_both(streams, 2);
	run_both(streams, 3);
}

/* A group over two communicators, made by split, and several operations of one. */
static int split(tuttiComm_t *comm, int rank, int n, void *arg)
{
	tuttiComm_t half, reversed, none;
	int size, place, sum = 0, one = 1, all = 0, got = -1;

	(void)arg;
	MUST(tuttiCommSplit(*comm, rank % 2, rank, &half, NULL));
	MUST(tuttiCommSplit(*comm, 0, n - rank, &reversed, NULL));
	MUST(tuttiCommSplit(*comm, rank == 0 ? TUTTI_SPLIT_NOCOLOR : 1, 0, &none, NULL));
	WANT((none == NULL) == (rank == 0));
	MUST(tuttiCommCount(half, &size));
	WANT(size == (n + 1 - rank % 2) / 2);
	MUST(tuttiCommUserRank(reversed, &place));
	WANT(place == n - 1 - rank);
	MUST(tuttiGroupStart());
	MUST(tuttiAllReduce(&one, &sum, 1, tuttiInt32, tuttiSum, half, NULL));
	MUST(tuttiAllReduce(&one, &all, 1, tuttiInt32, tuttiSum, reversed, NULL));
	MUST(tuttiBroadcast(&rank, &got, 1, tuttiInt32, 0, reversed, NULL));
	MUST(tuttiGroupEnd());
	WANT(sum == size && all == n && got == n - 1);
	MUST(tuttiCommDestroy(half));
	MUST(tuttiCommDestroy(reversed));
	MUST(tuttiCommDestroy(none));
	return 0;
}

Test(calls, split_makes_communicators_that_work_together, .timeout = 60)
{
	for (int n = 1; n <= 5; n++)
		run_both(split, n);
}

/* Ranks that bring different settings to a split all get the same sentence, and the parent goes on. */
static int split_apart(tuttiComm_t *comm, int rank, int n, void *arg)
{
	tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
	tuttiComm_t made;
	float x = 1;

	(void)arg;
	config.algo = rank ? "ring" : "tree";
	WANT(tuttiCommSplit(*comm, 0, rank, &made, &config) == tuttiInvalidUsage);
	WANT(strstr(tuttiGetLastError(NULL), "ring") && strstr(tuttiGetLastError(NULL), "tree"));
	MUST(tuttiAllReduce(&x, &x, 1, tuttiFloat32, tuttiSum, *comm, NULL));
	WANT(x == (float)n);
	return 0;
}

Test(calls, a_split_with_different_settings_is_refused_on_every_rank, .timeout = 60)
{
	run_both(split_apart, 3);
}

/* What one rank cannot do, no rank does; all return at once (the limit is far below the deadline), with that rank's
 * reason, and the parent goes on. */
static int split_in_vain(tuttiComm_t *comm, int rank, int n, void *arg)
{
	static const char *const words[] = { "maybe", "rings", "-7", "newcomm", "INITIALIZER" };
	tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
	tuttiComm_t made;
	tuttiResult_t rc;
	float x;

	(void)arg;
	for (int i = 0; i < 5; i++) {
		bool bad = rank == (i + 1) % n;

		if (bad && i == 0)
			setenv("TUTTI_WAIT", "maybe", 1);
		config.algo = bad && i == 1 ? "rings" : NULL;
		config.magic = bad && i == 4 ? 0 : TUTTI_CONFIG_MAGIC;
		rc = tuttiCommSplit(*comm, bad && i == 2 ? -7 : i == 3 && rank == 0 ? TUTTI_SPLIT_NOCOLOR : rank % 2, rank,
				    bad && i == 3 ? NULL : &made, &config);
		unsetenv("TUTTI_WAIT");
		WANT(rc == (bad ? tuttiInvalidArgument : tuttiRemoteError));
		if (!strstr(tuttiGetLastError(NULL), words[i]))
			fprintf(stderr, "rank %d, case %d: %s\n", rank, i, tuttiGetLastError(NULL));
		WANT(strstr(tuttiGetLastError(NULL), words[i]));
		x = 1;
		MUST(tuttiAllReduce(&x, &x, 1, tuttiFloat32, tuttiSum, *comm, NULL));
		WANT(x == (float)n);
	}
	MUST(tuttiCommSplit(*comm, 0, rank, &made, NULL));
	MUST(tuttiCommDestroy(made));
	return 0;
}

Test(calls, a_split_that_one_rank_cannot_make_fails_on_every_rank, .timeout = 60)
{
	struct ranks r = { .n = 3, .timeout_ms = 100000, .limit_s = 20 };

	cr_expect_eq(ranks_run(&r, split_in_vain), 0);
	r.n = 5;
	cr_expect_eq(ranks_run(&r, split_in_vain), 0);
}

/* A tile asked for when the parent was joined is the child's, too, whatever one rank's environment says later. */
static int keep_tile(tuttiComm_t *comm, int rank, int n, void *arg)
{
	tuttiComm_t child;
	char text[200];
	static float x[100000];

	(void)arg, (void)n;
	setenv("TUTTI_TILE_BYTES", rank ? "16384" : "65536", 1);
	MUST(tuttiCommSplit(*comm, 0, rank, &child, NULL));
	MUST(tuttiAllReduce(x, x, 100000, tuttiFloat32, tuttiSum, child, NULL));
	MUST(tuttiCommDescribe(child, "allreduce", 100000, tuttiFloat32, text, sizeof(text)));
	WANT(strstr(text, "tile_bytes 8192"));
	MUST(tuttiCommDestroy(child));
	return 0;
}

Test(calls, a_split_keeps_its_parents_tile, .timeout = 60)
{
	setenv("TUTTI_TILE_BYTES", "8192", 1);
	run_both(keep_tile, 3);
}

/* A tile that does not end with an element, asked for by the environment, is made shorter. */
static int odd_tile(tuttiComm_t *comm, int rank, int n, void *arg)
{
	enum { LEN = 30011 };
	static double x[LEN];

	(void)arg;
	for (int i = 0; i < LEN; i++)
		x[i] = rank + i;
	MUST(tuttiAllReduce(x, x, LEN, tuttiFloat64, tuttiSum, *comm, NULL));
	for (int i = 0; i < LEN; i++)
		WANT(x[i] == (double)n * i + n * (n - 1) / 2);
	return 0;
}

Test(calls, tiles_of_any_size_keep_elements_whole, .timeout = 60)
{
	setenv("TUTTI_TILE_BYTES", "4099", 1);
	run_both(odd_tile, 3);
}

static int pre_multiplied(tuttiComm_t *comm, int rank, int n, void *arg)
{
	float mine = (float)(rank + 1), in[1000], out[1000], part[1000];
	tuttiRedOp_t op;
	float want = 0;

	(void)arg;
	for (int r = 0; r < n; r++)
		want += (float)((r + 1) * 3);
	for (int i = 0; i < 1000; i++)
		in[i] = 3;
	MUST(tuttiRedOpCreatePreMulSum(&op, &mine, tuttiFloat32, tuttiScalarHostImmediate, *comm));
	MUST(tuttiAllReduce(in, out, 1000, tuttiFloat32, op, *comm, NULL));
	MUST(tuttiReduceScatter(in, part, (size_t)(1000 / n), tuttiFloat32, op, *comm, NULL));
	WANT(out[0] == want && out[999] == want && part[0] == want && part[1000 / n - 1] == want && in[5] == 3);
	MUST(tuttiReduce(in, rank == n - 1 ? out : NULL, 1000, tuttiFloat32, op, n - 1, *comm, NULL));
	MUST(tuttiRedOpDestroy(op, *comm));
	WANT(tuttiAllReduce(in, out, 1000, tuttiFloat32, op, *comm, NULL) == tuttiInvalidArgument);
	MUST(tuttiAllReduce(in, in, 1000, tuttiFloat32, tuttiAvg, *comm, NULL));
	WANT(in[7] == 3);
	return 0;
}

Test(calls, a_pre_multiplied_sum_scales_each_input, .timeout = 60)
{
	for (int n = 1; n <= 4; n++)
		run_both(pre_multiplied, n);
}

/* The second call of a shape allocates nothing; what was sent is counted. */
static int counted(tuttiComm_t *comm, int rank, int n, void *arg)
{
	tuttiCounters_t before = { .size = sizeof(before) }, after = before;
	static float x[100000];

	(void)arg, (void)rank;
	MUST(tuttiAllReduce(x, x, 100000, tuttiFloat32, tuttiSum, *comm, NULL));
	MUST(tuttiCommGetCounters(*comm, &before));
	for (int i = 0; i < 10; i++)
		MUST(tuttiAllReduce(x, x, 100000, tuttiFloat32, tuttiSum, *comm, NULL));
	MUST(tuttiCommGetCounters(*comm, &after));
	WANT(after.allocations == before.allocations && after.operations == before.operations + 10);
	WANT(n == 1 || after.sent_bytes > before.sent_bytes);
	WANT(after.sent_bytes == after.sent_bytes_shm + after.sent_bytes_tcp);
	return 0;
}

Test(calls, the_second_call_of_a_shape_allocates_nothing, .timeout = 60)
{
	for (int n = 1; n <= 3; n++)
		run_both(counted, n);
}

/* ---- what the process allocates, counted beside the library's own figure ----------------------------------------- */

static atomic_ulong allocations;

#if !defined(TT_ASAN) && !defined(TT_TSAN)
void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t n, size_t bytes);
void *__libc_realloc(void *p, size_t bytes);
void *__libc_memalign(size_t align, size_t bytes);

__attribute__((weak)) void *malloc(size_t bytes)
{
	allocations++;
	return __libc_malloc(bytes);
}

__attribute__((weak)) void *calloc(size_t n, size_t bytes)
{
	allocations++;
	return __libc_calloc(n, bytes);
}

__attribute__((weak)) void *realloc(void *p, size_t bytes)
{
	allocations++;
	return __libc_realloc(p, bytes);
}

__attribute__((weak)) void *aligned_alloc(size_t align, size_t bytes)
{
	allocations++;
	return __libc_memalign(align, bytes);
}
#endif

static int group_of_calls(tuttiComm_t c, int rank, int n, tuttiStream_t stream)
{
	static float x[3000], got[16][100];

	MUST(tuttiGroupStart());
	for (int p = 0; p < n; p++) {
		MUST(tuttiSend(x, 100, tuttiFloat32, p, c, NULL));
		MUST(tuttiRecv(got[p], 100, tuttiFloat32, p, c, NULL));
	}
	for (int i = 0; i < 20; i++)
		MUST(tuttiAllReduce(x + 100 * i, x + 100 * i, 100, tuttiFloat32, tuttiSum, c, stream));
	MUST(tuttiGroupEnd());
	MUST(tuttiAllReduce(x, x, 100, tuttiFloat32, tuttiSum, c, stream));
	MUST(tuttiBroadcast(x, x, 100, tuttiFloat32, 0, c, NULL));
	return stream ? tuttiStreamSynchronize(stream) : rank < 0;
}

/* How many calls wait in the stream at once is a matter of time, and control's thread allocates when a wait is long: so
 * one of several tries must be clean, by either count. */
static int groups_and_streams(tuttiComm_t *comm, int rank, int n, void *arg)
{
	tuttiCounters_t before = { .size = sizeof(before) }, after = before;
	unsigned long least = ULONG_MAX, least_own = ULONG_MAX;
	tuttiStream_t stream;

	(void)arg;
	MUST(tuttiStreamCreate(&stream));
	for (int i = 0; i < 3; i++)
		if (group_of_calls(*comm, rank, n, NULL) || group_of_calls(*comm, rank, n, stream))
			return 1;
	for (int try = 0; try < 20; try++) {
		unsigned long count = allocations;

		MUST(tuttiCommGetCounters(*comm, &before));
		if (group_of_calls(*comm, rank, n, NULL) || group_of_calls(*comm, rank, n, stream))
			return 1;
		MUST(tuttiCommGetCounters(*comm, &after));
		count = allocations - count;
		least = count < least ? count : least;
		least_own = after.allocations - before.allocations < least_own ? after.allocations - before.allocations
									       : least_own;
	}
	MUST(tuttiStreamDestroy(stream));
	WANT(least == 0 && least_own == 0);
	return 0;
}

Test(calls, the_second_group_and_the_second_call_of_a_stream_allocate_nothing, .timeout = 60)
{
	unsigned long before = allocations;
	void *volatile probe = malloc(100);

	free(probe);
	if (allocations == before)
		cr_skip_test("skipped: malloc cannot be counted in this build");
	for (int n = 1; n <= 3; n++)
		run_both(groups_and_streams, n);
}

/* ---- handles --------------------------------------------------------------------------------------------------------- */

/* A handle that is gone is refused, also when others were made and memory was used since. */
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
		WANT(tuttiAllReduce(&x, &x, 1, tuttiFloat32, tuttiSum, gone[i], NULL) == tuttiInvalidArgument);
		WANT(strstr(tuttiGetLastError(NULL), "destroyed"));
		WANT(tuttiCommDestroy(gone[i]) == tuttiInvalidArgument);
	}
	MUST(tuttiAllReduce(&x, &x, 1, tuttiFloat32, tuttiSum, made, NULL));
	MUST(tuttiCommDestroy(made));
	MUST(tuttiStreamCreate(&was));
	MUST(tuttiStreamDestroy(was));
	MUST(tuttiStreamCreate(&is));
	WANT(tuttiStreamSynchronize(was) == tuttiInvalidArgument && tuttiStreamDestroy(was) == tuttiInvalidArgument);
	WANT(tuttiAllReduce(&x, &x, 1, tuttiFloat32, tuttiSum, *comm, was) == tuttiInvalidArgument);
	MUST(tuttiStreamDestroy(is));
	return 0;
}

Test(calls, a_destroyed_handle_is_refused_whatever_was_made_since, .timeout = 60)
{
	run_both(stale, 2);
}

/* At most 8 MiB and 1 MiB for each rank of the host. Nothing but zeros is added, so that the ranks can share one output
 * (arg) and none needs memory for its input. */
static int bounded(tuttiComm_t *comm, int rank, int n, void *arg)
{
	enum { BYTES = 64 << 20 };
	const void *zeros = mmap(NULL, BYTES, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	uint64_t held[tuttiNumMemStats], sum = 0, again;
	tuttiCounters_t counters = { .size = sizeof(counters) };
	const char *tier = getenv("TT_TIER");
	bool all = n <= 8 || (tier && strcmp(tier, "default"));

	MUST(tuttiAllReduce(zeros, arg, all ? BYTES : BYTES / 16, tuttiUint8, tuttiSum, *comm, NULL));
	MUST(tuttiAllReduce(zeros, arg, 1000, tuttiUint8, tuttiMax, *comm, NULL));
	for (int i = 0; i < tuttiNumMemStats; i++) {
		MUST(tuttiCommMemStats(*comm, (tuttiCommMemStat_t)i, &held[i]));
		sum += held[i];
	}
	MUST(tuttiCommGetCounters(*comm, &counters));
	if (rank == 0)
		fprintf(stderr, "n %d: %.0f KiB: shared %.0f, stages %.0f, scratch %.0f, plans %.0f, control %.0f\n", n,
			(double)held[tuttiMemTotal] / 1024, (double)held[tuttiMemShared] / 1024,
			(double)held[tuttiMemStages] / 1024, (double)held[tuttiMemScratch] / 1024,
			(double)held[tuttiMemPlans] / 1024, (double)held[tuttiMemControl] / 1024);
	WANT(held[tuttiMemTotal] <= (8u + (unsigned)n) << 20);
	WANT(sum == 2 * held[tuttiMemTotal] && counters.memory_bytes == held[tuttiMemTotal]);
	WANT(held[tuttiMemShared] + held[tuttiMemStages] > 0 && held[tuttiMemPlans] > 0 && held[tuttiMemControl] > 0);
	WANT(tuttiCommMemStats(*comm, tuttiNumMemStats, &again) == tuttiInvalidArgument &&
	     tuttiCommMemStats(*comm, tuttiMemTotal, NULL) == tuttiInvalidArgument);
	return 0;
}

Test(calls, memory_of_a_communicator_is_known_and_bounded, .timeout = 300)
{
	static const char *const transports[] = { "auto", "shm", "tcp" };
#ifdef TT_ASAN
	static const int ns[] = { 2, 8, 16 };          /* 64 instrumented ranks need longer to join than they wait */
#else
	static const int ns[] = { 2, 8, 64 };
#endif
	void *out = mmap(NULL, 64 << 20, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	for (size_t i = 0; i < sizeof(ns) / sizeof(*ns); i++)
		for (size_t t = 0; t < sizeof(transports) / sizeof(*transports); t++)
			cr_expect_eq(ranks_run(&(struct ranks){ .n = ns[i], .transport = transports[t], .arg = out,
								.timeout_ms = 100000, .limit_s = 150 }, bounded), 0,
				     "n %d, %s", ns[i], transports[t]);
	munmap(out, 64 << 20);
}

/* All ranks in one thread: joins run together in a group, and so do the operations. */
Test(calls, one_thread_can_be_all_ranks, .timeout = 60)
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

/* An id made before fork serves children that join; a communicator made before fork is refused in the child. */
static int forked(tuttiComm_t *comm, int rank, int n, void *arg)
{
	float x = 1;
	int status;
	pid_t child;

	(void)arg, (void)rank;
	child = fork();
	if (child == 0)
		_exit(tuttiAllReduce(&x, &x, 1, tuttiFloat32, tuttiSum, *comm, NULL) == tuttiInvalidArgument &&
		      strstr(tuttiGetLastError(NULL), "fork") ? 0 : 1);
	waitpid(child, &status, 0);
	WANT(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	MUST(tuttiAllReduce(&x, &x, 1, tuttiFloat32, tuttiSum, *comm, NULL));
	WANT(x == (float)n);
	return 0;
}

Test(calls, a_communicator_is_refused_in_a_forked_child, .timeout = 60)
{
	run_both(forked, 3);
}

static void *abort_soon(void *comm)
{
	usleep(200000);
	return (void *)(size_t)tuttiCommAbort(comm);
}

/* Rank 0 waits in a call; another thread of rank 0 aborts: every rank's call ends with an error. */
static int aborted(tuttiComm_t *comm, int rank, int n, void *arg)
{
	pthread_t t;
	float x[4] = { 1 };
	tuttiResult_t rc;

	(void)arg;
	if (rank == n - 1) {
		usleep(1000000);
		rc = tuttiAllReduce(x, x, 4, tuttiFloat32, tuttiSum, *comm, NULL);
		WANT(rc == tuttiRemoteError && strstr(tuttiGetLastError(*comm), "abort"));
		return 0;
	}
	if (rank == 0)
		pthread_create(&t, NULL, abort_soon, *comm);
	rc = tuttiAllReduce(x, x, 4, tuttiFloat32, tuttiSum, *comm, NULL);
	WANT(rc == tuttiRemoteError && strstr(tuttiGetLastError(NULL), "abort"));
	if (rank == 0) {
		pthread_join(t, NULL);
		*comm = NULL;
	}
	return 0;
}

Test(calls, abort_ends_the_calls_of_every_rank, .timeout = 60)
{
	run_both(aborted, 3);
}

/* Abort does not wait for what another communicator does in the stream before: its own queued calls fail in place. */
static int abort_behind(tuttiComm_t *comm, int rank, int n, void *arg)
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
		MUST(tuttiCommAbort(other));     /* nobody else has come to the first call before that */
		WANT(tuttiStreamSynchronize(stream) == tuttiRemoteError && strstr(tuttiGetLastError(NULL), "abort"));
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

Test(calls, abort_does_not_wait_for_other_communicators, .timeout = 60)
{
	struct ranks r = { .n = 2, .timeout_ms = 100000, .limit_s = 20 };

	cr_expect_eq(ranks_run(&r, abort_behind), 0);
	r.transport = "tcp";
	cr_expect_eq(ranks_run(&r, abort_behind), 0);
}

/* Threads of one rank call again and again, while another thread aborts: each gets an error, none touches what is gone. */
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

Test(calls, abort_may_meet_callers_at_the_door, .timeout = 60)
{
	run_both(abort_among_callers, 2);
}

/* What a repeated call does not look up again is still looked at: buffers that are missing, overlap, or lie otherwise. */
static int repeat(tuttiComm_t *comm, int rank, int n, void *arg)
{
	int32_t in[64], out[64];

	(void)arg;
	for (int round = 0; round < 8; round++) {
		bool in_place = round & 1;
		int32_t *to = in_place ? in : out;

		for (int i = 0; i < 64; i++)
			in[i] = rank + i + round;
		WANT(tuttiReduce(in, to, 20, tuttiInt32, tuttiSum, 1, *comm, NULL) == tuttiSuccess);
		WANT(rank != 1 || to[19] == n * (n - 1) / 2 + n * (19 + round));
		WANT(tuttiAllGather(in + 30, out, 3, tuttiInt32, *comm, NULL) == tuttiSuccess);
		WANT(out[3 * (n - 1) + 2] == n - 1 + 32 + round);
		WANT(tuttiAllGather(NULL, out, 3, tuttiInt32, *comm, NULL) == tuttiInvalidArgument);
		WANT(tuttiAllGather(in + 30, in + 29, 3, tuttiInt32, *comm, NULL) == tuttiInvalidArgument);
		WANT(tuttiReduce(in, in + 3, 20, tuttiInt32, tuttiSum, rank, *comm, NULL) == tuttiInvalidArgument);
		WANT(tuttiAllReduce(in, in + 1, 5, tuttiInt32, tuttiSum, *comm, NULL) == tuttiInvalidArgument);
		in[50] = rank;
		WANT(tuttiAllReduce(in + 50, out, 1, tuttiInt32, tuttiMax, *comm, NULL) == tuttiSuccess && out[0] == n - 1);
		WANT(tuttiAllReduce(in + 50, NULL, 1, tuttiInt32, tuttiMax, *comm, NULL) == tuttiInvalidArgument);
	}
	return 0;
}

Test(calls, a_repeated_call_is_refused_like_the_first, .timeout = 60)
{
	for (int n = 2; n <= 4; n++)
		for (int t = 0; t < 2; t++) {
			struct ranks r = { .n = n, .transport = t ? "tcp" : "shm" };

			cr_expect_eq(ranks_run(&r, repeat), 0, "n %d", n);
		}
}
