/*
 * ps_store.h - parameters and their optimizer in host memory, one copy for all workers
 *
 * Called by strategies whose workers have no optimizer, and by parameter servers. Computes the same
 * expression in the same order as train_device_ops.descend, so the bits are equal.
 */
#ifndef TRAIN_PS_STORE_H
#define TRAIN_PS_STORE_H

#include <stdbool.h>
#include <stddef.h>

struct train_ps_store {
	size_t count;
	float *parameters;
	float *state; /* velocity, or Adagrad's sums of squares */
	float momentum;
	bool adagrad;
};

/* Starts with zeros. Returns 0 | TRAIN_FAILED. */
int train_ps_store_open(struct train_ps_store *s, size_t count, float momentum, bool adagrad);
void train_ps_store_close(struct train_ps_store *s);

/* One step of the elements from `at` on, by scale * gradient[count]; Adagrad divides each element by the root
 * of its sum of squares. */
void train_ps_store_descend(struct train_ps_store *s, size_t at, size_t count,
			    const float *gradient, float scale, float rate);

#endif
