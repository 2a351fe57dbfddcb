/*
 * test_locality.c - groups of ranks bound to parts of a host; plans of hierarchical with these
 * groups
 *
 * fixtures/MACHINE.xml is a machine as hwloc exports it. MACHINE.groups has lines "binding of each
 * rank -> groups". The test creates a folder like /sys of the machine, the library reads it, and
 * hwloc gives the expected locality.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "algorithms/algorithms.h"
#include "comm/comm.h"
#include "tests/support/files.h"

#define MOST 16

static const char *const machines[] = { "two-sockets",      "two-sockets-alternating",
					"two-sockets-snc2", "four-sockets",
					"one-socket-nps4",  "one-socket-two-caches",
					"virtual-machine",  "hybrid" };

/* "(0 1) (2 3)" */
static const char *text_of(const int *group_of, int n, int ngroups)
{
	static char text[256];
	size_t used = 0;

	for (int g = 0; g < ngroups; g++) {
		const char *before = g ? " (" : "(";

		for (int r = 0; r < n; r++)
			if (group_of[r] == g) {
				used += (size_t)snprintf(text + used, sizeof(text) - used, "%s%d",
							 before, r);
				before = " ";
			}
		used += (size_t)snprintf(text + used, sizeof(text) - used, ")");
	}
	return text;
}

#ifdef HAVE_HWLOC
#include <hwloc.h>

static char sys[64]; /* folder like /sys/devices/system */

static void write_file(const char *folder, const char *name, const char *text)
{
	char path[300];

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	write_file_in(sys, path, text);
}

static void write_list(const char *folder, const char *name, hwloc_const_bitmap_t set)
{
	char text[256];

	hwloc_bitmap_list_snprintf(text, sizeof(text), set);
	write_file(folder, name, text);
}

/* The processors of the object of a level that contains `set`; NULL: none does. */
static hwloc_const_bitmap_t enclosing(hwloc_topology_t h, enum tt_level level,
				      hwloc_const_bitmap_t set)
{
	static const hwloc_obj_type_t types[] = { [TT_PACKAGE] = HWLOC_OBJ_PACKAGE,
						  [TT_NUMA_NODE] = HWLOC_OBJ_NUMANODE,
						  [TT_L3_CACHE] = HWLOC_OBJ_L3CACHE };
	hwloc_obj_t o = NULL;

	while ((o = hwloc_get_next_obj_by_type(h, types[level], o)))
		if (hwloc_bitmap_isincluded(set, o->cpuset))
			return o->cpuset;
	return NULL;
}

static void write_processor(hwloc_topology_t h, hwloc_obj_t pu)
{
	hwloc_const_bitmap_t package = enclosing(h, TT_PACKAGE, pu->cpuset),
			     l3 = enclosing(h, TT_L3_CACHE, pu->cpuset);
	hwloc_obj_t node = NULL;
	char cpu[64], folder[128];

	snprintf(cpu, sizeof(cpu), "cpu/cpu%u", pu->os_index);
	snprintf(folder, sizeof(folder), "%s/topology", cpu);
	write_list(folder, pu->os_index % 2 ? "package_cpus_list" : "core_siblings_list", package);
	while ((node = hwloc_get_next_obj_by_type(h, HWLOC_OBJ_NUMANODE, node)))
		if (hwloc_bitmap_isincluded(pu->cpuset, node->cpuset)) {
			snprintf(folder, sizeof(folder), "%s/node%u", cpu, node->os_index);
			write_list(folder, "cpulist", node->cpuset);
			snprintf(folder, sizeof(folder), "node/node%u", node->os_index);
			write_list(folder, "cpulist", node->cpuset);
		}
	for (int i = 0; i < 4 && l3; i++) {
		snprintf(folder, sizeof(folder), "%s/cache/index%d", cpu, i);
		write_file(folder, "level", i < 2 ? "1" : i == 2 ? "2" : "3");
		write_list(folder, "shared_cpu_list", i == 3 ? l3 : pu->cpuset);
	}
}

static hwloc_topology_t load(const char *machine)
{
	const char *top = getenv("top_srcdir");
	char path[512];
	hwloc_topology_t h;
	hwloc_obj_t pu = NULL;

	snprintf(path, sizeof(path), "%s/tests/fixtures/%s.xml", top ? top : "..", machine);
	cr_assert(!hwloc_topology_init(&h) && !hwloc_topology_set_xml(h, path) &&
			  !hwloc_topology_load(h),
		  "%s", path);
	snprintf(sys, sizeof(sys), "/tmp/test_groups.XXXXXX");
	cr_assert_not_null(mkdtemp(sys));
	while ((pu = hwloc_get_next_obj_by_type(h, HWLOC_OBJ_PU, pu)))
		write_processor(h, pu);
	return h;
}

static void unload(hwloc_topology_t h)
{
	char command[128];

	hwloc_topology_destroy(h);
	snprintf(command, sizeof(command), "rm -rf %s", sys);
	cr_assert_eq(system(command), 0);
}

/* The locality that the library reads, compared with hwloc's. */
static struct tt_locality locality_of(hwloc_topology_t h, const char *from,
				      hwloc_const_bitmap_t set)
{
	uint64_t mask[TT_CPU_WORDS] = { 0 };
	struct tt_locality locality;
	int cpu;

	hwloc_bitmap_foreach_begin(cpu, set) mask[cpu / 64] |= 1ull << cpu % 64;
	hwloc_bitmap_foreach_end();
	locality = tt_locality_read(from, mask);
	for (int level = 0; level < TT_LEVELS; level++) {
		bool bound = enclosing(h, TT_PACKAGE, set);
		hwloc_const_bitmap_t all = bound ? enclosing(h, (enum tt_level)level, set) : NULL;

		cr_expect_eq(locality.in[level], all ? hwloc_bitmap_first(all) : -1,
			     "%s: level %d: %d", from, level, locality.in[level]);
	}
	return locality;
}

static int form(const struct tt_locality *localities, const int *host_of, int nhosts, int n,
		int *group_of)
{
	struct tt_topology t = { .nranks = n, .nhosts = nhosts, .host_of = host_of };
	struct tt_host_ranks hosts;
	int ngroups;

	cr_assert_eq(tt_host_ranks_make(&t, &hosts), 0);
	ngroups = tt_groups_form(localities, &hosts, n, group_of);
	tt_host_ranks_free(&hosts);
	return ngroups;
}

/* One line of MACHINE.groups. */
static void check_line(hwloc_topology_t h, const char *machine, char *line)
{
	struct tt_locality localities[MOST];
	int host_of[MOST] = { 0 }, group_of[MOST], n = 0;
	char *wanted = strstr(line, " -> "), *rest = line, *word;
	hwloc_bitmap_t set = hwloc_bitmap_alloc();

	cr_assert_not_null(wanted, "%s: %s", machine, line);
	*wanted = '\0';
	wanted += 4;
	wanted[strcspn(wanted, "\n")] = '\0';
	while ((word = strsep(&rest, " "))) {
		cr_assert(n < MOST && !hwloc_bitmap_list_sscanf(set, word));
		localities[n++] = locality_of(h, sys, set);
	}
	cr_expect_str_eq(text_of(group_of, n, form(localities, host_of, 1, n, group_of)), wanted,
			 "%s", machine);
	hwloc_bitmap_free(set);
}

Test(locality, groups_follow_the_sockets_numa_nodes_and_caches_of_the_bindings, .timeout = 60)
{
	const char *top = getenv("top_srcdir");
	char path[512], line[256];

	for (size_t i = 0; i < sizeof(machines) / sizeof(*machines); i++) {
		hwloc_topology_t h = load(machines[i]);
		int lines = 0;
		FILE *f;

		snprintf(path, sizeof(path), "%s/tests/fixtures/%s.groups", top ? top : "..",
			 machines[i]);
		f = fopen(path, "r");
		cr_assert_not_null(f, "%s", path);
		for (; fgets(line, sizeof(line), f); lines++)
			check_line(h, machines[i], line);
		cr_expect_gt(lines, 0, "%s", path);
		fclose(f);
		unload(h);
	}
}

Test(locality, the_locality_of_this_host_agrees_with_hwloc, .timeout = 60)
{
	hwloc_topology_t h;
	hwloc_obj_t pu = NULL;

	cr_assert(!hwloc_topology_init(&h) && !hwloc_topology_load(h));
	while ((pu = hwloc_get_next_obj_by_type(h, HWLOC_OBJ_PU, pu)))
		locality_of(h, TT_SYS, pu->cpuset);
	locality_of(h, TT_SYS, hwloc_topology_get_topology_cpuset(h));
	hwloc_topology_destroy(h);
}
#else
Test(locality, groups_follow_the_sockets_numa_nodes_and_caches_of_the_bindings)
{
	cr_skip_test("built without hwloc, which reads the machines of the fixtures");
}
#endif

Test(locality, the_locality_is_unknown_without_sys)
{
	uint64_t mask[TT_CPU_WORDS] = { 1 };
	struct tt_locality p = tt_locality_read("/nonexistent", mask);

	cr_expect(p.in[TT_PACKAGE] == -1 && p.in[TT_NUMA_NODE] == -1 && p.in[TT_L3_CACHE] == -1);
}

/* Hosts with interleaved ranks; one of the hosts is divided. */
Test(locality, groups_lie_within_hosts_and_are_numbered_by_their_lowest_ranks)
{
	static const struct tt_locality a = { { 0, 0, 0 } }, b = { { 8, 8, 8 } },
					any = { { -1, -1, -1 } };
	struct tt_locality localities[] = { any, a, any, b, any, a, b, any };
	int host_of[] = { 0, 1, 0, 1, 0, 1, 1, 2 }, group_of[8];

	cr_expect_str_eq(text_of(group_of, 8, form(localities, host_of, 3, 8, group_of)),
			 "(0 2 4) (1 5) (3 6) (7)");
	localities[5] = b;
	localities[6] = any;
	cr_expect_str_eq(text_of(group_of, 8, form(localities, host_of, 3, 8, group_of)),
			 "(0 2 4) (1) (3 5) (6) (7)");
}

/* All records of the plans of all ranks are equal. */
static void expect_same_plans(const char *name, const struct tt_topology *one,
			      const struct tt_topology *other)
{
	const struct tt_algorithm *a = tt_algorithm_find(TT_ALLREDUCE, name);

	for (int r = 0; r < one->nranks; r++) {
		struct tt_shape shape = { .nranks = one->nranks, .rank = r, .topology = one };
		struct tt_plan *p, *q;

		cr_assert_eq(tt_plan_build(a, name, &shape, &p), 0, "%s", tt_error_text());
		shape.topology = other;
		cr_assert_eq(tt_plan_build(a, name, &shape, &q), 0);
		cr_expect(p->nsteps == q->nsteps &&
				  !memcmp(p->steps, q->steps, p->nsteps * sizeof(*p->steps)),
			  "%s rank %d", name, r);
		tt_plan_free(p);
		tt_plan_free(q);
	}
}

Test(locality, groups_of_a_single_host_are_the_hosts_of_hierarchical)
{
	static const char *const names[] = { "hierarchical", "hierarchical:ring/recursive-doubling",
					     "hierarchical:tree/tree" };
	int together[7] = { 0 }, parts[7] = { 0, 1, 0, 1, 1, 0, 1 },
	    hosts[7] = { 0, 0, 0, 1, 1, 1, 1 };
	struct tt_topology groups = { .nranks = 7, .nhosts = 2, .host_of = parts };
	struct tt_topology host = {
		.nranks = 7, .nhosts = 1, .host_of = together, .groups = &groups
	};
	struct tt_topology two = { .nranks = 7, .nhosts = 2, .host_of = hosts }, divided = two;

	divided.groups = &groups;
	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		expect_same_plans(names[i], &host, &groups);
		expect_same_plans(names[i], &divided, &two);
	}
}
