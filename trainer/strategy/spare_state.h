/*
 * spare_state.h - a copy of rank 0's parameters and velocity, for a rank that missed results
 *
 * A thread of rank 0 answers requests, so requests do not wait for rank 0's steps. Called by
 * strategy_spare.c.
 */
#ifndef TRAIN_SPARE_STATE_H
#define TRAIN_SPARE_STATE_H

#include "trainer/rank/rank.h"

#include <pthread.h>
#include <stdatomic.h>

struct train_spare_state {
	struct train_rank *t;
	pthread_t thread;
	pthread_mutex_t lock;
	bool running; /* the thread exists */
	atomic_bool stop;
	uint64_t version; /* results that the parameters include; under lock */
	uint64_t copies;  /* requests answered; under lock */
	float *copy;      /* parameters, velocity */
};

/* Starts the thread on rank 0. Returns 0 | TRAIN_FAILED. */
int train_spare_state_open(struct train_spare_state *s, struct train_rank *t);
void train_spare_state_close(struct train_spare_state *s);

/* Guard each change of rank 0's parameters and version; no-ops on other ranks. */
void train_spare_state_lock(struct train_spare_state *s);
void train_spare_state_unlock(struct train_spare_state *s);

/* On another rank: requests the state until it includes result `least`; *ret_version is its
 * version. Returns 0 | TRAIN_FAILED. */
int train_spare_state_fetch(struct train_spare_state *s, struct train_rank *t, uint64_t least,
			    uint64_t *ret_version);

#endif
