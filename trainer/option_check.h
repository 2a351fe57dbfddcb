/*
 * option_check.h - refuse options that have no effect in combination with the others
 *
 * Called by job.c before ranks are started.
 */
#ifndef TRAIN_OPTION_CHECK_H
#define TRAIN_OPTION_CHECK_H

#include "trainer/rank/config.h"

/* Returns 0 | TRAIN_USAGE: the error names the option and its requirement. */
int train_option_check(const struct train_config *config);

#endif
