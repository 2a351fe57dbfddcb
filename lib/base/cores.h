/* cores.h - the number of processors that the ranks of one host may use together */
#ifndef TT_CORES_H
#define TT_CORES_H

#include "base/base.h"

/* The limits of one rank. */
struct tt_cores {
	uint64_t mask[TT_CPU_WORDS]; /* affinity mask */
	uint32_t quota;              /* of its control groups (cgroups), in cores; 0: none */
};

/* The calling process's mask and quota. */
void tt_cores_mine(struct tt_cores *ret_cores);
/* The least quota in /proc and /sys below root; "": this machine's. 0: none */
uint32_t tt_cores_quota(const char *root);
/* The number of processors that n ranks may use together; cores[0] is the caller's. */
int tt_cores_count(const struct tt_cores *cores, int n);

#endif
