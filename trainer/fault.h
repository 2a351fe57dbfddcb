/*
 * fault.h - stragglers and deaths on purpose: --sim-compute-ms, --jitter, --slow, --kill
 *
 * All of it is a function of the options, the rank and the step, so that a run can be repeated.
 * Called by gradient.c, train.c and ps_server.c; train_main.c has the texts checked.
 */
#ifndef TT_TRAINER_FAULT_H
#define TT_TRAINER_FAULT_H

#include "trainer/trainer.h"

/* Are --slow and --kill well-formed? Are the ranks there? Returns 0 | TT_TRAIN_USAGE. */
int tt_fault_check(const struct tt_config *config);
int tt_fault_check_ranks(const struct tt_trainer *t);
/* Once it is known where the training ends. */
int tt_fault_check_steps(const struct tt_trainer *t);

/* A gradient was begun: how long the options want it to take. */
void tt_fault_pace(struct tt_trainer *t, uint64_t begin_ns);

/* Sleeps so long that gradients from here on are not final sooner than they would be at that pace;
 * t->floats: the forward pass has ended. */
void tt_fault_linger(struct tt_trainer *t, size_t from);

/* Kills this process if this is its step; a server's steps are its updates. */
void tt_fault_kill(const struct tt_trainer *t);

#endif
