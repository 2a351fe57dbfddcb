/*
 * log.c - one line to stderr, for the levels that TUTTI_LOG or tt_log_set enables
 *
 * Called by every room. A line is one write(2), so that lines of many ranks do not mix.
 */
#include "base/base.h"

#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PERIOD_NS 5000000000ull

static const char *const level_names[] = { "none", "error", "warn", "info", "debug" };

static atomic_int threshold = -1; /* -1: TUTTI_LOG not read yet */

/* A wrong TUTTI_LOG disables the log; tt_env_read reports the error. */
static int threshold_from_env(void)
{
	const char *level = getenv("TUTTI_LOG");

	for (int i = 0; level && i <= TT_LOG_DEBUG; i++)
		if (!strcmp(level, level_names[i]))
			return i;
	return 0;
}

static int threshold_now(void)
{
	int now = atomic_load_explicit(&threshold, memory_order_relaxed);

	if (now >= 0)
		return now;
	/* Replace only -1, so that a tt_log_set of another thread in between stays. */
	if (atomic_compare_exchange_strong(&threshold, &now, threshold_from_env()))
		now = atomic_load(&threshold);
	return now;
}

void tt_log_set(int level)
{
	atomic_store(&threshold, level < 0 ? 0 : level);
}

bool tt_log_enabled(enum tt_log_level level)
{
	return (int)level <= threshold_now();
}

void tt_log(enum tt_log_level level, const char *fmt, ...)
{
	int saved = errno;
	char line[1200];
	int head, body;
	va_list ap;

	if (!tt_log_enabled(level))
		return;
	head = snprintf(line, 64, "tutti %d %s: ", (int)getpid(), level_names[level]);
	va_start(ap, fmt);
	errno = saved;
	body = vsnprintf(line + head, sizeof(line) - (size_t)head - 1, fmt, ap);
	va_end(ap);
	if (body >= 0) {
		char *end = line + strlen(line);

		for (char *p = line; p < end; p++)
			if (*p == '\n')
				*p = ' ';
		*end++ = '\n';
		(void)!write(STDERR_FILENO, line, (size_t)(end - line));
	}
	errno = saved;
}

bool tt_log_due(uint64_t *due_ns)
{
	uint64_t now = tt_now_ns(), before = *due_ns;

	if (now < before)
		return false;
	*due_ns = now + PERIOD_NS;
	return before;
}
