/*
 * device_host.h - what devices that compute in host memory have in common:
 * all but the matrix product
 *
 * Members of struct tt_device_ops for device_cpu.c and device_cpu_blas.c (TT_HOST_WORK), called by
 * device_sim.c. Every sum has one written order (rows and classes from 0 upwards), exp and log are
 * our own, so the bits depend on nothing but the numbers.
 */
#ifndef TT_TRAINER_DEVICE_HOST_H
#define TT_TRAINER_DEVICE_HOST_H

#include "trainer/device/device.h"

void *tt_host_alloc(struct tt_device *d, size_t bytes);
void tt_host_free(struct tt_device *d, void *memory);
void tt_host_copy(struct tt_device *d, void *to, const void *from, size_t bytes);
TT_DEVICE_WORK(TT_DEVICE_FUNCTION, tt_host)

#define TT_HOST_WORK                                                                               \
	TT_DEVICE_WORK(TT_DEVICE_MEMBER, tt_host)                                                  \
	.alloc = tt_host_alloc, .free = tt_host_free, .put = tt_host_copy, .get = tt_host_copy,    \
	.copy = tt_host_copy

#endif
