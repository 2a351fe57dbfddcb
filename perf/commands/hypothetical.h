/*
 * hypothetical.h - hypothetical ranks, hosts and costs, described by command-line options
 *
 * Called by cmd_simulate.c, cmd_info.c and cmd_plan.c.
 */
#ifndef TOOL_HYPOTHETICAL_H
#define TOOL_HYPOTHETICAL_H

#include "tools/options.h"
#include "model/simulate.h"

/* Values of the options; NULL: not given. */
struct tool_hypothetical_options {
	const char *tool; /* name of the tool, for messages */
	int64_t np;
	int64_t cores;      /* per host; 0: one per rank */
	int64_t tile_bytes; /* 0: the library's choice */
	const char *hosts, *transport, *costs;
	const char *nics; /* --nics, NICs of all hosts: none, verbs, soft */
	int64_t groups;   /* --groups, locality groups of each host; 0, 1: none */
};

struct tool_hypothetical {
	struct tt_topology topology; /* owns host_of */
	struct tt_topology groups;   /* the same with --groups, else empty */
	struct tt_cost *read;        /* cost table of --costs, else NULL */
	struct tt_sim_world world;   /* points at topology and cost table */
};

/* Returns 0 | 1, 2: error printed, the exit status. */
int tool_hypothetical_options(const struct tool_hypothetical_options *options,
			      struct tool_hypothetical *ret_world);
void tool_hypothetical_free(struct tool_hypothetical *world);

/* Parses "3" (ranks spread evenly over three hosts) or "2,3,1" (ranks on each host). host_of:
 * [nranks], set by the call. Returns 0 | 2: error printed. */
int tool_hypothetical_hosts(const char *tool, const char *text, int nranks, int *host_of,
			    struct tt_topology *ret_topology);

/* Returns the tt_collective of that name, or -1: error printed. */
int tool_hypothetical_collective(const char *tool, const char *name);

/* Returns the bytes to bind plans to, for a call whose larger buffer has `bytes` bytes. */
size_t tool_hypothetical_bound(int collective, int nranks, size_t bytes);

#endif
