/*
 * sampler.h - assignment of samples to steps, independent of the number of ranks
 *
 * An epoch is a permutation of the training set that depends on (seed, epoch) alone. It is cut
 * into global batches; the samples after the last full batch are not used in that epoch.
 * leaves.h assigns the rows of a batch to ranks: the shares are consecutive and may be empty.
 * Called by train.c.
 */
#ifndef TRAIN_SAMPLER_H
#define TRAIN_SAMPLER_H

#include <stddef.h>
#include <stdint.h>

struct train_sampler {
	uint64_t seed;
	size_t samples, batch; /* of the set; of a global batch */
	uint32_t *order;       /* the permutation of `epoch` */
	uint64_t epoch;
};

/* Part `rank` of `total` items divided among nranks. */
struct train_share {
	size_t first, count;
};
struct train_share train_share_of(size_t total, int rank, int nranks);

/* batch: 1..samples, samples below 2^32. Returns 0 | TRAIN_FAILED (no memory). Close with
 * train_sampler_close. */
int train_sampler_open(struct train_sampler *s, uint64_t seed, size_t samples, size_t batch);
void train_sampler_close(struct train_sampler *s);

/* Steps of an epoch. */
static inline size_t train_sampler_steps(const struct train_sampler *s)
{
	return s->samples / s->batch;
}

/* The samples of global step `step` (counted from 0 through all epochs), from row `first` of its
 * batch on. Valid until the next call. */
const uint32_t *train_sampler_rows(struct train_sampler *s, uint64_t step, size_t first);

#endif
