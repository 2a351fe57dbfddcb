/* sampler.c - assignment of samples to steps (sampler.h) */
#include "trainer/data/sampler.h"

#include "trainer/base/fail.h"
#include "trainer/base/rng.h"

#include <stdlib.h>

struct train_share train_share_of(size_t total, int rank, int nranks)
{
	size_t first = total * (size_t)rank / (size_t)nranks;

	return (struct train_share){ first, total * ((size_t)rank + 1) / (size_t)nranks - first };
}

/* Fisher-Yates shuffle; the swap at i uses random number i of the epoch */
static void shuffle(struct train_sampler *s, uint64_t epoch)
{
	uint32_t random[4];

	for (size_t i = 0; i < s->samples; i++)
		s->order[i] = (uint32_t)i;
	for (size_t i = s->samples; i > 1; i--) {
		uint32_t other, swapped = s->order[i - 1];

		train_rng(s->seed, TRAIN_RNG_ORDER, (uint32_t)epoch, i, random);
		other = train_rng_below(random[0], (uint32_t)i);
		s->order[i - 1] = s->order[other];
		s->order[other] = swapped;
	}
	s->epoch = epoch;
}

int train_sampler_open(struct train_sampler *s, uint64_t seed, size_t samples, size_t batch)
{
	uint32_t *order = malloc(samples * sizeof(*order));

	if (!order)
		return train_fail(TRAIN_FAILED, "no memory for the order of %zu samples", samples);
	*s = (struct train_sampler){
		.seed = seed, .samples = samples, .batch = batch, .order = order
	};
	shuffle(s, 0);
	return TRAIN_OK;
}

void train_sampler_close(struct train_sampler *s)
{
	free(s->order);
	s->order = NULL;
}

const uint32_t *train_sampler_rows(struct train_sampler *s, uint64_t step, size_t first)
{
	uint64_t epoch = step / train_sampler_steps(s);
	size_t at = (size_t)(step % train_sampler_steps(s)) * s->batch;

	if (epoch != s->epoch)
		shuffle(s, epoch);
	return s->order + at + first;
}
