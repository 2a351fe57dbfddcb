/*
 * paths.c - choice of the transport for each pair of ranks
 *
 * Called by comm when ranks join, and by run when a plan needs a link for the first time. The first
 * transport of the table that reaches a peer carries the pair; both sides choose the same one
 * because `reaches` is symmetric. If NICs reach all ranks of all other hosts, two paths exist, by
 * tcp and by NICs, and each call takes the path with the shorter predicted time (model/choose.c).
 * Links begin to connect when a call first uses them.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "comm/accelerator.h"
#include "comm/paths.h"
#include "plan/bind.h"

/* message size at which the faster path for Send and Recv is chosen */
#define P2P_BYTES (64u << 10)

static int dial(void *ctx, int peer, int channel)
{
	tuttiComm_t c = ctx;

	return tt_control_dial(c->ctl, peer, channel, tt_deadline_ns(c->settings.timeout_ms));
}

static int take(void *ctx, int peer, int channel, int *ret_fd, struct tt_data_keys *ret_keys)
{
	return tt_control_take(((tuttiComm_t)ctx)->ctl, peer, channel, false, ret_fd, ret_keys);
}

/* Links by NICs exist beside links by tcp: their sockets have other numbers, and end after the queue pairs are connected. */
static int dial_nic(void *ctx, int peer, int channel)
{
	return dial(ctx, peer, TT_CHANNELS + channel);
}

static int take_nic(void *ctx, int peer, int channel, int *ret_fd, struct tt_data_keys *ret_keys)
{
	return tt_control_take(((tuttiComm_t)ctx)->ctl, peer, TT_CHANNELS + channel, true, ret_fd,
			       ret_keys);
}

static int allgather(void *ctx, const void *mine, size_t bytes, void *all)
{
	tuttiComm_t c = ctx;

	return tt_control_allgather(c->ctl, mine, bytes, all, c->paths.world.deadline_ns);
}

static void announced(void *ctx, int rank, uint8_t ret_bytes[TT_ANNOUNCED])
{
	tuttiComm_t c = ctx;

	tt_part_get(c->paths.announced, rank, ret_bytes);
}

static int broken(void *ctx)
{
	struct tt_control *ctl = ((tuttiComm_t)ctx)->ctl;

	return tt_control_broken(ctl) ? tt_control_fail(ctl) : 0;
}

static int fetch(void *ctx, void *to, const void *from, size_t bytes)
{
	return tt_accelerator.fetch(ctx, to, from, bytes);
}

static bool is_requested(tuttiComm_t c, const struct tt_transport *t)
{
	return !strcmp(c->settings.transport, t->name);
}

/* The reason why the settings and the hosts leave a transport out; NULL: it is opened */
static const char *excluded(tuttiComm_t c, const struct tt_transport *t)
{
	if (t == &tt_self)
		return NULL;
	if (c->nranks == 1)
		return "there is one rank";
	if (is_requested(c, t))
		return NULL;
	if (strcmp(c->settings.transport, "auto"))
		return "another transport was requested";
	/* skip the address exchange of verbs */
	return t == &tt_verbs && c->hosts.one_host ? "shared memory serves one host" : NULL;
}

static bool allowed(tuttiComm_t c, const struct tt_transport *t)
{
	const char *why = excluded(c, t);

	if (why && !c->rank)
		tt_log(TT_LOG_INFO, "rank 0: no transport %s: %s", t->name, why);
	return !why;
}

static int check_name(tuttiComm_t c)
{
	char known[128] = "auto";

	if (!strcmp(c->settings.transport, "auto"))
		return 0;
	for (const struct tt_transport *const *t = tt_transports; *t; t++) {
		if (is_requested(c, *t))
			return 0;
		strncat(known, ", ", sizeof(known) - strlen(known) - 1);
		strncat(known, (*t)->name, sizeof(known) - strlen(known) - 1);
	}
	return tt_fail(TT_ARG, "transport \"%s\" is not known; there are %s", c->settings.transport,
		       known);
}

static int open_one(tuttiComm_t c, const struct tt_transport *t)
{
	char why[256] = "";
	int rc;

	if (!t->probe(why, sizeof(why))) {
		if (is_requested(c, t))
			return tt_fail(TT_SYSTEM,
				       "rank %d: transport %s cannot be used on this host: %s",
				       c->rank, t->name, why);
		tt_log(TT_LOG_INFO, "rank %d: no transport %s on this host: %s", c->rank, t->name,
		       why);
	}
	/* open is collective: a rank that cannot use the transport still takes part, and reaches no
	 * peer with it */
	rc = t->open(t == &tt_verbs ? &c->paths.nic_world : &c->paths.world,
		     &c->paths.ep[c->paths.nep]);
	if (!rc)
		c->paths.nep++;
	return rc;
}

/* True if a software NIC (Soft-RoCE) may be faster than tcp for some message size. */
static bool is_soft_nic_faster(tuttiComm_t c)
{
	const struct tt_cost *cost = c->cost ? c->cost : &tt_cost_builtin;

	for (uint64_t bytes = 1; bytes <= c->paths.world.message_bytes; bytes *= 2)
		if (tt_cost_message_ps(cost, TT_LINK_SOFT, bytes) <
		    tt_cost_message_ps(cost, TT_LINK_HOSTS, bytes))
			return true;
	return false;
}

/* ---- paths ----------------------------------------------------------------------------------- */

/* The run of a peer, -1: there is no run */
static int run_of(const struct tt_path *path, int peer)
{
	int low = 0, high = path->nruns;

	while (high - low > 1) {
		int middle = (low + high) / 2;

		*(path->run[middle].first <= peer ? &low : &high) = middle;
	}
	return high - 1;
}

unsigned tt_path_number(const struct tt_path *path, int peer)
{
	int run = run_of(path, peer);

	return run < 0 ? 0 : path->run[run].via;
}

static int end_of(const struct tt_path *path, int run, int nranks)
{
	return run + 1 < path->nruns ? path->run[run + 1].first : nranks;
}

/* The ranks from first on, behind those of earlier runs. false: no memory */
static bool add_run(struct tt_path *path, int first, unsigned via)
{
	struct tt_path_run *larger;

	if (path->nruns && path->run[path->nruns - 1].via == via)
		return true;
	if (path->nruns == path->room) {
		larger = realloc(path->run, (2 * (size_t)path->room + 4) * sizeof(*larger));
		if (!larger)
			return false;
		path->run = larger;
		path->room = 2 * path->room + 4;
	}
	path->run[path->nruns++] = (struct tt_path_run){ first, via };
	return true;
}

void tt_path_free(struct tt_path *path)
{
	free(path->run);
	for (int ch = 0; ch < TT_CHANNELS; ch++)
		free(path->links[ch]);
}

size_t tt_path_memory(const struct tt_path *path, int nranks)
{
	size_t per_rank = 0;

	for (int ch = 0; ch < TT_CHANNELS; ch++)
		per_rank += path->links[ch] ? sizeof(*path->links[ch]) : 0;
	return (size_t)path->room * sizeof(*path->run) + (size_t)nranks * per_rank;
}

static int no_memory(tuttiComm_t c)
{
	return tt_fail(TT_SYSTEM, "rank %d: no memory for links to %d ranks", c->rank, c->nranks);
}

/* 1 + index of a transport's endpoint; 0: none */
static uint8_t number_of(tuttiComm_t c, const struct tt_transport *t)
{
	for (int i = 0; i < c->paths.nep; i++)
		if (c->paths.ep[i]->t == t)
			return (uint8_t)(i + 1);
	return 0;
}

static bool is_emulated(const struct tt_endpoint *ep, int peer)
{
	return ep->t->emulated && ep->t->emulated(ep, peer);
}

static bool may_carry(tuttiComm_t c, struct tt_endpoint *ep, int peer)
{
	return ep->t->reaches(ep, peer) && (is_requested(c, ep->t) || !is_emulated(ep, peer));
}

/* The number of the first transport that reaches a peer and carries the pair, 0: none does; *ret_end: of
 * the ranks for which the same holds */
static unsigned choose_transport(tuttiComm_t c, int peer, int *ret_end)
{
	*ret_end = c->nranks;
	for (int i = 0; i < c->paths.nep; i++) {
		struct tt_endpoint *ep = c->paths.ep[i];
		int end = ep->t->alike ? ep->t->alike(ep, peer) : peer + 1;

		*ret_end = end < *ret_end ? end : *ret_end;
		if (may_carry(c, ep, peer))
			return (unsigned)i + 1;
	}
	return 0;
}

/* 0 | TT_SYSTEM */
static int choose_transports(tuttiComm_t c)
{
	c->paths.path[0].nruns = 0;
	for (int peer = 0, end; peer < c->nranks; peer = end)
		if (!add_run(&c->paths.path[0], peer, choose_transport(c, peer, &end)))
			return no_memory(c);
	return 0;
}

/* Link class of the NICs that reach every rank on other hosts (every rank, if the user named
 * verbs), or TT_NO_NIC. */
static enum tt_link_class nic_class_to_all(tuttiComm_t c)
{
	uint8_t verbs = number_of(c, &tt_verbs);
	struct tt_endpoint *ep = verbs ? c->paths.ep[verbs - 1] : NULL;
	enum tt_link_class class = TT_LINK_VERBS;

	if (!ep || c->nranks == 1)
		return TT_NO_NIC;
	for (int peer = 0; peer < c->nranks; peer++) {
		bool same_host = tt_topology_host(&c->hosts.topology, peer) ==
				 tt_topology_host(&c->hosts.topology, c->rank);

		if (peer == c->rank || (same_host && !is_requested(c, &tt_verbs)))
			continue;
		if (!ep->t->reaches(ep, peer))
			return TT_NO_NIC;
		if (is_emulated(ep, peer))
			class = TT_LINK_SOFT;
	}
	return class;
}

/* The paths with NICs: all hosts reach each other by NICs, and by tcp. 0 | TT_SYSTEM */
static int make_nic_paths(tuttiComm_t c, struct tt_path path[2])
{
	uint8_t tcp = number_of(c, &tt_tcp), verbs = number_of(c, &tt_verbs);

	path[0].nruns = path[1].nruns = 0;
	for (int peer = 0; peer < c->nranks; peer++) {
		bool same_host = tt_topology_host(&c->hosts.topology, peer) ==
				 tt_topology_host(&c->hosts.topology, c->rank);
		unsigned here = tt_path_number(&c->paths.path[0], peer);

		if (!add_run(&path[0], peer, same_host ? here : tcp) ||
		    !add_run(&path[1], peer, same_host ? here : verbs))
			return no_memory(c);
	}
	return 0;
}

static void use_nic_paths(tuttiComm_t c)
{
	const struct tt_cost *cost = c->cost ? c->cost : &tt_cost_builtin;

	for (int i = 0; i < TT_PATHS; i++) {
		tt_path_free(&c->paths.path[i]);
		c->paths.path[i] = c->paths.nic_path[i];
		c->paths.nic_path[i] = (struct tt_path){ 0 };
	}
	c->paths.npaths = TT_PATHS;
	c->paths.p2p_path = tt_cost_message_ps(cost, (enum tt_link_class)c->paths.nic_class,
					       P2P_BYTES) <
			    tt_cost_message_ps(cost, TT_LINK_HOSTS, P2P_BYTES);
}

/* The endpoint that reaches all ranks and has slots, or NULL */
static struct tt_endpoint *find_slots(tuttiComm_t c)
{
	const struct tt_path *path = &c->paths.path[0];
	struct tt_endpoint *slots = c->nranks > 1 ? tt_path_via(path, c->rank ? 0 : 1) : NULL;

	for (int i = 0; slots && i < path->nruns; i++) {
		int first = path->run[i].first;
		bool mine = first == c->rank && end_of(path, i, c->nranks) == first + 1;

		if (!slots->slot_ops || (!mine && tt_path_via(path, first) != slots))
			slots = NULL;
	}
	return slots;
}

/* Summarizes the transports of a path. */
static void note_transports(struct tt_path *path)
{
	for (int i = 0; i < path->nruns; i++) {
		const struct tt_transport *t = tt_path_via(path, path->run[i].first)->t;

		path->preposts |= t->zcopy_ops && t->zcopy_ops->prepost;
		if (!i || t->spins < path->spins)
			path->spins = t->spins;
	}
}

bool tt_path_encrypts(const struct tt_path *path, int peer)
{
	const struct tt_endpoint *ep = tt_path_via(path, peer);

	return ep->t->encrypts && ep->t->encrypts(ep, peer);
}

static void summarize_paths(tuttiComm_t c)
{
	const struct tt_path *path = c->paths.path;

	for (int i = 0; i < c->paths.npaths; i++)
		note_transports(&c->paths.path[i]);
	for (int peer = 0; tt_log_enabled(TT_LOG_DEBUG) && peer < c->nranks; peer++)
		tt_log(TT_LOG_DEBUG, "rank %d: rank %d by %s%s%s", c->rank, peer,
		       tt_path_via(&path[c->paths.npaths - 1], peer)->t->name,
		       tt_path_via(&path[0], peer) != tt_path_via(&path[c->paths.npaths - 1], peer)
			       ? " or tcp"
			       : "",
		       tt_path_encrypts(path, peer) ? ", encrypted" : "");
	c->wait.spins = path[0].spins;
	c->paths.slots = find_slots(c);
	for (int i = 0; i < c->paths.nep && !c->paths.notes; i++)
		if (c->paths.ep[i]->t->notes)
			c->paths.notes = c->paths.ep[i]->t->notes(c->paths.ep[i]);
}

/* ---- open ------------------------------------------------------------------------------------ */

/* The one transport with announcements, NULL: the settings leave it out */
static const struct tt_transport *announcing(tuttiComm_t c)
{
	for (const struct tt_transport *const *t = tt_transports; *t; t++)
		if ((*t)->announce)
			return excluded(c, *t) ? NULL : *t;
	return NULL;
}

int tt_paths_announce(tuttiComm_t c, struct tt_control *ctl)
{
	const struct tt_transport *t = announcing(c);
	const struct tt_counted_bits *firsts;
	int nhosts;
	const int *host_of = tt_control_hosts(ctl, &firsts, &nhosts);
	int host = tt_host_number(host_of, firsts, c->rank);

	if (!t || nhosts == c->nranks)
		return 0;
	for (int r = 0; r < c->nranks; r++)
		if (r != c->rank && tt_host_number(host_of, firsts, r) == host)
			return t->announce(&c->paths.announcement);
	return 0;
}

static struct tt_world world_of(tuttiComm_t c, const struct tt_connectivity *facts)
{
	/* a tile must not split an element */
	size_t tile_bytes = c->settings.tile_bytes - c->settings.tile_bytes % TT_LINE;

	return (struct tt_world){
		.rank = c->rank,
		.nranks = c->nranks,
		.host_of = c->hosts.topology.host_of,
		.host_firsts = c->hosts.topology.host_firsts,
		.nchannels = TT_P2P_CHANNEL + 1,
		.message_bytes = tile_bytes ? tile_bytes : tt_connectivity_message_bytes(facts),
		.deadline_ns = c->setup_deadline_ns,
		.cma = c->settings.cma,
		.encrypt = c->settings.encrypt,
		.crowded = c->hosts.crowded,
		.insist = strcmp(c->settings.transport, "auto") != 0,
		.ib = &c->settings.ib,
		.dial = dial,
		.take = take,
		.announced = announced,
		.announcement = &c->paths.announcement,
		.broken = broken,
		.allgather = allgather,
		.fetch = fetch,
		.ctx = c,
	};
}

int tt_paths_open(tuttiComm_t c, const struct tt_parts *parts)
{
	struct tt_connectivity facts;
	int rc = check_name(c);

	if (rc)
		return rc;
	c->paths.over_tcp = is_requested(c, &tt_tcp) || is_requested(c, &tt_verbs);
	facts = tt_comm_connectivity(c);
	facts.nic_class = is_requested(c, &tt_verbs) ? TT_LINK_VERBS : 0;
	c->paths.world = world_of(c, &facts);
	c->paths.eager_bytes = tt_connectivity_p2p_tile(&facts, c->paths.world.message_bytes, 1);
	c->paths.nic_world = c->paths.world;
	c->paths.nic_world.nchannels = TT_CHANNELS;
	c->paths.nic_world.dial = dial_nic;
	c->paths.nic_world.take = take_nic;
	c->paths.nic_world.software = is_soft_nic_faster(c);
	c->paths.announced = parts;
	for (const struct tt_transport *const *t = tt_transports; *t && !rc; t++)
		if (allowed(c, *t))
			rc = open_one(c, *t);
	c->paths.announced = NULL;
	return rc ? rc : choose_transports(c);
}

/* The endpoint of the transport with announcements, or NULL */
static struct tt_endpoint *announced_endpoint(tuttiComm_t c)
{
	for (int i = 0; i < c->paths.nep; i++)
		if (c->paths.ep[i]->t->announce)
			return c->paths.ep[i];
	return NULL;
}

static bool has_joined(const void *ctx, int rank)
{
	struct tt_path_facts facts;

	tt_part_get(ctx, rank, &facts);
	return facts.joined != 0;
}

/* Peers that have not joined go by another transport. 0 | TT_SYSTEM */
static int settle(tuttiComm_t c, const struct tt_parts *all)
{
	struct tt_endpoint *ep = announced_endpoint(c);

	int rc = 0;

	if (ep && ep->t->settle(ep, has_joined, all)) {
		rc = choose_transports(c);
		if (!rc && c->paths.nic_path[0].nruns)
			rc = make_nic_paths(c, c->paths.nic_path);
	}
	return rc;
}

static int check_facts(tuttiComm_t c, int rank, const struct tt_path_facts *f)
{
	bool nic = f->nic_class == TT_NO_NIC || f->nic_class == TT_LINK_VERBS ||
		   f->nic_class == TT_LINK_SOFT;

	if (nic && f->unreached >= -1 && f->unreached < c->nranks)
		return 0;
	return tt_fail(
		TT_REMOTE,
		"rank %d: rank %d sent link class %d of its NICs and unreached rank %d, which do not exist: "
		"another version of Tutti?",
		c->rank, rank, f->nic_class, f->unreached);
}

/* Allocates the record of the latest operation received from each rank. false: no memory */
static bool make_received(tuttiComm_t c)
{
	if (!c->calls.last_received)
		c->calls.last_received = calloc((size_t)c->nranks, sizeof(*c->calls.last_received));
	return c->calls.last_received;
}

int tt_paths_facts(tuttiComm_t c, struct tt_path_facts *ret_facts)
{
	struct tt_endpoint *ep = announced_endpoint(c);

	*ret_facts = (struct tt_path_facts){ -1, (int32_t)nic_class_to_all(c),
					     ep && ep->t->joined(ep) };
	for (int i = c->paths.path[0].nruns - 1; i >= 0; i--)
		if (!c->paths.path[0].run[i].via)
			ret_facts->unreached = c->paths.path[0].run[i].first;
	for (int i = 0; i < TT_PATHS; i++)
		c->paths.nic_path[i].ep = c->paths.ep;
	if (find_slots(c) && !make_received(c))
		return no_memory(c);
	return ret_facts->nic_class == TT_NO_NIC || is_requested(c, &tt_verbs)
		       ? 0
		       : make_nic_paths(c, c->paths.nic_path);
}

int tt_paths_unreached(tuttiComm_t c, int rank, const struct tt_path_facts *facts)
{
	return tt_fail(TT_USAGE,
		       "rank %d cannot reach rank %d by transport %s; use TUTTI_TRANSPORT=auto "
		       "or tcp where ranks are on several hosts",
		       rank, facts->unreached, c->settings.transport);
}

/* A transport that the user named may have reported the cause on a rank that reaches no peer.
 * Therefore unreachable peers are reported only after all ranks got here, with the same text on all
 * ranks. */
int tt_paths_agree(tuttiComm_t c, const struct tt_parts *all)
{
	/* this rank's own verdict counts, too: the parts come from other processes */
	bool has_nics = nic_class_to_all(c) != TT_NO_NIC;
	int rc = settle(c, all);

	for (int r = 0; r < c->nranks && !rc; r = tt_part_end(all, r)) {
		struct tt_path_facts f;

		tt_part_get(all, r, &f);
		rc = check_facts(c, r, &f);
		if (!rc && f.unreached >= 0)
			rc = tt_paths_unreached(c, r, &f);
		has_nics &= f.nic_class != TT_NO_NIC;
		if (!rc && f.nic_class > c->paths.nic_class)
			c->paths.nic_class = (uint8_t)f.nic_class;
	}
	if (!has_nics)
		c->paths.nic_class = TT_NO_NIC;
	if (!rc && c->paths.nic_class && !is_requested(c, &tt_verbs))
		use_nic_paths(c);
	if (!rc)
		summarize_paths(c);
	return rc;
}

void tt_paths_close(tuttiComm_t c)
{
	c->paths.notes = NULL;
	while (c->paths.nep > 0) {
		c->paths.nep--;
		c->paths.ep[c->paths.nep]->t->close(c->paths.ep[c->paths.nep]);
	}
	if (c->paths.announcement.fd >= 0)
		close(c->paths.announcement.fd);
	c->paths.announcement.fd = -1;
}

/* ---- links ----------------------------------------------------------------------------------- */

/* The links of a channel, made with its first connection. NULL: no memory */
static struct tt_link **links_of(tuttiComm_t c, const struct tt_path *path, int channel)
{
	struct tt_link ***links = &c->paths.path[path - c->paths.path].links[channel];

	if (!*links)
		__atomic_store_n(links, calloc((size_t)c->nranks, sizeof(**links)),
				 __ATOMIC_RELEASE);
	return *links;
}

int tt_comm_connect(tuttiComm_t c, const struct tt_path *path, int peer, int channel)
{
	struct tt_link **links = links_of(c, path, channel);
	struct tt_endpoint *ep = tt_path_via(path, peer);
	int rc;

	if (!links || !make_received(c))
		return no_memory(c);
	rc = links[peer] ? 0 : ep->t->connect(ep, peer, channel, &links[peer]);
	return rc ? rc : links[peer]->t->ready(links[peer]);
}
