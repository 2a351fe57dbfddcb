/*
 * clusters.h - hypothetical ranks on hosts or in locality groups, for tests of the simulator
 *
 * A cluster may be copied until cluster_open_sim or cluster_simulate sets its pointers.
 */
#ifndef TESTS_CLUSTERS_H
#define TESTS_CLUSTERS_H

#include "model/simulate.h"

enum { CLUSTER_RANKS = 1024 };

struct cluster {
	int host_of[CLUSTER_RANKS], group_of[CLUSTER_RANKS];
	struct tt_topology topology, groups;
	struct tt_sim_world world;
};

struct cluster cluster_of(int n, int nhosts, bool tcp, const struct tt_cost *cost);

/* n ranks of one host, bound to locality groups of like size */
struct cluster cluster_of_groups(int n, int ngroups, const struct tt_cost *cost);

struct tt_sim *cluster_open_sim(struct cluster *c, enum tt_collective collective, const char *name);

/* Opens a simulation, simulates one call of all tiles, and closes it. */
struct tt_sim_result cluster_simulate(struct cluster *c, enum tt_collective collective,
				      const char *name, size_t bytes);

#endif
