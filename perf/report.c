/*
 * report.c - what rank 0 prints: nccl-tests' lines and columns, ours behind them, and the same as JSON
 *
 * Called by crew.c, sweep.c and main.c at rank 0 only. Columns are theirs to the letter, so that scripts which read
 * all_reduce_perf read this.
 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "mem/reduce.h"
#include "perf/bench.h"

extern char **environ;

struct report_sum {
	double bus;                      /* of all measured cells */
	int cells, wrong;                /* cells; those with a wrong value */
};

struct tt_report {
	const struct tt_line *line;
	const struct tt_crew *crew;
	const char *tool;
	struct tt_json json;
	char *text;                      /* of the JSON file, so far */
	size_t bytes;
	struct report_sum sum;
	bool progress;                   /* stderr is a terminal */
	int rows;
};

const char *tt_fit(char *text, int width, double value)
{
	for (int digits = 2; digits >= 0; digits--)
		if (snprintf(text, (size_t)width + 1, "%*.*f", width, digits, value) <= width)
			return text;
	snprintf(text, (size_t)width + 1, width >= 7 ? "%*.1e" : "%*.0e", width, value);
	return text;
}

static void now_text(char *text, size_t bytes)
{
	time_t now = time(NULL);
	struct tm parts;

	strftime(text, bytes, "%Y-%m-%d %H:%M:%S", localtime_r(&now, &parts));
}

/* ---- the JSON file's head ----------------------------------------------------------------------------------------- */

static void json_config(struct tt_json *j, const struct tt_line *line)
{
	static const char *const buffers[] = { "rotate", "same", "cold" }, *const places[] = { "both", "out", "in" };
	static const char *const transports[] = { "auto", "shm", "tcp", "self" };

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
	tt_json_int(j, "graph", 0);
	tt_json_int(j, "blocking_collectives", line->blocking);
	tt_json_int(j, "per_iter_timing", line->per_iter);
	tt_json_int(j, "per_iter_skip", line->per_iter_skip);
	tt_json_int(j, "parallel_init", line->parallel_init);
	tt_json_int(j, "unalign", line->unalign);
	tt_json_int(j, "average", line->average);
	tt_json_int(j, "stream_null", line->null_stream);
	tt_json_int(j, "local_register", line->reg);
	tt_json_text(j, "transport", transports[line->transport]);
	tt_json_text(j, "algo", line->algo ? line->algo : "auto");
	tt_json_text(j, "buffers", buffers[line->buffers]);
	tt_json_text(j, "place", places[line->place]);
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
		tt_json_int(j, "device", -1);
		tt_json_text(j, "device_hex", "host memory");
		tt_json_text(j, "device_info", c->cards[r].cpu);
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

static void json_head(struct tt_report *r, int library)
{
	struct tt_json *j = &r->json;
	char text[64];

	tt_json_open(j, NULL, '{');
	tt_json_int(j, "version", 3);
	now_text(text, sizeof(text));
	tt_json_text(j, "start_time", text);
	tt_json_open(j, "args", '[');
	for (int i = 0; i < r->line->argc; i++)
		tt_json_text(j, NULL, r->line->argv[i]);
	tt_json_close(j, ']');
	json_env(j);
	tt_json_int(j, "nccl_version", library);
	snprintf(text, sizeof(text), "%d.%d.%d", library / 10000, library / 100 % 100, library % 100);
	tt_json_text(j, "tutti_version", text);
	tt_json_text(j, "program", r->tool);
	tt_json_text(j, "clock", "CLOCK_MONOTONIC");
	tt_json_text(j, "instruction_set", tt_reduce_isa());
	tt_json_open(j, "config", '{');
	json_config(j, r->line);
	tt_json_int(j, "nranks", r->crew->nranks);
	json_devices(j, r->crew);
	tt_json_close(j, '}');
	tt_json_open(j, "results", '[');
}

/* ---- the head of the page ----------------------------------------------------------------------------------------- */

static void print_head(const struct tt_report *r, int library)
{
	static const char *const buffers[] = { "rotate", "same", "cold" }, *const places[] = { "both", "out", "in" };
	static const char *const transports[] = { "auto", "shm", "tcp", "self" };
	const struct tt_line *line = r->line;

	printf("# tutti version %d.%d.%d tutti-headers=%d tutti-library=%d\n", library / 10000, library / 100 % 100,
	       library % 100, TUTTI_VERSION_CODE, library);
	printf("# Collective test starting: %s\n", r->tool);
	printf("# nThread %d nGpus %d minBytes %lld maxBytes %lld step: %lld(%s) warmup iters: %d iters: %d agg iters: %d "
	       "validation: %d graph: %d unalign: %d\n", (int)line->threads, (int)line->ranks_each,
	       (long long)line->min_bytes, (long long)line->max_bytes,
	       line->step_factor > 1 ? (long long)line->step_factor : (long long)line->step_bytes,
	       line->step_factor > 1 ? "factor" : "bytes", (int)line->warmup, (int)line->iters, (int)line->aggregate,
	       (int)line->check, 0, (int)line->unalign);
	printf("# ranks: %d transport: %s algo: %s buffers: %s place: %s registered: %d stream: %s pinned: %d "
	       "instruction set: %s seed: %lld\n", r->crew->nranks, transports[line->transport],
	       line->algo ? line->algo : "auto", buffers[line->buffers], places[line->place], (int)line->reg,
	       line->null_stream ? "none" : "host", line->pin, tt_reduce_isa(), (long long)line->seed);
	if (line->blocking == 1)
		printf("# Blocking Enabled: wait and barrier after each inner iteration (-m) \n");
	if (line->blocking == 2)
		printf("# Blocking Enabled: wait after each inner iteration (-m), no barrier \n");
	if (line->blocking == 3)
		printf("# Blocking Enabled: wait and barrier after each outer iteration (-n); time excludes barrier \n");
	if (line->parallel_init)
		printf("# Parallel Init Enabled: threads join concurrently \n");
	printf("#\n# Using devices\n");
	for (int i = 0; i < r->crew->nranks; i++) {
		const struct tt_rank_card *card = &r->crew->cards[i];

		printf("#  Rank %2d Group %2d Pid %6d on %10s device %2d [host memory] %s\n", i, 0, (int)card->pid,
		       card->host, -1, card->cpu);
	}
	fflush(stdout);
}

struct tt_report *tt_report_open(const struct tt_crew *c)
{
	struct tt_report *r = calloc(1, sizeof(*r));
	int library = 0;

	if (r)
		r->json.to = open_memstream(&r->text, &r->bytes);
	if (!r || !r->json.to) {
		fprintf(stderr, "rank 0: no memory for the report\n");
		free(r);
		return NULL;
	}
	r->line = c->line;
	r->crew = c;
	r->tool = c->tool;
	r->progress = isatty(STDERR_FILENO);
	tuttiGetVersion(&library);
	json_head(r, library);
	print_head(r, library);
	return r;
}

void tt_report_note(struct tt_report *r, const char *name, const char *reason)
{
	(void)r;
	printf("# %s is left out: %s\n", name, reason);
}

/* ---- the table ---------------------------------------------------------------------------------------------------- */

/* Theirs, then ours; ts: the column of the timestamp, which is theirs. */
static void print_names(const struct tt_line *line, bool units)
{
	const char *time_name = units ? "(us)" : line->cpu_time ? "cputime" : "time";

	printf("# %10s  %12s  %8s  %6s  %6s", units ? "(B)" : "size", units ? "(elements)" : "count",
	       units ? "" : "type", units ? "" : "redop", units ? "" : "root");
	for (int place = 0; place < 2; place++) {
		printf("  %7s  %6s  %6s  %6s", time_name, units ? "(GB/s)" : "algbw", units ? "(GB/s)" : "busbw",
		       units ? "" : "#wrong");
		if (line->per_iter)
			printf("  %7s  %7s  %7s  %7s", units ? "(us)" : "i_min", units ? "(us)" : "i_max",
			       units ? "(us)" : "i_p99", units ? "(%)" : "i_cv%");
	}
	if (line->timestamps)
		printf(" %19s ", units ? "%Y-%m-%d %H:%M:%S" : "timestamp");
	printf(" ");
	for (int place = 0; place < 2; place++)
		printf(" %7s  %7s ", units ? "(us)" : place ? "in_p50" : "out_p50",
		       units ? "(us)" : place ? "in_p99" : "out_p99");
	printf(" %s\n", units ? "" : "algorithm");
}

void tt_report_table(struct tt_report *r)
{
	printf("#\n# %10s  %12s  %8s  %6s  %6s", "", "", "", "", "");
	if (r->line->per_iter)
		printf("              out-of-place (+ per-iteration)                                "
		       "in-place (+ per-iteration)\n");
	else
		printf("           out-of-place                       in-place          \n");
	print_names(r->line, false);
	print_names(r->line, true);
	fflush(stdout);
}

void tt_report_progress(struct tt_report *r, const struct tt_cell *cell, const char *algo)
{
	if (!r->progress)
		return;
	fprintf(stderr, "\r# row %d: %zu %s %s %s ...\033[K\r", r->rows + 1, cell->count, tt_type_name(cell->type),
		tt_values_op_name(cell->op), algo);
	fflush(stderr);
}

/* Least, most, p99 and variation of the iterations behind -K. */
struct spread {
	double least, most, p99, percent;
};

static int by_size(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static struct spread spread_of(const struct tt_line *line, const struct tt_figure *f)
{
	size_t skip = (size_t)line->per_iter_skip, n = (size_t)line->iters - skip;
	double *sorted = malloc(n * sizeof(*sorted)), mean = 0, square = 0;
	struct spread s = { 0, 0, 0, 0 };

	if (!sorted)
		return s;
	memcpy(sorted, f->iter_us + skip, n * sizeof(*sorted));
	qsort(sorted, n, sizeof(*sorted), by_size);
	for (size_t i = 0; i < n; i++)
		mean += sorted[i] / (double)n;
	for (size_t i = 0; i < n; i++)
		square += (sorted[i] - mean) * (sorted[i] - mean) / (double)n;
	s = (struct spread){ sorted[0], sorted[n - 1], tt_quantile(sorted, n, 0.99),
			     mean > 0 ? 100 * sqrt(square) / mean : 0 };
	free(sorted);
	return s;
}

static void print_figure(const struct tt_line *line, const struct tt_figure *f)
{
	char t[16], a[16], b[16], c[16];

	if (!f->measured) {
		printf("  %7s  %6s  %6s  %6s", "N/A", "N/A", "N/A", "N/A");
		if (line->per_iter)
			printf("  %7s  %7s  %7s  %7s", "N/A", "N/A", "N/A", "N/A");
		return;
	}
	printf("  %7s  %6s  %6s", tt_fit(t, 7, line->cpu_time ? f->cpu_us : f->time_us), tt_fit(a, 6, f->alg_gbps),
	       tt_fit(b, 6, f->bus_gbps));
	if (f->wrong >= 0)
		printf("  %6g", (double)f->wrong);
	else
		printf("  %6s", "N/A");
	if (line->per_iter) {
		struct spread s = spread_of(line, f);

		printf("  %7s  %7s  %7s  %7s", tt_fit(t, 7, s.least), tt_fit(a, 7, s.most), tt_fit(b, 7, s.p99),
		       tt_fit(c, 7, s.percent));
	}
}

static void print_quantiles(const struct tt_figure *f)
{
	char a[16], b[16];

	printf("  %7s  %7s", f->measured ? tt_fit(a, 7, f->p50_us) : "N/A", f->measured ? tt_fit(b, 7, f->p99_us) : "N/A");
}

static void json_figure(struct tt_report *r, const char *key, const struct tt_figure *f)
{
	struct tt_json *j = &r->json;

	if (!f->measured) {
		tt_json_null(j, key);
		return;
	}
	tt_json_open(j, key, '{');
	tt_json_real(j, r->line->cpu_time ? "cpu_time" : "time", r->line->cpu_time ? f->cpu_us : f->time_us);
	tt_json_real(j, "alg_bw", f->alg_gbps);
	tt_json_real(j, "bus_bw", f->bus_gbps);
	if (f->wrong >= 0)
		tt_json_int(j, "nwrong", f->wrong);
	else
		tt_json_null(j, "nwrong");
	tt_json_real(j, "p50", f->p50_us);
	tt_json_real(j, "p99", f->p99_us);
	tt_json_int(j, "sent_bytes_shm", (long long)f->shm_bytes);
	tt_json_int(j, "sent_bytes_tcp", (long long)f->tcp_bytes);
	if (f->iter_us) {
		tt_json_open(j, "times_us", '[');
		for (int64_t i = 0; i < r->line->iters; i++)
			tt_json_real(j, NULL, f->iter_us[i]);
		tt_json_close(j, ']');
	}
	tt_json_close(j, '}');
}

static void json_row(struct tt_report *r, const struct tt_row *row)
{
	struct tt_json *j = &r->json;
	const struct tt_cell *cell = row->cell;

	tt_json_open(j, NULL, '{');
	tt_json_int(j, "size", (long long)row->bytes);
	tt_json_int(j, "count", (long long)cell->count);
	tt_json_text(j, "type", tt_type_name(cell->type));
	tt_json_text(j, "redop", tt_values_op_name(cell->op));
	tt_json_int(j, "root", cell->root);
	json_figure(r, "out_of_place", &row->out);
	json_figure(r, "in_place", &row->in);
	tt_json_int(j, "actual_iterations", r->line->iters);
	tt_json_text(j, "experiment_name", "");
	tt_json_text(j, "algorithm", row->algorithm);
	tt_json_text(j, "plan", row->plan);
	tt_json_close(j, '}');
}

static void add(struct report_sum *sum, const struct tt_figure *f)
{
	if (!f->measured)
		return;
	sum->bus += f->bus_gbps;
	sum->cells++;
	sum->wrong += f->wrong > 0;
}

void tt_report_row(struct tt_report *r, const struct tt_row *row)
{
	const struct tt_cell *cell = row->cell;
	char text[32];

	if (r->progress)
		fprintf(stderr, "\r\033[K");
	printf("%12lli  %12lli  %8s  %6s  %6i", (long long)row->bytes, (long long)cell->count, tt_type_name(cell->type),
	       tt_values_op_name(cell->op), cell->root);
	print_figure(r->line, &row->out);
	print_figure(r->line, &row->in);
	now_text(text, sizeof(text));
	if (r->line->timestamps)
		printf("%21s", text);
	print_quantiles(&row->out);
	print_quantiles(&row->in);
	printf("  %s\n", row->algorithm);
	fflush(stdout);
	json_row(r, row);
	add(&r->sum, &row->out);
	add(&r->sum, &row->in);
	r->rows++;
}

/* ---- the foot ----------------------------------------------------------------------------------------------------- */

static void print_foot(const struct tt_report *r, const struct tt_totals *totals, double bus, const char *error)
{
	printf("# %-20s : %d %s\n", "Out of bounds values", r->sum.wrong, r->sum.wrong ? "FAILED" : "OK");
	printf("# %-20s : %g %s\n", "Avg bus bandwidth", bus, "");
	if (totals) {
		printf("# %-20s : %llu\n", "Bytes sent by shm", (unsigned long long)totals->shm_bytes);
		printf("# %-20s : %llu\n", "Bytes sent by tcp", (unsigned long long)totals->tcp_bytes);
	}
	if (totals && r->line->memory_report)
		printf("# %-20s : library %.1f MB | buffers %.1f MB | Total %.1f MB\n", "Memory of a rank",
		       (double)totals->library_bytes / 1e6, (double)totals->buffer_bytes / 1e6,
		       (double)(totals->library_bytes + totals->buffer_bytes) / 1e6);
	if (error)
		printf("# error: %s\n", error);
	printf("#\n# Collective test %s: %s\n#\n", error ? "ended early" : "concluded", r->tool);
	fflush(stdout);
}

static void json_foot(struct tt_report *r, const struct tt_totals *totals, double bus, const char *error)
{
	struct tt_json *j = &r->json;
	char text[32];

	tt_json_close(j, ']');
	tt_json_open(j, "out_of_bounds", '{');
	tt_json_int(j, "count", r->sum.wrong);
	tt_json_bool(j, "okay", r->sum.wrong == 0);
	tt_json_close(j, '}');
	tt_json_open(j, "average_bus_bandwidth", '{');
	tt_json_real(j, "bandwidth", bus);
	tt_json_text(j, "okay", "unchecked");
	tt_json_close(j, '}');
	if (totals) {
		tt_json_int(j, "sent_bytes_shm", (long long)totals->shm_bytes);
		tt_json_int(j, "sent_bytes_tcp", (long long)totals->tcp_bytes);
		tt_json_int(j, "library_memory_bytes", (long long)totals->library_bytes);
		tt_json_int(j, "buffer_memory_bytes", (long long)totals->buffer_bytes);
	}
	tt_json_open(j, "errors", '[');
	if (error)
		tt_json_text(j, NULL, error);
	tt_json_close(j, ']');
	now_text(text, sizeof(text));
	tt_json_text(j, "end_time", text);
	tt_json_close(j, '}');
	fputc('\n', j->to);
}

int tt_report_close(struct tt_report *r, const struct tt_totals *totals, const char *error)
{
	double bus = r->sum.cells ? r->sum.bus / r->sum.cells : 0;
	int rc = r->sum.wrong != 0;

	print_foot(r, totals, bus, error);
	json_foot(r, totals, bus, error);
	if (fclose(r->json.to) || (r->line->json && tt_write_file(r->line->json, r->text, r->bytes))) {
		fprintf(stderr, "%s: -J %s: %s\n", r->tool, r->line->json ? r->line->json : "", strerror(errno));
		rc = 1;
	}
	free(r->text);
	free(r);
	return rc;
}
