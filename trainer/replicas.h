/*
 * replicas.h - check that the parameters of all ranks are equal, bit for bit
 *
 * Called by train.c, by all ranks at the same steps.
 */
#ifndef TRAIN_REPLICAS_H
#define TRAIN_REPLICAS_H

#include "trainer/rank/rank.h"

/* A 64-bit hash of `bytes` bytes, a multiple of 4. */
uint64_t train_hash(const void *data, size_t bytes);

/* Compares the hashes of all ranks; *ret_hash is this rank's. Returns 0 | TRAIN_FAILED: the
 * error names the step and the ranks that differ from rank 0. To test this check, the
 * environment variable TUTTI_TEST_FLIP=RANK@STEP flips one bit first. */
int train_replicas_check(struct train_rank *t, uint64_t step, uint64_t *ret_hash);

#endif
