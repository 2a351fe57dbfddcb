/* random_floats.h - reproducible random numbers in [-1, 1); for suites of the trainer */
#ifndef TESTS_RANDOM_FLOATS_H
#define TESTS_RANDOM_FLOATS_H

#include <criterion/criterion.h>
#include <stdlib.h>

#include "trainer/base/rng.h"

static inline float random_float(uint32_t part, uint64_t index)
{
	uint32_t random[4];

	train_rng(99, TRAIN_RNG_WEIGHTS, part, index, random);
	return train_rng_unit(random[0]);
}

static inline float *random_floats(size_t count, uint32_t part)
{
	float *all = malloc((count ? count : 1) * sizeof(*all));

	cr_assert_not_null(all);
	for (size_t i = 0; i < count; i++)
		all[i] = random_float(part, i);
	return all;
}

#endif
