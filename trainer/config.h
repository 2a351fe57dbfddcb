/*
 * config.h - what the command line of tutti-train says
 *
 * The table of options in config.c is the only place that knows them: parser, defaults, ranges and
 * --help come from it.
 */
#ifndef TT_TRAINER_CONFIG_H
#define TT_TRAINER_CONFIG_H

#include <stdint.h>

struct tt_config {
	int64_t np; /* ranks to start here; 0: join what the environment describes */
	const char *data, *data_dir, *model, *strategy, *device, *algo, *transport;
	int64_t global_batch, epochs, steps, seed, bucket_kb;
	double lr, momentum;
	int64_t check_replicas, eval_every;
	const char *metrics; /* path, or NULL */
};

/* Returns 0: go on | 1: help was printed | 2: a sentence went to stderr. */
int tt_config_read(int argc, char **argv, struct tt_config *ret_config);

#endif
