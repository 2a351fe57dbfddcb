/*
 * nccl_tests_env.c - variables of nccl-tests: NCCL_TESTS_SPLIT, NCCL_TESTS_SPLIT_MASK,
 * NCCL_TESTS_MIN_BW
 *
 * Called by bench_options.c, before a rank starts, and by bench_thread.c.
 */
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "perf/bench/bench.h"
#include "tools/options.h"

static const char *const words[][2] = { [BENCH_SPLIT_NONE] = { "", "" },
					[BENCH_SPLIT_AND] = { "AND", "&" },
					[BENCH_SPLIT_OR] = { "OR", "|" },
					[BENCH_SPLIT_MOD] = { "MOD", "%" },
					[BENCH_SPLIT_DIV] = { "DIV", "/" } };

/* "0x7" or "7", after blanks, to the end. false: no such number */
static bool read_number(const char *text, int base, int *ret_number)
{
	char *end;
	long value = strtol(text, &end, base);

	*ret_number = (int)value;
	return end != text && !*end && value >= 0 && value <= INT32_MAX;
}

/* "MOD 8", "%8" */
static bool read_split(const char *text, struct bench_split *ret_split)
{
	for (int how = BENCH_SPLIT_AND; how <= BENCH_SPLIT_DIV; how++)
		for (int i = 0; i < 2; i++) {
			const char *word = words[how][i], *number = text + strlen(word);

			if (strncasecmp(text, word, strlen(word)) ||
			    !read_number(number, 0, &ret_split->number))
				continue;
			ret_split->how = (enum bench_split_how)how;
			return how < BENCH_SPLIT_MOD || ret_split->number > 0;
		}
	return false;
}

static int read_splits(const char *tool, struct bench_split *ret_split)
{
	const char *split = getenv("NCCL_TESTS_SPLIT"), *mask = getenv("NCCL_TESTS_SPLIT_MASK");

	*ret_split = (struct bench_split){ BENCH_SPLIT_NONE, 0 };
	if (split && !read_split(split, ret_split))
		return tool_refuse(
			tool,
			"NCCL_TESTS_SPLIT=%s: want AND, OR, MOD or DIV and a number, such as MOD 8",
			split);
	if (split || !mask)
		return 0;
	ret_split->how = BENCH_SPLIT_AND;
	if (!read_number(mask, 16, &ret_split->number))
		return tool_refuse(
			tool, "NCCL_TESTS_SPLIT_MASK=%s: want a hexadecimal number, such as 0x7",
			mask);
	return 0;
}

int bench_nccl_tests_env(const char *tool, struct bench_options *options)
{
	const char *least = getenv("NCCL_TESTS_MIN_BW");
	char *end;

	options->min_bus_gbps = least ? strtod(least, &end) : 0;
	if (least && (end == least || *end || !(options->min_bus_gbps >= 0)))
		return tool_refuse(tool, "NCCL_TESTS_MIN_BW=%s: want a bandwidth in GB/s", least);
	return read_splits(tool, &options->split);
}

int bench_split_color(const struct bench_split *split, int process)
{
	switch (split->how) {
	case BENCH_SPLIT_AND:
		return process & split->number;
	case BENCH_SPLIT_OR:
		return process | split->number;
	case BENCH_SPLIT_MOD:
		return process % split->number;
	case BENCH_SPLIT_DIV:
		return process / split->number;
	default:
		return 0;
	}
}

const char *bench_split_text(const struct bench_split *split, char *text, size_t bytes)
{
	snprintf(text, bytes, split->how < BENCH_SPLIT_MOD ? "%s 0x%x" : "%s %d",
		 words[split->how][0], split->number);
	return text;
}
