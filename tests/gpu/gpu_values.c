/*
 * gpu_values.c - every collective, type and op on device memory gives the bits of lib/mem/reduce in
 * rank order
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "tests/gpu/gpu_buffers.h"
#include "tests/gpu/gpu_ranks.h"
#include "run/request.h"

/* Every collective, type and op. Calls alternate between a few sizes, so the sweep stays short. */
static void sweep(struct gpu_buffers *b, tuttiComm_t comm)
{
	static const size_t counts[] = { 1, 37, 1000, 4096, 20011 };
	unsigned call = 0;

	for (int t = 0; t < tuttiNumTypes; t++)
		for (int op = 0; op < tuttiNumOps; op++) {
			struct gpu_buffers_call c = { .what = TT_ALLREDUCE,
						      .type = (tuttiDataType_t)t,
						      .op = (tuttiRedOp_t)op };

			if (!tt_reduce_kernel(c.type, c.op))
				continue;
			c.count = counts[call++ % 5];
			c.in_place = call % 3 == 0;
			gpu_buffers_check(b, &c, comm);
		}
	for (int what = 0; what < TT_SENDRECV; what++)
		for (int v = 0; v < 4; v++) {
			struct gpu_buffers_call c = { .what = (enum tt_collective)what,
						      .type = v % 2 ? tuttiFloat32 : tuttiBfloat16,
						      .op = tuttiSum,
						      .count = counts[call++ % 5],
						      .root = (v + what) % b->n,
						      .in_place = v == 2 && what != TT_ALLTOALL,
						      .shift = v == 3 ? 4 : 0,
						      .blocking = v == 1 };

			gpu_buffers_check(b, &c, comm);
		}
}

static void special_cases(struct gpu_buffers *b, tuttiComm_t comm)
{
	static const tuttiDataType_t types[] = { tuttiFloat32, tuttiFloat16, tuttiInt32,
						 tuttiFloat64, tuttiUint8 };
	struct gpu_buffers_call big = { .what = TT_ALLREDUCE,
					.type = tuttiFloat32,
					.op = tuttiSum,
					.count = GPU_BUFFER_BYTES / 4 - 5 };
	struct gpu_buffers_call odd = {
		.what = TT_ALLREDUCE, .type = tuttiUint8, .op = tuttiMax, .count = 70001, .shift = 1
	};

	for (int i = 0; i < 5; i++) {
		struct gpu_buffers_call c = { .what = i % 2 ? TT_REDUCE : TT_ALLREDUCE,
					      .type = types[i],
					      .op = tuttiSum,
					      .count = 5001,
					      .scalar = 2 };

		gpu_buffers_check(b, &c, comm);
	}
	gpu_buffers_check(b, &big, comm);
	gpu_buffers_check(b, &odd, comm);
}

static int every_call(tuttiComm_t *comm, int rank, int n, void *arg)
{
	struct gpu_buffers b;

	(void)arg;
	if (gpu_buffers_open(&b, rank, n))
		return 1;
	sweep(&b, *comm);
	special_cases(&b, *comm);
	gpu_buffers_close(&b);
	return b.wrong;
}

static void kernels_with_barriers_give_the_hosts_bits(void)
{
	for (int n = 1; n <= 4; n++)
		claim(run_gpu_ranks(n, KERNEL_BARRIER, true, every_call) == 0);
}

static void eight_ranks_of_one_process_use_kernel_barriers(void)
{
	claim(run_gpu_ranks(8, KERNEL_BARRIER, true, every_call) == 0);
}

static void kernels_ordered_by_streams_give_the_hosts_bits(void)
{
	for (int n = 2; n <= 4; n++)
		claim(run_gpu_ranks(n, STREAM_ORDER, false, every_call) == 0);
}

/* Kernels of processes wait for each other: every collective in many rounds and in two steps, from
 * buffers whose alignments differ, with factors of each rank; then small and large calls in turn. */
static int every_call_in_rounds(tuttiComm_t *comm, int rank, int n, void *arg)
{
	static const size_t shifts[] = { 0, 1, 8, 5 };
	struct gpu_buffers b;
	unsigned call = 0;

	if (!(*comm)->gpu->kernels_wait || (n == 3 && every_call(comm, rank, n, arg)) ||
	    gpu_buffers_open(&b, rank, n))
		return 1;
	for (int what = 0; what < TT_SENDRECV; what++)
		for (int v = 0; v < 4; v++) {
			bool parts = what != TT_ALLREDUCE && what != TT_REDUCE &&
				     what != TT_BROADCAST;
			struct gpu_buffers_call c = {
				.what = (enum tt_collective)what,
				.type = v % 2 ? tuttiUint8 : tuttiFloat32,
				.op = tt_needs[what].reduces && v == 2 ? tuttiAvg : tuttiSum,
				.root = (int)(call % (unsigned)n),
				.in_place = v == 0 && what != TT_ALLTOALL,
				.shift = v % 2 ? shifts[call % 4] : 0,
				.scalar = tt_needs[what].reduces && v == 0 ? 3 : 0
			};

			call++;
			for (size_t by = n == 8 && !gpu_thorough() ? 8 : 1; by <= 4096;
			     by *= by == 1 ? 8 : 512) {
				c.count = (GPU_BUFFER_BYTES / by / (parts ? (size_t)n : 1) -
					   2 * call) /
					  tt_type_bytes(c.type);
				gpu_buffers_check(&b, &c, *comm);
			}
		}
	gpu_buffers_close(&b);
	return b.wrong;
}

static void processes_with_gpus_of_their_own_give_the_hosts_bits(void)
{
	static const int ranks[] = { 3, 8, 2, 4 };

	for (int i = 0; i < (gpu_thorough() ? 4 : 2); i++)
		claim(!gpu_use_devices(ranks[i]) ||
		      run_gpu_ranks(ranks[i], STREAM_ORDER, false, every_call_in_rounds) == 0);
}

/* The fake driver refuses the first handle that a process opens or exports; a GPU refuses none. */
static void ipc_buffers_are_shared_by_descriptor_where_ipc_handles_are_refused(void)
{
	setenv("TUTTI_TEST_CUDA_FAIL", "cuIpcOpenMemHandle_v2:1:801", 1);
	claim(run_gpu_ranks(3, STREAM_ORDER, false, every_call) == 0);
	setenv("TUTTI_TEST_CUDA_FAIL", "cuIpcGetMemHandle:1:801", 1);
	claim(run_gpu_ranks(2, STREAM_ORDER, false, every_call) == 0);
}

static void staging_without_kernels_gives_the_hosts_bits(void)
{
	gpu_buffers_exact = true;
	claim(run_gpu_ranks(3, STAGED, false, every_call) == 0);
}

/* A copy of pageable memory locks the context until its stream has come so far; the fake driver refuses
 * such copies here. */
static int scale_by_device_memory(tuttiComm_t *comm, int rank, int n, void *arg)
{
	float scalar = 2, value = (float)(rank + 1);
	struct gpu_buffers b;
	tuttiRedOp_t op;
	void *memory;

	(void)arg;
	if (gpu_buffers_open(&b, rank, n))
		return 1;
	setenv("TUTTI_TEST_CUDA_PINNED", "1", 1);
	memory = (void *)(uintptr_t)b.in;
	for (int i = 0; i < 2; i++, scalar++) {
		harness_to_device(b.in, &scalar, sizeof(scalar));
		harness_to_device(b.out, &value, sizeof(value));
		if (tuttiRedOpCreatePreMulSum(&op, memory, tuttiFloat32, tuttiScalarDevice,
					      *comm) ||
		    tuttiAllReduce((void *)(uintptr_t)b.out, (void *)(uintptr_t)b.out, 1,
				   tuttiFloat32, op, *comm, b.stream) ||
		    b.cu->stream_synchronize(b.stream) || b.cu->dtoh(b.got, b.out, sizeof(float)))
			return fprintf(stderr, "%s\n", tuttiGetLastError(NULL)), 1;
		b.wrong += *(float *)(void *)b.got != scalar * (float)(n * (n + 1) / 2);
	}
	gpu_buffers_close(&b);
	return b.wrong;
}

static void a_scalar_of_device_memory_is_read_without_pageable_memory(void)
{
	claim(run_gpu_ranks_all_modes(2, scale_by_device_memory) == 0);
}

static void two_gpus_of_a_process_use_peer_access_after_a_probe(void)
{
	setenv("TUTTI_TEST_CUDA_DEVICES", "2", 1);
	claim(run_gpu_ranks(3, KERNEL_BARRIER, true, every_call) == 0);
}

/* Peers write to IPC buffers only, so buffers may be virtual memory, which has no peer access. */
static int sum_virtual_memory(tuttiComm_t *comm, int rank, int n, void *arg)
{
	const struct tt_cuda *cu = tt_cuda_here();
	int x = rank, fd, wrong = 0;
	size_t bytes;
	tt_cuptr p;

	(void)arg;
	wrong += tt_vmm_make(cu, 4096, &bytes, &fd, &p) || cu->htod(p, &x, sizeof(x));
	wrong += tuttiAllReduce((void *)(uintptr_t)p, (void *)(uintptr_t)p, 1, tuttiInt32, tuttiSum,
				*comm, NULL) != tuttiSuccess;
	wrong += cu->dtoh(&x, p, sizeof(x)) || x != n * (n - 1) / 2;
	tt_vmm_unmap(cu, p, bytes), close(fd);
	return wrong + !(*comm)->gpu->kernels_wait;
}

static void threads_with_gpus_of_their_own_give_the_hosts_bits(void)
{
	claim(!gpu_use_devices(3) ||
	      run_gpu_ranks(3, STREAM_ORDER, true, every_call_in_rounds) == 0);
	claim(!gpu_use_devices(2) || run_gpu_ranks(2, STREAM_ORDER, true, sum_virtual_memory) == 0);
}

/* One GPU shows the FIFO's kernels too: those of threads run at the same time. */
static void threads_that_share_a_gpu_run_the_kernels_with_a_fifo_if_asked_to(void)
{
	setenv("TUTTI_GPU", "fifo", 1);
	for (int n = 2; n <= 4; n++)
		claim(run_gpu_ranks(n, STREAM_ORDER, true, every_call_in_rounds) == 0);
}

static int few_calls(tuttiComm_t *comm, int rank, int n, void *arg)
{
	struct gpu_buffers b;

	(void)arg;
	if (!(*comm)->gpu->kernels_wait || gpu_buffers_open(&b, rank, n))
		return 1;
	special_cases(&b, *comm);
	gpu_buffers_close(&b);
	return b.wrong;
}

/* The kernels of processes run in turn, for milliseconds each, and wait for each other in each round. */
static void processes_that_share_a_gpu_run_the_kernels_with_a_fifo_if_asked_to(void)
{
	setenv("TUTTI_GPU", "fifo", 1);
	for (int n = 2; n <= 3; n++)
		claim(run_gpu_ranks(n, STREAM_ORDER, false, few_calls) == 0);
}

const struct gpu_case gpu_values[] = {
	GPU_CASE(kernels_with_barriers_give_the_hosts_bits),
	GPU_CASE(eight_ranks_of_one_process_use_kernel_barriers),
	GPU_CASE(kernels_ordered_by_streams_give_the_hosts_bits),
	GPU_CASE(processes_with_gpus_of_their_own_give_the_hosts_bits),
	GPU_CASE(ipc_buffers_are_shared_by_descriptor_where_ipc_handles_are_refused),
	GPU_CASE(staging_without_kernels_gives_the_hosts_bits),
	GPU_CASE(a_scalar_of_device_memory_is_read_without_pageable_memory),
	GPU_CASE(two_gpus_of_a_process_use_peer_access_after_a_probe),
	GPU_CASE(threads_with_gpus_of_their_own_give_the_hosts_bits),
	{ NULL, NULL, false },
};

const struct gpu_case gpu_shared_fifo[] = {
	GPU_CASE(threads_that_share_a_gpu_run_the_kernels_with_a_fifo_if_asked_to),
	GPU_CASE(processes_that_share_a_gpu_run_the_kernels_with_a_fifo_if_asked_to),
	{ NULL, NULL, false },
};
