/*
 * monitor_report.c - the bytes of a report; called by control_monitor.c and monitor.c
 *
 * The number of communicators, the number of those left out, each communicator with its ranks; then the number
 * of further servers, and each one.
 */
#include <stdlib.h>

#include "control/control_status.h"
#include "control/monitor.h"

#define COMM_LEAST 23   /* bytes of a communicator without ranks */
#define RANK_LEAST 40   /* ... of a rank */
#define SERVER_LEAST 61 /* ... of a server */

void tt_put_comm_report(struct tt_writer *w, const struct tt_comm_report *c)
{
	tt_put(w, c->mark, 8);
	tt_put_text(w, c->name);
	tt_put(w, (uint32_t)c->rank, 4);
	tt_put(w, (uint32_t)c->nranks, 4);
	tt_put(w, c->failed, 1);
	tt_put_text(w, c->error);
}

void tt_put_rank_report(struct tt_writer *w, const struct tt_rank_report *r)
{
	tt_put(w, r->state, 1);
	tt_put(w, (uint32_t)r->pid, 4);
	tt_put_text(w, r->host);
	tt_put(w, r->started, 8);
	tt_put(w, r->finished, 8);
	tt_put(w, r->running_ns, 8);
	tt_put(w, (uint32_t)r->awaited, 4);
	tt_put_text(w, r->collective);
	tt_put_text(w, r->other);
	tt_put(w, r->counted, 1);
	if (r->counted)
		tt_put_tally(w, &r->tally);
}

static void get_rank(struct tt_reader *r, int nranks, struct tt_rank_report *rank)
{
	rank->state = (enum tt_rank_state)tt_get_upto(r, 1, TT_RANK_DEAD);
	rank->pid = (int)tt_get_upto(r, 4, INT32_MAX);
	tt_get_text(r, rank->host, sizeof(rank->host));
	rank->started = tt_get(r, 8);
	rank->finished = tt_get(r, 8);
	rank->running_ns = tt_get(r, 8);
	rank->awaited = (int)tt_get(r, 4);
	tt_get_text(r, rank->collective, sizeof(rank->collective));
	tt_get_text(r, rank->other, sizeof(rank->other));
	rank->counted = tt_get_upto(r, 1, 1);
	if (rank->counted)
		tt_get_tally(r, &rank->tally);
	r->failed |= rank->finished > rank->started || rank->awaited < -1 ||
		     rank->awaited >= nranks;
}

/* The memory is in proportion to the bytes received, not to an announced number. */
static void get_comm(struct tt_reader *r, struct tt_comm_report *c)
{
	c->mark = tt_get(r, 8);
	tt_get_text(r, c->name, sizeof(c->name));
	c->rank = (int)tt_get_upto(r, 4, INT32_MAX);
	c->nranks = (int)tt_get_upto(r, 4, INT32_MAX);
	c->failed = tt_get_upto(r, 1, 1);
	tt_get_text(r, c->error, sizeof(c->error));
	r->failed |= c->rank >= c->nranks || (size_t)c->nranks > r->left / RANK_LEAST;
	if (r->failed)
		return;
	c->ranks = calloc((size_t)c->nranks, sizeof(*c->ranks));
	r->failed |= !c->ranks;
	for (int i = 0; i < c->nranks && !r->failed; i++)
		get_rank(r, c->nranks, &c->ranks[i]);
}

static void get_servers(struct tt_reader *r, struct tt_job_report *report)
{
	int n = (int)tt_get_upto(r, 4, INT32_MAX);

	r->failed |= (size_t)n > r->left / SERVER_LEAST;
	report->servers = r->failed ? NULL : calloc((size_t)n + 1, sizeof(*report->servers));
	r->failed |= !report->servers;
	for (; report->nservers < n && !r->failed; report->nservers++)
		tt_get_business_card(r, &report->servers[report->nservers]);
}

bool tt_get_job_report(const uint8_t *data, size_t bytes, struct tt_job_report *ret_report)
{
	struct tt_reader r = { .at = data, .left = bytes };
	struct tt_job_report report = { 0 };
	int n = (int)tt_get_upto(&r, 4, INT32_MAX);

	report.left_out = (int)tt_get_upto(&r, 4, INT32_MAX);
	r.failed |= (size_t)n > r.left / COMM_LEAST;
	report.comms = r.failed ? NULL : calloc((size_t)n + 1, sizeof(*report.comms));
	r.failed |= !report.comms;
	for (; report.ncomms < n && !r.failed; report.ncomms++)
		get_comm(&r, &report.comms[report.ncomms]);
	get_servers(&r, &report);
	if (tt_get_end(&r)) {
		*ret_report = report;
		return true;
	}
	tt_job_report_free(&report);
	return false;
}

void tt_job_report_free(struct tt_job_report *report)
{
	for (int i = 0; i < report->ncomms; i++)
		free(report->comms[i].ranks);
	free(report->comms);
	free(report->servers);
	*report = (struct tt_job_report){ 0 };
}
