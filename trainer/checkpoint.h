/*
 * checkpoint.h - checkpoints: save a training, resume it with any number of ranks
 *
 * A checkpoint is one file: a header, the parameters, the optimizer state, and a hash of all of
 * them. It is written to a temporary file, synced and renamed, so a death at any time leaves a
 * complete checkpoint, the new or the old one. The content does not depend on the number of
 * ranks or servers, nor on the layout of a mesh, but for strategies whose ranks have state of their own: the state of each rank
 * follows, and the optimizer state is the mean of the ranks'. As many ranks resume with their own
 * state, another number with the common one. Called by job.c, trainer.c, train.c.
 */
#ifndef TRAIN_CHECKPOINT_H
#define TRAIN_CHECKPOINT_H

#include "trainer/rank/rank.h"

/* train_checkpoint_resume - --resume: load the checkpoint
 *
 *   Call      by all ranks of world; does nothing without the option
 *   Result    parameters and optimizer state on rank 0 (of each stage), t->first_step on all ranks; none if there is no
 *             checkpoint yet and --save is the same file
 *   Returns   0 | TRAIN_USAGE (no such file, another model, ...) | TRAIN_FAILED */
int train_checkpoint_resume(struct train_rank *t);

/* Every rank gets its own state of a checkpoint of as many ranks. Call by all ranks after the
 * strategy's open. Returns 0 | TRAIN_FAILED. */
int train_checkpoint_restore_own(struct train_rank *t);

/* Rank 0 writes the training's state after `step`. Call by all workers, with equal parameters.
 * Returns 0 | TRAIN_UNWRITTEN (rank 0 only; the previous file is intact) | TRAIN_FAILED. */
int train_checkpoint_save(struct train_rank *t, const char *path, uint64_t step);

#endif
