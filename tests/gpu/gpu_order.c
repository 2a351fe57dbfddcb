/*
 * gpu_order.c - streams, graphs, groups and messages on device memory; mixed with host memory and with
 * ranks without a GPU
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "gpu/gpu_call.h"
#include "tests/gpu/gpu_ranks.h"

/* Each call sums the result of the previous call, on another stream. Only execution in call order gives
 * n^k. */
static int on_many_streams(tuttiComm_t *comm, int rank, int n, void *arg)
{
	const struct tt_cuda *cu = tt_cuda_here();
	int ones[1000], got[1000], wrong = 0, want = 1;
	tt_custream s[3];
	tt_cuptr p;

	(void)arg, (void)rank;
	cu->mem_alloc(&p, sizeof(ones));
	for (int i = 0; i < 1000; i++)
		ones[i] = 1;
	harness_to_device(p, ones, sizeof(ones));
	for (int i = 0; i < 3; i++)
		cu->stream_create(&s[i], TT_CU_STREAM_NON_BLOCKING);
	for (int i = 0; i < 9; i++, want *= n)
		wrong += tuttiAllReduce((void *)(uintptr_t)p, (void *)(uintptr_t)p, 1000,
					tuttiInt32, tuttiSum, *comm, s[i % 3]) != tuttiSuccess;
	for (int i = 0; i < 3; i++)
		cu->stream_synchronize(s[i]);
	cu->dtoh(got, p, sizeof(got));
	for (int i = 0; i < 1000; i++)
		wrong += got[i] != want;
	for (int i = 0; i < 3; i++)
		cu->stream_destroy(s[i]);
	cu->mem_free(p);
	return wrong;
}

#define CALLS 9
#define SENT ((size_t)1 << 20)

/* A group: allreduces of 1 to 9 numbers, and a message to the next rank that is sent and received on
 * different streams. Each rank uses the streams in another order; only call order matches the allreduces. */
static int on_many_streams_in_a_group(tuttiComm_t *comm, int rank, int n, void *arg)
{
	const struct tt_cuda *cu = tt_cuda_here();
	int *host = malloc(SENT), wrong = 0, left = (rank + n - 1) % n;
	size_t numbers = SENT / sizeof(int);
	tt_custream s[3];
	tt_cuptr p, out, in;

	(void)arg;
	cu->mem_alloc(&p, SENT);
	cu->mem_alloc(&out, SENT);
	cu->mem_alloc(&in, SENT);
	for (size_t i = 0; i < numbers; i++)
		host[i] = rank + (int)i;
	harness_to_device(p, host, SENT);
	harness_to_device(out, host, SENT);
	for (int i = 0; i < 3; i++)
		cu->stream_create(&s[i], TT_CU_STREAM_NON_BLOCKING);
	wrong += tuttiGroupStart() != tuttiSuccess;
	for (size_t i = 0; i < CALLS; i++) {
		void *at = (void *)(uintptr_t)(p + CALLS * i * sizeof(int));

		wrong += tuttiAllReduce(at, at, i + 1, tuttiInt32, tuttiSum, *comm,
					s[(i + (size_t)rank) % 3]) != tuttiSuccess;
	}
	wrong += tuttiSend((void *)(uintptr_t)out, numbers, tuttiInt32, (rank + 1) % n, *comm,
			   s[0]) != tuttiSuccess;
	wrong += tuttiRecv((void *)(uintptr_t)in, numbers, tuttiInt32, left, *comm, s[1]) !=
		 tuttiSuccess;
	wrong += tuttiGroupEnd() != tuttiSuccess;
	harness_to_host(host, in, SENT, s[1]);
	for (size_t i = 0; i < numbers; i++)
		wrong += host[i] != left + (int)i;
	for (size_t i = 0; i < CALLS; i++) {
		harness_to_host(host, p + CALLS * i * sizeof(int), CALLS * sizeof(int),
				s[(i + (size_t)rank) % 3]);
		for (size_t k = 0; k < CALLS; k++)
			wrong += host[k] != (k > i ? rank + (int)(CALLS * i + k)
						   : n * (n - 1) / 2 + n * (int)(CALLS * i + k));
	}
	wrong += tuttiGroupStart() != tuttiSuccess; /* a CUDA stream and none */
	for (int i = 0; i < 2; i++)
		wrong += tuttiAllReduce((void *)(uintptr_t)p, (void *)(uintptr_t)p, 1, tuttiInt32,
					tuttiSum, *comm, i ? NULL : s[0]) != tuttiSuccess;
	wrong += tuttiGroupEnd() != tuttiInvalidArgument;
	for (int i = 0; i < 3; i++)
		cu->stream_destroy(s[i]);
	cu->mem_free(p);
	cu->mem_free(out);
	cu->mem_free(in);
	free(host);
	return wrong;
}

/* Two calls are captured once and replayed with new inputs; uncaptured calls follow each replay. */
static int in_a_graph(tuttiComm_t *comm, int rank, int n, void *arg)
{
	const struct tt_cuda *cu = tt_cuda_here();
	size_t count = 3000;
	int *in = malloc(count * sizeof(*in)), *got = malloc(count * sizeof(*got)), wrong = 0;
	void *graph, *exec;
	tt_custream s;
	tt_cuptr p, q;

	(void)arg;
	cu->mem_alloc(&p, count * 4), cu->mem_alloc(&q, count * 4),
		cu->stream_create(&s, TT_CU_STREAM_NON_BLOCKING);
	cu->begin_capture(s, TT_CU_CAPTURE_THREAD);
	wrong += tuttiAllReduce((void *)(uintptr_t)p, (void *)(uintptr_t)q, count, tuttiInt32,
				tuttiSum, *comm, s);
	wrong += tuttiAllReduce((void *)(uintptr_t)q, (void *)(uintptr_t)q, 100, tuttiInt32,
				tuttiSum, *comm, s);
	wrong += cu->end_capture(s, &graph) != 0 || cu->graph_instantiate(&exec, graph, 0) != 0;
	for (int k = 0; k < 5 && !wrong; k++) {
		for (size_t i = 0; i < count; i++)
			in[i] = (int)i * (k + 1) + rank;
		harness_to_device(p, in, count * 4);
		cu->graph_launch(exec, s);
		harness_to_host(got, q, count * 4, s);
		for (int i = 0; i < (int)count; i++)
			wrong += got[i] != (i * (k + 1) * n + n * (n - 1) / 2) * (i < 100 ? n : 1);
		wrong += tuttiAllReduce((void *)(uintptr_t)p, (void *)(uintptr_t)q, count,
					tuttiInt32, tuttiSum, *comm, s);
		cu->stream_synchronize(s);
	}
	cu->graph_destroy(graph), cu->stream_synchronize(s);
	cu->graph_exec_destroy(exec), cu->stream_destroy(s), cu->mem_free(p), cu->mem_free(q);
	free(in), free(got);
	return wrong;
}

/* During a capture of the program, the communicator makes calls and is split and destroyed. */
static int during_a_capture(tuttiComm_t *comm, int rank, int n, void *arg)
{
	const struct tt_cuda *cu = tt_cuda_here();
	int ones[1000], wrong = 0;
	void *graph = NULL, *exec;
	tuttiComm_t other = NULL;
	tt_custream s, busy;
	tt_cuptr p, q;

	(void)arg;
	for (int i = 0; i < 1000; i++)
		ones[i] = 1;
	cu->mem_alloc(&p, sizeof(ones)), cu->mem_alloc(&q, 1 << 20);
	harness_to_device(p, ones, sizeof(ones));
	cu->stream_create(&s, TT_CU_STREAM_NON_BLOCKING),
		cu->stream_create(&busy, TT_CU_STREAM_NON_BLOCKING);
	wrong += tuttiBarrier(*comm, NULL);
	cu->begin_capture(s, TT_CU_CAPTURE_GLOBAL);
	cu->memset8_async(q, (unsigned char)rank, 1 << 20, s);
	wrong += tuttiAllReduce((void *)(uintptr_t)p, (void *)(uintptr_t)p, 1000, tuttiInt32,
				tuttiSum, *comm, NULL) != tuttiSuccess;
	wrong += tuttiCommSplit(*comm, 0, rank, &other, NULL) != tuttiSuccess;
	wrong += tuttiAllReduce((void *)(uintptr_t)p, (void *)(uintptr_t)p, 1000, tuttiInt32,
				tuttiSum, other, busy) != tuttiSuccess;
	wrong += tuttiCommDestroy(other) != tuttiSuccess;
	wrong += cu->end_capture(s, &graph) != 0;
	wrong += tuttiBarrier(*comm, NULL);
	if (wrong)
		return wrong;
	wrong += cu->graph_instantiate(&exec, graph, 0) || cu->graph_launch(exec, s);
	cu->stream_synchronize(s), cu->stream_synchronize(busy);
	cu->dtoh(ones, p, sizeof(ones));
	wrong += ones[0] != n * n || ones[999] != n * n;
	cu->graph_exec_destroy(exec), cu->graph_destroy(graph);
	cu->stream_destroy(s), cu->stream_destroy(busy), cu->mem_free(p), cu->mem_free(q);
	return wrong;
}

static void calls_during_a_capture_work_and_do_not_invalidate_it(void)
{
	claim(run_gpu_ranks_all_modes(2, during_a_capture) == 0);
}

static void calls_on_different_streams_run_in_call_order(void)
{
	claim(run_gpu_ranks_all_modes(3, on_many_streams) == 0);
}

static void calls_of_a_group_on_different_streams_run_in_call_order(void)
{
	claim(run_gpu_ranks_all_modes(3, on_many_streams_in_a_group) == 0);
}

static void calls_on_slow_streams_run_in_call_order(void)
{
	setenv("TUTTI_TEST_CUDA_DELAY_US", "3000", 1);
	claim(run_gpu_ranks_all_modes(3, on_many_streams) == 0);
}

static void a_graph_is_replayed_with_new_inputs(void)
{
	claim(run_gpu_ranks_all_modes(3, in_a_graph) == 0);
}

/* A driver that runs the graphs of a context one after the other, where they wait for words, deadlocks graphs of
 * threads that wait so for each other. */
static void a_graph_of_a_plan_is_replayed_with_new_inputs(void)
{
	setenv("TUTTI_ALGO", "ring", 1);
	setenv("TUTTI_TEST_CUDA_NO", "graphs", 1);
	claim(run_gpu_ranks(3, KERNEL_BARRIER, true, in_a_graph) == 0);
	claim(run_gpu_ranks(3, STREAM_ORDER, false, in_a_graph) == 0);
}

static void calls_by_plan_on_slow_streams_run_in_call_order(void)
{
	setenv("TUTTI_TEST_CUDA_DELAY_US", "1000", 1);
	setenv("TUTTI_ALGO", "tree", 1);
	claim(run_gpu_ranks(3, KERNEL_BARRIER, true, on_many_streams) == 0);
	claim(run_gpu_ranks(3, STREAM_ORDER, false, on_many_streams) == 0);
}

/* ---- messages, groups, host memory, ranks without a GPU -------------------------------------- */

/* Between two collectives, each rank sends to the next rank and receives from the previous one, in one
 * group. */
static int around(tuttiComm_t *comm, int rank, int n, void *arg)
{
	const struct tt_cuda *cu = tt_cuda_here();
	int mine[500], got[500], sum[2] = { rank, 1 }, wrong = 0;
	tt_cuptr p, q, r;
	tt_custream s;

	(void)arg;
	cu->mem_alloc(&p, sizeof(mine)), cu->mem_alloc(&q, sizeof(mine)),
		cu->mem_alloc(&r, sizeof(sum));
	cu->stream_create(&s, TT_CU_STREAM_NON_BLOCKING);
	for (int k = 0; k < 6; k++) {
		tuttiStream_t stream = k % 2 ? NULL : s;

		for (int i = 0; i < 500; i++)
			mine[i] = rank * 1000 + i + k;
		harness_to_device(p, mine, sizeof(mine)), harness_to_device(r, sum, sizeof(sum));
		wrong += tuttiAllReduce((void *)(uintptr_t)r, (void *)(uintptr_t)r, 2, tuttiInt32,
					tuttiSum, *comm, stream);
		tuttiGroupStart();
		tuttiSend((void *)(uintptr_t)p, 500, tuttiInt32, (rank + 1) % n, *comm, stream);
		tuttiRecv((void *)(uintptr_t)q, 500, tuttiInt32, (rank + n - 1) % n, *comm, stream);
		wrong += tuttiGroupEnd();
		wrong += tuttiAllReduce((void *)(uintptr_t)r, (void *)(uintptr_t)r, 2, tuttiInt32,
					tuttiSum, *comm, stream);
		wrong += tuttiBarrier(*comm, stream);
		cu->stream_synchronize(s);
		cu->dtoh(got, q, sizeof(got)), cu->dtoh(mine, r, sizeof(sum));
		for (int i = 0; i < 500; i++)
			wrong += got[i] != (rank + n - 1) % n * 1000 + i + k;
		wrong += mine[0] != n * n * (n - 1) / 2 || mine[1] != n * n;
	}
	cu->stream_destroy(s), cu->mem_free(p), cu->mem_free(q), cu->mem_free(r);
	return wrong;
}

static void messages_and_collectives_alternate(void)
{
	claim(run_gpu_ranks_all_modes(3, around) == 0);
}

/* Host memory with and without a CUDA stream; where ranks are mixed, rank 0 has no device memory. */
static int on_host_memory(tuttiComm_t *comm, int rank, int n, void *arg)
{
	const struct tt_cuda *cu = tt_cuda_here();
	int x[100], wrong = 0, device = -2;
	bool gpu = (*comm)->gpu != NULL;
	tt_custream s = NULL;
	tt_cuptr p = 0;

	(void)arg;
	if (gpu)
		cu->stream_create(&s, TT_CU_STREAM_NON_BLOCKING), cu->mem_alloc(&p, sizeof(x));
	for (int k = 0; k < 4; k++) {
		void *buffer = gpu && k % 2 ? (void *)(uintptr_t)p : x;

		for (int i = 0; i < 100; i++)
			x[i] = rank + i;
		if (buffer != x)
			harness_to_device(p, x, sizeof(x));
		wrong += tuttiAllReduce(buffer, buffer, 100, tuttiInt32, tuttiSum, *comm,
					k < 2 ? NULL : s);
		if (gpu)
			cu->stream_synchronize(s);
		if (buffer != x)
			cu->dtoh(x, p, sizeof(x));
		for (int i = 0; i < 100; i++)
			wrong += x[i] != n * i + n * (n - 1) / 2;
	}
	wrong += tuttiCommCuDevice(*comm, &device) || device != (gpu ? gpu_rank_device(rank) : -1);
	if (gpu)
		cu->stream_destroy(s), cu->mem_free(p);
	return wrong;
}

static void a_rank_without_a_gpu_reduces_with_ranks_that_have_one(void)
{
	struct gpu_ranks t = { .ranks = { .n = 3, .no_join = true, .limit_s = 50 },
			       .fn = on_host_memory,
			       .mode = STAGED,
			       .mixed = true };

	t.ranks.arg = &t;
	claim(gpu_ranks_run(&t) == 0);
}

static void two_gpus_of_a_process_alternate_device_and_host_memory(void)
{
	setenv("TUTTI_TEST_CUDA_DEVICES", "2", 1);
	claim(run_gpu_ranks(2, STREAM_ORDER, true, on_host_memory) == 0);
}

/* Large sums and messages of device memory over the network. A slow GPU makes the overlap of copies
 * with transfers visible. A busy processor may hide the overlap, so there are up to 50 rounds. */
static int large_over_network(tuttiComm_t *comm, int rank, int n, void *arg)
{
	const struct tt_cuda *cu = tt_cuda_here();
	size_t count = 1u << 20;
	bool slow = !getenv("TUTTI_TEST_GPU") && getenv("TUTTI_TEST_CUDA_DELAY_US");
	int *x = malloc(4 * count), wrong = 0, seen = 0;
	tt_cuptr p, q;

	(void)arg;
	cu->mem_alloc(&p, 4 * count), cu->mem_alloc(&q, 4 * count);
	for (int k = 0; k < 3 || (slow && !seen && k < 50 && !wrong); k++) {
		for (size_t i = 0; i < count; i++)
			x[i] = (int)i + rank + k;
		cu->htod(p, x, 4 * count);
		wrong += tuttiAllReduce((void *)(uintptr_t)p, (void *)(uintptr_t)q, count,
					tuttiInt32, tuttiSum, *comm, NULL);
		cu->dtoh(x, q, 4 * count);
		for (size_t i = 0; i < count; i++)
			wrong += x[i] != n * ((int)i + k) + n * (n - 1) / 2;
		tuttiGroupStart();
		tuttiSend((void *)(uintptr_t)p, count, tuttiInt32, (rank + 1) % n, *comm, NULL);
		tuttiRecv((void *)(uintptr_t)q, count, tuttiInt32, (rank + n - 1) % n, *comm, NULL);
		wrong += tuttiGroupEnd();
		cu->dtoh(x, q, 4 * count);
		for (size_t i = 0; i < count; i++)
			wrong += x[i] != (int)i + (rank + n - 1) % n + k;
		seen = atomic_load(&(*comm)->gpu->overlaps) > 0;
		wrong += tuttiAllReduce(&seen, &seen, 1, tuttiInt32, tuttiMin, *comm, NULL);
	}
	wrong += slow && !seen;
	cu->mem_free(p), cu->mem_free(q);
	free(x);
	return wrong;
}

static void staging_copies_overlap_network_transfers(void)
{
	setenv("TUTTI_TEST_CUDA_DELAY_US", "2000", 1);
	setenv("TUTTI_TRANSPORT", "tcp", 1);
	claim(run_gpu_ranks(2, STAGED, false, large_over_network) == 0);
	setenv("TUTTI_ALGO", "ring", 1);
	claim(run_gpu_ranks(3, STAGED, false, large_over_network) == 0);
}

static void stream_waits_do_not_block_the_copies_that_end_them(void)
{
	setenv("CUDA_DEVICE_MAX_CONNECTIONS", "1", 1);
	claim(run_gpu_ranks(2, STAGED, false, large_over_network) == 0);
}

/* A copy to pageable memory that waits for a staged call holds up the driver's calls of all other threads:
 * the call must end without any. */
static int behind_a_staged_call(tuttiComm_t *comm, int rank, int n, void *arg)
{
	const struct tt_cuda *cu = tt_cuda_here();
	size_t count = 1u << 20;
	int *x = malloc(4 * count), wrong = 0;
	tt_custream s;
	tt_cuptr p, q;

	(void)arg;
	cu->stream_create(&s, TT_CU_STREAM_NON_BLOCKING);
	cu->mem_alloc(&p, 4 * count), cu->mem_alloc(&q, 4 * count);
	for (size_t i = 0; i < count; i++)
		x[i] = (int)i + rank;
	harness_to_device(p, x, 4 * count);
	for (int k = 0; k < 3; k++) {
		wrong += tuttiAllReduce((void *)(uintptr_t)p, (void *)(uintptr_t)q, count,
					tuttiInt32, tuttiSum, *comm, s);
		cu->dtoh_async(x, q, 4 * count, s);
		for (size_t i = 0; i < count; i++)
			wrong += x[i] != n * (int)i + n * (n - 1) / 2;
		tuttiGroupStart();
		tuttiSend((void *)(uintptr_t)p, count, tuttiInt32, (rank + 1) % n, *comm, s);
		tuttiRecv((void *)(uintptr_t)q, count, tuttiInt32, (rank + n - 1) % n, *comm, s);
		wrong += tuttiGroupEnd();
		cu->dtoh_async(x, q, 4 * count, s);
		for (size_t i = 0; i < count; i++)
			wrong += x[i] != (int)i + (rank + n - 1) % n;
	}
	cu->stream_destroy(s), cu->mem_free(p), cu->mem_free(q);
	free(x);
	return wrong;
}

static void staged_calls_end_though_a_copy_of_pageable_memory_waits_for_them(void)
{
	claim(run_gpu_ranks(2, STAGED, false, behind_a_staged_call) == 0);
	setenv("TUTTI_TRANSPORT", "tcp", 1);
	claim(run_gpu_ranks(3, STAGED, false, behind_a_staged_call) == 0);
}

/* A stream that waits has room for a limited number of operations. */
static void staged_calls_put_a_bounded_number_of_operations_on_a_stream(void)
{
	struct tuttiComm *comm = calloc(1, sizeof(*comm));

	for (comm->nranks = 1; comm->nranks <= 128; comm->nranks *= 2)
		for (size_t bytes = 1u << 20; bytes <= 1u << 30; bytes *= 4)
			for (size_t calls = 1; calls <= 64; calls *= 4) {
				struct tt_request r = { .comm = comm,
							.collective = TT_ALLREDUCE,
							.count = bytes,
							.type = tuttiInt8 };
				struct tt_pipeline g = { .in_bytes = bytes, .out_bytes = bytes };
				size_t group = (size_t)comm->nranks + 1; /* copies and a wait */

				tt_pipeline_cut(&g, &r, calls);
				claim(g.step * g.groups >= g.part);
				claim(g.groups == 1 || calls * g.groups * group <= 256);
			}
	free(comm);
}

/* A large copy without a stream returns before the device has the bytes; the call waits for them. */
static int behind_a_copy(tuttiComm_t *comm, int rank, int n, void *arg)
{
	const struct tt_cuda *cu = tt_cuda_here();
	size_t count = 1u << 18;
	int *x = malloc(4 * count), wrong = 0;
	tt_cuptr p;

	(void)arg;
	cu->mem_alloc(&p, 4 * count);
	for (int k = 0; k < 5; k++) {
		for (size_t i = 0; i < count; i++)
			x[i] = (int)i + rank + k;
		cu->htod(p, x, 4 * count);
		wrong += tuttiAllReduce((void *)(uintptr_t)p, (void *)(uintptr_t)p, count,
					tuttiInt32, tuttiSum, *comm, NULL);
		cu->dtoh(x, p, 4 * count);
		for (size_t i = 0; i < count; i++)
			wrong += x[i] != n * ((int)i + k) + n * (n - 1) / 2;
	}
	cu->mem_free(p);
	free(x);
	return wrong;
}

static void a_call_without_a_stream_sees_the_copies_before_it(void)
{
	setenv("TUTTI_TEST_CUDA_DELAY_US", "3000", 1);
	claim(run_gpu_ranks_all_modes(2, behind_a_copy) == 0);
}

#define COMMS 4

/* Rank 0 launches its kernels of all communicators before rank 1 makes a call, in another order. The
 * device must have room for the kernels of both ranks. */
static int in_opposite_orders(tuttiComm_t *comm, int rank, int n, void *arg)
{
	static atomic_bool launched;
	const struct tt_cuda *cu = tt_cuda_here();
	size_t bytes = 1 << 20;
	tuttiComm_t c[COMMS];
	tt_custream s[COMMS];
	tt_cuptr p[COMMS];
	int wrong = 0, got[4];

	(void)arg;
	for (int i = 0; i < COMMS; i++) {
		wrong += tuttiCommSplit(*comm, 0, rank, &c[i], NULL) != tuttiSuccess;
		cu->stream_create(&s[i], TT_CU_STREAM_NON_BLOCKING);
		cu->mem_alloc(&p[i], bytes);
		cu->memset8_async(p[i], 1, bytes, s[i]);
	}
	while (rank == 1 && !atomic_load(&launched))
		usleep(1000);
	for (int k = 0; k < COMMS && !wrong; k++) {
		int i = rank == 1 ? COMMS - 1 - k : k;

		wrong += tuttiAllReduce((void *)(uintptr_t)p[i], (void *)(uintptr_t)p[i], bytes / 4,
					tuttiInt32, tuttiSum, c[i], s[i]) != tuttiSuccess;
	}
	usleep(50000);
	atomic_store(&launched, true);
	for (int i = 0; i < COMMS && !wrong; i++) {
		harness_to_host(got, p[i] + bytes - sizeof(got), sizeof(got), s[i]);
		wrong += got[0] != 0x01010101 * n || got[3] != 0x01010101 * n;
	}
	for (int i = 0; i < COMMS; i++)
		wrong += tuttiCommDestroy(c[i]) != tuttiSuccess;
	return wrong;
}

static void kernels_of_several_communicators_are_resident_together(void)
{
	claim(run_gpu_ranks(2, KERNEL_BARRIER, true, in_opposite_orders) == 0);
}

const struct gpu_case gpu_order[] = {
	GPU_CASE(calls_on_different_streams_run_in_call_order),
	GPU_CASE(calls_of_a_group_on_different_streams_run_in_call_order),
	GPU_CASE(calls_during_a_capture_work_and_do_not_invalidate_it),
	GPU_CASE(kernels_of_several_communicators_are_resident_together),
	GPU_CASE(calls_on_slow_streams_run_in_call_order),
	GPU_CASE(a_graph_is_replayed_with_new_inputs),
	GPU_CASE(a_graph_of_a_plan_is_replayed_with_new_inputs),
	GPU_CASE(calls_by_plan_on_slow_streams_run_in_call_order),
	GPU_CASE(messages_and_collectives_alternate),
	GPU_CASE(a_rank_without_a_gpu_reduces_with_ranks_that_have_one),
	GPU_CASE(two_gpus_of_a_process_alternate_device_and_host_memory),
	GPU_CASE(staging_copies_overlap_network_transfers),
	GPU_CASE(stream_waits_do_not_block_the_copies_that_end_them),
	GPU_CASE(staged_calls_end_though_a_copy_of_pageable_memory_waits_for_them),
	GPU_CASE(staged_calls_put_a_bounded_number_of_operations_on_a_stream),
	GPU_CASE(a_call_without_a_stream_sees_the_copies_before_it),
	{ NULL, NULL, false },
};
