/*
 * verbs_ring.c - messages: written into the peer's ring, found by their immediate data, paid back by credits
 *
 * Called through tt_verbs by run. A record is a line whose last 16 bytes are the head, then the payload; it never wraps
 * round the end of the ring. The immediate of a message has the line where it lies and the count of messages released;
 * a word is an immediate without a message, sent only when nothing has taken the count along for a quarter of the ring, so
 * that a sender that was refused always learns of room. Bytes of a message are looked at only after its completion: adaptive
 * routing may write them in any order.
 *
 * A send queue cannot overflow: work requests are counted, and every TT_IB_SIGNAL-th, or the one that makes a quarter of the ring
 * unreadable for us, asks to be told of.
 */
#include <arpa/inet.h>
#include <string.h>

#include "transports/verbs.h"

#define MAGIC 0x5476
#define VERSION 1
#define HEAD sizeof(struct tt_ib_head)
#define WORD (1u << 31)
#define COUNT_SHIFT 22
#define COUNT_MASK 0x1ffu      /* more than twice TT_IB_MESSAGES */
#define LINE_MASK 0x3fffffu
#define FAREWELL 1u
#define CQES 16

_Static_assert(2 * TT_IB_MESSAGES < COUNT_MASK, "counts of releases are told apart");

static size_t record_bytes(size_t bytes)
{
	return TT_LINE + (bytes + TT_LINE - 1) / TT_LINE * TT_LINE;
}

/* ---- completions ------------------------------------------------------------------------------------------------ */

static void freed_to(struct tt_ib_link *l, uint32_t count)
{
	uint64_t more = (count - l->freed) & COUNT_MASK;

	if (more == 0 || more > l->sent - l->freed)
		return;
	l->freed += more;
	l->told_tail = l->ends[(l->freed - 1) % TT_IB_MESSAGES];
}

/* Messages up to `sent` have left; of those that are longer ago than the queue is long, nobody asks any more. */
static void done_to(struct tt_ib_link *l, uint64_t works)
{
	uint32_t sent;

	if (works <= l->works_done)
		return;
	l->works_done = works;
	sent = l->sent_at[(works - 1) % TT_IB_SENDS];
	l->done = l->sent - ((uint32_t)l->sent - sent);
	if (l->done && l->sent - l->done < TT_IB_MESSAGES)
		l->done_tail = l->ends[(l->done - 1) % TT_IB_MESSAGES];
}

static void arrived(struct tt_ib_link *l, const struct tt_ib_wc *wc)
{
	uint32_t imm = ntohl(wc->imm_data);

	freed_to(l, imm >> COUNT_SHIFT & COUNT_MASK);
	if (!(imm & WORD))
		l->lines[l->landed++ % TT_IB_MESSAGES] = imm & LINE_MASK;
	else if (imm & FAREWELL)
		l->left = true;
	l->base.arrived += wc->byte_len;
	if (++l->to_post == TT_IB_REPOST) {
		tt_ib_post_receives(l, l->to_post);
		l->to_post = 0;
	}
}

static void complete(struct tt_ib_ep *ep, const struct tt_ib_wc *wc)
{
	struct tt_ib_link *l = ep->list[wc->wr_id & 0xffffff];

	if (tt_unlikely(wc->status != TT_IB_WC_SUCCESS))
		tt_ib_bad_completion(l, wc);
	else if (wc->wr_id >> 63)
		arrived(l, wc);
	else
		done_to(l, l->works - ((l->works - (wc->wr_id >> 24)) & 0xffffffff));
}

int tt_ib_poll(struct tt_ib_ep *ep)
{
	struct tt_ib_wc wc[CQES];
	int moved = 0;

	for (int r = 0; r < ep->nrails; r++)
		for (int q = 0; q < ep->rail[r].ncqs; q++) {
			int n = ep->rail[r].context->ops.poll_cq(ep->rail[r].cqs[q], CQES, wc);

			if (tt_unlikely(n < 0))
				return tt_ib_fail(ep, TT_SYSTEM, "rank %d: %s: reading a completion queue failed (%d)",
						  ep->base.world->rank, ep->rail[r].name, n);
			for (int i = 0; i < n; i++)
				complete(ep, &wc[i]);
			moved |= n;
		}
	return ep->failed ? tt_ib_failed(ep) : moved;
}

/* ---- sending ---------------------------------------------------------------------------------------------------- */

/* One work request: bytes from `from` to offset `to` of the peer's ring (0 bytes: nothing but the immediate). */
static void write_imm(struct tt_ib_link *l, const uint8_t *from, size_t to, size_t bytes, uint32_t imm, bool tell)
{
	struct tt_ib_ep *ep = (struct tt_ib_ep *)l->base.ep;
	struct tt_ib_sge sge = { (uintptr_t)from, (uint32_t)bytes, l->tx_mr->lkey };
	struct tt_ib_send_wr wr = {
		.sg_list = &sge, .num_sge = bytes > 0, .opcode = TT_IB_WRITE_IMM,
		.imm_data = htonl(imm | ((uint32_t)l->base.received & COUNT_MASK) << COUNT_SHIFT),
		.wr = { .rdma = { l->hello.ring + to, l->hello.rkey } },
	}, *bad;
	int error;

	l->sent_at[l->works++ % TT_IB_SENDS] = (uint32_t)l->sent;
	wr.wr_id = (l->works & 0xffffffff) << 24 | l->index;
	if (++l->unsignalled >= TT_IB_SIGNAL || l->head - l->unsignalled_from >= l->ring_bytes / TT_IB_RING_PARTS || tell) {
		wr.send_flags |= TT_IB_SIGNALED;
		l->unsignalled = 0;
		l->unsignalled_from = l->head;
		ep->signalled++;
	}
	if (bytes && bytes <= l->max_inline)
		wr.send_flags |= TT_IB_INLINE;
	ep->posted++;
	l->told = l->base.received;
	l->untold_bytes = 0;
	error = l->rail->context->ops.post_send(l->qp, &wr, &bad);
	if (tt_unlikely(error))
		tt_ib_bad_post(l, bytes ? "a message" : "a word", error);
}

/* Where the next record of this size begins, if it fits now. */
static bool fits(const struct tt_ib_link *l, size_t record, uint64_t *ret_start)
{
	uint64_t start = l->head, tail = l->told_tail < l->done_tail ? l->told_tail : l->done_tail;
	size_t left = l->ring_bytes - start % l->ring_bytes;

	if (left < record)
		start += left;
	*ret_start = start;
	return start + record - tail <= l->ring_bytes && l->sent - l->freed < TT_IB_MESSAGES &&
	       l->sent - l->done < TT_IB_MESSAGES && l->works - l->works_done < TT_IB_SENDS - 1;
}

void *tt_ib_reserve(struct tt_link *link, size_t bytes)
{
	struct tt_ib_link *l = (struct tt_ib_link *)link;
	struct tt_ib_ep *ep = (struct tt_ib_ep *)link->ep;

	if (l->room && l->room_bytes == bytes)
		return l->room;
	if (tt_unlikely(ep->failed))
		return NULL;
	if (!fits(l, record_bytes(bytes), &l->room_start) &&
	    (tt_ib_poll(ep) <= 0 || !fits(l, record_bytes(bytes), &l->room_start)))
		return NULL;
	l->room_bytes = bytes;
	return l->room = l->ring + l->room_start % l->ring_bytes + TT_LINE;
}

void tt_ib_commit(struct tt_link *link, size_t bytes, uint32_t stamp)
{
	struct tt_ib_link *l = (struct tt_ib_link *)link;
	size_t at = l->room_start % l->ring_bytes;
	struct tt_ib_head head = { MAGIC, VERSION, (uint32_t)bytes, stamp, (uint32_t)l->sent };

	memcpy(l->room - HEAD, &head, HEAD);
	l->room = NULL;
	l->head = l->room_start + record_bytes(bytes);
	l->ends[l->sent++ % TT_IB_MESSAGES] = l->head;
	link->messages++;
	link->sent_bytes += bytes;
	write_imm(l, l->ring + at + TT_LINE - HEAD, at + TT_LINE - HEAD, HEAD + bytes, (uint32_t)(at / TT_LINE), false);
}

/* ---- receiving -------------------------------------------------------------------------------------------------- */

/* 0: it is the one that is expected */
static int check(const struct tt_ib_link *l, const struct tt_ib_head *h, size_t bytes, uint32_t stamp)
{
	int me = l->base.ep->world->rank;

	if (tt_likely(h->magic == MAGIC && h->version == VERSION && h->number == (uint32_t)l->base.received &&
		      h->bytes == bytes && h->stamp == stamp))
		return 0;
	if (h->magic != MAGIC || h->version != VERSION || h->number != (uint32_t)l->base.received)
		return tt_fail(TT_REMOTE, "rank %d: rank %d sent bytes that are no message (%s, queue pair %#x, channel %d, message "
			       "%llu)", me, l->base.peer, l->rail->name, l->qp->qp_num, l->base.channel,
			       (unsigned long long)l->base.received);
	return tt_fail(TT_USAGE, "rank %d: rank %d sent %u bytes of call %08x (channel %d, message %u) where %zu bytes of "
		       "call %08x are expected: the ranks make different calls", me, l->base.peer, h->bytes, h->stamp,
		       l->base.channel, h->number, bytes, stamp);
}

static int gone(const struct tt_ib_link *l)
{
	return tt_fail(TT_REMOTE, "rank %d: rank %d has closed its queue pair (%s, channel %d, %llu messages received)",
		       l->base.ep->world->rank, l->base.peer, l->rail->name, l->base.channel,
		       (unsigned long long)l->base.received);
}

int tt_ib_peek(struct tt_link *link, size_t bytes, uint32_t stamp, const void **ret_data)
{
	struct tt_ib_link *l = (struct tt_ib_link *)link;
	struct tt_ib_ep *ep = (struct tt_ib_ep *)link->ep;
	size_t at;
	int rc;

	if (l->landed == link->received) {
		rc = tt_ib_poll(ep);
		if (rc < 0)
			return rc;
		if (l->landed == link->received)
			return l->left ? gone(l) : 0;
	}
	at = (size_t)l->lines[link->received % TT_IB_MESSAGES] * TT_LINE + TT_LINE;
	if (at > l->ring_bytes)
		return tt_fail(TT_REMOTE, "rank %d: rank %d sent a message outside of the ring", ep->base.world->rank, link->peer);
	rc = check(l, (const struct tt_ib_head *)(l->ring + l->ring_bytes + at - HEAD), bytes, stamp);
	if (tt_unlikely(rc))
		return rc;
	*ret_data = l->ring + l->ring_bytes + at;
	return 1;
}

/* Tell the peer what was released, if that is due and nothing else will. */
static void tell(struct tt_ib_link *l)
{
	struct tt_ib_ep *ep = (struct tt_ib_ep *)l->base.ep;
	bool full = l->works - l->works_done >= TT_IB_SENDS - 1;

	if (full != l->owing)
		ep->nowing += full ? 1 : -1;
	l->owing = full;
	if (!full && !l->left)
		write_imm(l, l->ring, 0, 0, WORD, false);
}

void tt_ib_release(struct tt_link *link)
{
	struct tt_ib_link *l = (struct tt_ib_link *)link;
	size_t at = (size_t)l->lines[link->received % TT_IB_MESSAGES] * TT_LINE + TT_LINE;

	l->untold_bytes += record_bytes(((const struct tt_ib_head *)(l->ring + l->ring_bytes + at - HEAD))->bytes);
	link->received++;
	if (link->received - l->told >= TT_IB_MESSAGES / TT_IB_RING_PARTS ||
	    l->untold_bytes >= l->ring_bytes / TT_IB_RING_PARTS)
		tell(l);
}

void tt_ib_pay(struct tt_ib_ep *ep)
{
	for (uint32_t i = 0; i < ep->nlist && ep->nowing; i++)
		if (ep->list[i]->owing)
			tell(ep->list[i]);
}

/* ---- the end ---------------------------------------------------------------------------------------------------- */

void tt_ib_farewell(struct tt_ib_link *l)
{
	if (!l->left)
		write_imm(l, l->ring, 0, 0, WORD | FAREWELL, true);
}

bool tt_ib_all_done(const struct tt_ib_link *l)
{
	return l->left || l->works_done == l->works;
}
