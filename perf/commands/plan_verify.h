/* plan_verify.h - proofs of the algorithms for many numbers of ranks (`tutti plan --verify`) */
#ifndef TOOL_PLAN_VERIFY_H
#define TOOL_PLAN_VERIFY_H

#include <stdbool.h>
#include <stdio.h>

#include "perf/commands/placements.h"

struct tt_algorithm;

enum { TOOL_VERIFY_MAX = 1024 };

struct tool_verify {
	const char *algorithm;       /* "name" or "name:argument"; NULL: all */
	const char *collective;      /* NULL: all */
	bool n[TOOL_VERIFY_MAX + 1]; /* n[k]: prove for k ranks */
};

/* Prints one line per algorithm and "N passed, N failed". Returns 0 | 1 a proof failed | 2 no such
 * algorithm. */
int tool_plan_verify(const struct tool_verify *request);

/* ---- plan_prove.c ---------------------------------------------------------------------------- */

struct tool_verdict {
	FILE *out; /* lines of this algorithm */
	const struct tt_algorithm *algorithm;
	char name[64];
	int passed, failed, refused;
	char why[200]; /* reason of the first refusal */
};

/* Runs and counts the proofs for n ranks; writes failures to v->out. */
void tool_prove_ranks(struct tool_verdict *v, int n, enum tool_thoroughness how);

#endif
