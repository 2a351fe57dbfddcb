/* due_steps.h - the number of steps of a training, and the steps of evaluations and checkpoints.
 * Called by train.c, fault.c, arrival_order.c and the parameter servers. */
#ifndef TRAIN_DUE_STEPS_H
#define TRAIN_DUE_STEPS_H

#include "trainer/rank/rank.h"

/* The number of steps of the training, by --steps or --epochs. */
uint64_t train_steps(const struct train_rank *t);

/* True if an evaluation, or a checkpoint, is due after `step`, which is not the last. */
bool train_evaluation_due(const struct train_rank *t, uint64_t step);
bool train_checkpoint_due(const struct train_rank *t, uint64_t step);

/* The first step after `step` at which either is due, or the last step of the training. */
uint64_t train_next_due(const struct train_rank *t, uint64_t step);

#endif
