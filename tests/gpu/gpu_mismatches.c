/*
 * gpu_mismatches.c - ranks that make different calls on device memory: an error on every rank, by the
 * call itself or as soon as its stream has ended
 */
#include <stdlib.h>
#include <string.h>

#include "tests/gpu/gpu_ranks.h"

/* The calls of rank 0 and rank 1. Up to TT_LL_BYTES an allreduce runs by the LL protocol. */
static const struct different_calls {
	const char *name;
	size_t count[2];
	tuttiRedOp_t op[2];
	bool gathers; /* rank 1 */
} pairs[] = {
	{ "other op, LL", { 1000, 1000 }, { tuttiSum, tuttiMax }, false },
	{ "other count, LL", { 1, 5000 }, { tuttiSum, tuttiSum }, false },
	{ "LL and barriers", { 10, 60000 }, { tuttiSum, tuttiSum }, false },
	{ "other collective", { 10, 10 }, { tuttiSum, tuttiSum }, true },
	{ "other op, barriers", { 60000, 60000 }, { tuttiSum, tuttiMax }, false },
};
static const struct different_calls *pair;
static bool on_stream;

static int make_different_calls(tuttiComm_t *comm, int rank, int n, void *arg)
{
	const struct tt_cuda *cu = tt_cuda_here();
	tuttiResult_t rc;
	tt_custream s;
	tt_cuptr p;
	void *in, *out;

	(void)arg, (void)n;
	if (cu->mem_alloc(&p, 1 << 20) || cu->stream_create(&s, TT_CU_STREAM_NON_BLOCKING))
		return 1;
	in = (void *)(uintptr_t)p;
	out = (void *)(uintptr_t)(p + (1 << 19));
	/* equal calls first: no word of an earlier call may hide the mismatch */
	for (int i = 0; i < 3; i++)
		if (tuttiAllReduce(in, out, 1000, tuttiFloat32, tuttiSum, *comm, s))
			return 1;
	rc = pair->gathers && rank == 1
		     ? tuttiAllGather(in, out, pair->count[1], tuttiFloat32, *comm,
				      on_stream ? s : NULL)
		     : tuttiAllReduce(in, out, pair->count[rank], tuttiFloat32, pair->op[rank],
				      *comm, on_stream ? s : NULL);
	if (on_stream) {
		cu->stream_synchronize(s);
		tuttiCommGetAsyncError(*comm, &rc);
	}
	if (rc == tuttiInvalidUsage && strstr(tuttiGetLastError(*comm), "float32"))
		return 0;
	fprintf(stderr, "%s, rank %d: %d %s\n", pair->name, rank, rc, tuttiGetLastError(*comm));
	return 1;
}

static void test_pairs(size_t first, size_t n, int mode, bool threads)
{
	for (size_t i = first; i < first + n; i++)
		for (int k = 0; k < 2; k++) {
			pair = &pairs[i];
			on_stream = k;
			claim(run_gpu_ranks(2, mode, threads, make_different_calls) == 0);
		}
}

static void different_calls_by_kernels_with_barriers_fail_on_every_rank(void)
{
	test_pairs(0, sizeof(pairs) / sizeof(pairs[0]), KERNEL_BARRIER, true);
}

static void different_calls_ordered_by_streams_fail_on_every_rank(void)
{
	test_pairs(0, 2, STREAM_ORDER, false);
}

/* Small allreduces of such processes meet in kernels, all other calls are ordered by streams. */
static void different_calls_of_processes_with_gpus_of_their_own_fail_on_every_rank(void)
{
	setenv("TUTTI_TEST_CUDA_DEVICES", "2", 1);
	test_pairs(0, sizeof(pairs) / sizeof(pairs[0]), STREAM_ORDER, false);
}

const struct gpu_case gpu_mismatches[] = {
	GPU_CASE(different_calls_by_kernels_with_barriers_fail_on_every_rank),
	GPU_CASE(different_calls_ordered_by_streams_fail_on_every_rank),
	GPU_CASE(different_calls_of_processes_with_gpus_of_their_own_fail_on_every_rank),
	{ NULL, NULL, false },
};
