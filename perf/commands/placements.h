/*
 * placements.h - placements of n ranks on hosts, enumerated for proofs of plans
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
	struct tt_topology topology; /* points at host_of: do not copy the struct */
	int host_of[TOOL_MAX_PLACED];
};

/* Places consecutive ranks: sizes[h] ranks on host h. */
void tool_placement_consecutive(const int *sizes, int nhosts, struct tool_placement *ret_placement);
/* Places ranks round robin: rank r on host r % nhosts. */
void tool_placement_round_robin(int nranks, int nhosts, struct tool_placement *ret_placement);

/* Set of placements to prove. */
enum tool_thoroughness {
	/* one host; equal splits; all splits (n <= 10) or 200 random ones; round robin over 2 and 3
	 * hosts; 4 random scatters */
	TOOL_ALL_PLACEMENTS,
	/* one host; equal splits; all splits (n <= 6) or 2 random ones; round robin over 2 hosts */
	TOOL_SOME_PLACEMENTS
};

/* Sets placement number k of n ranks; number 0: all ranks on one host. Returns false: the set has no
 * number k. */
bool tool_placement_number(int nranks, enum tool_thoroughness how, uint32_t k,
			   struct tool_placement *ret_placement);

/* Writes "2 hosts: 0 0 1 1", cut to `bytes`; returns text. */
const char *tool_placement_text(const struct tool_placement *p, char *text, size_t bytes);

#endif
