/* simulate_svg.h - a plot of predicted time over size, of `tutti simulate` */
#ifndef TOOL_SIMULATE_SVG_H
#define TOOL_SIMULATE_SVG_H

#include "perf/commands/hypothetical.h"

enum { SIMULATE_SVG_LEAST = 8 }; /* bytes of the first point */

struct simulate_svg {
	const char *path, *algo; /* algo: a name, or "all" */
	struct tt_sim_world world;
	const struct tt_sim_watch *watch;
	int collective, nranks, nhosts, root;
	uint64_t most_bytes;
	uint32_t most_tiles; /* as in tt_sim_run */
};

/* Simulates the sizes 8, 16, ... most_bytes and writes the plot; leaves out algorithms that do not
 * apply or are too large. 0 | the simulator's error. *ret_failed: 1: the file could not be written,
 * error printed */
int tool_simulate_svg(const struct simulate_svg *s, int *ret_failed);

#endif
