/*
 * settings_agree.h - ranks that were started apart must have been given the same data and options
 *
 * Otherwise they would train, and the result would mean nothing. Called by trainer.c.
 */
#ifndef TT_TRAINER_AGREE_H
#define TT_TRAINER_AGREE_H

#include "trainer/trainer.h"

/* Called by all ranks. Returns 0 | TT_TRAIN_USAGE: the sentence names an option that differs, and
 * this rank's value of it | TT_TRAIN_FAILED. */
int tt_agree(const struct tt_trainer *t);

#endif
