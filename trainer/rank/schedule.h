/* schedule.h - the learning rate of each step: --schedule, --warmup. Called by train.c, fault.c
 * and the parameter servers. */
#ifndef TRAIN_SCHEDULE_H
#define TRAIN_SCHEDULE_H

#include "trainer/rank/rank.h"

/* step: from 1; steps: number of steps of the whole training */
double train_schedule(const struct train_config *c, uint64_t step, uint64_t steps);

/* The number of steps of the training, by --steps or --epochs. */
uint64_t train_schedule_steps(const struct train_rank *t);

#endif
