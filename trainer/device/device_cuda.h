/*
 * device_cuda.h - what the files of the device cuda share: its state, memory on the way to it, and
 * its operations
 *
 * device_cuda.c opens it, has memory and streams;
 * device_cuda_compute.c launches kernels and matrix products.
 */
#ifndef TRAIN_DEVICE_CUDA_H
#define TRAIN_DEVICE_CUDA_H

#include "trainer/device/cublas.h"
#include "trainer/device/train_kernels.h"
#include "trainer/device/device.h"
#include "gpu/cuda.h"

enum { TRAIN_CUDA_PINNED = 1 << 20 };

#define TRAIN_CUDA_NUMBER(name, type) KERNEL_##name,
enum train_cuda_kernel { TRAIN_CUDA_KERNELS(TRAIN_CUDA_NUMBER) KERNELS };
#undef TRAIN_CUDA_NUMBER

struct train_cuda_pinned {
	char *at;
	size_t bytes, used;
};
struct train_cuda_area {
	tt_cuptr at;
	size_t bytes;
};

struct train_cuda_state {
	const struct tt_cuda *cu;
	tt_custream stream, beside;
	tt_cuevent mark;               /* of the stream, for the one beside it */
	tt_cufn kernel[KERNELS];
	unsigned blocks;               /* of a kernel, at most */
	struct train_cublas blas;
	void *handle;                  /* cuBLAS's; NULL with --canonical */
	struct train_cuda_pinned pinned;          /* what is on its way to the GPU */
	struct train_cuda_area images, labels, losses;
	char error[512];               /* of the first call that failed, or empty */
};

/* Keeps the driver's error, if it is the first; the operations then do nothing. */
void train_on_cuda_keep(struct train_cuda_state *c, int rc, const char *what);

/* Pinned memory for at most TRAIN_CUDA_PINNED bytes; what was in it has left when it is used again. */
char *train_on_cuda_pin(struct train_device *d, size_t bytes);
void train_on_cuda_copy(struct train_device *d, tt_cuptr to, const char *from, size_t bytes);

/* So much memory of the device's own; 0 after a failure. Grows when a larger batch comes. */
tt_cuptr train_on_cuda_room(struct train_device *d, struct train_cuda_area *area, size_t bytes);

TRAIN_DEVICE_WORK(TRAIN_DEVICE_FUNCTION, train_on_cuda)
TRAIN_DEVICE_FUNCTION(train_on_cuda, gemm)

#endif
