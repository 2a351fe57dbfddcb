/*
 * device_host.h - what devices that compute in host memory have in common:
 * all but the matrix product
 *
 * Members of struct tt_device_ops for device_cpu.c and device_cpu_blas.c (TT_HOST_WORK), called by
 * device_sim.c. Every sum has one written order (rows and classes from 0 upwards), exp and log are
 * our own, so the bits depend on nothing
 * but the numbers.
 */
#ifndef TT_TRAINER_DEVICE_HOST_H
#define TT_TRAINER_DEVICE_HOST_H

#include "device.h"

void *tt_host_alloc(struct tt_device *d, size_t bytes);
void tt_host_free(struct tt_device *d, void *memory);
void tt_host_copy(struct tt_device *d, void *to, const void *from, size_t bytes);
void tt_host_gather(struct tt_device *d, const uint8_t *images, const uint32_t *samples,
		    size_t rows, size_t pixels, float mean, float *x);
void tt_host_bias(struct tt_device *d, size_t rows, size_t n, const float *bias, bool relu,
		  float *y);
void tt_host_bias_back(struct tt_device *d, size_t rows, size_t n, const float *dy, float *dbias);
void tt_host_add(struct tt_device *d, size_t count, const float *from, float *to);
void tt_host_blend(struct tt_device *d, size_t count, float keep, float take, const float *from,
		   float *to);
void tt_host_unfold(struct tt_device *d, struct tt_planes p, size_t window, const float *x,
		    float *patches);
void tt_host_fold(struct tt_device *d, struct tt_planes p, size_t window, const float *patches,
		  float *x);
void tt_host_pool(struct tt_device *d, struct tt_planes p, const float *y, float *x,
		  uint8_t *which);
void tt_host_pool_back(struct tt_device *d, struct tt_planes p, const float *dx,
		       const uint8_t *which, float *dy);
void tt_host_relu_back(struct tt_device *d, size_t count, const float *y, float *dy);
void tt_host_loss(struct tt_device *d, size_t rows, size_t classes, const uint8_t *labels,
		  float *logits, float *loss);
void tt_host_descend(struct tt_device *d, size_t count, float scale, float rate, float momentum,
		     const float *gradient, float *velocity, float *weight);

#define TT_HOST_WORK                                                                               \
	.alloc = tt_host_alloc, .free = tt_host_free, .put = tt_host_copy, .get = tt_host_copy,    \
	.copy = tt_host_copy, .blend = tt_host_blend,                                              \
	.gather = tt_host_gather, .bias = tt_host_bias, .bias_back = tt_host_bias_back,            \
	.add = tt_host_add, .unfold = tt_host_unfold, .fold = tt_host_fold, .pool = tt_host_pool,  \
	.pool_back = tt_host_pool_back, .relu_back = tt_host_relu_back, .loss = tt_host_loss,      \
	.descend = tt_host_descend

#endif
