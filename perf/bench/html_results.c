/*
 * html_results.c - results of a benchmark as one HTML file: plots of time and bus bandwidth over
 * size, the table, and the conditions of the run
 *
 * Called by report.c at rank 0. The file has no script and refers to no other file.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "mem/reduce.h"
#include "perf/bench/bench.h"
#include "tools/fresh_file.h"
#include "tools/plural.h"
#include "tools/svg.h"

/* A measured figure: one row of the table, one point of a series in each plot */
struct html_figure {
	char series[160], algorithm[64];
	size_t bytes;
	double time_us;
	struct bench_figure figure;
};

struct bench_html {
	struct html_figure *figures;
	int n, room;
	bool no_memory;
};

struct bench_html *bench_html_open(void)
{
	return calloc(1, sizeof(struct bench_html));
}

void bench_html_free(struct bench_html *h)
{
	if (h)
		free(h->figures);
	free(h);
}

/* ---- rows ------------------------------------------------------------------------------------ */

static struct html_figure *append(struct bench_html *h)
{
	int room = h->room ? 2 * h->room : 64;
	struct html_figure *more;

	if (h->n == h->room) {
		more = realloc(h->figures, (size_t)room * sizeof(*more));
		if (!more) {
			h->no_memory = true;
			return NULL;
		}
		h->figures = more;
		h->room = room;
	}
	return &h->figures[h->n++];
}

static void add(struct bench_html *h, const struct bench_options *options,
		const struct bench_row *row, const struct bench_figure *f, const char *place)
{
	const struct bench_cell *cell = row->cell;
	bool all = options->algo && !strcmp(options->algo, "all"), combines = cell->bench->combines;
	struct html_figure *to = f->measured ? append(h) : NULL;
	char root[24] = "";

	if (!to)
		return;
	if (cell->root >= 0)
		snprintf(root, sizeof(root), ", root %d", cell->root);
	*to = (struct html_figure){ .bytes = row->bytes,
				    .time_us = options->cpu_time ? f->cpu_us : f->time_us,
				    .figure = *f };
	snprintf(to->algorithm, sizeof(to->algorithm), "%s", row->algorithm);
	snprintf(to->series, sizeof(to->series), "%s%s%s%s%s%s, %s", tt_type_name(cell->type),
		 combines ? " " : "", combines ? bench_values_op_name(cell->op) : "", root,
		 all ? ", " : "", all ? row->algorithm : "", place);
}

void bench_html_row(struct bench_html *h, const struct bench_options *options,
		    const struct bench_row *row)
{
	add(h, options, row, &row->out, "out of place");
	add(h, options, row, &row->in, "in place");
}

/* ---- plots ----------------------------------------------------------------------------------- */

static bool is_first(const struct bench_html *h, int i)
{
	for (int k = 0; k < i; k++)
		if (!strcmp(h->figures[k].series, h->figures[i].series))
			return false;
	return true;
}

/* The points of the series of figure `first`, at x and y */
static struct tool_series series_of(const struct bench_html *h, int first, bool bandwidth,
				    double *x, double *y)
{
	struct tool_series s = { h->figures[first].series, TOOL_MARK_LINE, 0, x, y };

	for (int i = first; i < h->n; i++) {
		const struct html_figure *f = &h->figures[i];

		if (strcmp(f->series, s.name) != 0)
			continue;
		x[s.npoints] = (double)f->bytes;
		y[s.npoints++] = bandwidth ? f->figure.bus_gbps : f->time_us;
	}
	return s;
}

/* The limits as dashed lines over the sizes of the figures, at x and y of [LIMITS * n]; returns how many. A time is
 * that of the bytes which each rank has to receive (busbw), where they take longer than a flag. */
enum { LIMITS = 3 };
static int limit_series(const struct bench_html *h, const struct bench_thread *t, bool bandwidth,
			struct tool_series *series, double *x, double *y, char names[LIMITS][64])
{
	const struct bench_limits *l = &t->limits;
	const double gbps[LIMITS] = { l->copy_gbps, l->wire_gbps, 0 };
	int used = 0;

	snprintf(names[0], sizeof(names[0]), "copy, %.3g GB/s", l->copy_gbps);
	snprintf(names[1], sizeof(names[1]), "wire, %.3g GB/s", l->wire_gbps);
	snprintf(names[2], sizeof(names[2]), "flag, %.3g us", l->flag_us);
	for (int k = 0; k < LIMITS; k++, x += h->n, y += h->n) {
		bool flag = k == LIMITS - 1;

		if (flag ? bandwidth || !l->flag_us : !gbps[k])
			continue;
		series[used++] = (struct tool_series){ names[k], TOOL_MARK_DASHED, h->n, x, y };
		for (int i = 0; i < h->n; i++) {
			double bytes = (double)h->figures[i].bytes *
				       t->bench->bus_factor(t->nranks);
			double us = flag ? l->flag_us : bytes / gbps[k] / 1e3;

			x[i] = (double)h->figures[i].bytes;
			y[i] = bandwidth ? gbps[k] : us < l->flag_us ? NAN : us;
		}
	}
	return used;
}

static bool write_plot(const struct bench_html *h, const struct bench_thread *t, bool bandwidth,
		       FILE *to)
{
	size_t n = (size_t)h->n * (1 + LIMITS);
	double *x = malloc(n * sizeof(*x)), *y = malloc(n * sizeof(*y));
	struct tool_series *series = malloc((n + LIMITS) * sizeof(*series));
	char limits[LIMITS][64];
	bool good = x && y && series;
	struct tool_plot plot = {
		.title = bandwidth ? "Bus bandwidth" : "Time of a call",
		.x = { "size (bytes)", TOOL_SCALE_BYTES },
		.y = { bandwidth ? "busbw (GB/s)" : "time (us)",
		       bandwidth ? TOOL_SCALE_LINEAR : TOOL_SCALE_LOG },
		.series = series,
	};
	int used = 0;

	for (int i = 0; good && i < h->n; i++) {
		if (!is_first(h, i))
			continue;
		series[plot.nseries] = series_of(h, i, bandwidth, x + used, y + used);
		used += series[plot.nseries++].npoints;
	}
	if (good) {
		plot.nseries += limit_series(h, t, bandwidth, series + plot.nseries, x + used,
					     y + used, limits);
		tool_plot_write(to, &plot);
	}
	free(x);
	free(y);
	free(series);
	return good;
}

/* ---- page ------------------------------------------------------------------------------------ */

static const char style[] =
	"body{font:15px/1.5 system-ui,sans-serif;margin:2em auto;max-width:70em;padding:0 1em;color:#222}"
	"table{border-collapse:collapse;font-variant-numeric:tabular-nums}"
	"th,td{padding:.15em .8em;border-bottom:1px solid #ddd;text-align:right}"
	"thead th{border-bottom:2px solid #888}td.t,th.t{text-align:left}"
	".wrong{color:#b00020;font-weight:bold}svg{max-width:100%;height:auto}";

static void fact(const char *name, const char *value, FILE *to)
{
	fprintf(to, "<tr><th class=\"t\">%s</th><td class=\"t\">", name);
	tool_svg_escape(to, value);
	fputs("</td></tr>\n", to);
}

static void write_command(const struct bench_options *options, FILE *to)
{
	fputs("<tr><th class=\"t\">command</th><td class=\"t\"><code>", to);
	for (int i = 0; i < options->argc; i++) {
		fputs(i ? " " : "", to);
		tool_svg_escape(to, options->argv[i]);
	}
	fputs("</code></td></tr>\n", to);
}

/* One line for the ranks of one host and processor */
static void write_ranks(const struct bench_thread *t, FILE *to)
{
	char text[256];

	for (int first = 0, i = 1; i <= t->nranks; i++) {
		const struct bench_rank_record *r = &t->records[first];

		if (i < t->nranks && !strcmp(t->records[i].host, r->host) && !t->gpus)
			continue;
		snprintf(text, sizeof(text), first == i - 1 ? "rank %d" : "ranks %d to %d", first,
			 i - 1);
		fprintf(to, "<tr><th class=\"t\">%s</th><td class=\"t\">", text);
		snprintf(text, sizeof(text), "%s, %s", r->host,
			 t->gpus ? t->gpus[first].name : r->cpu);
		tool_svg_escape(to, text);
		fputs("</td></tr>\n", to);
		first = i;
	}
}

static void write_facts(const struct bench_thread *t, const char *error, double bus, FILE *to)
{
	char text[64];
	double load[3];
	int library = 0;

	tuttiGetVersion(&library);
	fputs("<h2>Conditions</h2>\n<table>\n", to);
	write_command(t->options, to);
	snprintf(text, sizeof(text), "%d.%d.%d", library / 10000, library / 100 % 100,
		 library % 100);
	fact("Tutti", text, to);
	bench_now_text(text, sizeof(text));
	fact("end of the run", text, to);
	write_ranks(t, to);
	if (getloadavg(load, 3) == 3) {
		snprintf(text, sizeof(text), "%.2f (1 min), %.2f (5 min), ranks included", load[0],
			 load[1]);
		fact("load of rank 0's host", text, to);
	}
	snprintf(text, sizeof(text), "%g GB/s", bus);
	fact("mean busbw", text, to);
	if (error)
		fact("error", error, to);
	fputs("</table>\n", to);
}

static void write_limits(const struct bench_limits *l, FILE *to)
{
	char text[256];

	fputs("<h2>Limits of the machine, measured before the run</h2>\n<table>\n", to);
	snprintf(text, sizeof(text),
		 "%.3g GB/s: each rank copies %zu bytes of memory while all do so; the slowest",
		 l->copy_gbps, l->copy_bytes);
	fact("copy", l->copy_gbps ? text : "not measured", to);
	snprintf(text, sizeof(text), "%.3g us until another core sees a store", l->flag_us);
	fact("flag",
	     l->flag_us ? text : "not measured: it takes two threads or processes on rank 0's host",
	     to);
	snprintf(text, sizeof(text), "%.3g GB/s: plain bytes over one TCP connection, %s",
		 l->wire_gbps, l->wire);
	fact("wire",
	     l->wire_gbps ? text : "not measured: no connection from rank 0 to another process",
	     to);
	fputs("</table>\n", to);
}

static void write_row(const struct html_figure *f, FILE *to)
{
	fprintf(to, "<tr><td>%zu</td><td class=\"t\">", f->bytes);
	tool_svg_escape(to, f->series);
	fputs("</td><td class=\"t\">", to);
	tool_svg_escape(to, f->algorithm);
	fprintf(to, "</td><td>%.2f</td><td>%.2f</td><td>%.2f</td><td>%.3f</td><td>%.3f</td><td%s>",
		f->time_us, f->figure.p50_us, f->figure.p99_us, f->figure.alg_gbps,
		f->figure.bus_gbps, f->figure.wrong > 0 ? " class=\"wrong\"" : "");
	if (f->figure.wrong >= 0)
		fprintf(to, "%lld", (long long)f->figure.wrong);
	else
		fputs("not checked", to);
	fputs("</td></tr>\n", to);
}

static void write_table(const struct bench_html *h, FILE *to)
{
	fputs("<h2>Results</h2>\n<table>\n<thead><tr><th>size (bytes)</th><th class=\"t\">call</th>"
	      "<th class=\"t\">algorithm</th><th>time (us)</th><th>p50 (us)</th><th>p99 (us)</th>"
	      "<th>algbw (GB/s)</th><th>busbw (GB/s)</th><th>wrong</th></tr></thead>\n",
	      to);
	for (int i = 0; i < h->n; i++)
		write_row(&h->figures[i], to);
	fputs("</table>\n", to);
}

static bool write_page(const struct bench_html *h, const struct bench_thread *t, const char *error,
		       double bus, FILE *to)
{
	bool good = !h->no_memory;

	fputs("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
	      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>",
	      to);
	tool_svg_escape(to, t->tool);
	fprintf(to, ", %d rank%s</title>\n<style>%s</style>\n</head>\n<body>\n<h1>", t->nranks,
		tool_s(t->nranks), style);
	tool_svg_escape(to, t->tool);
	fprintf(to, ", %d rank%s</h1>\n", t->nranks, tool_s(t->nranks));
	write_facts(t, error, bus, to);
	if (!t->gpus)
		write_limits(&t->limits, to);
	if (h->n) {
		fputs("<h2>Plots</h2>\n", to);
		good = write_plot(h, t, false, to) && good;
		good = write_plot(h, t, true, to) && good;
		write_table(h, to);
	} else {
		fputs("<p>The run has no results.</p>\n", to);
	}
	fputs("</body>\n</html>\n", to);
	return good;
}

int bench_html_write(const struct bench_html *h, const struct bench_thread *t, const char *path,
		     const char *error, double bus)
{
	char *text = NULL;
	size_t bytes;
	FILE *to = open_memstream(&text, &bytes);
	bool good = to && write_page(h, t, error, bus, to);

	if (to)
		good = !fclose(to) && good;
	if (!good)
		fprintf(stderr, "%s: --report %s: no memory for the report\n", t->tool, path);
	if (good && tool_file_write(path, text, bytes)) {
		fprintf(stderr, "%s: --report %s: %m\n", t->tool, path);
		good = false;
	}
	free(text);
	return good ? 0 : 1;
}
