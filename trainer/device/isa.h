/* isa.h - which vectors this processor has, and one float in place of a vector, for gemm.c,
 * convolution.c and host_loops.c */
#ifndef TRAIN_ISA_H
#define TRAIN_ISA_H

#include <stdbool.h>

#ifdef __x86_64__
static inline bool has_avx512(void)
{
	return __builtin_cpu_supports("avx512f");
}
static inline bool has_avx2(void)
{
	return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}
#endif

static inline bool has_scalar(void)
{
	return true;
}

static inline float load_one(const float *at)
{
	return *at;
}
static inline void store_one(float *at, float value)
{
	*at = value;
}

#endif
