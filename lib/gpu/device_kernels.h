/* device_kernels.h - the kernels of kernels.cu, loaded into a context. Thread: any. */
#ifndef TT_DEVICE_KERNELS_H
#define TT_DEVICE_KERNELS_H

#include <stdatomic.h>

#include "gpu/cuda.h"
#include "gpu/kernels.h"
#include "tutti.h"

struct tt_kernels {
	tt_cufn fn[tuttiNumTypes];
	int blocks;                            /* of any of them that fit on the device at once */
	atomic_int *held;                      /* of these */
};

/* Those of the context that is current, which is ctx; loaded at the first call and for good. 0 |
 * TT_CUDA: not built in, or not for this device. Blocks: some milliseconds. */
int tt_kernels_load(const struct tt_cuda *cu, tt_cuctx ctx, const struct tt_kernels **ret_kernels);
/* Blocks that no communicator holds for kernels that wait for peers; hold n more (< 0: fewer). */
int tt_kernels_free(const struct tt_kernels *k);
void tt_kernels_hold(const struct tt_kernels *k, int n);
/* Is there an image? For `tutti info`. */
bool tt_kernels_built_in(void);

#endif
