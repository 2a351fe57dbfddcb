/*
 * cores.c - how many processors the ranks of one host really have
 *
 * Called by comm when ranks join. Affinity masks say where a rank may run, the cgroup's cpu.max how much of it; users
 * run more ranks than cores, and a rank that spins on a core its peer needs costs a thousand times what it saves.
 */
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "comm/comm.h"

/* cgroup v2 "quota period", in whole cores rounded up; 0 when unlimited or unreadable */
static uint32_t cgroup_quota(void)
{
	FILE *f = fopen("/sys/fs/cgroup/cpu.max", "re");
	long quota, period;
	int fields;

	if (!f)
		return 0;
	fields = fscanf(f, "%ld %ld", &quota, &period);
	fclose(f);
	if (fields != 2 || quota <= 0 || period <= 0)
		return 0;
	return (uint32_t)((quota + period - 1) / period);
}

void tt_cores_mine(struct tt_cores *ret_cores)
{
	cpu_set_t set;

	memset(ret_cores, 0, sizeof(*ret_cores));
	ret_cores->quota = cgroup_quota();
	if (sched_getaffinity(0, sizeof(set), &set))
		return;
	for (int cpu = 0; cpu < CPU_SETSIZE && cpu < 64 * TT_CPU_WORDS; cpu++)
		if (CPU_ISSET(cpu, &set))
			ret_cores->mask[cpu / 64] |= 1ull << cpu % 64;
}

int tt_cores_count(const struct tt_cores *cores, int n)
{
	uint64_t all[TT_CPU_WORDS] = { 0 };
	int count = 0;

	for (int i = 0; i < n; i++)
		for (int w = 0; w < TT_CPU_WORDS; w++)
			all[w] |= cores[i].mask[w];
	for (int w = 0; w < TT_CPU_WORDS; w++)
		count += __builtin_popcountll(all[w]);
	if (count == 0)                  /* affinity unreadable, or more than 1024 processors */
		count = (int)sysconf(_SC_NPROCESSORS_ONLN);
	for (int i = 0; i < n; i++)
		if (cores[i].quota && (int)cores[i].quota < count)
			count = (int)cores[i].quota;
	return count;
}
