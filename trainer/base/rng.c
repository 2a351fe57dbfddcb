/* rng.c - Philox 4x32-10 (rng.h) */
#include "trainer/base/rng.h"

#include <stddef.h>
#ifdef __x86_64__
#include <immintrin.h>
#endif

void train_rng(uint64_t seed, enum train_rng_use use, uint32_t part, uint64_t index,
	       uint32_t ret_four[4])
{
	uint32_t c0 = (uint32_t)index, c1 = (uint32_t)(index >> 32), c2 = part, c3 = use;
	uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);

	for (int round = 0; round < 10; round++) {
		uint64_t p0 = (uint64_t)c0 * 0xD2511F53u, p1 = (uint64_t)c2 * 0xCD9E8D57u;

		c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
		c1 = (uint32_t)p1;
		c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
		c3 = (uint32_t)p0;
		k0 += 0x9E3779B9u;
		k1 += 0xBB67AE85u;
	}
	ret_four[0] = c0;
	ret_four[1] = c1;
	ret_four[2] = c2;
	ret_four[3] = c3;
}

#ifdef __x86_64__
/* Four parts at once. A lane of 64 bits has a word of 32 in its lower half; nothing reads the upper one. */
__attribute__((target("avx2"))) static void four_parts(uint64_t seed, enum train_rng_use use,
						       uint32_t part, uint64_t index,
						       uint32_t ret_numbers[16])
{
	const __m256i low = _mm256_set1_epi64x(UINT32_MAX);
	const __m256i m0 = _mm256_set1_epi64x(0xD2511F53), m1 = _mm256_set1_epi64x(0xCD9E8D57);
	__m256i c0 = _mm256_set1_epi64x((int64_t)index), c1 = _mm256_srli_epi64(c0, 32);
	__m256i c2 = _mm256_add_epi32(_mm256_set1_epi64x(part), _mm256_set_epi64x(3, 2, 1, 0));
	__m256i c3 = _mm256_set1_epi64x(use), even, odd;
	uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);

	for (int round = 0; round < 10; round++) {
		__m256i p0 = _mm256_mul_epu32(c0, m0), p1 = _mm256_mul_epu32(c2, m1);

		c0 = _mm256_xor_si256(_mm256_xor_si256(_mm256_srli_epi64(p1, 32), c1),
				      _mm256_set1_epi64x(k0));
		c1 = p1;
		c2 = _mm256_xor_si256(_mm256_xor_si256(_mm256_srli_epi64(p0, 32), c3),
				      _mm256_set1_epi64x(k1));
		c3 = p0;
		k0 += 0x9E3779B9u;
		k1 += 0xBB67AE85u;
	}
	c0 = _mm256_or_si256(_mm256_and_si256(c0, low), _mm256_slli_epi64(c1, 32));
	c2 = _mm256_or_si256(_mm256_and_si256(c2, low), _mm256_slli_epi64(c3, 32));
	even = _mm256_unpacklo_epi64(c0, c2); /* parts 0 and 2 */
	odd = _mm256_unpackhi_epi64(c0, c2);
	_mm256_storeu_si256((__m256i *)ret_numbers, _mm256_permute2x128_si256(even, odd, 0x20));
	_mm256_storeu_si256((__m256i *)(ret_numbers + 8),
			    _mm256_permute2x128_si256(even, odd, 0x31));
}

__attribute__((target("avx2"))) static uint32_t by_four(uint64_t seed, enum train_rng_use use,
							uint32_t part, uint32_t parts,
							uint64_t index, uint32_t *ret_numbers)
{
	uint32_t i = 0;

	for (; i + 4 <= parts; i += 4)
		four_parts(seed, use, part + i, index, ret_numbers + 4 * (size_t)i);
	return i;
}
#endif

void train_rng_parts(uint64_t seed, enum train_rng_use use, uint32_t part, uint32_t parts,
		     uint64_t index, uint32_t *ret_numbers)
{
	uint32_t i = 0;

#ifdef __x86_64__
	if (__builtin_cpu_supports("avx2"))
		i = by_four(seed, use, part, parts, index, ret_numbers);
#endif
	for (; i < parts; i++)
		train_rng(seed, use, part + i, index, ret_numbers + 4 * (size_t)i);
}
