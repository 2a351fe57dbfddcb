/* harness_cuda.h - tests on the fake for the CUDA driver (tests/fakes/cuda/) */
#ifndef TESTS_HARNESS_CUDA_H
#define TESTS_HARNESS_CUDA_H

#include "gpu/cuda.h"

/* Loads the fake of this build (with TUTTI_TEST_GPU set: the driver of this host) into the
 * process, before anything of CUDA is used, and makes device 0 current in the calling thread. To be
 * called in each process (after fork) and each thread. NULL: it cannot be loaded. */
const struct tt_cuda *harness_cuda(void);

#endif
