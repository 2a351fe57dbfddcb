/*
 * convolution.h - direct convolutions of 5 x 5 in host memory, without patches, by instruction set
 *
 * Every element has the operations of unfold, gemm and fold (device.h) in their order, so the bits are
 * the same with every instruction set and as with patches. Called by device_host_planes.c.
 *
 * Source: Georganas et al. 2018, Anatomy of high-performance deep learning convolutions on SIMD
 * architectures.
 */
#ifndef TRAIN_CONVOLUTION_H
#define TRAIN_CONVOLUTION_H

#include "trainer/device/device.h"

/* Three passes over one image, or its gradient, that has a border of zeros (convolution.c). */
struct train_convolution_kernels {
	const char *isa;
	size_t lanes; /* floats of a vector */
	size_t panel; /* planes that forward and back_input compute at once; those from `stored` on
			* are not stored */
	/* x[from]: with border; w[from * 25 + 1][panel]; y[panel planes, `stride` floats apart][side][side] */
	void (*forward)(const struct train_convolution *c, const float *x, const float *w,
			size_t stored, float *y, size_t stride);
	/* dy[to]: with border; w[25][to][panel]; dx[panel planes][side][side] */
	void (*back_input)(const struct train_convolution *c, const float *dy, const float *w,
			   size_t stored, float *dx);
	/* x[from]: with border; dy[side][side][lanes]; sums[from * 25 + 1][lanes] are continued */
	void (*back_weights)(const struct train_convolution *c, const float *x, const float *dy,
			     float *sums);
};

/* isa: avx512, avx2, scalar, or NULL for the best of this processor; NULL if it lacks the
 * instructions */
const struct train_convolution_kernels *train_convolution_of(const char *isa);

/* The operations of device.h with these kernels. */
void train_convolve(const struct train_convolution_kernels *k, const struct train_convolution *c,
		    const float *x, const float *weights, float *scratch, float *y);
void train_convolve_back_input(const struct train_convolution_kernels *k,
			       const struct train_convolution *c, const float *dpool,
			       const uint8_t *argmax, const float *weights, float *scratch,
			       float *dx);
void train_convolve_back_weights(const struct train_convolution_kernels *k,
				 const struct train_convolution *c, const float *x,
				 const float *dpool, const uint8_t *argmax, float *scratch,
				 float *gradients);

#endif
