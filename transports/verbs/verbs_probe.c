/*
 * verbs_probe.c - which hosts reach each other over their HCAs: one message each way, when a
 * communicator is made
 *
 * Called by verbs.c in open, by all ranks. HCAs whose records fit may be unreachable: another
 * subnet, a VLAN, a firewall, GIDs without a route. So for each two hosts whose records fit, the
 * lowest rank of each (the leader) makes a queue pair for each rail pair, sends a message and waits
 * for the peer's. An allgather exchanges the results; two ports reach each other when both
 * received. The probe has an endpoint of its own, which confines its failures. A process caches the
 * verdicts for its other communicators; a pair is probed again unless both sides have the same
 * verdict.
 */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "transports/verbs/verbs.h"

#define STAMP 0x7472793fu
#define BYTES 8
/* 67 ms, five times: hardware answers without a processor; Soft-RoCE gets the normal time-out */
#define HCA_TIMEOUT 14
#define HCA_RETRIES 4
#define HCA_MS 2000 /* longest wait for a message of the peer */
#define SOFTWARE_MS 8000
#define KNOWN 64 /* cached verdicts of a process */

/* A verdict on two hosts: a bit for each rail pair, and PROBED. */
#define UNKNOWN 0
#define PROBED 0x80
_Static_assert(TT_VERBS_ALL_RAIL_PAIRS < PROBED, "a verdict has a bit for each rail pair");

static struct known {
	struct tt_verbs_record mine, theirs;
	uint8_t verdict;
} known[KNOWN];
static int nknown; /* the oldest verdict is replaced; guarded by: */
static pthread_mutex_t known_lock = PTHREAD_MUTEX_INITIALIZER;

static struct known *find(const struct tt_verbs_record *mine, const struct tt_verbs_record *theirs)
{
	for (int i = 0; i < nknown && i < KNOWN; i++)
		if (!memcmp(&known[i].mine, mine, sizeof(*mine)) &&
		    !memcmp(&known[i].theirs, theirs, sizeof(*theirs)))
			return &known[i];
	return NULL;
}

static uint8_t recall(const struct tt_verbs_record *mine, const struct tt_verbs_record *theirs)
{
	const struct known *k;
	uint8_t verdict;

	pthread_mutex_lock(&known_lock);
	k = find(mine, theirs);
	verdict = k ? k->verdict : UNKNOWN;
	pthread_mutex_unlock(&known_lock);
	return verdict;
}

static void remember(const struct tt_verbs_record *mine, const struct tt_verbs_record *theirs,
		     uint8_t verdict)
{
	struct known *k;

	pthread_mutex_lock(&known_lock);
	k = find(mine, theirs);
	if (!k)
		k = &known[nknown++ % KNOWN];
	*k = (struct known){ *mine, *theirs, verdict };
	pthread_mutex_unlock(&known_lock);
}

int tt_verbs_check_records(const struct tt_verbs_ep *ep)
{
	for (int r = 0; r < ep->base.world->nranks; r++) {
		const struct tt_verbs_record *c = &ep->records[r];
		bool good = c->nrails <= TT_VERBS_RAILS && (c->nrails || !c->usable) &&
			    c->first < TT_VERBS_RAILS;

		for (int i = 0; good && i < c->nrails; i++)
			good = c->rail[i].ngids <= TT_VERBS_GIDS;
		if (!good)
			return tt_fail(
				TT_REMOTE,
				"rank %d: rank %d sent an invalid record (%d ports, the first is %d): "
				"another version of Tutti?",
				ep->base.world->rank, r, c->nrails, c->first);
	}
	return 0;
}

/* Number the hosts from 0 on: fills ep->host, and leader with the lowest rank of each host. Returns
 * the number of hosts. */
static int number_hosts(struct tt_verbs_ep *ep, int *leader)
{
	const struct tt_world *w = ep->base.world;
	int hosts = 0;

	for (int r = 0; r < w->nranks; r++) {
		int h = 0;

		while (h < hosts && tt_world_host(w, leader[h]) != tt_world_host(w, r))
			h++;
		if (h == hosts)
			leader[hosts++] = r;
		ep->host[r] = h;
	}
	return hosts;
}

/* Do the records of two ranks fit? All ranks give the same answer. */
static bool fits(const struct tt_verbs_ep *ep, int a, int b)
{
	const struct tt_verbs_record *low = &ep->records[a < b ? a : b],
				     *high = &ep->records[a < b ? b : a];
	struct tt_verbs_rail_pair pairs[TT_VERBS_RAILS];

	return a != b && tt_verbs_allowed(ep->base.world, low, high) &&
	       tt_verbs_rail_pairs(low, high, pairs) > 0;
}

/* ---- the probe ------------------------------------------------------------------------------- */

struct pair_probe {
	struct tt_link *link;
	int peer, host, pair;
	bool sent, over;
	uint64_t until_ns;
};

/* A probe failed, for the reason in the thread's last error; ep->text keeps the first. An HCA of this host that cannot
 * begin is a warning. */
static void give_up(struct tt_verbs_ep *ep, struct pair_probe *p, int rc)
{
	int me = ep->base.world->rank;

	p->over = true;
	tt_log(rc == TT_SYSTEM ? TT_LOG_WARN : TT_LOG_INFO,
	       "rank %d: the host of rank %d is not reached by verbs%s%s: %s", me, p->peer,
	       ep->nrails > 1 && p->link ? " over " : "",
	       ep->nrails > 1 && p->link ? ((struct tt_verbs_link *)p->link)->rail->name : "",
	       tt_error_text());
	if (!ep->text[0])
		snprintf(ep->text, sizeof(ep->text), "the host of rank %d is not reached: %s",
			 p->peer, tt_error_text());
}

/* Advance one probe without waiting. True: the peer's message has arrived. */
static bool step(struct tt_verbs_ep *own, struct pair_probe *p)
{
	const struct tt_transport *verbs = own->base.t;
	struct tt_verbs_link *l = (struct tt_verbs_link *)p->link;
	const void *data;
	void *room;
	int rc = verbs->ready(p->link);

	if (rc > 0 && !p->sent && (room = verbs->reserve(p->link, BYTES))) {
		memset(room, 0, BYTES);
		verbs->commit(p->link, BYTES, STAMP);
		p->sent = true;
		p->until_ns = tt_deadline_ns(
			l->rail->software && own->base.world->insist ? SOFTWARE_MS : HCA_MS);
	}
	if (rc > 0 && !l->failed)
		rc = verbs->peek(p->link, BYTES, STAMP, &data);
	if (rc > 0 && !l->failed) {
		verbs->release(p->link);
		p->over = true;
		return true;
	}
	if (l->failed || (rc < 0 && !own->failed))
		p->over = true;
	/* a failure of one peer does not end the other probes */
	own->failed = own->failed == TT_SYSTEM ? TT_SYSTEM : 0;
	if (!p->over && p->sent && tt_now_ns() > p->until_ns) {
		tt_fail(TT_REMOTE,
			"no message arrived over %s port %d: the port leads elsewhere, or one way only",
			l->rail->name, l->rail->record.port);
		p->over = true;
	}
	return false;
}

/* The end of the probes, after half of the remaining join time: a peer that cannot make its queue
 * pairs sends no message, and waits in the allgather after the probes. */
static uint64_t last_moment(const struct tt_world *w)
{
	uint64_t now = tt_now_ns();

	return now < w->deadline_ns ? now + (w->deadline_ns - now) / 2 : now;
}

/* Run all probes at once; ok[host] gets a bit for each rail pair. */
static void run(struct tt_verbs_ep *ep, struct tt_verbs_ep *own, struct pair_probe *probes, int n,
		uint8_t *ok)
{
	uint64_t until = last_moment(ep->base.world);
	int open = 1;

	while (open > 0 && own->failed != TT_SYSTEM && tt_now_ns() < until) {
		open = 0;
		for (int i = 0; i < n; i++) {
			if (probes[i].over)
				continue;
			if (step(own, &probes[i]))
				ok[probes[i].host] |= (uint8_t)(1u << probes[i].pair);
			else if (probes[i].over)
				give_up(ep, &probes[i], own->failed);
			open += !probes[i].over;
		}
		sched_yield();
	}
	for (int i = 0; i < n; i++) {
		if (probes[i].over)
			continue;
		if (own->failed)
			tt_verbs_failed(own);
		else
			tt_fail(TT_TIMEOUT,
				"no queue pair was connected in half of the time to join");
		give_up(ep, &probes[i], own->failed);
	}
}

/* Make a probe for each rail pair to each of the peers (< 0: none). Returns the number of
 * probes. */
static int begin(struct tt_verbs_ep *ep, struct tt_verbs_ep *own, const int *peers, int hosts,
		 struct pair_probe *probes)
{
	struct tt_verbs_rail_pair pairs[TT_VERBS_RAILS];
	int made = 0, rc;

	for (int h = 0; h < hosts; h++) {
		int n = peers[h] < 0 ? 0 : tt_verbs_live_rail_pairs(own, peers[h], pairs);

		for (int channel = 0; channel < n && channel < ep->base.world->nchannels;
		     channel++) {
			struct pair_probe *p = &probes[made++];

			*p = (struct pair_probe){ .peer = peers[h], .host = h };
			p->pair = tt_verbs_rail_pair_of(own, peers[h], channel, pairs);
			rc = own->base.t->connect(&own->base, peers[h], channel, &p->link);
			if (rc)
				give_up(ep, p, rc);
		}
	}
	return made;
}

/* This rank cannot probe: the probes of its peers fail, too. */
static void no_probes(struct tt_verbs_ep *ep)
{
	tt_log(TT_LOG_WARN, "rank %d: no host is reached by verbs: %s", ep->base.world->rank,
	       tt_error_text());
	snprintf(ep->text, sizeof(ep->text), "no host is reached: %s", tt_error_text());
}

static void probe_all(struct tt_verbs_ep *ep, const int *peers, int hosts, uint8_t *ok)
{
	struct tt_verbs_settings set = {
		.devices = "", .gid_index = -1, .timeout = -1, .retries = -1
	};
	struct tt_world world = *ep->base.world;
	struct pair_probe *probes = calloc((size_t)hosts * TT_VERBS_RAILS, sizeof(*probes));
	struct tt_verbs_ep *own = NULL;

	if (world.ib)
		set = *world.ib;
	if (set.timeout < 0 && !ep->records[world.rank].software) {
		set.timeout = HCA_TIMEOUT;
		set.retries = set.retries < 0 ? HCA_RETRIES : set.retries;
	}
	world.ib = &set;
	if (probes && !tt_verbs_endpoint(&world, ep->records, &own))
		run(ep, own, probes, begin(ep, own, peers, hosts, probes), ok);
	else
		no_probes(ep);
	if (own)
		own->base.t->close(&own->base);
	free(probes);
}

/* ---- all ranks ------------------------------------------------------------------------------- */

/* The joint verdict on hosts a and b; all[r * hosts + h]: verdict of leader r on host h. */
static uint8_t joint(const uint8_t *all, const int *leader, int hosts, int a, int b)
{
	uint8_t x = all[leader[a] * hosts + b], y = all[leader[b] * hosts + a];

	return x == y ? x : UNKNOWN;
}

/* This leader probes the hosts without a joint verdict. */
static void probe_unknown(struct tt_verbs_ep *ep, const int *leader, int hosts, const uint8_t *all,
			  uint8_t *mine, int *peers)
{
	const struct tt_world *w = ep->base.world;
	int me = ep->host[w->rank];

	for (int h = 0; h < hosts; h++) {
		peers[h] = h != me && fits(ep, w->rank, leader[h]) &&
					   !joint(all, leader, hosts, me, h)
				   ? leader[h]
				   : -1;
		if (peers[h] >= 0)
			mine[h] = PROBED;
	}
	probe_all(ep, peers, hosts, mine);
	for (int h = 0; h < hosts; h++)
		if (peers[h] >= 0)
			remember(&ep->records[w->rank], &ep->records[peers[h]], mine[h]);
}

/* Does any pair of hosts need a probe? All ranks give the same answer. */
static bool anything(const struct tt_verbs_ep *ep, const int *leader, int hosts, const uint8_t *all)
{
	for (int a = 0; a < hosts; a++)
		for (int b = 0; b < a; b++)
			if ((!all || !joint(all, leader, hosts, a, b)) &&
			    fits(ep, leader[a], leader[b]))
				return true;
	return false;
}

static int probe_hosts(struct tt_verbs_ep *ep, const int *leader, int hosts, uint8_t *mine,
		       uint8_t *all, int *peers)
{
	const struct tt_world *w = ep->base.world;
	int me = ep->host[w->rank], rc;
	bool leads = leader[me] == w->rank;

	for (int h = 0; h < hosts; h++)
		mine[h] = leads && h != me && fits(ep, w->rank, leader[h])
				  ? recall(&ep->records[w->rank], &ep->records[leader[h]])
				  : UNKNOWN;
	rc = w->allgather(w->ctx, mine, (size_t)hosts, all);
	if (!rc && anything(ep, leader, hosts, all)) {
		if (leads)
			probe_unknown(ep, leader, hosts, all, mine, peers);
		rc = w->allgather(w->ctx, mine, (size_t)hosts, all);
	}
	for (int h = 0; h < hosts && !rc; h++)
		ep->reached[h] = h == me ? TT_VERBS_ALL_RAIL_PAIRS
					 : all[leader[me] * hosts + h] &
						   all[leader[h] * hosts + me] &
						   TT_VERBS_ALL_RAIL_PAIRS;
	for (int h = 0; h < hosts && !rc && w->insist && leads; h++)
		if (mine[h] == PROBED)
			rc = tt_fail(TT_SYSTEM, "rank %d: transport verbs: %s", w->rank,
				     ep->text[0] ? ep->text
						 : "a host is not reached, by an earlier probe");
	ep->text[0] = '\0';
	return rc;
}

int tt_verbs_probe(struct tt_verbs_ep *ep)
{
	const struct tt_world *w = ep->base.world;
	size_t n = (size_t)w->nranks;
	int *leader = calloc(2 * n, sizeof(*leader)), hosts, rc = 0;
	uint8_t *mine = NULL;

	ep->reached = calloc(n, sizeof(*ep->reached));
	ep->host = calloc(n, sizeof(*ep->host));
	hosts = leader && ep->host ? number_hosts(ep, leader) : 0;
	if (hosts)
		mine = calloc(n * ((size_t)hosts + 1), 1);
	if (!mine || !ep->reached)
		rc = tt_fail(TT_SYSTEM, "rank %d: no memory for %d ranks", w->rank, w->nranks);
	else if (anything(ep, leader, hosts, NULL))
		rc = probe_hosts(ep, leader, hosts, mine, mine + n, leader + n);
	else
		ep->reached[ep->host[w->rank]] = TT_VERBS_ALL_RAIL_PAIRS;
	free(mine);
	free(leader);
	return rc;
}
