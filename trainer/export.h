/*
 * export.h - the parameters as a file in the format safetensors (--export)
 *
 * Called by train.c.
 */
#ifndef TRAIN_EXPORT_H
#define TRAIN_EXPORT_H

#include "trainer/rank/rank.h"

/* Writes the parameters after `step` steps. Call by all workers. Returns 0 |
 * TRAIN_UNWRITTEN (rank 0 only; the previous file is intact) | TRAIN_FAILED. */
int train_export(struct train_rank *t, uint64_t step);

#endif
