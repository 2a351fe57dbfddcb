/*
 * gpu_devices.c - ranks on several GPUs: which ranks share one
 */
#include <stdlib.h>

#include "tests/gpu/gpu_ranks.h"

/* What each rank sees (CUDA_VISIBLE_DEVICES), and the number of its device there */
static const struct visible_devices {
	const char *list[2];
	int number[2];
	uint32_t devices; /* that the two ranks use */
} * visible;

static void take_visible_device(int rank)
{
	const struct tt_cuda *cu = tt_cuda_here();
	tt_cuctx ctx;

	setenv("CUDA_VISIBLE_DEVICES", visible->list[rank], 1);
	claim(!cu->ctx_retain(&ctx, visible->number[rank]) && !cu->ctx_set(ctx));
}

static int count_devices(tuttiComm_t *comm, int rank, int n, void *arg)
{
	const struct tt_cuda *cu = tt_cuda_here();
	int x = rank, wrong = gpu_failed;
	tt_cuptr p;

	(void)arg;
	wrong += cu->mem_alloc(&p, sizeof(x)) || cu->htod(p, &x, sizeof(x));
	wrong += tuttiAllReduce((void *)(uintptr_t)p, (void *)(uintptr_t)p, 1, tuttiInt32, tuttiSum,
				*comm, NULL) != tuttiSuccess;
	cu->dtoh(&x, p, sizeof(x));
	cu->mem_free(p);
	if ((*comm)->gpu->devices != visible->devices)
		fprintf(stderr, "rank %d: %u devices, not %u\n", rank, (*comm)->gpu->devices,
			visible->devices);
	return wrong + (x != n * (n - 1) / 2) + ((*comm)->gpu->devices != visible->devices);
}

static void processes_tell_gpus_apart_by_uuid_whatever_numbers_they_see(void)
{
	static const struct visible_devices cases[] = {
		{ { "0", "1" }, { 0, 0 }, 2 }, /* as torchrun and Slurm set them */
		{ { "0,1", "1,0" }, { 0, 1 }, 1 },
		{ { "0,1", "0,1" }, { 0, 1 }, 2 },
	};
	struct gpu_ranks t = {
		.ranks = { .n = 2, .no_join = true, .limit_s = gpu_limit_s, .timeout_ms = 20000 },
		.fn = count_devices,
		.mode = STREAM_ORDER,
		.before = take_visible_device
	};

	if (getenv("TUTTI_TEST_GPU"))
		return;
	setenv("TUTTI_TEST_CUDA_DEVICES", "2", 1);
	t.ranks.arg = &t;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		visible = &cases[i];
		claim(gpu_ranks_run(&t) == 0);
	}
}

const struct gpu_case gpu_devices[] = {
	GPU_CASE(processes_tell_gpus_apart_by_uuid_whatever_numbers_they_see),
	{ NULL, NULL, false },
};
