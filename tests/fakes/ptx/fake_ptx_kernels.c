/*
 * fake_ptx_kernels.c - the kernels of the fake CUDA driver that runs PTX: those of the library and of
 * the trainer, as nvcc compiled them
 *
 * Takes the place of fake_kernels.c and fake_train_kernels.c. PTX_TYPES and HOST_TYPES (ptx_types.h,
 * written by `functions`) are X-lists of the types whose kernels are translated PTX, and of those whose
 * kernels are compiled for the host.
 */
#include "tests/fakes/cuda/fake_cuda.h"

#include "gpu/kernels.cu"
#include "tests/fakes/ptx/ptx_run.h"
#include "trainer/device/train_kernels.h"

#include "ptx_types.h"

bool ptx_find_range(uintptr_t at, uintptr_t *ret_from, uintptr_t *ret_to)
{
	return fake_find_range((const void *)at, ret_from, ret_to);
}

static bool waits(const void *params)
{
	const struct tt_dev_job *job = params;

	return job->way != TT_DEV_ALONE && job->nranks > 1;
}

#undef KERNEL
#define KERNEL(name)                                                                       \
	extern const struct ptx_kernel ptx_##name;                                         \
	static void run_##name(const void *params)                                         \
	{                                                                                  \
		ptx_run_block(&ptx_##name, params, fake_threads, fake_block, fake_blocks); \
	}
#define LIBRARY_KERNEL(type) KERNEL(tt_##type)
#define LIBRARY_ROW(type) { "tt_" #type, run_tt_##type, sizeof(struct tt_dev_job), waits },
#define HOST_ROW(type) { "tt_" #type, tt_##type, sizeof(struct tt_dev_job), waits },
PTX_TYPES(LIBRARY_KERNEL)
const struct fake_kernel fake_kernels[] = { PTX_TYPES(LIBRARY_ROW)
						    HOST_TYPES(HOST_ROW){ NULL, NULL, 0, NULL } };

#define TRAIN_KERNEL(name, type) KERNEL(train_kernel_##name)
#define TRAIN_ROW(name, type) \
	{ "train_kernel_" #name, run_train_kernel_##name, sizeof(struct type), NULL },
TRAIN_CUDA_KERNELS(TRAIN_KERNEL)
const struct fake_kernel fake_train_kernels[] = { TRAIN_CUDA_KERNELS(TRAIN_ROW){ NULL, NULL, 0,
										 NULL } };
