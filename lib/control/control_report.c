/*
 * control_report.c - the state of every rank, for operators
 *
 * Called by comm's RAS service and by control_monitor.c. Statuses answer the question as they do when a
 * rank waits long: so a rank that computes answers by its service thread, and only a stopped process is
 * silent.
 */
#include <stdio.h>
#include <string.h>

#include "control/control_internal.h"

void tt_control_describe(struct tt_control *ctl, uint64_t mark, const char *name)
{
	tt_control_lock(ctl);
	ctl->mark = mark;
	snprintf(ctl->name, sizeof(ctl->name), "%s", name);
	tt_text_plain(ctl->name);
	tt_control_unlock(ctl);
}

/* ---- questions ------------------------------------------------------------------------------- */

void tt_report_ask(struct tt_control *ctl, uint64_t since_ns)
{
	if (ctl->status.report_ns >= since_ns)
		return;
	ctl->status.report_ns = tt_now_ns();
	tt_status_ask(ctl, ctl->status.report_ns);
}

void tt_control_ask(struct tt_control *ctl, uint64_t since_ns)
{
	tt_control_lock(ctl);
	tt_report_ask(ctl, since_ns);
	tt_control_unlock(ctl);
}

static enum tt_rank_state state_of(const struct tt_control *ctl, int rank, uint64_t since_ns)
{
	if (tt_set_has(ctl->departed.dead, rank))
		return TT_RANK_DEAD;
	if (tt_set_has(ctl->departed.left, rank))
		return TT_RANK_LEFT;
	return tt_status_answers(ctl, rank, since_ns) ? TT_RANK_ANSWERS : TT_RANK_SILENT;
}

bool tt_report_answered(const struct tt_control *ctl, uint64_t since_ns)
{
	for (int r = 0; r < ctl->nranks; r++)
		if (state_of(ctl, r, since_ns) == TT_RANK_SILENT)
			return false;
	return true;
}

bool tt_control_all_answered(struct tt_control *ctl, uint64_t since_ns)
{
	bool all;

	tt_control_lock(ctl);
	all = tt_report_answered(ctl, since_ns);
	tt_control_unlock(ctl);
	return all;
}

/* ---- answers --------------------------------------------------------------------------------- */

void tt_report_of(struct tt_control *ctl, int rank, uint64_t since_ns,
		  struct tt_rank_report *ret_report)
{
	struct tt_rank_report *report = ret_report;
	/* this rank's is as old as the others': of the question */
	const struct tt_status *s = tt_status_of(ctl, rank);
	struct tt_business_card record;

	tt_directory_get(&ctl->ep->peers.directory, tt_control_peer(ctl, rank), &record);
	*report = (struct tt_rank_report){ .state = state_of(ctl, rank, since_ns),
					   .pid = (int)record.pid,
					   .started = s->started,
					   .finished = s->finished,
					   .running_ns = s->running_ns,
					   .awaited = s->awaited,
					   .counted = s->counted,
					   .tally = s->tally };
	snprintf(report->host, sizeof(report->host), "%s", record.name);
	if (s->started && s->history.nruns)
		tt_call_text(&s->history.run[0].call, s->started, report->collective,
			     sizeof(report->collective));
	tt_status_other_text(s, report->other, sizeof(report->other));
}

void tt_control_report(struct tt_control *ctl, uint64_t since_ns, struct tt_rank_report *ret_report)
{
	tt_control_lock(ctl);
	for (int r = 0; r < ctl->nranks; r++)
		tt_report_of(ctl, r, since_ns, &ret_report[r]);
	tt_control_unlock(ctl);
}
