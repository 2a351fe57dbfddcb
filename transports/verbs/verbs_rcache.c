/*
 * verbs_rcache.c - the registration cache: callers' memory, registered once and kept registered
 *
 * Called by verbs_zcopy.c for each large message. Only memory with a known lifetime
 * (mem/registered.h: tuttiMemAlloc, tuttiCommRegister) is registered, always a whole range, at its
 * first use. Other memory travels through the rings, because ordinary memory can be unmapped and
 * mapped again unnoticed, and pinning it for one call costs as much as copying it. The thread that
 * ends a range drops its entry before the memory may change, so no entry can be stale.
 *
 * The cache of an endpoint is a set of ranges (mem/intervals.h) and an LRU list. An entry counts
 * the messages that use it. The least recently used idle entries are dropped when the cache exceeds
 * TUTTI_IB_REGISTRATIONS entries or TUTTI_IB_REGISTERED_MB, which counts each registration. An entry
 * notes what an HCA refused, so it is refused once. Locks: the lock of mem/registered.h, then the
 * cache's; a hit takes only the latter.
 *
 * Device memory is registered by the dma-buf descriptor of its pages (gpu/dmabuf.h). A caller may
 * free it unnoticed, against the contract, and another allocation may get the address. So each call
 * asks (tt_verbs_takes_device) with the id of its allocation, and a registration of another
 * allocation is dropped.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "gpu/dmabuf.h"
#include "transports/verbs/verbs.h"

#define REGISTRATIONS 256 /* unless the settings say otherwise */

struct tt_verbs_region {
	struct tt_interval range;
	uint64_t number; /* number of the range in mem/registered.h */
	void *ctx;       /* CUDA context of device memory; NULL: host memory */
	uint64_t id;     /* id of the allocation, once registered or refused */
	/* by rail: to send from; to receive into, too. Peers can write to the latter alone. */
	struct tt_verbs_mr *mr[TT_VERBS_RAILS][2];
	bool refused[TT_VERBS_RAILS][2];
	bool gone;
	int uses;
	struct tt_verbs_region *newer, *older;
};

static void unlink_region(struct tt_verbs_rcache *c, struct tt_verbs_region *r)
{
	*(r->newer ? &r->newer->older : &c->newest) = r->older;
	*(r->older ? &r->older->newer : &c->oldest) = r->newer;
	r->newer = r->older = NULL;
}

static void link_newest(struct tt_verbs_rcache *c, struct tt_verbs_region *r)
{
	r->older = c->newest;
	*(c->newest ? &c->newest->newer : &c->oldest) = r;
	c->newest = r;
}

static size_t size_of(const struct tt_verbs_region *r)
{
	return r->range.end - r->range.start;
}

static void end_keys(struct tt_verbs_ep *ep, const struct tt_verbs_region *r,
		     struct tt_verbs_mr **mr)
{
	if (!*mr)
		return;
	ep->ib->dereg_mr(*mr);
	ep->cache.bytes -= size_of(r);
	*mr = NULL;
}

/* End the keys of an entry; its last user frees it. */
static void drop(struct tt_verbs_ep *ep, struct tt_verbs_region *r)
{
	for (int i = 0; i < TT_VERBS_RAILS * 2; i++)
		end_keys(ep, r, &r->mr[i / 2][i % 2]);
	tt_intervals_remove(&ep->cache.ranges, &r->range);
	unlink_region(&ep->cache, r);
	ep->cache.count--;
	r->gone = true;
	if (!r->uses)
		free(r);
}

/* A range of mem/registered.h ends. */
static void going(struct tt_registered_watcher *w, const struct tt_registered *l)
{
	struct tt_verbs_rcache *c = (struct tt_verbs_rcache *)w;

	pthread_mutex_lock(&c->lock);
	for (struct tt_verbs_region *r = c->newest, *older; r; r = older) {
		older = r->older;
		if (r->number == l->number)
			drop(c->ep, r);
	}
	pthread_mutex_unlock(&c->lock);
}

void tt_verbs_rcache_open(struct tt_verbs_ep *ep)
{
	const struct tt_verbs_settings *set = ep->base.world->ib;
	struct tt_verbs_rcache *c = &ep->cache;

	c->ep = ep;
	c->most = set ? set->registrations : REGISTRATIONS;
	c->most_bytes = set && set->registered_bytes ? set->registered_bytes : SIZE_MAX;
	pthread_mutex_init(&c->lock, NULL);
	c->watch.going = going;
	tt_registered_watch(&c->watch);
}

void tt_verbs_rcache_close(struct tt_verbs_ep *ep)
{
	if (!ep->cache.ep)
		return;
	tt_registered_watch_end(&ep->cache.watch);
	while (ep->cache.newest)
		drop(ep, ep->cache.newest);
	pthread_mutex_destroy(&ep->cache.lock);
}

/* ---- use ------------------------------------------------------------------------------------- */

/* Make room for new entries (0 or 1) and for a registration of bytes. False: the other entries are in
 * use, or bytes exceed the limit. */
static bool make_room(struct tt_verbs_ep *ep, int entries, size_t bytes)
{
	struct tt_verbs_rcache *c = &ep->cache;
	struct tt_verbs_region *r = c->oldest, *newer;

	for (; r && (c->count + entries > c->most || bytes > c->most_bytes - c->bytes); r = newer) {
		newer = r->newer;
		if (!r->uses)
			drop(ep, r);
	}
	return c->count + entries <= c->most && bytes <= c->most_bytes - c->bytes;
}

/* Add a range to the cache, under both locks; a rail registers it at its first use. */
static void add(void *arg, const struct tt_registered *l)
{
	struct tt_verbs_ep *ep = arg;
	struct tt_verbs_region *r;
	size_t bytes = l->range.end - l->range.start;

	pthread_mutex_lock(&ep->cache.lock);
	r = bytes <= ep->cache.most_bytes && make_room(ep, 1, bytes) ? calloc(1, sizeof(*r)) : NULL;
	if (r) {
		r->range.start = l->range.start;
		r->range.end = l->range.end;
		r->number = l->number;
		r->ctx = l->ctx;
		tt_intervals_add(&ep->cache.ranges, &r->range);
		link_newest(&ep->cache, r);
		ep->cache.count++;
	}
	pthread_mutex_unlock(&ep->cache.lock);
}

/* Register device memory by its dma-buf descriptor, which the HCA's driver needs only meanwhile. */
static int register_device(struct tt_verbs_ep *ep, struct tt_verbs_region *r,
			   struct tt_verbs_rail *rail, int access, struct tt_verbs_mr **ret_mr)
{
	struct tt_dmabuf b;
	int error, rc;

	if (!ep->ib->reg_dmabuf_mr)
		return tt_fail(
			TT_SYSTEM,
			"rank %d: libibverbs has no ibv_reg_dmabuf_mr (rdma-core 34 or newer)",
			ep->base.world->rank);
	rc = tt_dmabuf_open(r->ctx, r->range.start, r->range.end, &b);
	r->id = b.id;
	if (rc)
		return rc;
	*ret_mr = ep->ib->reg_dmabuf_mr(rail->pd, 0, b.bytes, b.first, b.fd, access);
	error = errno;
	close(b.fd);
	if (!*ret_mr)
		return tt_fail(TT_SYSTEM,
			       "rank %d: %s: registering %llu bytes of device memory: %s%s",
			       ep->base.world->rank, rail->name, (unsigned long long)b.bytes,
			       strerror(error),
			       error == EOPNOTSUPP || error == EPROTONOSUPPORT
				       ? ": this HCA's driver takes no dma-buf"
				       : "");
	ep->registrations++;
	ep->dmabufs++;
	return 0;
}

static int make_keys(struct tt_verbs_ep *ep, struct tt_verbs_region *r, struct tt_verbs_rail *rail,
		     bool arrives, struct tt_verbs_mr **ret_mr)
{
	int access = TT_VERBS_LOCAL_WRITE | (arrives ? TT_VERBS_REMOTE_WRITE : 0);

	if (r->ctx)
		return register_device(ep, r, rail, access, ret_mr);
	return tt_verbs_register(ep, rail, (void *)r->range.start, r->range.end - r->range.start,
				 access, ret_mr);
}

/* Register the region on a rail, within the limits. false: no room now, or refused for good */
static bool add_keys(struct tt_verbs_ep *ep, struct tt_verbs_region *r, struct tt_verbs_rail *rail,
		     bool arrives)
{
	struct tt_verbs_mr **mr = r->mr[rail - ep->rail];
	bool *refused = &r->refused[rail - ep->rail][arrives], room;

	if (*refused)
		return false;
	if (!r->uses) /* the new keys serve sends, too */
		end_keys(ep, r, &mr[false]);
	r->uses++; /* make_room must not drop it */
	room = make_room(ep, 0, size_of(r));
	r->uses--;
	if (!room)
		return false;
	if (!make_keys(ep, r, rail, arrives, &mr[arrives])) {
		ep->cache.bytes += size_of(r);
		return true;
	}
	tt_log(TT_LOG_INFO, "%s; messages %s there are copied", tt_error_text(),
	       arrives ? "to" : "from");
	tt_error_clear();
	*refused = true;
	return false;
}

/* The keys of a region on a rail. Those of a region into which messages arrive serve sends, too. NULL: none */
static const struct tt_verbs_mr *keys_of(struct tt_verbs_ep *ep, struct tt_verbs_region *r,
					 struct tt_verbs_rail *rail, bool arrives)
{
	struct tt_verbs_mr *const *mr = r->mr[rail - ep->rail];

	if (tt_likely(mr[true] != NULL))
		return mr[true];
	if (!mr[arrives] && !add_keys(ep, r, rail, arrives))
		return NULL;
	return mr[arrives];
}

/* The entry that holds the range, counted as used, and its keys of the rail, which are of one registration:
 * another thread may add one once the lock is free. */
static struct tt_verbs_region *find(struct tt_verbs_ep *ep, struct tt_verbs_rail *rail,
				    uintptr_t start, size_t bytes, bool arrives, bool *ret_known,
				    uint32_t *ret_lkey, uint32_t *ret_rkey)
{
	const struct tt_verbs_mr *mr;
	struct tt_verbs_region *r;

	pthread_mutex_lock(&ep->cache.lock);
	r = (struct tt_verbs_region *)tt_intervals_holding(ep->cache.ranges, start, start + bytes);
	*ret_known = r != NULL;
	mr = r ? keys_of(ep, r, rail, arrives) : NULL;
	if (!mr)
		r = NULL;
	if (r) {
		*ret_lkey = mr->lkey;
		*ret_rkey = mr->rkey;
		r->uses++;
		if (r->newer) {
			unlink_region(&ep->cache, r);
			link_newest(&ep->cache, r);
		}
	}
	pthread_mutex_unlock(&ep->cache.lock);
	return r;
}

struct tt_verbs_region *tt_verbs_region_get(struct tt_verbs_ep *ep, struct tt_verbs_rail *rail,
					    const void *p, size_t bytes, bool arrives,
					    uint32_t *ret_lkey, uint32_t *ret_rkey)
{
	struct tt_verbs_region *r;
	bool known;

	if (ep->cache.most == 0)
		return NULL;
	r = find(ep, rail, (uintptr_t)p, bytes, arrives, &known, ret_lkey, ret_rkey);
	if (!r && !known && tt_registered_find(p, bytes, add, ep))
		r = find(ep, rail, (uintptr_t)p, bytes, arrives, &known, ret_lkey, ret_rkey);
	return r;
}

void tt_verbs_region_put(struct tt_verbs_ep *ep, struct tt_verbs_region *r)
{
	pthread_mutex_lock(&ep->cache.lock);
	if (--r->uses == 0 && r->gone)
		free(r);
	pthread_mutex_unlock(&ep->cache.lock);
}

/* ---- device memory --------------------------------------------------------------------------- */

/* Drop the entry of another allocation at this address: its memory was freed. */
static void forget_other(struct tt_verbs_ep *ep, uintptr_t start, size_t bytes, uint64_t id)
{
	struct tt_verbs_region *r;

	pthread_mutex_lock(&ep->cache.lock);
	r = (struct tt_verbs_region *)tt_intervals_holding(ep->cache.ranges, start, start + bytes);
	if (r && r->ctx && r->id && r->id != id)
		drop(ep, r);
	pthread_mutex_unlock(&ep->cache.lock);
}

/* Every rail must take the memory, because links may use any rail; in both directions, since the call does not say
 * which, and what arrives there cannot be copied by the host. */
bool tt_verbs_takes_device(struct tt_endpoint *base, const void *p, size_t bytes, uint64_t id)
{
	struct tt_verbs_ep *ep = (struct tt_verbs_ep *)base;
	uint32_t lkey, rkey;
	bool good = ep->nrails > 0;

	forget_other(ep, (uintptr_t)p, bytes, id);
	for (int i = 0; i < ep->nrails && good; i++) {
		struct tt_verbs_region *r = tt_verbs_region_get(ep, &ep->rail[i], p, bytes, true,
								&lkey, &rkey);

		good = r && r->ctx && r->id == id;
		if (r)
			tt_verbs_region_put(ep, r);
	}
	return good;
}
