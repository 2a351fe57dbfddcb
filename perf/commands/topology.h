/* topology.h - number of packages, NUMA nodes, caches and cores of this host, for `tutti info` */
#ifndef TOOL_TOPOLOGY_H
#define TOOL_TOPOLOGY_H

#include <stddef.h>

struct tool_host_topology {
	int packages, numa_nodes, l3_caches, cores, processors;
	int allowed;        /* processors this process may use */
	size_t l3_bytes;    /* of one L3 cache; 0 unknown */
	const char *source; /* "hwloc" or "/sys" */
};

void tool_host_topology(struct tool_host_topology *ret_topology);

/* print_groups.c: ends the line with "by package, when ranks are bound: 0-15 16-31". */
void tool_host_print_groups(void);

#endif
