/*
 * control_monitor.c - the monitors of an endpoint: each gets one report, while the job goes on
 *
 * Rank 0 of the job reports its own communicators, and names the servers of others: the ranks that are rank 0 of
 * a communicator without rank 0 of the job (their statuses say so), and itself in further communicators of one
 * TUTTI_ROOT, each of which has an endpoint.
 *
 * Called by control_accept.c (add) and by the service thread (events, timers). A monitor has the job's
 * key, and may still be slow, hasty or broken. So MONITORS ask at a time, each for LEAST_NS at least,
 * statuses that are younger than FRESH_NS answer without a question to the ranks, a report has a bound,
 * and a monitor that does not read it is dropped. No function waits, and no byte of a monitor is read.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include "control/control_internal.h"
#include "control/monitor.h"

#define MONITORS 4
#define SIBLINGS 16
#define FRESH_NS (TT_SECOND / 5)
#define LEAST_NS (TT_SECOND / 20)     /* from the welcome to the report */
#define ANSWER_NS (TT_SECOND * 5 / 4) /* ... at most; a rank without an answer is silent */
#define SEND_NS (5 * TT_SECOND)       /* for the monitor to read the report */
#define AT_ONCE (16u << 10)           /* bytes of a write, a record of TLS */

struct tt_monitor {
	struct tt_watched watched;
	struct tt_monitor *next;
	struct tt_tls *tls;
	uint64_t since_ns, due_ns; /* its welcome; the next look at it, or its end */
	struct tt_writer report;   /* with its length; empty: not made yet */
	int nsiblings;             /* further endpoints of rank 0 at this listener, by their keys */
	uint8_t siblings[SIBLINGS][TT_PUBLIC_KEY];
	size_t sent;
	bool dead; /* closed; freed at the end of the service thread's round */
};

static void drop(struct tt_monitor *m)
{
	if (m->dead)
		return;
	m->dead = true;
	tt_service_watch(EPOLL_CTL_DEL, tt_tls_fd(m->tls), 0, NULL);
	tt_tls_close(m->tls);
}

void tt_monitor_close_all(struct tt_control_endpoint *ep)
{
	for (struct tt_monitor *m = ep->monitors; m; m = m->next)
		drop(m);
}

void tt_monitor_reap(struct tt_control_endpoint *ep)
{
	struct tt_monitor **at = &ep->monitors, *m;

	while ((m = *at)) {
		if (!m->dead) {
			at = &m->next;
			continue;
		}
		*at = m->next;
		free(m->report.data);
		free(m);
	}
}

bool tt_monitor_may_ask(const struct tt_control_endpoint *ep)
{
	int n = 0;

	for (const struct tt_monitor *m = ep->monitors; m; m = m->next)
		n += !m->dead;
	return n < MONITORS;
}

/* ---- the report ------------------------------------------------------------------------------ */

static bool leads(const struct tt_control *ctl)
{
	for (int r = 0; r < ctl->nranks && !ctl->rank; r++)
		if (!tt_control_peer(ctl, r))
			return false;
	return !ctl->rank;
}

/* A control that all ranks have, that this rank has not left, and that no lower rank reports */
static bool is_reported(const struct tt_control *ctl)
{
	return ctl->join.complete && !ctl->departed.leaving && (!ctl->ep->peer || leads(ctl));
}

bool tt_monitor_leads(const struct tt_control_endpoint *ep)
{
	for (const struct tt_control *ctl = ep->controls; ctl && ep->peer; ctl = ctl->next)
		if (is_reported(ctl))
			return true;
	return false;
}

static void put_comm(struct tt_control *ctl, uint64_t since_ns, struct tt_writer *w)
{
	struct tt_comm_report comm = {
		.mark = ctl->mark, .rank = ctl->rank, .nranks = ctl->nranks, .failed = ctl->broken
	};
	struct tt_rank_report rank;

	memcpy(comm.name, ctl->name, sizeof(comm.name));
	if (ctl->broken)
		memcpy(comm.error, ctl->failure.text, sizeof(comm.error));
	tt_put_comm_report(w, &comm);
	for (int r = 0; r < ctl->nranks; r++) {
		tt_report_of(ctl, r, since_ns, &rank);
		tt_put_rank_report(w, &rank);
	}
}

static bool has_leader(const struct tt_control_endpoint *ep, int peer)
{
	for (const struct tt_control *ctl = ep->controls; ctl; ctl = ctl->next) {
		int rank = tt_control_rank(ctl, peer);

		if (rank >= 0 && rank != ctl->rank && !tt_set_has(ctl->departed.dead, rank) &&
		    !tt_set_has(ctl->departed.left, rank) && tt_status_of(ctl, rank)->leads)
			return true;
	}
	return false;
}

static void put_servers(const struct tt_control_endpoint *ep, const struct tt_monitor *m,
			struct tt_writer *w)
{
	struct tt_writer number = { .fixed = true, .room = 4 };
	struct tt_business_card server = ep->peers.mine;
	size_t at = w->have;
	uint32_t n = (uint32_t)m->nsiblings;

	tt_put(w, 0, 4); /* room for their number */
	for (int i = 0; i < m->nsiblings; i++) {
		memcpy(server.public_key, m->siblings[i], TT_PUBLIC_KEY);
		tt_put_business_card(w, &server);
	}
	for (int peer = 0; peer < ep->npeers; peer++) {
		if (!has_leader(ep, peer) || w->have > TT_REPORT_MOST - sizeof(server))
			continue;
		tt_directory_get(&ep->peers.directory, peer, &server);
		tt_put_business_card(w, &server);
		n++;
	}
	if (!w->failed) {
		number.data = w->data + at;
		tt_put(&number, n, 4);
	}
}

/* The communicators up to the bound, the oldest first, then the servers. Without memory w fails. */
static void put_job(const struct tt_control_endpoint *ep, const struct tt_monitor *m,
		    struct tt_writer *w)
{
	struct tt_writer head = { .fixed = true, .room = 12 };
	uint64_t since_ns = m->since_ns - FRESH_NS;
	uint32_t ncomms = 0, left_out = 0;

	tt_put(w, 0, 8); /* room for the head */
	tt_put(w, 0, 4);
	for (struct tt_control *ctl = ep->controls; ctl; ctl = ctl->next) {
		size_t before = w->have;

		if (!is_reported(ctl))
			continue;
		if (!left_out)
			put_comm(ctl, since_ns, w);
		if (left_out || w->have > TT_REPORT_COMMS) {
			w->have = before;
			left_out++;
		} else {
			ncomms++;
		}
	}
	put_servers(ep, m, w);
	if (w->failed)
		return;
	head.data = w->data;
	tt_put(&head, (uint32_t)(w->have - 4), 4);
	tt_put(&head, ncomms, 4);
	tt_put(&head, left_out, 4);
}

static bool all_answered(const struct tt_control_endpoint *ep, uint64_t since_ns)
{
	for (const struct tt_control *ctl = ep->controls; ctl; ctl = ctl->next)
		if (is_reported(ctl) && !tt_report_answered(ctl, since_ns))
			return false;
	return true;
}

/* ---- the connection -------------------------------------------------------------------------- */

/* The lock of the listeners is held. */
static void find_siblings(const struct tt_control_endpoint *ep, struct tt_monitor *m)
{
	const struct tt_control_endpoint *e = ep->listening.listener->endpoints;

	for (; e && m->nsiblings < SIBLINGS; e = e->listening.next)
		if (e != ep && !ep->peer && !e->peer &&
		    !memcmp(e->auth.job, ep->auth.job, TT_NONCE))
			memcpy(m->siblings[m->nsiblings++], e->auth.identity.public_key,
			       TT_PUBLIC_KEY);
}

void tt_monitor_add(struct tt_control_endpoint *ep, struct tt_tls *tls)
{
	struct tt_monitor *m = calloc(1, sizeof(*m));
	uint64_t now = tt_now_ns();

	if (!m || !tt_service_watch(EPOLL_CTL_ADD, tt_tls_fd(tls), EPOLLIN, m)) {
		free(m);
		tt_tls_close(tls);
		return;
	}
	*m = (struct tt_monitor){
		.watched = { TT_SRC_MONITOR, ep }, .next = ep->monitors, .tls = tls, .since_ns = now
	};
	find_siblings(ep, m);
	ep->monitors = m;
	for (struct tt_control *ctl = ep->controls; ctl; ctl = ctl->next)
		if (is_reported(ctl))
			tt_report_ask(ctl, now - FRESH_NS);
}

static void push(struct tt_monitor *m)
{
	while (m->sent < m->report.have) {
		size_t left = m->report.have - m->sent;
		ssize_t n = tt_tls_send(m->tls, m->report.data + m->sent,
					left < AT_ONCE ? left : AT_ONCE);

		if (n < 0 && errno == EAGAIN)
			return;
		if (n < 0)
			break;
		m->sent += (size_t)n;
	}
	drop(m);
}

static void send_report(struct tt_control_endpoint *ep, struct tt_monitor *m, uint64_t now)
{
	put_job(ep, m, &m->report);
	m->due_ns = now + SEND_NS;
	if (m->report.failed ||
	    !tt_service_watch(EPOLL_CTL_MOD, tt_tls_fd(m->tls), EPOLLIN | EPOLLOUT, m))
		drop(m);
	else
		push(m);
}

static void look_at_answers(struct tt_control_endpoint *ep, struct tt_monitor *m, uint64_t now)
{
	uint64_t least = m->since_ns + LEAST_NS, most = m->since_ns + ANSWER_NS;

	if (now >= most || (now >= least && all_answered(ep, m->since_ns - FRESH_NS)))
		send_report(ep, m, now);
	else
		m->due_ns = now < least ? least : most;
}

/* Bytes of a monitor end its connection, as its end does. */
void tt_monitor_event(struct tt_monitor *m, uint32_t events)
{
	if (m->dead)
		return;
	if (events & (EPOLLIN | EPOLLHUP | EPOLLERR))
		drop(m);
	else if (m->report.have)
		push(m);
}

uint64_t tt_monitor_timers(struct tt_control_endpoint *ep, uint64_t now)
{
	uint64_t due = TT_NEVER;

	for (struct tt_monitor *m = ep->monitors; m; m = m->next) {
		if (!m->dead && m->report.have && now >= m->due_ns)
			drop(m);
		else if (!m->dead && !m->report.have)
			look_at_answers(ep, m, now);
		if (!m->dead && m->due_ns < due)
			due = m->due_ns;
	}
	return due;
}
