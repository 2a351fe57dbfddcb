/*
 * verbs_locality.c - the first port of a rank: the port nearest to its processors
 *
 * Called by verbs.c in open. An HCA is attached to one package or NUMA node of the host; bytes from
 * other nodes cross the links between them. The kernel lists the processors near an HCA; the
 * affinity mask lists the processors of the rank. The port with the largest intersection comes
 * first. Ranks of a host with several equally near ports, such as unbound ranks, take different
 * ones. The lists are read from /sys directly, without a library.
 *
 * Ports keep their numbers, because port i here must reach port i of the peer. The lower rank of a
 * pair determines the pair's first port (verbs.c).
 */
#include <sched.h>
#include <stdio.h>

#include "transports/verbs/verbs.h"

/* Processors of the rank that are near the HCA; all of them where the kernel has no list. */
static int near_to(const char *sys, const char *nic, const uint64_t mask[TT_CPU_WORDS])
{
	uint64_t local[TT_CPU_WORDS];
	char path[256];
	bool known;
	int n = 0;

	snprintf(path, sizeof(path), "%s/%.64s/device/local_cpulist", sys, nic);
	known = tt_cpus_read(path, local);
	for (int w = 0; w < TT_CPU_WORDS; w++)
		n += __builtin_popcountll(known ? mask[w] & local[w] : mask[w]);
	return n;
}

int tt_verbs_nearest(const char *sys, const struct tt_verbs_rail *rail, int n,
		     const uint64_t mask[TT_CPU_WORDS], int number)
{
	int near[TT_VERBS_RAILS], best = -1, ties = 0;

	for (int i = 0; i < n; i++) {
		near[i] = near_to(sys, rail[i].name, mask);
		if (near[i] > best)
			best = near[i];
	}
	for (int i = 0; i < n; i++)
		ties += near[i] == best;
	for (int i = 0; i < n; i++)
		if (near[i] == best && number-- % ties == 0)
			return i;
	return 0;
}

int tt_verbs_first_rail(const struct tt_verbs_ep *ep)
{
	const struct tt_world *w = ep->base.world;
	uint64_t mask[TT_CPU_WORDS] = { 0 };
	cpu_set_t cpus;
	int number = 0;

	CPU_ZERO(&cpus);
	if (sched_getaffinity(0, sizeof(cpus), &cpus))
		return 0;
	for (int cpu = 0; cpu < CPU_SETSIZE && cpu < 64 * TT_CPU_WORDS; cpu++)
		mask[cpu / 64] |= (uint64_t) !!CPU_ISSET(cpu, &cpus) << cpu % 64;
	for (int r = 0; r < w->rank; r++)
		number += tt_world_host(w, r) == tt_world_host(w, w->rank);
	return tt_verbs_nearest("/sys/class/infiniband", ep->rail, ep->nrails, mask, number);
}
