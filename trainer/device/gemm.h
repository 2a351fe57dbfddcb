/*
 * gemm.h - the product of two float matrices, bit-reproducible
 *
 * Every element of the result is ONE chain of fused multiply-adds over k, from 0 upwards. The
 * bits therefore depend neither on the instruction set nor on the tiling nor on the division of
 * rows among ranks. Called by device_cpu.c.
 */
#ifndef TRAIN_GEMM_H
#define TRAIN_GEMM_H

#include <stdbool.h>
#include <stddef.h>

struct train_gemm;

/* A row-major matrix, or its transpose: element (i, j) is at[i * stride + j], or
 * at[j * stride + i] if transposed. */
struct train_matrix {
	const float *at;
	size_t stride;
	bool transposed;
};

/* isa: avx512, avx2, scalar, or NULL for the best of this processor. Returns NULL without
 * memory, or if the processor lacks the instructions. Not thread-safe. */
struct train_gemm *train_gemm_open(const char *isa);
void train_gemm_close(struct train_gemm *g);

/* c[m x n], rows of stride ldc, = a[m x k] * b[k x n]. k == 0: zeros. */
void train_gemm(struct train_gemm *g, size_t m, size_t n, size_t k, struct train_matrix a,
		struct train_matrix b, float *c, size_t ldc);

#endif
