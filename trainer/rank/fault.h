/*
 * fault.h - fault injection: stragglers and deaths by --sim-compute-ms, --jitter, --slow, --kill
 *
 * Every fault is a function of the options, the rank and the step, so a run can be repeated.
 * Called by gradient.c, train.c and ps_server.c; job.c and trainer.c check the options.
 */
#ifndef TRAIN_FAULT_H
#define TRAIN_FAULT_H

#include "trainer/rank/rank.h"

/* Checks the syntax of --slow and --kill. Returns 0 | TRAIN_USAGE. */
int train_fault_check(const struct train_config *config);
/* Checks that the ranks of --slow and --kill exist. Returns 0 | TRAIN_USAGE. */
int train_fault_check_ranks(const struct train_rank *t);
/* Checks that the steps of --kill exist. Call once the number of steps is known. Returns 0 |
 * TRAIN_USAGE. */
int train_fault_check_steps(const struct train_rank *t);

/* A gradient begins at begin_ns: sets its simulated time t->pace_ns. */
void train_fault_begin(struct train_rank *t, uint64_t begin_ns);

/* Sleeps until the simulated time at which the gradients from `from` on are final; from =
 * parameters + TRAIN_TAIL: until the end of the forward pass. */
void train_fault_delay(struct train_rank *t, size_t from);

/* Sleeps until that time, unless it has passed. */
void train_fault_sleep(struct train_rank *t, uint64_t until_ns);

/* Kill this process if --kill names its step, the evaluation after a step, or the time before metrics.c writes the step.
 * A server's steps are its updates. */
void train_fault_kill(const struct train_rank *t);
void train_fault_kill_in_evaluation(const struct train_rank *t, uint64_t step);
void train_fault_kill_before_record(const struct train_rank *t, uint64_t step);

#endif
