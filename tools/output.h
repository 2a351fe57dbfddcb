/* output.h - a tool's standard output: what could not be written must not pass for a result */
#ifndef TOOL_OUTPUT_H
#define TOOL_OUTPUT_H

/* First of all in main. A reader that has gone away ends the tool, quietly, whatever SIGPIPE was;
 * a standard descriptor that is closed stays useless instead of becoming a socket's number; a file
 * beyond ulimit -f is one that cannot be written, not a death. */
void tool_output_begin(void);

/* Writes out what is left of standard output. Returns status; when not everything could be written
 * and status was 0: a sentence on stderr, and 1. */
int tool_output_end(const char *tool, int status);

#endif
