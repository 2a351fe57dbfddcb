/*
 * hypothetical.c - ranks, hosts and costs that need not exist (hypothetical.h)
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "perf/commands/hypothetical.h"

int tool_hypothetical_hosts(const char *tool, const char *text, int nranks, int *host_of,
		     struct tt_topology *ret_topology)
{
	int hosts = 0, ranks = 0, each, larger;
	const char *at = text;

	do {
		int size = tool_parse_number(&at, 1, nranks);

		if (size < 0 || (*at && *at != ','))
			return tool_refuse(tool, "--hosts %s: not a number of hosts from 1 to %d, nor how many of the "
				"%d ranks are on each, as 2,3,1", text, nranks, nranks);
		for (int i = 0; i < size; i++, ranks++)
			if (ranks < nranks)
				host_of[ranks] = hosts;
		hosts++;
	} while (*at++);
	if (hosts > 1 && ranks != nranks)
		return tool_refuse(tool, "--hosts %s: these are %d ranks, but --np says %d", text,
				 ranks, nranks);
	if (hosts == 1) {
		hosts = ranks;
		each = nranks / hosts;
		larger = nranks % hosts * (each + 1);  /* ranks on hosts with one more */
		for (int r = 0; r < nranks; r++)
			host_of[r] = r < larger ? r / (each + 1) :
						  nranks % hosts + (r - larger) / each;
	}
	*ret_topology = (struct tt_topology){ .nranks = nranks, .nhosts = hosts,
					      .host_of = host_of };
	return 0;
}

static int read_costs(const struct tool_hypothetical_options *what, struct tool_hypothetical *ret)
{
	int rc = what->links ? tt_cost_read(what->links, &ret->read) : 0;

	ret->world.cost = ret->read ? ret->read : &tt_cost_builtin;
	if (!rc)
		return 0;
	tool_refuse(what->tool, "%s", tt_error_text());
	return rc == TT_ARG ? 2 : 1;
}

/* The class of cards with that name; -1: there is none. */
static int card_class(const struct tool_hypothetical_options *what)
{
	static const enum tt_link_class known[] = { TT_LINK_VERBS, TT_LINK_SOFT };

	if (!what->cards || !strcmp(what->cards, "none"))
		return TT_NO_NIC;
	for (int i = 0; i < 2; i++)
		if (!strcmp(what->cards, tt_link_class_name[known[i]]))
			return (int)known[i];
	tool_refuse(what->tool, "--cards %s: use none, verbs or soft", what->cards);
	return -1;
}

int tool_hypothetical_options(const struct tool_hypothetical_options *what, struct tool_hypothetical *ret)
{
	const char *transport = what->transport ? what->transport : "auto";
	int *host_of = malloc((size_t)what->np * sizeof(*host_of)), rc, card = card_class(what);

	*ret = (struct tool_hypothetical){ .world = { .nranks = (int)what->np,
						.cores = (int)what->cores } };
	if (!host_of)
		return tool_refuse(what->tool, "no memory for so many ranks") - 1;
	if (card < 0)
		rc = 2;
	else if (strcmp(transport, "auto") && strcmp(transport, "shm") && strcmp(transport, "tcp"))
		rc = tool_refuse(what->tool, "--transport %s: use auto, shm or tcp", transport);
	else
		rc = tool_hypothetical_hosts(what->tool, what->hosts, (int)what->np, host_of,
				      &ret->topology);
	if (!rc && ret->topology.nhosts > 1 && !strcmp(transport, "shm"))
		rc = tool_refuse(what->tool, "--transport shm does not reach other hosts; use auto");
	if (!rc)
		rc = read_costs(what, ret);
	if (rc) {
		free(host_of);
		ret->topology.host_of = NULL;
		return rc;
	}
	ret->world.topology = &ret->topology;
	ret->world.paths = (struct tt_connectivity){ .nranks = (int)what->np,
					      .one_host = ret->topology.nhosts == 1,
					      .over_tcp = !strcmp(transport, "tcp"),
					      .cores = (int)what->cores, .nic_class = (uint8_t)card };
	ret->world.message_bytes = what->tile_bytes ? (size_t)what->tile_bytes
						    : tt_connectivity_message_bytes(&ret->world.paths);
	return 0;
}

void tool_hypothetical_free(struct tool_hypothetical *world)
{
	free((int *)(uintptr_t)world->topology.host_of);
	tt_cost_free(world->read);
}

int tool_hypothetical_collective(const char *tool, const char *name)
{
	for (int c = 0; c < TT_SENDRECV; c++)
		if (!strcmp(tt_collective_name((enum tt_collective)c), name))
			return c;
	fprintf(stderr, "%s: --collective %s: not one of", tool, name);
	for (int c = 0; c < TT_SENDRECV; c++)
		fprintf(stderr, " %s", tt_collective_name((enum tt_collective)c));
	fprintf(stderr, "\n");
	return -1;
}

size_t tool_hypothetical_bound(int collective, int nranks, size_t bytes)
{
	bool even =
		collective == TT_ALLREDUCE || collective == TT_REDUCE || collective == TT_BROADCAST;

	return even ? bytes : bytes / (size_t)nranks;
}
