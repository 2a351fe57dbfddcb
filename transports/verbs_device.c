/*
 * verbs_device.c - which cards, ports and GIDs carry the messages
 *
 * Called by verbs.c in open. TUTTI_IB_HCA narrows the cards down, TUTTI_IB_GID_INDEX fixes the GID;
 * otherwise all active ports of the fastest kind serve, a real card before Soft-RoCE. A port offers
 * its peers up to three GIDs: RoCE v2 before v1, IPv4 before IPv6, link-local last; which of them a
 * pair uses follows from both sides' offers alone, so that both agree.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/sock.h"
#include "transports/verbs.h"

#define MAX_ENTRIES 256

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

const char *tt_ib_gid_text(const uint8_t gid[16], char text[TT_IB_GID_TEXT])
{
	inet_ntop(is_ipv4(gid) ? AF_INET : AF_INET6, is_ipv4(gid) ? gid + 12 : gid, text,
		  TT_IB_GID_TEXT);
	return text;
}

/* Bits of the network that this host's address belongs to; 0: no interface has it. */
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

/* The lower, the better. */
static int rank_of(const struct tt_ib_gid_entry *e)
{
	int type = e->type == TT_IB_GID_ROCE1 ? 4 : 0;

	return type + (is_ipv4(e->gid) ? 0 : is_link_local(e->gid) ? 2 : 1);
}

static void offer(struct tt_ib_port_card *card, const struct tt_ib_gid_entry *e)
{
	struct tt_ib_offer *o = &card->gid[card->ngids++];

	memcpy(o->gid, e->gid, 16);
	o->type = (uint8_t)e->type;
	o->index = (uint8_t)e->index;
	o->prefix = prefix_of(e->gid);
}

/* 0 | TT_SYSTEM */
static int list_gids(struct tt_ib_ep *ep, struct tt_ib_rail *rail, int fixed)
{
	static const uint8_t zero[16];
	struct tt_ib_gid_entry *e = calloc(MAX_ENTRIES, sizeof(*e));
	ssize_t n =
		e ? ep->ib->query_gid_table(rail->context, e, MAX_ENTRIES, 0, sizeof(*e)) : -ENOMEM;

	for (int class = 0; class < 7; class++)
		for (ssize_t i = 0; i < n && rail->card.ngids < TT_IB_GIDS; i++)
			if (e[i].port == rail->card.port && rank_of(&e[i]) == class &&
			    memcmp(e[i].gid, zero, 16) && e[i].index < 256 &&
			    (fixed < 0 || e[i].index == (uint32_t)fixed))
				offer(&rail->card, &e[i]);
	free(e);
	if (n < 0)
		return tt_fail(TT_SYSTEM, "%s port %d: its GIDs cannot be read: %s", rail->name,
			       rail->card.port, strerror((int)-n));
	if (rail->card.ngids || (rail->card.link_layer == TT_IB_LINK_INFINIBAND && fixed < 0))
		return 0;
	if (fixed >= 0)
		return tt_fail(TT_SYSTEM,
			"%s port %d has no GID with index %d (TUTTI_IB_GID_INDEX); show_gids or "
			"/sys/class/infiniband/%s/ports/%d/gids lists them", rail->name,
			rail->card.port, fixed, rail->name, rail->card.port);
	return tt_fail(TT_SYSTEM, "%s port %d has no GID: give its network interface an IP address",
		       rail->name, rail->card.port);
}

/* The higher, the better; 0: does not fit. */
static int fit(const struct tt_ib_offer *a, const struct tt_ib_offer *b)
{
	unsigned bits =
		a->prefix && a->prefix == b->prefix ? a->prefix + (is_ipv4(a->gid) ? 96u : 0) : 0;
	unsigned whole = bits / 8, rest = bits % 8;
	bool near = bits && bits <= 128 && !memcmp(a->gid, b->gid, whole) &&
		    (!rest || (a->gid[whole] ^ b->gid[whole]) >> (8 - rest) == 0);

	if (a->type != b->type || is_ipv4(a->gid) != is_ipv4(b->gid) ||
	    is_link_local(a->gid) != is_link_local(b->gid))
		return 0;
	return 1 + 8 * near + 4 * (a->type != TT_IB_GID_ROCE1) + 2 * is_ipv4(a->gid) +
	       !is_link_local(a->gid);
}

bool tt_ib_choose_gids(const struct tt_ib_port_card *a, const struct tt_ib_port_card *b,
		       struct tt_ib_offer *ret_a, struct tt_ib_offer *ret_b)
{
	int best = 0;

	memset(ret_a, 0, sizeof(*ret_a));
	memset(ret_b, 0, sizeof(*ret_b));
	if (a->link_layer != b->link_layer)
		return false;
	for (int i = 0; i < a->ngids; i++)
		for (int j = 0; j < b->ngids; j++) {
			int f = fit(&a->gid[i], &b->gid[j]);

			if (f <= best)
				continue;
			best = f;
			*ret_a = a->gid[i];
			*ret_b = b->gid[j];
		}
	return best || a->link_layer == TT_IB_LINK_INFINIBAND;       /* within a subnet LIDs do */
}

int tt_ib_common_rails(const struct tt_ib_card *a, const struct tt_ib_card *b)
{
	int n = a->nrails < b->nrails ? a->nrails : b->nrails;
	struct tt_ib_offer mine, theirs;

	if (!a->usable || !b->usable)
		return 0;
	for (int i = 0; i < n; i++)
		if (!tt_ib_choose_gids(&a->rail[i], &b->rail[i], &mine, &theirs))
			return i;
	return n;
}

/* ---- cards ----------------------------------------------------------------------------------- */

/* Soft-RoCE and its like hang from no bus. Where /sys does not show the card, as in some
 * containers, they are told by the names that they are usually given. */
static bool is_software(const char *name)
{
	char path[128], real[PATH_MAX];

	snprintf(path, sizeof(path), "/sys/class/infiniband/%.64s", name);
	return realpath(path, real) ? strstr(real, "/virtual/") != NULL
				    : !strncmp(name, "rxe", 3) || !strncmp(name, "siw", 3);
}

static void close_rail(struct tt_ib_ep *ep, struct tt_ib_rail *rail)
{
	for (int i = 0; i < rail->ncqs; i++)
		ep->ib->destroy_cq(rail->cqs[i]);
	free(rail->cqs);
	if (rail->channel)
		ep->ib->destroy_comp_channel(rail->channel);
	if (rail->pd)
		ep->ib->dealloc_pd(rail->pd);
	if (rail->context)
		ep->ib->close_device(rail->context);
	memset(rail, 0, sizeof(*rail));
}

void tt_ib_close_rails(struct tt_ib_ep *ep)
{
	while (ep->nrails > 0)
		close_rail(ep, &ep->rail[--ep->nrails]);
}

/* What every link of a rail needs, and a trial of whether memory can be registered at all. */
static int furnish(struct tt_ib_ep *ep, struct tt_ib_rail *rail, int max_cqe)
{
	size_t bytes = 2 * tt_ib_ring_bytes(ep->base.world);
	struct tt_ib_mr *mr;
	void *trial;
	int rc;

	rail->links_per_cq = max_cqe / TT_IB_LINK_CQES < 256 ? max_cqe / TT_IB_LINK_CQES : 256;
	rail->pd = ep->ib->alloc_pd(rail->context);
	rail->channel = rail->pd ? ep->ib->create_comp_channel(rail->context) : NULL;
	if (!rail->channel || rail->links_per_cq < 1)
		return tt_fail(TT_SYSTEM, "%s: a protection domain and a completion channel: %m",
			       rail->name);
	fcntl(rail->channel->fd, F_SETFL, fcntl(rail->channel->fd, F_GETFL) | O_NONBLOCK);
	fcntl(rail->context->async_fd, F_SETFL,
	      fcntl(rail->context->async_fd, F_GETFL) | O_NONBLOCK);
	trial = aligned_alloc(4096, (bytes + 4095) & ~(size_t)4095);
	if (!trial)
		return tt_fail(TT_SYSTEM, "no memory for %zu bytes of messages", bytes);
	rc = tt_ib_register(ep, rail, trial, bytes, TT_IB_LOCAL_WRITE | TT_IB_REMOTE_WRITE, &mr);
	if (!rc)
		ep->ib->dereg_mr(mr);
	free(trial);
	return rc;
}

/* One port, if it can serve. 1 | 0 it is not active | TT_SYSTEM */
static int open_port(struct tt_ib_ep *ep, struct tt_ib_device *device, int port,
		     struct tt_ib_rail *rail)
{
	const struct tt_ib_settings *set = ep->base.world->ib;
	struct tt_ib_device_attr attr;
	struct tt_ib_port_attr at;
	int rc;

	memset(rail, 0, sizeof(*rail));
	memset(&at, 0, sizeof(at));
	memset(&attr, 0, sizeof(attr));
	snprintf(rail->name, sizeof(rail->name), "%s", ep->ib->get_device_name(device));
	rail->software = is_software(rail->name);
	rail->context = ep->ib->open_device(device);
	if (!rail->context)
		return tt_fail(TT_SYSTEM,
			"%s cannot be opened: %m; is /dev/infiniband/uverbs* there, and readable and writable "
			"for this user?", rail->name);
	if (ep->ib->query_device(rail->context, &attr))
		return tt_fail(TT_SYSTEM, "%s: query_device: %m", rail->name);
	if (port > attr.phys_port_cnt)
		return 0;
	if (ep->ib->query_port(rail->context, (uint8_t)port, &at))
		return tt_fail(TT_SYSTEM, "%s port %d: query_port: %m", rail->name, port);
	if (at.state != TT_IB_PORT_ACTIVE)
		return 0;
	rail->card = (struct tt_ib_port_card){ .link_layer = at.link_layer ? at.link_layer
									   : TT_IB_LINK_INFINIBAND,
					       .mtu = (uint8_t)at.active_mtu,
					       .port = (uint8_t)port,
					       .lid = at.lid };
	rail->speed = (uint64_t)at.active_width * at.active_speed;
	rc = list_gids(ep, rail, set ? set->gid_index : -1);
	if (!rc)
		rc = furnish(ep, rail, attr.max_cqe);
	return rc ? rc : 1;
}

/* Keep it if it is of the best kind seen so far:
 * a real card before a software one, and the fastest. */
static void consider(struct tt_ib_ep *ep, struct tt_ib_rail *rail, bool named)
{
	const struct tt_ib_rail *best = &ep->rail[0];
	bool better =
		ep->nrails && !named &&
		(rail->software != best->software ? best->software : rail->speed > best->speed);
	bool worse =
		ep->nrails && !named && !better && (rail->software || rail->speed < best->speed);

	if (better)
		tt_ib_close_rails(ep);
	if (worse || ep->nrails == TT_IB_RAILS)
		close_rail(ep, rail);
	else
		ep->rail[ep->nrails++] = *rail;
}

int tt_ib_open_rails(struct tt_ib_ep *ep)
{
	const char *names = ep->base.world->ib ? ep->base.world->ib->devices : "";
	int n = 0, rc = 0, inactive = 0, failed = 0;
	struct tt_ib_device **list = ep->ib->get_device_list(&n);

	for (int i = 0; list && i < n; i++)
		for (int port = 1;
		     port <= 2 && tt_ifname_chooses(names, ep->ib->get_device_name(list[i]));
		     port++) {
			struct tt_ib_rail rail;

			rc = open_port(ep, list[i], port, &rail);
			if (rc == 1)
				consider(ep, &rail, *names != '\0');
			else
				close_rail(ep, &rail);
			inactive += rc == 0 && port == 1;
			failed += rc < 0;
			if (rc < 0)
				break;
		}
	if (list)
		ep->ib->free_device_list(list);
	if (ep->nrails)
		return 0;
	if (failed)
		return TT_SYSTEM;
	if (inactive)
		return tt_fail(TT_SYSTEM,
			"no port of %d InfiniBand or RoCE device%s is active: link down, or no subnet manager",
			n, n > 1 ? "s" : "");
	return tt_fail(TT_SYSTEM,
		       *names ? "TUTTI_IB_HCA=%s names none of %d InfiniBand or RoCE devices"
			      : "no InfiniBand or RoCE device%s",
		       *names ? names : "", n);
}
