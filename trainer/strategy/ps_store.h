/*
 * ps_store.h - parameters and their optimizer in host memory, for whoever keeps them once for all
 *
 * Called by strategies whose workers have no optimizer, and by parameter servers. The same numbers
 * in the same order as tt_device_ops.descend, so the same bits.
 */
#ifndef TT_TRAINER_STORE_H
#define TT_TRAINER_STORE_H

#include <stdbool.h>
#include <stddef.h>

struct tt_store {
	size_t count;
	float *parameters;
	float *state;   /* velocity, or Adagrad's sums of squares */
	float momentum;
	bool adagrad;
};

/* All zeros. Returns 0 | TT_TRAIN_FAILED. */
int tt_store_open(struct tt_store *s, size_t count, float momentum, bool adagrad);
void tt_store_close(struct tt_store *s);

/* A step by scale * gradient; Adagrad divides each element by the root of its history. */
void tt_store_descend(struct tt_store *s, const float *gradient, float scale, float rate);

#endif
