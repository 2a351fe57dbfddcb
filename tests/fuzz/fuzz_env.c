/*
 * fuzz_env.c - arbitrary bytes as an environment: lines of NAME=value; a first byte below the space
 * selects a name of the table, so that inputs reach values without guessing names
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"

enum { LINES = 16 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static char *line_of(const char *text)
{
	unsigned char first = (unsigned char)text[0];
	char *line;

	if (!first || first >= ' ')
		return strdup(text);
	if (asprintf(&line, "%s=%s", tt_env_table[first % tt_env_rows].name, text + 1) < 0)
		abort();
	return line;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	char **before = environ, *lines[LINES + 1] = { 0 }, *text = malloc(bytes + 1), *next = text;
	struct tt_env env;

	if (!text)
		abort();
	memcpy(text, data, bytes);
	text[bytes] = '\0';
	for (int n = 0; n < LINES && next; n++)
		lines[n] = line_of(strsep(&next, "\n"));
	environ = lines;
	tt_error_clear();
	switch (tt_env_read(&env)) {
	case TT_OK:
		break;
	case TT_ARG: /* the other values are good, and bad ones have their defaults */
		if (*tt_error_text())
			break;
		/* fall through */
	default:
		abort();
	}
	if (env.timeout_ms < 1 || env.rank < -1 || !*env.transport || !*env.algo)
		abort();
	environ = before;
	for (int n = 0; n < LINES; n++)
		free(lines[n]);
	free(text);
	return 0;
}
