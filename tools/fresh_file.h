/*
 * fresh_file.h - make the temporary file of a file that a rename replaces. Used by checkpoints of
 * tutti-train and by output files of the other tools.
 */
#ifndef TOOL_FRESH_FILE_H
#define TOOL_FRESH_FILE_H

#include <stddef.h>
#include <stdio.h>

/* Create and open "PATH.RANDOM" for writing. The name cannot be foretold; an existing file or link of
 * that name is neither opened nor followed. ret_name: [room] the name; "": no file was made, and the
 * caller has none to remove. NULL: errno */
FILE *tool_fresh_file(const char *path, char *ret_name, size_t room);

#endif
