/*
 * verbs_zcopy.c - large messages from where they lie to where they belong, past the rings
 *
 * Called through tt_verbs by run, and by verbs_ring.c. Two halves, each of use without the other:
 *   lends, post     the card reads the caller's memory instead of a copy in our ring
 *   expect          the receiver writes a wish into the sender's table: message number, bytes and
 *                   stamp, address and key. A sender that finds the wish for the message at hand
 *                   writes there, by one RDMA write with immediate data; one that finds none, as it
 *                   comes too late, writes into the ring as ever. The immediate says which it was,
 *                   so a wish is never waited for, and needs no answer.
 * Both need memory that lasts (verbs_rcache.c). Wishes are inline writes without immediate data:
 * they cost the other side neither a receive nor a completion. Nothing tells when one is complete,
 * so it carries a check of itself, and what fails that is no wish yet. A wish ends with its
 * message: numbers are never used again.
 */
#include <stdio.h>
#include <string.h>

#include "transports/verbs/verbs.h"

_Static_assert(sizeof(struct tt_ib_wish) == 32 &&
		       TT_IB_MESSAGES * sizeof(struct tt_ib_wish) <= TT_IB_WISH_BYTES,
	       "the table of wishes has its room behind the ring");

static uint32_t check_of(const struct tt_ib_wish *w)
{
	uint64_t h = w->addr * 0x9e3779b97f4a7c15u;

	h = (h ^ h >> 29 ^ ((uint64_t)w->number << 32 | w->stamp)) * 0xd6e8feb86659fd93u;
	h = (h ^ h >> 29 ^ ((uint64_t)w->bytes << 32 | w->rkey)) * 0x9e3779b97f4a7c15u;
	return (uint32_t)(h >> 32) | 1;        /* never that of zeros */
}

/* ---- sending --------------------------------------------------------------------------------- */

/* As it is, while the card writes there: the check tells.
 * (ThreadSanitizer cannot know; its card is a thread.) */
__attribute__((no_sanitize("thread"))) static void look_at(const struct tt_ib_wish *at,
							   uint64_t ret_words[4])
{
	for (int i = 0; i < 4; i++)
		ret_words[i] = ((const volatile uint64_t *)at)[i];
}

bool tt_ib_wish_for(const struct tt_ib_link *l, size_t bytes, uint32_t stamp,
		    struct tt_ib_wish *ret_wish)
{
	uint64_t words[4];

	if (bytes < TT_IB_DIRECT)
		return false;
	look_at(&l->wishes[l->sent % TT_IB_MESSAGES], words);
	memcpy(ret_wish, words, sizeof(words));
	return ret_wish->number == (uint32_t)l->sent && ret_wish->bytes == bytes &&
	       ret_wish->stamp == stamp && ret_wish->check == check_of(ret_wish);
}

bool tt_ib_lends(struct tt_link *link, const void *buf, size_t bytes)
{
	struct tt_ib_link *l = (struct tt_ib_link *)link;
	struct tt_ib_ep *ep = (struct tt_ib_ep *)link->ep;
	struct tt_ib_region *r;
	uint32_t keys[2];

	if (bytes < TT_IB_DIRECT)
		return false;
	r = tt_ib_region_take(ep, l->rail, buf, bytes, &keys[0], &keys[1]);
	if (r)
		tt_ib_region_give(ep, r);
	return r != NULL;
}

/* By the ring, after all. It counts as complete when the posts before it are. */
static int post_copy(struct tt_ib_link *l, const void *buf, size_t bytes, uint32_t stamp)
{
	const struct tt_world *w = l->base.ep->world;
	void *room = tt_ib_reserve(&l->base, bytes);
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
	l->posts[before % TT_IB_MESSAGES].region = NULL;
	l->posts[before % TT_IB_MESSAGES].works =
		before ? l->posts[(before - 1) % TT_IB_MESSAGES].works : 0;
	l->base.posted++;
	tt_ib_posts_done(l);
	tt_ib_commit(&l->base, bytes, stamp);
	return 1;
}

int tt_ib_post(struct tt_link *link, const void *buf, size_t bytes, uint32_t stamp)
{
	struct tt_ib_link *l = (struct tt_ib_link *)link;
	struct tt_ib_ep *ep = (struct tt_ib_ep *)link->ep;
	struct tt_ib_region *r = NULL;
	uint32_t lkey, rkey;
	int rc;

	if (tt_unlikely(ep->failed))
		return tt_ib_failed(ep);
	l->room = NULL;
	if (bytes >= TT_IB_DIRECT)
		r = tt_ib_region_take(ep, l->rail, buf, bytes, &lkey, &rkey);
	if (!r)
		return post_copy(l, buf, bytes, stamp);
	rc = tt_ib_send_from(l, buf, bytes, stamp, lkey);
	if (rc <= 0) {
		tt_ib_region_give(ep, r);
		return rc;
	}
	l->posts[link->posted % TT_IB_MESSAGES] = (struct tt_ib_posted){ r, l->works };
	link->posted++;
	ep->lent++;
	return 1;
}

void tt_ib_posts_done(struct tt_ib_link *l)
{
	struct tt_link *link = &l->base;

	for (; link->completed < link->posted; link->completed++) {
		struct tt_ib_posted *p = &l->posts[link->completed % TT_IB_MESSAGES];

		if (p->works > l->works_done)
			return;
		if (p->region)
			tt_ib_region_give((struct tt_ib_ep *)link->ep, p->region);
		p->region = NULL;
	}
}

/* ---- receiving ------------------------------------------------------------------------------- */

bool tt_ib_expect(struct tt_link *link, uint32_t ahead, void *dst, size_t bytes, uint32_t stamp)
{
	struct tt_ib_link *l = (struct tt_ib_link *)link;
	struct tt_ib_ep *ep = (struct tt_ib_ep *)link->ep;
	uint64_t number = link->received + ahead;
	struct tt_ib_want *want = &l->wants[number % TT_IB_MESSAGES];
	struct tt_ib_wish wish = { .addr = (uintptr_t)dst, .number = (uint32_t)number,
				   .stamp = stamp, .bytes = (uint32_t)bytes };
	uint32_t lkey;

	if (bytes < TT_IB_DIRECT || l->max_inline < sizeof(wish))
		return false;
	if (want->region || number < l->landed || ahead >= TT_IB_MESSAGES / 2 || ep->failed ||
	    l->works - l->works_done + l->nheld >= TT_IB_SENDS / 2)
		return true;                   /* told, or not worth it now */
	want->region = tt_ib_region_take(ep, l->rail, dst, bytes, &lkey, &wish.rkey);
	if (!want->region)
		return false;
	want->dst = dst;
	want->bytes = bytes;
	want->stamp = stamp;
	wish.check = check_of(&wish);
	tt_ib_hold_wish(l, &wish);
	return true;
}

void tt_ib_want_over(struct tt_ib_link *l)
{
	struct tt_ib_want *want = &l->wants[l->base.received % TT_IB_MESSAGES];

	if (want->region)
		tt_ib_region_give((struct tt_ib_ep *)l->base.ep, want->region);
	want->region = NULL;
}

/* ---- the end --------------------------------------------------------------------------------- */

/* Does a card still read or write memory of the caller for this link? */
static bool borrows(const struct tt_ib_link *l)
{
	bool wants = false;

	for (int i = 0; i < TT_IB_MESSAGES; i++)
		wants |= l->wants[i].region != NULL;
	return wants || l->base.completed < l->base.posted;
}

void tt_ib_abandon(struct tt_endpoint *base)
{
	struct tt_ib_qp_attr stop = { .qp_state = TT_IB_ERR };
	struct tt_ib_ep *ep = (struct tt_ib_ep *)base;

	for (uint32_t i = 0; i < ep->nlist; i++) {
		if (!borrows(ep->list[i]))
			continue;
		if (!ep->failed) {             /* without touching the sentence that says why */
			snprintf(ep->text, sizeof(ep->text),
				 "rank %d: verbs: a call before this one failed",
				 base->world->rank);
			ep->failed = TT_REMOTE;
		}
		ep->list[i]->left = true;      /* that it stops is no news to tt_ib_lost */
		ep->ib->modify_qp(ep->list[i]->qp, &stop, TT_IB_QP_STATE);
	}
}

void tt_ib_give_all(struct tt_ib_link *l)
{
	struct tt_ib_ep *ep = (struct tt_ib_ep *)l->base.ep;

	for (int i = 0; i < TT_IB_MESSAGES; i++) {
		if (l->wants[i].region)
			tt_ib_region_give(ep, l->wants[i].region);
		if (l->posts[i].region)
			tt_ib_region_give(ep, l->posts[i].region);
		l->wants[i].region = l->posts[i].region = NULL;
	}
}
