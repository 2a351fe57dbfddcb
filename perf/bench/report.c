/*
 * report.c - output of rank 0: lines and columns of nccl-tests, followed by own columns
 *
 * Called by bench_thread.c, sweep.c and bench_main.c at rank 0 only; json_results.c writes the same
 * results as JSON. The columns of nccl-tests are reproduced exactly, so that scripts for
 * all_reduce_perf can parse this output.
 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "mem/reduce.h"
#include "perf/bench/bench.h"
#include "tools/output.h"
#include "tools/plural.h"

struct report_sum {
	double bus;       /* sum of busbw over measured cells */
	int cells, wrong; /* measured cells; cells with a wrong value */
};

struct bench_report {
	const struct bench_options *options;
	const struct bench_thread *thread;
	const char *tool;
	struct bench_json json;
	struct bench_results_file json_file, csv_file;
	struct bench_html *html; /* NULL: no --report */
	struct report_sum sum;
	bool progress; /* stderr is a terminal */
	int rows;
};

static double mean_bus(const struct bench_report *r)
{
	return r->sum.cells ? r->sum.bus / r->sum.cells : 0;
}

const char *bench_fit(char *text, int width, double value)
{
	for (int digits = 2; digits >= 0; digits--)
		if (snprintf(text, (size_t)width + 1, "%*.*f", width, digits, value) <= width)
			return text;
	snprintf(text, (size_t)width + 1, width >= 7 ? "%*.1e" : "%*.0e", width, value);
	return text;
}

/* ---- the head of the page -------------------------------------------------------------------- */

static void print_head(const struct bench_report *r, int library)
{
	const struct bench_options *options = r->options;
	char split[32];

	printf("# tutti version %d.%d.%d tutti-headers=%d tutti-library=%d\n", library / 10000,
	       library / 100 % 100, library % 100, TUTTI_VERSION_CODE, library);
	printf("# Collective test starting: %s\n", r->tool);
	printf("# nThread %d nGpus %d minBytes %lld maxBytes %lld step: %lld(%s) warmup iters: %d iters: %d agg iters: %d "
	       "validation: %d graph: %d unalign: %d\n",
	       (int)options->threads, (int)options->ranks_each, (long long)options->min_bytes,
	       (long long)options->max_bytes,
	       options->step_factor > 1 ? (long long)options->step_factor
					: (long long)options->step_bytes,
	       options->step_factor > 1 ? "factor" : "bytes", (int)options->warmup,
	       (int)options->iters, (int)options->aggregate, (int)options->check,
	       (int)options->graph, (int)options->unalign);
	printf("# ranks: %d transport: %s algo: %s buffers: %s place: %s registered: %d stream: %s pinned: %d "
	       "instruction set: %s seed: %lld\n",
	       r->thread->nranks, bench_options_setting(options->transport, "TUTTI_TRANSPORT"),
	       bench_options_setting(options->algo, "TUTTI_ALGO"),
	       bench_buffers_names[options->buffers], bench_place_names[options->place],
	       (int)options->reg,
	       options->null_stream ? "none"
	       : options->cuda      ? "CUDA"
				    : "host",
	       options->pin, tt_reduce_isa(), (long long)options->seed);
	if (options->split.how)
		printf("# groups: %s of the process's number; the figures are of group %d, %d rank%s\n",
		       bench_split_text(&options->split, split, sizeof(split)), r->thread->group,
		       r->thread->nranks, tool_s(r->thread->nranks));
	if (r->thread->nranks == 1)
		printf("# one rank: nothing moves between ranks; --np 4 starts four, or a launcher (tutti_launch(7))\n");
	if (options->blocking == 1)
		printf("# Blocking Enabled: wait and barrier after each inner iteration (-m) \n");
	if (options->blocking == 2)
		printf("# Blocking Enabled: wait after each inner iteration (-m), no barrier \n");
	if (options->blocking == 3)
		printf("# Blocking Enabled: wait and barrier after each outer iteration (-n); time excludes barrier \n");
	if (options->parallel_init)
		printf("# Parallel Init Enabled: threads join concurrently \n");
}

/* Prints how GPU figures are timed, and the copy bandwidth to compare them with. */
static void print_gpu_reference(const struct bench_report *r)
{
	const struct bench_thread *t = r->thread;

	printf("# device memory, timed by the host's clock from the first call to the end of the stream%s\n",
	       r->options->graph ? ", calls captured before, graph replayed" : "");
	printf("# copies of %.1f MB within device %d: %.1f GB/s read + written\n",
	       (double)t->copy_bytes / 1e6, t->gpus[0].ordinal, t->copy_gbps);
	if (t->one_gpu)
		printf("# all ranks share the GPU: mem is the least memory traffic (read + write) of all ranks per second; "
		       "/copy is mem divided by the copy bandwidth\n");
}

static void print_devices(const struct bench_report *r)
{
	if (r->options->cuda)
		print_gpu_reference(r);
	printf("#\n# Using devices\n");
	for (int i = 0; i < r->thread->nranks; i++) {
		const struct bench_rank_record *record = &r->thread->records[i];
		const struct bench_gpu_record *gpu = r->thread->gpus ? &r->thread->gpus[i] : NULL;

		if (gpu) {
			printf("#  Rank %2d Group %2d Pid %6d on %10s device %2d [%s] %s\n", i,
			       r->thread->group, (int)record->pid, record->host, gpu->ordinal,
			       gpu->pci, gpu->name);
			continue;
		}
		printf("#  Rank %2d Group %2d Pid %6d on %10s device %2d [host memory] %s\n", i,
		       r->thread->group, (int)record->pid, record->host, -1, record->cpu);
	}
	fflush(stdout);
}

/* ---- files ----------------------------------------------------------------------------------- */

static void open_files(struct bench_report *r)
{
	r->json_file = (struct bench_results_file){ r->tool, "-J", r->options->json, .fd = -1 };
	r->csv_file = (struct bench_results_file){ r->tool, "-F", r->options->csv, .fd = -1 };
	if (r->options->json)
		bench_results_file_open(&r->json_file);
	if (r->options->csv)
		bench_results_file_open(&r->csv_file);
}

/* The end of the JSON text. NULL: no memory; caller frees */
static char *json_foot(const struct bench_report *r, const struct bench_totals *totals,
		       const char *error)
{
	struct bench_json foot = r->json;
	char *text = NULL;
	size_t bytes;

	foot.to = open_memstream(&text, &bytes);
	if (!foot.to)
		return NULL;
	bench_results_foot(&foot, r->options, totals, mean_bus(r), r->sum.wrong, error);
	fclose(foot.to);
	return text;
}

/* row NULL: the head */
static void write_json(struct bench_report *r, const struct bench_row *row)
{
	char *text = NULL, *foot;
	size_t bytes;

	r->json.to = r->options->json ? open_memstream(&text, &bytes) : NULL;
	if (!r->json.to)
		return;
	if (row)
		bench_results_row(&r->json, r->options, row);
	else
		bench_results_head(&r->json, r->thread);
	fclose(r->json.to);
	foot = json_foot(r, NULL, "the run has not ended");
	bench_results_file_write(&r->json_file, text, foot ? foot : "");
	free(foot);
	free(text);
}

static void write_csv(struct bench_report *r, const struct bench_row *row)
{
	char *text = NULL;
	size_t bytes;
	FILE *to = r->options->csv ? open_memstream(&text, &bytes) : NULL;

	if (!to)
		return;
	if (!r->rows)
		fputs(bench_csv_names, to);
	bench_csv_row(to, r->options, row);
	fclose(to);
	bench_results_file_write(&r->csv_file, text, "");
	free(text);
}

/* Returns 0 | 1 */
static int close_files(struct bench_report *r, const struct bench_totals *totals, const char *error)
{
	char *foot = r->options->json ? json_foot(r, totals, error) : NULL;
	int rc = 0;

	if (r->options->json)
		rc |= bench_results_file_close(&r->json_file, foot ? foot : "");
	if (r->options->csv)
		rc |= bench_results_file_close(&r->csv_file, "");
	free(foot);
	return rc;
}

/* ---- head and rows --------------------------------------------------------------------------- */

struct bench_report *bench_report_open(const struct bench_thread *t)
{
	struct bench_report *r = calloc(1, sizeof(*r));
	int library = 0;

	if (r && t->options->html)
		r->html = bench_html_open();
	if (!r || (t->options->html && !r->html)) {
		fprintf(stderr, "rank 0: no memory for the report\n");
		free(r);
		return NULL;
	}
	r->options = t->options;
	r->thread = t;
	r->tool = t->tool;
	r->progress = isatty(STDERR_FILENO);
	tuttiGetVersion(&library);
	open_files(r);
	write_json(r, NULL);
	print_head(r, library);
	print_devices(r);
	return r;
}

void bench_report_note(const char *name, const char *reason)
{
	printf("# %s is not measured: %s\n", name, reason);
}

/* ---- the table ------------------------------------------------------------------------------- */

/* Prints one line: names or units of the columns of nccl-tests, then of the own columns. */
static void print_names(const struct bench_options *options, bool units)
{
	const char *time_name = units ? "(us)" : options->cpu_time ? "cputime" : "time";

	printf("# %10s  %12s  %8s  %6s  %6s", units ? "(B)" : "size",
	       units ? "(elements)" : "count", units ? "" : "type", units ? "" : "redop",
	       units ? "" : "root");
	for (int place = 0; place < 2; place++) {
		printf("  %7s  %6s  %6s  %6s", time_name, units ? "(GB/s)" : "algbw",
		       units ? "(GB/s)" : "busbw", units ? "" : "#wrong");
		if (options->per_iter)
			printf("  %7s  %7s  %7s  %7s", units ? "(us)" : "i_min",
			       units ? "(us)" : "i_max", units ? "(us)" : "i_p99",
			       units ? "(%)" : "i_cv%");
	}
	if (options->timestamps)
		printf(" %19s ", units ? "%Y-%m-%d %H:%M:%S" : "timestamp");
	printf(" ");
	for (int place = 0; place < 2; place++)
		printf(" %7s  %7s ",
		       units   ? "(us)"
		       : place ? "in_p50"
			       : "out_p50",
		       units   ? "(us)"
		       : place ? "in_p99"
			       : "out_p99");
	for (int place = 0; options->cuda && place < 2; place++)
		printf(" %8s  %8s  %8s ",
		       units   ? "(us)"
		       : place ? "in_call"
			       : "out_call",
		       units   ? "(GB/s)"
		       : place ? "in_mem"
			       : "out_mem",
		       units ? "" : "/copy");
	printf(" %s\n", units ? "" : "algorithm");
}

void bench_report_table(struct bench_report *r)
{
	printf("#\n# %10s  %12s  %8s  %6s  %6s", "", "", "", "", "");
	if (r->options->per_iter)
		printf("              out-of-place (+ per-iteration)                                "
		       "in-place (+ per-iteration)\n");
	else
		printf("           out-of-place                       in-place          \n");
	print_names(r->options, false);
	print_names(r->options, true);
	fflush(stdout);
}

void bench_report_progress(struct bench_report *r, const struct bench_cell *cell, const char *algo)
{
	if (!r->progress)
		return;
	fprintf(stderr, "\r# row %d: %zu %s %s %s ...\033[K\r", r->rows + 1, cell->count,
		tt_type_name(cell->type), bench_values_op_name(cell->op), algo);
	fflush(stderr);
}

/* Minimum, maximum, p99 and coefficient of variation of the iterations after the first -K. */
struct iteration_spread {
	double least, most, p99, percent;
};

static struct iteration_spread spread_of(const struct bench_options *options,
					 const struct bench_figure *f)
{
	size_t skip = (size_t)options->per_iter_skip, n = (size_t)options->iters - skip;
	double *sorted = malloc(n * sizeof(*sorted)), mean = 0, square = 0;
	struct iteration_spread s = { 0, 0, 0, 0 };

	if (!sorted)
		return s;
	memcpy(sorted, f->iter_us + skip, n * sizeof(*sorted));
	bench_sort(sorted, n);
	for (size_t i = 0; i < n; i++)
		mean += sorted[i] / (double)n;
	for (size_t i = 0; i < n; i++)
		square += (sorted[i] - mean) * (sorted[i] - mean) / (double)n;
	s = (struct iteration_spread){ sorted[0], sorted[n - 1], bench_quantile(sorted, n, 0.99),
				       mean > 0 ? 100 * sqrt(square) / mean : 0 };
	free(sorted);
	return s;
}

static void print_figure(const struct bench_options *options, const struct bench_figure *f)
{
	char t[16], a[16], b[16], c[16];

	if (!f->measured) {
		printf("  %7s  %6s  %6s  %6s", "N/A", "N/A", "N/A", "N/A");
		if (options->per_iter)
			printf("  %7s  %7s  %7s  %7s", "N/A", "N/A", "N/A", "N/A");
		return;
	}
	printf("  %7s  %6s  %6s", bench_fit(t, 7, options->cpu_time ? f->cpu_us : f->time_us),
	       bench_fit(a, 6, f->alg_gbps), bench_fit(b, 6, f->bus_gbps));
	if (f->wrong >= 0)
		printf("  %6g", (double)f->wrong);
	else
		printf("  %6s", "N/A");
	if (options->per_iter) {
		struct iteration_spread s = spread_of(options, f);

		printf("  %7s  %7s  %7s  %7s", bench_fit(t, 7, s.least), bench_fit(a, 7, s.most),
		       bench_fit(b, 7, s.p99), bench_fit(c, 7, s.percent));
	}
}

static void print_quantiles(const struct bench_figure *f)
{
	char a[16], b[16];

	printf("  %7s  %7s", f->measured ? bench_fit(a, 7, f->p50_us) : "N/A",
	       f->measured ? bench_fit(b, 7, f->p99_us) : "N/A");
}

/* Prints the GPU columns: time until the calls returned; memory traffic; its ratio to the copy
 * bandwidth. */
static void print_gpu(const struct bench_report *r, const struct bench_figure *f)
{
	char a[16], b[16], c[16];
	bool shared = f->measured && f->memory_gbps > 0;

	printf("  %8s  %8s  %8s", f->measured ? bench_fit(a, 8, f->cpu_us) : "N/A",
	       shared ? bench_fit(b, 8, f->memory_gbps) : "N/A",
	       shared && r->thread->copy_gbps > 0
		       ? bench_fit(c, 8, f->memory_gbps / r->thread->copy_gbps)
		       : "N/A");
}

static void add(struct report_sum *sum, const struct bench_figure *f)
{
	if (!f->measured)
		return;
	sum->bus += f->bus_gbps;
	sum->cells++;
	sum->wrong += f->wrong > 0;
}

void bench_report_row(struct bench_report *r, const struct bench_row *row)
{
	const struct bench_cell *cell = row->cell;
	char text[32];

	if (r->progress)
		fprintf(stderr, "\r\033[K");
	printf("%12lli  %12lli  %8s  %6s  %6i", (long long)row->bytes, (long long)cell->count,
	       tt_type_name(cell->type), bench_values_op_name(cell->op), cell->root);
	print_figure(r->options, &row->out);
	print_figure(r->options, &row->in);
	bench_now_text(text, sizeof(text));
	if (r->options->timestamps)
		printf("%21s", text);
	print_quantiles(&row->out);
	print_quantiles(&row->in);
	if (r->options->cuda) {
		print_gpu(r, &row->out);
		print_gpu(r, &row->in);
	}
	printf("  %s\n", row->algorithm);
	fflush(stdout);
	add(&r->sum, &row->out);
	add(&r->sum, &row->in);
	write_json(r, row);
	write_csv(r, row);
	if (r->html)
		bench_html_row(r->html, r->options, row);
	r->rows++;
}

/* ---- the foot -------------------------------------------------------------------------------- */

/* Below NCCL_TESTS_MIN_BW, less a tenth as in nccl-tests? */
static bool is_slow(const struct bench_report *r, double bus)
{
	return bus < 0.9 * r->options->min_bus_gbps;
}

static void print_foot(const struct bench_report *r, const struct bench_totals *totals, double bus,
		       const char *error)
{
	printf("# %-20s : %d %s\n", "Out of bounds values", r->sum.wrong,
	       r->sum.wrong ? "FAILED" : "OK");
	printf("# %-20s : %g %s\n", "Avg bus bandwidth", bus,
	       r->options->min_bus_gbps <= 0 ? ""
	       : is_slow(r, bus)             ? "FAILED"
					     : "OK");
	if (totals) {
		printf("# %-20s : %llu\n", "Bytes sent by shm",
		       (unsigned long long)totals->shm_bytes);
		printf("# %-20s : %llu\n", "Bytes sent by tcp",
		       (unsigned long long)totals->tcp_bytes);
		if (totals->verbs_bytes)
			printf("# %-20s : %llu\n", "Bytes sent by verbs",
			       (unsigned long long)totals->verbs_bytes);
	}
	if (totals && r->options->memory_report)
		printf("# %-20s : library %.1f MB | buffers %.1f MB | Total %.1f MB\n",
		       "Memory of a rank", (double)totals->library_bytes / 1e6,
		       (double)totals->buffer_bytes / 1e6,
		       (double)(totals->library_bytes + totals->buffer_bytes) / 1e6);
	if (error)
		printf("# error: %s\n", error);
	printf("#\n# Collective test %s: %s\n#\n", error ? "ended early" : "concluded", r->tool);
	fflush(stdout);
}

int bench_report_close(struct bench_report *r, const struct bench_totals *totals, const char *error)
{
	double bus = mean_bus(r);
	int rc = r->sum.wrong || (!error && is_slow(r, bus));

	print_foot(r, totals, bus, error);
	rc = tool_output_end(r->tool, rc);
	rc |= close_files(r, totals, error);
	if (r->html)
		rc |= bench_html_write(r->html, r->thread, r->options->html, error, bus);
	bench_html_free(r->html);
	free(r);
	return rc;
}
