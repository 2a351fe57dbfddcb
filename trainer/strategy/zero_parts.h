/*
 * zero_parts.h - the parts of layers that a rank has under --zero 2 or 3; the report of all --zero
 *
 * Each layer is cut into equal parts, one for each rank; a rank's arrays have its parts of all layers,
 * one after the other. Called by strategy_zero_layers.c and strategy_zero.c; calls the library.
 */
#ifndef TRAIN_ZERO_PARTS_H
#define TRAIN_ZERO_PARTS_H

#include "trainer/strategy/gradient_sum.h"

/* A layer's parameters, in equal parts for all ranks. */
struct zero_layer {
	size_t at, count; /* in the model's array */
	size_t part;      /* floats of a part, the last padded */
	size_t own;       /* offset of this rank's part in its arrays */
};

struct zero_layers {
	struct zero_layer *layer;
	size_t floats, arrays; /* of this rank's parts; arrays of the optimizer's state */
	float *state;          /* [arrays][floats] */
	float *weights;        /* 3: [floats] */
	float *gathered;       /* 3: the parameters of a layer, padded */
	size_t largest;        /* floats of gathered */
	struct train_partials partials;
	float *saved; /* rank 0 before a checkpoint: the state, [arrays][parameters] */
};

/* --zero 3: the parameters too. */
static inline bool train_zero_cuts_parameters(const struct train_rank *t)
{
	return t->config->zero == 3;
}

/* Why --zero 1, 2 and 3 cannot shrink */
#define TRAIN_ZERO_NO_SHRINK                                                                        \
	"with --zero a dead rank takes its part of the optimizer state with it; use --save-every, " \
	"or omit --zero"

/* Prints the members of the report that --zero 1, 2 and 3 have: the floats that the rank keeps. */
void train_zero_report(const struct train_rank *t, size_t parameters, size_t gradients,
		       size_t optimizer);

/* The floats of a layer that this rank has, without padding. */
size_t train_zero_own_floats(const struct train_rank *t, const struct zero_layer *l);

/* Fills the members of t->strategy_state. Returns 0 | TRAIN_FAILED; close it in any case. */
int train_zero_parts_open(struct train_rank *t);
void train_zero_parts_close(struct train_rank *t);

/* Every rank's parts <-> an array of the model's size on rank 0. Call by all workers. Returns 0 |
 * TRAIN_FAILED. */
int train_zero_exchange(struct train_rank *t, float *parts, float *whole, bool scatter);

/* gathered = the parameters of a layer; t->parameters = those of all layers; saved = the optimizer's
 * state, on rank 0. Call by all workers. Return 0 | TRAIN_FAILED. */
int train_zero_gather_layer(struct train_rank *t, size_t layer);
int train_zero_gather_parameters(struct train_rank *t);
int train_zero_gather_state(struct train_rank *t);

/* The rank keeps its parts of the parameters alone. */
void train_zero_drop_parameters(struct train_rank *t);

#endif
