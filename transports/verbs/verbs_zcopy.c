/*
 * verbs_zcopy.c - zero-copy messages: large messages between callers' buffers, without the rings
 *
 * Called through tt_verbs by run, and by verbs_ring.c. Two independent halves:
 *   can_send, post   the HCA reads the caller's buffer instead of a copy in the send ring
 *   prepost          the receiver writes an RTR into the sender's RTR table: message number, bytes
 *                    and stamp, address and key. A sender that finds the RTR of the next message
 *                    writes to that address, by one RDMA write with immediate data. A sender that
 *                    finds none, because the RTR comes too late, writes into the ring. The immediate
 *                    says which of the two, so no rank waits for an RTR or answers one.
 * Both need registered memory (verbs_rcache.c). RTRs are inline writes without immediate data: they
 * cost the peer neither a receive nor a completion. The peer learns of no completion, so an RTR
 * carries a checksum; an entry with a wrong checksum is not an RTR yet. An RTR ends with its
 * message: numbers are never reused.
 */
#include <stdio.h>
#include <string.h>

#include "transports/verbs/verbs.h"

_Static_assert(sizeof(struct tt_verbs_rtr) == 32 &&
		       TT_VERBS_MESSAGES * sizeof(struct tt_verbs_rtr) <= TT_VERBS_RTR_BYTES,
	       "the RTR table fits behind the ring");

static uint32_t check_of(const struct tt_verbs_rtr *w)
{
	uint64_t h = w->addr * 0x9e3779b97f4a7c15u;

	h = (h ^ h >> 29 ^ ((uint64_t)w->number << 32 | w->stamp)) * 0xd6e8feb86659fd93u;
	h = (h ^ h >> 29 ^ ((uint64_t)w->bytes << 32 | w->rkey)) * 0x9e3779b97f4a7c15u;
	return (uint32_t)(h >> 32) | 1; /* never the checksum of zeros */
}

/* ---- sending --------------------------------------------------------------------------------- */

/* Read the entry while the HCA may write there; the checksum detects a torn entry.
 * (ThreadSanitizer sees a race: in the tests a thread is the HCA.) */
__attribute__((no_sanitize("thread"))) static void read_entry(const struct tt_verbs_rtr *at,
							      uint64_t ret_words[4])
{
	for (int i = 0; i < 4; i++)
		ret_words[i] = ((const volatile uint64_t *)at)[i];
}

bool tt_verbs_rtr_for(const struct tt_verbs_link *l, size_t bytes, uint32_t stamp,
		      struct tt_verbs_rtr *ret_rtr)
{
	uint64_t words[4];

	if (bytes < TT_VERBS_ZCOPY_BYTES)
		return false;
	read_entry(&l->rtrs[l->sent % TT_VERBS_MESSAGES], words);
	memcpy(ret_rtr, words, sizeof(words));
	return ret_rtr->number == (uint32_t)l->sent && ret_rtr->bytes == bytes &&
	       ret_rtr->stamp == stamp && ret_rtr->check == check_of(ret_rtr);
}

bool tt_verbs_can_send(struct tt_link *link, const void *buf, size_t bytes)
{
	struct tt_verbs_link *l = (struct tt_verbs_link *)link;
	struct tt_verbs_ep *ep = (struct tt_verbs_ep *)link->ep;
	struct tt_verbs_region *r;
	uint32_t keys[2];

	if (bytes < TT_VERBS_ZCOPY_BYTES)
		return false;
	r = tt_verbs_region_get(ep, l->rail, buf, bytes, false, &keys[0], &keys[1]);
	if (r)
		tt_verbs_region_put(ep, r);
	return r != NULL;
}

/* Send through the ring. The post counts as complete when the posts before it are complete. */
static int post_copy(struct tt_verbs_link *l, const void *buf, size_t bytes, uint32_t stamp)
{
	const struct tt_world *w = l->base.ep->world;
	void *room = tt_verbs_reserve(&l->base, bytes);
	uint64_t before = l->base.posted;
	int rc = 0;

	if (!room)
		return 0;
	if (tt_unlikely(w->fetch != NULL))
		rc = w->fetch(w->ctx, room, buf, bytes);
	else
		memcpy(room, buf, bytes);
	if (rc)
		return rc;
	l->posts[before % TT_VERBS_MESSAGES].region = NULL;
	l->posts[before % TT_VERBS_MESSAGES].works =
		before ? l->posts[(before - 1) % TT_VERBS_MESSAGES].works : 0;
	l->base.posted++;
	tt_verbs_posts_done(l);
	rc = tt_verbs_commit(&l->base, bytes, stamp);
	return rc < 0 ? rc : 1;
}

int tt_verbs_post(struct tt_link *link, const void *buf, size_t bytes, uint32_t stamp)
{
	struct tt_verbs_link *l = (struct tt_verbs_link *)link;
	struct tt_verbs_ep *ep = (struct tt_verbs_ep *)link->ep;
	struct tt_verbs_region *r = NULL;
	uint32_t lkey, rkey;
	int rc;

	if (tt_unlikely(ep->failed))
		return tt_verbs_failed(ep);
	l->room = NULL;
	if (bytes >= TT_VERBS_ZCOPY_BYTES)
		r = tt_verbs_region_get(ep, l->rail, buf, bytes, false, &lkey, &rkey);
	if (!r)
		return post_copy(l, buf, bytes, stamp);
	rc = tt_verbs_send_from(l, buf, bytes, stamp, lkey);
	if (rc <= 0) {
		tt_verbs_region_put(ep, r);
		return rc;
	}
	l->posts[link->posted % TT_VERBS_MESSAGES] = (struct tt_verbs_posted){ r, l->works };
	link->posted++;
	ep->zcopy_sent++;
	return 1;
}

void tt_verbs_posts_done(struct tt_verbs_link *l)
{
	struct tt_link *link = &l->base;

	for (; link->completed < link->posted; link->completed++) {
		struct tt_verbs_posted *p = &l->posts[link->completed % TT_VERBS_MESSAGES];

		if (p->works > l->works_done)
			return;
		if (p->region)
			tt_verbs_region_put((struct tt_verbs_ep *)link->ep, p->region);
		p->region = NULL;
	}
}

/* ---- receiving ------------------------------------------------------------------------------- */

bool tt_verbs_prepost(struct tt_link *link, uint32_t ahead, void *dst, size_t bytes, uint32_t stamp)
{
	struct tt_verbs_link *l = (struct tt_verbs_link *)link;
	struct tt_verbs_ep *ep = (struct tt_verbs_ep *)link->ep;
	uint64_t number = link->received + ahead;
	struct tt_verbs_preposted *prepost = &l->preposts[number % TT_VERBS_MESSAGES];
	struct tt_verbs_rtr rtr = { .addr = (uintptr_t)dst,
				    .number = (uint32_t)number,
				    .stamp = stamp,
				    .bytes = (uint32_t)bytes };
	uint32_t lkey;

	if (bytes < TT_VERBS_ZCOPY_BYTES || l->max_inline < sizeof(rtr))
		return false;
	if (prepost->region || number < l->landed || ahead >= TT_VERBS_MESSAGES / 2 || ep->failed ||
	    l->works - l->works_done + l->npending >= TT_VERBS_SENDS / 2)
		return true; /* already sent, or not useful now */
	prepost->region = tt_verbs_region_get(ep, l->rail, dst, bytes, true, &lkey, &rtr.rkey);
	if (!prepost->region)
		return false;
	prepost->dst = dst;
	prepost->bytes = bytes;
	prepost->stamp = stamp;
	rtr.check = check_of(&rtr);
	tt_verbs_queue_rtr(l, &rtr);
	return true;
}

void tt_verbs_prepost_done(struct tt_verbs_link *l)
{
	struct tt_verbs_preposted *prepost = &l->preposts[l->base.received % TT_VERBS_MESSAGES];

	if (prepost->region)
		tt_verbs_region_put((struct tt_verbs_ep *)l->base.ep, prepost->region);
	prepost->region = NULL;
}

/* ---- the end --------------------------------------------------------------------------------- */

/* May the HCA still read or write memory of the caller for this link? */
static bool uses_caller_memory(const struct tt_verbs_link *l)
{
	bool preposts = false;

	for (int i = 0; i < TT_VERBS_MESSAGES; i++)
		preposts |= l->preposts[i].region != NULL;
	return preposts || l->base.completed < l->base.posted;
}

void tt_verbs_abandon(struct tt_endpoint *base)
{
	struct tt_verbs_qp_attr stop = { .qp_state = TT_VERBS_ERR };
	struct tt_verbs_ep *ep = (struct tt_verbs_ep *)base;

	for (uint32_t i = 0; i < ep->nlist; i++) {
		if (!uses_caller_memory(ep->list[i]))
			continue;
		/* keeps the thread's last error, which names the cause */
		if (!ep->failed) {
			snprintf(ep->text, sizeof(ep->text),
				 "rank %d: verbs: a call before this one failed",
				 base->world->rank);
			ep->failed = TT_REMOTE;
		}
		ep->list[i]->peer_closed = true; /* tt_verbs_lost need not report this stop */
		ep->ib->modify_qp(ep->list[i]->qp, &stop, TT_VERBS_QP_STATE);
	}
}

void tt_verbs_release_regions(struct tt_verbs_link *l)
{
	struct tt_verbs_ep *ep = (struct tt_verbs_ep *)l->base.ep;

	for (int i = 0; i < TT_VERBS_MESSAGES; i++) {
		if (l->preposts[i].region)
			tt_verbs_region_put(ep, l->preposts[i].region);
		if (l->posts[i].region)
			tt_verbs_region_put(ep, l->posts[i].region);
		l->preposts[i].region = l->posts[i].region = NULL;
	}
}
