/*
 * steady.c - ranks that allreduce again and again, 5 ms apart, until one of them fails or they are ended
 *
 *   steady BYTES processes|threads RANKS [TRANSPORT]     ranks of this host
 *   steady BYTES launched                                one rank of a launcher
 *
 * For top.sh, ras.sh and metrics.sh: a job that runs, and leaves the processors to other tests. A rank prints
 * the error that ends it. Exit status: 1 after an error.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/support/ranks.h"

#define MOST (64u << 10)

static int steady(tuttiComm_t *comm, int rank, int nranks, void *arg)
{
	size_t count = *(size_t *)arg / sizeof(float);
	float *in = calloc(2 * MOST, 1), *out = in + MOST / sizeof(float);

	(void)rank, (void)nranks;
	while (in && !tuttiAllReduce(in, out, count, tuttiFloat, tuttiSum, *comm, NULL))
		nanosleep(&(struct timespec){ .tv_nsec = 5000000 }, NULL);
	fprintf(stderr, "%s\n", tuttiGetLastError(NULL));
	free(in);
	return 1;
}

int main(int argc, char **argv)
{
	size_t bytes = argc > 1 ? strtoul(argv[1], NULL, 10) : 0;
	struct ranks r = { .limit_s = 300, .arg = &bytes };
	tuttiComm_t comm;

	if (argc < 3 || bytes < sizeof(float) || bytes > MOST)
		return fputs("usage: steady BYTES processes|threads RANKS [TRANSPORT] | launched\n",
			     stderr),
		       2;
	if (!strcmp(argv[2], "launched")) {
		if (tuttiCommInitEnv(&comm, NULL))
			return fprintf(stderr, "%s\n", tuttiGetLastError(NULL)), 1;
		return steady(&comm, 0, 0, &bytes);
	}
	r.threads = !strcmp(argv[2], "threads");
	r.n = argc > 3 ? atoi(argv[3]) : 1;
	r.transport = argc > 4 ? argv[4] : NULL;
	return ranks_run(&r, steady) != 0;
}
