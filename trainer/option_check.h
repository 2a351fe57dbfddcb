/*
 * option_check.h - options that mean nothing beside others are refused, not ignored
 *
 * Called by train_main.c before ranks are started.
 */
#ifndef TRAIN_SENSE_H
#define TRAIN_SENSE_H

#include "trainer/train_config.h"

/* Returns 0 | TRAIN_USAGE: the sentence names the option and what it wants. */
int train_option_check(const struct train_config *config);

#endif
