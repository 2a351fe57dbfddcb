/* rng.c - Philox 4x32-10 (rng.h) */
#include "trainer/base/rng.h"

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
