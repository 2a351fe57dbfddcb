/*
 * train_kernels.h - parameter structs of the trainer's GPU kernels (train_kernels.cu), shared
 * with the host
 *
 * Read by nvcc as C++ and by C compilers. Addresses are device memory. Each kernel implements
 * the operation of its name in device.h.
 */
#ifndef TRAIN_CUDA_KERNELS_H
#define TRAIN_CUDA_KERNELS_H

#include <stdint.h>

enum { TRAIN_CUDA_THREADS = 256 }; /* of a block */

struct train_cuda_gather {
	const uint8_t *images;
	float *x;
	uint64_t count;
	float mean;
};
struct train_cuda_bias {
	const float *bias;
	float *y;
	uint64_t rows, n;
	uint32_t relu;
};
struct train_cuda_bias_back {
	const float *dy;
	float *dbias;
	uint64_t rows, n;
};
struct train_cuda_add {
	const float *from;
	float *to;
	uint64_t count;
};
struct train_cuda_blend {
	const float *from;
	float *to;
	uint64_t count;
	float keep, take;
};
/* unfold, fold: x is x, y is patches; pool, pool_back: x is x, y is y. Fewer than 2^32 elements,
 * since 64-bit division is slow. */
struct train_cuda_planes {
	float *x, *y;
	uint8_t *argmax;
	uint32_t rows, planes, side, window;
};
struct train_cuda_relu_back {
	const float *y;
	float *dy;
	uint64_t count;
};
struct train_cuda_loss {
	const uint8_t *labels;
	float *logits;
	double *losses;
	uint64_t rows, classes;
};
struct train_cuda_total {
	const double *losses;
	float *loss;
	uint64_t rows;
};
struct train_cuda_descend {
	const float *gradient;
	float *velocity, *weight;
	uint64_t count;
	float scale, rate, momentum;
};
/* element (i, j) of a is a[i * a_row + j * a_column]; the same for b */
struct train_cuda_gemm {
	const float *a, *b;
	float *c;
	uint64_t m, n, k, a_row, a_column, b_row, b_column, ldc;
};

/* K(name, parameter struct) */
#define TRAIN_CUDA_KERNELS(K)              \
	K(gather, train_cuda_gather)       \
	K(bias, train_cuda_bias)           \
	K(bias_back, train_cuda_bias_back) \
	K(add, train_cuda_add)             \
	K(blend, train_cuda_blend)         \
	K(unfold, train_cuda_planes)       \
	K(fold, train_cuda_planes)         \
	K(pool, train_cuda_planes)         \
	K(pool_back, train_cuda_planes)    \
	K(relu_back, train_cuda_relu_back) \
	K(loss, train_cuda_loss)           \
	K(total, train_cuda_total)         \
	K(descend, train_cuda_descend)     \
	K(gemm, train_cuda_gemm)

#endif
