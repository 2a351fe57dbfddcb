/*
 * gpu_errors.c - invalid arguments, mismatched calls, and ranks that are late, die or abort: all calls
 * end, with an error message
 */
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "tests/gpu/gpu_ranks.h"

static int invalid_arguments(tuttiComm_t *comm, int rank, int n, void *arg)
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
	wrong += tuttiAllReduce(d, d, 10, tuttiInt32, tuttiSum, *comm, host_stream) !=
		 tuttiInvalidArgument;
	wrong += !strstr(tuttiGetLastError(NULL), "CUDA stream");
	wrong += tuttiAlltoAll(d, d, 10, tuttiInt32, *comm, NULL) != tuttiInvalidArgument;
	wrong += tuttiAllReduce(d, (char *)d + 4, 10, tuttiInt32, tuttiSum, *comm, NULL) !=
		 tuttiInvalidArgument;
	wrong += tuttiAllReduceQuorum(d, d, 10, tuttiInt32, tuttiSum, 1, 0, *comm, NULL, NULL) !=
		 tuttiInvalidArgument;
	wrong += tuttiMsgSend(d, 40, 0, 0, 0, *comm) != tuttiInvalidArgument;
	wrong += tuttiStreamSynchronize((tuttiStream_t)16) != tuttiInvalidArgument;
	wrong += tuttiAllReduce(d, d, 10, tuttiInt32, tuttiSum, *comm, NULL) != tuttiSuccess;
	tuttiStreamDestroy(host_stream);
	cu->mem_free(p);
	return wrong;
}

static void invalid_arguments_are_refused_with_a_message_and_break_nothing(void)
{
	claim(run_gpu_ranks(2, KERNEL_BARRIER, true, invalid_arguments) == 0);
	claim(run_gpu_ranks(2, STREAM_ORDER, false, invalid_arguments) == 0);
}

/* A kernel that reads memory which it cannot access would destroy the context. The buffers are memory
 * of another device and memory that peers cannot map. */
static int with_inaccessible_memory(tuttiComm_t *comm, int rank, int n, void *arg)
{
	const struct tt_cuda *cu = tt_cuda_here();
	tt_cuctx other;
	tt_cuptr p, virtual;
	size_t bytes;
	int fd, wrong = 0;

	(void)arg;
	cu->ctx_retain(&other, gpu_rank_device(rank + 1)), cu->ctx_push(other);
	wrong += cu->mem_alloc(&p, 4096) != 0;
	cu->ctx_pop(&other);
	wrong += tt_vmm_make(cu, 4096, &bytes, &fd, &virtual) != 0;
	wrong += tuttiAllReduce((void *)(uintptr_t)p, (void *)(uintptr_t)p, 10, tuttiInt32,
				tuttiSum, *comm, NULL) != tuttiInvalidArgument;
	wrong += !strstr(tuttiGetLastError(NULL), "memory of device");
	wrong += tuttiAllReduce((void *)(uintptr_t) virtual, (void *)(uintptr_t) virtual, 10,
				tuttiInt32, tuttiSum, *comm, NULL) != tuttiInvalidArgument;
	wrong += !strstr(tuttiGetLastError(NULL), "cuMemAlloc");
	wrong += tuttiBarrier(*comm, NULL) != tuttiSuccess;
	cu->mem_free(p), tt_vmm_unmap(cu, virtual, bytes), close(fd);
	return wrong + (n != 3);
}

static void memory_that_kernels_cannot_access_is_refused_with_a_message(void)
{
	if (getenv("TUTTI_TEST_GPU"))
		return;
	setenv("TUTTI_TEST_CUDA_DEVICES", "2", 1);
	claim(run_gpu_ranks(3, KERNEL_BARRIER, true, with_inaccessible_memory) == 0);
}

/* One thread has both ranks and groups their calls: with a stream per rank, without streams, and with
 * one stream for both, which is an error. */
static void one_thread_drives_two_ranks_in_groups(void)
{
	const struct tt_cuda *cu = harness_cuda();
	int x[100], wrong = 0;
	tuttiComm_t c[2];
	tt_custream s[2];
	tt_cuptr p[2];

	claim(cu && tuttiCommInitAll(c, 2, NULL) == tuttiSuccess);
	for (int k = 0; k < 6 && !gpu_failed; k++) {
		const bool same = k == 5;

		for (int r = 0; r < 2; r++) {
			if (!k)
				cu->mem_alloc(&p[r], sizeof(x)),
					cu->stream_create(&s[r], TT_CU_STREAM_NON_BLOCKING);
			for (int i = 0; i < 100; i++)
				x[i] = i + k + r;
			harness_to_device(p[r], x, sizeof(x));
		}
		tuttiGroupStart();
		for (int r = 0; r < 2; r++)
			tuttiAllReduce((void *)(uintptr_t)p[r], (void *)(uintptr_t)p[r], 100,
				       tuttiInt32, tuttiSum, c[r], k % 2 ? s[same ? 0 : r] : NULL);
		claim(tuttiGroupEnd() == (same ? tuttiInvalidUsage : tuttiSuccess));
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

/* Rank 1 makes another call: both ranks get an error, and their streams complete. */
static int mismatched(tuttiComm_t *comm, int rank, int n, void *arg)
{
	const struct tt_cuda *cu = tt_cuda_here();
	tuttiResult_t rc;
	tt_custream s;
	tt_cuptr p;
	void *d;

	(void)arg, (void)n;
	cu->mem_alloc(&p, 1 << 20);
	cu->stream_create(&s, TT_CU_STREAM_NON_BLOCKING);
	d = (void *)(uintptr_t)p;
	tuttiAllReduce(d, d, 60000, tuttiFloat32, rank == 1 ? tuttiMax : tuttiSum, *comm, s);
	cu->stream_synchronize(s);
	rc = gpu_await_error(*comm);
	if (rc != tuttiInvalidUsage || !strstr(tuttiGetLastError(*comm), "allreduce"))
		fprintf(stderr, "rank %d: %d %s\n", rank, rc, tuttiGetLastError(*comm));
	else if (tuttiAllReduce(d, d, 10, tuttiFloat32, tuttiSum, *comm, s) == tuttiInvalidUsage)
		n = 0;
	cu->stream_destroy(s), cu->mem_free(p);
	return n;
}

static void mismatched_calls_are_an_error_on_every_rank(void)
{
	claim(run_gpu_ranks(2, KERNEL_BARRIER, true, mismatched) == 0);
	claim(run_gpu_ranks(2, STREAM_ORDER, false, mismatched) == 0);
}

/* The last rank is late, dies or aborts. Late: it makes no call within the deadline, which is short
 * from the second call on. */
static const char *failure;

static int without_the_last(tuttiComm_t *comm, int rank, int n, void *arg)
{
	const struct tt_cuda *cu = tt_cuda_here();
	tuttiResult_t rc;
	tt_custream s;
	void *d = gpu_first_call(*comm, &s);

	(void)arg;
	if (!strcmp(failure, "late"))
		(*comm)->settings.timeout_ms = 1000;
	if (rank == n - 1 && !strcmp(failure, "die"))
		kill(getpid(), SIGKILL);
	if (rank == n - 1 && !strcmp(failure, "abort")) {
		tuttiCommAbort(*comm);
		*comm = NULL;
		return 0;
	}
	if (rank < n - 1)
		tuttiAllReduce(d, d, 60000, tuttiFloat32, tuttiSum, *comm, s);
	rc = gpu_await_error(*comm);
	cu->stream_synchronize(s); /* completes after a failure */
	if (rc != (!strcmp(failure, "late") ? tuttiTimeout : tuttiRemoteError) ||
	    !strstr(tuttiGetLastError(*comm), "rank 2")) {
		fprintf(stderr, "rank %d: %d %s\n", rank, rc, tuttiGetLastError(*comm));
		return 1;
	}
	cu->stream_destroy(s), cu->mem_free((tt_cuptr)(uintptr_t)d);
	return 0;
}

static int run_three(int mode, bool threads)
{
	return run_gpu_ranks(3, mode, threads, without_the_last);
}

static void a_missing_rank_is_named_and_streams_complete(void)
{
	failure = "late";
	claim(run_three(KERNEL_BARRIER, true) == 0);
	claim(run_three(STREAM_ORDER, false) == 0);
	claim(run_three(STAGED, false) == 0);
}

/* Wall-clock time before an hour's step back, for waits that the kernel ends after the step. */
static bool clock_steps_back;

int clock_gettime(clockid_t clock, struct timespec *ret_time)
{
	int rc = (int)syscall(SYS_clock_gettime, clock, ret_time);

	if (!rc && clock == CLOCK_REALTIME && clock_steps_back)
		ret_time->tv_sec += 3600;
	return rc;
}

static void a_missing_rank_is_named_though_the_clock_steps_back(void)
{
	clock_steps_back = true;
	failure = "late";
	claim(run_three(STREAM_ORDER, false) == 0);
}

static void a_rank_that_dies_or_aborts_ends_the_calls_of_the_other_ranks(void)
{
	failure = "die";
	claim(run_three(STREAM_ORDER, false) == 1); /* the dead rank counts as failed */
	failure = "abort";
	claim(run_three(STREAM_ORDER, false) == 0);
	claim(run_three(KERNEL_BARRIER, true) == 0);
}

static void streams_complete_though_they_wait_in_the_only_connection(void)
{
	setenv("CUDA_DEVICE_MAX_CONNECTIONS", "1", 1);
	failure = "die";
	claim(run_three(STREAM_ORDER, false) == 1);
	failure = "late";
	claim(run_three(STREAM_ORDER, false) == 0);
}

/* The last rank dies; the others copy to pageable memory behind calls for which it is awaited, and hold up the
 * driver's calls of all their threads. */
static int copy_behind_a_death(tuttiComm_t *comm, int rank, int n, void *arg)
{
	const struct tt_cuda *cu = tt_cuda_here();
	tt_custream s;
	void *d = gpu_first_call(*comm, &s), *x = malloc(60000 * sizeof(float));

	(void)arg;
	if (rank == n - 1) {
		usleep(200000); /* until the others copy */
		kill(getpid(), SIGKILL);
	}
	for (int i = 0; i < 3; i++) /* each waits for the same words */
		tuttiAllReduce(d, d, 60000, tuttiFloat32, tuttiSum, *comm, s);
	cu->dtoh_async(x, (tt_cuptr)(uintptr_t)d, 60000 * sizeof(float), s);
	free(x);
	return gpu_await_error(*comm) != tuttiRemoteError || (*comm)->gpu->staged_bytes;
}

static void a_death_ends_the_kernels_for_which_a_copy_of_pageable_memory_waits(void)
{
	if (!gpu_use_devices(3))
		return;
	/* the dead rank counts as failed */
	claim(run_gpu_ranks_without_deadline(3, STREAM_ORDER, copy_behind_a_death) == 1);
}

/* The last rank makes no call, while the others copy as above. */
static int copy_behind_a_late_rank(tuttiComm_t *comm, int rank, int n, void *arg)
{
	const struct tt_cuda *cu = tt_cuda_here();
	void *x = malloc(60000 * sizeof(float));
	tuttiResult_t rc;
	tt_custream s;
	void *d = gpu_first_call(*comm, &s);

	(void)arg;
	(*comm)->settings.timeout_ms = 1000;
	if (rank < n - 1) {
		tuttiAllReduce(d, d, 60000, tuttiFloat32, tuttiSum, *comm, s);
		cu->dtoh_async(x, (tt_cuptr)(uintptr_t)d, 60000 * sizeof(float), s);
	}
	free(x);
	rc = gpu_await_error(*comm);
	if (rc == tuttiTimeout && strstr(tuttiGetLastError(*comm), "rank 2"))
		return 0;
	fprintf(stderr, "rank %d: %d %s\n", rank, rc, tuttiGetLastError(*comm));
	return 1;
}

static void a_late_rank_is_named_though_copies_of_pageable_memory_wait_for_it(void)
{
	setenv("TUTTI_TEST_CUDA_DELAY_US", "20000", 1); /* the copies begin before the call */
	claim(run_gpu_ranks_without_deadline(3, STREAM_ORDER, copy_behind_a_late_rank) == 0);
}

static void a_death_ends_the_waits_of_streams_for_which_a_copy_of_pageable_memory_waits(void)
{
	claim(run_gpu_ranks_without_deadline(3, STREAM_ORDER, copy_behind_a_death) == 1);
	setenv("CUDA_DEVICE_MAX_CONNECTIONS", "1", 1);
	claim(run_gpu_ranks_without_deadline(3, STREAM_ORDER, copy_behind_a_death) == 1);
	setenv("TUTTI_ALGO", "ring", 1); /* a plan */
	claim(run_gpu_ranks_without_deadline(3, STREAM_ORDER, copy_behind_a_death) == 1);
}

/* Before the late launch, the watchdog sees the second call's number while the GPU has not begun the
 * call. */
static void a_call_whose_launch_is_late_ends_too(void)
{
	if (getenv("TUTTI_TEST_GPU"))
		return;
	setenv("TUTTI_TEST_CUDA_SLOW", "cuLaunchKernel:40", 1);
	failure = "abort";
	claim(run_three(STREAM_ORDER, false) == 0);
	claim(run_three(KERNEL_BARRIER, true) == 0);
}

/* A thread without a current CUDA context makes calls: driver calls succeed only after the library
 * has made the communicator's context current. */
struct other_thread {
	tuttiComm_t comm;
	int rank, wrong;
	void *memory;
};

static void *call_from_thread(void *arg)
{
	struct other_thread *e = arg;
	float x[64];

	e->wrong = tuttiAllReduce(e->memory, e->memory, 64, tuttiFloat32, tuttiSum, e->comm,
				  NULL) != tuttiSuccess;
	e->wrong += tuttiAllReduce(x, x, 0, tuttiFloat32, tuttiSum, e->comm, NULL) != tuttiSuccess;
	e->wrong += tuttiMsgSend(e->memory, 40, 0, 0, 0, e->comm) != tuttiInvalidArgument;
	if (e->wrong)
		fprintf(stderr, "rank %d: %s\n", e->rank, tuttiGetLastError(NULL));
	return NULL;
}

static int from_another_thread(tuttiComm_t *comm, int rank, int n, void *arg)
{
	const struct tt_cuda *cu = tt_cuda_here();
	struct other_thread e = { .comm = *comm, .rank = rank };
	float x[64];
	pthread_t thread;
	tt_cuptr p;

	(void)arg;
	for (int i = 0; i < 64; i++)
		x[i] = (float)(i + rank);
	if (cu->mem_alloc(&p, sizeof(x)) || cu->htod(p, x, sizeof(x)))
		return 1;
	e.memory = (void *)(uintptr_t)p;
	if (pthread_create(&thread, NULL, call_from_thread, &e))
		return 1;
	pthread_join(thread, NULL);
	cu->dtoh(x, p, sizeof(x));
	for (int i = 0; i < 64; i++)
		e.wrong += x[i] != (float)(n * i + n * (n - 1) / 2);
	cu->mem_free(p);
	return e.wrong;
}

static void threads_without_a_current_context_can_call(void)
{
	claim(run_gpu_ranks_all_modes(2, from_another_thread) == 0);
}

static void a_plan_ends_when_a_rank_is_missing_dies_or_makes_another_call(void)
{
	setenv("TUTTI_ALGO", "ring", 1);
	claim(run_gpu_ranks(2, STREAM_ORDER, false, mismatched) == 0);
	failure = "late";
	claim(run_three(KERNEL_BARRIER, true) == 0);
	failure = "abort";
	claim(run_three(KERNEL_BARRIER, true) == 0);
	failure = "die";
	claim(run_three(STREAM_ORDER, false) == 1);
	claim(!gpu_use_devices(3) || run_three(STREAM_ORDER, false) == 1);
}

/* A plan's job that runs after its call has failed, and a job of a call that has not failed */
static int remaining_jobs(tuttiComm_t *comm, int rank, int n, void *arg)
{
	const struct tt_cuda *cu = tt_cuda_here();
	struct tt_gpu *d = (*comm)->gpu;
	uint32_t x[2] = { 1, 2 };
	int wrong = 0;
	tt_cuptr p;

	(void)rank, (void)n, (void)arg;
	if (cu->mem_alloc(&p, sizeof(x)) || harness_to_device(p, x, sizeof(x)))
		return 1;
	for (uint32_t failed = 2; failed-- > 0;) {
		struct tt_dev_job job = { .nranks = 1,
					  .way = TT_DEV_ALONE,
					  .npieces = 1,
					  .signals[0] = d->ipc->at,
					  .report = d->ipc->words_at,
					  .in[0] = p,
					  .out[0] = p + 4,
					  .piece[0] = { .from = 1, .to = 1, .bytes = 4 } };
		void *params[] = { &job };

		__atomic_store_n(&d->ipc->words->report.abort, failed, __ATOMIC_RELEASE);
		if (cu->launch(d->k->fn[tuttiUint32], 1, 1, 1, TT_DEV_THREADS, 1, 1, 0, d->own,
			       params, NULL) ||
		    cu->stream_synchronize(d->own))
			return 1;
		cu->dtoh(x, p, sizeof(x));
		wrong += x[1] != (failed ? 2 : 1);
	}
	cu->mem_free(p);
	return wrong;
}

static void remaining_jobs_of_a_failed_plan_write_nothing(void)
{
	claim(run_gpu_ranks(2, STREAM_ORDER, false, remaining_jobs) == 0);
}

const struct gpu_case gpu_errors[] = {
	GPU_CASE(invalid_arguments_are_refused_with_a_message_and_break_nothing),
	GPU_CASE(memory_that_kernels_cannot_access_is_refused_with_a_message),
	GPU_CASE(one_thread_drives_two_ranks_in_groups),
	GPU_CASE(mismatched_calls_are_an_error_on_every_rank),
	GPU_CASE(a_missing_rank_is_named_and_streams_complete),
	GPU_CASE(a_missing_rank_is_named_though_the_clock_steps_back),
	GPU_CASE(a_rank_that_dies_or_aborts_ends_the_calls_of_the_other_ranks),
	GPU_CASE(streams_complete_though_they_wait_in_the_only_connection),
	GPU_CASE(a_death_ends_the_kernels_for_which_a_copy_of_pageable_memory_waits),
	GPU_CASE(a_death_ends_the_waits_of_streams_for_which_a_copy_of_pageable_memory_waits),
	GPU_CASE(a_late_rank_is_named_though_copies_of_pageable_memory_wait_for_it),
	GPU_CASE(a_call_whose_launch_is_late_ends_too),
	GPU_CASE(threads_without_a_current_context_can_call),
	GPU_CASE(a_plan_ends_when_a_rank_is_missing_dies_or_makes_another_call),
	GPU_CASE(remaining_jobs_of_a_failed_plan_write_nothing),
	{ NULL, NULL, false },
};
