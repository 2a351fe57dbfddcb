/*
 * cmd_info.c - `tutti info`: build, host, environment variables, algorithms; choice for one call
 *
 * Called by the table in tutti_main.c. Reads the library's own tables, so a new transport, variable
 * or algorithm appears without a change here.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>

#include <openssl/crypto.h>
#ifdef HAVE_HWLOC
#include <hwloc.h>
#endif

#include "algorithms/algorithms.h"
#include "base/base.h"
#include "mem/reduce.h"
#include "perf/commands/cmd.h"
#include "tools/host.h"
#include "perf/commands/hypothetical.h"
#include "tools/options.h"
#include "perf/commands/topology.h"
#include "model/choose.h"
#include "tools/plural.h"
#include "transports/transport.h"
#include "tutti.h"

#ifndef TOOL_BUILD
#define TOOL_BUILD "unknown"
#endif

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
	printf("  %-22s %s\n", "command", TOOL_BUILD);
	printf("  %-22s %s\n", "OpenSSL", OpenSSL_version(OPENSSL_VERSION));
#ifdef HAVE_HWLOC
	printf("  %-22s built with %d.%d.%d\n", "hwloc", HWLOC_API_VERSION >> 16,
	       HWLOC_API_VERSION >> 8 & 255, HWLOC_API_VERSION & 255);
#else
	printf("  %-22s not built in; topology comes from /sys\n", "hwloc");
#endif
	tool_info_kernels();
}

static void print_processor(void)
{
	static const char *const sets[] = { "scalar", "avx2", "avx512" };
	char name[128];

	tool_host_cpu(name, sizeof(name));
	printf("\nprocessor\n  %-22s %s\n  %-22s", "name", name, "reduction by");
	for (size_t i = 0; i < sizeof(sets) / sizeof(sets[0]); i++)
		if (!tt_reduce_isa_set(sets[i]))
			printf(" %s", sets[i]);
	tt_error_clear();
	if (tt_reduce_isa_set(getenv("TUTTI_ISA") ? getenv("TUTTI_ISA") : "auto"))
		printf("; %s\n", tt_error_text());
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
}

static void print_topology(void)
{
	struct utsname names;
	struct tool_host_topology t;
	uint64_t bytes = tool_host_free_bytes();

	tool_host_topology(&t);
	printf("\nhost\n");
	if (!uname(&names))
		printf("  %-22s %s, %s %s %s\n", "name", names.nodename, names.sysname,
		       names.release, names.machine);
	printf("  %-22s %d\n  %-22s %d\n", "packages", t.packages, "NUMA nodes", t.numa_nodes);
	printf("  %-22s %d of %.1f MiB\n", "L3 caches", t.l3_caches, (double)t.l3_bytes / 1048576);
	printf("  %-22s %d\n", "cores", t.cores);
	printf("  %-22s %d, of which this process may use %d\n", "processors", t.processors,
	       t.allowed);
	printf("  %-22s ", "groups of ranks");
	tool_host_print_groups();
	if (bytes != UINT64_MAX)
		printf("  %-22s %.1f GiB\n", "free memory", (double)bytes / 1073741824);
	printf("  %-22s %s\n", "source", t.source);
}

static void print_environment(void)
{
	struct tt_env env;

	printf("\nenvironment (value; default; choices)\n");
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
			printf("  %-14s %-19s %s\n", first ? tt_collective_name(a->collective) : "",
			       a->name, a->help);
			first = false;
		}
	}
}

/* ---- algorithm choice for one call ----------------------------------------------------------- */

struct info_options {
	int64_t np, cores, groups;
	uint64_t plan;
	const char *hosts, *collective, *transport, *costs, *nics;
};

static const struct tool_option options[] = {
	{ 0, "plan", TOOL_OPT_SIZE, "BYTES", offsetof(struct info_options, plan), "0", 0, 0, NULL,
	  NULL, "instead: print which algorithm a call of BYTES bytes would use, and why" },
	{ 'n', "np", TOOL_OPT_INT, "N", offsetof(struct info_options, np), "2", 1, 65534, NULL,
	  NULL, "number of ranks" },
	{ 0, "hosts", TOOL_OPT_TEXT, "M", offsetof(struct info_options, hosts), "1", 0, 0, NULL,
	  NULL, "number of hosts, or number of ranks on each host: 2,3,1" },
	{ 0, "groups", TOOL_OPT_INT, "G", offsetof(struct info_options, groups), "1", 1, 65534,
	  NULL, NULL,
	  "locality groups (packages, NUMA nodes or L3 caches) that the ranks\nof each host are bound to" },
	{ 0, "collective", TOOL_OPT_TEXT, "NAME", offsetof(struct info_options, collective),
	  "allreduce", 0, 0, NULL, NULL, "collective of the call" },
	{ 0, "transport", TOOL_OPT_TEXT, "NAME", offsetof(struct info_options, transport), "auto",
	  0, 0, NULL, NULL, "transport inside hosts: auto (shm), shm or tcp" },
	{ 0, "nics", TOOL_OPT_TEXT, "NAME", offsetof(struct info_options, nics), "none", 0, 0, NULL,
	  NULL,
	  "NICs between hosts, in addition to tcp: none, verbs (RDMA hardware)\nor soft (Soft-RoCE)" },
	{ 0, "cores", TOOL_OPT_INT, "C", offsetof(struct info_options, cores), "0", 0, 65534, NULL,
	  NULL, "cores per host; 0: the cores that this process may use" },
	{ 0, "costs", TOOL_OPT_TEXT, "FILE", offsetof(struct info_options, costs), NULL, 0, 0, NULL,
	  NULL, "cost table of `tutti tune`; default: TUTTI_TUNING, else the built-in\ntable" },
	{ 0, NULL, 0, NULL, 0, NULL, 0, 0, NULL, NULL, NULL },
};

static const struct tool_usage usage = {
	.tool = "tutti info",
	.help = "Prints facts about this build and this host: build, processor, transports,\n"
		"topology, environment and algorithms. With --plan: the candidate algorithms of a\n"
		"call, their predicted times, and the chosen one.",
	.options = options,
};

static void print_candidate(const struct tt_candidate *c, const struct tt_candidate *best)
{
	printf("%c %-48s %11.2f", c == best ? '*' : ' ', c->name, (double)c->predicted_ps / 1e6);
	for (int i = 0; i < TT_PARTS; i++)
		printf(" %9.2f", (double)c->part_ps[i] / 1e6);
	if (c->model_ps != c->predicted_ps)
		printf("  x %.2f",
		       (double)c->predicted_ps / (double)(c->model_ps ? c->model_ps : 1));
	printf("%s%s%s%s\n", c->nic_class ? "  by " : "",
	       c->nic_class ? tt_link_class_name[c->nic_class] : "",
	       c->in_place ? "  in place: weighted by 3/4" : "",
	       c->extrapolated ? "  extrapolated from fewer ranks" : "");
}

static int by_cost(const void *a, const void *b)
{
	const struct tt_candidate *x = *(const struct tt_candidate *const *)a,
				  *y = *(const struct tt_candidate *const *)b;

	if (x->counts_ps != y->counts_ps)
		return x->counts_ps < y->counts_ps ? -1 : 1;
	return x->number != y->number ? x->number - y->number : x->nic_class - y->nic_class;
}

#define NAME 80

/* The algorithm, and the NICs that it uses, if any. */
static const char *name_of(const struct tt_candidate *c, char text[NAME])
{
	snprintf(text, NAME, "%s%s%s", c->name, c->nic_class ? " by " : "",
		 c->nic_class ? tt_link_class_name[c->nic_class] : "");
	return text;
}

static void print_why(const struct tt_candidate *best, const struct tt_candidate *next)
{
	char winner[NAME], second[NAME];
	int most = 0;
	int64_t gain = INT64_MIN;

	if (!next) {
		printf("%s is the only one.\n", name_of(best, winner));
		return;
	}
	name_of(best, winner);
	name_of(next, second);
	for (int i = 0; i < TT_PARTS; i++)
		if ((int64_t)(next->part_ps[i] - best->part_ps[i]) > gain) {
			gain = (int64_t)(next->part_ps[i] - best->part_ps[i]);
			most = i;
		}
	if (best->in_place && best->predicted_ps >= next->predicted_ps)
		printf("%s wins: %.2f us slower than %s, but peers read its buffers in place.\n",
		       winner, (double)(best->predicted_ps - next->predicted_ps) / 1e6, second);
	else if (next->predicted_ps < best->predicted_ps && best->overlaps)
		printf("%s wins: %.2f us slower than %s, but no rank works that long, so calls overlap.\n",
		       winner, (double)(best->predicted_ps - next->predicted_ps) / 1e6, second);
	else if (next->predicted_ps < best->predicted_ps)
		printf("%s wins: %.2f us slower than %s, but a rank makes fewer links.\n", winner,
		       (double)(best->predicted_ps - next->predicted_ps) / 1e6, second);
	else if (next->predicted_ps == best->predicted_ps)
		printf("%s is predicted to be as quick as %s, and precedes it in the table.\n",
		       winner, second);
	else
		printf("%s wins: %.2f us faster than %s, most of it in %s.\n", winner,
		       (double)(next->predicted_ps - best->predicted_ps) / 1e6, second,
		       tt_sim_part_name[most]);
}

static int print_choice(const struct info_options *v, const struct tool_hypothetical *world,
			int collective)
{
	struct tt_shape shape = { .collective = (enum tt_collective)collective,
				  .nranks = (int)v->np,
				  .topology = &world->topology };
	struct tt_call_facts facts = { .bytes = v->plan,
				       .over_tcp = world->world.paths.over_tcp,
				       .nic_class = world->world.paths.nic_class,
				       .cores = world->world.cores,
				       .readers_own = world->world.paths.readers_own,
				       .message_bytes = world->world.message_bytes,
				       .cost = world->world.cost };
	struct tt_candidate list[TT_MOST_CANDIDATES];
	const struct tt_candidate *order[TT_MOST_CANDIDATES];
	const char *named = getenv("TUTTI_ALGO");
	int best, count = tt_plan_candidates(&shape, &facts, list, &best), shown = 0;

	if (count < 0) {
		fprintf(stderr, "tutti info: %s\n", tt_error_text());
		return 1;
	}
	printf("# %s of %llu bytes (same choice up to %llu bytes), %d rank%s, %d host%s, %d core%s per host\n",
	       v->collective, (unsigned long long)v->plan, 1ull << tt_size_class(v->plan),
	       (int)v->np, tool_s(v->np), world->topology.nhosts, tool_s(world->topology.nhosts),
	       world->world.cores, tool_s(world->world.cores));
	printf("  %-48s %11s", "algorithm (predicted us)", "time");
	for (int i = 0; i < TT_PARTS; i++)
		printf(" %9s", tt_sim_part_name[i]);
	printf("  measured / model\n");
	for (int i = 0; i < count; i++)
		if (list[i].applies)
			order[shown++] = &list[i];
	qsort(order, (size_t)shown, sizeof(*order), by_cost);
	for (int i = 0; i < shown; i++)
		print_candidate(order[i], order[0]);
	print_why(order[0], shown > 1 ? order[1] : NULL);
	if (collective == TT_ALLREDUCE && named && *named && strcmp(named, "auto") != 0)
		printf("TUTTI_ALGO=%s is set: allreduces use that algorithm instead.\n", named);
	return 0;
}

static int choose(const struct info_options *v)
{
	int collective = tool_hypothetical_collective(usage.tool, v->collective), rc;
	const char *tuning = getenv("TUTTI_TUNING");
	struct tool_host_topology here;
	struct tool_hypothetical world;

	if (collective < 0)
		return 2;
	if (tuning && !*tuning)
		tuning = NULL;
	tool_host_topology(&here);
	rc = tool_hypothetical_options(
		&(struct tool_hypothetical_options){ .tool = usage.tool,
						     .np = v->np,
						     .cores = v->cores ? v->cores : here.allowed,
						     .hosts = v->hosts,
						     .groups = v->groups,
						     .transport = v->transport,
						     .nics = v->nics,
						     .costs = v->costs ? v->costs : tuning },
		&world);
	if (rc)
		return rc;
	rc = print_choice(v, &world, collective);
	tool_hypothetical_free(&world);
	return rc;
}

int tool_cmd_info(int argc, char **argv)
{
	struct info_options v;
	int rc = tool_options_read(&usage, argc, argv, &v);

	if (rc)
		return rc == 1 ? 0 : rc;
	if (v.plan)
		return choose(&v);
	if (argc > 1)
		return tool_refuse(usage.tool,
				   "--plan is missing or 0; give the bytes of a call, such as "
				   "--plan 64K");
	print_build();
	print_processor();
	print_transports();
	print_topology();
	tool_info_gpus();
	print_environment();
	print_algorithms();
	return 0;
}
