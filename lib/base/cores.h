/* cores.h - how many processors the ranks of one host may use together */
#ifndef TT_CORES_H
#define TT_CORES_H

#include "base/base.h"

/* One rank's share. */
struct tt_cores {
	uint64_t mask[TT_CPU_WORDS];           /* affinity mask */
	uint32_t quota;                        /* of its control groups, in cores; 0: none */
};

/* The calling process's mask and quota. */
void tt_cores_mine(struct tt_cores *ret_cores);
/* The least quota that /proc and /sys below root state; "": this machine's. 0: none */
uint32_t tt_cores_quota(const char *root);
/* Processors that n ranks, whose own entry is cores[0], may use together. */
int tt_cores_count(const struct tt_cores *cores, int n);

#endif
