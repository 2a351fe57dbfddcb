/*
 * kernel_words.h - what kernels are written in: CUDA for nvcc, C for the tests' fake driver
 */
#ifndef TT_KERNEL_WORDS_H
#define TT_KERNEL_WORDS_H

#include "gpu/kernels.h"

#ifdef __CUDACC__
#include "gpu/kernels/kernel_nvcc.cuh"
#else
#include "gpu/kernels/kernel_host.h"
#endif

#endif
