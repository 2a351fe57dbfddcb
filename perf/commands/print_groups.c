/*
 * print_groups.c - `tutti info`: locality groups of ranks, one rank bound to each processor
 *
 * Called by cmd_info.c (topology.h). Calls the library's own grouping (comm/comm.h), so that the
 * output matches real communicators.
 */
#include <stdio.h>

#include "comm/comm.h"
#include "perf/commands/topology.h"

enum { MOST = 64 * TT_CPU_WORDS };

/* Prints the processors of group g: "0-3,8". */
static void print_list(const int *cpus, const int *group_of, int n, int g)
{
	const char *before = " ";

	for (int i = 0, end; i < n; i = end) {
		end = i + 1;
		if (group_of[i] != g)
			continue;
		while (end < n && group_of[end] == g && cpus[end] == cpus[end - 1] + 1)
			end++;
		printf(cpus[i] < cpus[end - 1] ? "%s%d-%d" : "%s%d", before, cpus[i],
		       cpus[end - 1]);
		before = ",";
	}
}

void tool_host_print_groups(void)
{
	static struct tt_locality localities[MOST];
	static int group_of[MOST], cpus[MOST], ranks[MOST];
	struct tt_host_ranks hosts = { .nhosts = 1, .first = (int[2]){ 0 }, .rank = ranks };
	struct tt_cores mine;
	int n = 0, ngroups, level;

	tt_cores_mine(&mine);
	for (int cpu = 0; cpu < MOST; cpu++) {
		uint64_t one[TT_CPU_WORDS] = { 0 };

		one[cpu / 64] = mine.mask[cpu / 64] & 1ull << cpu % 64;
		if (!one[cpu / 64])
			continue;
		cpus[n] = cpu;
		ranks[n] = n;
		localities[n++] = tt_locality_read(TT_SYS, one);
	}
	hosts.first[1] = n;
	ngroups = tt_groups_form(localities, &hosts, n, group_of);
	level = tt_groups_level(localities, ranks, n);
	if (level == TT_LEVELS) {
		printf("one, for any binding of ranks\n");
		return;
	}
	printf("by %s, when ranks are bound:", tt_level_name((enum tt_level)level));
	for (int g = 0; g < ngroups; g++)
		print_list(cpus, group_of, n, g);
	printf("\n");
}
