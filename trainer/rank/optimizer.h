/*
 * optimizer.h - the optimizer of a rank: SGD with momentum, AdamW or RMSProp (--optimizer)
 *
 * The state of an optimizer is one or two arrays of the size of the parameters. Each parameter is
 * updated alone, so a rank may have any part of the arrays (strategy_zero.c). Called by gradient.c,
 * strategies and checkpoint.c; calls a device.
 *
 *	sgd    velocity = momentum velocity + g;  w -= rate velocity
 *	adamw  m = beta1 m + (1 - beta1) g;  v = beta2 v + (1 - beta2) g^2;
 *	       w -= rate (m / (1 - beta1^step) / (sqrt(v / (1 - beta2^step)) + 1e-8) + decay w)
 *	rmsprop  v = 0.99 v + 0.01 g^2;  w -= rate g / sqrt(v + 1e-5)		(device/rmsprop.h)
 *
 * Source: Loshchilov and Hutter 2019, Decoupled weight decay regularization.
 */
#ifndef TRAIN_RANK_OPTIMIZER_H
#define TRAIN_RANK_OPTIMIZER_H

#include "trainer/rank/rank.h"

/* The arrays of state: 1 or 2. */
size_t train_optimizer_arrays(const struct train_config *c);

/* Some parameters, and what belongs to them; all in memory of `on`. */
struct train_update {
	struct train_device *on;
	size_t count;
	float scale;           /* of the gradients */
	const float *gradient; /* [count] */
	float *state;          /* [count] of the first array */
	size_t stride;         /* from one array of state to the next */
	float *weight;         /* [count] */
};

/* The update of t->step. */
void train_optimizer_update(const struct train_rank *t, const struct train_update *u);

#endif
