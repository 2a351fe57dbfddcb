/*
 * locality.c - the package, NUMA node and L3 cache of a rank's processors
 *
 * Called by comm.c and `tutti info` (locality.h). Reads /sys directly: hwloc reads the whole
 * machine, which takes longer than a join may take. tests/unit/test_locality.c compares with hwloc.
 */
#include "comm/locality.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const char *tt_level_name(enum tt_level level)
{
	static const char *const names[TT_LEVELS] = { "package", "NUMA node", "L3 cache" };

	return names[level];
}

static int lowest(const uint64_t mask[TT_CPU_WORDS])
{
	for (int w = 0; w < TT_CPU_WORDS; w++)
		if (mask[w])
			return 64 * w + __builtin_ctzll(mask[w]);
	return -1;
}

/* Reads the CPU list of a file. Returns its lowest processor if the list contains mask, else -1. */
static int holder(const char *path, const uint64_t mask[TT_CPU_WORDS])
{
	uint64_t list[TT_CPU_WORDS];

	if (!tt_cpus_read(path, list))
		return -1;
	for (int w = 0; w < TT_CPU_WORDS; w++)
		if (mask[w] & ~list[w])
			return -1;
	return lowest(list);
}

/* ---- files in /sys with the processors that share a level with cpu --------------------------- */

static void package_file(const char *sys, int cpu, char *path, size_t bytes)
{
	snprintf(path, bytes, "%s/cpu/cpu%d/topology/package_cpus_list", sys, cpu);
	if (access(path, F_OK)) /* name before Linux 5.3 */
		snprintf(path, bytes, "%s/cpu/cpu%d/topology/core_siblings_list", sys, cpu);
}

/* The folder of a processor has an entry named after its NUMA node. */
static void node_file(const char *sys, int cpu, char *path, size_t bytes)
{
	struct dirent *e;
	int node = -1;
	DIR *d;

	snprintf(path, bytes, "%s/cpu/cpu%d", sys, cpu);
	d = opendir(path);
	while (d && node < 0 && (e = readdir(d)))
		if (sscanf(e->d_name, "node%d", &node) != 1)
			node = -1;
	if (d)
		closedir(d);
	snprintf(path, bytes, "%s/node/node%d/cpulist", sys, node);
}

static void l3_file(const char *sys, int cpu, char *path, size_t bytes)
{
	char level[8] = "";
	int i = 0;

	do {
		snprintf(path, bytes, "%s/cpu/cpu%d/cache/index%d/level", sys, cpu, i);
		tt_file_text(path, level, sizeof(level));
	} while (*level && atoi(level) != 3 && ++i);
	snprintf(path, bytes, "%s/cpu/cpu%d/cache/index%d/shared_cpu_list", sys, cpu, i);
}

struct tt_locality tt_locality_read(const char *sys, const uint64_t mask[TT_CPU_WORDS])
{
	static void (*const file_of[TT_LEVELS])(const char *, int, char *, size_t) = {
		[TT_PACKAGE] = package_file,
		[TT_NUMA_NODE] = node_file,
		[TT_L3_CACHE] = l3_file,
	};
	struct tt_locality locality = { { -1, -1, -1 } };
	int cpu = lowest(mask);
	char path[256];

	for (int level = 0; cpu >= 0 && level < TT_LEVELS; level++) {
		file_of[level](sys, cpu, path, sizeof(path));
		locality.in[level] = (int16_t)holder(path, mask);
		if (level == TT_PACKAGE && locality.in[level] < 0)
			break;
	}
	return locality;
}
