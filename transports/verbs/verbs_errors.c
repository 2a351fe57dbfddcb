/*
 * verbs_errors.c - errors of HCAs, as sentences that an operator can act on
 *
 * Called by the other files of the transport. The first failure of an endpoint stays: every later
 * call returns its sentence. A failed completion (TT_REMOTE) is a symptom, and gives way to a
 * report of this host's own HCA (TT_SYSTEM), whichever comes first. Flushed work requests are a
 * consequence and never the named cause while a better cause is known. A port that is down is not a
 * failure yet: HCAs retransmit, the port may come back, and a port without links causes nothing.
 */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "transports/verbs/verbs.h"

#define RECENT_NS 10000000000ull /* how long a port that came back explains failures */

static const struct {
	int status;
	const char *cause;
} causes[] = {
	{ TT_VERBS_WC_LOC_LEN, "a length that this HCA cannot send" },
	{ TT_VERBS_WC_LOC_QP_OP,
	  "an operation that this queue pair cannot do: an error in Tutti, or of Soft-RoCE: its interface is "
	  "down" },
	{ TT_VERBS_WC_LOC_PROT,
	  "memory of this rank that is not registered, or no longer: an error in Tutti, or a fork" },
	{ TT_VERBS_WC_LOC_ACCESS,
	  "memory of this rank that may not be written: an error in Tutti" },
	{ TT_VERBS_WC_BAD_RESP, "the peer's HCA sent an unexpected answer" },
	{ TT_VERBS_WC_REM_INV_REQ,
	  "the peer had no receive for it, or the message was too long: an error in Tutti" },
	{ TT_VERBS_WC_REM_ACCESS,
	  "the peer's memory may not be written there: its registration is gone, or an error "
	  "in Tutti" },
	{ TT_VERBS_WC_REM_OP, "the peer's HCA could not carry out the operation" },
	{ TT_VERBS_WC_RETRY,
	  "the peer's HCA did not answer: that process is dead, its link or a switch between is down, the "
	  "GIDs do not reach each other (TUTTI_IB_GID_INDEX), or packets are lost (PFC, ECN)" },
	{ TT_VERBS_WC_RNR_RETRY, "the peer had no receive ready: an error in Tutti" },
	{ TT_VERBS_WC_REM_ABORT, "the peer's HCA gave up" },
	{ TT_VERBS_WC_FATAL, "the HCA failed" },
	{ TT_VERBS_WC_RESP_TIMEOUT, "the peer's HCA was too slow to answer" },
	{ TT_VERBS_WC_GENERAL, "the HCA names no cause" },
	{ 0, "no cause is known for this number" },
};

/* guards failed and text of all endpoints: tt_verbs_lost reads them from another thread */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

int tt_verbs_fail(struct tt_verbs_ep *ep, int code, const char *fmt, ...)
{
	va_list args;

	pthread_mutex_lock(&lock);
	if (!ep->failed || (ep->failed == TT_REMOTE && code == TT_SYSTEM)) {
		va_start(args, fmt);
		vsnprintf(ep->text, sizeof(ep->text), fmt, args);
		va_end(args);
		ep->failed = code;
	}
	pthread_mutex_unlock(&lock);
	return tt_verbs_failed(ep);
}

int tt_verbs_failed(struct tt_verbs_ep *ep)
{
	return tt_fail(ep->failed, "%s", ep->text);
}

static const char *cause_of(int status)
{
	size_t i = 0;

	while (causes[i].status && causes[i].status != status)
		i++;
	return causes[i].cause;
}

/* Describe both ends of a link. */
static const char *ends(const struct tt_verbs_link *l, char text[300])
{
	char mine[TT_VERBS_GID_TEXT], theirs[TT_VERBS_GID_TEXT];

	snprintf(
		text, 300,
		"%s port %d GID %d (%s) queue pair %#x to rank %d's %.64s (GID %s) queue pair %#x, channel %d",
		l->rail->name, l->rail->record.port, l->mine.index,
		tt_verbs_gid_text(l->mine.gid, mine), l->qp->qp_num, l->base.peer, l->hello.name,
		tt_verbs_gid_text(l->theirs.gid, theirs), l->hello.qpn, l->base.channel);
	return text;
}

/* ---- asynchronous events --------------------------------------------------------------------- */

static void set_port(const struct tt_verbs_ep *ep, struct tt_verbs_rail *rail, bool down)
{
	bool was = rail->down_ns && !rail->up_ns;

	if (down == was)
		return;
	if (down)
		rail->down_ns = tt_now_ns();
	rail->up_ns = down ? 0 : tt_now_ns();
	tt_log(TT_LOG_WARN, "rank %d: %s port %d is %s", ep->base.world->rank, rail->name,
	       rail->record.port, down ? "down: messages are repeated for a while" : "up again");
}

static void hca_is_gone(struct tt_verbs_ep *ep, const struct tt_verbs_rail *rail, const char *how)
{
	tt_verbs_fail(ep, TT_SYSTEM, "rank %d: %s failed or was removed (%s)", ep->base.world->rank,
		      rail->name, how);
}

/* Describe the link of the queue pair in an asynchronous event. */
static const char *link_of(const struct tt_verbs_ep *ep, const void *qp, char text[300])
{
	for (uint32_t i = 0; i < ep->nlist; i++)
		if (ep->list[i]->qp == qp)
			return ends(ep->list[i], text);
	return NULL;
}

static void handle_event(struct tt_verbs_ep *ep, struct tt_verbs_rail *rail,
			 const struct tt_verbs_async_event *e)
{
	const char *name = ep->ib->event_type_str(e->type), *of = NULL;
	int me = ep->base.world->rank;
	char where[300];

	switch (e->type) {
	case TT_VERBS_EVENT_PORT_ERR:
	case TT_VERBS_EVENT_PORT_ACTIVE:
		if (e->element.port == rail->record.port)
			set_port(ep, rail, e->type == TT_VERBS_EVENT_PORT_ERR);
		return;
	case TT_VERBS_EVENT_DEVICE_FATAL:
		if (rail->nlinks) {
			hca_is_gone(ep, rail, name);
			return;
		}
		break;
	case TT_VERBS_EVENT_QP_FATAL:
	case TT_VERBS_EVENT_QP_REQ_ERR:
	case TT_VERBS_EVENT_QP_ACCESS_ERR:
		of = link_of(ep, e->element.object, where);
		/* fall through */
	case TT_VERBS_EVENT_CQ_ERR:
		tt_verbs_fail(ep, TT_SYSTEM, "rank %d: %s: the HCA reports: %s", me,
			      of ? of : rail->name, name);
		return;
	}
	tt_log(TT_LOG_INFO, "rank %d: %s: %s", me, rail->name, name);
}

int tt_verbs_events(struct tt_verbs_ep *ep)
{
	for (int r = 0; r < ep->nrails && ep->failed != TT_SYSTEM; r++) {
		struct pollfd fd = { .fd = ep->rail[r].context->async_fd, .events = POLLIN };
		struct tt_verbs_async_event e;

		while (ep->failed != TT_SYSTEM && poll(&fd, 1, 0) > 0 && fd.revents & POLLIN &&
		       !ep->ib->get_async_event(ep->rail[r].context, &e)) {
			handle_event(ep, &ep->rail[r], &e);
			ep->ib->ack_async_event(&e);
		}
	}
	return ep->failed;
}

/* Query the port, because the HCA may not have reported an event yet. */
static void query_state(struct tt_verbs_ep *ep, struct tt_verbs_rail *rail)
{
	struct tt_verbs_port_attr at = { 0 };
	int error = ep->ib->query_port(rail->context, rail->record.port, &at);

	if (error == ENODEV || error == EIO)
		hca_is_gone(ep, rail, strerror(error));
	else if (!error && at.state != TT_VERBS_PORT_ACTIVE)
		set_port(ep, rail, true);
}

/* How long an HCA retransmits a packet that is not acknowledged. */
static uint64_t retry_ns(const struct tt_verbs_ep *ep)
{
	const struct tt_verbs_settings *set = ep->base.world->ib;

	return (TT_VERBS_TIMEOUT_NS << tt_verbs_timeout(set)) *
	       (uint64_t)(1 + tt_verbs_retries(set));
}

/* A port that goes down and comes back loses nothing as long as HCAs retransmit. So the port is a
 * fault after a failure, or when the port has been down for longer. */
static void check_port(struct tt_verbs_ep *ep, struct tt_verbs_rail *rail, bool broken)
{
	uint64_t now = tt_now_ns();
	char how[100] = "is down";

	query_state(ep, rail);
	if (!rail->down_ns || (!broken && (rail->up_ns || now - rail->down_ns <= retry_ns(ep))))
		return;
	if (rail->up_ns && now - rail->up_ns > RECENT_NS + retry_ns(ep))
		return;
	if (rail->up_ns)
		snprintf(how, sizeof(how), "was down for %.1f s, until %.1f s ago",
			 1e-9 * (double)(rail->up_ns - rail->down_ns),
			 1e-9 * (double)(now - rail->up_ns));
	tt_verbs_fail(ep, TT_SYSTEM, "rank %d: %s port %d %s: cable, switch, or `ip link`",
		      ep->base.world->rank, rail->name, rail->record.port, how);
}

/* Check the ports that carry links, or only the one port. */
static int check_ports(struct tt_verbs_ep *ep, const struct tt_verbs_rail *only, bool broken)
{
	tt_verbs_events(ep);
	for (int r = 0; r < ep->nrails && ep->failed != TT_SYSTEM; r++)
		if (ep->rail[r].nlinks && (!only || only == &ep->rail[r]))
			check_port(ep, &ep->rail[r], broken);
	return ep->failed;
}

int tt_verbs_local_fault(struct tt_endpoint *base, bool broken)
{
	struct tt_verbs_ep *ep = (struct tt_verbs_ep *)base;

	return check_ports(ep, NULL, broken) == TT_SYSTEM ? tt_verbs_failed(ep) : 0;
}

/* ---- work that failed ------------------------------------------------------------------------ */

void tt_verbs_bad_completion(struct tt_verbs_link *l, const struct tt_verbs_wc *wc)
{
	struct tt_verbs_ep *ep = (struct tt_verbs_ep *)l->base.ep;
	int me = ep->base.world->rank;
	char where[300];

	l->failed = true;
	/* the HCA may have reported the cause */
	if (ep->failed || l->peer_closed || check_ports(ep, l->rail, true))
		return;
	if (wc->status == TT_VERBS_WC_FLUSH)
		tt_verbs_fail(
			ep, TT_REMOTE,
			"rank %d: %s: the queue pair was stopped, and the HCA did not say why", me,
			ends(l, where));
	else
		tt_verbs_fail(ep, TT_REMOTE,
			      "rank %d: %s: %s %llu failed: %s (status %d, vendor %#x): %s", me,
			      ends(l, where),
			      wc->wr_id >> 63 ? "receiving message" : "RDMA write of message",
			      (unsigned long long)(wc->wr_id >> 63
							   ? l->landed
							   : l->sent_at[((wc->wr_id >> 24) - 1) %
									TT_VERBS_SENDS]),
			      ep->ib->wc_status_str(wc->status), wc->status, wc->vendor_err,
			      cause_of(wc->status));
}

int tt_verbs_bad_post(struct tt_verbs_link *l, const char *what, int error)
{
	struct tt_verbs_ep *ep = (struct tt_verbs_ep *)l->base.ep;
	char where[300];
	int number = error > 0 ? error : errno;
	bool removed = number == EIO || number == ENODEV;

	l->failed = true;
	if (ep->failed || check_ports(ep, l->rail, true))
		return ep->failed;
	return tt_verbs_fail(ep, removed ? TT_SYSTEM : TT_REMOTE,
			     "rank %d: %s: the HCA did not accept %s: %s%s", ep->base.world->rank,
			     ends(l, where), what, strerror(number),
			     removed ? ": the HCA was removed" : "");
}

/* ---- lost messages --------------------------------------------------------------------------- */

/* A link to peer whose queue pair has stopped, or NULL. */
static struct tt_verbs_link *stopped(struct tt_verbs_ep *ep, int peer)
{
	int n = ep->base.world->nchannels;

	for (int channel = 0; channel < n; channel++) {
		struct tt_verbs_link *l = __atomic_load_n(&ep->links[peer * n + channel],
							  __ATOMIC_ACQUIRE);
		struct tt_verbs_qp_attr attr = { 0 };
		struct tt_verbs_qp_init init = { 0 };

		if (l && __atomic_load_n(&l->state, __ATOMIC_ACQUIRE) == TT_VERBS_READY &&
		    !l->peer_closed && !ep->ib->query_qp(l->qp, &attr, TT_VERBS_QP_STATE, &init) &&
		    attr.qp_state == TT_VERBS_ERR)
			return l;
	}
	return NULL;
}

/* A queue pair stops when a write fails. The cause stands in a completion queue, which this rank
 * polls only when it sends there again. If the cause was polled already, or the HCA has reported an
 * event, the sentence names that cause. */
bool tt_verbs_lost(struct tt_endpoint *base, int peer, char *text, size_t bytes)
{
	struct tt_verbs_ep *ep = (struct tt_verbs_ep *)base;
	const struct tt_verbs_link *l = stopped(ep, peer);
	char where[300];

	if (!l)
		return false;
	check_ports(ep, l->rail, true);
	pthread_mutex_lock(&lock);
	snprintf(text, bytes, "%s", ep->failed ? ep->text : "");
	pthread_mutex_unlock(&lock);
	if (!text[0])
		snprintf(
			text, bytes,
			"rank %d: %s: the queue pair has stopped, and the last messages to that rank are lost: "
			"that rank's HCA did not answer, or refused them",
			base->world->rank, ends(l, where));
	return true;
}
