/*
 * gpu_ranks.c - see gpu_ranks.h
 */
#include "tests/gpu/gpu_ranks.h"

#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

int gpu_broken, gpu_limit_s;

int team_device(int rank)
{
	const char *text = getenv("TUTTI_TEST_CUDA_DEVICES");
	int devices = 1;

	if (text && tt_cuda_here()->device_count(&devices) == 0 && atoi(text) < devices)
		devices = atoi(text);
	return rank % devices;
}

static bool enter_cuda(int rank)
{
	const struct tt_cuda *cu = harness_cuda();
	tt_cuctx ctx;

	return cu && !cu->ctx_retain(&ctx, team_device(rank)) && !cu->ctx_set(ctx);
}

/* ranks.c would join before CUDA is there. */
static int act(tuttiComm_t *comm, int rank, int n, void *arg)
{
	struct gpu_ranks *t = arg;
	tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
	bool gpu = !(t->mixed && rank == 0);

	config.timeout_ms = t->ranks.timeout_ms;
	if (gpu && !enter_cuda(rank))
		return 1;
	if (t->before)
		t->before(rank);
	if (tuttiCommInitRankConfig(comm, n, t->ranks.id, rank, &config)) {
		fprintf(stderr, "rank %d: join: %s\n", rank, tuttiGetLastError(NULL));
		return 1;
	}
	if (gpu && ((*comm)->gpu->kernels != (t->way != STAGED) ||
		    (*comm)->gpu->kernel_barrier != (t->way == MEET))) {
		fprintf(stderr, "rank %d: kernels %d, meets %d\n", rank, (*comm)->gpu->kernels,
			(*comm)->gpu->kernel_barrier);
		return 1;
	}
	return t->fn(comm, rank, n, NULL);
}

/* Each in a process of its own, since CUDA does not survive the fork of the next one. */
int team_failures(struct gpu_ranks *t)
{
	int status;
	pid_t child;

	fflush(NULL);
	child = fork();
	if (!child)
		_exit(ranks_run(&t->ranks, act));
	waitpid(child, &status, 0);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 100;
}

int team_play(int n, int way, bool threads, rank_fn *fn)
{
	struct gpu_ranks t = { .ranks = { .n = n, .threads = threads, .no_join = true,
				     .limit_s = gpu_limit_s, .timeout_ms = 20000 },
			  .fn = fn,
			  .way = way };

	t.ranks.arg = &t;
	if (way == STAGED)
		setenv("TUTTI_GPU", "staged", 1);
	return team_failures(&t);
}

int team_play_all_ways(int n, rank_fn *fn)
{
	int failed = team_play(n, MEET, true, fn);

	failed += team_play(n, ORDERED, false, fn);
	return failed + team_play(n, STAGED, false, fn);
}

bool gpu_thorough(void)
{
	const char *tier = getenv("TT_TIER");

	return !getenv("TT_GPU_BRIEF") &&
	       (getenv("TUTTI_TEST_GPU") || (tier && strcmp(tier, "default")));
}
