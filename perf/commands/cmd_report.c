/*
 * cmd_report.c - `tutti report A B`: compare two results files of a benchmark (allreduce_perf -J)
 *
 * Called by the table in tutti_main.c. Prints the conditions that differ, the times of the calls that
 * both files have, and the mean of their ratios.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "perf/commands/cmd.h"
#include "tools/options.h"

#ifdef HAVE_JANSSON
#include <jansson.h>
#endif

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
	.operands = "A.json B.json",
};

#ifdef HAVE_JANSSON

struct results {
	const char *path;
	json_t *tree, *config, *rows; /* the file; its members */
};

/* ---- files ----------------------------------------------------------------------------------- */

static bool open_results(struct results *r, const char *path)
{
	json_error_t error;

	r->path = path;
	r->tree = json_load_file(path, 0, &error);
	if (!r->tree && error.line < 1)
		tool_refuse(usage.tool, "%s", error.text);
	else if (!r->tree)
		tool_refuse(usage.tool, "%s: line %d: %s; give a file that -J wrote to its end",
			    path, error.line, error.text);
	if (!r->tree)
		return false;
	r->config = json_object_get(r->tree, "config");
	r->rows = json_object_get(r->tree, "results");
	if (!json_is_array(r->rows))
		tool_refuse(usage.tool,
			    "%s has no results; give a file that a benchmark wrote by -J", path);
	return json_is_array(r->rows);
}

static double number_of(const json_t *object, const char *key, double otherwise)
{
	const json_t *v = json_object_get(object, key);

	return json_is_number(v) ? json_number_value(v) : otherwise;
}

/* The member's text; "": there is none */
static const char *text_of(const json_t *object, const char *key)
{
	const char *text = json_string_value(json_object_get(object, key));

	return text ? text : "";
}

/* ---- conditions ------------------------------------------------------------------------------ */

/* A value in one line; "(none)" */
static void write_value(const json_t *v, FILE *to)
{
	size_t i;
	json_t *element;
	const char *name, *space = "";

	if (!v || json_is_null(v))
		fputs("(none)", to);
	else if (json_is_string(v))
		fputs(json_string_value(v), to);
	else if (json_is_number(v))
		fprintf(to, "%.15g", json_number_value(v));
	else if (json_is_boolean(v))
		fputs(json_is_true(v) ? "yes" : "no", to);
	json_array_foreach (v, i, element) {
		fputs(space, to);
		write_value(element, to);
		space = " ";
	}
	json_object_foreach ((json_t *)v, name, element) {
		fputs(space, to);
		write_value(element, to);
		space = " ";
	}
}

static char *line_of(const json_t *v)
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

static void compare_value(const char *name, const json_t *a, const json_t *b)
{
	char *in_a = line_of(a), *in_b = line_of(b);

	if (in_a && in_b && strcmp(in_a, in_b) != 0)
		printf("# %-20s %s -> %s\n", name, in_a, in_b);
	free(in_a);
	free(in_b);
}

/* The host and processor of rank 0; process numbers and the like differ in any two runs. */
static const json_t *rank0(const struct results *r)
{
	return json_array_get(json_object_get(r->config, "devices"), 0);
}

static void compare_conditions(const struct results *a, const struct results *b)
{
	static const char *const facts[] = { "start_time",      "tutti_version", "program",
					     "instruction_set", "args",          "env" };
	static const char *const of_rank0[] = { "hostname", "device_info" };
	const char *name;
	json_t *value;

	printf("# A: %s\n# B: %s\n", a->path, b->path);
	for (size_t i = 0; i < sizeof(facts) / sizeof(facts[0]); i++)
		compare_value(facts[i], json_object_get(a->tree, facts[i]),
			      json_object_get(b->tree, facts[i]));
	for (size_t i = 0; i < sizeof(of_rank0) / sizeof(of_rank0[0]); i++)
		compare_value(of_rank0[i], json_object_get(rank0(a), of_rank0[i]),
			      json_object_get(rank0(b), of_rank0[i]));
	json_object_foreach (b->config, name, value)
		if (!json_is_array(value) && !json_is_object(value))
			compare_value(name, json_object_get(a->config, name), value);
}

/* ---- times ----------------------------------------------------------------------------------- */

/* The time of a row, in place or not; -1: not measured */
static double time_of(const json_t *row, const char *place)
{
	const json_t *figure = json_object_get(row, place);

	return number_of(figure, "time", number_of(figure, "cpu_time", -1));
}

/* With --algo all a call has a row for each algorithm, else the algorithm is part of the outcome. */
static bool is_same_call(const json_t *a, const json_t *b, bool all)
{
	static const char *const numbers[] = { "size", "root" }, *const texts[] = { "type",
										    "redop" };
	bool same = !all || !strcmp(text_of(a, "algorithm"), text_of(b, "algorithm"));

	for (int i = 0; i < 2; i++)
		same = same && number_of(a, numbers[i], -1) == number_of(b, numbers[i], -1) &&
		       !strcmp(text_of(a, texts[i]), text_of(b, texts[i]));
	return same;
}

static bool has_all_algorithms(const struct results *r)
{
	return !strcmp(text_of(r->config, "algo"), "all");
}

/* The n-th of the rows of r that are the same call as row; a run with -N has several. NULL: none */
static const json_t *find(const struct results *r, const json_t *row, int nth, bool all)
{
	const json_t *at;
	size_t i;

	json_array_foreach (r->rows, i, at)
		if (is_same_call(at, row, all) && !nth--)
			return at;
	return NULL;
}

/* The number of rows before row that are the same call */
static int count_before(const struct results *r, const json_t *row, bool all)
{
	const json_t *at;
	size_t i;
	int n = 0;

	json_array_foreach (r->rows, i, at) {
		if (at == row)
			break;
		n += is_same_call(at, row, all);
	}
	return n;
}

struct ratios {
	int n;
	double sum; /* of logarithms */
};

static void compare_rows(const json_t *a, const json_t *b, const char *place, struct ratios *ratios)
{
	const char *was = text_of(a, "algorithm"), *is = text_of(b, "algorithm");
	double in_a = time_of(a, place), in_b = time_of(b, place);

	if (in_a <= 0 || in_b <= 0)
		return;
	printf("%12.0f %9s %6s %-12s %12.2f %12.2f %7.3f  %s", number_of(b, "size", 0),
	       text_of(b, "type"), text_of(b, "redop"),
	       strcmp(place, "in_place") ? "out of place" : "in place", in_a, in_b, in_b / in_a,
	       was);
	printf(strcmp(was, is) ? " -> %s\n" : "\n", is);
	ratios->n++;
	ratios->sum += log(in_b / in_a);
}

static bool has_common(const struct results *a, const struct results *b, bool all)
{
	const json_t *row;
	size_t i;

	json_array_foreach (b->rows, i, row)
		if (find(a, row, 0, all))
			return true;
	return false;
}

/* Returns the geometric mean of the ratios; 0: no time was measured in both files */
static double compare_times(const struct results *a, const struct results *b, bool all)
{
	struct ratios ratios = { 0 };
	const json_t *row, *other;
	size_t i;

	printf("#%11s %9s %6s %-12s %12s %12s %7s  %s\n", "size", "type", "redop", "place",
	       "A (us)", "B (us)", "B / A", "algorithm");
	json_array_foreach (b->rows, i, row) {
		other = find(a, row, count_before(b, row, all), all);
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

static int compare_files(char *const path[2], double limit)
{
	struct results a = { 0 }, b = { 0 };
	int rc = open_results(&a, path[0]) && open_results(&b, path[1]) ? compare(&a, &b, limit)
									: 2;

	json_decref(a.tree);
	json_decref(b.tree);
	return rc;
}

#else

static int compare_files(char *const path[2], double limit)
{
	(void)limit;
	return tool_refuse(usage.tool,
			   "%s: this build cannot read JSON; install jansson (Debian: "
			   "libjansson-dev), then configure and make again",
			   path[0]);
}

#endif

int tool_cmd_report(int argc, char **argv)
{
	struct report_options v;
	int rc = tool_options_read(&usage, argc, argv, &v);
	char **path = tool_arguments();

	if (rc)
		return rc == 1 ? 0 : rc;
	if (!path[0] || !path[1])
		return tool_refuse(usage.tool, "give two files that a benchmark wrote by -J");
	return compare_files(path, v.limit);
}
