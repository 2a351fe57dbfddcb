/* output.c - the beginning and the end of a tool's standard output (output.h);
 * called by the mains of perf/ and trainer/ */
#include "tools/output.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

void tool_output_begin(void)
{
	signal(SIGPIPE, SIG_DFL);
	signal(SIGXFSZ, SIG_IGN);
	/* in this order each gets the number that is free; what cannot be written is told
	 * at the end */
	for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
		if (fcntl(fd, F_GETFD) < 0)
			open("/dev/null", fd == STDOUT_FILENO ? O_RDONLY : O_RDWR);
}

int tool_output_end(const char *tool, int status)
{
	errno = 0;
	if ((fflush(stdout) == 0 && !ferror(stdout)) || status)
		return status;
	fprintf(stderr, "%s: standard output: %s\n", tool,
		errno ? strerror(errno) : "lines of it could not be written; is the disk full, or was it closed?");
	return 1;
}
