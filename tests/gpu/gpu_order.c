/*
 * gpu_order.c - streams, graphs, groups and messages on device memory; host memory and ranks
 * without a GPU beside it
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/gpu/gpu_ranks.h"

/* Sums of ones that are summed again, each call on another stream: only call order gives n^k. */
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
	cu->htod(p, ones, sizeof(ones));
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

/* Captured once, replayed with other inputs each time, with ordinary calls in between. */
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
		cu->htod(p, in, count * 4);
		cu->graph_launch(exec, s);
		cu->dtoh_async(got, q, count * 4, s);
		cu->stream_synchronize(s);
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

/* The program captures something of its own; meanwhile the communicator is used in every way. */
static int beside_a_capture(tuttiComm_t *comm, int rank, int n, void *arg)
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
	cu->htod(p, ones, sizeof(ones));
	cu->stream_create(&s, TT_CU_STREAM_NON_BLOCKING), cu->stream_create(&busy, TT_CU_STREAM_NON_BLOCKING);
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

static void calls_beside_a_capture_work_and_do_not_spoil_it(void)
{
	claim(team_play_all_ways(2, beside_a_capture) == 0);
}

static void calls_on_different_streams_run_in_call_order(void)
{
	claim(team_play_all_ways(3, on_many_streams) == 0);
}

static void calls_on_different_streams_run_in_call_order_however_slow_a_stream_is(void)
{
	setenv("TUTTI_TEST_CUDA_DELAY_US", "3000", 1);
	claim(team_play_all_ways(3, on_many_streams) == 0);
}

static void a_graph_is_replayed_with_new_inputs(void)
{
	claim(team_play_all_ways(3, in_a_graph) == 0);
}

static void a_graph_of_a_plan_is_replayed_too(void)
{
	setenv("TUTTI_ALGO", "ring", 1);
	claim(team_play(3, MEET, true, in_a_graph) == 0);
	claim(team_play(3, ORDERED, false, in_a_graph) == 0);
}

static void calls_by_a_plan_run_in_call_order_however_slow_a_stream_is(void)
{
	setenv("TUTTI_TEST_CUDA_DELAY_US", "1000", 1);
	setenv("TUTTI_ALGO", "tree", 1);
	claim(team_play(3, MEET, true, on_many_streams) == 0);
	claim(team_play(3, ORDERED, false, on_many_streams) == 0);
}

/* ---- messages, groups, host memory, ranks without a GPU -------------------------------------- */

/* Everybody to the next and from the one before, in one group, between two collectives. */
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
		cu->htod(p, mine, sizeof(mine)), cu->htod(r, sum, sizeof(sum));
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

static void messages_and_collectives_take_turns(void)
{
	claim(team_play_all_ways(3, around) == 0);
}

/* Host memory with and without a stream of CUDA's; rank 0 of a mixed team has nothing else. */
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
			cu->htod(p, x, sizeof(x));
		wrong += tuttiAllReduce(buffer, buffer, 100, tuttiInt32, tuttiSum, *comm,
					k < 2 ? NULL : s);
		if (gpu)
			cu->stream_synchronize(s);
		if (buffer != x)
			cu->dtoh(x, p, sizeof(x));
		for (int i = 0; i < 100; i++)
			wrong += x[i] != n * i + n * (n - 1) / 2;
	}
	wrong += tuttiCommCuDevice(*comm, &device) || device != (gpu ? team_device(rank) : -1);
	if (gpu)
		cu->stream_destroy(s), cu->mem_free(p);
	return wrong;
}

static void a_rank_without_a_gpu_sums_with_ranks_that_have_one(void)
{
	struct gpu_ranks t = { .ranks = { .n = 3, .no_join = true, .limit_s = 50 },
			  .fn = on_host_memory,
			  .way = STAGED,
			  .mixed = true };

	t.ranks.arg = &t;
	claim(team_failures(&t) == 0);
}

static void two_gpus_of_a_process_take_turns_with_host_memory(void)
{
	setenv("TUTTI_TEST_CUDA_DEVICES", "2", 1);
	claim(team_play(2, MEET, true, on_host_memory) == 0);
}

/* Large sums and messages over the network, from and to device memory. A GPU that is slow shows
 * what waits for it, unless a busy core hides it from a rank: so it gets many rounds. */
static int large_and_far(tuttiComm_t *comm, int rank, int n, void *arg)
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

static void what_is_large_travels_while_the_rest_of_it_is_copied(void)
{
	setenv("TUTTI_TEST_CUDA_DELAY_US", "2000", 1);
	setenv("TUTTI_TRANSPORT", "tcp", 1);
	claim(team_play(2, STAGED, false, large_and_far) == 0);
	setenv("TUTTI_ALGO", "ring", 1);
	claim(team_play(3, STAGED, false, large_and_far) == 0);
}

static void what_waits_on_a_stream_does_not_hold_up_the_copies_that_it_waits_for(void)
{
	setenv("CUDA_DEVICE_MAX_CONNECTIONS", "1", 1);
	claim(team_play(2, STAGED, false, large_and_far) == 0);
}

#define COMMS 4

/* Rank 0's kernels of all communicators are on the device before rank 1 makes a call, in another
 * order: there must be room for those of both. */
static int in_other_orders(tuttiComm_t *comm, int rank, int n, void *arg)
{
	static atomic_bool given;
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
	while (rank == 1 && !atomic_load(&given))
		usleep(1000);
	for (int k = 0; k < COMMS && !wrong; k++) {
		int i = rank == 1 ? COMMS - 1 - k : k;

		wrong += tuttiAllReduce((void *)(uintptr_t)p[i], (void *)(uintptr_t)p[i], bytes / 4,
					tuttiInt32, tuttiSum, c[i], s[i]) != tuttiSuccess;
	}
	usleep(50000);
	atomic_store(&given, true);
	for (int i = 0; i < COMMS && !wrong; i++) {
		cu->dtoh_async(got, p[i] + bytes - sizeof(got), sizeof(got), s[i]);
		cu->stream_synchronize(s[i]);
		wrong += got[0] != 0x01010101 * n || got[3] != 0x01010101 * n;
	}
	for (int i = 0; i < COMMS; i++)
		wrong += tuttiCommDestroy(c[i]) != tuttiSuccess;
	return wrong;
}

static void kernels_of_many_communicators_fit_beside_each_other(void)
{
	claim(team_play(2, MEET, true, in_other_orders) == 0);
}

const struct gpu_case gpu_order[] = {
	GPU_CASE(calls_on_different_streams_run_in_call_order),
	GPU_CASE(calls_beside_a_capture_work_and_do_not_spoil_it),
	GPU_CASE(kernels_of_many_communicators_fit_beside_each_other),
	GPU_CASE(calls_on_different_streams_run_in_call_order_however_slow_a_stream_is),
	GPU_CASE(a_graph_is_replayed_with_new_inputs),
	GPU_CASE(a_graph_of_a_plan_is_replayed_too),
	GPU_CASE(calls_by_a_plan_run_in_call_order_however_slow_a_stream_is),
	GPU_CASE(messages_and_collectives_take_turns),
	GPU_CASE(a_rank_without_a_gpu_sums_with_ranks_that_have_one),
	GPU_CASE(two_gpus_of_a_process_take_turns_with_host_memory),
	GPU_CASE(what_is_large_travels_while_the_rest_of_it_is_copied),
	GPU_CASE(what_waits_on_a_stream_does_not_hold_up_the_copies_that_it_waits_for),
	{ NULL, NULL, false },
};
