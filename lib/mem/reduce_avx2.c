/*
 * reduce_avx2.c - reduction kernels for AVX2 with F16C: every x86 server since 2013
 */
#ifdef __x86_64__
#include <immintrin.h>
#include <string.h>

#include "mem/reduce_types.h"

#if defined(__clang__)
#pragma clang fp contract(off)
#pragma clang attribute push(__attribute__((target("avx2,f16c"))), apply_to = function)
#else
#pragma GCC optimize("fp-contract=off")
#pragma GCC target("avx2,f16c")
#endif

#define W 32
#define HAVE_F16C
#include "mem/reduce_vector.h"

INLINE struct acc half_widen(u32v raw)
{
	__m256i v = (__m256i)raw;

	return (struct acc){ .a = (u32v)_mm256_cvtph_ps(_mm256_castsi256_si128(v)),
			     .b = (u32v)_mm256_cvtph_ps(_mm256_extracti128_si256(v, 1)) };
}

INLINE u32v half_narrow(struct acc x)
{
	__m128i low = _mm256_cvtps_ph((__m256)x.a, _MM_FROUND_TO_NEAREST_INT);
	__m128i high = _mm256_cvtps_ph((__m256)x.b, _MM_FROUND_TO_NEAREST_INT);

	return (u32v)_mm256_inserti128_si256(_mm256_castsi128_si256(low), high, 1);
}

#include "mem/reduce_kernels.h"

#ifdef __clang__
#pragma clang attribute pop
#endif

const struct tt_reduce_isa tt_reduce_avx2 = REDUCE_ISA("avx2");
#endif
