/*
 * trace_json.c - the flight recorder as JSON: trace events for Perfetto, and entries with the field
 * names of PyTorch's flight recorder
 *
 * Called by cmd_trace.c and cmd_top.c. Trace events: a process is a process, a thread is a rank of a
 * communicator, a slice is a call; an arrow leads from each rank that waited in a call to the rank that started
 * the call last. (Perfetto orders the two ends of an arrow by the starts of their slices.)
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/collective.h"
#include "perf/bench/bench.h"
#include "perf/commands/trace_files.h"

#define FLOW_LEAST_NS 1000 /* shorter waits have no arrow */

/* ---- trace events ---------------------------------------------------------------------------- */

static int thread_of(const struct trace *t, const struct trace_rank *r)
{
	return (int)(r - t->ranks) + 1;
}

static void event(struct bench_json *j, const char *phase, const char *name, int pid, int tid)
{
	bench_json_open(j, NULL, '{');
	bench_json_text(j, "ph", phase);
	bench_json_text(j, "name", name);
	bench_json_int(j, "pid", pid);
	bench_json_int(j, "tid", tid);
}

static void name_rank(struct bench_json *j, const struct trace *t, const struct trace_rank *r)
{
	char text[200];

	event(j, "M", "process_name", r->process, thread_of(t, r));
	bench_json_open(j, "args", '{');
	snprintf(text, sizeof(text), "%s, pid %d", r->head.host, (int)r->head.pid);
	bench_json_text(j, "name", text);
	bench_json_close(j, '}');
	bench_json_close(j, '}');
	event(j, "M", "thread_name", r->process, thread_of(t, r));
	bench_json_open(j, "args", '{');
	snprintf(text, sizeof(text), "rank %d of %d, %s %016" PRIx64, (int)r->head.rank,
		 (int)r->head.nranks, r->head.name[0] ? r->head.name : "communicator",
		 r->head.comm);
	bench_json_text(j, "name", text);
	bench_json_close(j, '}');
	bench_json_close(j, '}');
}

static void slice(struct bench_json *j, const struct trace *t, const struct trace_rank *r,
		  const struct trace_call *c)
{
	int64_t end = c->end ? c->end : r->head.state == TT_TRACE_OPEN ? t->now : c->start;
	char text[200];

	trace_call_text(c, text, sizeof(text));
	event(j, "X", text, r->process, thread_of(t, r));
	bench_json_text(j, "cat", c->failed ? "failed" : c->end ? "call" : "running");
	bench_json_us(j, "ts", c->start - t->first);
	bench_json_us(j, "dur", end - c->start);
	bench_json_open(j, "args", '{');
	bench_json_int(j, "operation", (long long)c->seq);
	bench_json_int(j, "bytes", (long long)c->bytes);
	bench_json_text(j, "way", r->head.way[c->way]);
	if (c->awaited >= 0)
		bench_json_int(j, "awaited", c->awaited);
	bench_json_close(j, '}');
	bench_json_close(j, '}');
}

static void arrow(struct bench_json *j, const struct trace *t, const struct trace_rank *r,
		  const char *phase, int64_t at, long long id)
{
	event(j, phase, "waits for the last rank", r->process, thread_of(t, r));
	bench_json_text(j, "cat", "wait");
	bench_json_int(j, "id", id);
	bench_json_us(j, "ts", at - t->first);
	if (*phase == 'f')
		bench_json_text(j, "bp", "e");
	bench_json_close(j, '}');
}

static void arrows(struct bench_json *j, const struct trace *t, const struct trace_comm *c,
		   uint64_t seq, long long *id)
{
	const struct trace_rank *latest = NULL;
	int64_t last = INT64_MIN;

	for (int i = 0; i < c->nranks; i++) {
		const struct trace_call *call = trace_find(&c->ranks[i], seq);

		if (call && call->start > last) {
			last = call->start;
			latest = &c->ranks[i];
		}
	}
	for (int i = 0; i < c->nranks; i++) {
		const struct trace_call *call = trace_find(&c->ranks[i], seq);

		if (!call || &c->ranks[i] == latest || last - call->start < FLOW_LEAST_NS ||
		    (call->end && call->end < last))
			continue;
		arrow(j, t, &c->ranks[i], "s", call->start, ++*id);
		arrow(j, t, latest, "f", last, *id);
	}
}

void trace_merge_json(const struct trace *t, FILE *to)
{
	struct bench_json j = { .to = to };
	long long id = 0;

	bench_json_open(&j, NULL, '{');
	bench_json_text(&j, "displayTimeUnit", "ns");
	bench_json_open(&j, "traceEvents", '[');
	for (int i = 0; i < t->nranks; i++) {
		name_rank(&j, t, &t->ranks[i]);
		for (size_t k = 0; k < t->ranks[i].ncalls; k++)
			slice(&j, t, &t->ranks[i], &t->ranks[i].calls[k]);
	}
	for (int i = 0; i < t->ncomms; i++)
		for (size_t k = 0; k < t->comms[i].ranks[0].ncalls; k++)
			arrows(&j, t, &t->comms[i], t->comms[i].ranks[0].calls[k].seq, &id);
	bench_json_close(&j, ']');
	bench_json_close(&j, '}');
	fputc('\n', to);
}

/* ---- tutti top ------------------------------------------------------------------------------- */

static void rank_in(struct bench_json *j, const struct trace_rank *r)
{
	const struct trace_call *last = trace_last(r);
	const char *process = trace_process_text(r);

	bench_json_open(j, NULL, '{');
	bench_json_int(j, "rank", r->head.rank);
	bench_json_text(j, "host", r->head.host);
	bench_json_int(j, "pid", r->head.pid);
	bench_json_text(j, "process", process[0] ? process + 2 : "runs");
	bench_json_int(j, "operation", last ? (long long)last->seq : 0);
	bench_json_close(j, '}');
}

static void ranks_of(struct bench_json *j, const struct trace_comm *c, uint64_t seq, bool missing)
{
	bench_json_open(j, missing ? "not_started" : "in_operation", '[');
	for (int i = 0; i < c->nranks; i++) {
		const struct trace_call *last = trace_last(&c->ranks[i]);

		if ((!last || last->seq < seq) == missing)
			rank_in(j, &c->ranks[i]);
	}
	bench_json_close(j, ']');
}

static void current(struct bench_json *j, const struct trace *t, const struct trace_comm *c)
{
	const struct trace_call *open = trace_open_call(c);
	char text[200];

	if (!open) {
		bench_json_null(j, "operation");
		return;
	}
	trace_call_text(open, text, sizeof(text));
	bench_json_text(j, "operation", text);
	bench_json_real(j, "age_s", (double)(t->now - open->start) / 1e9);
	bench_json_int(j, "awaited", trace_awaited(c));
	ranks_of(j, c, open->seq, false);
	ranks_of(j, c, open->seq, true);
}

static void lateness(struct bench_json *j, const struct trace_comm *c)
{
	struct trace_lateness *late = trace_late(c);

	bench_json_open(j, "lateness", '[');
	for (int i = 0; late && i < c->nranks; i++) {
		bench_json_open(j, NULL, '{');
		bench_json_int(j, "rank", late[i].rank);
		bench_json_int(j, "calls", (long long)late[i].calls);
		bench_json_int(j, "last", (long long)late[i].last);
		bench_json_real(j, "delay_ms", late[i].alone / 1e6);
		bench_json_real(j, "worst_ms", (double)late[i].worst / 1e6);
		bench_json_close(j, '}');
	}
	bench_json_close(j, ']');
	free(late);
}

static void comm_json(struct bench_json *j, const struct trace *t, const struct trace_comm *c)
{
	struct trace_rate rate = trace_rate(c, t->now);
	const struct tt_trace_head *head = trace_head(c);
	char text[32];

	snprintf(text, sizeof(text), "%016" PRIx64, head->comm);
	bench_json_open(j, NULL, '{');
	bench_json_text(j, "communicator", text);
	bench_json_text(j, "name", head->name);
	bench_json_int(j, "ranks", head->nranks);
	bench_json_int(j, "files", c->nranks);
	if (head->state == TT_TRACE_FAILED)
		bench_json_text(j, "error", head->error);
	bench_json_real(j, "calls_per_s", rate.calls);
	bench_json_real(j, "bytes_per_s", rate.bytes);
	current(j, t, c);
	lateness(j, c);
	bench_json_close(j, '}');
}

void trace_top_json(const struct trace *t, FILE *to)
{
	struct bench_json j = { .to = to };

	bench_json_open(&j, NULL, '[');
	for (int i = 0; i < t->ncomms; i++)
		if (trace_head(&t->comms[i])->state != TT_TRACE_ENDED)
			comm_json(&j, t, &t->comms[i]);
	bench_json_close(&j, ']');
	fputc('\n', to);
}

/* ---- PyTorch's fields ------------------------------------------------------------------------ */

static void sizes(struct bench_json *j, const char *key, uint64_t count)
{
	bench_json_open(j, key, '[');
	bench_json_open(j, NULL, '[');
	bench_json_int(j, NULL, (long long)count);
	bench_json_close(j, ']');
	bench_json_close(j, ']');
}

static void types(struct bench_json *j, const char *key, unsigned type)
{
	bench_json_open(j, key, '[');
	bench_json_text(j, NULL, tt_datatype_name(type));
	bench_json_close(j, ']');
}

static const char *call_name(unsigned collective)
{
	return collective < TT_COLLECTIVES ? tt_collective_name((enum tt_collective)collective)
					   : "unknown";
}

static void entry(struct bench_json *j, const struct trace_rank *r, const struct trace_call *c)
{
	char name[64];

	snprintf(name, sizeof(name), "tutti:%s", call_name(c->call.collective));
	bench_json_open(j, NULL, '{');
	bench_json_int(j, "record_id", (long long)c->number - 1);
	bench_json_int(j, "collective_seq_id", (long long)c->seq);
	bench_json_int(j, "p2p_seq_id", 0);
	bench_json_bool(j, "is_p2p", false);
	bench_json_text(j, "profiling_name", name);
	bench_json_text(j, "state", c->end ? "completed" : "started");
	bench_json_int(j, "time_created_ns", (long long)c->start);
	bench_json_int(j, "time_discovered_started_ns", (long long)c->start);
	if (c->end)
		bench_json_int(j, "time_discovered_completed_ns", (long long)c->end);
	else
		bench_json_null(j, "time_discovered_completed_ns");
	if (c->end)
		bench_json_real(j, "duration_ms", (double)(c->end - c->start) / 1e6);
	sizes(j, "input_sizes", c->call.count);
	types(j, "input_dtypes", c->call.type);
	bench_json_bool(j, "retired", c->end || c->failed);
	bench_json_int(j, "tutti_bytes", (long long)c->bytes);
	bench_json_text(j, "tutti_way", r->head.way[c->way]);
	bench_json_int(j, "tutti_awaited", c->awaited);
	bench_json_close(j, '}');
}

static void rank_json(struct bench_json *j, const struct trace_rank *r)
{
	char text[32];

	snprintf(text, sizeof(text), "%016" PRIx64, r->head.comm);
	bench_json_open(j, NULL, '{');
	bench_json_text(j, "pg_id", text);
	bench_json_text(j, "pg_name", r->head.name);
	bench_json_int(j, "rank", r->head.rank);
	bench_json_int(j, "world_size", r->head.nranks);
	bench_json_text(j, "host", r->head.host);
	bench_json_int(j, "pid", r->head.pid);
	if (r->head.error[0])
		bench_json_text(j, "error", r->head.error);
	bench_json_open(j, "entries", '[');
	for (size_t k = 0; k < r->ncalls; k++)
		entry(j, r, &r->calls[k]);
	bench_json_close(j, ']');
	bench_json_close(j, '}');
}

void trace_dump_json(const struct trace *t, FILE *to)
{
	struct bench_json j = { .to = to };

	bench_json_open(&j, NULL, '[');
	for (int i = 0; i < t->nranks; i++)
		rank_json(&j, &t->ranks[i]);
	bench_json_close(&j, ']');
	fputc('\n', to);
}
