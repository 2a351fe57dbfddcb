/*
 * verbs_post.c - work requests: chained, counted, rarely signalled; credit updates, RTRs, receives
 *
 * Called by verbs_ring.c, verbs_zcopy.c and verbs_qp.c. A send queue cannot overflow, because work
 * requests are counted. These are signalled: every TT_VERBS_SIGNAL-th, one for each quarter of the
 * send ring, and those that read callers' memory. RTRs are queued until the next message of their
 * link carries them along, or until this rank polls for a message. RTRs of neighboring messages
 * share one work request; all RTRs and the message are one call of post_send.
 */
#include <arpa/inet.h>

#include "transports/verbs/verbs.h"

/* Count the work request, and signal it if a completion is due or the caller wants one. */
static void count_work(struct tt_verbs_link *l, struct tt_verbs_send_wr *wr, bool signal)
{
	struct tt_verbs_ep *ep = (struct tt_verbs_ep *)l->base.ep;
	uint32_t bytes = 0;

	for (int i = 0; i < wr->num_sge; i++)
		bytes += wr->sg_list[i].length;
	l->sent_at[l->works++ % TT_VERBS_SENDS] = (uint32_t)l->sent;
	wr->wr_id = (l->works & 0xffffffff) << 24 | l->index;
	if (++l->unsignalled >= TT_VERBS_SIGNAL || signal) {
		wr->send_flags |= TT_VERBS_SIGNALED;
		l->unsignalled = 0;
		l->unsignalled_from = l->head;
		ep->signalled++;
	}
	if (bytes && bytes <= l->max_inline)
		wr->send_flags |= TT_VERBS_INLINE;
	ep->posted++;
}

static void post(struct tt_verbs_link *l, struct tt_verbs_send_wr *wr, const char *what)
{
	struct tt_verbs_send_wr *bad;
	int error = l->rail->context->ops.post_send(l->qp, wr, &bad);

	((struct tt_verbs_ep *)l->base.ep)->doorbells++;
	if (tt_unlikely(error))
		tt_verbs_bad_post(l, what, error);
}

int tt_verbs_post_receives(struct tt_verbs_link *l, uint32_t n)
{
	struct tt_verbs_ep *ep = (struct tt_verbs_ep *)l->base.ep;
	struct tt_verbs_recv_wr *bad;
	int error;

	for (uint32_t i = 0; i < n; i++)
		ep->recvs[i] = (struct tt_verbs_recv_wr){ .wr_id = 1ull << 63 | l->index,
							  .next = i + 1 < n ? &ep->recvs[i + 1]
									    : NULL };
	error = l->rail->context->ops.post_recv(l->qp, ep->recvs, &bad);
	return error ? tt_verbs_bad_post(l, "receives", error) : 0;
}

/* ---- RTRs ------------------------------------------------------------------------------------ */

/* Turn the queued RTRs into work requests, each of which fits the inline data. Returns the number
 * of work requests. */
static int take_rtrs(struct tt_verbs_link *l, struct tt_verbs_send_wr *wr,
		     struct tt_verbs_sge *pieces)
{
	int n = 0;

	for (uint32_t i = 0, run; i < l->npending; i += run, n++) {
		uint32_t slot = l->pending[i].number % TT_VERBS_MESSAGES;

		for (run = 1; i + run < l->npending &&
			      l->pending[i + run].number % TT_VERBS_MESSAGES == slot + run &&
			      (run + 1) * sizeof(struct tt_verbs_rtr) <= l->max_inline;
		     run++)
			;
		pieces[n] = (struct tt_verbs_sge){ (uintptr_t)&l->pending[i],
						   run * (uint32_t)sizeof(struct tt_verbs_rtr), 0 };
		wr[n] = (struct tt_verbs_send_wr){
			.next = &wr[n + 1],
			.sg_list = &pieces[n],
			.num_sge = 1,
			.opcode = TT_VERBS_WRITE,
			.wr = { .rdma = { l->hello.ring + l->ring_bytes +
						  slot * sizeof(struct tt_verbs_rtr),
					  l->hello.rkey } },
		};
		count_work(l, &wr[n], false);
	}
	((struct tt_verbs_ep *)l->base.ep)->nrtr_links -= l->npending > 0;
	l->npending = 0;
	return n;
}

void tt_verbs_queue_rtr(struct tt_verbs_link *l, const struct tt_verbs_rtr *rtr)
{
	struct tt_verbs_ep *ep = (struct tt_verbs_ep *)l->base.ep;

	if (l->npending == TT_VERBS_RTR_PENDING)
		tt_verbs_send_rtrs(ep);
	ep->nrtr_links += l->npending == 0;
	l->pending[l->npending++] = *rtr;
}

void tt_verbs_send_rtrs(struct tt_verbs_ep *ep)
{
	struct tt_verbs_send_wr wr[TT_VERBS_RTR_PENDING + 1];
	struct tt_verbs_sge pieces[TT_VERBS_RTR_PENDING];

	for (uint32_t i = 0; i < ep->nlist && ep->nrtr_links; i++) {
		int n = ep->list[i]->npending ? take_rtrs(ep->list[i], wr, pieces) : 0;

		if (n) {
			wr[n - 1].next = NULL;
			post(ep->list[i], wr, "an RTR");
		}
	}
}

/* ---- messages and control messages ----------------------------------------------------------- */

void tt_verbs_set_credits_due(struct tt_verbs_link *l, bool credits_due)
{
	((struct tt_verbs_ep *)l->base.ep)->ncredits_due += credits_due - l->credits_due;
	l->credits_due = credits_due;
}

void tt_verbs_send_imm(struct tt_verbs_link *l, struct tt_verbs_sge *pieces, int n, uint64_t to,
		       uint32_t rkey, uint32_t imm, bool signal)
{
	struct tt_verbs_send_wr wr[TT_VERBS_RTR_PENDING + 1], *mine;
	struct tt_verbs_sge rtrs[TT_VERBS_RTR_PENDING];

	mine = wr + (tt_unlikely(l->npending) ? take_rtrs(l, wr, rtrs) : 0);
	*mine = (struct tt_verbs_send_wr){
		.sg_list = pieces,
		.num_sge = n,
		.opcode = TT_VERBS_WRITE_IMM,
		.imm_data = htonl(imm | ((uint32_t)l->base.received & TT_VERBS_COUNT_MASK)
						<< TT_VERBS_COUNT_SHIFT),
		.wr = { .rdma = { to, rkey } },
	};
	l->credited = l->base.received;
	l->uncredited_bytes = 0;
	tt_verbs_set_credits_due(l, false);
	count_work(l, mine,
		   signal || l->head - l->unsignalled_from >= l->ring_bytes / TT_VERBS_RING_PARTS);
	post(l, wr, n ? "a message" : "a control message");
}

void tt_verbs_send_control(struct tt_verbs_link *l, uint32_t imm, bool signal)
{
	tt_verbs_send_imm(l, NULL, 0, l->hello.ring, l->hello.rkey, TT_VERBS_CONTROL | imm, signal);
}

void tt_verbs_send_credits(struct tt_verbs_link *l)
{
	if (l->peer_closed)
		tt_verbs_set_credits_due(l, false);
	else if (l->works - l->works_done < TT_VERBS_SENDS - 1 - TT_VERBS_RTR_PENDING)
		tt_verbs_send_control(l, 0, false);
}

void tt_verbs_send_due_credits(struct tt_verbs_ep *ep)
{
	for (uint32_t i = 0; i < ep->nlist && ep->ncredits_due; i++)
		if (ep->list[i]->credits_due)
			tt_verbs_send_credits(ep->list[i]);
}
