/* schedule.h - the learning rate of each step: --schedule, --warmup. Called by train.c. */
#ifndef TRAIN_SCHEDULE_H
#define TRAIN_SCHEDULE_H

#include "trainer/trainer.h"

/* step: from 1; steps: of the whole training */
double train_schedule(const struct train_config *c, uint64_t step, uint64_t steps);

/* How many steps --steps or --epochs come to. */
uint64_t train_schedule_steps(const struct train_rank *t);

#endif
