/*
 * net_bytes.c - a rank that joins by the environment, runs and checks allreduces, and prints the
 * bytes it sent
 *
 * Called by netns.sh:  net_bytes ALGO COUNT CALLS  with TUTTI_RANK, TUTTI_NRANKS, TUTTI_ROOT,
 *                      TUTTI_SECRET set.
 * Prints one line: rank, payload bytes by tcp, payload bytes by shm, during the CALLS calls.
 */
#include <stdio.h>
#include <stdlib.h>

#include "tutti.h"

static int fail(const char *what)
{
	fprintf(stderr, "%s: %s\n", what, tuttiGetLastError(NULL));
	return 1;
}

int main(int argc, char **argv)
{
	tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
	tuttiCounters_t before = { .size = sizeof(before) }, after = before;
	size_t count = argc > 2 ? strtoull(argv[2], NULL, 10) : 1 << 20;
	int calls = argc > 3 ? atoi(argv[3]) : 4, rank, n;
	float *x = malloc(count * sizeof(*x)), *y = malloc(count * sizeof(*y));
	tuttiComm_t comm;

	config.algo = argc > 1 ? argv[1] : "auto";
	if (!x || !y || tuttiCommInitEnv(&comm, &config))
		return fail("join");
	tuttiCommUserRank(comm, &rank);
	tuttiCommCount(comm, &n);
	for (size_t i = 0; i < count; i++)
		x[i] = (float)(rank + (int)(i % 11));
	if (tuttiBarrier(comm, NULL) || tuttiCommGetCounters(comm, &before))
		return fail("barrier");
	for (int i = 0; i < calls; i++)
		if (tuttiAllReduce(x, y, count, tuttiFloat32, tuttiSum, comm, NULL))
			return fail("allreduce");
	tuttiCommGetCounters(comm, &after);
	for (size_t i = 0; i < count; i++)
		if (y[i] != (float)(n * (n - 1) / 2 + n * (int)(i % 11))) {
			fprintf(stderr, "rank %d: element %zu is %g\n", rank, i, (double)y[i]);
			return 1;
		}
	printf("%d %llu %llu\n", rank,
	       (unsigned long long)(after.sent_bytes_tcp - before.sent_bytes_tcp),
	       (unsigned long long)(after.sent_bytes_shm - before.sent_bytes_shm));
	free(x);
	free(y);
	return tuttiCommDestroy(comm) ? fail("destroy") : 0;
}
