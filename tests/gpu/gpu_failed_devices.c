/*
 * gpu_failed_devices.c - devices that fail: each call ends on every rank, with the driver's error
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/gpu/gpu_ranks.h"

/* The driver call that reports a destroyed context in the last rank, as after an illegal access of the
 * program's kernel: "CALL:K:CODE" */
static const char *failing_call;

static int on_a_failed_device(tuttiComm_t *comm, int rank, int n, void *arg)
{
	const struct tt_cuda *cu = tt_cuda_here();
	tuttiResult_t rc;
	tt_custream s;
	void *d = gpu_first_call(*comm, &s);

	(void)arg;
	if (rank == n - 1)
		setenv("TUTTI_TEST_CUDA_FAIL", failing_call, 1);
	tuttiAllReduce(d, d, 60000, tuttiFloat32, tuttiSum, *comm, s);
	rc = gpu_await_error(*comm);
	if (rc != (rank == n - 1 ? tuttiUnhandledCudaError : tuttiRemoteError) ||
	    !strstr(tuttiGetLastError(*comm), "(CUDA_ERROR") ||
	    !strstr(tuttiGetLastError(*comm), "rank 2")) {
		fprintf(stderr, "rank %d: %d %s\n", rank, rc, tuttiGetLastError(*comm));
		return 1;
	}
	cu->stream_synchronize(s);
	return 0;
}

static void a_failed_device_ends_the_calls_of_all_ranks_with_a_message(void)
{
	static const char *const calls[] = { "cuLaunchKernel:1:700", "cuStreamQuery:1:700",
					     "cuStreamBatchMemOp_v2:1:719" };
	struct gpu_ranks t = {
		.ranks = { .n = 3, .no_join = true, .limit_s = 50, .timeout_ms = 20000 },
		.fn = on_a_failed_device
	};

	if (getenv("TUTTI_TEST_GPU"))
		return;
	t.ranks.arg = &t;
	for (int i = 0; i < 3; i++) {
		failing_call = calls[i];
		t.mode = STREAM_ORDER;
		unsetenv("TUTTI_GPU");
		claim(gpu_ranks_run(&t) == 0);
		t.mode = STAGED;
		setenv("TUTTI_GPU", "staged", 1);
		claim(i < 2 || gpu_ranks_run(&t) == 0);
	}
}

/* The device of rank 0 fails; every rank gets its error. */
static int fail_device_of_rank_0(tuttiComm_t comm, int rank)
{
	tuttiResult_t rc;

	setenv("TUTTI_TEST_CUDA_FAIL", "cuCtxSynchronize:1:700", 1);
	if (rank == 0)
		tt_cuda_here()->ctx_synchronize();
	rc = gpu_await_error(comm);
	if (rc == (rank == 0 ? tuttiUnhandledCudaError : tuttiRemoteError))
		return 0;
	fprintf(stderr, "rank %d: %d %s\n", rank, rc, tuttiGetLastError(comm));
	return 1;
}

/* The device fails while the stream copies the input of a large staged call, of which only queries of streams
 * tell. */
static int fail_while_copying(tuttiComm_t *comm, int rank, int n, void *arg)
{
	const struct tt_cuda *cu = tt_cuda_here();
	uint64_t seq = (*comm)->calls.seq;
	size_t bytes = 16 << 20;
	tt_custream s;
	tt_cuptr p;
	void *d;

	(void)arg, (void)n;
	cu->mem_alloc(&p, bytes);
	cu->stream_create(&s, TT_CU_STREAM_NON_BLOCKING);
	d = (void *)(uintptr_t)p;
	tuttiAllReduce(d, d, bytes / 4, tuttiFloat32, tuttiSum, *comm, s);
	while (rank == 0 && *(volatile uint64_t *)&(*comm)->calls.seq == seq)
		usleep(1000); /* until the call runs */
	return fail_device_of_rank_0(*comm, rank);
}

static void a_device_that_fails_while_it_copies_ends_the_call(void)
{
	if (getenv("TUTTI_TEST_GPU"))
		return;
	setenv("TUTTI_GPU", "staged", 1);
	setenv("TUTTI_TEST_CUDA_DELAY_US", "40000", 1); /* of a group of copies */
	claim(run_gpu_ranks_without_deadline(2, STAGED, fail_while_copying) == 0);
}

/* The device fails before the stream has come to the batch: no thread of Tutti looks at the device. */
static int fail_before_the_batch(tuttiComm_t *comm, int rank, int n, void *arg)
{
	const struct tt_cuda *cu = tt_cuda_here();
	tt_custream s;
	tt_cuptr p;

	(void)arg, (void)n;
	cu->mem_alloc(&p, 256);
	cu->stream_create(&s, TT_CU_STREAM_NON_BLOCKING);
	setenv("TUTTI_TEST_CUDA_DELAY_US", "1000000", 1);
	tuttiAllReduce((void *)(uintptr_t)p, (void *)(uintptr_t)p, 64, tuttiFloat32, tuttiSum,
		       *comm, s);
	return fail_device_of_rank_0(*comm, rank);
}

static void a_device_that_fails_before_a_staged_call_begins_is_reported(void)
{
	if (getenv("TUTTI_TEST_GPU"))
		return;
	setenv("TUTTI_GPU", "staged", 1);
	claim(run_gpu_ranks_without_deadline(2, STAGED, fail_before_the_batch) == 0);
}

const struct gpu_case gpu_failed_devices[] = {
	GPU_CASE(a_failed_device_ends_the_calls_of_all_ranks_with_a_message),
	GPU_CASE(a_device_that_fails_while_it_copies_ends_the_call),
	GPU_CASE(a_device_that_fails_before_a_staged_call_begins_is_reported),
	{ NULL, NULL, false },
};
