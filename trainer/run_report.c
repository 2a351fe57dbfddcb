/* run_report.c - a training as one page of HTML (run_report.h) */
#include "trainer/run_report.h"

#include "tools/fresh_file.h"
#include "tools/plural.h"
#include "tools/svg.h"
#include "trainer/rank/pipeline_state.h"
#include "trainer/strategy/strategy.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LEFT = 150, WIDE = 700, ROW = 24, CELL = 110 };

static const double STRAGGLER = 1.5; /* times the median of the ranks' computing */

/* ---- records ------------------------------------------------------------------------------------ */

int train_run_report_open(const struct train_rank *t, struct train_run_report **ret_report)
{
	*ret_report = NULL;
	if (!t->config->report)
		return TRAIN_OK;
	*ret_report = calloc(1, sizeof(**ret_report));
	return *ret_report ? TRAIN_OK
			   : train_fail(TRAIN_FAILED, "--report %s: no memory for its values",
					t->config->report);
}

static void halve(struct train_curve *c)
{
	for (int i = 0; i < c->n / 2; i++) {
		c->step[i] = c->step[2 * i];
		c->value[i] = c->value[2 * i];
	}
	c->n /= 2;
	c->every *= 2;
}

static void add_point(struct train_curve *c, uint64_t step, double value)
{
	c->every = c->every ? c->every : 1;
	if (c->seen++ % c->every)
		return;
	if (c->n == TRAIN_REPORT_POINTS)
		halve(c);
	c->step[c->n] = (double)step;
	c->value[c->n++] = value;
}

void train_run_report_add(struct train_run_report *r, const struct train_step_record *record)
{
	if (!r)
		return;
	if (record->step_ms > 0) {
		add_point(&r->loss, record->step, record->loss);
		add_point(&r->step_ms, record->step, record->step_ms);
	}
	if (record->evaluated) {
		add_point(&r->test_loss, record->step, record->test_loss);
		add_point(&r->accuracy, record->step, record->accuracy);
	}
}

/* ---- the ranks ---------------------------------------------------------------------------------- */

/* Of one rank, as bytes of an allgather. */
struct report_rank {
	double compute_s, exposed_s;
	int32_t world_rank, replica, stage, tensor_rank;
	char host[64];
};

/* All ranks of the training: without a mesh the workers. Returns an array that the caller frees; NULL: an error. */
static struct report_rank *gather_ranks(struct train_rank *t, int *ret_n)
{
	tuttiComm_t comm = t->config->mesh ? t->world : t->comm;
	struct report_rank own = {
		.compute_s = (double)t->computed_ns / 1e9,
		.exposed_s = (double)t->exposed_ns / 1e9,
		.world_rank = t->world_rank,
		.replica = t->rank,
		.stage = t->mesh.stage,
		.tensor_rank = t->mesh.tensor_rank,
	};
	struct report_rank *all;

	gethostname(own.host, sizeof(own.host) - 1);
	if (train_check(tuttiCommCount(comm, ret_n), comm))
		return NULL;
	all = calloc((size_t)*ret_n, sizeof(*all));
	if (all &&
	    !train_check(tuttiAllGather(&own, all, sizeof(own), tuttiUint8, comm, NULL), comm))
		return all;
	if (!all)
		train_fail(TRAIN_FAILED, "--report: no memory for %d ranks", *ret_n);
	free(all);
	return NULL;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double median_compute(const struct report_rank *rank, int n)
{
	double *s = malloc((size_t)n * sizeof(*s)), median = 0;

	for (int i = 0; s && i < n; i++)
		s[i] = rank[i].compute_s;
	if (s && n) {
		qsort(s, (size_t)n, sizeof(*s), by_value);
		median = s[n / 2];
	}
	free(s);
	return median;
}

static void write_stragglers(FILE *to, const struct report_rank *rank, int n)
{
	double median = median_compute(rank, n);
	int found = 0;

	fprintf(to, "<p id='stragglers'>");
	for (int i = 0; i < n; i++)
		if (median > 0 && rank[i].compute_s > STRAGGLER * median) {
			fprintf(to, "Rank %d on ", rank[i].world_rank);
			tool_svg_escape(to, rank[i].host);
			fprintf(to, " computes %.2f times as long as the median rank. ",
				rank[i].compute_s / median);
			found++;
		}
	if (!found && n)
		fprintf(to,
			"No straggler: no rank computes more than %.1f times as long as the "
			"median rank.",
			STRAGGLER);
	fprintf(to, "</p>\n");
}

/* ---- pictures ----------------------------------------------------------------------------------- */

static void write_plot(FILE *to, const char *title, const char *label, const struct tool_series *s,
		       int n)
{
	const struct tool_plot plot = {
		title, { "step", TOOL_SCALE_LINEAR }, { label, TOOL_SCALE_LINEAR }, n, s
	};

	tool_plot_write(to, &plot);
}

static struct tool_series series_of(const char *name, const struct train_curve *c)
{
	return (struct tool_series){ name, TOOL_MARK_LINE, c->n, c->step, c->value };
}

static double draw_part(FILE *to, double x, double y, double s, double all_s, int color,
			const char *what)
{
	double width = all_s > 0 && s > 0 ? s / all_s * WIDE : 0;

	fprintf(to,
		"<rect x='%.1f' y='%.1f' width='%.1f' height='%d' fill='%s'><title>%s: %.3f "
		"s</title></rect>\n",
		x, y, width, ROW - 6, tool_svg_color(color), what, s);
	return x + width;
}

/* A bar for each rank: computing, exposed communication, other parts of steps. */
static void draw_times(FILE *to, const struct report_rank *rank, int n, double training_s)
{
	static const char *const names[] = { "computing", "exposed communication",
					     "other parts of steps" };
	double most = training_s;

	for (int i = 0; i < n; i++) /* asynchronous ranks take other times than rank 0 */
		if (rank[i].compute_s + rank[i].exposed_s > most)
			most = rank[i].compute_s + rank[i].exposed_s;
	tool_svg_open(to, LEFT + WIDE + 20, ROW * (n + 1) + 30);
	for (int i = 0; i < n; i++) {
		double y = 10 + ROW * i, x = LEFT;
		double other = training_s - rank[i].compute_s - rank[i].exposed_s;

		tool_svg_text(to, 8, y + ROW - 12, "font-size='12' fill='#222'", "rank %d",
			      rank[i].world_rank);
		x = draw_part(to, x, y, rank[i].compute_s, most, 0, names[0]);
		x = draw_part(to, x, y, rank[i].exposed_s, most, 1, names[1]);
		draw_part(to, x, y, other, most, 2, names[2]);
	}
	for (int i = 0; i < 3; i++) {
		double x = LEFT + 220 * i, y = 24 + ROW * n;

		fprintf(to, "<rect x='%.1f' y='%.1f' width='12' height='12' fill='%s'/>\n", x, y,
			tool_svg_color(i));
		tool_svg_text(to, x + 18, y + 11, "font-size='12' fill='#222'", "%s", names[i]);
	}
	tool_svg_close(to);
}

/* A column for each stage, a row for each replica and tensor rank. */
static void draw_mesh(FILE *to, const struct train_rank *t, const struct report_rank *rank, int n)
{
	const struct train_mesh *m = &t->mesh;

	tool_svg_open(to, LEFT + CELL * m->stages + 10, 40 + ROW * m->data * m->tensor);
	for (int stage = 0; stage < m->stages; stage++)
		tool_svg_text(to, LEFT + CELL * stage, 20, "font-size='12' fill='#222'", "stage %d",
			      stage);
	for (int i = 0; i < n; i++) {
		double x = LEFT + CELL * rank[i].stage;
		double y = 30 + ROW * (rank[i].replica * m->tensor + rank[i].tensor_rank);

		if (rank[i].stage == 0)
			tool_svg_text(to, 8, y + 16, "font-size='12' fill='#222'",
				      "replica %d, tensor %d", rank[i].replica,
				      rank[i].tensor_rank);
		fprintf(to, "<rect x='%.1f' y='%.1f' width='%d' height='%d' fill='%s'><title>", x,
			y, CELL - 4, ROW - 4, tool_svg_color(rank[i].replica));
		tool_svg_escape(to, rank[i].host);
		fprintf(to, "</title></rect>\n");
		tool_svg_text(to, x + 8, y + 15, "font-size='12' fill='white'", "rank %d",
			      rank[i].world_rank);
	}
	tool_svg_close(to);
}

/* The schedule with forward, backward of inputs and of weights of equal times. */
static void draw_schedule(FILE *to, const struct train_schedule *s)
{
	const struct train_costs costs = { 1, 1, 1, 0 };
	struct train_schedule_times times = { 0 };

	if (!train_schedule_simulate(s, &costs, &times))
		train_schedule_draw_svg(to, s, &times);
	train_schedule_times_free(&times);
}

/* ---- the page ----------------------------------------------------------------------------------- */

static void row_of(FILE *to, const char *name, const char *format, double value)
{
	fprintf(to, "<tr><td>%s</td><td class='n'>", name);
	fprintf(to, format, value);
	fprintf(to, "</td></tr>\n");
}

/* Figures that have no value yet are left out. */
static void write_settings(FILE *to, const struct train_rank *t, const struct train_result *r,
			   bool evaluated)
{
	fprintf(to, "<table>\n<tr><td>model</td><td>");
	tool_svg_escape(to, t->config->model);
	fprintf(to, ", %zu parameters on %s</td></tr>\n<tr><td>data</td><td>",
		t->model.whole_parameters, t->device.ops->name);
	tool_svg_escape(to, t->data->name);
	fprintf(to,
		", %zu samples</td></tr>\n<tr><td>strategy</td><td>%s on %d rank%s, %d server%s</td></tr>\n",
		t->data->train.samples, t->strategy->name, t->nranks, tool_s(t->nranks), t->servers,
		tool_s(t->servers));
	if (r->hash) /* the training has ended */
		fprintf(to, "<tr><td>hash</td><td>%016" PRIx64 "</td></tr>\n", r->hash);
	row_of(to, "steps", "%.0f", (double)r->steps);
	if (evaluated) {
		row_of(to, "accuracy on the test set", "%.4f", r->accuracy);
		row_of(to, "loss on the test set", "%.6f", r->loss);
	}
	if (r->step_ms > 0) {
		row_of(to, "samples a second", "%.0f", r->samples_per_s);
		row_of(to, "ms a step", "%.3f", r->step_ms);
	}
	fprintf(to, "</table>\n");
}

static void write_curves(FILE *to, const struct train_run_report *r)
{
	const struct tool_series losses[] = { series_of("batch", &r->loss),
					      series_of("test set", &r->test_loss) };
	const struct tool_series accuracy = series_of("test set", &r->accuracy);
	const struct tool_series step = series_of("rank 0", &r->step_ms);

	write_plot(to, "Loss", "loss", losses, 2);
	write_plot(to, "Accuracy", "share", &accuracy, 1);
	write_plot(to, "Time of a step", "ms", &step, 1);
}

static void write_page(FILE *to, const struct train_rank *t, const struct train_run_report *r,
		       const struct train_result *result, const struct report_rank *rank, int n)
{
	double steps = (double)(result->steps - t->first_step);

	fprintf(to,
		"<!DOCTYPE html>\n<html lang='en'><head><meta charset='utf-8'><title>tutti-train: ");
	tool_svg_escape(to, t->config->model);
	fprintf(to,
		"</title><style>body{font-family:sans-serif;max-width:900px;margin:2em auto}"
		"td{padding:2px 12px 2px 0}.n{text-align:right}svg{max-width:100%%}</style></head>\n"
		"<body><h1>tutti-train</h1>\n");
	write_settings(to, t, result, r->test_loss.n > 0);
	write_curves(to, r);
	fprintf(to, "<h2>Time</h2>\n<table id='phases'>\n");
	row_of(to, "steps", "%.3f s", (double)r->training_ns / 1e9);
	row_of(to, "... of rank 0: computing", "%.3f s", (double)t->computed_ns / 1e9);
	row_of(to, "... exposed communication", "%.3f s", (double)t->exposed_ns / 1e9);
	row_of(to, "evaluations", "%.3f s", (double)r->evaluate_ns / 1e9);
	row_of(to, "checkpoints", "%.3f s", (double)r->save_ns / 1e9);
	fprintf(to, "</table>\n");
	draw_times(to, rank, n, (double)r->training_ns / 1e9);
	write_stragglers(to, rank, n);
	fprintf(to, "<h2>Bytes of rank 0</h2>\n<table id='bytes'>\n");
	row_of(to, "sent", "%.0f", (double)result->sent_bytes);
	row_of(to, "sent in a step", "%.0f", steps > 0 ? (double)result->sent_bytes / steps : 0);
	row_of(to, "read from other ranks' memory", "%.0f", (double)result->read_bytes);
	row_of(to, "parameters, gradients and optimizer", "%.0f", (double)t->bytes);
	fprintf(to, "</table>\n");
	if (t->pipeline) {
		fprintf(to, "<h2>Mesh</h2>\n");
		draw_mesh(to, t, rank, n);
		fprintf(to, "<h2>Schedule</h2>\n");
		draw_schedule(to, &t->pipeline->schedule);
	}
	fprintf(to, "</body></html>\n");
}

/* Returns 0 | -1 with errno. */
static int write_file(const struct train_rank *t, const struct train_run_report *r,
		      const struct train_result *result, const struct report_rank *rank, int n)
{
	char *text = NULL;
	size_t bytes = 0;
	FILE *to = open_memstream(&text, &bytes);
	bool good = to != NULL;
	int rc;

	if (to) {
		write_page(to, t, r, result, rank, n);
		good = !ferror(to);
		good = !fclose(to) && good;
	}
	if (!good)
		errno = ENOMEM;
	rc = good ? tool_file_write(t->config->report, text, bytes) : -1;
	free(text);
	return rc;
}

/* Rank 0. A pipe, a terminal or a device gets the last page only. */
static void write_to_path(const struct train_rank *t, struct train_run_report *r,
			  const struct train_result *result, const struct report_rank *rank, int n,
			  bool last)
{
	const char *path = t->config->report;
	struct stat st;

	if (!last && !stat(path, &st) && !S_ISREG(st.st_mode))
		return;
	r->error = write_file(t, r, result, rank, n) ? errno : 0;
	if (r->error && !last && !r->said) {
		fprintf(stderr,
			"tutti-train: --report %s: cannot be written: %s; the training goes on\n",
			path, strerror(r->error));
		r->said = true;
	}
}

void train_run_report_begin(const struct train_rank *t, struct train_run_report *r)
{
	const struct train_result none = { .steps = t->first_step };

	write_to_path(t, r, &none, NULL, 0, false);
}

int train_run_report_write(struct train_rank *t, struct train_run_report *r,
			   const struct train_result *result, bool last)
{
	struct report_rank *rank;
	int n;

	rank = gather_ranks(t, &n);
	if (!rank)
		return TRAIN_FAILED;
	if (train_is_lead(t))
		write_to_path(t, r, result, rank, n, last);
	free(rank);
	return TRAIN_OK;
}

int train_run_report_close(struct train_run_report *r, const struct train_config *config, int rc,
			   bool end)
{
	int error = r && end ? r->error : 0;
	char before[TRAIN_ERROR_BYTES];

	free(r);
	if (!error)
		return rc;
	snprintf(before, sizeof(before), "%s; ", train_error());
	return train_fail(TRAIN_FAILED, "%s--report %s: cannot be written: %s", rc ? before : "",
			  config->report, strerror(error));
}
