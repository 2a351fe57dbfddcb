/*
 * cmd_plan.c - `tutti plan`: print the plan of an algorithm, or prove the algorithms
 *
 * Called by the table in tutti_main.c. Calls lib/verify/print.c to print, plan_picture.c and
 * plan_html.c to draw, plan_verify.c to prove.
 */
#include <stdio.h>
#include <string.h>

#include "algorithms/algorithms.h"
#include "perf/commands/cmd.h"
#include "perf/commands/hypothetical.h"
#include "tools/options.h"
#include "perf/commands/placements.h"
#include "perf/commands/plan_picture.h"
#include "perf/commands/plan_verify.h"
#include "verify/print.h"

#define MOST_DRAWN 32 /* ranks */

struct plan_options {
	const char *np, *hosts, *collective, *format;
	int64_t rank, root;
	bool plain, fused, verify, list;
};

static const struct tool_option options[] = {
	{ 'n', "np", TOOL_OPT_TEXT, "N", offsetof(struct plan_options, np), NULL, 0, 0, NULL, NULL,
	  "number of ranks; with --verify also 1..64 or 2,4,8" },
	{ 0, "hosts", TOOL_OPT_TEXT, "M", offsetof(struct plan_options, hosts), "1", 0, 0, NULL,
	  NULL, "number of hosts, or number of ranks on each host: 2,3,1" },
	{ 0, "rank", TOOL_OPT_INT, "R", offsetof(struct plan_options, rank), "all", 0,
	  TOOL_MAX_PLACED - 1, "all", NULL, "print the plan of this rank only" },
	{ 0, "root", TOOL_OPT_INT, "R", offsetof(struct plan_options, root), "0", 0,
	  TOOL_MAX_PLACED - 1, NULL, NULL, "root of broadcast, reduce, gather, scatter" },
	{ 0, "collective", TOOL_OPT_TEXT, "NAME", offsetof(struct plan_options, collective), NULL,
	  0, 0, NULL, NULL,
	  "allreduce (default), reduce, broadcast, allgather, reduce_scatter,\nalltoall, gather, scatter" },
	{ 0, "print", TOOL_OPT_TEXT, "FORMAT", offsetof(struct plan_options, format), "table", 0, 0,
	  NULL, NULL,
	  "table (for people), json (every step), dot (Graphviz),\ngoal (LogGOPSim), svg (a picture), html (a page that steps through it)" },
	{ 0, "plain", TOOL_OPT_FLAG, NULL, offsetof(struct plan_options, plain), NULL, 0, 0, NULL,
	  NULL, "the steps as the algorithm emits them" },
	{ 0, "fused", TOOL_OPT_FLAG, NULL, offsetof(struct plan_options, fused), NULL, 0, 0, NULL,
	  NULL, "the compiled plan, with fused steps, as executed (default)" },
	{ 0, "verify", TOOL_OPT_FLAG, NULL, offsetof(struct plan_options, verify), NULL, 0, 0, NULL,
	  NULL, "prove one algorithm or all, for every root and many placements" },
	{ 0, "list", TOOL_OPT_FLAG, NULL, offsetof(struct plan_options, list), NULL, 0, 0, NULL,
	  NULL, "list the algorithms" },
	{ 0, NULL, 0, NULL, 0, NULL, 0, 0, NULL, NULL, NULL },
};

static const struct tool_usage usage = {
	.tool = "tutti plan",
	.help = "Print the plan of an algorithm, or prove the algorithms without running them.\n"
		"  tutti plan ring --np 4 --rank 1                      one rank's steps, as a table\n"
		"  tutti plan hierarchical --np 6 --hosts 4,2           all ranks, two hosts of 4 and 2\n"
		"  tutti plan tree --np 8 --print svg >tree.svg         a picture\n"
		"  tutti plan ring --np 8 --print html >ring.html       a page that steps through it\n"
		"  tutti plan ring --np 4 --print json                  every step, for other programs\n"
		"  tutti plan --verify --np 1..64                       prove all algorithms\n"
		"  tutti plan --verify ring --np 5 --collective allreduce\n"
		"Exit status: 0 right, 1 a proof failed, 2 wrong usage.",
	.options = options,
	.operands = "ALGORITHM",
};

/* ---- the command line ------------------------------------------------------------------------ */

/* Parses "1..64", "5", "2,4,8..16". Returns 0 | 2: error printed. */
static int read_ranks(const char *text, struct tool_verify *ret_request)
{
	for (const char *at = text;; at++) {
		int first = tool_parse_number(&at, 1, TOOL_VERIFY_MAX), last = first;

		if (!strncmp(at, "..", 2)) {
			at += 2;
			last = tool_parse_number(&at, 1, TOOL_VERIFY_MAX);
		}
		if (first < 0 || last < first || (*at && *at != ',')) {
			fprintf(stderr,
				"tutti plan: --np %s: use numbers of ranks from 1 to %d, such as 5, 1..64 or 2,4,8\n",
				text, TOOL_VERIFY_MAX);
			return 2;
		}
		for (int n = first; n <= last; n++)
			ret_request->n[n] = true;
		if (!*at)
			return 0;
	}
}

/* ---- list, verify, print --------------------------------------------------------------------- */

static int list(void)
{
	for (int i = 0; tt_algorithms[i]; i++)
		printf("%-14s %-20s %s\n", tt_collective_name(tt_algorithms[i]->collective),
		       tt_algorithms[i]->name, tt_algorithms[i]->help);
	return 0;
}

static int verify(const char *name, const struct plan_options *v)
{
	struct tool_verify request = { .algorithm = name, .collective = v->collective };
	int rc = read_ranks(v->np, &request);

	if (rc)
		return rc;
	if (v->collective && tool_hypothetical_collective(usage.tool, v->collective) < 0)
		return 2;
	if (v->root || v->rank >= 0 || v->plain || v->fused || strcmp(v->hosts, "1") ||
	    strcmp(v->format, "table"))
		return tool_refuse(
			usage.tool,
			"--verify proves all ranks, roots and placements; combine it with --np and --collective only");
	return tool_plan_verify(&request);
}

typedef void drawing(const struct tool_picture *picture, FILE *to);

/* The function that draws in a format; NULL: the format is no picture */
static drawing *drawing_of(const char *format)
{
	if (!strcmp(format, "svg"))
		return tool_picture_svg;
	return strcmp(format, "html") ? NULL : tool_picture_html;
}

static int draw(struct tt_plan **plans, const struct tt_topology *topology, const char *format)
{
	struct tool_picture picture;

	if (tool_picture_make(plans, topology, &picture)) {
		tool_refuse(usage.tool, "%s", tt_error_text());
		return 1;
	}
	drawing_of(format)(&picture, stdout);
	tool_picture_free(&picture);
	return 0;
}

static int print(struct tt_plan **plans, int nranks, const struct plan_options *v)
{
	int rc = v->rank >= 0 ? tt_plan_print(plans[v->rank], v->format, stdout)
			      : tt_plan_print_all(plans, nranks, v->format, stdout);

	if (!rc)
		return 0;
	tool_refuse(usage.tool, "%s", tt_error_text());
	return rc == TT_ARG ? 2 : 1;
}

static int build_and_print(const char *name, const struct plan_options *v,
			   const struct tt_topology *topology, int collective)
{
	const struct tt_algorithm *a = tt_algorithm_find((enum tt_collective)collective, name);
	struct tt_plan *plans[TOOL_MAX_PLACED] = { NULL };
	int status = a ? 0 : tool_refuse(usage.tool, "%s", tt_error_text());

	for (int r = 0; r < topology->nranks && !status; r++) {
		struct tt_shape shape = { .collective = (enum tt_collective)collective,
					  .nranks = topology->nranks,
					  .rank = r,
					  .root = (int)v->root,
					  .topology = topology };

		if ((v->plain ? tt_plan_build_plain : tt_plan_build)(a, name, &shape, &plans[r]))
			status = tool_refuse(usage.tool, "%s", tt_error_text());
	}
	if (!status && drawing_of(v->format))
		status = draw(plans, topology, v->format);
	else if (!status)
		status = print(plans, topology->nranks, v);
	for (int r = 0; r < topology->nranks; r++)
		tt_plan_free(plans[r]);
	return status;
}

int tool_cmd_plan(int argc, char **argv)
{
	int host_of[TOOL_MAX_PLACED];
	struct tt_topology topology;
	struct plan_options v;
	const char *name, *np;
	int rc = tool_options_read(&usage, argc, argv, &v);
	int nranks, collective;

	if (rc)
		return rc == 1 ? 0 : rc;
	name = *tool_arguments();
	if (v.list)
		return list();
	if (!v.np)
		return tool_refuse(usage.tool, "--np is missing; give the number of ranks");
	if (v.verify)
		return verify(name, &v);
	if (!name)
		return tool_refuse(usage.tool,
				   "the algorithm is missing; tutti plan --list prints the names");
	np = v.np;
	nranks = tool_parse_number(&np, 1, TOOL_MAX_PLACED);
	if (nranks < 0 || *np)
		return tool_refuse(usage.tool, "--np %s: use a number of ranks from 1 to %d", v.np,
				   TOOL_MAX_PLACED);
	if (v.rank >= nranks || v.root >= nranks)
		return tool_refuse(usage.tool, "--%s %d: no such rank; the ranks are 0 to %d",
				   v.rank >= nranks ? "rank" : "root",
				   (int)(v.rank >= nranks ? v.rank : v.root), nranks - 1);
	if (v.plain && v.fused)
		return tool_refuse(usage.tool, "use --plain or --fused, not both");
	if (drawing_of(v.format) && v.rank >= 0)
		return tool_refuse(usage.tool,
				   "--rank %d: --print %s draws all ranks; use --print table",
				   (int)v.rank, v.format);
	if (drawing_of(v.format) && nranks > MOST_DRAWN)
		return tool_refuse(usage.tool,
				   "--np %d: --print %s draws at most %d ranks; use --print table",
				   nranks, v.format, MOST_DRAWN);
	if (!drawing_of(v.format) && !tt_print_find(v.format))
		return tool_refuse(usage.tool, "%s, svg, html", tt_error_text());
	collective = tool_hypothetical_collective(usage.tool,
						  v.collective ? v.collective : "allreduce");
	if (collective < 0 ||
	    tool_hypothetical_hosts(usage.tool, v.hosts, nranks, host_of, &topology))
		return 2;
	if (v.root && !tt_collective_rooted((enum tt_collective)collective))
		return tool_refuse(
			usage.tool,
			"--root: only reduce, broadcast, gather and scatter have a root");
	return build_and_print(name, &v, &topology, collective);
}
