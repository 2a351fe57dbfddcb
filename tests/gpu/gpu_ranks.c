/*
 * gpu_ranks.c - see gpu_ranks.h
 */
#include "tests/gpu/gpu_ranks.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

int gpu_failed, gpu_limit_s;

int gpu_rank_device(int rank)
{
	const char *text = getenv("TUTTI_TEST_CUDA_DEVICES");
	int devices = 1;

	if (text && tt_cuda_here()->device_count(&devices) == 0 && atoi(text) < devices)
		devices = atoi(text);
	return rank % devices;
}

/* In a child, since CUDA does not survive a later fork. */
bool gpu_use_devices(int devices)
{
	char text[12];
	int status = 0, n = 0;
	pid_t child;

	snprintf(text, sizeof(text), "%d", devices);
	setenv("TUTTI_TEST_CUDA_DEVICES", text, 1);
	if (!getenv("TUTTI_TEST_GPU"))
		return true;
	child = fork();
	if (!child)
		_exit(!harness_cuda() || tt_cuda_here()->device_count(&n) || n < devices);
	waitpid(child, &status, 0);
	return status == 0;
}

static bool set_device(int rank)
{
	const struct tt_cuda *cu = harness_cuda();
	tt_cuctx ctx;

	return cu && !cu->ctx_retain(&ctx, gpu_rank_device(rank)) && !cu->ctx_set(ctx);
}

/* Creates the communicator after CUDA is loaded; ranks.c would create it before. */
static int init_and_run(tuttiComm_t *comm, int rank, int n, void *arg)
{
	struct gpu_ranks *t = arg;
	tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
	bool gpu = !(t->mixed && rank == 0);

	config.timeout_ms = t->ranks.timeout_ms;
	if (gpu && !set_device(rank))
		return 1;
	if (t->before)
		t->before(rank);
	if (tuttiCommInitRankConfig(comm, n, t->ranks.id, rank, &config)) {
		fprintf(stderr, "rank %d: init: %s\n", rank, tuttiGetLastError(NULL));
		return 1;
	}
	if (gpu && ((*comm)->gpu->kernels != (t->mode != STAGED) ||
		    (*comm)->gpu->kernel_barrier != (t->mode == KERNEL_BARRIER))) {
		fprintf(stderr, "rank %d: kernels %d, kernel barrier %d\n", rank,
			(*comm)->gpu->kernels, (*comm)->gpu->kernel_barrier);
		return 1;
	}
	return t->fn(comm, rank, n, NULL);
}

/* Runs the ranks in a process of its own, since CUDA does not survive a later fork. */
int gpu_ranks_run(struct gpu_ranks *t)
{
	int status;
	pid_t child;

	fflush(NULL);
	child = fork();
	if (!child) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		_exit(ranks_run(&t->ranks, init_and_run));
	}
	waitpid(child, &status, 0);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 100;
}

int run_gpu_ranks(int n, int mode, bool threads, rank_fn *fn)
{
	/* a call that waits for ever on a GPU says for which rank */
	int deadline_s = getenv("TUTTI_TEST_GPU") ? gpu_limit_s / 4 : gpu_limit_s;
	struct gpu_ranks t = { .ranks = { .n = n,
					  .threads = threads,
					  .no_join = true,
					  .limit_s = gpu_limit_s,
					  .timeout_ms = deadline_s * 1000 },
			       .fn = fn,
			       .mode = mode };

	t.ranks.arg = &t;
	if (mode == STAGED)
		setenv("TUTTI_GPU", "staged", 1);
	return gpu_ranks_run(&t);
}

int run_gpu_ranks_all_modes(int n, rank_fn *fn)
{
	int failed = run_gpu_ranks(n, KERNEL_BARRIER, true, fn);

	failed += run_gpu_ranks(n, STREAM_ORDER, false, fn);
	return failed + run_gpu_ranks(n, STAGED, false, fn);
}

int run_gpu_ranks_without_deadline(int n, int mode, rank_fn *fn)
{
	struct gpu_ranks t = { .ranks = { .n = n,
					  .no_join = true,
					  .limit_s = gpu_limit_s / 3,
					  .timeout_ms = 3600000 },
			       .fn = fn,
			       .mode = mode };

	t.ranks.arg = &t;
	return gpu_ranks_run(&t);
}

void *gpu_first_call(tuttiComm_t comm, tt_custream *ret_stream)
{
	const struct tt_cuda *cu = tt_cuda_here();
	tt_cuptr p;
	void *d;

	cu->mem_alloc(&p, 1 << 20);
	cu->stream_create(ret_stream, TT_CU_STREAM_NON_BLOCKING);
	d = (void *)(uintptr_t)p;
	tuttiAllReduce(d, d, 60000, tuttiFloat32, tuttiSum, comm, *ret_stream);
	cu->stream_synchronize(*ret_stream);
	return d;
}

tuttiResult_t gpu_await_error(tuttiComm_t comm)
{
	tuttiResult_t rc = tuttiSuccess;

	for (int i = 0; i < 15000 && rc == tuttiSuccess; i++) {
		usleep(1000);
		tuttiCommGetAsyncError(comm, &rc);
	}
	return rc;
}

bool gpu_thorough_processes(void)
{
	return gpu_thorough() && !getenv("TUTTI_TEST_GPU");
}

bool gpu_thorough(void)
{
	const char *tier = getenv("TT_TIER");

	return !getenv("TT_GPU_BRIEF") &&
	       (getenv("TUTTI_TEST_GPU") || (tier && strcmp(tier, "default")));
}
