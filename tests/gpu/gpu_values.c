/*
 * gpu_values.c - every collective, type and op on device memory gives the bits that lib/mem/reduce
 * gives, in rank order
 */
#include <stdlib.h>

#include "tests/gpu/gpu_buffers.h"
#include "tests/gpu/gpu_ranks.h"

/* Every collective, type and op in a few sizes; sizes take turns, so that the whole stays short. */
static void sweep(struct gpu_buffers *h, tuttiComm_t comm)
{
	static const size_t counts[] = { 1, 37, 1000, 4096, 20011 };
	unsigned turn = 0;

	for (int t = 0; t < tuttiNumTypes; t++)
		for (int op = 0; op < tuttiNumOps; op++) {
			struct gpu_buffers_call c = { .what = TT_ALLREDUCE,
					  .type = (tuttiDataType_t)t,
					  .op = (tuttiRedOp_t)op };

			if (!tt_reduce_kernel(c.type, c.op))
				continue;
			c.count = counts[turn++ % 5];
			c.in_place = turn % 3 == 0;
			hand_check(h, &c, comm);
		}
	for (int what = 0; what < TT_SENDRECV; what++)
		for (int v = 0; v < 4; v++) {
			struct gpu_buffers_call c = { .what = (enum tt_collective)what,
					  .type = v % 2 ? tuttiFloat32 : tuttiBfloat16,
					  .op = tuttiSum, .count = counts[turn++ % 5],
					  .root = (v + what) % h->n,
					  .in_place = v == 2 && what != TT_ALLTOALL,
					  .shift = v == 3 ? 4 : 0, .blocking = v == 1 };

			hand_check(h, &c, comm);
		}
}

static void specials(struct gpu_buffers *h, tuttiComm_t comm)
{
	static const tuttiDataType_t types[] = { tuttiFloat32, tuttiFloat16, tuttiInt32,
						 tuttiFloat64, tuttiUint8 };
	struct gpu_buffers_call big = { .what = TT_ALLREDUCE, .type = tuttiFloat32, .op = tuttiSum,
			    .count = HAND_MOST / 4 - 5 };
	struct gpu_buffers_call odd = {
		.what = TT_ALLREDUCE, .type = tuttiUint8, .op = tuttiMax, .count = 70001, .shift = 1
	};

	for (int i = 0; i < 5; i++) {
		struct gpu_buffers_call c = { .what = i % 2 ? TT_REDUCE : TT_ALLREDUCE, .type = types[i],
				  .op = tuttiSum, .count = 5001, .scalar = 2 };

		hand_check(h, &c, comm);
	}
	hand_check(h, &big, comm);
	hand_check(h, &odd, comm);
}

static int all_right(tuttiComm_t *comm, int rank, int n, void *arg)
{
	struct gpu_buffers h;

	(void)arg;
	if (hand_open(&h, rank, n))
		return 1;
	sweep(&h, *comm);
	specials(&h, *comm);
	hand_close(&h);
	return h.wrong;
}

static void kernels_that_meet_give_the_hosts_bits(void)
{
	for (int n = 1; n <= 4; n++)
		claim(team_play(n, MEET, true, all_right) == 0);
}

static void eight_ranks_of_one_process_meet(void)
{
	claim(team_play(8, MEET, true, all_right) == 0);
}

static void kernels_that_streams_order_give_the_hosts_bits(void)
{
	for (int n = 2; n <= 4; n++)
		claim(team_play(n, ORDERED, false, all_right) == 0);
}

/* Every process has the first handle that it opens refused; on a GPU nothing refuses. */
static void where_ipc_handles_are_refused_areas_are_shared_by_descriptor(void)
{
	setenv("TUTTI_TEST_CUDA_FAIL", "cuIpcOpenMemHandle_v2:1:801", 1);
	claim(team_play(3, ORDERED, false, all_right) == 0);
	setenv("TUTTI_TEST_CUDA_FAIL", "cuIpcGetMemHandle:1:801", 1);
	claim(team_play(2, ORDERED, false, all_right) == 0);
}

static void without_kernels_stages_give_the_hosts_bits(void)
{
	hand_tame = true;
	claim(team_play(3, STAGED, false, all_right) == 0);
}
static void two_gpus_of_a_process_are_reached_when_that_was_tried(void)
{
	setenv("TUTTI_TEST_CUDA_DEVICES", "2", 1);
	claim(team_play(2, MEET, true, all_right) == 0);
}

const struct gpu_case gpu_values[] = {
	GPU_CASE(kernels_that_meet_give_the_hosts_bits),
	GPU_CASE(eight_ranks_of_one_process_meet),
	GPU_CASE(kernels_that_streams_order_give_the_hosts_bits),
	GPU_CASE(where_ipc_handles_are_refused_areas_are_shared_by_descriptor),
	GPU_CASE(without_kernels_stages_give_the_hosts_bits),
	GPU_CASE(two_gpus_of_a_process_are_reached_when_that_was_tried),
	{ NULL, NULL, false },
};
