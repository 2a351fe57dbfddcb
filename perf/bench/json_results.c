/*
 * json_results.c - the benchmarks' results as JSON, with nccl-tests' keys (version 3) and ours
 *
 * Called by report.c at rank 0; writes through json.c.
 */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "mem/reduce.h"
#include "perf/bench/bench.h"

extern char **environ;

void tt_now_text(char *text, size_t bytes)
{
	time_t now = time(NULL);
	struct tm parts;

	strftime(text, bytes, "%Y-%m-%d %H:%M:%S", localtime_r(&now, &parts));
}

static void json_config(struct tt_json *j, const struct tt_line *line)
{
	tt_json_int(j, "nthreads", line->threads);
	tt_json_int(j, "ngpus", line->ranks_each);
	tt_json_int(j, "minimum_bytes", (long long)line->min_bytes);
	tt_json_int(j, "maximum_bytes", (long long)line->max_bytes);
	if (line->step_factor > 1)
		tt_json_int(j, "step_factor", line->step_factor);
	else
		tt_json_int(j, "step_bytes", (long long)line->step_bytes);
	tt_json_int(j, "warmup_iters", line->warmup);
	tt_json_int(j, "iterations", line->iters);
	tt_json_int(j, "aggregated_iterations", line->aggregate);
	tt_json_int(j, "validation", line->check);
	tt_json_int(j, "graph", line->graph);
	tt_json_int(j, "blocking_collectives", line->blocking);
	tt_json_int(j, "per_iter_timing", line->per_iter);
	tt_json_int(j, "per_iter_skip", line->per_iter_skip);
	tt_json_int(j, "parallel_init", line->parallel_init);
	tt_json_int(j, "unalign", line->unalign);
	tt_json_int(j, "average", line->average);
	tt_json_int(j, "stream_null", line->null_stream);
	tt_json_int(j, "local_register", line->reg);
	tt_json_text(j, "transport", tt_line_setting(line->transport, "TUTTI_TRANSPORT"));
	tt_json_text(j, "algo", tt_line_setting(line->algo, "TUTTI_ALGO"));
	tt_json_text(j, "buffers", tt_buffers_names[line->buffers]);
	tt_json_text(j, "place", tt_place_names[line->place]);
	tt_json_text(j, "device", line->device);
	tt_json_bool(j, "pin", line->pin);
	tt_json_int(j, "seed", line->seed);
}

static void json_devices(struct tt_json *j, const struct tt_crew *c)
{
	tt_json_open(j, "devices", '[');
	for (int r = 0; r < c->nranks; r++) {
		tt_json_open(j, NULL, '{');
		tt_json_int(j, "rank", r);
		tt_json_int(j, "group", 0);
		tt_json_int(j, "pid", c->cards[r].pid);
		tt_json_text(j, "hostname", c->cards[r].host);
		tt_json_int(j, "device", c->gpus ? c->gpus[r].ordinal : -1);
		tt_json_text(j, "device_hex", c->gpus ? c->gpus[r].pci : "host memory");
		tt_json_text(j, "device_info", c->gpus ? c->gpus[r].name : c->cards[r].cpu);
		tt_json_close(j, '}');
	}
	tt_json_close(j, ']');
}

/* Ours only, and not the secret. */
static void json_env(struct tt_json *j)
{
	tt_json_open(j, "env", '[');
	for (char **e = environ; *e; e++)
		if (!strncmp(*e, "TUTTI_", 6) && strncmp(*e, "TUTTI_SECRET=", 13))
			tt_json_text(j, NULL, *e);
	tt_json_close(j, ']');
}

void tt_results_head(struct tt_json *j, const struct tt_crew *c, int library)
{
	char text[64];

	tt_json_open(j, NULL, '{');
	tt_json_int(j, "version", 3);
	tt_now_text(text, sizeof(text));
	tt_json_text(j, "start_time", text);
	tt_json_open(j, "args", '[');
	for (int i = 0; i < c->line->argc; i++)
		tt_json_text(j, NULL, c->line->argv[i]);
	tt_json_close(j, ']');
	json_env(j);
	tt_json_int(j, "nccl_version", library);
	snprintf(text, sizeof(text), "%d.%d.%d", library / 10000, library / 100 % 100,
		 library % 100);
	tt_json_text(j, "tutti_version", text);
	tt_json_text(j, "program", c->tool);
	tt_json_text(j, "clock", "CLOCK_MONOTONIC");
	tt_json_text(j, "instruction_set", tt_reduce_isa());
	tt_json_open(j, "config", '{');
	json_config(j, c->line);
	tt_json_int(j, "nranks", c->nranks);
	json_devices(j, c);
	if (c->gpus) {
		tt_json_bool(j, "one_gpu", c->one_gpu);
		tt_json_real(j, "copy_bw", c->copy_gbps);
		tt_json_int(j, "copy_bytes", (long long)c->copy_bytes);
	}
	tt_json_close(j, '}');
	tt_json_open(j, "results", '[');
}

static void json_figure(struct tt_json *j, const struct tt_line *line, const char *key,
			const struct tt_figure *f)
{
	if (!f->measured) {
		tt_json_null(j, key);
		return;
	}
	tt_json_open(j, key, '{');
	tt_json_real(j, line->cpu_time ? "cpu_time" : "time",
		     line->cpu_time ? f->cpu_us : f->time_us);
	tt_json_real(j, "alg_bw", f->alg_gbps);
	tt_json_real(j, "bus_bw", f->bus_gbps);
	if (f->wrong >= 0)
		tt_json_int(j, "nwrong", f->wrong);
	else
		tt_json_null(j, "nwrong");
	tt_json_real(j, "p50", f->p50_us);
	tt_json_real(j, "p99", f->p99_us);
	if (line->cuda)
		tt_json_real(j, "call_time", f->cpu_us);
	if (f->memory_gbps > 0)
		tt_json_real(j, "memory_bw", f->memory_gbps);
	tt_json_int(j, "sent_bytes_shm", (long long)f->shm_bytes);
	tt_json_int(j, "sent_bytes_tcp", (long long)f->tcp_bytes);
	tt_json_int(j, "sent_bytes_verbs", (long long)f->verbs_bytes);
	if (f->iter_us) {
		tt_json_open(j, "times_us", '[');
		for (int64_t i = 0; i < line->iters; i++)
			tt_json_real(j, NULL, f->iter_us[i]);
		tt_json_close(j, ']');
	}
	tt_json_close(j, '}');
}

void tt_results_row(struct tt_json *j, const struct tt_line *line, const struct tt_row *row)
{
	const struct tt_cell *cell = row->cell;

	tt_json_open(j, NULL, '{');
	tt_json_int(j, "size", (long long)row->bytes);
	tt_json_int(j, "count", (long long)cell->count);
	tt_json_text(j, "type", tt_type_name(cell->type));
	tt_json_text(j, "redop", tt_values_op_name(cell->op));
	tt_json_int(j, "root", cell->root);
	json_figure(j, line, "out_of_place", &row->out);
	json_figure(j, line, "in_place", &row->in);
	tt_json_int(j, "actual_iterations", line->iters);
	tt_json_text(j, "experiment_name", "");
	tt_json_text(j, "algorithm", row->algorithm);
	tt_json_text(j, "plan", row->plan);
	tt_json_close(j, '}');
}

void tt_results_foot(struct tt_json *j, const struct tt_totals *totals, double bus, int wrong,
		     const char *error)
{
	char text[32];

	tt_json_close(j, ']');
	tt_json_open(j, "out_of_bounds", '{');
	tt_json_int(j, "count", wrong);
	tt_json_bool(j, "okay", wrong == 0);
	tt_json_close(j, '}');
	tt_json_open(j, "average_bus_bandwidth", '{');
	tt_json_real(j, "bandwidth", bus);
	tt_json_text(j, "okay", "unchecked");
	tt_json_close(j, '}');
	if (totals) {
		tt_json_int(j, "sent_bytes_shm", (long long)totals->shm_bytes);
		tt_json_int(j, "sent_bytes_tcp", (long long)totals->tcp_bytes);
		tt_json_int(j, "sent_bytes_verbs", (long long)totals->verbs_bytes);
		tt_json_int(j, "library_memory_bytes", (long long)totals->library_bytes);
		tt_json_int(j, "buffer_memory_bytes", (long long)totals->buffer_bytes);
	}
	tt_json_open(j, "errors", '[');
	if (error)
		tt_json_text(j, NULL, error);
	tt_json_close(j, ']');
	tt_now_text(text, sizeof(text));
	tt_json_text(j, "end_time", text);
	tt_json_close(j, '}');
	fputc('\n', j->to);
}
