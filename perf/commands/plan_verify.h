/* plan_verify.h - prove the algorithms of the table for
 * many numbers of ranks (`tutti plan --verify`) */
#ifndef TT_PLAN_VERIFY_H
#define TT_PLAN_VERIFY_H

#include <stdbool.h>
#include <stdio.h>

#include "perf/commands/placements.h"

struct tt_algorithm;

enum { TT_VERIFY_MAX = 1024 };

struct tt_verify {
	const char *algorithm;               /* "name" or "name:argument"; NULL: all */
	const char *collective;              /* NULL: all */
	bool n[TT_VERIFY_MAX + 1];           /* which numbers of ranks */
};

/* Prints one line for each algorithm and "N passed, N failed" at the end. 0 | 1 something failed |
 * 2 no such algorithm. */
int tt_plan_verify(const struct tt_verify *what);

/* ---- plan_prove.c ---------------------------------------------------------------------------- */

struct tt_verdict {
	FILE *out;                           /* the row's lines */
	const struct tt_algorithm *algorithm;
	char name[64];
	int passed, failed, refused;
	char why[200];                       /* the first refusal */
};

/* Counts the proofs for n ranks; failures are written to v->out. */
void tt_prove_ranks(struct tt_verdict *v, int n, enum tt_thoroughness how);

#endif
