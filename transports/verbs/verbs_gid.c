/*
 * verbs_gid.c - the GIDs of ports, and the port pairs of two ranks
 *
 * Called by verbs_device.c for a port's GIDs, by verbs.c and verbs_probe.c for pairs of ranks.
 * TUTTI_IB_GID_INDEX fixes the GID. Otherwise a port offers the best GIDs of its table: those of an
 * interface in this network namespace first, RoCE v2 before v1, IPv4 before IPv6, link-local last.
 * The GIDs of a pair and the port pairs of two ranks follow from the records of both sides alone,
 * so both sides agree. Ports of one subnet form a pair, whatever their numbers on their hosts.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <stdlib.h>
#include <string.h>

#include "transports/verbs/verbs.h"

#define MAX_ENTRIES 1024
#define CLASSES 16

/* ---- GIDs ------------------------------------------------------------------------------------ */

static const uint8_t mapped[12] = { [10] = 0xff, [11] = 0xff };

static bool is_ipv4(const uint8_t *gid)
{
	return !memcmp(gid, mapped, sizeof(mapped));
}

static bool is_link_local(const uint8_t *gid)
{
	return gid[0] == 0xfe && (gid[1] & 0xc0) == 0x80;
}

const char *tt_verbs_gid_text(const uint8_t gid[16], char text[TT_VERBS_GID_TEXT])
{
	inet_ntop(is_ipv4(gid) ? AF_INET : AF_INET6, is_ipv4(gid) ? gid + 12 : gid, text,
		  TT_VERBS_GID_TEXT);
	return text;
}

/* Prefix length of the network of this GID's address; 0: no interface of this host has the
 * address. */
static uint8_t prefix_of(const uint8_t *gid)
{
	struct ifaddrs *all, *i;
	uint8_t bits = 0;

	if (getifaddrs(&all))
		return 0;
	for (i = all; i && !bits; i = i->ifa_next) {
		int family = i->ifa_addr ? i->ifa_addr->sa_family : AF_UNSPEC;
		const uint8_t *address = NULL, *mask = NULL;
		size_t bytes = family == AF_INET ? 4 : 16;

		if (family == AF_INET && is_ipv4(gid)) {
			address = (const uint8_t *)&((struct sockaddr_in *)i->ifa_addr)->sin_addr;
			mask = i->ifa_netmask
				       ? (const uint8_t *)&((struct sockaddr_in *)i->ifa_netmask)
						 ->sin_addr
				       : NULL;
		} else if (family == AF_INET6) {
			address = (const uint8_t *)&((struct sockaddr_in6 *)i->ifa_addr)->sin6_addr;
			mask = i->ifa_netmask
				       ? (const uint8_t *)&((struct sockaddr_in6 *)i->ifa_netmask)
						 ->sin6_addr
				       : NULL;
		}
		if (!address || !mask || memcmp(address, bytes == 4 ? gid + 12 : gid, bytes))
			continue;
		for (size_t b = 0; b < bytes; b++)
			bits += (uint8_t)__builtin_popcount(mask[b]);
	}
	freeifaddrs(all);
	return bits;
}

/* Order of preference, lower is better. A table may show addresses of other network namespaces;
 * addresses of this namespace, which an interface has, come first. */
static int preference_of(const struct tt_verbs_gid_entry *e)
{
	int type = e->type == TT_VERBS_GID_ROCE1 ? 4 : 0, foreign = prefix_of(e->gid) ? 0 : 8;

	return foreign + type + (is_ipv4(e->gid) ? 0 : is_link_local(e->gid) ? 2 : 1);
}

static void offer(struct tt_verbs_port_record *record, const struct tt_verbs_gid_entry *e)
{
	struct tt_verbs_gid_record *o = &record->gid[record->ngids++];

	memcpy(o->gid, e->gid, 16);
	o->type = (uint8_t)e->type;
	o->index = (uint8_t)e->index;
	o->prefix = prefix_of(e->gid);
}

static bool is_offered(const struct tt_verbs_rail *rail, const struct tt_verbs_gid_entry *e,
		       int fixed)
{
	static const uint8_t zero[16];

	return e->port == rail->record.port && e->index < 256 && memcmp(e->gid, zero, 16) &&
	       (fixed < 0 || e->index == (uint32_t)fixed);
}

/* Offer the best of n entries. */
static void offer_all(struct tt_verbs_rail *rail, const struct tt_verbs_gid_entry *e, ssize_t n,
		      int fixed)
{
	int class[MAX_ENTRIES];

	for (ssize_t i = 0; i < n; i++)
		class[i] = is_offered(rail, &e[i], fixed) ? preference_of(&e[i]) : -1;
	for (int best = 0; best < CLASSES; best++)
		for (ssize_t i = 0; i < n && rail->record.ngids < TT_VERBS_GIDS; i++)
			if (class[i] == best)
				offer(&rail->record, &e[i]);
}

int tt_verbs_list_gids(struct tt_verbs_ep *ep, struct tt_verbs_rail *rail, int fixed)
{
	struct tt_verbs_gid_entry *e = calloc(MAX_ENTRIES, sizeof(*e));
	ssize_t n = e ? ep->ib->query_gid_table(rail->context, e, MAX_ENTRIES, 0, sizeof(*e))
		      : -ENOMEM;

	offer_all(rail, e, n, fixed);
	free(e);
	if (n < 0)
		return tt_fail(TT_SYSTEM, "%s port %d: its GIDs cannot be read: %s", rail->name,
			       rail->record.port, strerror((int)-n));
	if (rail->record.ngids ||
	    (rail->record.link_layer == TT_VERBS_LINK_INFINIBAND && fixed < 0))
		return 0;
	if (fixed >= 0)
		return tt_fail(
			TT_SYSTEM,
			"%s port %d has no GID with index %d (TUTTI_IB_GID_INDEX); show_gids or "
			"/sys/class/infiniband/%s/ports/%d/gids lists them",
			rail->name, rail->record.port, fixed, rail->name, rail->record.port);
	return tt_fail(TT_SYSTEM, "%s port %d has no GID: give its network interface an IP address",
		       rail->name, rail->record.port);
}

/* ---- pairs ----------------------------------------------------------------------------------- */

/* InfiniBand: both in one subnet; other subnets are reached only through routers. */
static int fit_infiniband(const struct tt_verbs_gid_record *a, const struct tt_verbs_gid_record *b)
{
	return !memcmp(a->gid, b->gid, 8);
}

/* How well two GIDs fit, higher is better; 0: not at all. Addresses of another namespace come
 * last. */
static int fit(const struct tt_verbs_gid_record *a, const struct tt_verbs_gid_record *b)
{
	unsigned bits = a->prefix && a->prefix == b->prefix
				? a->prefix + (is_ipv4(a->gid) ? 96u : 0)
				: 0;
	unsigned whole = bits / 8, rest = bits % 8;
	bool near = bits && bits <= 128 && !memcmp(a->gid, b->gid, whole) &&
		    (!rest || (a->gid[whole] ^ b->gid[whole]) >> (8 - rest) == 0);

	if (a->type != b->type || is_ipv4(a->gid) != is_ipv4(b->gid) ||
	    is_link_local(a->gid) != is_link_local(b->gid))
		return 0;
	return 1 + 16 * (a->prefix && b->prefix) + 8 * near + 4 * (a->type != TT_VERBS_GID_ROCE1) +
	       2 * is_ipv4(a->gid) + !is_link_local(a->gid);
}

/* Both ports are in one partition, and one of them is a full member. */
static bool share_partition(const struct tt_verbs_port_record *a,
			    const struct tt_verbs_port_record *b)
{
	return ((a->pkey ^ b->pkey) & TT_VERBS_PKEY_PARTITION) == 0 &&
	       ((a->pkey | b->pkey) & TT_VERBS_PKEY_FULL || !a->pkey);
}

int tt_verbs_choose_gids(const struct tt_verbs_port_record *a, const struct tt_verbs_port_record *b,
			 struct tt_verbs_gid_record *ret_a, struct tt_verbs_gid_record *ret_b)
{
	bool infiniband = a->link_layer == TT_VERBS_LINK_INFINIBAND;
	int best = 0;

	memset(ret_a, 0, sizeof(*ret_a));
	memset(ret_b, 0, sizeof(*ret_b));
	if (a->link_layer != b->link_layer || !share_partition(a, b))
		return 0;
	for (int i = 0; i < a->ngids; i++)
		for (int j = 0; j < b->ngids; j++) {
			int f = infiniband ? fit_infiniband(&a->gid[i], &b->gid[j])
					   : fit(&a->gid[i], &b->gid[j]);

			if (f <= best)
				continue;
			best = f;
			*ret_a = a->gid[i];
			*ret_b = b->gid[j];
		}
	/* LIDs suffice within a subnet, except for ports that require a GRH */
	if (infiniband && (!a->ngids || !b->ngids) && !a->grh && !b->grh)
		best = 1;
	return best;
}

int tt_verbs_rail_pairs(const struct tt_verbs_record *low, const struct tt_verbs_record *high,
			struct tt_verbs_rail_pair pairs[TT_VERBS_RAILS])
{
	bool low_used[TT_VERBS_RAILS] = { false }, high_used[TT_VERBS_RAILS] = { false };
	struct tt_verbs_gid_record a, b;
	int n = 0, best;

	if (!low->usable || !high->usable)
		return 0;
	do {
		best = 0;
		for (int i = 0; i < low->nrails; i++)
			for (int k = 0; k < high->nrails && !low_used[i]; k++) {
				int j = (i + k) % high->nrails, f; /* prefer the same number */

				f = high_used[j] ? 0
						 : tt_verbs_choose_gids(&low->rail[i],
									&high->rail[j], &a, &b);
				if (f <= best)
					continue;
				best = f;
				pairs[n] = (struct tt_verbs_rail_pair){ (uint8_t)i, (uint8_t)j };
			}
		if (best) {
			low_used[pairs[n].low] = high_used[pairs[n].high] = true;
			n++;
		}
	} while (best);
	return n;
}

int tt_verbs_live_rail_pairs(const struct tt_verbs_ep *ep, int peer,
			     struct tt_verbs_rail_pair pairs[TT_VERBS_RAILS])
{
	int me = ep->base.world->rank, n, kept = 0;
	const struct tt_verbs_record *low = &ep->records[me < peer ? me : peer];
	uint8_t reached = ep->reached ? ep->reached[ep->host[peer]] : TT_VERBS_ALL_RAIL_PAIRS;

	n = tt_verbs_rail_pairs(low, &ep->records[me < peer ? peer : me], pairs);
	for (int i = 0; i < n; i++)
		if (reached >> i & 1)
			pairs[kept++] = pairs[i];
	return kept;
}

int tt_verbs_rail_pair_of(const struct tt_verbs_ep *ep, int peer, int channel,
			  struct tt_verbs_rail_pair pairs[TT_VERBS_RAILS])
{
	int n = tt_verbs_live_rail_pairs(ep, peer, pairs), me = ep->base.world->rank, first = 0;

	for (int i = 0; i < n; i++)
		first = pairs[i].low == ep->records[me < peer ? me : peer].first ? i : first;
	return (first + channel) % n;
}
