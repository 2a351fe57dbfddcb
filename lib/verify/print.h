/*
 * print.h - plans as text
 *
 * print.c finds the format and prints the table; print_json.c, print_dot.c and print_goal.c are one
 * format each. Called by the `tutti plan` command and the tests.
 */
#ifndef TT_PRINT_H
#define TT_PRINT_H

#include <stdio.h>

#include "verify/walk.h"

/* Printer of one format. plans: of all ranks in order (all), or of one rank.
 * Returns 0 | TT_SYSTEM (memory). */
typedef int tt_print_fn(struct tt_plan *const *plans, int nplans, bool all, FILE *to);
struct tt_print_format {
	const char *name, *help;
	tt_print_fn *print;
};

tt_print_fn tt_print_json, tt_print_dot, tt_print_goal;

/* Format with that name: "table" (for people), "json", "dot" (Graphviz), "goal" (LogGOPSim; a block
 * counts as 1 byte). NULL: unknown; the error text lists the formats. */
const struct tt_print_format *tt_print_find(const char *name);

/* Print one plan, or the plans of all ranks, to a stream.
 * 0 | TT_ARG (unknown format) | TT_SYSTEM (memory, or an error of the stream). */
int tt_plan_print(const struct tt_plan *plan, const char *format, FILE *to);
int tt_plan_print_all(struct tt_plan *const *plans, int nranks, const char *format, FILE *to);

/* Name of a step, its parts joined by `dash`: "send", "recv-reduce", "recv-reduce-send",
 * "copy-send", "wait" ... */
#define TT_STEP_NAME_BYTES 32
const char *tt_step_name(const struct tt_step *s, char dash, char text[TT_STEP_NAME_BYTES]);
/* Operands of a step: "out[1..2] <- in[1..2] + wire(2)"; the peer is omitted if there is a dst. */
#define TT_STEP_TEXT_BYTES 320
const char *tt_step_text(const struct tt_step *s, char text[TT_STEP_TEXT_BYTES]);
#endif
