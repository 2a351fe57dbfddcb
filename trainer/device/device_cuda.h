/*
 * device_cuda.h - device cuda: state, copies to the GPU and operations, shared by its files
 *
 * device_cuda.c has open and close, memory and streams;
 * device_cuda_compute.c launches kernels and matrix products.
 */
#ifndef TRAIN_DEVICE_CUDA_H
#define TRAIN_DEVICE_CUDA_H

#include "gpu/cuda.h"
#include "trainer/device/cublas.h"
#include "trainer/device/device.h"
#include "trainer/device/train_kernels.h"

enum { TRAIN_CUDA_BOUNCE_BYTES = 1 << 20 };

#define TRAIN_CUDA_NUMBER(name, type) KERNEL_##name,
enum train_cuda_kernel { TRAIN_CUDA_KERNELS(TRAIN_CUDA_NUMBER) KERNELS };
#undef TRAIN_CUDA_NUMBER

/* Pinned host memory for copies to the GPU, used in rounds. */
struct train_cuda_bounce {
	char *at;
	size_t bytes, used;
};
/* Device memory that grows on demand. */
struct train_cuda_buffer {
	tt_cuptr at;
	size_t bytes;
};

struct train_cuda_state {
	const struct tt_cuda *cu;
	tt_custream stream, comm_stream;
	tt_cuevent computed; /* recorded on stream; comm_stream waits for it */
	tt_cufn kernel[KERNELS];
	unsigned blocks; /* greatest grid size of a kernel */
	struct train_cublas blas;
	void *handle; /* cuBLAS handle; NULL with --canonical */
	struct train_cuda_bounce bounce;
	struct train_cuda_buffer images, labels, losses;
	char error[512]; /* error text of the first failed call, or empty */
};

/* Records a driver error rc if it is the first; operations do nothing after an error. */
void train_cuda_check(struct train_cuda_state *c, int rc, const char *operation);

/* Bounce buffer space, at most TRAIN_CUDA_BOUNCE_BYTES; waits for earlier copies before it is
 * reused. */
char *train_cuda_bounce_alloc(struct train_device *d, size_t bytes);
void train_cuda_copy_in(struct train_device *d, tt_cuptr to, const char *from, size_t bytes);

/* Grows buffer to at least `bytes`. Returns its address, 0 after a failure. */
tt_cuptr train_cuda_reserve(struct train_device *d, struct train_cuda_buffer *area, size_t bytes);

TRAIN_DEVICE_COMPUTE(TRAIN_DEVICE_FUNCTION, train_cuda_op)
TRAIN_DEVICE_FUNCTION(train_cuda_op, gemm)

#endif
