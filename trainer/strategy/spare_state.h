/*
 * spare_state.h - rank 0's parameters and velocity, for a rank that is too late for results
 *
 * A thread of rank 0 answers, so that nobody waits for rank 0's steps. Called by strategy_spare.c.
 */
#ifndef TT_TRAINER_SPARE_STATE_H
#define TT_TRAINER_SPARE_STATE_H

#include "trainer/trainer.h"

#include <pthread.h>
#include <stdatomic.h>

struct tt_spare_state {
	struct tt_trainer *t;
	pthread_t thread;
	pthread_mutex_t lock;
	bool runs;
	atomic_bool ends;
	uint64_t version; /* results that the parameters have seen; under lock */
	uint64_t given;   /* how often it was asked for */
	float *copy;      /* parameters, velocity */
};

/* Rank 0 starts to answer. Returns 0 | TT_TRAIN_FAILED. */
int tt_spare_state_open(struct tt_spare_state *s, struct tt_trainer *t);
void tt_spare_state_close(struct tt_spare_state *s);

/* Around each change of rank 0's parameters and version; on other ranks nothing. */
void tt_spare_state_lock(struct tt_spare_state *s);
void tt_spare_state_unlock(struct tt_spare_state *s);

/* Another rank: asks until the state has seen result `least`; *ret_version: which it has seen. */
int tt_spare_state_fetch(struct tt_spare_state *s, struct tt_trainer *t, uint64_t least,
			 uint64_t *ret_version);

#endif
