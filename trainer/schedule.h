/* schedule.h - the learning rate of each step: --schedule, --warmup. Called by train.c. */
#ifndef TT_TRAINER_SCHEDULE_H
#define TT_TRAINER_SCHEDULE_H

#include "trainer/trainer.h"

/* step: from 1; steps: of the whole training */
double tt_schedule(const struct tt_config *c, uint64_t step, uint64_t steps);

/* How many steps --steps or --epochs come to. */
uint64_t tt_schedule_steps(const struct tt_trainer *t);

#endif
