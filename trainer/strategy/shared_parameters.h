/*
 * shared_parameters.h - parameters in memory that the workers of a host share, without locks
 *
 * Each element is a relaxed atomic: an update of one worker may replace that of another, and a read may
 * see half of an update (Niu et al. 2011, Hogwild). Called by strategy_a3c.c.
 */
#ifndef TRAIN_SHARED_PARAMETERS_H
#define TRAIN_SHARED_PARAMETERS_H

#include "trainer/rank/rank.h"

#include <stdatomic.h>

struct train_shared_memory {
	uint64_t token;        /* of this training */
	_Atomic uint64_t next; /* the next share of a batch, of all steps */
	atomic_bool stop;      /* a signal asked to end the training */
	_Atomic float value[]; /* parameters, then RMSProp's mean squares */
};

struct train_shared {
	struct train_shared_memory *memory;
	size_t bytes, count; /* count: parameters */
};

/* Maps rank 0's memory, filled with its parameters and optimizer state. Call by all workers. Returns 0 |
 * TRAIN_USAGE (another host) | TRAIN_FAILED; close it in any case. */
int train_shared_open(struct train_shared *s, struct train_rank *t);
void train_shared_close(struct train_shared *s);

/* parameters and, unless NULL, squares = the shared ones. */
void train_shared_read(const struct train_shared *s, float *parameters, float *squares);

/* A step of RMSProp by scale * gradient. */
void train_shared_descend(struct train_shared *s, const float *gradient, float scale, float rate);

/* Takes the next share, unless it is `end`. */
bool train_shared_take(struct train_shared *s, uint64_t end, uint64_t *ret_share);

#endif
