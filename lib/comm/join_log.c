/*
 * join_log.c - TUTTI_LOG=info: what a communicator is, once all ranks have joined
 *
 * Called by comm.c. Each rank logs its host and the transport to each peer; rank 0 also the hosts,
 * the TUTTI_ variables that are set, and the algorithms that calls of each size will use. Reasons
 * against a transport are logged where they are found (paths.c, transports).
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/comm_internal.h"
#include "comm/paths.h"
#include "mem/reduce.h"

/* sizes from 8 bytes to 1 GiB */
#define FIRST_POWER 3
#define LAST_POWER 30

/* ---- ranks and hosts ------------------------------------------------------------------------- */

struct peers { /* of rank c->rank, on one path */
	tuttiComm_t c;
	const struct tt_path *path;
	const struct tt_endpoint *ep;
	bool encrypted;
};

static bool is_reached(const void *ctx, int rank)
{
	const struct peers *p = ctx;

	return rank != p->c->rank && tt_path_via(p->path, rank) == p->ep &&
	       (p->path == p->c->paths.path || tt_path_via(p->c->paths.path, rank) != p->ep) &&
	       tt_path_encrypts(p->path, rank) == p->encrypted;
}

/* "; rank 1 by shm; ranks 2 to 7 by tcp, encrypted": by what the ranks say of their hosts, since no link is
 * connected yet */
static void list_peers(tuttiComm_t c, const struct tt_path *path, char *text, size_t bytes)
{
	size_t have = 0;
	char ranks[160];

	for (int i = 0; i < 2 * c->paths.nep && have < bytes; i++) {
		struct peers p = { c, path, c->paths.ep[i / 2], i % 2 };

		if (tt_rank_list(c->nranks, is_reached, &p, ranks, sizeof(ranks)))
			have += (size_t)snprintf(text + have, bytes - have, "; %s by %s%s", ranks,
						 p.ep->t->name, p.encrypted ? ", encrypted" : "");
	}
}

static void log_rank(tuttiComm_t c)
{
	static const char *const waits[] = { "spins", "yields", "sleeps" };
	char peers[700] = "", host[64];

	for (int i = 0; i < c->paths.npaths; i++)
		list_peers(c, &c->paths.path[i], peers + strlen(peers),
			   sizeof(peers) - strlen(peers));
	tt_control_host_name(c->ctl, c->rank, host, sizeof(host));
	tt_log(TT_LOG_INFO,
	       "rank %d of %d%s%s: host %s; %d rank%s here, %d host%s; waits: %s; sums: %s%s",
	       c->rank, c->nranks, *c->settings.name ? " of " : "", c->settings.name, host,
	       c->hosts.ranks_here, c->hosts.ranks_here == 1 ? "" : "s", c->hosts.topology.nhosts,
	       c->hosts.topology.nhosts == 1 ? "" : "s", waits[c->wait.policy], tt_reduce_isa(),
	       peers);
}

struct host {
	const struct tt_topology *topology;
	int number;
};

static bool is_there(const void *ctx, int rank)
{
	const struct host *h = ctx;

	return tt_topology_host(h->topology, rank) == h->number;
}

static void log_hosts(tuttiComm_t c)
{
	struct host h = { .topology = &c->hosts.topology };
	char ranks[160], host[64];
	int first = 0;

	for (; h.number < c->hosts.topology.nhosts; h.number++) {
		while (!is_there(&h, first))
			first++;
		tt_rank_list(c->nranks, is_there, &h, ranks, sizeof(ranks));
		tt_control_host_name(c->ctl, first, host, sizeof(host));
		tt_log(TT_LOG_INFO, "rank 0: host %s has %s", host, ranks);
	}
}

static void log_variables(void)
{
	for (size_t i = 0; i < tt_env_rows; i++) {
		const char *name = tt_env_table[i].name, *value = getenv(name);

		if (value && strcmp(name, "TUTTI_SECRET"))
			tt_log(TT_LOG_INFO, "rank 0: %s is set to %s", name, value);
	}
}

/* ---- algorithms ------------------------------------------------------------------------------ */

/* The algorithm of a size, "ring" or "ring (verbs)", as plan_cache.c will choose it. false: none */
static bool name_choice(tuttiComm_t c, enum tt_collective collective, size_t bytes, char name[96])
{
	struct tt_shape shape = { .collective = collective,
				  .nranks = c->nranks,
				  .rank = c->rank,
				  .topology = &c->hosts.topology };
	struct tt_call_facts facts = tt_comm_call_facts(c, bytes);
	struct tt_candidate list[TT_MOST_CANDIDATES];
	int best;

	if (tt_plan_candidates(&shape, &facts, list, &best) < 0)
		return false;
	snprintf(name, 96, "%s%s%s%s", list[best].name, list[best].nic_class ? " (" : "",
		 list[best].nic_class ? tt_link_class_name[list[best].nic_class] : "",
		 list[best].nic_class ? ")" : "");
	return true;
}

static const char *size_text(int power, char text[16])
{
	static const char *const units[] = { "B", "KiB", "MiB", "GiB" };

	snprintf(text, 16, "%d %s", 1 << power % 10, units[power / 10]);
	return text;
}

/* "one-shot to 64 KiB, then ring" */
static void log_choices(tuttiComm_t c, enum tt_collective collective)
{
	char text[600] = "", name[96], next[96], size[16];
	size_t have = 0;

	if (!name_choice(c, collective, (size_t)1 << FIRST_POWER, name))
		return;
	for (int power = FIRST_POWER; power < LAST_POWER && have < sizeof(text); power++) {
		if (!name_choice(c, collective, (size_t)2 << power, next))
			return;
		if (strcmp(name, next))
			have += (size_t)snprintf(text + have, sizeof(text) - have, "%s to %s, ",
						 name, size_text(power, size));
		memcpy(name, next, sizeof(name));
	}
	tt_log(TT_LOG_INFO, "rank 0: %s: %s%s%s", tt_collective_name(collective), text,
	       have ? "then " : "", name);
}

static void log_algorithms(tuttiComm_t c)
{
	for (int i = 0; i < TT_SENDRECV; i++)
		if (tt_plan_is_auto(c->settings.algo, (enum tt_collective)i) > 0)
			log_choices(c, (enum tt_collective)i);
		else
			tt_log(TT_LOG_INFO, "rank 0: %s: %s, as requested",
			       tt_collective_name((enum tt_collective)i), c->settings.algo);
}

void tt_join_log(tuttiComm_t c)
{
	if (!tt_log_enabled(TT_LOG_INFO))
		return;
	log_rank(c);
	if (c->rank)
		return;
	log_hosts(c);
	log_variables();
	if (c->nranks > 1)
		log_algorithms(c);
}
