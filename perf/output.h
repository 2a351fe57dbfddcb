/* output.h - the end of a tool's standard output:
 * what could not be written must not pass for a result */
#ifndef TT_OUTPUT_H
#define TT_OUTPUT_H

/* Writes out what is left of standard output. Returns status; when not everything could be written
 * and status was 0: a sentence on stderr, and 1. */
int tt_output_end(const char *tool, int status);

#endif
