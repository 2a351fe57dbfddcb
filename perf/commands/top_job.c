/*
 * top_job.c - asks a job for reports; finds who is late in one, and the rates between two
 *
 * Called by cmd_top.c. Calls monitor.c of the library.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "perf/bench/bench.h"
#include "perf/commands/top_job.h"

#define LONG_NS 500000000 /* an operation in progress since then waits for somebody */

/* ---- who is late ----------------------------------------------------------------------------- */

static bool runs(const struct tt_rank_report *r)
{
	return r->state == TT_RANK_ANSWERS && r->started > r->finished;
}

bool top_rank_differs(const struct top_comm *c, const struct top_rank *rank)
{
	return rank->report->state != TT_RANK_ANSWERS ||
	       (c->waits && (rank->behind || rank->awaited_by));
}

/* The ranks are in order of lateness. */
bool top_comm_differs(const struct top_comm *c)
{
	return c->report->failed || top_rank_differs(c, &c->ranks[0]);
}

static uint64_t weight(const struct top_rank *r, bool waits)
{
	static const uint64_t states[] = {
		[TT_RANK_LEFT] = 1, [TT_RANK_SILENT] = 2, [TT_RANK_DEAD] = 3
	};
	uint64_t most = UINT64_C(1) << 40,
		 behind = waits ? (r->behind < most ? r->behind : most - 1) : 0;

	return states[r->report->state] << 60 | behind << 20 |
	       (uint64_t)(waits ? r->awaited_by : 0);
}

/* How long has another rank been in an operation that this one has not started, or waited for this one? */
static uint64_t late_ns(const struct tt_comm_report *c, int rank)
{
	const struct tt_rank_report *mine = &c->ranks[rank];
	bool known = mine->started || mine->state == TT_RANK_ANSWERS;
	uint64_t late = 0;

	for (int r = 0; r < c->nranks; r++) {
		const struct tt_rank_report *other = &c->ranks[r];

		if (runs(other) && other->running_ns > late &&
		    (other->awaited == rank || (known && other->started > mine->started)))
			late = other->running_ns;
	}
	return late;
}

static int compare(const void *a, const void *b, void *waits)
{
	const struct top_rank *p = a, *q = b;
	uint64_t x = weight(p, *(bool *)waits), y = weight(q, *(bool *)waits);

	return x == y ? p->rank - q->rank : x < y ? 1 : -1;
}

static int count_hosts(const struct tt_comm_report *c)
{
	int n = 0;

	for (int r = 0; r < c->nranks; r++) {
		int same = 0;

		while (strcmp(c->ranks[same].host, c->ranks[r].host))
			same++;
		n += same == r;
	}
	return n;
}

/* false: no memory */
static bool look(const struct tt_comm_report *report, struct top_comm *c)
{
	*c = (struct top_comm){ .report = report,
				.ranks = calloc((size_t)report->nranks, sizeof(*c->ranks)),
				.hosts = count_hosts(report),
				.calls = NAN,
				.bytes = NAN,
				.bus_bytes = NAN };
	if (!c->ranks)
		return false;
	for (int r = 0; r < report->nranks; r++)
		if (report->ranks[r].started > c->newest)
			c->newest = report->ranks[r].started;
	for (int r = 0; r < report->nranks; r++) {
		const struct tt_rank_report *rank = &report->ranks[r];

		c->ranks[r].rank = r;
		c->ranks[r].report = rank;
		/* else its last status is forgotten */
		if (rank->started || rank->state == TT_RANK_ANSWERS)
			c->ranks[r].behind = c->newest - rank->started;
		c->ranks[r].late_ns = late_ns(report, r);
		if (rank->awaited >= 0)
			c->ranks[rank->awaited].awaited_by++;
		c->waits |= rank->awaited >= 0 || (runs(rank) && rank->running_ns > LONG_NS);
		if (runs(rank) && rank->started == c->newest &&
		    (!c->current || rank->running_ns > c->current->running_ns))
			c->current = rank;
	}
	qsort_r(c->ranks, (size_t)report->nranks, sizeof(*c->ranks), compare, &c->waits);
	return true;
}

/* ---- rates ----------------------------------------------------------------------------------- */

/* Bytes as nccl-tests counts them: of the larger buffer */
static double size_of(int kind, double bytes, int nranks)
{
	const struct bench_collective *b = &bench_collectives[kind];

	return b->send_all || b->recv_all ? bytes * nranks : bytes;
}

/* The mean of the ranks that count, at both reports */
static void rate_bytes(struct top_comm *c, const struct tt_comm_report *before, double seconds)
{
	double bytes = 0, bus = 0, ns = 0;
	int counted = 0, n = c->report->nranks;

	for (int r = 0; r < n; r++) {
		const struct tt_rank_report *now = &c->report->ranks[r], *then = &before->ranks[r];

		if (!now->counted || !then->counted || now->started < then->started)
			continue;
		counted++;
		for (int k = 0; k < TT_COLLECTIVES; k++) {
			double more = (double)(now->tally.bytes[k] - then->tally.bytes[k]);

			bytes += more;
			bus += size_of(k, more, n) * bench_collectives[k].bus_factor(n);
			ns += (double)(now->tally.ns[k] - then->tally.ns[k]);
		}
	}
	if (!counted)
		return;
	c->bytes = bytes / counted / seconds;
	c->bus_bytes = ns > 0 ? bus / ns * 1e9 : 0;
}

static void rate(struct top_comm *c, const struct top_job *before, double seconds)
{
	for (int i = 0; before->at_ns && i < before->report.ncomms; i++) {
		const struct top_comm *old = &before->comms[i];

		if (old->report->mark != c->report->mark ||
		    old->report->nranks != c->report->nranks || c->newest < old->newest)
			continue;
		c->calls = (double)(c->newest - old->newest) / seconds;
		rate_bytes(c, old->report, seconds);
		return;
	}
}

/* ---- a job ----------------------------------------------------------------------------------- */

void top_job_free(struct top_job *job)
{
	for (int i = 0; job->comms && i < job->report.ncomms; i++)
		free(job->comms[i].ranks);
	free(job->comms);
	tt_job_report_free(&job->report);
	free(job->why);
	job->why = NULL;
	job->comms = NULL;
	job->at_ns = 0;
}

int top_job_ask(struct top_job *job)
{
	struct top_job before = *job;
	double seconds;
	bool holds;

	*job = (struct top_job){ .id = before.id, .name = before.name };
	if (tt_monitor_ask(&job->id, &job->report)) {
		job->why = strdup(tt_error_text());
		top_job_free(&before);
		return 1;
	}
	job->at_ns = tt_now_ns();
	seconds = (double)(job->at_ns - before.at_ns) * 1e-9;
	job->comms = calloc((size_t)job->report.ncomms + 1, sizeof(*job->comms));
	holds = job->comms;
	for (int i = 0; i < job->report.ncomms && holds; i++) {
		holds = look(&job->report.comms[i], &job->comms[i]);
		if (holds)
			rate(&job->comms[i], &before, seconds);
	}
	top_job_free(&before);
	if (!holds)
		job->at_ns = 0;
	return !holds;
}
