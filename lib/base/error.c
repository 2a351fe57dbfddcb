/*
 * error.c - the sentence that explains this thread's last failure
 *
 * Written by the first function that knows a cause, in every room; read by the api for
 * tuttiGetLastError.
 */
#include "base/base.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static __thread char sentence[1024];

int tt_fail(int code, const char *fmt, ...)
{
	int saved = errno;
	char text[sizeof(sentence)]; /* a copy: an argument may be the last sentence */
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	memcpy(sentence, text, strlen(text) + 1);
	errno = saved;
	return code;
}

/* Is this an error of the folder's name or mode, and not one of a disk or of the process? */
static bool is_wrong_folder(int error)
{
	return error == ENOENT || error == ENOTDIR || error == EACCES || error == EPERM ||
	       error == EROFS || error == ELOOP || error == ENAMETOOLONG;
}

int tt_fail_folder(int rank, const char *variable, const char *folder)
{
	return tt_fail(
		is_wrong_folder(errno) ? TT_ARG : TT_SYSTEM,
		"rank %d: %s=%s: cannot make a file there: %m; name a folder in which this process may write",
		rank, variable, folder);
}

const char *tt_error_text(void)
{
	return sentence;
}

void tt_error_clear(void)
{
	sentence[0] = '\0';
}
