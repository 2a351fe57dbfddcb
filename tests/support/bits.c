/*
 * bits.c - prints one hash of the result bits of allreduces: bits TRANSPORT RANKS
 *
 * Called by soft_roce.sh and soft-roce/claims.sh, which claim that the hash is the same for every
 * transport and machine. Runs every algorithm with every type, and alternates sizes and operations,
 * on floats whose sum depends on the order of additions, with many small tiles (TUTTI_TILE_BYTES).
 * Forks its ranks; exit 1 if a rank fails or the ranks differ.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "algorithms/algorithms.h"
#include "plan/plan.h"
#include "tests/support/ranks.h"
#include "tests/support/reference.h"

#define MOST 1500

static const size_t counts[] = { 13, MOST };
static const tuttiRedOp_t ops[] = { tuttiSum, tuttiMax, tuttiAvg, tuttiSum, tuttiProd };

static uint64_t stir(uint64_t h, const void *p, size_t bytes)
{
	const unsigned char *b = p;

	for (size_t i = 0; i < bytes; i++)
		h = (h ^ b[i]) * 0x100000001b3ull;
	return h;
}

/* 0 | 1 with the reason on stderr */
static int calls(tuttiComm_t comm, int rank, int round, unsigned char *x, uint64_t *h)
{
	for (int type = 0; type < tuttiNumTypes; type++) {
		size_t count = counts[(type + round) % 2];
		tuttiRedOp_t op = ops[(type + round) % 5];

		if (!ref_defined(type, op))
			op = tuttiSum;
		for (size_t k = 0; k < count; k++)
			ref_set(type, x + k * ref_bytes[type],
				(double)(random_of((uint64_t)rank, k) % 4096) / 3);
		if (tuttiAllReduce(x, x, count, type, op, comm, NULL)) {
			fprintf(stderr, "%s\n", tuttiGetLastError(comm));
			return 1;
		}
		*h = stir(*h, x, count * ref_bytes[type]);
	}
	return 0;
}

static int all_algorithms(tuttiComm_t *comm, int rank, int nranks, void *arg)
{
	unsigned char *x = calloc(MOST, 8);
	uint64_t h = 1469598103934665603ull;
	int failed = x == NULL;

	(void)nranks;
	for (int a = 0; tt_algorithms[a] && !failed; a++) {
		tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
		tuttiComm_t part;

		config.algo = tt_algorithms[a]->name;
		if (tt_algorithms[a]->collective != TT_ALLREDUCE)
			continue;
		failed = tuttiCommSplit(*comm, 0, rank, &part, &config) != tuttiSuccess;
		if (failed)
			fprintf(stderr, "%s: %s\n", config.algo, tuttiGetLastError(*comm));
		if (!failed) {
			char text[160];

			if (!tuttiCommDescribe(part, "allreduce", 1, tuttiFloat32, text,
					       sizeof(text)))
				failed = calls(part, rank, a, x, &h);
			tuttiCommDestroy(part);
		}
	}
	free(x);
	((uint64_t *)arg)[rank] = h;
	return failed;
}

int main(int argc, char **argv)
{
	struct ranks r = { .n = argc > 2 ? atoi(argv[2]) : 2,
			   .transport = argc > 1 ? argv[1] : NULL,
			   .limit_s = 200 };
	uint64_t *h = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	int failed;

	if (h == MAP_FAILED || r.n < 1 || r.n > 64)
		return 2;
	setenv("TUTTI_TILE_BYTES", "4096", 0);
	r.arg = h;
	failed = ranks_run(&r, all_algorithms);
	for (int i = 1; i < r.n; i++)
		if (h[i] != h[0] && ++failed)
			fprintf(stderr, "ranks 0 and %d have different bits\n", i);
	printf("%016" PRIx64 "\n", h[0]);
	return failed != 0;
}
