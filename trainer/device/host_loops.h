/*
 * host_loops.h - the element-wise loops of devices in host memory, by instruction set
 *
 * Every element has the same operations in each instruction set, so the bits are the same. Called by
 * device_host.c.
 */
#ifndef TRAIN_HOST_LOOPS_H
#define TRAIN_HOST_LOOPS_H

#include "trainer/device/device.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The operations of struct train_device_ops; gather and bias for one row. */
struct train_host_loops {
	const char *isa;
	void (*gather)(size_t n, const uint8_t *image, float mean, float *x);
	void (*bias)(size_t n, const float *bias, bool relu, float *y);
	void (*add)(size_t n, const float *from, float *to);
	void (*blend)(size_t n, float keep, float take, const float *from, float *to);
	void (*relu_back)(size_t n, const float *y, float *dy);
	void (*descend)(size_t n, float scale, float rate, float momentum, const float *gradient,
			float *velocity, float *weight);
	void (*rmsprop)(size_t n, float scale, float rate, const float *gradient, float *square,
			float *weight);
	void (*adam)(size_t n, const struct train_adam *a, const float *gradient, float *mean,
		     float *square, float *weight);
};

/* isa: avx512, avx2, scalar, or NULL for the best of this processor; NULL if it lacks the
 * instructions */
const struct train_host_loops *train_host_loops_of(const char *isa);

/* Those of TUTTI_ISA, or the best. */
const struct train_host_loops *train_host_loops(void);

#endif
