/*
 * reduce_avx512.c - reduction kernels for AVX-512 (F, BW, DQ, VL: byte masks): x86 since 2017
 */
#ifdef __x86_64__
#include <immintrin.h>
#include <string.h>

#include "mem/reduce_types.h"

#if defined(__clang__)
#pragma clang fp contract(off)
#pragma clang attribute push(__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl"))), \
			     apply_to = function)
#else
#pragma GCC optimize("fp-contract=off")
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl")
#endif

#define W 64
#define HAVE_F16C
#define HAVE_BYTE_MASKS
#include "mem/reduce_vector.h"

INLINE u32v load_part(const unsigned char *p, size_t bytes)
{
	return (u32v)_mm512_maskz_loadu_epi8(~0ull >> (64 - bytes), p);
}

INLINE void store_part(unsigned char *p, u32v v, size_t bytes)
{
	_mm512_mask_storeu_epi8(p, ~0ull >> (64 - bytes), (__m512i)v);
}

INLINE struct acc half_widen(u32v raw)
{
	__m512i v = (__m512i)raw;

	return (struct acc){ .a = (u32v)_mm512_cvtph_ps(_mm512_castsi512_si256(v)),
			     .b = (u32v)_mm512_cvtph_ps(_mm512_extracti64x4_epi64(v, 1)) };
}

INLINE u32v half_narrow(struct acc x)
{
	__m256i low = _mm512_cvtps_ph((__m512)x.a, _MM_FROUND_TO_NEAREST_INT);
	__m256i high = _mm512_cvtps_ph((__m512)x.b, _MM_FROUND_TO_NEAREST_INT);

	return (u32v)_mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
}

#include "mem/reduce_kernels.h"

#ifdef __clang__
#pragma clang attribute pop
#endif

const struct tt_reduce_isa tt_reduce_avx512 = REDUCE_ISA("avx512");
#endif
