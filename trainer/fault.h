/*
 * fault.h - stragglers and deaths on purpose: --sim-compute-ms, --jitter, --slow, --kill
 *
 * All of it is a function of the options, the rank and the step, so that a run can be repeated.
 * Called by gradient.c and train.c; main.c has the texts checked.
 */
#ifndef TT_TRAINER_FAULT_H
#define TT_TRAINER_FAULT_H

#include "trainer.h"

/* Are --slow and --kill well-formed? Returns 0 | TT_TRAIN_USAGE. */
int tt_fault_check(const struct tt_config *config);

/* Before the backward pass: sleeps so long that the gradient begun at begin_ns takes as long as the
 * options want. */
void tt_fault_linger(const struct tt_trainer *t, uint64_t begin_ns);

/* Kills this process if this is its step. */
void tt_fault_kill(const struct tt_trainer *t);

#endif
