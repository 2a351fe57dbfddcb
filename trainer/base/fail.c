/* fail.c - the error text of the trainer (fail.h) */
#include "trainer/base/fail.h"

#include <stdarg.h>
#include <stdio.h>

static _Thread_local char sentence[TRAIN_ERROR_BYTES];

int train_fail(int code, const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	vsnprintf(sentence, sizeof(sentence), fmt, args);
	va_end(args);
	return code;
}

const char *train_error(void)
{
	return sentence;
}
