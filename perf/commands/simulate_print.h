/* simulate_print.h - the results of `tutti simulate` as a table and as JSON */
#ifndef TOOL_SIMULATE_PRINT_H
#define TOOL_SIMULATE_PRINT_H

#include "perf/bench/bench.h"
#include "perf/commands/hypothetical.h"

enum { TOOL_FOLD_ABOVE = 1024 }; /* ranks from which --fold auto folds */
enum { FOLD_AUTO, FOLD_YES, FOLD_NO };

struct simulate_options {
	int64_t np, cores, root, tiles, groups;
	uint64_t bytes, tile_bytes;
	const char *hosts, *algo, *collective, *transport, *costs, *nics, *svg, *gpu;
	int format, fold;
	bool links;
};

/* The simulation of one algorithm */
struct tool_simulation {
	char name[64];
	struct tt_sim_result result;
	double alg_gbps, bus_gbps, seconds;
	long max_rss_kib;
};

void tool_simulate_table_head(const struct simulate_options *v,
			      const struct tool_hypothetical *world);
void tool_simulate_table_row(const struct simulate_options *v, const struct tool_simulation *a);
/* Parts of the time, and the cost of the simulation */
void tool_simulate_table_parts(const struct tool_simulation *a);
void tool_simulate_table_links(const struct simulate_options *v, const struct tt_sim *sim,
			       const struct tt_sim_result *r);
void tool_simulate_json_head(struct bench_json *j, const struct simulate_options *v,
			     const struct tool_hypothetical *world);
void tool_simulate_json_simulation(struct bench_json *j, const struct simulate_options *v,
				   const struct tt_sim *sim, const struct tool_simulation *a);

#endif
