/*
 * verbs_device.c - which HCAs and ports carry the messages
 *
 * Called by verbs.c in open. TUTTI_IB_HCA restricts the HCAs; without it, all active ports of the
 * fastest kind serve, hardware before Soft-RoCE. Devices without RC queue pairs and writes with
 * immediate data (iWARP, EFA) are skipped. verbs_gid.c reads the ports' GIDs.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/sock.h"
#include "transports/verbs/verbs.h"

/* ---- HCAs ------------------------------------------------------------------------------------ */

/* Soft-RoCE and siw belong to no bus. Where /sys does not show the device, as in some containers,
 * the usual names identify them. */
static bool is_software(const char *name)
{
	char path[128], real[PATH_MAX];

	snprintf(path, sizeof(path), "/sys/class/infiniband/%.64s", name);
	return realpath(path, real) ? strstr(real, "/virtual/") != NULL
				    : !strncmp(name, "rxe", 3) || !strncmp(name, "siw", 3);
}

static void close_rail(struct tt_verbs_ep *ep, struct tt_verbs_rail *rail)
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

void tt_verbs_close_rails(struct tt_verbs_ep *ep)
{
	while (ep->nrails > 0)
		close_rail(ep, &ep->rail[--ep->nrails]);
}

/* Links that share a completion queue: at most all links, because its memory is locked. */
static int links_of_one(const struct tt_world *w, int max_cqe)
{
	int most = max_cqe / TT_VERBS_LINK_CQES, all = w->nranks * w->nchannels;

	most = most < 256 ? most : 256;
	return most < all ? most : all;
}

static int cannot_make(const struct tt_verbs_rail *rail, const char *what)
{
	int error = errno;
	char text[200];

	return tt_fail(TT_SYSTEM, "%s: %s: %s%s", rail->name, what, strerror(error),
		       tt_verbs_remedy(error, text));
}

/* Make the objects that all links of a rail share, and try whether memory can be registered. */
static int make_resources(struct tt_verbs_ep *ep, struct tt_verbs_rail *rail, int max_cqe)
{
	size_t bytes = 2 * tt_verbs_ring_bytes(ep->base.world);
	struct tt_verbs_mr *mr;
	void *sample;
	int rc;

	rail->links_per_cq = links_of_one(ep->base.world, max_cqe);
	if (rail->links_per_cq < 1)
		return tt_fail(TT_SYSTEM, "%s: %d entries of a completion queue are too few",
			       rail->name, max_cqe);
	rail->pd = ep->ib->alloc_pd(rail->context);
	if (!rail->pd)
		return cannot_make(rail, "a protection domain (ibv_alloc_pd)");
	rail->channel = ep->ib->create_comp_channel(rail->context);
	if (!rail->channel)
		return cannot_make(rail, "a completion channel (ibv_create_comp_channel)");
	fcntl(rail->channel->fd, F_SETFL, fcntl(rail->channel->fd, F_GETFL) | O_NONBLOCK);
	fcntl(rail->context->async_fd, F_SETFL,
	      fcntl(rail->context->async_fd, F_GETFL) | O_NONBLOCK);
	sample = aligned_alloc(4096, (bytes + 4095) & ~(size_t)4095);
	if (!sample)
		return tt_fail(TT_SYSTEM, "no memory for %zu bytes of messages", bytes);
	rc = tt_verbs_register(ep, rail, sample, bytes,
			       TT_VERBS_LOCAL_WRITE | TT_VERBS_REMOTE_WRITE, &mr);
	if (!rc)
		ep->ib->dereg_mr(mr);
	free(sample);
	return rc;
}

/* InfiniBand: the first partition in which the port is a full member, or else the first in which
 * the port is a limited member; neither need be index 0. RoCE has only one partition. */
static int choose_pkey(struct tt_verbs_ep *ep, struct tt_verbs_rail *rail, int n)
{
	struct tt_verbs_port_record *record = &rail->record;

	for (int i = 0; record->link_layer == TT_VERBS_LINK_INFINIBAND && i < n; i++) {
		uint16_t key = 0;

		if (ep->ib->query_pkey(rail->context, record->port, i, &key) ||
		    !(ntohs(key) & TT_VERBS_PKEY_PARTITION))
			continue;
		if (record->pkey && !(ntohs(key) & TT_VERBS_PKEY_FULL))
			continue;
		rail->pkey_index = (uint16_t)i;
		record->pkey = ntohs(key);
		if (record->pkey & TT_VERBS_PKEY_FULL)
			break;
	}
	if (record->link_layer == TT_VERBS_LINK_INFINIBAND && !record->pkey)
		return tt_fail(
			TT_SYSTEM,
			"%s port %d is in no partition: ask the administrator of the subnet manager",
			rail->name, record->port);
	return 0;
}

/* Lanes times the speed code of a lane: a comparable number. width is a code, too: 16 means 2
 * lanes. */
uint64_t tt_verbs_speed(uint8_t width, uint8_t speed)
{
	uint64_t lanes = width == 1    ? 1
			 : width == 2  ? 4
			 : width == 4  ? 8
			 : width == 8  ? 12
			 : width == 16 ? 2
				       : 1;

	return lanes * speed;
}

/* Open one port. Returns 1 | 0 the port is not active | TT_SYSTEM */
static int open_port(struct tt_verbs_ep *ep, struct tt_verbs_device *device, int port,
		     struct tt_verbs_rail *rail)
{
	const struct tt_verbs_settings *set = ep->base.world->ib;
	struct tt_verbs_device_attr attr;
	struct tt_verbs_port_attr at;
	int rc;

	memset(rail, 0, sizeof(*rail));
	memset(&at, 0, sizeof(at));
	memset(&attr, 0, sizeof(attr));
	snprintf(rail->name, sizeof(rail->name), "%s", ep->ib->get_device_name(device));
	if (device->transport_type != TT_VERBS_TRANSPORT)
		return tt_fail(TT_SYSTEM, "%s is neither InfiniBand nor RoCE (transport type %d)",
			       rail->name, device->transport_type);
	rail->software = is_software(rail->name);
	rail->context = ep->ib->open_device(device);
	if (!rail->context)
		return tt_fail(
			TT_SYSTEM,
			"%s cannot be opened: %m; is /dev/infiniband/uverbs* there, and readable and writable "
			"for this user?",
			rail->name);
	if (ep->ib->query_device(rail->context, &attr))
		return tt_fail(TT_SYSTEM, "%s: query_device: %m", rail->name);
	if (port > attr.phys_port_cnt)
		return 0;
	if (ep->ib->query_port(rail->context, (uint8_t)port, &at))
		return tt_fail(TT_SYSTEM, "%s port %d: query_port: %m", rail->name, port);
	if (at.state != TT_VERBS_PORT_ACTIVE)
		return 0;
	rail->record = (struct tt_verbs_port_record){
		.link_layer = at.link_layer ? at.link_layer : TT_VERBS_LINK_INFINIBAND,
		.mtu = (uint8_t)at.active_mtu,
		.port = (uint8_t)port,
		.grh = at.flags & TT_VERBS_GRH_REQUIRED,
		.lid = at.lid
	};
	rail->speed = tt_verbs_speed(at.active_width, at.active_speed);
	rc = tt_verbs_list_gids(ep, rail, set ? set->gid_index : -1);
	if (!rc)
		rc = choose_pkey(ep, rail, at.pkey_tbl_len);
	if (!rc)
		rc = make_resources(ep, rail, attr.max_cqe);
	return rc ? rc : 1;
}

/* Keep the rail if it is of the best kind so far: hardware before software, then the fastest. A
 * named device is always kept. */
static void consider(struct tt_verbs_ep *ep, struct tt_verbs_rail *rail, bool named)
{
	const struct tt_verbs_rail *best = &ep->rail[0];
	bool better = ep->nrails && !named &&
		      (rail->software != best->software ? best->software
							: rail->speed > best->speed);
	bool worse = ep->nrails && !named && !better &&
		     (rail->software || rail->speed < best->speed);

	if (better)
		tt_verbs_close_rails(ep);
	if (worse || ep->nrails == TT_VERBS_RAILS)
		close_rail(ep, rail);
	else
		ep->rail[ep->nrails++] = *rail;
}

/* The reason is the thread's last error. A device of another kind than verbs needs is left out on every host that has
 * one, so that is no warning. */
static void log_failure(const struct tt_verbs_ep *ep, const struct tt_verbs_device *device,
			const char *name, int port)
{
	bool fits = device->transport_type == TT_VERBS_TRANSPORT;

	if (port == 1)
		tt_log(fits ? TT_LOG_WARN : TT_LOG_INFO,
		       "rank %d: verbs does not use %s: %s; `ibv_devinfo -d %s` shows more, and TUTTI_IB_HCA=^=%s leaves it out",
		       ep->base.world->rank, name, tt_error_text(), name, name);
	else
		tt_log(fits ? TT_LOG_WARN : TT_LOG_INFO,
		       "rank %d: verbs does not use port %d of %s: %s; `ibv_devinfo -d %s` shows more",
		       ep->base.world->rank, port, name, tt_error_text(), name);
}

int tt_verbs_open_rails(struct tt_verbs_ep *ep, bool warns)
{
	const char *names = ep->base.world->ib ? ep->base.world->ib->devices : "";
	int n = 0, rc = 0, inactive = 0, failed = 0;
	struct tt_verbs_device **list = ep->ib->get_device_list(&n);

	for (int i = 0; list && i < n; i++)
		for (int port = 1;
		     port <= 2 && tt_ifname_chooses(names, ep->ib->get_device_name(list[i]));
		     port++) {
			struct tt_verbs_rail rail;

			rc = open_port(ep, list[i], port, &rail);
			if (rc == 1)
				consider(ep, &rail, *names && *names != '^');
			else
				close_rail(ep, &rail);
			inactive += rc == 0 && port == 1;
			failed += rc < 0;
			if (rc < 0 && warns)
				log_failure(ep, list[i], ep->ib->get_device_name(list[i]), port);
			if (rc < 0)
				break;
		}
	if (!list)
		return tt_fail(TT_SYSTEM, "no InfiniBand or RoCE device: %m");
	ep->ib->free_device_list(list);
	if (ep->nrails)
		return 0;
	if (failed)
		return TT_SYSTEM;
	if (inactive)
		return tt_fail(
			TT_SYSTEM,
			"no port of %d InfiniBand or RoCE device%s is active: link down, or no subnet manager",
			n, n > 1 ? "s" : "");
	return tt_fail(TT_SYSTEM,
		       *names ? "TUTTI_IB_HCA=%s names none of %d InfiniBand or RoCE devices"
			      : "no InfiniBand or RoCE device%s",
		       *names ? names : "", n);
}
