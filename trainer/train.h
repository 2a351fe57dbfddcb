/*
 * train.h - the training from its first step to its last
 *
 * Called by train_main.c; calls the strategy, the sampler, replicas.c, checkpoint.c and metrics.c.
 */
#ifndef TRAIN_H
#define TRAIN_H

#include "trainer/trainer.h"

#include <signal.h>

/* A signal's number once the user has asked to stop: set by main's handler, told to the other ranks
 * with the next gradients. */
extern volatile sig_atomic_t train_stop_signal;

struct train_result {
	uint64_t steps;        /* done, with those before a resumed checkpoint */
	bool stopped;          /* before the end, because a rank was asked to */
	double accuracy, loss; /* on the test set */
	double samples_per_s;  /* of all ranks */
	double step_ms;
	double exposed_share;  /* of the time of training: waiting for communication only */
	uint64_t sent_bytes;   /* by this rank, in steps */
	uint64_t read_bytes;   /* from other ranks' memory, in steps */
	uint64_t sent_before, read_before; /* the counters when they were looked at last */
	uint64_t hash;         /* of the parameters, the same on all ranks */
};

/* Returns 0 | TRAIN_USAGE | TRAIN_FAILED. */
int train_run(struct train_rank *t, struct train_result *ret_result);

#endif
