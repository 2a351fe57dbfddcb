/*
 * verbs_trouble.c - what a card's numbers mean, said so that an operator can act
 *
 * Called by the other files of the transport. The first failure of an endpoint stays: its sentence is given to every call
 * after it. Work that was flushed out of a queue pair is the consequence of something else and never named as the cause
 * while anything better is known.
 */
#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "transports/verbs.h"

static const struct { int status; const char *cause; } causes[] = {
	{ TT_IB_WC_LOC_LEN, "a length that this card cannot send" },
	{ TT_IB_WC_LOC_QP_OP, "an operation that this queue pair cannot do: an error in Tutti" },
	{ TT_IB_WC_LOC_PROT, "memory of this rank that is not registered, or no longer: an error in Tutti, or a fork" },
	{ TT_IB_WC_LOC_ACCESS, "memory of this rank that may not be written: an error in Tutti" },
	{ TT_IB_WC_BAD_RESP, "the peer's card answered with something unexpected" },
	{ TT_IB_WC_REM_INV_REQ, "the peer had no receive for it, or the message was too long: an error in Tutti" },
	{ TT_IB_WC_REM_ACCESS, "the peer's memory may not be written there: its registration is gone, or an error in Tutti" },
	{ TT_IB_WC_REM_OP, "the peer's card could not carry it out" },
	{ TT_IB_WC_RETRY, "the peer's card did not answer: that process is dead, its link or a switch between is down, the GIDs "
			  "do not reach each other (TUTTI_IB_GID_INDEX), or packets are lost (PFC, ECN)" },
	{ TT_IB_WC_RNR_RETRY, "the peer had no receive ready: an error in Tutti" },
	{ TT_IB_WC_REM_ABORT, "the peer's card gave up" },
	{ TT_IB_WC_FATAL, "the card failed" },
	{ TT_IB_WC_RESP_TIMEOUT, "the peer's card was too slow to answer" },
	{ TT_IB_WC_GENERAL, "the card says no more than that" },
};

int tt_ib_fail(struct tt_ib_ep *ep, int code, const char *fmt, ...)
{
	va_list args;

	if (!ep->failed) {
		va_start(args, fmt);
		vsnprintf(ep->text, sizeof(ep->text), fmt, args);
		va_end(args);
		ep->failed = code;
	}
	return tt_ib_failed(ep);
}

int tt_ib_failed(struct tt_ib_ep *ep)
{
	return tt_fail(ep->failed, "%s", ep->text);
}

static const char *cause_of(int status)
{
	for (size_t i = 0; i < sizeof(causes) / sizeof(causes[0]); i++)
		if (causes[i].status == status)
			return causes[i].cause;
	return "no cause is known for this number";
}

/* Both ends of a link, in words. */
static const char *ends(const struct tt_ib_link *l, char text[300])
{
	char mine[TT_IB_GID_TEXT], theirs[TT_IB_GID_TEXT];

	snprintf(text, 300, "%s port %d GID %d (%s) queue pair %#x to rank %d's %.64s (GID %s) queue pair %#x, channel %d",
		 l->rail->name, l->rail->card.port, l->mine.index, tt_ib_gid_text(l->mine.gid, mine), l->qp->qp_num,
		 l->base.peer, l->hello.name, tt_ib_gid_text(l->theirs.gid, theirs), l->hello.qpn, l->base.channel);
	return text;
}

void tt_ib_bad_completion(struct tt_ib_link *l, const struct tt_ib_wc *wc)
{
	struct tt_ib_ep *ep = (struct tt_ib_ep *)l->base.ep;
	int me = ep->base.world->rank;
	char where[300];

	if (ep->failed || l->left)
		return;
	if (wc->status == TT_IB_WC_FLUSH) {
		if (!tt_ib_events(ep))         /* the card may know what happened */
			tt_ib_fail(ep, TT_REMOTE, "rank %d: %s: the queue pair was stopped, and the card did not say why",
				   me, ends(l, where));
		return;
	}
	tt_ib_fail(ep, TT_REMOTE, "rank %d: %s: %s %llu failed: %s (status %d, vendor %#x): %s", me, ends(l, where),
		   wc->wr_id >> 63 ? "receiving message" : "RDMA write of message",
		   (unsigned long long)(wc->wr_id >> 63 ? l->landed : l->sent_at[((wc->wr_id >> 24) - 1) % TT_IB_SENDS]),
		   ep->ib->wc_status_str(wc->status), wc->status, wc->vendor_err, cause_of(wc->status));
}

int tt_ib_bad_post(struct tt_ib_link *l, const char *what, int error)
{
	struct tt_ib_ep *ep = (struct tt_ib_ep *)l->base.ep;
	char where[300];

	if (ep->failed)
		return ep->failed;
	if (tt_ib_events(ep))
		return ep->failed;
	return tt_ib_fail(ep, TT_REMOTE, "rank %d: %s: the card did not take %s: %s%s", ep->base.world->rank, ends(l, where), what,
			  strerror(error > 0 ? error : errno), error == EIO || error == ENODEV ? ": the card was removed" : "");
}

/* ---- asynchronous events ---------------------------------------------------------------------------------------- */

static void judge(struct tt_ib_ep *ep, const struct tt_ib_rail *rail, const struct tt_ib_async_event *e)
{
	const char *name = ep->ib->event_type_str(e->type);
	int me = ep->base.world->rank;

	switch (e->type) {
	case TT_IB_EVENT_DEVICE_FATAL:
		tt_ib_fail(ep, TT_SYSTEM, "rank %d: %s failed or was removed (%s)", me, rail->name, name);
		break;
	case TT_IB_EVENT_PORT_ERR:
		if (e->element.port == rail->card.port)
			tt_ib_fail(ep, TT_SYSTEM, "rank %d: %s port %d is down (%s): cable, switch, or `ip link`", me,
				   rail->name, rail->card.port, name);
		break;
	case TT_IB_EVENT_CQ_ERR:
	case TT_IB_EVENT_QP_FATAL:
	case TT_IB_EVENT_QP_REQ_ERR:
	case TT_IB_EVENT_QP_ACCESS_ERR:
		tt_ib_fail(ep, TT_SYSTEM, "rank %d: %s: the card reports: %s", me, rail->name, name);
		break;
	default:
		tt_log(TT_LOG_INFO, "rank %d: %s: %s", me, rail->name, name);
	}
}

int tt_ib_events(struct tt_ib_ep *ep)
{
	for (int r = 0; r < ep->nrails && !ep->failed; r++) {
		struct pollfd fd = { .fd = ep->rail[r].context->async_fd, .events = POLLIN };
		struct tt_ib_async_event e;

		while (!ep->failed && poll(&fd, 1, 0) > 0 && fd.revents & POLLIN &&
		       !ep->ib->get_async_event(ep->rail[r].context, &e)) {
			judge(ep, &ep->rail[r], &e);
			ep->ib->ack_async_event(&e);
		}
	}
	return ep->failed;
}
