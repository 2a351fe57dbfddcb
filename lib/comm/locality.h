/*
 * locality.h - the binding of a rank on its host, and the groups of ranks of a host
 *
 * Ranks bound to different packages, NUMA nodes or L3 caches form groups: data moves faster inside
 * a group than between groups. Each rank reads its own locality (locality.c) and sends it to the
 * others when it joins; all ranks compute the same groups (locality_groups.c). Called by comm.c and
 * `tutti info`.
 */
#ifndef TT_LOCALITY_H
#define TT_LOCALITY_H

#include "plan/plan.h"

/* outermost level first */
enum tt_level { TT_PACKAGE, TT_NUMA_NODE, TT_L3_CACHE, TT_LEVELS };
const char *tt_level_name(enum tt_level level); /* "package", "NUMA node" or "L3 cache" */

/* Per level, the lowest processor of the object that contains all processors of the rank. -1: the
 * processors are in several objects, or unknown. Processors in several packages have -1 at every
 * level. */
struct tt_locality {
	int16_t in[TT_LEVELS];
};

#define TT_SYS "/sys/devices/system"

/* Reads the locality from few files: one if the processors are in several packages, else up to a
 * dozen, 10 us each. sys: TT_SYS, or a copy for tests. */
struct tt_locality tt_locality_read(const char *sys, const uint64_t mask[TT_CPU_WORDS]);

/* The ranks of each host, lowest first: those of host h are rank[first[h]] to rank[first[h + 1] - 1] */
struct tt_host_ranks {
	int nhosts, *first, *rank; /* [nhosts + 1], [n] */
};
/* 0 | TT_SYSTEM */
int tt_host_ranks_make(const struct tt_topology *t, struct tt_host_ranks *ret_hosts);
void tt_host_ranks_free(struct tt_host_ranks *hosts);

/* Computes the group of every rank, numbered from 0 in order of their lowest rank; a group lies
 * within a host. Each host is divided at the outermost level at which its ranks differ and some
 * share an object; ranks without a binding at that level form one group. ret_group_of: [n]. Returns
 * the number of groups (nhosts if no host is divided). */
int tt_groups_form(const struct tt_locality *localities, const struct tt_host_ranks *hosts, int n,
		   int *ret_group_of);

/* Level at which a host is divided, by its ranks rank[n]; TT_LEVELS: not divided. */
int tt_groups_level(const struct tt_locality *localities, const int *rank, int n);

#endif
