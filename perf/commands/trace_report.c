/*
 * trace_report.c - prints which rank hangs, which is late, and the calls of each rank
 *
 * Called by cmd_trace.c and cmd_top.c. Times of ranks on different hosts are compared by their clocks, so
 * lateness below the error of their synchronization means nothing.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "perf/commands/trace_files.h"
#include "tools/plural.h"

static double ms(double ns)
{
	return ns / 1e6;
}

/* ---- who hangs ------------------------------------------------------------------------------- */

/* The question of a list of ranks: which have started call `seq`? */
struct started {
	const struct trace_comm *comm;
	uint64_t seq;
	bool wanted;
};

static const struct trace_rank *rank_of(const struct trace_comm *c, int rank)
{
	for (int i = 0; i < c->nranks; i++)
		if (c->ranks[i].head.rank == rank)
			return &c->ranks[i];
	return NULL;
}

static bool has_started(const void *ctx, int rank)
{
	const struct started *s = ctx;
	const struct trace_rank *r = rank_of(s->comm, rank);

	return r && (trace_last(r) && trace_last(r)->seq >= s->seq) == s->wanted;
}

static void print_missing(const struct trace_comm *c, uint64_t seq, int64_t now, FILE *to)
{
	char text[200];

	for (int i = 0; i < c->nranks; i++) {
		const struct trace_rank *r = &c->ranks[i];
		const struct trace_call *last = trace_last(r);

		if (last && last->seq >= seq)
			continue;
		fprintf(to, "  rank %d has not started it (pid %d on %s%s)", (int)r->head.rank,
			(int)r->head.pid, r->head.host, trace_process_text(r));
		if (last)
			trace_call_text(last, text, sizeof(text));
		if (last && last->end)
			fprintf(to, "; its last, %s, ended %.1f s ago", text,
				ms((double)(now - last->end)) / 1e3);
		else if (last)
			fprintf(to, "; it is still in %s", text);
		fputc('\n', to);
	}
}

static void print_open(const struct trace_comm *c, int64_t now, FILE *to)
{
	const struct trace_call *open = trace_open_call(c);
	struct started in = { c, open ? open->seq : 0, true };
	char text[200], ranks[400];
	int awaited = trace_awaited(c);
	const struct trace_rank *r;

	if (!open)
		return;
	trace_call_text(open, text, sizeof(text));
	tt_rank_list(c->ranks[0].head.nranks, has_started, &in, ranks, sizeof(ranks));
	fprintf(to, "  %s began %.1f s ago and has not ended on %s\n", text,
		ms((double)(now - open->start)) / 1e3, ranks);
	print_missing(c, open->seq, now, to);
	if (awaited >= 0 && (r = rank_of(c, awaited)))
		fprintf(to, "  rank %d is awaited (pid %d on %s%s)\n", awaited, (int)r->head.pid,
			r->head.host, trace_process_text(r));
}

/* ---- who is late ----------------------------------------------------------------------------- */

static void print_late(const struct trace_comm *c, FILE *to)
{
	struct trace_lateness *sums = trace_late(c);

	if (!sums)
		return;
	if (c->nranks > 1 && sums[0].calls) {
		fprintf(to, "  %-6s %10s %12s %14s %14s %14s\n", "rank", "calls", "last",
			"delay (ms)", "late (ms)", "worst (ms)");
		for (int i = 0; i < c->nranks && i < 16; i++)
			fprintf(to, "  %-6d %10" PRIu64 " %12" PRIu64 " %14.3f %14.6f %14.3f\n",
				sums[i].rank, sums[i].calls, sums[i].last, ms(sums[i].alone),
				ms(sums[i].late) / (double)sums[i].calls,
				ms((double)sums[i].worst));
		if (c->nranks > 16)
			fprintf(to, "  ... and %d rank%s with smaller delays\n", c->nranks - 16,
				tool_s(c->nranks - 16));
	}
	free(sums);
}

/* ---- communicators --------------------------------------------------------------------------- */

static const char *state_text(int state)
{
	return state == TT_TRACE_FAILED ? "failed" : state == TT_TRACE_ENDED ? "ended" : "open";
}

static void print_head(const struct trace_comm *c, FILE *to)
{
	const struct tt_trace_head *h = trace_head(c);

	fprintf(to, "communicator %016" PRIx64 "%s%s: %d of %d ranks, %s\n", h->comm,
		h->name[0] ? " " : "", h->name, c->nranks, (int)h->nranks, state_text(h->state));
	if (h->state == TT_TRACE_FAILED)
		fprintf(to, "  error: %s\n", h->error);
}

static void print_legend(FILE *to)
{
	fputs("last: calls in which the rank started last; delay: time in which all others waited for it alone;\n"
	      "late: mean time after the first rank's start. Ranks of several hosts: as exact as their clocks.\n",
	      to);
}

void trace_report(const struct trace *t, FILE *to)
{
	for (int i = 0; i < t->ncomms; i++) {
		print_head(&t->comms[i], to);
		print_open(&t->comms[i], t->now, to);
		print_late(&t->comms[i], to);
	}
	print_legend(to);
}

void trace_top(const struct trace *t, FILE *to)
{
	int shown = 0;

	for (int i = 0; i < t->ncomms; i++) {
		const struct trace_comm *c = &t->comms[i];
		const struct trace_call *last = trace_last(c->ranks);
		struct trace_rate rate = trace_rate(c, t->now);

		if (trace_head(c)->state == TT_TRACE_ENDED)
			continue;
		print_head(c, to);
		fprintf(to, "  %" PRIu64 " operations, %.1f a second, %.3f MB/s\n",
			last ? last->seq : 0, rate.calls, rate.bytes / 1e6);
		print_open(c, t->now, to);
		print_late(c, to);
		shown++;
	}
	if (shown)
		print_legend(to);
	else
		fputs("no communicator is open, and none has failed\n", to);
}

void trace_dump(const struct trace *t, FILE *to)
{
	char text[200];

	for (int i = 0; i < t->nranks; i++) {
		const struct trace_rank *r = &t->ranks[i];

		fprintf(to,
			"communicator %016" PRIx64
			", rank %d of %d, pid %d on %s: %zu call%s, %s\n",
			r->head.comm, (int)r->head.rank, (int)r->head.nranks, (int)r->head.pid,
			r->head.host, r->ncalls, tool_s((long long)r->ncalls),
			state_text(r->head.state));
		for (size_t k = 0; k < r->ncalls; k++) {
			const struct trace_call *c = &r->calls[k];

			trace_call_text(c, text, sizeof(text));
			fprintf(to, "  %14.3f ms ", ms((double)(c->start - r->calls[0].start)));
			if (c->end)
				fprintf(to, "%12.3f us  ", (double)(c->end - c->start) / 1e3);
			else
				fprintf(to, "%12s     ", c->failed ? "failed" : "running");
			fprintf(to, "%s by %s\n", text, r->head.way[c->way]);
		}
	}
}
