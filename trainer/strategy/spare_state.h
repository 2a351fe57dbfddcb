/*
 * spare_state.h - rank 0's parameters and velocity, for a rank that is too late for results
 *
 * A thread of rank 0 answers, so that nobody waits for rank 0's steps. Called by strategy_spare.c.
 */
#ifndef TRAIN_SPARE_STATE_H
#define TRAIN_SPARE_STATE_H

#include "trainer/trainer.h"

#include <pthread.h>
#include <stdatomic.h>

struct train_spare_state {
	struct train_rank *t;
	pthread_t thread;
	pthread_mutex_t lock;
	bool runs;
	atomic_bool ends;
	uint64_t version; /* results that the parameters have seen; under lock */
	uint64_t given;   /* how often it was asked for */
	float *copy;      /* parameters, velocity */
};

/* Rank 0 starts to answer. Returns 0 | TRAIN_FAILED. */
int train_spare_state_open(struct train_spare_state *s, struct train_rank *t);
void train_spare_state_close(struct train_spare_state *s);

/* Around each change of rank 0's parameters and version; on other ranks nothing. */
void train_spare_state_lock(struct train_spare_state *s);
void train_spare_state_unlock(struct train_spare_state *s);

/* Another rank: asks until the state has seen result `least`; *ret_version: which it has seen. */
int train_spare_state_fetch(struct train_spare_state *s, struct train_rank *t, uint64_t least,
			 uint64_t *ret_version);

#endif
