/*
 * fresh_file.h - output files that are written whole: under a temporary name, then renamed. Used by
 * checkpoints of tutti-train and by output files of all tools.
 */
#ifndef TOOL_FRESH_FILE_H
#define TOOL_FRESH_FILE_H

#include <stddef.h>
#include <stdio.h>

/* Create and open "PATH.RANDOM" for writing. The name cannot be foretold; an existing file or link of
 * that name is neither opened nor followed. ret_name: [room] the name; "": no file was made, and the
 * caller has none to remove. NULL: errno */
FILE *tool_fresh_file(const char *path, char *ret_name, size_t room);

/* Checks, before long work, that the file can be created. Returns 0 | 2: error printed. */
int tool_file_check(const char *tool, const char *option, const char *path);
/* Writes text to a temporary file in path's folder and renames the file to path, so that path is
 * never half written. Returns 0 | -1 with errno. */
int tool_file_write(const char *path, const char *text, size_t bytes);
/* Writes text in front of `tail`, of at most 16 bytes, with which the file ends, so that it is complete again. A
 * failure leaves the file as it was. Returns 0 | -1 with errno: ENOENT, there is no file, or it is empty; EINVAL, it
 * has another end. */
int tool_file_insert(const char *path, const char *text, size_t bytes, const char *tail);

#endif
