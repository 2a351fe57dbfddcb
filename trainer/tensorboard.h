/*
 * tensorboard.h - a file of TensorBoard's events: scalars by step (--tensorboard)
 *
 * Called by metrics.c.
 */
#ifndef TRAIN_TENSORBOARD_H
#define TRAIN_TENSORBOARD_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* The file of this training in the directory, which is made if it is missing. Returns 0, or -1 with
 * errno. */
int train_tensorboard_path(const char *directory, char *ret_path, size_t room);

/* The first record of a file; one with a scalar. Errors are left to ferror. */
void train_tensorboard_begin(FILE *f);
void train_tensorboard_scalar(FILE *f, uint64_t step, const char *tag, double value);

#endif
