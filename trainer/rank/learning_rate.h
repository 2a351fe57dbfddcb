/* learning_rate.h - the learning rate of each step, by --lr, --lr-schedule and --warmup. Called by
 * train.c and the parameter servers. */
#ifndef TRAIN_LEARNING_RATE_H
#define TRAIN_LEARNING_RATE_H

#include "trainer/rank/config.h"

/* step: from 1; steps: number of steps of the whole training */
double train_learning_rate(const struct train_config *c, uint64_t step, uint64_t steps);

#endif
