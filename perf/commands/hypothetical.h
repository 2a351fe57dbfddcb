/*
 * hypothetical.h - ranks, hosts and costs as a command line describes them, for simulating and choosing
 *
 * Called by cmd_simulate.c, cmd_info.c, cmd_plan.c and cmd_tune.c.
 */
#ifndef TOOL_IMAGINED_H
#define TOOL_IMAGINED_H

#include "tools/options.h"
#include "model/simulate.h"

/* What the options say; NULL: not given. */
struct tool_hypothetical_options {
	const char *tool;                /* for messages */
	/* cores: of each host, 0: one for every rank; tile_bytes 0: as run chooses */
	int64_t np, cores, tile_bytes;
	const char *hosts, *transport, *links;
	const char *cards;               /* of all hosts: none, verbs, soft */
};

struct tool_hypothetical {
	struct tt_topology topology;     /* host_of is ours */
	struct tt_cost *read;            /* what links named, else NULL */
	struct tt_sim_world world;       /* points at both */
};

/* 0 | 1, 2: a sentence went to stderr; the exit status. */
int tool_hypothetical_options(const struct tool_hypothetical_options *what, struct tool_hypothetical *ret_world);
void tool_hypothetical_free(struct tool_hypothetical *world);

/* "3": ranks spread evenly over three hosts; "2,3,1": so many on each; host_of: [nranks]. 0 | 2
 * after a sentence */
int tool_hypothetical_hosts(const char *tool, const char *text, int nranks, int *host_of,
		     struct tt_topology *ret_topology);

/* Number of a collective by name, -1 after a sentence. */
int tool_hypothetical_collective(const char *tool, const char *name);

/* Bytes that plans are bound to, for a call whose larger buffer has so many. */
size_t tool_hypothetical_bound(int collective, int nranks, size_t bytes);

#endif
