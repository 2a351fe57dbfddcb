/*
 * cmd_report.c - `tutti report A B`: compare two results files of a benchmark (allreduce_perf -J)
 *
 * Called by the table in tutti_main.c. Prints the conditions that differ, the times of the calls that
 * both files have, and the mean of their ratios.
 */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "perf/commands/cmd.h"
#include "tools/json_read.h"
#include "tools/options.h"

#define MOST_BYTES (64 << 20)

struct report_options {
	double limit;
};

static const struct tool_option options[] = {
	{ 0, "limit", TOOL_OPT_REAL, "R", offsetof(struct report_options, limit), "0", 0, 1e9, NULL,
	  NULL, "exit with 1 if B's times are on average more than R times A's" },
	{ 0, NULL, 0, NULL, 0, NULL, 0, 0, NULL, NULL, NULL },
};

static const struct tool_usage usage = {
	.tool = "tutti report",
	.help = "Compare two results files of a benchmark: what differs, and each time of B divided by A's.\n"
		"  allreduce_perf --np 4 -J today.json                  (on an idle host)\n"
		"  tutti report yesterday.json today.json\n"
		"  tutti report base.json new.json --limit 1.1          fails if it is 10 % slower\n"
		"Exit status: 0 compared, 1 above the limit, 2 the files cannot be compared.",
	.options = options,
};

struct results {
	const char *path;
	char *text;
	struct tool_json *tree;
};

/* ---- files ----------------------------------------------------------------------------------- */

/* The whole file; NULL: errno */
static char *read_file(const char *path)
{
	FILE *f = fopen(path, "r");
	char *text = f ? malloc(MOST_BYTES + 1) : NULL;
	size_t n = text ? fread(text, 1, MOST_BYTES + 1, f) : 0;
	int error = errno;

	if (f && text && !ferror(f) && n <= MOST_BYTES) {
		text[n] = '\0';
		fclose(f);
		return text;
	}
	if (f)
		fclose(f);
	free(text);
	errno = n > MOST_BYTES ? EFBIG : error;
	return NULL;
}

static bool open_results(struct results *r, const char *path)
{
	const struct tool_json *rows;

	r->path = path;
	r->text = read_file(path);
	if (!r->text) {
		tool_refuse(usage.tool, "%s: %m", path);
		return false;
	}
	r->tree = tool_json_read(r->text);
	if (!r->tree) {
		tool_refuse(usage.tool, "%s: %s; give a file that -J wrote to its end", path,
			    tt_error_text());
		return false;
	}
	rows = tool_json_get(r->tree, "results");
	if (rows && rows->kind == TOOL_JSON_ARRAY)
		return true;
	tool_refuse(usage.tool, "%s has no results; give a file that a benchmark wrote by -J",
		    path);
	return false;
}

static void close_results(struct results *r)
{
	tool_json_free(r->tree);
	free(r->text);
}

/* ---- conditions ------------------------------------------------------------------------------ */

/* A value in one line; "(none)" */
static void write_value(const struct tool_json *v, FILE *to)
{
	const char *comma = "";

	if (!v || v->kind == TOOL_JSON_NULL)
		fputs("(none)", to);
	else if (v->kind == TOOL_JSON_TEXT)
		fputs(v->text, to);
	else if (v->kind == TOOL_JSON_NUMBER)
		fprintf(to, "%.15g", v->number);
	else if (v->kind == TOOL_JSON_BOOL)
		fputs(v->number ? "yes" : "no", to);
	for (const struct tool_json *c = v ? v->first : NULL; c; c = c->next) {
		fputs(comma, to);
		write_value(c, to);
		comma = " ";
	}
}

static char *text_of(const struct tool_json *v)
{
	char *text = NULL;
	size_t bytes;
	FILE *to = open_memstream(&text, &bytes);

	if (!to)
		return NULL;
	write_value(v, to);
	fclose(to);
	return text;
}

static void compare_value(const char *name, const struct tool_json *a, const struct tool_json *b)
{
	char *in_a = text_of(a), *in_b = text_of(b);

	if (in_a && in_b && strcmp(in_a, in_b) != 0)
		printf("# %-20s %s -> %s\n", name, in_a, in_b);
	free(in_a);
	free(in_b);
}

/* The host and processor of rank 0; process numbers and the like differ in any two runs. */
static const struct tool_json *rank0(const struct results *r)
{
	const struct tool_json *devices = tool_json_get(tool_json_get(r->tree, "config"),
							"devices");

	return devices ? devices->first : NULL;
}

static void compare_conditions(const struct results *a, const struct results *b)
{
	static const char *const facts[] = { "start_time",      "tutti_version", "program",
					     "instruction_set", "args",          "env" };
	static const char *const of_rank0[] = { "hostname", "device_info" };
	const struct tool_json *theirs = tool_json_get(b->tree, "config");

	printf("# A: %s\n# B: %s\n", a->path, b->path);
	for (size_t i = 0; i < sizeof(facts) / sizeof(facts[0]); i++)
		compare_value(facts[i], tool_json_get(a->tree, facts[i]),
			      tool_json_get(b->tree, facts[i]));
	for (size_t i = 0; i < sizeof(of_rank0) / sizeof(of_rank0[0]); i++)
		compare_value(of_rank0[i], tool_json_get(rank0(a), of_rank0[i]),
			      tool_json_get(rank0(b), of_rank0[i]));
	for (const struct tool_json *m = theirs ? theirs->first : NULL; m; m = m->next)
		if (m->kind != TOOL_JSON_ARRAY && m->kind != TOOL_JSON_OBJECT)
			compare_value(m->key,
				      tool_json_get(tool_json_get(a->tree, "config"), m->key), m);
}

/* ---- times ----------------------------------------------------------------------------------- */

/* The time of a row, in place or not; -1: not measured */
static double time_of(const struct tool_json *row, const char *place)
{
	const struct tool_json *figure = tool_json_get(row, place);

	return tool_json_number(figure, "time", tool_json_number(figure, "cpu_time", -1));
}

/* With --algo all a call has a row for each algorithm, else the algorithm is part of the outcome. */
static bool is_same_call(const struct tool_json *a, const struct tool_json *b, bool all)
{
	static const char *const numbers[] = { "size", "root" }, *const texts[] = { "type",
										    "redop" };
	bool same = !all ||
		    !strcmp(tool_json_text(a, "algorithm", ""), tool_json_text(b, "algorithm", ""));

	for (int i = 0; i < 2; i++)
		same = same &&
		       tool_json_number(a, numbers[i], -1) == tool_json_number(b, numbers[i], -1) &&
		       !strcmp(tool_json_text(a, texts[i], ""), tool_json_text(b, texts[i], ""));
	return same;
}

static bool has_all_algorithms(const struct results *r)
{
	return !strcmp(tool_json_text(tool_json_get(r->tree, "config"), "algo", ""), "all");
}

/* The n-th of the rows of r that are the same call as row; a run with -N has several. NULL: none */
static const struct tool_json *find(const struct results *r, const struct tool_json *row, int nth,
				    bool all)
{
	const struct tool_json *at = tool_json_get(r->tree, "results")->first;

	for (; at; at = at->next)
		if (is_same_call(at, row, all) && !nth--)
			return at;
	return NULL;
}

static int count_before(const struct results *r, const struct tool_json *row, bool all)
{
	int n = 0;

	for (const struct tool_json *at = tool_json_get(r->tree, "results")->first; at != row;
	     at = at->next)
		n += is_same_call(at, row, all);
	return n;
}

struct ratios {
	int n;
	double sum; /* of logarithms */
};

static void compare_rows(const struct tool_json *a, const struct tool_json *b, const char *place,
			 struct ratios *ratios)
{
	const char *was = tool_json_text(a, "algorithm", ""),
		   *is = tool_json_text(b, "algorithm", "");
	double in_a = time_of(a, place), in_b = time_of(b, place);

	if (in_a <= 0 || in_b <= 0)
		return;
	printf("%12.0f %9s %6s %-12s %12.2f %12.2f %7.3f  %s", tool_json_number(b, "size", 0),
	       tool_json_text(b, "type", ""), tool_json_text(b, "redop", ""),
	       strcmp(place, "in_place") ? "out of place" : "in place", in_a, in_b, in_b / in_a,
	       was);
	printf(strcmp(was, is) ? " -> %s\n" : "\n", is);
	ratios->n++;
	ratios->sum += log(in_b / in_a);
}

static bool has_common(const struct results *a, const struct results *b, bool all)
{
	const struct tool_json *row = tool_json_get(b->tree, "results")->first;

	while (row && !find(a, row, 0, all))
		row = row->next;
	return row != NULL;
}

/* Returns the geometric mean of the ratios; 0: no time was measured in both files */
static double compare_times(const struct results *a, const struct results *b, bool all)
{
	struct ratios ratios = { 0 };

	printf("#%11s %9s %6s %-12s %12s %12s %7s  %s\n", "size", "type", "redop", "place",
	       "A (us)", "B (us)", "B / A", "algorithm");
	for (const struct tool_json *row = tool_json_get(b->tree, "results")->first; row;
	     row = row->next) {
		const struct tool_json *other = find(a, row, count_before(b, row, all), all);

		if (!other)
			continue;
		compare_rows(other, row, "out_of_place", &ratios);
		compare_rows(other, row, "in_place", &ratios);
	}
	if (!ratios.n)
		return 0;
	printf("# geometric mean of %d ratios: %.3f\n", ratios.n, exp(ratios.sum / ratios.n));
	return exp(ratios.sum / ratios.n);
}

static int compare(const struct results *a, const struct results *b, double limit)
{
	bool all = has_all_algorithms(a) || has_all_algorithms(b);
	double mean;

	if (!has_common(a, b, all))
		return tool_refuse(usage.tool, "%s and %s have no call in common", a->path,
				   b->path);
	compare_conditions(a, b);
	mean = compare_times(a, b, all);
	return limit > 0 && mean > limit;
}

/* Removes the two paths, the only positional arguments, from argv. false: there are not two */
static bool take_paths(int *argc, char **argv, const char *ret_path[2])
{
	int kept = 1, paths = 0;

	for (int i = 1; i < *argc; i++) {
		if (argv[i][0] == '-') {
			argv[kept++] = argv[i];
			if (!strcmp(argv[i], "--limit") && i + 1 < *argc)
				argv[kept++] = argv[++i];
		} else if (paths++ < 2) {
			ret_path[paths - 1] = argv[i];
		}
	}
	argv[kept] = NULL;
	*argc = kept;
	return paths == 2;
}

int tool_cmd_report(int argc, char **argv)
{
	struct results a = { 0 }, b = { 0 };
	struct report_options v;
	const char *path[2];
	bool two = take_paths(&argc, argv, path);
	int rc = tool_options_read(&usage, argc, argv, &v);

	if (rc)
		return rc == 1 ? 0 : rc;
	if (!two)
		return tool_refuse(usage.tool, "give two files that a benchmark wrote by -J");
	rc = open_results(&a, path[0]) && open_results(&b, path[1]) ? compare(&a, &b, v.limit) : 2;
	close_results(&a);
	close_results(&b);
	return rc;
}
