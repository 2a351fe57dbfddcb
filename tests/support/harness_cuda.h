/* harness_cuda.h - tests on the fake for the CUDA driver (tests/fakes/cuda/) */
#ifndef TESTS_HARNESS_CUDA_H
#define TESTS_HARNESS_CUDA_H

#include "gpu/cuda.h"

/* Loads the fake of this build (with TUTTI_TEST_GPU set: the driver of this host) into the
 * process and makes device 0 current in the calling thread. Call before any use of CUDA, in each
 * process (after fork) and each thread. NULL: the driver cannot be loaded; the reason is on
 * stderr. */
const struct tt_cuda *harness_cuda(void);

#endif
