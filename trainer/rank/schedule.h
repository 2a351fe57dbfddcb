/* schedule.h - the learning rate of each step, and the steps of evaluations and checkpoints. Called
 * by train.c, fault.c and the parameter servers. */
#ifndef TRAIN_SCHEDULE_H
#define TRAIN_SCHEDULE_H

#include "trainer/rank/rank.h"

/* step: from 1; steps: number of steps of the whole training */
double train_schedule(const struct train_config *c, uint64_t step, uint64_t steps);

/* The number of steps of the training, by --steps or --epochs. */
uint64_t train_schedule_steps(const struct train_rank *t);

/* True if an evaluation, or a checkpoint, is due after `step`, which is not the last. */
bool train_schedule_evaluates(const struct train_rank *t, uint64_t step);
bool train_schedule_saves(const struct train_rank *t, uint64_t step);

/* The first step after `step` at which either is due, or the last step of the training. */
uint64_t train_schedule_pause(const struct train_rank *t, uint64_t step);

#endif
