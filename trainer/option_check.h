/*
 * option_check.h - options that mean nothing beside others are refused, not ignored
 *
 * Called by train_main.c before ranks are started.
 */
#ifndef TT_TRAINER_SENSE_H
#define TT_TRAINER_SENSE_H

#include "trainer/train_config.h"

/* Returns 0 | TT_TRAIN_USAGE: the sentence names the option and what it wants. */
int tt_sense_check(const struct tt_config *config);

#endif
