/*
 * fixed64.h - gradients as 64-bit fixed-point integers: sums that are independent of their order
 *
 * All workers agree on one exponent for each tensor, from the greatest element of all leaves. Each
 * leaf is then converted to multiples of one small power of two, in 64 bits, and the sum of all
 * leaves cannot overflow. Integer addition is associative, so every algorithm and every transport
 * give the same bits, with a smaller error than floats. Called by gradient_sum.c.
 */
#ifndef TRAIN_FIXED64_H
#define TRAIN_FIXED64_H

#include "trainer/rank/rank.h"

/* t->fixed_sum = the sum of this worker's leaves. Call by all workers. Returns 0 | TRAIN_FAILED. */
int train_fixed64_make(struct train_rank *t);

/* comm_buffer's floats from..from+count-1 = sums as floats. Elements that were not finite become
 * NaN. */
void train_fixed64_floats(const struct train_rank *t, const int64_t *sums, size_t from,
			  size_t count);

#endif
