/*
 * json.c - writes JSON to a stdio stream
 *
 * Called by report.c, json_results.c and the commands simulate and tune. Each member has its own
 * line, so that diff can compare two files.
 */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "perf/bench/bench.h"

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
