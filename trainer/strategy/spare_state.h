/*
 * spare_state.h - a copy of another rank's parameters and velocity, for a rank that missed results
 *
 * A thread of each rank answers requests, so requests do not wait for its steps. Any rank may be the
 * slowest one, rank 0 too. Called by strategy_spare.c.
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

/* Starts the thread. Returns 0 | TRAIN_FAILED. */
int train_spare_state_open(struct train_spare_state *s, struct train_rank *t);
void train_spare_state_close(struct train_spare_state *s);

/* Guard each change of the parameters and version. */
void train_spare_state_lock(struct train_spare_state *s);
void train_spare_state_unlock(struct train_spare_state *s);

/* Requests the state of one rank after the other until one includes result `least`; *ret_version is
 * its version. Returns 0 | TRAIN_FAILED. */
int train_spare_state_fetch(struct train_spare_state *s, struct train_rank *t, uint64_t least,
			    uint64_t *ret_version);

#endif
