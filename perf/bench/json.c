/*
 * json.c - writes JSON to a stdio stream; writes a file atomically
 *
 * Called by report.c, json_results.c and the commands simulate and tune. Each member has its own
 * line, so that diff can compare two files.
 */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "perf/bench/bench.h"
#include "tools/fresh_file.h"
#include "tools/options.h"

static void text(FILE *to, const char *value)
{
	fputc('"', to);
	for (const unsigned char *p = (const unsigned char *)value; *p; p++) {
		if (*p == '"' || *p == '\\')
			fprintf(to, "\\%c", *p);
		else if (*p < 0x20 || *p >= 0x7f)
			/* bytes beyond ASCII are written as Latin-1: always valid JSON */
			fprintf(to, "\\u%04x", *p);
		else
			fputc(*p, to);
	}
	fputc('"', to);
}

/* Writes the comma, the line break and the key (NULL: none). */
static void begin(struct bench_json *j, const char *key)
{
	fprintf(j->to, "%s\n%*s", j->more ? "," : "", 2 * j->depth, "");
	j->more = true;
	if (key) {
		text(j->to, key);
		fputs(": ", j->to);
	}
}

void bench_json_open(struct bench_json *j, const char *key, char bracket)
{
	if (j->depth)
		begin(j, key);
	fputc(bracket, j->to);
	j->depth++;
	j->more = false;
}

void bench_json_close(struct bench_json *j, char bracket)
{
	j->depth--;
	if (j->more)
		fprintf(j->to, "\n%*s", 2 * j->depth, "");
	fputc(bracket, j->to);
	j->more = true;
}

void bench_json_text(struct bench_json *j, const char *key, const char *value)
{
	begin(j, key);
	text(j->to, value);
}

void bench_json_int(struct bench_json *j, const char *key, long long value)
{
	begin(j, key);
	fprintf(j->to, "%lld", value);
}

void bench_json_real(struct bench_json *j, const char *key, double value)
{
	begin(j, key);
	if (isfinite(value))
		fprintf(j->to, "%.9g", value);
	else
		fputs("null", j->to);
}

void bench_json_us(struct bench_json *j, const char *key, int64_t ns)
{
	uint64_t size = ns < 0 ? -(uint64_t)ns : (uint64_t)ns;

	begin(j, key);
	fprintf(j->to, "%s%" PRIu64 ".%03u", ns < 0 ? "-" : "", size / 1000,
		(unsigned)(size % 1000));
}

void bench_json_bool(struct bench_json *j, const char *key, bool value)
{
	begin(j, key);
	fputs(value ? "true" : "false", j->to);
}

void bench_json_null(struct bench_json *j, const char *key)
{
	begin(j, key);
	fputs("null", j->to);
}

static bool write_to(FILE *f, const char *content, size_t bytes)
{
	bool good = f && fwrite(content, 1, bytes, f) == bytes;

	return f && fclose(f) == 0 && good;
}

int bench_check_file(const char *tool, const char *option, const char *path)
{
	const char *slash = strrchr(path, '/');
	char folder[4096];
	struct stat st;

	snprintf(folder, sizeof(folder), "%.*s", slash ? (int)(slash - path) + 1 : 1,
		 slash ? path : ".");
	if (stat(path, &st) == 0 && S_ISDIR(st.st_mode))
		return tool_refuse(tool, "%s %s: %s", option, path, strerror(EISDIR));
	if (access(folder, W_OK))
		return tool_refuse(tool, "%s %s: %s: %s", option, path, folder, strerror(errno));
	return 0;
}

int bench_write_file(const char *path, const char *content, size_t bytes)
{
	size_t length = strlen(path) + 32;
	char *temporary;
	struct stat st;
	bool good;

	/* a pipe, a terminal or a device is written in place, not replaced */
	if (stat(path, &st) == 0 && !S_ISREG(st.st_mode))
		return write_to(fopen(path, "we"), content, bytes) ? 0 : -1;
	temporary = malloc(length);
	if (!temporary)
		return -1;
	good = write_to(tool_fresh_file(path, temporary, length), content, bytes) &&
	       rename(temporary, path) == 0;
	if (!good) {
		int saved = errno;

		unlink(temporary);
		errno = saved;
	}
	free(temporary);
	return good ? 0 : -1;
}
