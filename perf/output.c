/* output.c - the end of a tool's standard output (output.h);
 * called by the mains of perf/ and trainer/ */
#include "perf/output.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

int tt_output_end(const char *tool, int status)
{
	errno = 0;
	if ((fflush(stdout) == 0 && !ferror(stdout)) || status)
		return status;
	fprintf(stderr, "%s: standard output: %s\n", tool,
		errno ? strerror(errno) : "lines of it could not be written; is the disk full?");
	return 1;
}
