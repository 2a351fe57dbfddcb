/*
 * paths.c - which transport carries which pair of ranks
 *
 * Called by comm when ranks join, and by run when a plan needs a link for the first time. The first
 * transport of the table that reaches a peer carries the pair; both sides come to the same answer
 * because `reaches` is symmetric. Where cards lead to all ranks of all other hosts there are two
 * roads, by tcp and by cards, and each call takes the one that is predicted to be quicker
 * (model/choose.c); links are opened when a call first takes them.
 */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "comm/paths.h"
#include "gpu/gpu.h"
#include "plan/bind.h"

#define YIELDS 50                  /* before sleeping, while a peer connects */
#define PAUSE_MIN_NS 50000u
#define PAUSE_MAX_NS 1000000u
#define ASK_AFTER_NS 500000000ull
#define P2P_BYTES (64u << 10)      /* Send and Recv go the way that is quicker for so many */

static int dial(void *ctx, int peer, int channel, int *ret_fd)
{
	tuttiComm_t c = ctx;

	return tt_control_dial(c->ctl, peer, channel, tt_deadline_ns(c->timeout_ms), ret_fd);
}

static int take(void *ctx, int peer, int channel, int *ret_fd)
{
	tuttiComm_t c = ctx;

	return tt_control_take(c->ctl, peer, channel, ret_fd);
}

/* Links by cards beside those by tcp: other channels to whoever connects them. */
static int dial_card(void *ctx, int peer, int channel, int *ret_fd)
{
	return dial(ctx, peer, TT_CHANNELS + channel, ret_fd);
}

static int take_card(void *ctx, int peer, int channel, int *ret_fd)
{
	return take(ctx, peer, TT_CHANNELS + channel, ret_fd);
}

static int allgather(void *ctx, const void *mine, size_t bytes, void *all)
{
	tuttiComm_t c = ctx;

	return tt_control_allgather(c->ctl, mine, bytes, all, c->world.deadline_ns);
}

static int fetch(void *ctx, void *to, const void *from, size_t bytes)
{
	return tt_gpu_fetch(ctx, to, from, bytes);
}

/* auto: all of them; a name: that one, and self for messages to oneself */
static bool allowed(tuttiComm_t c, const struct tt_transport *t)
{
	if (c->nranks == 1 && t != &tt_self)
		return false;
	if (t == &tt_verbs && c->one_host && strcmp(c->transport, t->name))
		/* shared memory is there; the exchange of addresses would be for nothing */
		return false;
	return t == &tt_self || !strcmp(c->transport, "auto") || !strcmp(c->transport, t->name);
}

static int check_name(tuttiComm_t c)
{
	char known[128] = "auto";

	if (!strcmp(c->transport, "auto"))
		return 0;
	for (const struct tt_transport *const *t = tt_transports; *t; t++) {
		if (!strcmp(c->transport, (*t)->name))
			return 0;
		strncat(known, ", ", sizeof(known) - strlen(known) - 1);
		strncat(known, (*t)->name, sizeof(known) - strlen(known) - 1);
	}
	return tt_fail(TT_ARG, "transport \"%s\" is not known; there are %s", c->transport, known);
}

static int open_one(tuttiComm_t c, const struct tt_transport *t)
{
	char why[256] = "";
	int rc;

	if (!t->probe(why, sizeof(why))) {
		if (!strcmp(c->transport, t->name))
			return tt_fail(TT_SYSTEM,
				       "rank %d: transport %s cannot be used on this host: %s",
				       c->rank, t->name, why);
		tt_log(TT_LOG_INFO, "rank %d: no transport %s on this host: %s", c->rank, t->name,
		       why);
	}
	/* open is collective: a rank that cannot use the transport still takes part and reaches
	 * nobody by it */
	rc = t->open(t == &tt_verbs ? &c->nic_world : &c->world, &c->ep[c->nep]);
	if (!rc)
		c->nep++;
	return rc;
}

static bool insists_on(tuttiComm_t c, const struct tt_transport *t)
{
	return !strcmp(c->transport, t->name);
}

/* Could a card that software emulates be quicker than tcp, for messages of some size? */
static bool is_software_worth(tuttiComm_t c)
{
	const struct tt_cost *cost = c->cost ? c->cost : &tt_cost_builtin;

	for (uint64_t bytes = 1; bytes <= c->world.message_bytes; bytes *= 2)
		if (tt_cost_message_ps(cost, TT_LINK_SOFT, bytes) <
		    tt_cost_message_ps(cost, TT_LINK_HOSTS, bytes))
			return true;
	return false;
}

/* ---- roads ----------------------------------------------------------------------------------- */

int tt_path_make(struct tt_path *road, int nranks)
{
	road->via = calloc((size_t)nranks, sizeof(struct tt_endpoint *));
	road->links = calloc((size_t)nranks * TT_CHANNELS, sizeof(struct tt_link *));
	return road->via && road->links ? 0 : TT_SYSTEM;
}

static struct tt_endpoint *endpoint_of(tuttiComm_t c, const struct tt_transport *t)
{
	for (int i = 0; i < c->nep; i++)
		if (c->ep[i]->t == t)
			return c->ep[i];
	return NULL;
}

static bool is_emulated(const struct tt_endpoint *ep, int peer)
{
	return ep->t->emulated && ep->t->emulated(ep, peer);
}

/* The first transport that reaches a peer carries the pair; NULL where none does. */
static void choose_ways(tuttiComm_t c)
{
	struct tt_path *road = &c->road[0];

	for (int peer = 0; peer < c->nranks; peer++)
		for (int i = 0; i < c->nep && !road->via[peer]; i++)
			if (c->ep[i]->t->reaches(c->ep[i], peer) &&
			    (insists_on(c, c->ep[i]->t) || !is_emulated(c->ep[i], peer)))
				road->via[peer] = c->ep[i];
}

/* The class of the cards by which this rank reaches all that are on other hosts (or all, if they
 * were asked for), or none. */
static enum tt_link_class card_to_all(tuttiComm_t c)
{
	struct tt_endpoint *ep = endpoint_of(c, &tt_verbs);
	enum tt_link_class class = TT_LINK_VERBS;

	if (!ep || c->nranks == 1)
		return TT_NO_NIC;
	for (int peer = 0; peer < c->nranks; peer++) {
		bool near = c->topology.host_of[peer] == c->topology.host_of[c->rank];

		if (peer == c->rank || (near && !insists_on(c, &tt_verbs)))
			continue;
		if (!ep->t->reaches(ep, peer))
			return TT_NO_NIC;
		if (is_emulated(ep, peer))
			class = TT_LINK_SOFT;
	}
	return class;
}

/* All hosts reach each other by cards, and by tcp: a road for each. */
static int fork_road(tuttiComm_t c)
{
	const struct tt_cost *cost = c->cost ? c->cost : &tt_cost_builtin;
	struct tt_endpoint *tcp = endpoint_of(c, &tt_tcp), *verbs = endpoint_of(c, &tt_verbs);

	if (tt_path_make(&c->road[1], c->nranks))
		return tt_fail(TT_SYSTEM, "rank %d: no memory for links to %d ranks", c->rank,
			       c->nranks);
	c->npaths = 2;
	for (int peer = 0; peer < c->nranks; peer++) {
		bool near = c->topology.host_of[peer] == c->topology.host_of[c->rank];

		c->road[0].via[peer] = near ? c->road[0].via[peer] : tcp;
		c->road[1].via[peer] = near ? c->road[0].via[peer] : verbs;
	}
	c->p2p_road = tt_cost_message_ps(cost, (enum tt_link_class)c->card, P2P_BYTES) <
		      tt_cost_message_ps(cost, TT_LINK_HOSTS, P2P_BYTES);
	return 0;
}

/* What a road is like, now that it is known where it leads. */
static void look_at(tuttiComm_t c, struct tt_path *road)
{
	for (int peer = 0; peer < c->nranks; peer++) {
		const struct tt_transport *t = road->via[peer]->t;

		road->expects |= t->expect != NULL;
		if (!peer || t->spins < road->spins)
			road->spins = t->spins;
	}
}

static void look_at_roads(tuttiComm_t c)
{
	const struct tt_path *road = c->road;

	for (int i = 0; i < c->npaths; i++)
		look_at(c, &c->road[i]);
	for (int peer = 0; peer < c->nranks; peer++)
		tt_log(TT_LOG_DEBUG, "rank %d: rank %d by %s%s", c->rank, peer,
		       road[c->npaths - 1].via[peer]->t->name,
		       road[0].via[peer] != road[c->npaths - 1].via[peer] ? " or tcp" : "");
	c->spins = road[0].spins;
	c->slots = c->nranks > 1 ? road[0].via[c->rank ? 0 : 1] : NULL;
	for (int peer = 0; c->slots && peer < c->nranks; peer++)
		if (!c->slots->t->cast || (peer != c->rank && road[0].via[peer] != c->slots))
			c->slots = NULL;
}

/* ---- open ------------------------------------------------------------------------------------ */

int tt_paths_open(tuttiComm_t c)
{
	struct tt_connectivity paths;
	/* a tile must not end within an element */
	size_t tile_bytes = c->tile_bytes - c->tile_bytes % TT_LINE;
	int rc = check_name(c);

	if (rc)
		return rc;
	c->over_tcp = insists_on(c, &tt_tcp) || insists_on(c, &tt_verbs);
	paths = (struct tt_connectivity){ .nranks = c->nranks, .one_host = c->one_host,
				   .over_tcp = c->over_tcp, .cores = c->cores };
	c->world = (struct tt_world){
		.rank = c->rank,
		.nranks = c->nranks,
		.host_of = c->topology.host_of,
		.nchannels = TT_P2P_CHANNEL + 1,
		.message_bytes = tile_bytes ? tile_bytes : tt_connectivity_message_bytes(&paths),
		.deadline_ns = tt_deadline_ns(c->timeout_ms),
		.cma = c->cma,
		.crowded = c->crowded,
		.insist = strcmp(c->transport, "auto") != 0,
		.ib = &c->ib,
		.dial = dial,
		.take = take,
		.allgather = allgather,
		.fetch = fetch,
		.ctx = c,
	};
	c->nic_world = c->world;
	c->nic_world.nchannels = TT_CHANNELS;
	c->nic_world.dial = dial_card;
	c->nic_world.take = take_card;
	c->nic_world.software = is_software_worth(c);
	for (const struct tt_transport *const *t = tt_transports; *t; t++)
		if (allowed(c, *t) && (rc = open_one(c, *t)))
			return rc;
	choose_ways(c);
	return 0;
}

/* A rank that reaches nobody by the transport that was asked for may
 * have said why, and is the cause; so who is not reached says so
 * only when all have come this far, and then all say the same. */
int tt_paths_agree(tuttiComm_t c)
{
	struct word { int32_t lost, card; } mine = { -1, (int32_t)card_to_all(c) }, *all;
	bool cards = true;
	int rc;

	all = malloc((size_t)c->nranks * sizeof(*all));
	if (!all)
		return tt_fail(TT_SYSTEM, "rank %d: no memory for %d ranks", c->rank, c->nranks);
	for (int peer = c->nranks - 1; peer >= 0; peer--)
		if (!c->road[0].via[peer])
			mine.lost = peer;
	rc = tt_control_allgather(c->ctl, &mine, sizeof(mine), all, tt_deadline_ns(c->timeout_ms));
	for (int r = 0; r < c->nranks && !rc; r++) {
		if (all[r].lost >= 0)
			rc = tt_fail(TT_USAGE,
				"rank %d cannot reach rank %d by transport %s; use TUTTI_TRANSPORT=auto "
				"or tcp where ranks are on several hosts", r, all[r].lost,
				c->transport);
		cards &= all[r].card != TT_NO_NIC;
		if (!rc && all[r].card > c->card)
			c->card = (uint8_t)all[r].card;
	}
	free(all);
	if (!cards)
		c->card = TT_NO_NIC;
	if (!rc && c->card && !insists_on(c, &tt_verbs))
		rc = fork_road(c);
	if (!rc)
		look_at_roads(c);
	return rc;
}

void tt_paths_close(tuttiComm_t c)
{
	while (c->nep > 0) {
		c->nep--;
		c->ep[c->nep]->t->close(c->ep[c->nep]);
	}
}

/* ---- links ----------------------------------------------------------------------------------- */

/* Break the communicator with who is missing, or else with what the dial last_received last. */
static int late(tuttiComm_t c, int peer, const struct tt_blocked *stuck)
{
	char last_received[512], missing[512] = "", text[900];
	int who;

	snprintf(last_received, sizeof(last_received), "%s", tt_error_text());
	who = tt_control_missing(c->ctl, c->seq, stuck, missing, sizeof(missing));
	if (who < 0 && c->rank < peer && last_received[0])
		snprintf(missing, sizeof(missing), "%s", last_received);
	else if (who < 0)
		snprintf(missing, sizeof(missing), "rank %d has made no call that needs it", peer);
	snprintf(text, sizeof(text), "rank %d has no connection to rank %d after %u ms: %s",
		 c->rank, peer, c->timeout_ms, missing);
	tt_control_raise(c->ctl, TT_TIMEOUT, who, text);
	return TT_TIMEOUT;
}

/* The peer comes in its own time: yield a little, then sleep in ever longer slices. */
static int await(tuttiComm_t c, struct tt_link *l, int peer, const struct tt_blocked *stuck,
		 uint64_t deadline_ns)
{
	uint64_t began_ns = tt_now_ns(), pause_ns = PAUSE_MIN_NS;
	int rc;

	for (int round = 0; !(rc = l->t->ready(l)); round++) {
		uint64_t now = tt_now_ns();

		if ((rc = tt_control_broken(c->ctl)))
			return rc;
		if (now > deadline_ns)
			return late(c, peer, stuck);
		if (now - began_ns > ASK_AFTER_NS)
			tt_control_waiting(c->ctl, stuck);
		if (round < YIELDS) {
			sched_yield();
			continue;
		}
		nanosleep(&(struct timespec){ .tv_nsec = (long)pause_ns }, NULL);
		pause_ns = pause_ns * 2 < PAUSE_MAX_NS ? pause_ns * 2 : PAUSE_MAX_NS;
	}
	return rc < 0 ? rc : 0;
}

int tt_comm_connect(tuttiComm_t c, const struct tt_path *road, int peer, int channel,
		    const struct tt_blocked *in, uint64_t deadline_ns)
{
	struct tt_link **l = &road->links[channel * c->nranks + peer];
	struct tt_endpoint *ep = road->via[peer];
	struct tt_blocked stuck = *in;
	int rc;

	stuck.awaited = peer;
	stuck.last_received = c->last_received[peer];
	if (!*l && (rc = ep->t->connect(ep, peer, channel, l)))
		return rc == TT_TIMEOUT && !tt_control_broken(c->ctl) ? late(c, peer, &stuck) : rc;
	return await(c, *l, peer, &stuck, deadline_ns);
}
