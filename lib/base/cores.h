/* cores.h - the number of processors that the ranks of one host may use together */
#ifndef TT_CORES_H
#define TT_CORES_H

#include "base/base.h"

/* The limits of one rank, or of several ranks together. */
struct tt_cores {
	uint64_t mask[TT_CPU_WORDS]; /* affinity mask */
	uint32_t quota;              /* of its control groups (cgroups), in cores; 0: none */
};

/* The calling process's mask and quota. */
void tt_cores_mine(struct tt_cores *ret_cores);
/* The least quota in /proc and /sys below root; "": this machine's. 0: none */
uint32_t tt_cores_quota(const char *root);
/* Add the limits of one more rank to those of other ranks, zeros: of none. */
void tt_cores_add(struct tt_cores *all, const struct tt_cores *one);
/* The number of processors of these limits, the caller's among them */
int tt_cores_count(const struct tt_cores *all);

#endif
