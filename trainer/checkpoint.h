/*
 * checkpoint.h - a training on disk, from which it goes on with any number of ranks
 *
 * One file: a header, the parameters, the optimizer's state, and a hash of it
 * all. It is written beside its place, synced and renamed, so whoever dies
 * leaves a whole checkpoint, the new or the old one. Nothing in it depends on
 * the number of ranks or servers. Called by train_main.c, trainer.c, train.c.
 */
#ifndef TRAIN_CHECKPOINT_H
#define TRAIN_CHECKPOINT_H

#include "trainer/trainer.h"

/* Can --save be written? A training may take hours. Called before ranks are started. Returns 0 |
 * TRAIN_USAGE. */
int train_checkpoint_check(const struct train_config *config);

/* --resume: rank 0 gets parameters and state, all ranks t->first_step. Does nothing without the
 * option. Called by all ranks of world.
 * Returns 0 | TRAIN_USAGE (no such file, another model, ...) | TRAIN_FAILED. */
int train_checkpoint_resume(struct train_rank *t);

/* Rank 0 writes what the training is after `step`. Called by all workers, which have the same
 * parameters. Returns 0 | TRAIN_FAILED. */
int train_checkpoint_save(struct train_rank *t, const char *path, uint64_t step);

#endif
