/*
 * option_check.h - refuse options that have no effect in combination with the others, and files that
 * cannot be written
 *
 * Called by job.c before ranks are started, and by train.c.
 */
#ifndef TRAIN_OPTION_CHECK_H
#define TRAIN_OPTION_CHECK_H

#include "trainer/rank/config.h"

/* Returns 0 | TRAIN_USAGE: the error names the option and its requirement. */
int train_option_check(const struct train_config *config);

/* Checks that the files which are written between steps or at the end can be. Returns 0 | TRAIN_USAGE. */
int train_option_check_files(const struct train_config *config);

#endif
