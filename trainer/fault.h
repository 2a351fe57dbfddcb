/*
 * fault.h - stragglers and deaths on purpose: --sim-compute-ms, --jitter, --slow, --kill
 *
 * All of it is a function of the options, the rank and the step, so that a run can be repeated.
 * Called by gradient.c, train.c and ps_server.c; train_main.c has the texts checked.
 */
#ifndef TRAIN_FAULT_H
#define TRAIN_FAULT_H

#include "trainer/trainer.h"

/* Are --slow and --kill well-formed? Are the ranks there? Returns 0 | TRAIN_USAGE. */
int train_fault_check(const struct train_config *config);
int train_fault_check_ranks(const struct train_rank *t);
/* Once it is known where the training ends. */
int train_fault_check_steps(const struct train_rank *t);

/* A gradient was begun: how long the options want it to take. */
void train_fault_pace(struct train_rank *t, uint64_t begin_ns);

/* Sleeps so long that gradients from here on are not final sooner than they would be at that pace;
 * t->floats: the forward pass has ended. */
void train_fault_linger(struct train_rank *t, size_t from);

/* Kills this process if this is its step; a server's steps are its updates. */
void train_fault_kill(const struct train_rank *t);

#endif
