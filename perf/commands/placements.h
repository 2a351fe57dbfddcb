/*
 * placements.h - ways to put n ranks on hosts, to prove plans for
 *
 * Called by plan_prove.c and cmd_plan.c.
 */
#ifndef TT_PLACEMENTS_H
#define TT_PLACEMENTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "plan/plan.h"

enum { TT_MAX_PLACED = 1024 };

struct tt_placement {
	struct tt_topology topology;          /* points at host_of: not to be copied */
	int host_of[TT_MAX_PLACED];
};

/* Consecutive ranks: sizes[nhosts] of them on each host. */
void tt_placement_consecutive(const int *sizes, int nhosts, struct tt_placement *ret_placement);
/* nranks dealt out to nhosts hosts in turn. */
void tt_placement_dealt(int nranks, int nhosts, struct tt_placement *ret_placement);

/* How many placements of n ranks there are to be proved, and how thoroughly. */
enum tt_thoroughness {
	/* one host; equal splits; all splits (n <= 10) or 200 drawn; dealt out; scattered */
	TT_ALL_PLACEMENTS,
	/* one host; equal splits; all splits (n <= 6) or 2 drawn; dealt out over two */
	TT_SOME_PLACEMENTS
};

/* Placement number k of n ranks, 0 first: all on one host. false: there is none. */
bool tt_placement_number(int nranks, enum tt_thoroughness how, uint32_t k,
			 struct tt_placement *ret_placement);

/* "2 hosts: 0 0 1 1", shortened when long */
const char *tt_placement_text(const struct tt_placement *p, char *text, size_t bytes);

#endif
