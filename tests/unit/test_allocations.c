/*
 * test_allocations.c - allocations of calls, and memory of communicators
 */
#include <criterion/criterion.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/base.h"
#include "model/choose.h"
#include "tests/support/descriptors.h"
#include "tests/support/harness_control.h"
#include "tests/support/malloc_count.h"
#include "tests/support/must.h"

/* The fifth call of a shape allocates nothing; the counters of sent bytes add up. */
static int counted(tuttiComm_t *comm, int rank, int n, void *arg)
{
	tuttiCounters_t before = { .size = sizeof(before) }, after = before;
	static float x[100000];

	(void)arg, (void)rank;
	for (int i = 0; i < 4; i++) /* each path of a large call is used once */
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

Test(allocations, repeated_calls_of_a_shape_allocate_nothing, .timeout = 60)
{
	for (int n = 1; n <= 3; n++)
		run_both(counted, n);
}

/* ---- allocations of the process, counted independently of the library's counter -------------- */

static int group_of_calls(tuttiComm_t c, int rank, int n, tuttiStream_t stream)
{
	static float x[3000], got[16][100];

	MUST(tuttiGroupStart());
	for (int p = 0; p < n; p++) {
		MUST(tuttiSend(x, 100, tuttiFloat32, p, c, NULL));
		MUST(tuttiRecv(got[p], 100, tuttiFloat32, p, c, NULL));
	}
	for (int i = 0; i < 20; i++)
		MUST(tuttiAllReduce(x + 100 * i, x + 100 * i, 100, tuttiFloat32, tuttiSum, c,
				    stream));
	MUST(tuttiGroupEnd());
	MUST(tuttiAllReduce(x, x, 100, tuttiFloat32, tuttiSum, c, stream));
	MUST(tuttiBroadcast(x, x, 100, tuttiFloat32, 0, c, NULL));
	return stream ? tuttiStreamSynchronize(stream) : rank < 0;
}

/* The number of calls queued in the stream depends on timing, and control's service thread
 * allocates in long waits: so by each count one of several tries must be free of allocations. */
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
		least_own = after.allocations - before.allocations < least_own
				    ? after.allocations - before.allocations
				    : least_own;
	}
	MUST(tuttiStreamDestroy(stream));
	WANT(least == 0 && least_own == 0);
	return 0;
}

Test(allocations, repeated_groups_and_stream_calls_allocate_nothing, .timeout = 60)
{
	unsigned long before = allocations;
	void *volatile probe = malloc(100);

	free(probe);
	if (allocations == before)
		cr_skip_test("skipped: malloc cannot be counted in this build");
	for (int n = 1; n <= 3; n++)
		run_both(groups_and_streams, n);
}

/* With more than eight ranks two-shot sums a rank's block in scratch. */
static int one_block(tuttiComm_t *comm, int rank, int n, void *arg)
{
	const size_t counts[] = { 3 << 20, 40, 1000, 40 };
	int32_t *x = malloc(counts[0] * sizeof(*x));
	uint64_t scratch;

	(void)arg;
	WANT(x);
	for (size_t k = 0; k < 4; k++)
		for (int round = 0; round < 3; round++) {
			for (size_t i = 0; i < counts[k]; i++)
				x[i] = rank + (int32_t)(i % 1000);
			MUST(tuttiAllReduce(x, x, counts[k], tuttiInt32, tuttiSum, *comm, NULL));
			for (size_t i = 0; i < counts[k]; i++)
				WANT(x[i] == n * (n - 1) / 2 + n * (int32_t)(i % 1000));
		}
	free(x);
	MUST(tuttiCommMemStats(*comm, tuttiMemScratch, &scratch));
	if (scratch > 1100 << 10)
		fprintf(stderr, "rank %d: %llu bytes of scratch\n", rank,
			(unsigned long long)scratch);
	return scratch > 1100 << 10;
}

/* Each rank without shared memory makes this choice at its first call: 224 plans of smaller groups are simulated, with
 * 17 allocations for a plan. */
Test(allocations, a_choice_for_64_ranks_is_counted, .timeout = 60)
{
	static const int host_of[64];
	struct tt_topology topology = { .nranks = 64, .nhosts = 1, .host_of = host_of };
	struct tt_shape shape = { .collective = TT_ALLREDUCE, .nranks = 64, .topology = &topology };
	struct tt_call_facts facts = { .bytes = sizeof(float), .over_tcp = true, .cores = 2 };
	struct tt_candidate list[TT_MOST_CANDIDATES];
	unsigned long before = allocations;
	int best;

	if (!COUNTED)
		cr_skip_test("a sanitizer has its own malloc");
	cr_assert_gt(tt_plan_candidates(&shape, &facts, list, &best), 0);
	cr_expect_leq(allocations - before, 3800, "%lu", allocations - before);
}

Test(allocations, two_shot_of_twelve_ranks_keeps_one_block_of_scratch, .timeout = 120)
{
	struct ranks r = { .n = 12, .transport = "tcp", .algo = "two-shot", .limit_s = 100 };

	cr_expect_eq(ranks_run(&r, one_block), 0);
	r.transport = "shm";
	cr_expect_eq(ranks_run(&r, one_block), 0);
}

static long kilobytes_before;

static void note_kilobytes(struct control_job *job, int rank, struct tt_join *join)
{
	(void)job, (void)rank, (void)join;
	kilobytes_before = own_kilobytes();
}

static int count_kilobytes(struct control_job *job, int rank, struct tt_control *ctl)
{
	(void)ctl;
	if (rank == 0)
		job->report[0].took_ms = (uint64_t)(own_kilobytes() - kilobytes_before);
	atomic_store(&job->report[rank].progress, 1);
	return control_job_reached(job, 0, 1, 100000) ? 0 : 1;
}

/* While 63 ranks register, rank 0 has a session and a handshake of each: 1.2 MB of which it needs
 * a tenth afterwards. */
Test(allocations, rank_0_of_many_gives_the_memory_of_registrations_back, .timeout = 120)
{
	struct control_job job = {
		.n = 64, .timeout_ms = 100000, .before = note_kilobytes, .body = count_kilobytes
	};

#ifdef TT_ASAN
	cr_skip_test("skipped: AddressSanitizer keeps freed memory");
#endif
	if (!own_kilobytes())
		cr_skip_test("skipped: this kernel has no /proc/self/smaps_rollup");
	control_job_run(&job);
	cr_expect_lt(job.report[0].took_ms, 1300, "%d kB", (int)job.report[0].took_ms);
}

static bool is_long(void)
{
	const char *tier = getenv("TT_TIER");

	return tier && strcmp(tier, "default");
}

/* The limit is 8 MiB plus 1 MiB for each rank of the host. All inputs are zeros, so that the ranks
 * can share one output (arg) and no rank needs memory for its input. */
static int bounded(tuttiComm_t *comm, int rank, int n, void *arg)
{
	enum { BYTES = 64 << 20 };
	const void *zeros = mmap(NULL, BYTES, PROT_READ,
				 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	uint64_t used[tuttiNumMemStats], sum = 0, again;
	tuttiCounters_t counters = { .size = sizeof(counters) };

	MUST(tuttiAllReduce(zeros, arg, n <= 8 || is_long() ? BYTES : BYTES / 16, tuttiUint8,
			    tuttiSum, *comm, NULL));
	MUST(tuttiAllReduce(zeros, arg, 1000, tuttiUint8, tuttiMax, *comm, NULL));
	for (int i = 0; i < tuttiNumMemStats; i++) {
		MUST(tuttiCommMemStats(*comm, (tuttiCommMemStat_t)i, &used[i]));
		sum += used[i];
	}
	MUST(tuttiCommGetCounters(*comm, &counters));
	if (rank == 0)
		fprintf(stderr,
			"n %d: %.0f KiB: shared %.0f, stages %.0f, scratch %.0f, plans %.0f, control %.0f\n",
			n, (double)used[tuttiMemTotal] / 1024, (double)used[tuttiMemShared] / 1024,
			(double)used[tuttiMemStages] / 1024, (double)used[tuttiMemScratch] / 1024,
			(double)used[tuttiMemPlans] / 1024, (double)used[tuttiMemControl] / 1024);
	WANT(used[tuttiMemTotal] <= (8u + (unsigned)n) << 20);
	WANT(used[tuttiMemScratch] <= 8u << 20);
	/* control's memory for its peers changes between two reads */
	WANT(llabs((long long)(sum - 2 * used[tuttiMemTotal])) < 1 << 20);
	WANT(llabs((long long)(counters.memory_bytes - used[tuttiMemTotal])) < 1 << 20);
	WANT(used[tuttiMemShared] + used[tuttiMemStages] > 0 && used[tuttiMemPlans] > 0 &&
	     used[tuttiMemControl] > 0);
	WANT(tuttiCommMemStats(*comm, tuttiNumMemStats, &again) == tuttiInvalidArgument &&
	     tuttiCommMemStats(*comm, tuttiMemTotal, NULL) == tuttiInvalidArgument);
	return 0;
}

Test(allocations, memory_of_a_communicator_is_reported_and_bounded, .timeout = 300)
{
	static const char *const transports[] = { "auto", "tcp", "shm" };
#ifdef TT_ASAN
	/* 64 instrumented ranks need longer to join than their timeout */
	static const int ns[] = { 2, 8, 16 };
#else
	static const int ns[] = { 2, 8, 64 };
#endif
	void *out = mmap(NULL, 64 << 20, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	for (size_t i = 0; i < sizeof(ns) / sizeof(*ns); i++)
		for (size_t t = 0; t < (ns[i] <= 8 || is_long() ? 3 : 2); t++) /* auto is shm */
			cr_expect_eq(ranks_run(&(struct ranks){ .n = ns[i],
								.transport = transports[t],
								.arg = out,
								.timeout_ms = 100000,
								.limit_s = 150 },
					       bounded),
				     0, "n %d, %s", ns[i], transports[t]);
	munmap(out, 64 << 20);
}
