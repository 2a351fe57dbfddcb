/* output.c - standard output of a tool: set up, flush, report write errors (output.h);
 * called by the main functions of perf/ and trainer/ */
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
	/* open returns the lowest free number, so each closed descriptor gets its own number; stdout
	 * is opened read-only, so that tool_output_end detects the failed writes */
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
		errno ? strerror(errno)
		      : "some lines could not be written; is the disk full, or the descriptor closed?");
	return 1;
}
