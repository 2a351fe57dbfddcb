/*
 * average_state.h - the state of a rank of local SGD beyond parameters and velocity
 *
 * An evaluation and a checkpoint see the averaged parameters, and then every rank continues with
 * its own: train_average_keep copies all that an average changes, train_average_put_back restores
 * the copy. Called by strategy_average.c.
 */
#ifndef TRAIN_AVERAGE_STATE_H
#define TRAIN_AVERAGE_STATE_H

#include "trainer/rank/rank.h"

enum { TRAIN_AVERAGE_ARRAYS = 3 }; /* parameters, center, extra */

struct train_average_state {
	bool apart;        /* a step since the last average */
	bool soon;         /* average after the next step */
	uint64_t averages; /* averages so far */
	/* memory of comm_device: */
	float *saved;  /* this rank's parameters before the current average */
	float *center; /* easgd: the center; diloco: parameters at the start of the round */
	float *extra;  /* easgd: d; diloco: outer velocity; supervisor on rank 0: all parameters */
	/* copies by train_average_keep */
	float *own[TRAIN_AVERAGE_ARRAYS];
	bool own_apart, own_soon;
	uint64_t own_averages;
};

/* Returns 0 | TRAIN_FAILED (no memory). Close after a failure too. */
int train_average_open(struct train_rank *t, struct train_average_state *a);
void train_average_close(struct train_rank *t, struct train_average_state *a);

void train_average_keep(struct train_rank *t, struct train_average_state *a);
void train_average_put_back(struct train_rank *t, struct train_average_state *a);

/* Implement train_strategy_ops.own_arrays, .own_state and .own_restore. */
size_t train_average_own_arrays(const struct train_rank *t);
void train_average_own_state(struct train_rank *t, struct train_average_state *a, float *host);
void train_average_own_restore(struct train_rank *t, struct train_average_state *a,
			       const float *host);

#endif
