/*
 * json_results.c - results of a benchmark as JSON: keys of nccl-tests (version 3), and own keys
 *
 * Called by report.c at rank 0; writes by json.c.
 */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "mem/reduce.h"
#include "perf/bench/bench.h"

extern char **environ;

void bench_now_text(char *text, size_t bytes)
{
	time_t now = time(NULL);
	struct tm parts;

	strftime(text, bytes, "%Y-%m-%d %H:%M:%S", localtime_r(&now, &parts));
}

static void json_config(struct bench_json *j, const struct bench_options *options)
{
	bench_json_int(j, "nthreads", options->threads);
	bench_json_int(j, "ngpus", options->ranks_each);
	bench_json_int(j, "minimum_bytes", (long long)options->min_bytes);
	bench_json_int(j, "maximum_bytes", (long long)options->max_bytes);
	if (options->step_factor > 1)
		bench_json_int(j, "step_factor", options->step_factor);
	else
		bench_json_int(j, "step_bytes", (long long)options->step_bytes);
	bench_json_int(j, "warmup_iters", options->warmup);
	bench_json_int(j, "iterations", options->iters);
	bench_json_int(j, "aggregated_iterations", options->aggregate);
	bench_json_int(j, "validation", options->check);
	bench_json_int(j, "graph", options->graph);
	bench_json_int(j, "blocking_collectives", options->blocking);
	bench_json_int(j, "per_iter_timing", options->per_iter);
	bench_json_int(j, "per_iter_skip", options->per_iter_skip);
	bench_json_int(j, "parallel_init", options->parallel_init);
	bench_json_int(j, "unalign", options->unalign);
	bench_json_int(j, "average", options->average);
	bench_json_int(j, "stream_null", options->null_stream);
	bench_json_int(j, "local_register", options->reg);
	bench_json_text(j, "transport",
			bench_options_setting(options->transport, "TUTTI_TRANSPORT"));
	bench_json_text(j, "algo", bench_options_setting(options->algo, "TUTTI_ALGO"));
	bench_json_text(j, "buffers", bench_buffers_names[options->buffers]);
	bench_json_text(j, "place", bench_place_names[options->place]);
	bench_json_text(j, "device", options->device);
	bench_json_bool(j, "pin", options->pin);
	bench_json_int(j, "seed", options->seed);
}

static void json_devices(struct bench_json *j, const struct bench_thread *t)
{
	bench_json_open(j, "devices", '[');
	for (int r = 0; r < t->nranks; r++) {
		bench_json_open(j, NULL, '{');
		bench_json_int(j, "rank", r);
		bench_json_int(j, "group", t->group);
		bench_json_int(j, "pid", t->records[r].pid);
		bench_json_text(j, "hostname", t->records[r].host);
		bench_json_int(j, "device", t->gpus ? t->gpus[r].ordinal : -1);
		bench_json_text(j, "device_hex", t->gpus ? t->gpus[r].pci : "host memory");
		bench_json_text(j, "device_info", t->gpus ? t->gpus[r].name : t->records[r].cpu);
		bench_json_close(j, '}');
	}
	bench_json_close(j, ']');
}

/* Writes the TUTTI_ variables, without TUTTI_SECRET. */
static void json_env(struct bench_json *j)
{
	bench_json_open(j, "env", '[');
	for (char **e = environ; *e; e++)
		if (!strncmp(*e, "TUTTI_", 6) && strncmp(*e, "TUTTI_SECRET=", 13))
			bench_json_text(j, NULL, *e);
	bench_json_close(j, ']');
}

void bench_results_head(struct bench_json *j, const struct bench_thread *t)
{
	char text[64];
	int library = 0;

	tuttiGetVersion(&library);
	bench_json_open(j, NULL, '{');
	bench_json_int(j, "version", 3);
	bench_now_text(text, sizeof(text));
	bench_json_text(j, "start_time", text);
	bench_json_open(j, "args", '[');
	for (int i = 0; i < t->options->argc; i++)
		bench_json_text(j, NULL, t->options->argv[i]);
	bench_json_close(j, ']');
	json_env(j);
	bench_json_int(j, "nccl_version", library);
	snprintf(text, sizeof(text), "%d.%d.%d", library / 10000, library / 100 % 100,
		 library % 100);
	bench_json_text(j, "tutti_version", text);
	bench_json_text(j, "program", t->tool);
	bench_json_text(j, "clock", "CLOCK_MONOTONIC");
	bench_json_text(j, "instruction_set", tt_reduce_isa());
	bench_json_open(j, "config", '{');
	json_config(j, t->options);
	bench_json_int(j, "nranks", t->nranks);
	json_devices(j, t);
	if (t->gpus) {
		bench_json_bool(j, "one_gpu", t->one_gpu);
		bench_json_real(j, "copy_bw", t->copy_gbps);
		bench_json_int(j, "copy_bytes", (long long)t->copy_bytes);
	}
	bench_json_close(j, '}');
	bench_json_open(j, "results", '[');
}

static void json_figure(struct bench_json *j, const struct bench_options *options, const char *key,
			const struct bench_figure *f)
{
	if (!f->measured) {
		bench_json_null(j, key);
		return;
	}
	bench_json_open(j, key, '{');
	bench_json_real(j, options->cpu_time ? "cpu_time" : "time",
			options->cpu_time ? f->cpu_us : f->time_us);
	bench_json_real(j, "alg_bw", f->alg_gbps);
	bench_json_real(j, "bus_bw", f->bus_gbps);
	if (f->wrong >= 0)
		bench_json_int(j, "nwrong", f->wrong);
	else
		bench_json_null(j, "nwrong");
	bench_json_real(j, "p50", f->p50_us);
	bench_json_real(j, "p99", f->p99_us);
	if (options->cuda)
		bench_json_real(j, "call_time", f->cpu_us);
	if (f->memory_gbps > 0)
		bench_json_real(j, "memory_bw", f->memory_gbps);
	bench_json_int(j, "sent_bytes_shm", (long long)f->shm_bytes);
	bench_json_int(j, "sent_bytes_tcp", (long long)f->tcp_bytes);
	bench_json_int(j, "sent_bytes_verbs", (long long)f->verbs_bytes);
	if (f->iter_us) {
		bench_json_open(j, "times_us", '[');
		for (int64_t i = 0; i < options->iters; i++)
			bench_json_real(j, NULL, f->iter_us[i]);
		bench_json_close(j, ']');
	}
	bench_json_close(j, '}');
}

void bench_results_row(struct bench_json *j, const struct bench_options *options,
		       const struct bench_row *row)
{
	const struct bench_cell *cell = row->cell;

	bench_json_open(j, NULL, '{');
	bench_json_int(j, "size", (long long)row->bytes);
	bench_json_int(j, "count", (long long)cell->count);
	bench_json_text(j, "type", tt_type_name(cell->type));
	bench_json_text(j, "redop", bench_values_op_name(cell->op));
	bench_json_int(j, "root", cell->root);
	json_figure(j, options, "out_of_place", &row->out);
	json_figure(j, options, "in_place", &row->in);
	bench_json_int(j, "actual_iterations", options->iters);
	bench_json_text(j, "experiment_name", "");
	bench_json_text(j, "algorithm", row->algorithm);
	bench_json_text(j, "plan", row->plan);
	bench_json_close(j, '}');
}

void bench_results_foot(struct bench_json *j, const struct bench_options *options,
			const struct bench_totals *totals, double bus, int wrong, const char *error)
{
	char text[32];

	bench_json_close(j, ']');
	bench_json_open(j, "out_of_bounds", '{');
	bench_json_int(j, "count", wrong);
	bench_json_bool(j, "okay", wrong == 0);
	bench_json_close(j, '}');
	bench_json_open(j, "average_bus_bandwidth", '{');
	bench_json_real(j, "bandwidth", bus);
	if (options->min_bus_gbps > 0)
		bench_json_bool(j, "okay", bus >= 0.9 * options->min_bus_gbps);
	else
		bench_json_text(j, "okay", "unchecked");
	bench_json_close(j, '}');
	if (totals) {
		bench_json_int(j, "sent_bytes_shm", (long long)totals->shm_bytes);
		bench_json_int(j, "sent_bytes_tcp", (long long)totals->tcp_bytes);
		bench_json_int(j, "sent_bytes_verbs", (long long)totals->verbs_bytes);
		bench_json_int(j, "library_memory_bytes", (long long)totals->library_bytes);
		bench_json_int(j, "buffer_memory_bytes", (long long)totals->buffer_bytes);
	}
	bench_json_open(j, "errors", '[');
	if (error)
		bench_json_text(j, NULL, error);
	bench_json_close(j, ']');
	bench_now_text(text, sizeof(text));
	bench_json_text(j, "end_time", text);
	bench_json_close(j, '}');
	fputc('\n', j->to);
}
