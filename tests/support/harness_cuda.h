/* harness_cuda.h - tests on the fake for the CUDA driver (tests/fakes/cuda/) */
#ifndef TESTS_HARNESS_CUDA_H
#define TESTS_HARNESS_CUDA_H

#include "gpu/cuda.h"

/* Loads the fake of this build (with TUTTI_TEST_GPU set: the driver of this host) into the
 * process and makes device 0 current in the calling thread. Call before any use of CUDA, in each
 * process (after fork) and each thread. NULL: the driver cannot be loaded; the reason is on
 * stderr. */
const struct tt_cuda *harness_cuda(void);

/* Copies between a device and pageable memory, which the driver does with three surprises that these
 * avoid: a copy to a device can return before the bytes are there; streams made with
 * TT_CU_STREAM_NON_BLOCKING do not wait for it; a copy from a device that waits for its stream blocks
 * the copies of all threads.
 * to_device: any later work sees the bytes. to_host: waits for the stream, then copies. Return 0 or
 * the driver's code. */
int harness_to_device(tt_cuptr to, const void *from, size_t bytes);
int harness_to_host(void *to, tt_cuptr from, size_t bytes, tt_custream stream);

#endif
