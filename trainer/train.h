/*
 * train.h - the training loop, from the first step to the last
 *
 * Called by job.c; calls the strategy, the sampler, replicas.c, checkpoint.c and metrics.c. The way of one step, where a
 * strategy sums gradients:
 *
 *	find_samples            the rows of the batch that this rank computes       data/sampler.c
 *	strategy->step          one file for each strategy                          strategy/strategy_NAME.c
 *	    train_gradient      forward, loss and backward of all layers            rank/gradient.c, model/model.c
 *	                        of a stage: by its list of the schedule             rank/pipeline_run.c, schedules/
 *	    train_sum_gradients or buckets, as soon as they are final               strategy/gradient_sum.c, bucket_sums.c
 *	    train_descend       the optimizer                                       rank/optimizer.c
 *	train_read_tail         the loss, summed with the gradients                 rank/gradient.c
 *	between_steps           what is due: check, evaluation, checkpoint, metrics
 *	recover                 after a death: the survivors go on                  strategy/survive.c
 */
#ifndef TRAIN_H
#define TRAIN_H

#include "trainer/rank/rank.h"

#include <signal.h>

/* The number of the signal that asked the training to stop, or 0. Set by main's handler; the next
 * gradients carry the request to the other ranks. */
extern volatile sig_atomic_t train_stop_signal;

struct train_result {
	uint64_t steps;        /* steps done, including those before a resumed checkpoint */
	bool stopped;          /* ended early, because a rank received a stop signal */
	bool ended;            /* after its last step: an error is one of a file */
	double accuracy, loss; /* on the test set */
	double samples_per_s;  /* of all ranks */
	double step_ms;
	double exposed_share; /* exposed communication, as a share of the training time */
	uint64_t sent_bytes;  /* sent by this rank in steps */
	uint64_t read_bytes;  /* read from other ranks' memory in steps */
	uint64_t sent_before, read_before; /* the library's counters at the last reading */
	uint64_t hash;                     /* hash of the parameters, the same on all ranks */
};

/* Returns 0 | TRAIN_USAGE | TRAIN_FAILED. */
int train_run(struct train_rank *t, struct train_result *ret_result);

#endif
