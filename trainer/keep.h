/*
 * keep.h - the checkpoints that stay: the last ones and the best (--keep)
 *
 * FILE is the newest checkpoint, FILE-STEP and FILE-best are further names (hard links) of it, so nothing is copied; so
 * are those of --export.
 * FILE-best.json has the step and the loss of the best, for a training that is resumed. Called by train.c, on rank 0.
 */
#ifndef TRAIN_KEEP_H
#define TRAIN_KEEP_H

#include "trainer/rank/rank.h"

struct train_step_record;

/* The checkpoint after the step of `record` was written, with its results on the test set: keeps it, and removes those
 * older than the --keep last. An environment has no loss: the greatest accuracy is the best. exported: --export was
 * written, too; otherwise its file is of another step. Returns 0 | TRAIN_UNWRITTEN. */
int train_keep(const struct train_rank *t, const struct train_step_record *record, bool exported);

#endif
