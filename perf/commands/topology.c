/*
 * topology.c - counts packages, NUMA nodes, caches and cores by hwloc if built in, else from /sys
 *
 * Called by cmd_info.c.
 */
#include "perf/commands/topology.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#ifdef HAVE_HWLOC
#include <hwloc.h>

static int read_hwloc(struct tool_host_topology *t)
{
	hwloc_topology_t h;
	hwloc_obj_t l3;
	int known = 0;

	if (hwloc_topology_init(&h))
		return 0;
	/* the whole host, including processors that this process may not use */
	if (!hwloc_topology_set_flags(h, HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED) &&
	    !hwloc_topology_load(h)) {
		t->packages = hwloc_get_nbobjs_by_type(h, HWLOC_OBJ_PACKAGE);
		t->numa_nodes = hwloc_get_nbobjs_by_type(h, HWLOC_OBJ_NUMANODE);
		t->l3_caches = hwloc_get_nbobjs_by_type(h, HWLOC_OBJ_L3CACHE);
		t->cores = hwloc_get_nbobjs_by_type(h, HWLOC_OBJ_CORE);
		t->processors = hwloc_get_nbobjs_by_type(h, HWLOC_OBJ_PU);
		l3 = hwloc_get_obj_by_type(h, HWLOC_OBJ_L3CACHE, 0);
		t->l3_bytes = l3 ? (size_t)l3->attr->cache.size : 0;
		t->source = "hwloc";
		known = 1;
	}
	hwloc_topology_destroy(h);
	return known;
}
#else
static int read_hwloc(struct tool_host_topology *t)
{
	(void)t;
	return 0;
}
#endif

#define CPU "/sys/devices/system/cpu/cpu"

/* Reads the first line of a processor's file; "" if the file is missing. */
static void read_line(int cpu, const char *name, char *text, size_t bytes)
{
	char path[128];
	FILE *f;

	text[0] = '\0';
	snprintf(path, sizeof(path), CPU "%d/%s", cpu, name);
	f = fopen(path, "r");
	if (f && fgets(text, (int)bytes, f))
		text[strcspn(text, "\n")] = '\0';
	if (f)
		fclose(f);
}

/* Returns whether cpu is the first processor in the file's list ("3", "0-3", "0,64"). */
static int is_first(int cpu, const char *name)
{
	char text[256];
	int first;

	read_line(cpu, name, text, sizeof(text));
	return sscanf(text, "%d", &first) == 1 && first == cpu;
}

static void read_sys(struct tool_host_topology *t)
{
	int configured = (int)sysconf(_SC_NPROCESSORS_CONF);
	char path[128], text[64];
	unsigned long long kb;

	*t = (struct tool_host_topology){ .source = "/sys" };
	for (int cpu = 0; cpu < configured; cpu++) {
		snprintf(path, sizeof(path), CPU "%d/topology", cpu);
		if (access(path, F_OK))
			continue;
		t->processors++;
		t->cores += is_first(cpu, "topology/thread_siblings_list");
		t->packages += is_first(cpu, "topology/package_cpus_list");
		t->l3_caches += is_first(cpu, "cache/index3/shared_cpu_list");
	}
	read_line(0, "cache/index3/size", text, sizeof(text));
	if (sscanf(text, "%lluK", &kb) == 1)
		t->l3_bytes = (size_t)kb * 1024;
	for (int node = 0; node < 1024; node++) {
		snprintf(path, sizeof(path), "/sys/devices/system/node/node%d", node);
		t->numa_nodes += !access(path, F_OK);
	}
}

void tool_host_topology(struct tool_host_topology *ret_topology)
{
	struct tool_host_topology t = { .packages = 0 };
	cpu_set_t mine;

	if (!read_hwloc(&t))
		read_sys(&t);
	t.allowed = sched_getaffinity(0, sizeof(mine), &mine) ? 0 : CPU_COUNT(&mine);
	*ret_topology = t;
}
