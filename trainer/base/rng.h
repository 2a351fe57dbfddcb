/*
 * rng.h - counter-based random numbers: a function of their use, without state
 *
 * Philox 4x32-10 (Salmon, Moraes, Dror, Shaw 2011, Parallel random numbers: as easy as 1, 2, 3). A
 * number is the same on every rank, in any order, for any number of ranks. Called by sampler.c,
 * data_synth.c, model.c, fault.c, rollout.c, cartpole.c, compress_powersgd.c.
 */
#ifndef TRAIN_RNG_H
#define TRAIN_RNG_H

#include <stdint.h>

/* The use of a number. New uses go to the end, so that the numbers of the others do not change. */
enum train_rng_use {
	TRAIN_RNG_WEIGHTS = 1,
	TRAIN_RNG_ORDER,
	TRAIN_RNG_SYNTH_CLASS,
	TRAIN_RNG_SYNTH_SAMPLE,
	TRAIN_RNG_JITTER,
	TRAIN_RNG_FACTORS,
	TRAIN_RNG_EPISODE,
	TRAIN_RNG_ACTION,
	TRAIN_RNG_TEST
};

/* Four 32-bit numbers of (seed, use, part, index); part is a tensor, an epoch, a class ... */
void train_rng(uint64_t seed, enum train_rng_use use, uint32_t part, uint64_t index,
	       uint32_t ret_four[4]);
/* The same of the parts `part`, `part` + 1 ...: ret_numbers[4 * parts]; four times as fast where the processor has AVX2 */
void train_rng_parts(uint64_t seed, enum train_rng_use use, uint32_t part, uint32_t parts,
		     uint64_t index, uint32_t *ret_numbers);

/* 0 <= number < bound; bound below 2^32. The bias, at most bound / 2^32, is accepted. */
static inline uint32_t train_rng_below(uint32_t random, uint32_t bound)
{
	return (uint64_t)random * bound >> 32;
}

/* -1 <= number < 1, exact in float */
static inline float train_rng_unit(uint32_t random)
{
	return (float)(random >> 8) * 0x1p-23f - 1.0f;
}

#endif
