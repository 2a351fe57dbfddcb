/*
 * hypothetical.c - hypothetical ranks, hosts and costs (hypothetical.h)
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mem/peer_lines.h"
#include "perf/commands/hypothetical.h"
#include "tools/plural.h"

int tool_hypothetical_hosts(const char *tool, const char *text, int nranks, int *host_of,
			    struct tt_topology *ret_topology)
{
	int hosts = 0, ranks = 0, each, larger;
	const char *at = text;

	do {
		int size = tool_parse_number(&at, 1, nranks);

		if (size < 0 || (*at && *at != ','))
			return tool_refuse(
				tool,
				"--hosts %s: use a number of hosts from 1 to %d, or the number of ranks on "
				"each host (%d in all), such as 2,3,1",
				text, nranks, nranks);
		for (int i = 0; i < size; i++, ranks++)
			if (ranks < nranks)
				host_of[ranks] = hosts;
		hosts++;
	} while (*at++);
	if (hosts > 1 && ranks != nranks)
		return tool_refuse(tool, "--hosts %s: the hosts have %d rank%s, but --np is %d",
				   text, ranks, tool_s(ranks), nranks);
	if (hosts == 1) {
		hosts = ranks;
		each = nranks / hosts;
		larger = nranks % hosts * (each + 1); /* ranks on the hosts with each + 1 ranks */
		for (int r = 0; r < nranks; r++)
			host_of[r] = r < larger ? r / (each + 1)
						: nranks % hosts + (r - larger) / each;
	}
	*ret_topology = (struct tt_topology){ .nranks = nranks,
					      .nhosts = hosts,
					      .host_of = host_of };
	return 0;
}

static int read_costs(const struct tool_hypothetical_options *options,
		      struct tool_hypothetical *ret)
{
	int rc = options->costs ? tt_cost_read(options->costs, &ret->read) : 0;

	ret->world.cost = ret->read ? ret->read : &tt_cost_builtin;
	if (!rc)
		return 0;
	tool_refuse(options->tool, "%s", tt_error_text());
	return rc == TT_ARG ? 2 : 1;
}

/* Returns the link class that --nics names, or -1: unknown name, error printed. */
static int nic_class(const struct tool_hypothetical_options *options)
{
	static const enum tt_link_class known[] = { TT_LINK_VERBS, TT_LINK_SOFT };

	if (!options->nics || !strcmp(options->nics, "none"))
		return TT_NO_NIC;
	for (int i = 0; i < 2; i++)
		if (!strcmp(options->nics, tt_link_class_name[known[i]]))
			return (int)known[i];
	tool_refuse(options->tool, "--nics %s: use none, verbs or soft", options->nics);
	return -1;
}

/* Spreads the ranks of each host, in order, over its locality groups. 0 | 1, 2: error printed */
static int set_groups(const struct tool_hypothetical_options *options,
		      struct tool_hypothetical *ret)
{
	int n = ret->topology.nranks, hosts = ret->topology.nhosts, *count, *group_of;

	if (options->groups <= 1)
		return 0;
	if (options->groups * hosts > n)
		return tool_refuse(
			options->tool,
			"--groups %d: %d rank%s on %d host%s leave groups without a rank; use fewer",
			(int)options->groups, n, tool_s(n), hosts, tool_s(hosts));
	count = calloc(2 * (size_t)hosts, sizeof(*count));
	group_of = malloc((size_t)n * sizeof(*group_of));
	ret->groups = (struct tt_topology){ .nranks = n, .host_of = group_of };
	if (!count || !group_of) {
		free(count);
		return tool_refuse(options->tool, "no memory for %d ranks", n) - 1;
	}
	for (int r = 0; r < n; r++)
		count[ret->topology.host_of[r]]++;
	for (int r = 0; r < n; r++) {
		int host = ret->topology.host_of[r], nth = count[hosts + host]++;

		group_of[r] = host * (int)options->groups +
			      (int)(nth * options->groups / count[host]);
	}
	free(count);
	ret->groups.nhosts = hosts * (int)options->groups;
	ret->topology.groups = &ret->groups;
	return 0;
}

int tool_hypothetical_options(const struct tool_hypothetical_options *options,
			      struct tool_hypothetical *ret)
{
	const char *transport = options->transport ? options->transport : "auto";
	int *host_of = malloc((size_t)options->np * sizeof(*host_of)), rc, nic = nic_class(options);

	*ret = (struct tool_hypothetical){ .world = { .nranks = (int)options->np,
						      .cores = (int)options->cores } };
	if (!host_of)
		return tool_refuse(options->tool, "no memory for %d ranks", (int)options->np) - 1;
	if (nic < 0)
		rc = 2;
	else if (strcmp(transport, "auto") && strcmp(transport, "shm") && strcmp(transport, "tcp"))
		rc = tool_refuse(options->tool, "--transport %s: use auto, shm or tcp", transport);
	else
		rc = tool_hypothetical_hosts(options->tool, options->hosts, (int)options->np,
					     host_of, &ret->topology);
	if (!rc && ret->topology.nhosts > 1 && !strcmp(transport, "shm"))
		rc = tool_refuse(options->tool,
				 "--transport shm does not reach other hosts; use auto");
	if (!rc)
		rc = set_groups(options, ret);
	if (!rc)
		rc = read_costs(options, ret);
	if (rc) {
		free((int *)(uintptr_t)ret->groups.host_of);
		free(host_of);
		ret->topology.host_of = ret->groups.host_of = NULL;
		return rc;
	}
	ret->world.topology = &ret->topology;
	ret->world.paths = (struct tt_connectivity){ .nranks = (int)options->np,
						     .one_host = ret->topology.nhosts == 1,
						     .over_tcp = !strcmp(transport, "tcp"),
						     .cores = (int)options->cores,
						     .readers_own = tt_readers_own,
						     .nic_class = (uint8_t)nic };
	ret->world.message_bytes = options->tile_bytes
					   ? (size_t)options->tile_bytes
					   : tt_connectivity_message_bytes(&ret->world.paths);
	return 0;
}

void tool_hypothetical_free(struct tool_hypothetical *world)
{
	free((int *)(uintptr_t)world->topology.host_of);
	free((int *)(uintptr_t)world->groups.host_of);
	tt_cost_free(world->read);
}

int tool_hypothetical_collective(const char *tool, const char *name)
{
	for (int c = 0; c < TT_SENDRECV; c++)
		if (!strcmp(tt_collective_name((enum tt_collective)c), name))
			return c;
	fprintf(stderr, "%s: --collective %s: unknown; one of:", tool, name);
	for (int c = 0; c < TT_SENDRECV; c++)
		fprintf(stderr, " %s", tt_collective_name((enum tt_collective)c));
	fprintf(stderr, "\n");
	return -1;
}

size_t tool_hypothetical_bound(int collective, int nranks, size_t bytes)
{
	bool even = collective == TT_ALLREDUCE || collective == TT_REDUCE ||
		    collective == TT_BROADCAST;

	return even ? bytes : bytes / (size_t)nranks;
}
