/*
 * print.h - plans as text: what the formats share
 *
 * print.c dispatches and prints the table; print_json.c, print_dot.c, print_goal.c are one format
 * each. Used by the `tutti plan` command and the tests.
 */
#ifndef TT_PRINT_H
#define TT_PRINT_H

#include <stdio.h>

#include "verify/walk.h"

/* One format. plans: of all ranks in order (all), or of one rank alone.
 * Returns 0 | TT_SYSTEM (memory). */
typedef int tt_print_fn(struct tt_plan *const *plans, int nplans, bool all, FILE *to);
struct tt_print_format {
	const char *name, *help;
	tt_print_fn *print;
};

tt_print_fn tt_print_json, tt_print_dot, tt_print_goal;

/* The format of that name, or NULL with the known ones in the error text. */
const struct tt_print_format *tt_print_find(const char *name);

/* The plans of all ranks together.
 * 0 | TT_ARG (unknown format) | TT_SYSTEM (the stream has an error). */
int tt_plan_print_all(struct tt_plan *const *plans, int nranks, const char *format, FILE *to);

/* What a step does, joined by `dash`: "send", "recv-reduce",
 * "recv-reduce-send", "copy-send", "wait" ... */
#define TT_STEP_NAME_BYTES 32
const char *tt_step_name(const struct tt_step *s, char dash, char text[TT_STEP_NAME_BYTES]);
/* "out[1..2] <- in[1..2] + wire(2)", without the wire it goes to when it goes to a block too */
#define TT_STEP_TEXT_BYTES 320
const char *tt_step_text(const struct tt_step *s, char text[TT_STEP_TEXT_BYTES]);
#endif
