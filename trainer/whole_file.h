/*
 * whole_file.h - files that are replaced as a whole: checkpoints and exports
 *
 * A file is written under another name, synced and renamed, so a crash leaves the previous one. Called
 * by checkpoint.c, export.c and option_check.c.
 */
#ifndef TRAIN_WHOLE_FILE_H
#define TRAIN_WHOLE_FILE_H

#include <stdbool.h>
#include <stdio.h>

/* Checks that --OPTION PATH can be replaced. A device, a pipe or a directory must not be replaced by a
 * file. Returns 0 | TRAIN_USAGE. */
int train_whole_file_check(const char *option, const char *path);

/* Replaces the file by what `write` writes, which returns false, with errno, on failure. Returns 0 | TRAIN_USAGE |
 * TRAIN_FAILED. */
int train_whole_file_replace(const char *option, const char *path,
			     bool (*write)(FILE *f, void *arg), void *arg);

#endif
