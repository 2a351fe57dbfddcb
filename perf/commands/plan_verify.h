/* plan_verify.h - prove the algorithms of the table for
 * many numbers of ranks (`tutti plan --verify`) */
#ifndef TOOL_PLAN_VERIFY_H
#define TOOL_PLAN_VERIFY_H

#include <stdbool.h>
#include <stdio.h>

#include "perf/commands/placements.h"

struct tt_algorithm;

enum { TOOL_VERIFY_MAX = 1024 };

struct tool_verify {
	const char *algorithm;               /* "name" or "name:argument"; NULL: all */
	const char *collective;              /* NULL: all */
	bool n[TOOL_VERIFY_MAX + 1];           /* which numbers of ranks */
};

/* Prints one line for each algorithm and "N passed, N failed" at the end. 0 | 1 something failed |
 * 2 no such algorithm. */
int tool_plan_verify(const struct tool_verify *what);

/* ---- plan_prove.c ---------------------------------------------------------------------------- */

struct tool_verdict {
	FILE *out;                           /* the row's lines */
	const struct tt_algorithm *algorithm;
	char name[64];
	int passed, failed, refused;
	char why[200];                       /* the first refusal */
};

/* Counts the proofs for n ranks; failures are written to v->out. */
void tool_prove_ranks(struct tool_verdict *v, int n, enum tool_thoroughness how);

#endif
