/* output.h - standard output of a tool: a tool whose output is incomplete must not exit with 0 */
#ifndef TOOL_OUTPUT_H
#define TOOL_OUTPUT_H

/* Call first in main. Restores SIGPIPE, so a closed pipe ends the tool without a message; opens
 * closed standard descriptors on /dev/null, so no socket gets their numbers; ignores SIGXFSZ, so a
 * file beyond ulimit -f is a write error and does not kill the tool. */
void tool_output_begin(void);

/* Flushes standard output. Returns status; if status is 0 and output was lost, prints a sentence to
 * stderr and returns 1. */
int tool_output_end(const char *tool, int status);

#endif
