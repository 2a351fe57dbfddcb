/*
 * cmd_info.c - `tutti info`: what this build has, what this host has, what is set
 *
 * Called by the table in tutti.c. Everything comes from the library's own tables, so a new transport, variable or
 * algorithm is in it by being there.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>

#include <openssl/crypto.h>
#ifdef HAVE_HWLOC
#include <hwloc.h>
#endif

#include "algorithms/algorithm.h"
#include "base/base.h"
#include "mem/reduce.h"
#include "perf/cmd.h"
#include "perf/host.h"
#include "perf/options.h"
#include "perf/topology.h"
#include "plan/plan.h"
#include "transports/transport.h"
#include "tutti.h"

#ifndef TT_BUILD
#define TT_BUILD "not known"
#endif

/* Transports of other builds and later versions; those in the table are left out. */
static const char *const other_transports[] = { "verbs", "cuda_ipc" };

static void print_build(void)
{
	int code = 0;

	tuttiGetVersion(&code);
	printf("tutti %d.%d.%d\n\nbuild\n", code / 10000, code / 100 % 100, code % 100);
#ifdef __clang__
	printf("  %-22s %s\n", "compiler", __VERSION__);
#else
	printf("  %-22s gcc %s\n", "compiler", __VERSION__);
#endif
	printf("  %-22s %s\n", "command", TT_BUILD);
	printf("  %-22s %s\n", "OpenSSL", OpenSSL_version(OPENSSL_VERSION));
#ifdef HAVE_HWLOC
	printf("  %-22s built with %d.%d.%d\n", "hwloc", HWLOC_API_VERSION >> 16, HWLOC_API_VERSION >> 8 & 255,
	       HWLOC_API_VERSION & 255);
#else
	printf("  %-22s not built in; topology comes from /sys\n", "hwloc");
#endif
	printf("  %-22s not built in\n", "CUDA");
}

static void print_processor(void)
{
	static const char *const sets[] = { "scalar", "avx2", "avx512" };
	char name[128];

	tt_host_cpu(name, sizeof(name));
	printf("\nprocessor\n  %-22s %s\n  %-22s", "name", name, "reduction by");
	for (size_t i = 0; i < sizeof(sets) / sizeof(sets[0]); i++)
		if (!tt_reduce_isa_set(sets[i]))
			printf(" %s", sets[i]);
	tt_error_clear();
	if (tt_reduce_isa_set(getenv("TUTTI_ISA") ? getenv("TUTTI_ISA") : "auto"))
		printf("; TUTTI_ISA: %s\n", tt_error_text());
	else
		printf("; in use: %s\n", tt_reduce_isa());
}

static void print_transports(void)
{
	char why[256];

	printf("\ntransports\n");
	for (int i = 0; tt_transports[i]; i++) {
		const struct tt_transport *t = tt_transports[i];

		why[0] = '\0';
		if (t->probe(why, sizeof(why)) > 0)
			printf("  %-22s on this host: %s\n", t->name, t->help);
		else
			printf("  %-22s not on this host: %s\n", t->name, why);
	}
	for (size_t i = 0; i < sizeof(other_transports) / sizeof(other_transports[0]); i++) {
		bool here = false;

		for (int k = 0; tt_transports[k]; k++)
			here |= !strcmp(tt_transports[k]->name, other_transports[i]);
		if (!here)
			printf("  %-22s not built in\n", other_transports[i]);
	}
}

static void print_topology(void)
{
	struct utsname names;
	struct tt_host_topology t;
	uint64_t bytes = tt_host_free_bytes();

	tt_host_topology(&t);
	printf("\nhost\n");
	if (!uname(&names))
		printf("  %-22s %s, %s %s %s\n", "name", names.nodename, names.sysname, names.release, names.machine);
	printf("  %-22s %d\n  %-22s %d\n", "packages", t.packages, "NUMA nodes", t.numa_nodes);
	printf("  %-22s %d of %.1f MiB\n", "L3 caches", t.l3_caches, (double)t.l3_bytes / 1048576);
	printf("  %-22s %d\n", "cores", t.cores);
	printf("  %-22s %d, of which this process may use %d\n", "processors", t.processors, t.allowed);
	printf("  %-22s ", "groups of ranks");
	tt_host_print_groups();
	if (bytes != UINT64_MAX)
		printf("  %-22s %.1f GiB\n", "free memory", (double)bytes / 1073741824);
	printf("  %-22s %s\n", "as told by", t.source);
}

static void print_environment(void)
{
	struct tt_env env;

	printf("\nenvironment (value; default; what it may be)\n");
	for (size_t i = 0; i < tt_env_rows; i++) {
		const struct tt_env_row *row = &tt_env_table[i];
		const char *value = getenv(row->name);

		if (value && !strcmp(row->name, "TUTTI_SECRET"))
			value = "(set)";
		printf("  %-22s %s; %s; %s\n  %-22s %s%s\n", row->name, value ? value : "not set",
		       *row->fallback ? row->fallback : "no default", row->choices, "", row->help,
		       row->agree ? " (equal on all ranks)" : "");
	}
	tt_error_clear();
	if (tt_env_read(&env))
		printf("  wrong now: %s\n", tt_error_text());
}

static void print_algorithms(void)
{
	printf("\nalgorithms\n");
	for (int c = 0; c < TT_SENDRECV; c++) {
		bool first = true;

		for (int i = 0; tt_algorithms[i]; i++) {
			const struct tt_algorithm *a = tt_algorithms[i];

			if (a->collective != (enum tt_collective)c)
				continue;
			printf("  %-14s %-19s %s\n", first ? tt_collective_name(a->collective) : "", a->name, a->help);
			first = false;
		}
	}
}

int tt_cmd_info(int argc, char **argv)
{
	static const struct tt_option options[] = { { .name = NULL } };
	static const struct tt_usage usage = { "tutti info", "Prints what this build and this host have: build, processor, "
		"transports,\ntopology, environment and algorithms.", options };
	int rc = tt_options_read(&usage, argc, argv, NULL);

	if (rc)
		return rc == 1 ? 0 : rc;
	print_build();
	print_processor();
	print_transports();
	print_topology();
	print_environment();
	print_algorithms();
	return 0;
}
