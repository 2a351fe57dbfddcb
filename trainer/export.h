/*
 * export.h - the parameters as a file in the format safetensors (--export)
 *
 * Called by train.c and job.c.
 */
#ifndef TRAIN_EXPORT_H
#define TRAIN_EXPORT_H

#include "trainer/rank/rank.h"

/* Checks that the file can be written, before ranks are started. Returns 0 | TRAIN_USAGE. */
int train_export_check(const struct train_config *config);

/* Writes the parameters after `step` steps. Call by all workers. Returns 0 | TRAIN_FAILED. */
int train_export(struct train_rank *t, uint64_t step);

#endif
