/*
 * test_tools.c - the pure parts of the tools: options, sizes, statistics, JSON; test_result_check.c
 * tests their verdicts
 */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "perf/bench/bench.h"
#include "perf/commands/tune.h"
#include "tools/options.h"

TestSuite(tools, .timeout = 60);

/* ---- options --------------------------------------------------------------------------------- */

Test(tools, sizes_take_suffixes_and_fractions_and_nothing_else)
{
	static const struct {
		const char *text;
		uint64_t bytes;
	} good[] = {
		{ "0", 0 },
		{ "1", 1 },
		{ "4096", 4096 },
		{ "64K", 65536 },
		{ "64k", 65536 },
		{ "1.5M", 1572864 },
		{ ".5G", 536870912 },
		{ "4300M", 4508876800u },
		{ "8G", 8589934592u },
		{ "1T", 1099511627776u },
		{ "8B", 8 },
		{ "1KB", 1024 },
		{ "1kib", 1024 },
		{ "1GiB", 1073741824 },
	};
	static const char *const bad[] = {
		"",  "K",    "-1",  "4KBB", "1e6",  "4iB",   "4BK",
		"B", "0x10", "nan", "1 K",  "4..5", "8192P", "9999999T"
	};
	uint64_t bytes;

	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
		cr_assert_eq(tool_parse_size(good[i].text, &bytes), 0, "%s", good[i].text);
		cr_assert_eq(bytes, good[i].bytes, "%s", good[i].text);
	}
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		cr_assert_neq(tool_parse_size(bad[i], &bytes), 0, "%s", bad[i]);
}

struct option_values {
	bool flag;
	int64_t number;
	uint64_t size;
	double real;
	const char *text;
	int choice;
};

static const struct tool_option rows[] = {
	{ 'f', "flag", TOOL_OPT_FLAG, NULL, offsetof(struct option_values, flag),
	  .help = "a flag" },
	{ 'n', "number", TOOL_OPT_INT, "N", offsetof(struct option_values, number), "3", 1, 9,
	  .words = "all", .help = "a number" },
	{ 's', "size", TOOL_OPT_SIZE, "BYTES", offsetof(struct option_values, size), "32M",
	  .help = "a size" },
	{ 0, "real", TOOL_OPT_REAL, "X", offsetof(struct option_values, real), "0.5", 0, 1,
	  .help = "a real" },
	{ 0, "text", TOOL_OPT_TEXT, "WORD", offsetof(struct option_values, text),
	  .help = "a text" },
	{ 'c', "choice", TOOL_OPT_CHOICE, "C", offsetof(struct option_values, choice), "red",
	  .words = "red blue|azure", .help = "one" },
	{ .name = NULL },
};
static const struct tool_usage usage = { .tool = "tool", .help = "A tool.", .options = rows };

static int read_line(struct option_values *v, const char *a, const char *b)
{
	char *argv[] = { "tool", (char *)a, (char *)b, NULL };

	return tool_options_read(&usage, b ? 3 : a ? 2 : 1, argv, v);
}

Test(tools, options_have_the_defaults_that_their_help_names)
{
	struct option_values v;

	cr_assert_eq(read_line(&v, NULL, NULL), 0);
	cr_assert(!v.flag && v.number == 3 && v.size == 32u << 20 && v.real == 0.5 && !v.text &&
		  v.choice == 0);
}

Test(tools, options_take_long_and_short_forms_words_and_alternatives)
{
	struct option_values v;

	cr_assert(!read_line(&v, "-n", "7") && v.number == 7);
	cr_assert(!read_line(&v, "--number=7", "-f") && v.number == 7 && v.flag);
	cr_assert(!read_line(&v, "--number", "all") && v.number == -1);
	cr_assert(!read_line(&v, "-c", "azure") && v.choice == 1);
	cr_assert(!read_line(&v, "-s1.5K", "-f") && v.size == 1536);
}

Test(tools, options_out_of_range_and_unknown_words_are_refused)
{
	static const char *const bad[][2] = {
		{ "-n", "0" },    { "-n", "10" },      { "-n", "1x" },      { "-n", "" },
		{ "-s", "-1" },   { "--real", "2" },   { "--real", "nan" }, { "-c", "green" },
		{ "-c", "" },     { "--nunber", "1" }, { "-q", NULL },      { "-n", NULL },
		{ "word", NULL }, { "--text", "" },
	};
	struct option_values v;

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		cr_assert_eq(read_line(&v, bad[i][0], bad[i][1]), 2, "%s %s", bad[i][0],
			     bad[i][1] ? bad[i][1] : "");
}

Test(tools, arguments_beside_the_options_stand_before_and_behind_them)
{
	static const struct tool_usage two = { .tool = "tool", .options = rows, .operands = "A B" };
	char *argv[] = { "tool", "a", "-n", "7", "b", "-f", NULL };
	char *three[] = { "tool", "a", "b", "c", NULL }, *none[] = { "tool", NULL };
	struct option_values v;

	cr_assert(!tool_options_read(&two, 6, argv, &v) && v.number == 7 && v.flag);
	cr_assert_str_eq(tool_arguments()[0], "a");
	cr_assert_str_eq(tool_arguments()[1], "b");
	cr_assert_null(tool_arguments()[2]);
	cr_assert_eq(tool_options_read(&two, 4, three, &v), 2);
	cr_assert(!tool_options_read(&two, 1, none, &v) && !tool_arguments()[0]);
}

Test(tools, edit_distance_counts_changed_characters)
{
	cr_assert_eq(tool_edit_distance("plan", "plan"), 0);
	cr_assert_eq(tool_edit_distance("pln", "plan"), 1);
	cr_assert_eq(tool_edit_distance("info", "nifo"), 2);
	cr_assert_eq(tool_edit_distance("", "abc"), 3);
}

/* ---- figures and JSON ------------------------------------------------------------------------ */

Test(tools, quantiles_are_of_the_nearest_rank)
{
	double x[200];

	for (int i = 0; i < 200; i++)
		x[i] = i + 1;
	cr_assert_eq(bench_quantile(x, 1, 0.99), 1);
	cr_assert_eq(bench_quantile(x, 4, 0.5), 2);
	cr_assert_eq(bench_quantile(x, 5, 0.5), 3);
	cr_assert_eq(bench_quantile(x, 100, 0.99), 99);
	cr_assert_eq(bench_quantile(x, 200, 0.99), 198);
	cr_assert_eq(bench_quantile(x, 20, 0.99), 20);
}

Test(tools, figures_fit_their_column)
{
	static const struct {
		double value;
		int width;
		const char *text;
	} cases[] = {
		{ 12.341, 7, "  12.34" },    { 0, 6, "  0.00" },
		{ 12345.67, 7, "12345.7" },  { 1234567.8, 7, "1234568" },
		{ 123456789, 7, "1.2e+08" }, { 999.999, 6, "1000.0" },
		{ 123456, 6, "123456" },     { 12345678, 6, " 1e+07" },
	};
	char text[16];

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		cr_assert_str_eq(bench_fit(text, cases[i].width, cases[i].value), cases[i].text);
}

Test(tools, json_has_its_commas_and_escapes)
{
	char *text = NULL;
	size_t bytes;
	struct bench_json j = { .to = open_memstream(&text, &bytes) };

	bench_json_open(&j, NULL, '{');
	bench_json_text(&j, "te\"xt", "a\\b\n\xe4");
	bench_json_open(&j, "list", '[');
	bench_json_int(&j, NULL, -3);
	bench_json_real(&j, NULL, 0.5);
	bench_json_real(&j, NULL, INFINITY);
	bench_json_close(&j, ']');
	bench_json_open(&j, "none", '[');
	bench_json_close(&j, ']');
	bench_json_bool(&j, "yes", true);
	bench_json_null(&j, "null");
	bench_json_close(&j, '}');
	fclose(j.to);
	cr_assert_str_eq(
		text,
		"{\n  \"te\\\"xt\": \"a\\\\b\\u000a\\u00e4\",\n  \"list\": [\n    -3,\n    0.5,\n    null\n  ],\n"
		"  \"none\": [],\n  \"yes\": true,\n  \"null\": null\n}");
	free(text);
}

Test(tools, a_tool_is_found_by_its_name_with_or_without_underscores)
{
	cr_assert_eq(bench_of_tool("allreduce_perf"), &bench_collectives[TT_ALLREDUCE]);
	cr_assert_eq(bench_of_tool("all_reduce_perf"), &bench_collectives[TT_ALLREDUCE]);
	cr_assert_eq(bench_of_tool("reduce_scatter_perf"), &bench_collectives[TT_REDUCE_SCATTER]);
	cr_assert_eq(bench_of_tool("reduce_perf"), &bench_collectives[TT_REDUCE]);
	cr_assert_null(bench_of_tool("allreduce"));
	cr_assert_null(bench_of_tool("perf"));
}

Test(tools, the_noise_of_a_tuning_is_the_factor_between_the_halves_of_its_calls)
{
	struct tool_tune_sample samples[10];
	const struct tool_tune t = { .samples = samples, .nsamples = 10 };

	for (int i = 0; i < 10; i++)
		samples[i] = (struct tool_tune_sample){ .half_us = { 3, i < 8   ? 3
									: i < 9 ? 6
										: 1 } };
	cr_assert_float_eq(tool_tune_noise(&t, 0.5), 1, 1e-9);
	cr_assert_float_eq(tool_tune_noise(&t, 0.9), 2, 1e-9);
	cr_assert_float_eq(tool_tune_noise(&t, 1), 3, 1e-9);
	cr_assert(isnan(tool_tune_noise(&(struct tool_tune){ 0 }, 0.5)));
}
