/*
 * shard.h - the samples that a rank needs, of sets that are not loaded as a whole (--shard-data)
 *
 * An epoch is a new permutation of the training set, so a rank needs other samples in each. It reads
 * those of its rows at the begin of an epoch, in the order of the steps, and its part of the test set
 * once. Called by train.c and gradient.c.
 */
#ifndef TRAIN_SHARD_H
#define TRAIN_SHARD_H

#include "trainer/data/data.h"
#include "trainer/data/sampler.h"

/* Samples of a set: first .. last - 1 of each batch of an epoch, or of the test set. */
struct train_shard_part {
	struct train_set set;
	uint64_t epoch;
	size_t first, last; /* equal: nothing was read yet */
};

struct train_shard {
	struct train_shard_part train, test;
	uint32_t *numbers; /* 0, 1, 2 ...: indices in the set of train */
};

/* The samples of global step `step`, rows first .. last - 1 of its batch, as indices in s->train.set.
 * Reads the epoch unless it is there. Returns 0 | TRAIN_FAILED | TRAIN_USAGE (a file has changed). */
int train_shard_rows(struct train_shard *s, const struct train_data *data,
		     struct train_sampler *sampler, uint64_t step, size_t first, size_t last,
		     const uint32_t **ret_samples);

/* s->test.set = a part of the test set. Returns as above. */
int train_shard_test(struct train_shard *s, const struct train_data *data,
		     struct train_share share);

/* Bytes of images and labels. */
size_t train_shard_bytes(const struct train_shard *s, const struct train_data *data);
void train_shard_close(struct train_shard *s);

#endif
