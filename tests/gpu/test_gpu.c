/*
 * test_gpu.c - collectives on device memory: on the fake for a GPU (tests/fakes/cuda/), or with
 * TUTTI_TEST_GPU set on one
 *
 * Every way - kernels that meet (ranks as threads), kernels ordered by streams (ranks as
 * processes), plans by streams, stages (no kernels) - must give the host's bits, and come to an end
 * when a rank is missing, dies or makes another call. A plain program, so that it runs where there
 * is a GPU and no Criterion. Arguments: parts of cases' names; only those are run, and those that
 * take long only so.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/gpu/gpu_ranks.h"

static const struct gpu_case *const files[] = { gpu_values, gpu_plans,	 gpu_pairs,
						gpu_order,  gpu_trouble, gpu_cards,
						NULL };

/* Each in a process of its own, since some set variables. */
static int run(const struct gpu_case *c)
{
	int status;
	pid_t child;

	fflush(NULL);
	child = fork();
	if (!child) {
		alarm(c->is_long ? 3600 : gpu_thorough() ? 600 : 280);
		gpu_limit_s = c->is_long ? 3500 : gpu_thorough() ? 300 : 150;
		c->run();
		_exit(gpu_broken);
	}
	waitpid(child, &status, 0);
	return status;
}

static bool is_meant(const char *name, char **parts)
{
	for (char **part = parts; *part; part++)
		if (strstr(name, *part))
			return true;
	return !*parts;
}

int main(int argc, char **argv)
{
	int n = 0, bad = 0;

	setvbuf(stdout, NULL, _IOLBF, 0);
	for (int f = 0; files[f]; f++)
		for (const struct gpu_case *c = files[f]; c->name; c++) {
			int status;

			if (!is_meant(c->name, argv + 1) || (c->is_long && argc < 2))
				continue;
			status = run(c);
			printf("%sok %d - %s\n", status ? "not " : "", ++n, c->name);
			bad += status != 0;
		}
	printf("1..%d\n", n);
	return bad != 0;
}
