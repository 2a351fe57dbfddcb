/*
 * settings_agree.h - ranks that were started apart must have been given the same data and options
 *
 * Otherwise they would train, and the result would mean nothing. Called by trainer.c.
 */
#ifndef TRAIN_AGREE_H
#define TRAIN_AGREE_H

#include "trainer/trainer.h"

/* Called by all ranks. Returns 0 | TRAIN_USAGE: the sentence names an option that differs, and
 * this rank's value of it | TRAIN_FAILED. */
int train_settings_agree(const struct train_rank *t);

#endif
