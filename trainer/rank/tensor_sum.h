/*
 * tensor_sum.h - sums over the ranks of a tensor group, in one order for any number of ranks
 *
 * Called by trainer.c, which opens it, and through struct train_tensor_axis by layers; calls the
 * library.
 */
#ifndef TRAIN_TENSOR_SUM_H
#define TRAIN_TENSOR_SUM_H

#include "trainer/rank/rank.h"

/* The sum of struct train_tensor_axis; arg is the struct train_rank. */
int train_tensor_sum(void *arg, float *data, size_t count);
void train_tensor_sum_close(struct train_rank *t);

/* *stop: whether any rank of the group was asked to stop. Returns 0 | TRAIN_FAILED. */
int train_tensor_agree(struct train_rank *t, bool *stop);

#endif
