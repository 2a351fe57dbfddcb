/*
 * top_print.c - prints the jobs of `tutti top`: one screen with the differences first, or JSON
 *
 * Called by cmd_top.c.
 */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "perf/bench/bench.h"
#include "perf/commands/top_job.h"

#define COMMS 4      /* communicators with a table, at most */
#define LINES 6      /* of a communicator beside its ranks */
#define ROWS_LEAST 2 /* ranks of a table */

static const char *const states[] = { [TT_RANK_ANSWERS] = "answers",
				      [TT_RANK_SILENT] = "silent",
				      [TT_RANK_LEFT] = "left",
				      [TT_RANK_DEAD] = "dead" };

static double seconds(uint64_t ns)
{
	return (double)ns * 1e-9;
}

/* ---- the screen ------------------------------------------------------------------------------ */

static bool is_current(const void *ctx, int rank)
{
	const struct top_comm *c = ctx;
	const struct tt_rank_report *r = &c->report->ranks[rank];

	return r->state == TT_RANK_ANSWERS && r->started == c->newest && r->finished < r->started;
}

/* job NULL: the only one */
static void print_head(const struct top_job *job, const struct top_comm *c, FILE *to)
{
	const struct tt_comm_report *r = c->report;

	fprintf(to, "communicator %016" PRIx64 "%s%s%s%s: %d rank%s on %d host%s, %s\n", r->mark,
		r->name[0] ? " " : "", r->name, job ? " of " : "", job ? job->name : "", r->nranks,
		r->nranks > 1 ? "s" : "", c->hosts, c->hosts > 1 ? "s" : "",
		r->failed ? "failed" : "open");
	if (r->failed)
		fprintf(to, "  error: %s\n", r->error);
	fprintf(to, "  %" PRIu64 " operations", c->newest);
	if (!isnan(c->calls))
		fprintf(to, ", %.1f a second", c->calls);
	if (!isnan(c->bytes))
		fprintf(to, ", %.3f MB/s, busbw %.3f GB/s", c->bytes / 1e6, c->bus_bytes / 1e9);
	fputc('\n', to);
}

static bool is_silent(const void *ctx, int rank)
{
	return ((const struct top_comm *)ctx)->report->ranks[rank].state == TT_RANK_SILENT;
}

static void print_silent(const struct top_comm *c, FILE *to)
{
	char ranks[400];

	if (tt_rank_list(c->report->nranks, is_silent, c, ranks, sizeof(ranks)))
		fprintf(to, "  no answer of %s: stopped, starved or cut off\n", ranks);
}

static void print_current(const struct top_comm *c, FILE *to)
{
	char ranks[400];

	if (!c->current)
		return;
	tt_rank_list(c->report->nranks, is_current, c, ranks, sizeof(ranks));
	fprintf(to, "  %s has lasted %s%.1f s on %s\n", c->current->collective,
		c->current->counted ? "" : "at least ", seconds(c->current->running_ns), ranks);
}

static void print_rank(const struct top_rank *r, FILE *to)
{
	const struct tt_rank_report *p = r->report;

	fprintf(to, "  %-5d %-7s %10" PRIu64 " %8" PRIu64 " %8.1f %8.1f %10d ", r->rank,
		states[p->state], p->started, r->behind, seconds(r->late_ns),
		seconds(p->running_ns), r->awaited_by);
	if (p->awaited >= 0)
		fprintf(to, "%6d", p->awaited);
	else
		fprintf(to, "%6s", "-");
	fprintf(to, "  pid %d on %s%s%s\n", p->pid, p->host, p->other[0] ? ", in " : "", p->other);
}

static void print_comm(const struct top_job *job, const struct top_comm *c, int rows, FILE *to)
{
	int n = c->report->nranks, shown = n <= rows ? n : rows;

	print_head(job, c, to);
	print_current(c, to);
	print_silent(c, to);
	fprintf(to, "  %-5s %-7s %10s %8s %8s %8s %10s %6s\n", "rank", "state", "operation",
		"behind", "late (s)", "for (s)", "awaited by", "awaits");
	for (int i = 0; i < shown; i++)
		print_rank(&c->ranks[i], to);
	if (shown < n) {
		int more = 0;

		for (int i = shown; i < n; i++)
			more += top_rank_differs(c, &c->ranks[i]);
		fprintf(to, "  ... and %d more, %d of them gone, silent or late\n", n - shown,
			more);
	}
}

/* Print the communicators that differ, or the others; returns how many. */
static int print_comms(const struct top_job *jobs, int n, bool differs, int most, int rows,
		       FILE *to)
{
	int shown = 0;

	for (int k = 0; k < n; k++)
		for (int i = 0; i < jobs[k].report.ncomms; i++)
			if (top_comm_differs(&jobs[k].comms[i]) == differs && shown < most) {
				print_comm(n > 1 ? &jobs[k] : NULL, &jobs[k].comms[i], rows, to);
				shown++;
			}
	return shown;
}

void top_print(const struct top_job *jobs, int n, int rows, FILE *to)
{
	int all = 0, shown, each;

	for (int k = 0; k < n; k++)
		all += jobs[k].report.ncomms + jobs[k].report.left_out;
	each = (rows - 1) / (all < 1 ? 1 : all < COMMS ? all : COMMS) - LINES;
	each = each < ROWS_LEAST ? ROWS_LEAST : each;
	shown = print_comms(jobs, n, true, COMMS, each, to);
	shown += print_comms(jobs, n, false, COMMS - shown, each, to);
	if (shown < all)
		fprintf(to, "... and %d communicator%s\n", all - shown, all - shown > 1 ? "s" : "");
	if (!all)
		fputs("rank 0 is in no communicator now\n", to);
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static void rank_json(struct bench_json *j, const struct top_rank *r)
{
	const struct tt_rank_report *p = r->report;

	bench_json_open(j, NULL, '{');
	bench_json_int(j, "rank", r->rank);
	bench_json_text(j, "host", p->host);
	bench_json_int(j, "pid", p->pid);
	bench_json_text(j, "state", states[p->state]);
	bench_json_int(j, "operation", (long long)p->started);
	bench_json_bool(j, "in_operation", p->started > p->finished);
	bench_json_real(j, "age_s", seconds(p->running_ns));
	bench_json_int(j, "behind", (long long)r->behind);
	bench_json_real(j, "late_s", seconds(r->late_ns));
	bench_json_int(j, "awaits", p->awaited);
	bench_json_int(j, "awaited_by", r->awaited_by);
	bench_json_text(j, "call", p->collective);
	if (p->other[0])
		bench_json_text(j, "other_call", p->other);
	bench_json_close(j, '}');
}

/* The first rank, if it is gone, silent or late; else -1 */
static int awaited(const struct top_comm *c)
{
	return top_rank_differs(c, &c->ranks[0]) ? c->ranks[0].rank : -1;
}

static void comm_json(struct bench_json *j, const struct top_job *job, const struct top_comm *c)
{
	char mark[20];

	snprintf(mark, sizeof(mark), "%016" PRIx64, c->report->mark);
	bench_json_open(j, NULL, '{');
	bench_json_text(j, "job", job->name);
	bench_json_text(j, "communicator", mark);
	bench_json_text(j, "name", c->report->name);
	bench_json_int(j, "ranks", c->report->nranks);
	bench_json_int(j, "hosts", c->hosts);
	if (c->report->failed)
		bench_json_text(j, "error", c->report->error);
	bench_json_real(j, "calls_per_s", c->calls);
	bench_json_real(j, "bytes_per_s", c->bytes);
	bench_json_real(j, "busbw_gbps", c->bus_bytes / 1e9);
	if (c->current) {
		bench_json_text(j, "operation", c->current->collective);
		bench_json_real(j, "age_s", seconds(c->current->running_ns));
		bench_json_bool(j, "age_is_exact", c->current->counted);
	} else {
		bench_json_null(j, "operation");
	}
	bench_json_int(j, "awaited", awaited(c));
	bench_json_open(j, "lateness", '[');
	for (int i = 0; i < c->report->nranks; i++)
		rank_json(j, &c->ranks[i]);
	bench_json_close(j, ']');
	bench_json_close(j, '}');
}

void top_print_json(const struct top_job *jobs, int n, FILE *to)
{
	struct bench_json j = { .to = to };

	bench_json_open(&j, NULL, '[');
	for (int k = 0; k < n; k++)
		for (int i = 0; i < jobs[k].report.ncomms; i++)
			comm_json(&j, &jobs[k], &jobs[k].comms[i]);
	bench_json_close(&j, ']');
	fputc('\n', to);
}
