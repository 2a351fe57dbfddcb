/*
 * replicas.h - are the parameters of all ranks the same, bit for bit?
 *
 * Called by train.c, by all ranks at the same steps.
 */
#ifndef TRAIN_REPLICAS_H
#define TRAIN_REPLICAS_H

#include "trainer/trainer.h"

/* A hash of `bytes` bytes (a multiple of 4), 64 bits. */
uint64_t train_hash(const void *data, size_t bytes);

/* *ret_hash is this rank's. Returns 0 | TRAIN_FAILED: the sentence names the step and the ranks
 * that differ from rank 0. The environment's TUTTI_TEST_FLIP=RANK@STEP changes one bit first: a
 * test of this test. */
int train_replicas_check(struct train_rank *t, uint64_t step, uint64_t *ret_hash);

#endif
