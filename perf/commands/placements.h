/*
 * placements.h - ways to put n ranks on hosts, to prove plans for
 *
 * Called by plan_prove.c and cmd_plan.c.
 */
#ifndef TOOL_PLACEMENTS_H
#define TOOL_PLACEMENTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "plan/plan.h"

enum { TOOL_MAX_PLACED = 1024 };

struct tool_placement {
	struct tt_topology topology;          /* points at host_of: not to be copied */
	int host_of[TOOL_MAX_PLACED];
};

/* Consecutive ranks: sizes[nhosts] of them on each host. */
void tool_placement_consecutive(const int *sizes, int nhosts, struct tool_placement *ret_placement);
/* nranks dealt out to nhosts hosts in turn. */
void tool_placement_dealt(int nranks, int nhosts, struct tool_placement *ret_placement);

/* How many placements of n ranks there are to be proved, and how thoroughly. */
enum tool_thoroughness {
	/* one host; equal splits; all splits (n <= 10) or 200 drawn; dealt out; scattered */
	TOOL_ALL_PLACEMENTS,
	/* one host; equal splits; all splits (n <= 6) or 2 drawn; dealt out over two */
	TOOL_SOME_PLACEMENTS
};

/* Placement number k of n ranks, 0 first: all on one host. false: there is none. */
bool tool_placement_number(int nranks, enum tool_thoroughness how, uint32_t k,
			 struct tool_placement *ret_placement);

/* "2 hosts: 0 0 1 1", shortened when long */
const char *tool_placement_text(const struct tool_placement *p, char *text, size_t bytes);

#endif
