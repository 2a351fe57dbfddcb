/*
 * verbs.c - messages over InfiniBand and RoCE: one RC queue pair for each (peer, channel)
 *
 * Called through tt_verbs by comm and run; verbs.h lists the files. The first endpoint loads
 * libibverbs. A host without libibverbs, without an HCA, or with ports that do not reach a peer's
 * leaves that peer to tcp, unless the user named verbs. Soft-RoCE serves only when the user named
 * verbs, or where comm allows software NICs because they may be faster than tcp for some size.
 *
 * Sleep: a rank polls the completion queues. Only arm requests a completion event; the rank polls
 * once more and then sleeps on the completion channels, the asynchronous events of the HCAs and a
 * bell (an eventfd).
 */
#include <errno.h>
#include <openssl/crypto.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "base/sock.h"
#include "transports/verbs/verbs.h"

#define GOODBYE_MS 1000 /* longest wait of close for HCAs that do not answer */

static int verbs_probe(char *why, size_t bytes)
{
	const struct tt_verbs_table *ib = tt_verbs_load(why, bytes);
	struct tt_verbs_device **list;
	int n = 0;

	if (!ib)
		return 0;
	list = ib->get_device_list(&n);
	if (list)
		ib->free_device_list(list);
	if (list && n == 0)
		snprintf(why, bytes, "no InfiniBand or RoCE device");
	else if (!list)
		snprintf(why, bytes, "no InfiniBand or RoCE device: %s",
			 errno == ENOSYS ? "this kernel has no RDMA (ib_uverbs is not loaded)"
					 : strerror(errno));
	return list && n > 0;
}

/* ---- endpoint -------------------------------------------------------------------------------- */

/* Send a goodbye on every link, and wait until the HCAs have sent all messages. */
static void send_goodbyes(struct tt_verbs_ep *ep)
{
	uint64_t deadline = tt_deadline_ns(GOODBYE_MS);
	bool all = false;

	for (uint32_t i = 0; i < ep->nlist && !ep->failed; i++)
		if (ep->list[i]->state == TT_VERBS_READY)
			tt_verbs_goodbye(ep->list[i]);
	while (!all && !ep->failed && tt_now_ns() < deadline && tt_verbs_poll(ep) >= 0) {
		all = true;
		for (uint32_t i = 0; i < ep->nlist && all; i++)
			all = ep->list[i]->state != TT_VERBS_READY ||
			      tt_verbs_all_done(ep->list[i]);
		sched_yield();
	}
}

static void verbs_close(struct tt_endpoint *base)
{
	struct tt_verbs_ep *ep = (struct tt_verbs_ep *)base;

	if (ep->posted)
		tt_log(TT_LOG_DEBUG,
		       "rank %d: verbs: %llu work requests in %llu posts, %llu signalled; %llu messages sent and %llu received by zero copy; "
		       "%llu registrations, %llu of them of device memory",
		       base->world->rank, (unsigned long long)ep->posted,
		       (unsigned long long)ep->doorbells, (unsigned long long)ep->signalled,
		       (unsigned long long)ep->zcopy_sent, (unsigned long long)ep->zcopy_received,
		       (unsigned long long)ep->registrations, (unsigned long long)ep->dmabufs);
	send_goodbyes(ep);
	for (uint32_t i = 0; i < ep->nlist; i++)
		tt_verbs_queue_free(ep->list[i]);
	tt_verbs_rcache_close(ep);
	tt_verbs_close_rails(ep);
	if (ep->bell >= 0)
		close(ep->bell);
	free(ep->list);
	free(ep->links);
	free(ep->records);
	free(ep->reached);
	free(ep->host);
	free(ep);
}

static int make_endpoint(const struct tt_world *world, struct tt_verbs_ep **ret_ep)
{
	size_t nlinks = (size_t)world->nranks * (size_t)world->nchannels;
	struct tt_verbs_ep *ep = calloc(1, sizeof(*ep));

	if (!ep)
		return tt_fail(TT_SYSTEM, "rank %d: no memory for the verbs endpoint", world->rank);
	ep->base = (struct tt_endpoint){ .t = &tt_verbs, .world = world };
	ep->bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	ep->links = calloc(nlinks, sizeof(*ep->links));
	ep->list = calloc(nlinks, sizeof(*ep->list));
	ep->records = calloc((size_t)world->nranks, sizeof(*ep->records));
	ep->memory = sizeof(*ep) + 2 * nlinks * sizeof(*ep->links) +
		     (size_t)world->nranks * sizeof(*ep->records);
	if (ep->bell < 0 || !ep->links || !ep->list || !ep->records) {
		if (ep->bell < 0)
			tt_sock_fail("cannot make the eventfd of the verbs endpoint");
		else
			tt_fail(TT_SYSTEM, "no memory for the verbs endpoint");
		tt_fail(TT_SYSTEM, "rank %d: %s", world->rank, tt_error_text());
		verbs_close(&ep->base);
		return TT_SYSTEM;
	}
	tt_verbs_rcache_open(ep);
	*ret_ep = ep;
	return 0;
}

/* Open the rails of this rank and fill its record.
 * < 0: no rail; the reason is the thread's last error. */
static int open_rails(struct tt_verbs_ep *ep, struct tt_verbs_record *record, bool warns)
{
	char why[256];
	int rc;

	ep->ib = tt_verbs_load(why, sizeof(why));
	rc = ep->ib ? tt_verbs_open_rails(ep, warns) : tt_fail(TT_SYSTEM, "%s", why);
	record->usable = rc == 0;
	record->nrails = (uint8_t)ep->nrails;
	record->first = ep->nrails > 1 ? (uint8_t)tt_verbs_first_rail(ep) : 0;
	for (int i = 0; i < ep->nrails; i++) {
		record->rail[i] = ep->rail[i].record;
		record->software |= ep->rail[i].software;
		tt_log(TT_LOG_DEBUG, "rank %d: verbs: %s port %d%s, link layer %s, path MTU %d",
		       ep->base.world->rank, ep->rail[i].name, ep->rail[i].record.port,
		       ep->rail[i].software ? " (software)" : "",
		       ep->rail[i].record.link_layer == TT_VERBS_LINK_ETHERNET ? "Ethernet"
									       : "InfiniBand",
		       128 << ep->rail[i].record.mtu);
	}
	return rc;
}

int tt_verbs_endpoint(const struct tt_world *world, const struct tt_verbs_record *records,
		      struct tt_verbs_ep **ret_ep)
{
	struct tt_verbs_record record = { 0 };
	int rc = make_endpoint(world, ret_ep);

	if (rc)
		return rc;
	memcpy((*ret_ep)->records, records, (size_t)world->nranks * sizeof(record));
	return open_rails(*ret_ep, &record, false);
}

static int verbs_open(const struct tt_world *world, struct tt_endpoint **ret_ep)
{
	static atomic_bool warned; /* once in a process */
	struct tt_verbs_record record = { 0 };
	struct tt_verbs_ep *ep = NULL;
	char text[700] = "";
	int rc = make_endpoint(world, &ep);

	if (rc)
		return rc;
	if (open_rails(ep, &record, !atomic_exchange(&warned, true)))
		snprintf(text, sizeof(text), "%s", tt_error_text());
	rc = world->allgather(world->ctx, &record, sizeof(record), ep->records);
	if (!rc)
		rc = tt_verbs_check_records(ep);
	if (!rc && !record.usable && world->insist)
		rc = tt_fail(TT_SYSTEM, "rank %d: transport verbs cannot be used on this host: %s",
			     world->rank, text);
	if (!rc)
		rc = tt_verbs_probe(ep);
	if (rc) {
		verbs_close(&ep->base);
		return rc;
	}
	if (!record.usable)
		tt_log(TT_LOG_INFO, "rank %d: no transport verbs on this host: %s", world->rank,
		       text);
	*ret_ep = &ep->base;
	return 0;
}

static bool verbs_reaches(struct tt_endpoint *base, int peer)
{
	struct tt_verbs_ep *ep = (struct tt_verbs_ep *)base;
	struct tt_verbs_rail_pair pairs[TT_VERBS_RAILS];

	return peer != base->world->rank &&
	       tt_verbs_allowed(base->world, &ep->records[base->world->rank], &ep->records[peer]) &&
	       tt_verbs_live_rail_pairs(ep, peer, pairs) > 0;
}

static bool verbs_emulated(const struct tt_endpoint *base, int peer)
{
	const struct tt_verbs_ep *ep = (const struct tt_verbs_ep *)base;

	return ep->records[base->world->rank].software || ep->records[peer].software;
}

/* ---- links ----------------------------------------------------------------------------------- */

/* The channels of a rank pair take its rail pairs round robin, from the first port of the lower
 * rank on. */
static void choose_path(struct tt_verbs_link *l)
{
	struct tt_verbs_ep *ep = (struct tt_verbs_ep *)l->base.ep;
	int me = ep->base.world->rank, peer = l->base.peer;
	struct tt_verbs_rail_pair pairs[TT_VERBS_RAILS];
	const struct tt_verbs_port_record *mine, *theirs;
	char a[TT_VERBS_GID_TEXT], b[TT_VERBS_GID_TEXT];
	const char *kind = "InfiniBand";

	pairs[0] = pairs[tt_verbs_rail_pair_of(ep, peer, l->base.channel, pairs)];
	mine = &ep->records[me].rail[me < peer ? pairs[0].low : pairs[0].high];
	theirs = &ep->records[peer].rail[me < peer ? pairs[0].high : pairs[0].low];
	l->rail = &ep->rail[mine - ep->records[me].rail];
	l->global = mine->link_layer == TT_VERBS_LINK_ETHERNET || mine->grh || theirs->grh;
	if (me < peer)
		tt_verbs_choose_gids(mine, theirs, &l->mine, &l->theirs);
	else
		tt_verbs_choose_gids(theirs, mine, &l->theirs, &l->mine);
	if (l->mine.type == TT_VERBS_GID_ROCE2)
		kind = "RoCE v2";
	else if (l->mine.type == TT_VERBS_GID_ROCE1)
		kind = "RoCE v1";
	tt_log(TT_LOG_DEBUG,
	       "rank %d: rank %d channel %d: %s port %d, from GID %d (%s) to GID %d (%s), %s", me,
	       peer, l->base.channel, l->rail->name, l->rail->record.port, l->mine.index,
	       tt_verbs_gid_text(l->mine.gid, a), l->theirs.index,
	       tt_verbs_gid_text(l->theirs.gid, b), kind);
}

static int make_link(struct tt_verbs_ep *ep, int peer, int channel, struct tt_verbs_link **ret_link)
{
	struct tt_verbs_link *l = calloc(1, sizeof(*l));
	struct tt_verbs_rail_pair pairs[TT_VERBS_RAILS];
	int rc;

	if (!l)
		return tt_fail(TT_SYSTEM, "rank %d: no memory for a link to rank %d",
			       ep->base.world->rank, peer);
	l->base = (struct tt_link){
		.t = &tt_verbs, .ep = &ep->base, .peer = peer, .channel = channel
	};
	l->fd = -1;
	l->base.ports = tt_verbs_live_rail_pairs(ep, peer, pairs);
	l->index = ep->nlist;
	choose_path(l);
	rc = tt_verbs_queue_make(l);
	if (rc) {
		tt_verbs_queue_free(l);
		return rc;
	}
	ep->memory += sizeof(*l);
	ep->list[ep->nlist++] = l;
	*ret_link = l;
	return 0;
}

static int verbs_connect(struct tt_endpoint *base, int peer, int channel, struct tt_link **ret_link)
{
	struct tt_verbs_ep *ep = (struct tt_verbs_ep *)base;
	const struct tt_world *w = base->world;
	struct tt_verbs_link **l = &ep->links[peer * w->nchannels + channel];
	int rc;

	if (!*l) {
		rc = make_link(ep, peer, channel, l);
		if (!rc && w->rank < peer)
			rc = w->dial(w->ctx, peer, channel);
		if (rc)
			return rc;
	}
	*ret_link = &(*l)->base;
	return 0;
}

static int verbs_ready(struct tt_link *base)
{
	struct tt_verbs_link *l = (struct tt_verbs_link *)base;
	struct tt_verbs_ep *ep = (struct tt_verbs_ep *)base->ep;
	const struct tt_world *w = base->ep->world;
	int rc;

	if (tt_likely(l->state == TT_VERBS_READY))
		return 1;
	/* the peer may wait for a message that failed, before it connects */
	if (tt_unlikely(ep->failed))
		return tt_verbs_failed(ep);
	if (l->state == TT_VERBS_UNCONNECTED) {
		struct tt_data_keys keys;

		rc = w->take(w->ctx, base->peer, base->channel, &l->fd, &keys);
		if (rc <= 0)
			return rc;
		rc = tt_verbs_send_hello(l, &keys);
		OPENSSL_cleanse(&keys, sizeof(keys));
		if (rc)
			return rc;
		l->state = TT_VERBS_HELLO_SENT;
	}
	return tt_verbs_finish_connect(l);
}

static int verbs_progress(struct tt_endpoint *base)
{
	struct tt_verbs_ep *ep = (struct tt_verbs_ep *)base;
	int moved = tt_verbs_poll(ep);

	if (tt_unlikely(ep->nrtr_links))
		tt_verbs_send_rtrs(ep);
	if (tt_unlikely(ep->ncredits_due))
		tt_verbs_send_due_credits(ep);
	return moved;
}

/* ---- sleep ----------------------------------------------------------------------------------- */

static uint32_t verbs_arm(struct tt_endpoint *base)
{
	struct tt_verbs_ep *ep = (struct tt_verbs_ep *)base;

	for (int r = 0; r < ep->nrails; r++)
		for (int q = 0; q < ep->rail[r].ncqs; q++)
			ep->rail[r].context->ops.req_notify_cq(ep->rail[r].cqs[q], 0);
	return 0;
}

static void verbs_doze(struct tt_endpoint *base, uint32_t ticket, uint32_t timeout_us)
{
	struct tt_verbs_ep *ep = (struct tt_verbs_ep *)base;
	struct timespec limit = { timeout_us / 1000000, (long)(timeout_us % 1000000) * 1000 };
	struct pollfd fds[2 * TT_VERBS_RAILS + 1];
	struct tt_verbs_cq *cq;
	eventfd_t count;
	nfds_t n = 0;
	void *user;

	(void)ticket;
	fds[n++] = (struct pollfd){ .fd = ep->bell, .events = POLLIN };
	for (int r = 0; r < ep->nrails; r++) {
		fds[n++] = (struct pollfd){ .fd = ep->rail[r].channel->fd, .events = POLLIN };
		fds[n++] = (struct pollfd){ .fd = ep->rail[r].context->async_fd, .events = POLLIN };
	}
	if (ppoll(fds, n, &limit, NULL) <= 0)
		return;
	if (fds[0].revents)
		eventfd_read(ep->bell, &count);
	for (int r = 0; r < ep->nrails; r++)
		while (fds[1 + 2 * r].revents & POLLIN &&
		       !ep->ib->get_cq_event(ep->rail[r].channel, &cq, &user))
			ep->ib->ack_cq_events(cq, 1);
	tt_verbs_events(ep);
}

static void verbs_disarm(struct tt_endpoint *base)
{
	(void)base;
}

static void verbs_wake(struct tt_endpoint *base)
{
	eventfd_write(((struct tt_verbs_ep *)base)->bell, 1);
}

static size_t verbs_memory(struct tt_endpoint *base)
{
	return atomic_load(&((struct tt_verbs_ep *)base)->memory);
}

static const struct tt_zcopy_ops zcopy_ops = {
	.can_send = tt_verbs_can_send,
	.prepost = tt_verbs_prepost,
	.takes_device = tt_verbs_takes_device,
	.abandon = tt_verbs_abandon,
};

static const struct tt_fault_ops fault_ops = { .local = tt_verbs_local_fault,
					       .lost = tt_verbs_lost };

const struct tt_transport tt_verbs = {
	.name = "verbs",
	.help = "InfiniBand and RoCE between any ranks, by RDMA writes; libibverbs is loaded at run time",
	.flags = TT_T_RESERVE,
	.spins = 2000, /* of about 50 ns: some 100 us */
	.zcopy_ops = &zcopy_ops,
	.fault_ops = &fault_ops,
	.probe = verbs_probe,
	.open = verbs_open,
	.reaches = verbs_reaches,
	.emulated = verbs_emulated,
	.connect = verbs_connect,
	.ready = verbs_ready,
	.reserve = tt_verbs_reserve,
	.commit = tt_verbs_commit,
	.post = tt_verbs_post,
	.peek = tt_verbs_peek,
	.release = tt_verbs_release,
	.progress = verbs_progress,
	.arm = verbs_arm,
	.doze = verbs_doze,
	.disarm = verbs_disarm,
	.wake = verbs_wake,
	.memory = verbs_memory,
	.close = verbs_close,
};
