/*
 * options.h - a tool's command line as one table, from which values,
 * ranges, defaults and --help all come
 *
 * Called by the mains of perf/ and trainer/. A tool declares a struct of values and one row for
 * each option; the rows say where in the struct a value goes. Prints by itself, since only tools
 * use it: --help to stdout, a bad line as one sentence to stderr.
 */
#ifndef TOOL_OPTIONS_H
#define TOOL_OPTIONS_H

#include <stddef.h>
#include <stdint.h>

#include "base/base.h"
/* Kinds, and the type of the field behind offset. */
enum tool_option_kind {
	TOOL_OPT_FLAG,      /* bool; takes no argument */
	TOOL_OPT_INT,       /* int64_t within min..max; `words` name -1, -2 ... */
	TOOL_OPT_SIZE,      /* uint64_t bytes: 4096, 64K, 1.5M, 4G */
	TOOL_OPT_REAL,      /* double within min..max */
	TOOL_OPT_TEXT,      /* const char *, into argv */
	/* int: which of `words`, from 0; alternatives of one word: "half|float16 float|float32" */
	TOOL_OPT_CHOICE
};

struct tool_option {
	char letter;              /* 0: long form only */
	const char *name;         /* long form without the dashes */
	enum tool_option_kind kind;
	const char *argument;     /* its name in the help */
	size_t offset;            /* of the field in the struct of values */
	const char *fallback;     /* default, read like an argument; NULL: 0, false, NULL */
	double min, max;          /* INT, REAL, SIZE: the range; both 0: any that is not negative */
	const char *words;        /* CHOICE, INT */
	const char *refusal;      /* said when a value is out of range: why, and what to do */
	const char *help;         /* one line, or several with \n */
};

struct tool_usage {
	const char *tool;                  /* its name */
	const char *help;                  /* what it does, a few lines */
	const struct tool_option *options;   /* ends with a row without name */
};

/* Sets every field to its default, then reads argv. Returns 0: go on | 1: help or version was
 * printed, exit 0 | 2: a sentence went to stderr, exit 2. */
int tool_options_read(const struct tool_usage *usage, int argc, char **argv, void *values);

/* "TOOL 0.1.0" */
void tool_print_version(const char *tool);

/* "TOOL: sentence" on stderr; returns 2, the exit status of a wrong line. */
int tool_refuse(const char *tool, const char *format, ...) TT_PRINTF(2, 3);

/* "64K", "1.5M", "4G" (binary). Returns 0, or -1 when text is no size. */
int tool_parse_size(const char *text, uint64_t *ret_bytes);

/* A whole number from min to max; *text moves behind it. -1: there is none. */
int tool_parse_number(const char **text, int min, int max);

/* Number of a word in a list as of TOOL_OPT_CHOICE, or -1. */
int tool_find_word(const char *words, const char *text);

/* How many letters must be changed to get from a to b; for "did you mean". */
int tool_edit_distance(const char *a, const char *b);

#endif
