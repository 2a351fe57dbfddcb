/*
 * verbs_ring.c - messages through rings: RDMA writes with immediate data, credits for flow control
 *
 * Called through tt_verbs by run. A record is a cache line whose last 16 bytes are the header, then
 * the payload; a record never wraps around the end of the ring. The immediate of a message has the
 * line where the message lies and the count of messages released (credits).
 *
 * A control message is an immediate without a message. A rank sends one when no message has carried
 * the credits for a quarter of the ring by the time the rank has to wait, or for half of the ring.
 * So a sender that was refused always learns of space: either half of its ring has been credited,
 * or the receiver still has messages to take, and takes them or waits for more.
 *
 * A message is read only after its completion, because adaptive routing may write its bytes in any
 * order.
 *
 * Large messages may be zero copy (verbs_zcopy.c): a sender with an RTR for the message writes it
 * into the receiver's buffer and sets TT_VERBS_ZCOPY in the immediate; the message has no header.
 *
 * verbs_post.c posts the work requests.
 */
#include <arpa/inet.h>
#include <string.h>

#include "transports/verbs/verbs.h"

#define MAGIC 0x5476
#define VERSION 1
#define HEAD sizeof(struct tt_verbs_head)
#define CQES 16

_Static_assert(2 * TT_VERBS_MESSAGES < TT_VERBS_COUNT_MASK, "counts of releases are distinct");

static size_t record_bytes(size_t bytes)
{
	return TT_LINE + (bytes + TT_LINE - 1) / TT_LINE * TT_LINE;
}

/* ---- completions ----------------------------------------------------------------------------- */

static void freed_to(struct tt_verbs_link *l, uint32_t count)
{
	uint64_t more = (count - l->freed) & TT_VERBS_COUNT_MASK;

	if (more == 0 || more > l->sent - l->freed)
		return;
	l->freed += more;
	l->freed_tail = l->ends[(l->freed - 1) % TT_VERBS_MESSAGES];
}

/* The HCA has sent the messages of the first `works` work requests. Older messages than the queue
 * is long need no exact position. */
static void done_to(struct tt_verbs_link *l, uint64_t works)
{
	uint32_t sent;

	if (works <= l->works_done)
		return;
	l->works_done = works;
	sent = l->sent_at[(works - 1) % TT_VERBS_SENDS];
	l->done = l->sent - ((uint32_t)l->sent - sent);
	if (l->done && l->sent - l->done < TT_VERBS_MESSAGES)
		l->done_tail = l->ends[(l->done - 1) % TT_VERBS_MESSAGES];
	tt_verbs_posts_done(l);
}

/* A zero-copy message has arrived: check that a receive of its length was preposted. */
static void landed_in_place(struct tt_verbs_link *l, uint32_t bytes)
{
	const struct tt_verbs_preposted *prepost = &l->preposts[l->landed % TT_VERBS_MESSAGES];

	if (!prepost->region || prepost->bytes != bytes)
		tt_verbs_fail(
			(struct tt_verbs_ep *)l->base.ep, TT_REMOTE,
			"rank %d: rank %d wrote %u bytes as zero-copy message %llu of channel %d, "
			"where %zu bytes were preposted",
			l->base.ep->world->rank, l->base.peer, bytes, (unsigned long long)l->landed,
			l->base.channel, prepost->region ? prepost->bytes : 0);
}

static void message_came(struct tt_verbs_link *l, uint32_t imm, uint32_t bytes)
{
	struct tt_verbs_ep *ep = (struct tt_verbs_ep *)l->base.ep;

	if (tt_unlikely(l->landed - l->base.received == TT_VERBS_MESSAGES)) {
		tt_verbs_fail(
			ep, TT_REMOTE,
			"rank %d: rank %d sent more messages on channel %d than the limit of %d",
			ep->base.world->rank, l->base.peer, l->base.channel, TT_VERBS_MESSAGES);
		return;
	}
	if (imm & TT_VERBS_ZCOPY)
		landed_in_place(l, bytes);
	l->lines[l->landed++ % TT_VERBS_MESSAGES] = imm & (TT_VERBS_ZCOPY | TT_VERBS_LINE_MASK);
}

static void arrived(struct tt_verbs_link *l, const struct tt_verbs_wc *wc)
{
	uint32_t imm = ntohl(wc->imm_data);

	freed_to(l, imm >> TT_VERBS_COUNT_SHIFT & TT_VERBS_COUNT_MASK);
	if (!(imm & TT_VERBS_CONTROL)) {
		message_came(l, imm, wc->byte_len);
	} else if (imm & TT_VERBS_GOODBYE) {
		l->peer_closed = true;
	}
	l->base.arrived += wc->byte_len;
	if (++l->to_post == TT_VERBS_REPOST) {
		tt_verbs_post_receives(l, l->to_post);
		l->to_post = 0;
	}
}

static void complete(struct tt_verbs_ep *ep, const struct tt_verbs_wc *wc)
{
	struct tt_verbs_link *l = ep->list[wc->wr_id & 0xffffff];

	if (tt_unlikely(wc->status != TT_VERBS_WC_SUCCESS))
		tt_verbs_bad_completion(l, wc);
	else if (wc->wr_id >> 63)
		arrived(l, wc);
	else
		done_to(l, l->works - ((l->works - (wc->wr_id >> 24)) & 0xffffffff));
}

int tt_verbs_poll(struct tt_verbs_ep *ep)
{
	struct tt_verbs_wc wc[CQES];
	int moved = 0;

	for (int r = 0; r < ep->nrails; r++)
		for (int q = 0; q < ep->rail[r].ncqs; q++) {
			int n = ep->rail[r].context->ops.poll_cq(ep->rail[r].cqs[q], CQES, wc);

			if (tt_unlikely(n < 0))
				return tt_verbs_fail(
					ep, TT_SYSTEM,
					"rank %d: %s: reading a completion queue failed (%d)",
					ep->base.world->rank, ep->rail[r].name, n);
			for (int i = 0; i < n; i++)
				complete(ep, &wc[i]);
			moved |= n;
		}
	return ep->failed ? tt_verbs_failed(ep) : moved;
}

/* ---- sending --------------------------------------------------------------------------------- */

/* Does a record of this size fit now? *ret_start is its position. */
static bool fits(const struct tt_verbs_link *l, size_t record, uint64_t *ret_start)
{
	uint64_t start = l->head,
		 tail = l->freed_tail < l->done_tail ? l->freed_tail : l->done_tail;
	size_t left = l->ring_bytes - start % l->ring_bytes;

	if (left < record)
		start += left;
	*ret_start = start;
	return start + record - tail <= l->ring_bytes && l->sent - l->freed < TT_VERBS_MESSAGES &&
	       l->sent - l->done < TT_VERBS_MESSAGES &&
	       l->works - l->works_done < TT_VERBS_SENDS - 1 - TT_VERBS_RTR_PENDING;
}

void *tt_verbs_reserve(struct tt_link *link, size_t bytes)
{
	struct tt_verbs_link *l = (struct tt_verbs_link *)link;
	struct tt_verbs_ep *ep = (struct tt_verbs_ep *)link->ep;

	if (l->room && l->room_bytes == bytes)
		return l->room;
	if (tt_unlikely(ep->failed))
		return NULL;
	if (!fits(l, record_bytes(bytes), &l->room_start) &&
	    (tt_verbs_poll(ep) <= 0 || !fits(l, record_bytes(bytes), &l->room_start)))
		return NULL;
	l->room_bytes = bytes;
	return l->room = l->ring + l->room_start % l->ring_bytes + TT_LINE;
}

/* Count the next message; its record ends at end. */
static void count_message(struct tt_verbs_link *l, size_t bytes, uint64_t end)
{
	l->room = NULL;
	l->head = end;
	l->ends[l->sent++ % TT_VERBS_MESSAGES] = end;
	l->base.messages++;
	l->base.sent_bytes += bytes;
}

static void put_head(struct tt_verbs_link *l, size_t at, size_t bytes, uint32_t stamp)
{
	struct tt_verbs_head head = { MAGIC, VERSION, (uint32_t)bytes, stamp, (uint32_t)l->sent };

	memcpy(l->ring + at + TT_LINE - HEAD, &head, HEAD);
}

int tt_verbs_commit(struct tt_link *link, size_t bytes, uint32_t stamp)
{
	struct tt_verbs_link *l = (struct tt_verbs_link *)link;
	struct tt_verbs_ep *ep = (struct tt_verbs_ep *)link->ep;
	size_t at = l->room_start % l->ring_bytes;
	struct tt_verbs_sge piece = { (uintptr_t)l->ring + at + TT_LINE - HEAD,
				      (uint32_t)(HEAD + bytes), l->tx_mr->lkey };
	struct tt_verbs_rtr rtr;

	if (tt_verbs_rtr_for(l, bytes, stamp, &rtr)) {
		piece.addr += HEAD;
		piece.length -= HEAD;
		count_message(l, bytes, l->room_start + record_bytes(bytes));
		tt_verbs_send_imm(l, &piece, 1, rtr.addr, rtr.rkey,
				  TT_VERBS_ZCOPY | TT_VERBS_FROM_RING, false);
	} else {
		put_head(l, at, bytes, stamp);
		count_message(l, bytes, l->room_start + record_bytes(bytes));
		tt_verbs_send_imm(l, &piece, 1, l->hello.ring + at + TT_LINE - HEAD, l->hello.rkey,
				  (uint32_t)(at / TT_LINE), false);
	}
	return tt_unlikely(ep->failed) ? tt_verbs_failed(ep) : 0;
}

int tt_verbs_send_from(struct tt_verbs_link *l, const void *buf, size_t bytes, uint32_t stamp,
		       uint32_t lkey)
{
	struct tt_verbs_ep *ep = (struct tt_verbs_ep *)l->base.ep;
	struct tt_verbs_sge pieces[2] = { { .length = HEAD, .lkey = l->tx_mr->lkey },
					  { (uintptr_t)buf, (uint32_t)bytes, lkey } };
	struct tt_verbs_rtr rtr;
	uint64_t start;
	bool has_rtr = tt_verbs_rtr_for(l, bytes, stamp, &rtr);
	size_t record = has_rtr ? 0 : record_bytes(bytes), at;

	if (!fits(l, record, &start)) {
		int rc = tt_verbs_poll(ep);

		if (rc < 0 || !fits(l, record, &start))
			return rc < 0 ? rc : 0;
	}
	at = start % l->ring_bytes;
	if (!has_rtr) {
		pieces[0].addr = (uintptr_t)l->ring + at + TT_LINE - HEAD;
		put_head(l, at, bytes, stamp);
	}
	count_message(l, bytes, start + record);
	if (has_rtr)
		tt_verbs_send_imm(l, &pieces[1], 1, rtr.addr, rtr.rkey, TT_VERBS_ZCOPY, true);
	else
		tt_verbs_send_imm(l, pieces, 2, l->hello.ring + at + TT_LINE - HEAD, l->hello.rkey,
				  (uint32_t)(at / TT_LINE), true);
	return 1;
}

/* ---- receiving ------------------------------------------------------------------------------- */

/* 0: the message is the expected one | TT_REMOTE, TT_USAGE */
static int check(const struct tt_verbs_link *l, const struct tt_verbs_head *h, size_t bytes,
		 uint32_t stamp)
{
	int me = l->base.ep->world->rank;

	if (tt_likely(h->magic == MAGIC && h->version == VERSION &&
		      h->number == (uint32_t)l->base.received && h->bytes == bytes &&
		      h->stamp == stamp))
		return 0;
	if (h->magic != MAGIC || h->version != VERSION || h->number != (uint32_t)l->base.received)
		return tt_fail(
			TT_REMOTE,
			"rank %d: rank %d sent bytes that are not a message (%s, queue pair %#x, channel %d, message "
			"%llu)",
			me, l->base.peer, l->rail->name, l->qp->qp_num, l->base.channel,
			(unsigned long long)l->base.received);
	return tt_fail(
		TT_USAGE,
		"rank %d: rank %d sent %u bytes of call %08x (channel %d, message %u) where %zu bytes of "
		"call %08x are expected: the ranks make different calls",
		me, l->base.peer, h->bytes, h->stamp, l->base.channel, h->number, bytes, stamp);
}

static int gone(const struct tt_verbs_link *l)
{
	return tt_fail(
		TT_REMOTE,
		"rank %d: rank %d has closed its queue pair (%s, channel %d, %llu messages received)",
		l->base.ep->world->rank, l->base.peer, l->rail->name, l->base.channel,
		(unsigned long long)l->base.received);
}

/* Peek a zero-copy message; its sender compared length and stamp with the RTR. */
static int peek_zcopy(const struct tt_verbs_link *l, size_t bytes, uint32_t stamp,
		      const void **ret_data)
{
	const struct tt_verbs_preposted *prepost =
		&l->preposts[l->base.received % TT_VERBS_MESSAGES];
	struct tt_verbs_ep *ep = (struct tt_verbs_ep *)l->base.ep;

	if (tt_unlikely(ep->failed)) /* perhaps because no receive was preposted */
		return tt_verbs_failed(ep);
	if (tt_unlikely(prepost->bytes != bytes || prepost->stamp != stamp))
		return tt_fail(
			TT_USAGE,
			"rank %d: rank %d sent %zu bytes of call %08x (channel %d) where %zu bytes of call %08x are "
			"expected: the ranks make different calls",
			l->base.ep->world->rank, l->base.peer, prepost->bytes, prepost->stamp,
			l->base.channel, bytes, stamp);
	*ret_data = prepost->dst;
	return 1;
}

int tt_verbs_peek(struct tt_link *link, size_t bytes, uint32_t stamp, const void **ret_data)
{
	struct tt_verbs_link *l = (struct tt_verbs_link *)link;
	struct tt_verbs_ep *ep = (struct tt_verbs_ep *)link->ep;
	uint32_t line;
	size_t at;
	int rc;

	if (tt_unlikely(ep->nrtr_links))
		tt_verbs_send_rtrs(ep);
	if (l->landed == link->received) {
		rc = tt_verbs_poll(ep);
		if (rc < 0)
			return rc;
		if (l->landed == link->received) {
			if (tt_unlikely(ep->ncredits_due))
				tt_verbs_send_due_credits(ep);
			return l->peer_closed ? gone(l) : 0;
		}
	}
	line = l->lines[link->received % TT_VERBS_MESSAGES];
	if (line & TT_VERBS_ZCOPY)
		return peek_zcopy(l, bytes, stamp, ret_data);
	at = (size_t)line * TT_LINE + TT_LINE;
	if (tt_unlikely(at + bytes > l->ring_bytes))
		return tt_fail(TT_REMOTE, "rank %d: rank %d sent a message outside of the ring",
			       ep->base.world->rank, link->peer);
	rc = check(l, (const struct tt_verbs_head *)(l->ring + l->ring_bytes + at - HEAD), bytes,
		   stamp);
	if (tt_unlikely(rc))
		return rc;
	*ret_data = l->ring + l->ring_bytes + at;
	return 1;
}

/* Ring bytes of the message that is being released, here or in the send ring of the peer */
static size_t room_of(const struct tt_verbs_link *l)
{
	uint32_t line = l->lines[l->base.received % TT_VERBS_MESSAGES];

	if (line & TT_VERBS_ZCOPY)
		return line & TT_VERBS_FROM_RING
			       ? record_bytes(
					 l->preposts[l->base.received % TT_VERBS_MESSAGES].bytes)
			       : 0;
	return record_bytes(((const struct tt_verbs_head *)(l->ring + l->ring_bytes +
							    ((size_t)line + 1) * TT_LINE - HEAD))
				    ->bytes);
}

void tt_verbs_release(struct tt_link *link)
{
	struct tt_verbs_link *l = (struct tt_verbs_link *)link;

	l->uncredited_bytes += room_of(l);
	((struct tt_verbs_ep *)link->ep)->zcopy_received += !!(
		l->lines[link->received % TT_VERBS_MESSAGES] & TT_VERBS_ZCOPY);
	tt_verbs_prepost_done(l);
	link->received++;
	if (link->received - l->credited < TT_VERBS_MESSAGES / TT_VERBS_RING_PARTS &&
	    l->uncredited_bytes < l->ring_bytes / TT_VERBS_RING_PARTS)
		return;
	tt_verbs_set_credits_due(l, true);
	if (link->received - l->credited >= TT_VERBS_MESSAGES / 2 ||
	    l->uncredited_bytes >= l->ring_bytes / 2)
		tt_verbs_send_credits(l);
}

/* ---- the end --------------------------------------------------------------------------------- */

void tt_verbs_goodbye(struct tt_verbs_link *l)
{
	if (!l->peer_closed)
		tt_verbs_send_control(l, TT_VERBS_GOODBYE, true);
}

bool tt_verbs_all_done(const struct tt_verbs_link *l)
{
	return l->peer_closed || l->works_done == l->works;
}
