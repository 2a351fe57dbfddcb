/*
 * control_report.c - the state of every rank, for operators
 *
 * Called by comm's RAS service. Statuses answer the question as they do when a rank waits long: so
 * a rank that computes answers by its service thread, and only a stopped process is silent.
 */
#include <stdio.h>
#include <string.h>

#include "control/control_internal.h"

void tt_control_ask(struct tt_control *ctl)
{
	tt_control_lock(ctl);
	tt_status_ask(ctl, tt_now_ns());
	tt_control_unlock(ctl);
}

static enum tt_rank_state state_of(const struct tt_control *ctl, int rank, uint64_t since_ns)
{
	if (ctl->departed.dead[rank])
		return TT_RANK_DEAD;
	if (ctl->departed.left[rank])
		return TT_RANK_LEFT;
	return tt_status_answers(ctl, rank, since_ns) ? TT_RANK_ANSWERS : TT_RANK_SILENT;
}

bool tt_control_all_answered(struct tt_control *ctl, uint64_t since_ns)
{
	bool all = true;

	tt_control_lock(ctl);
	for (int r = 0; r < ctl->nranks && all; r++)
		all = state_of(ctl, r, since_ns) != TT_RANK_SILENT;
	tt_control_unlock(ctl);
	return all;
}

void tt_control_report(struct tt_control *ctl, uint64_t since_ns, struct tt_rank_report *ret_report)
{
	struct tt_status own;

	tt_control_lock(ctl);
	tt_status_fill(ctl, &own);
	for (int r = 0; r < ctl->nranks; r++) {
		const struct tt_status *s = r == ctl->rank ? &own : tt_status_of(ctl, r);
		struct tt_rank_report *report = &ret_report[r];
		struct tt_business_card record;

		tt_directory_get(&ctl->ep->peers.directory, tt_control_peer(ctl, r), &record);
		*report = (struct tt_rank_report){ .state = state_of(ctl, r, since_ns),
						   .pid = (int)record.pid,
						   .started = s->started,
						   .finished = s->finished };
		snprintf(report->host, sizeof(report->host), "%s", record.name);
		memcpy(report->tally, s->tally, sizeof(report->tally));
	}
	tt_control_unlock(ctl);
}
