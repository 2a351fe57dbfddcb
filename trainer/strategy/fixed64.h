/*
 * fixed64.h - gradients in whole numbers: sums that no order can change
 *
 * All workers agree on one exponent for each tensor, from the greatest element of any leaf; each
 * leaf is then a multiple of one small power of two, in 64 bits, and the sum of all leaves cannot
 * overflow. Integers add up to the same in any order, so any algorithm and any transport give the
 * same bits, and closer ones than floats do. Called by gradient_sum.c.
 */
#ifndef TRAIN_FIXED64_H
#define TRAIN_FIXED64_H

#include "trainer/trainer.h"

/* t->whole = the sum of this worker's leaves. Called by all workers. Returns 0 |
 * TRAIN_FAILED. */
int train_fixed64_make(struct train_rank *t);

/* wire's floats from..from+count-1 = these sums. What was not finite becomes NaN. */
void train_fixed64_floats(const struct train_rank *t, const int64_t *sums, size_t from, size_t count);

#endif
