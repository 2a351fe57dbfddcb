/*
 * test_gpu.c - collectives on device memory: on the fake for a GPU (tests/fakes/cuda/), or with
 * TUTTI_TEST_GPU set on a GPU
 *
 * Every mode - kernels with barriers (ranks as threads), kernels ordered by streams (ranks as
 * processes), plans by streams, staging (no kernels) - must give the host's bits, and calls must end
 * when a rank is missing, dies or makes another call. A plain program, for machines with a GPU and
 * without Criterion. Arguments: parts of cases' names; only matching cases run. Long cases run only
 * if an argument matches.
 */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/gpu/gpu_ranks.h"

/* The last ones are slow beside other processes on the GPU: they wait for time slices. */
static const struct gpu_case *const files[] = { gpu_values,     gpu_algorithms,  gpu_pairs,
						gpu_order,      gpu_errors,      gpu_failed_devices,
						gpu_mismatches, gpu_devices,     gpu_peer_records,
						gpu_cost,       gpu_shared_fifo, NULL };

/* Runs a case in a process of its own, since some cases set environment variables. */
static int run(const struct gpu_case *c)
{
	bool on_gpu = getenv("TUTTI_TEST_GPU");
	double left = c->is_long ? 3600 : on_gpu ? 120 : gpu_thorough() ? 600 : 280;
	int status;
	pid_t child;

	fflush(NULL);
	child = fork();
	if (!child) {
		gpu_limit_s = c->is_long ? 3500 : on_gpu ? 100 : gpu_thorough() ? 300 : 150;
		c->run();
		_exit(gpu_failed);
	}
	while (!waitpid(child, &status, WNOHANG))
		if ((left -= ranks_pause()) < 0)
			kill(child, SIGKILL);
	return status;
}

static bool is_chosen(const char *name, char **parts)
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

			if (!is_chosen(c->name, argv + 1) || (c->is_long && argc < 2))
				continue;
			status = run(c);
			printf("%sok %d - %s\n", status ? "not " : "", ++n, c->name);
			bad += status != 0;
		}
	printf("1..%d\n", n);
	return bad != 0;
}
