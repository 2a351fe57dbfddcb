/*
 * gpu_algorithms.c - every algorithm gives the same bits on device memory as on host memory
 *
 * One communicator with a named algorithm makes both calls: gpu_plan.c (or kernels with the same
 * order of operands) runs the call on device buffers, lib/run the call on host buffers.
 */
#include <stdlib.h>
#include <string.h>

#include "tests/gpu/gpu_buffers.h"
#include "tests/gpu/gpu_ranks.h"
#include "run/op.h"

/* Small and large calls, types whose sums round, pre-multiplied sums and averages */
static void some_calls(struct gpu_buffers *b, tuttiComm_t comm, enum tt_collective what)
{
	static const struct gpu_buffers_call calls[] = {
		{ .count = 1, .type = tuttiFloat32 },
		{ .count = 1003, .type = tuttiBfloat16, .in_place = true },
		{ .count = 20011, .type = tuttiFloat32, .op = tuttiAvg },
		{ .count = 3001, .type = tuttiFloat32, .scalar = 2 },
		{ .count = 517, .type = tuttiInt64, .op = tuttiAvg },
		{ .count = 70001, .type = tuttiFloat32, .in_place = true },
	};

	for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
		struct gpu_buffers_call c = calls[i];

		c.what = what;
		c.root = (int)i % b->n;
		c.in_place &= what == TT_ALLREDUCE;
		if (!tt_needs[what].reduces)
			c.op = tuttiSum, c.scalar = 0;
		gpu_buffers_check_by_host(b, &c, comm);
	}
	if (what == TT_ALLREDUCE || what == TT_REDUCE) /* more than one tile */
		gpu_buffers_check_by_host(b,
					  &(struct gpu_buffers_call){
						  .what = what,
						  .count = GPU_BUFFER_BYTES / 4 - 5,
						  .type = tuttiFloat32 },
					  comm);
}

static bool first_of_its_name(int row)
{
	for (int i = 0; i < row; i++)
		if (!strcmp(tt_algorithms[i]->name, tt_algorithms[row]->name))
			return false;
	return true;
}

static bool supports(tuttiComm_t comm, const char *name, enum tt_collective what)
{
	const struct tt_algorithm *a = tt_algorithm_look(what, name);
	struct tt_shape shape = { .collective = what,
				  .nranks = comm->nranks,
				  .rank = comm->rank,
				  .topology = &comm->hosts.topology };

	return a && (!a->refuses || !a->refuses(&shape));
}

/* One communicator of the same ranks for each algorithm name of the table */
static int every_algorithm(tuttiComm_t *comm, int rank, int n, void *arg)
{
	struct gpu_buffers b;

	(void)arg;
	if (gpu_buffers_open(&b, rank, n))
		return 1;
	for (int row = 0; tt_algorithms[row]; row++) {
		const char *name = tt_algorithms[row]->name;
		tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
		tuttiComm_t c;

		if (!first_of_its_name(row))
			continue;
		config.algo = name;
		if (tuttiCommSplit(*comm, 0, rank, &c, &config) || !c->gpu || !c->gpu->kernels) {
			fprintf(stderr, "rank %d: %s: %s\n", rank, name, tuttiGetLastError(NULL));
			return 1;
		}
		for (int what = 0; what < TT_SENDRECV; what++)
			if (supports(c, name, (enum tt_collective)what))
				some_calls(&b, c, (enum tt_collective)what);
		if (b.wrong)
			fprintf(stderr, "rank %d of %d: %d wrong results up to %s\n", rank, n,
				b.wrong, name);
		tuttiCommDestroy(c);
	}
	gpu_buffers_close(&b);
	return b.wrong;
}

/* The full tier and a GPU try all numbers of ranks. */
static void every_algorithm_gives_the_same_bits_as_on_host_memory(void)
{
	bool all = gpu_thorough();

	for (int n = all ? 1 : 3; n <= (all ? TT_DEV_RANKS : 3); n++) {
		claim(run_gpu_ranks(n, KERNEL_BARRIER, true, every_algorithm) == 0);
		claim(n == 1 || (n > 3 && !gpu_thorough_processes()) ||
		      run_gpu_ranks(n, STREAM_ORDER, false, every_algorithm) == 0);
	}
}

const struct gpu_case gpu_algorithms[] = {
	GPU_CASE(every_algorithm_gives_the_same_bits_as_on_host_memory),
	{ NULL, NULL, false },
};
