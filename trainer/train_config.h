/*
 * train_config.h - the command line of tutti-train
 *
 * The table of options in train_config.c is the only list of options: parser, defaults, ranges and
 * --help are derived from the table. Called by job.c and option_check.c.
 */
#ifndef TRAIN_CONFIG_H
#define TRAIN_CONFIG_H

#include "trainer/rank/config.h"

/* Returns 0: options parsed | 1: help was printed | 2: an error was printed on stderr. */
int train_config_read(int argc, char **argv, struct train_config *ret_config);

/* The values of an empty command line. */
void train_config_defaults(struct train_config *ret_config);

#endif
