/*
 * cmd_plan.c - `tutti plan`: print an algorithm's plan, or prove the algorithms
 *
 * Called by the table of commands. Printing is lib/verify/print.c's, proving is plan_verify.c's.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "algorithms/algorithms.h"
#include "perf/commands/cmd.h"
#include "perf/commands/hypothetical.h"
#include "tools/options.h"
#include "perf/commands/placements.h"
#include "perf/commands/plan_verify.h"
#include "verify/print.h"

struct values {
	const char *np, *hosts, *collective, *format;
	int64_t rank, root;
	bool plain, fused, verify, list;
};

static const struct tool_option options[] = {
	{ 'n', "np", TOOL_OPT_TEXT, "N", offsetof(struct values, np), NULL, 0, 0, NULL, NULL,
	  "number of ranks; with --verify also 1..64 or 2,4,8" },
	{ 0, "hosts", TOOL_OPT_TEXT, "M", offsetof(struct values, hosts), "1", 0, 0, NULL, NULL,
	  "number of hosts, or how many ranks on each: 2,3,1" },
	{ 0, "rank", TOOL_OPT_INT, "R", offsetof(struct values, rank), "all", 0, TOOL_MAX_PLACED - 1,
	  "all", NULL, "print this rank's plan" },
	{ 0, "root", TOOL_OPT_INT, "R", offsetof(struct values, root), "0", 0, TOOL_MAX_PLACED - 1,
	  NULL, NULL, "root of broadcast, reduce, gather, scatter" },
	{ 0, "collective", TOOL_OPT_TEXT, "NAME", offsetof(struct values, collective), NULL, 0, 0,
	  NULL, NULL,
	  "allreduce (default), reduce, broadcast, allgather, reduce_scatter,\nalltoall, gather, scatter" },
	{ 0, "print", TOOL_OPT_TEXT, "FORMAT", offsetof(struct values, format), "table", 0, 0, NULL,
	  NULL, "table (for people), json (every step), dot (Graphviz),\ngoal (LogGOPSim)" },
	{ 0, "plain", TOOL_OPT_FLAG, NULL, offsetof(struct values, plain), NULL, 0, 0, NULL, NULL,
	  "as the algorithm's author wrote it" },
	{ 0, "fused", TOOL_OPT_FLAG, NULL, offsetof(struct values, fused), NULL, 0, 0, NULL, NULL,
	  "as it is run: compiled, which fuses steps (default)" },
	{ 0, "verify", TOOL_OPT_FLAG, NULL, offsetof(struct values, verify), NULL, 0, 0, NULL, NULL,
	  "prove one algorithm or all, for every root and many placements" },
	{ 0, "list", TOOL_OPT_FLAG, NULL, offsetof(struct values, list), NULL, 0, 0, NULL, NULL,
	  "list the algorithms" },
	{ 0, NULL, 0, NULL, 0, NULL, 0, 0, NULL, NULL, NULL },
};

static const struct tool_usage usage = {
	.tool = "tutti plan",
	.help = "Print the plan of an algorithm, or prove the algorithms without running them.\n"
		"  tutti plan ring --np 4 --rank 1                      one rank's steps, as a table\n"
		"  tutti plan hierarchical --np 6 --hosts 4,2           all ranks, two hosts of 4 and 2\n"
		"  tutti plan tree --np 8 --print dot | dot -Tsvg       a picture\n"
		"  tutti plan ring --np 4 --print json                  for a checker of your own\n"
		"  tutti plan --verify --np 1..64                       prove everything: exit 0, or 1 when one fails\n"
		"  tutti plan --verify ring --np 5 --collective allreduce\n"
		"Exit status: 0 right, 1 a proof failed, 2 bad usage.",
	.options = options,
};

/* ---- the line -------------------------------------------------------------------------------- */

static bool takes_value(const char *argument)
{
	for (const struct tool_option *o = options; o->name; o++)
		if ((!strncmp(argument, "--", 2) && !strcmp(argument + 2, o->name)) ||
		    (o->letter && argument[1] == o->letter && !argument[2]))
			return o->kind != TOOL_OPT_FLAG;
	return false;
}

/* Takes the algorithm's name, which may stand anywhere, out of argv.
 * *ret_name is NULL when there is none. */
static int take_name(int *argc, char **argv, const char **ret_name)
{
	int kept = 1;

	*ret_name = NULL;
	for (int i = 1; i < *argc; i++) {
		if (argv[i][0] == '-') {
			bool pair = takes_value(argv[i]) && i + 1 < *argc;

			argv[kept++] = argv[i];
			if (pair)
				argv[kept++] = argv[++i];
		} else if (*ret_name) {
			fprintf(stderr, "tutti plan: one algorithm at a time, not %s and %s\n",
				*ret_name, argv[i]);
			return 2;
		} else {
			*ret_name = argv[i];
		}
	}
	argv[kept] = NULL;
	*argc = kept;
	return 0;
}

/* "1..64", "5", "2,4,8..16" */
static int read_ranks(const char *text, struct tool_verify *ret_what)
{
	for (const char *at = text;; at++) {
		int first = tool_parse_number(&at, 1, TOOL_VERIFY_MAX), last = first;

		if (!strncmp(at, "..", 2)) {
			at += 2;
			last = tool_parse_number(&at, 1, TOOL_VERIFY_MAX);
		}
		if (first < 0 || last < first || (*at && *at != ',')) {
			fprintf(stderr,
				"tutti plan: --np %s: not numbers of ranks from 1 to %d, as 5, 1..64 or 2,4,8\n",
				text, TOOL_VERIFY_MAX);
			return 2;
		}
		for (int n = first; n <= last; n++)
			ret_what->n[n] = true;
		if (!*at)
			return 0;
	}
}

/* ---- what it does ---------------------------------------------------------------------------- */

static int list(void)
{
	for (int i = 0; tt_algorithms[i]; i++)
		printf("%-14s %-20s %s\n", tt_collective_name(tt_algorithms[i]->collective),
		       tt_algorithms[i]->name, tt_algorithms[i]->help);
	return 0;
}

static int verify(const char *name, const struct values *v)
{
	struct tool_verify what = { .algorithm = name, .collective = v->collective };
	int rc = read_ranks(v->np, &what);

	if (rc)
		return rc;
	if (v->collective && tool_hypothetical_collective(usage.tool, v->collective) < 0)
		return 2;
	if (v->root || v->rank >= 0 || v->plain || v->fused || strcmp(v->hosts, "1") ||
	    strcmp(v->format, "table"))
		return tool_refuse(usage.tool,
			"--verify goes through ranks, roots and hosts by itself: only --np and --collective go with it");
	return tool_plan_verify(&what);
}

static int print(struct tt_plan **plans, int nranks, const struct values *v)
{
	int rc = v->rank >= 0 ? tt_plan_print(plans[v->rank], v->format, stdout) :
		tt_plan_print_all(plans, nranks, v->format, stdout);

	if (!rc)
		return 0;
	tool_refuse(usage.tool, "%s", tt_error_text());
	return rc == TT_ARG ? 2 : 1;
}

static int build_and_print(const char *name, const struct values *v,
			   const struct tt_topology *topology, int collective)
{
	const struct tt_algorithm *a = tt_algorithm_find((enum tt_collective)collective, name);
	struct tt_plan *plans[TOOL_MAX_PLACED] = { NULL };
	int status = a ? 0 : tool_refuse(usage.tool, "%s", tt_error_text());

	for (int r = 0; r < topology->nranks && !status; r++) {
		struct tt_shape shape = { .collective = (enum tt_collective)collective,
					  .nranks = topology->nranks, .rank = r,
					  .root = (int)v->root, .topology = topology };

		if ((v->plain ? tt_plan_build_plain : tt_plan_build)(a, name, &shape, &plans[r]))
			status = tool_refuse(usage.tool, "%s", tt_error_text());
	}
	if (!status)
		status = print(plans, topology->nranks, v);
	for (int r = 0; r < topology->nranks; r++)
		tt_plan_free(plans[r]);
	return status;
}

int tool_cmd_plan(int argc, char **argv)
{
	int host_of[TOOL_MAX_PLACED];
	struct tt_topology topology;
	struct values v;
	const char *name, *np;
	int rc = take_name(&argc, argv, &name);
	int nranks, collective;

	if (rc || (rc = tool_options_read(&usage, argc, argv, &v)))
		return rc == 1 ? 0 : rc;
	if (v.list)
		return list();
	if (!v.np)
		return tool_refuse(usage.tool, "--np is missing: for how many ranks?");
	if (v.verify)
		return verify(name, &v);
	if (!name)
		return tool_refuse(usage.tool,
			"which algorithm? tutti plan --list shows them, tutti plan --help the rest");
	np = v.np;
	nranks = tool_parse_number(&np, 1, TOOL_MAX_PLACED);
	if (nranks < 0 || *np)
		return tool_refuse(usage.tool, "--np %s: not a number of ranks from 1 to %d", v.np,
				 TOOL_MAX_PLACED);
	if (v.rank >= nranks || v.root >= nranks)
		return tool_refuse(usage.tool, "--%s %d: there are ranks 0 to %d",
				 v.rank >= nranks ? "rank" : "root",
				 (int)(v.rank >= nranks ? v.rank : v.root), nranks - 1);
	if (v.plain && v.fused)
		return tool_refuse(usage.tool, "--plain or --fused, not both");
	if (!tt_print_find(v.format))
		return tool_refuse(usage.tool, "%s", tt_error_text());
	collective = tool_hypothetical_collective(usage.tool, v.collective ? v.collective : "allreduce");
	if (collective < 0 ||
	    tool_hypothetical_hosts(usage.tool, v.hosts, nranks, host_of, &topology))
		return 2;
	if (v.root && !tt_collective_rooted((enum tt_collective)collective))
		return tool_refuse(usage.tool, "--root is for reduce, broadcast, gather and scatter");
	return build_and_print(name, &v, &topology, collective);
}
