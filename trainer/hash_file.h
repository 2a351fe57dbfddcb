/*
 * hash_file.h - the file of --hashes: hashes of the parameters after each step (tools/hashes.h)
 *
 * Called by metrics.c. A training that resumes, or whose rank 0 died, continues the file.
 */
#ifndef TRAIN_HASH_FILE_H
#define TRAIN_HASH_FILE_H

#include "trainer/rank/rank.h"

#include <stdio.h>

/* train_hash_file_open - open path, write its header, and continue its records
 *
 *   newest     the step of this rank's parameters. The file keeps its steps up to this one, but for one that a death
 *              has cut off, and gets this one if it has none. 0: the file begins anew
 *   ret_last   the last step that the file has; 0: none
 *   Returns    0 | TRAIN_USAGE: path cannot be written, or has no hashes of as many parameters */
int train_hash_file_open(struct train_rank *t, const char *path, uint64_t newest, FILE **ret_file,
			 uint64_t *ret_last);

/* Writes the hashes of the parameters after `step`. On failure ferror(to). */
void train_hash_file_write(FILE *to, struct train_rank *t, uint64_t step);

#endif
