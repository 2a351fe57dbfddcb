/*
 * options.h - command line of a tool as one table: values, ranges, defaults and --help
 *
 * Called by the main functions of perf/ and trainer/. A tool declares a struct of values and one
 * row per option; each row holds the offset of its value in the struct. tool_options_read prints
 * by itself: --help to stdout, a wrong command line as one sentence to stderr.
 */
#ifndef TOOL_OPTIONS_H
#define TOOL_OPTIONS_H

#include <stddef.h>
#include <stdint.h>

#include "base/base.h"

/* Kind of an option; sets the type of the field at offset. */
enum tool_option_kind {
	TOOL_OPT_FLAG, /* bool; takes no argument */
	TOOL_OPT_INT,  /* int64_t within min..max; `words` are names of -1, -2 ... */
	TOOL_OPT_SIZE, /* uint64_t bytes: 4096, 64K, 1.5M, 4G */
	TOOL_OPT_REAL, /* double within min..max */
	TOOL_OPT_TEXT, /* const char *, points into argv */
	/* int: number of a word of `words`, from 0; spellings of one word: "half|float16 float" */
	TOOL_OPT_CHOICE
};

struct tool_option {
	char short_name;  /* 0: long form only */
	const char *name; /* long form without the dashes */
	enum tool_option_kind kind;
	const char *argument; /* name of the value in the help */
	size_t offset;        /* offset of the field in the struct of values */
	const char *fallback; /* default, parsed like an argument; NULL: 0, false, NULL */
	double min, max;      /* INT, REAL, SIZE: range; both 0: any number from 0 on */
	const char *words;    /* CHOICE, INT: words separated by spaces */
	const char *refusal;  /* message for a value out of range: reason and remedy; or NULL */
	const char *help;     /* lines separated by \n */
};

struct tool_usage {
	const char *tool;                  /* name of the tool */
	const char *help;                  /* purpose of the tool, a few lines */
	const struct tool_option *options; /* ends with a row whose name is NULL */
	/* the arguments beside the options, which stand before or behind them: a word for each, for --help;
	 * the tool takes as many at most. NULL: none */
	const char *operands;
};

/* Sets every field to its default, then parses argv, whose options it puts before all other arguments.
 * Returns 0: continue | 1: help or version printed, exit with 0 | 2: error printed, exit with 2. */
int tool_options_read(const struct tool_usage *usage, int argc, char **argv, void *values);

/* The arguments beside the options that tool_options_read has found last; NULL behind them */
char **tool_arguments(void);

/* Prints "TOOL 0.1.0" with the library's version. */
void tool_print_version(const char *tool);

/* Prints "TOOL: sentence" to stderr; returns 2, the exit status of a wrong command line. */
int tool_refuse(const char *tool, const char *format, ...) TT_PRINTF(2, 3);

/* Parses "64K", "1.5M", "4G" (powers of 1024). Returns 0, or -1: text is no size. */
int tool_parse_size(const char *text, uint64_t *ret_bytes);

/* Parses a whole number of min to max and advances *text past the digits. Returns -1: no such
 * number. */
int tool_parse_number(const char **text, int min, int max);

/* Returns the number of the word that text spells (`words` as for TOOL_OPT_CHOICE), or -1. */
int tool_find_word(const char *words, const char *text);

/* Levenshtein distance of a and b; for "did you mean". */
int tool_edit_distance(const char *a, const char *b);

#endif
