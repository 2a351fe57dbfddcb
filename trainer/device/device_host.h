/*
 * device_host.h - operations of devices that compute in host memory: all but the matrix product
 *
 * Members of struct train_device_ops for device_cpu.c and device_cpu_blas.c (TRAIN_HOST_OPS),
 * called by device_sim.c. Every sum has one fixed order (rows and classes from 0 upwards), and
 * exp and log are our own, so the bits depend on the operands alone.
 */
#ifndef TRAIN_DEVICE_HOST_H
#define TRAIN_DEVICE_HOST_H

#include "trainer/device/device.h"

void *train_host_alloc(struct train_device *d, size_t bytes);
void train_host_free(struct train_device *d, void *memory);
void train_host_copy(struct train_device *d, void *to, const void *from, size_t bytes);
TRAIN_DEVICE_COMPUTE(TRAIN_DEVICE_FUNCTION, train_host)
TRAIN_DEVICE_SEQUENCE(TRAIN_DEVICE_FUNCTION, train_host)
TRAIN_DEVICE_CONVOLUTION(TRAIN_DEVICE_FUNCTION, train_host)
TRAIN_DEVICE_FUNCTION(train_host, adam)
TRAIN_DEVICE_FUNCTION(train_host, rmsprop)

#define TRAIN_HOST_OPS                                                                   \
	TRAIN_DEVICE_COMPUTE(TRAIN_DEVICE_MEMBER, train_host)                            \
	TRAIN_DEVICE_SEQUENCE(TRAIN_DEVICE_MEMBER, train_host)                           \
	TRAIN_DEVICE_CONVOLUTION(TRAIN_DEVICE_MEMBER, train_host)                        \
	TRAIN_DEVICE_MEMBER(train_host, adam)                                            \
	TRAIN_DEVICE_MEMBER(train_host, rmsprop).alloc = train_host_alloc,               \
					.free = train_host_free, .put = train_host_copy, \
					.get = train_host_copy, .copy = train_host_copy

#endif
