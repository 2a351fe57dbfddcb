/*
 * control_monitor.c - the monitors of an endpoint: each gets one report, while the job goes on
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

/* A control that all ranks have, and that this rank has not left */
static bool is_reported(const struct tt_control *ctl)
{
	return ctl->join.complete && !ctl->departed.leaving;
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

/* The communicators up to the bound, the oldest first. Without memory w fails. */
static void put_job(const struct tt_control_endpoint *ep, uint64_t since_ns, struct tt_writer *w)
{
	struct tt_writer head = { .fixed = true, .room = 12 };
	uint32_t ncomms = 0, left_out = 0;

	tt_put(w, 0, 8); /* room for the head */
	tt_put(w, 0, 4);
	for (struct tt_control *ctl = ep->controls; ctl; ctl = ctl->next) {
		size_t before = w->have;

		if (!is_reported(ctl))
			continue;
		if (!left_out)
			put_comm(ctl, since_ns, w);
		if (left_out || w->have > TT_REPORT_MOST) {
			w->have = before;
			left_out++;
		} else {
			ncomms++;
		}
	}
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
	put_job(ep, m->since_ns - FRESH_NS, &m->report);
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
