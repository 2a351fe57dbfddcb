/* device_kernels.h - the kernels of kernels.cu, loaded into a context. Thread: any. */
#ifndef TT_DEVICE_KERNELS_H
#define TT_DEVICE_KERNELS_H

#include <stdatomic.h>

#include "gpu/cuda.h"
#include "gpu/kernels.h"
#include "tutti.h"

/* Blocks of TT_DEV_THREADS, of TT_BARRIER_THREADS */
enum tt_block_kind { TT_LARGE_BLOCKS, TT_SMALL_BLOCKS, TT_BLOCK_KINDS };

struct tt_kernels {
	tt_cufn fn[tuttiNumTypes];
	int blocks[TT_BLOCK_KINDS]; /* blocks of any kernel that can be on the device at once */
	atomic_int *reserved;       /* [TT_BLOCK_KINDS] blocks that communicators have reserved */
};

/* The kernels of ctx, which must be current; loaded at the first call and never unloaded. 0 |
 * TT_CUDA: the image is not built in, or not for this device and driver | TT_SYSTEM. Blocks: some
 * milliseconds, or while the driver compiles, see below. */
int tt_kernels_load(const struct tt_cuda *cu, tt_cuctx ctx, const struct tt_kernels **ret_kernels);
/* Has the driver to compile the kernels at their load into ctx, which takes up to minutes? */
bool tt_kernels_must_compile(const struct tt_cuda *cu, tt_cuctx ctx, int device);
/* available: blocks that no communicator has reserved for kernels that wait for peers; reserve: n
 * more (< 0: fewer) */
int tt_kernels_available(const struct tt_kernels *k, enum tt_block_kind kind);
void tt_kernels_reserve(const struct tt_kernels *k, enum tt_block_kind kind, int n);
/* The CUDA version whose nvcc made the image that is built in, as 13000 for 13.0; 0: none is built
 * in. Code: the compute capabilities that the image has machine code for, "80 90 ". For `tutti
 * info`. */
int tt_kernels_cuda_version(void);
const char *tt_kernels_code(void);

#endif
