/*
 * gpu_algorithms.c - every algorithm on device memory gives the bits that the same algorithm gives on
 * host memory
 *
 * Both are asked of one communicator, which is told the algorithm's name: device buffers go by
 * gpu_plan.c (or by kernels that sum in the same order), host buffers by the host's run.
 */
#include <stdlib.h>
#include <string.h>

#include "tests/gpu/gpu_buffers.h"
#include "tests/gpu/gpu_ranks.h"
#include "run/op.h"

/* Few and many bytes, types whose sums round, inputs that are scaled and sums that are divided. */
static void some_calls(struct gpu_buffers *h, tuttiComm_t comm, enum tt_collective what)
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
		c.root = (int)i % h->n;
		c.in_place &= what == TT_ALLREDUCE;
		if (!tt_needs[what].reduces)
			c.op = tuttiSum, c.scalar = 0;
		hand_beside_host(h, &c, comm);
	}
	if (what == TT_ALLREDUCE || what == TT_REDUCE)          /* more than one tile */
		hand_beside_host(h,
				 &(struct gpu_buffers_call){ .what = what,
						 .count = HAND_MOST / 4 - 5,
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

static bool serves(tuttiComm_t comm, const char *name, enum tt_collective what)
{
	const struct tt_algorithm *a = tt_algorithm_look(what, name);
	struct tt_shape shape = { .collective = what, .nranks = comm->nranks, .rank = comm->rank,
				  .topology = &comm->hosts.topology };

	return a && (!a->refuses || !a->refuses(&shape));
}

/* A communicator of the same ranks for each name of the table */
static int every_algorithm(tuttiComm_t *comm, int rank, int n, void *arg)
{
	struct gpu_buffers h;

	(void)arg;
	if (hand_open(&h, rank, n))
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
			if (serves(c, name, (enum tt_collective)what))
				some_calls(&h, c, (enum tt_collective)what);
		if (h.wrong)
			fprintf(stderr, "rank %d of %d: %d wrong up to %s\n", rank, n, h.wrong,
				name);
		tuttiCommDestroy(c);
	}
	hand_close(&h);
	return h.wrong;
}

/* All numbers of ranks in the full tier, and on a GPU */
static void every_algorithm_gives_the_bits_it_gives_on_the_host(void)
{
	bool all = gpu_thorough();

	for (int n = all ? 1 : 3; n <= (all ? TT_DEV_RANKS : 3); n++) {
		claim(team_play(n, MEET, true, every_algorithm) == 0);
		claim(n == 1 || team_play(n, ORDERED, false, every_algorithm) == 0);
	}
}

const struct gpu_case gpu_plans[] = {
	GPU_CASE(every_algorithm_gives_the_bits_it_gives_on_the_host),
	{ NULL, NULL, false },
};
