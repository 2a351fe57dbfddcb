/*
 * simulate_svg.c - `tutti simulate --svg`: a plot of predicted time over size, a line for each
 * algorithm
 *
 * Called by cmd_simulate.c. Calls the simulator and tools/plot.c.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "algorithms/algorithms.h"
#include "perf/bench/bench.h"
#include "perf/commands/simulate_svg.h"
#include "tools/fresh_file.h"
#include "tools/svg.h"

#define SIZES 48 /* powers of 2, from SIMULATE_SVG_LEAST */

struct curve {
	char name[64];
	double bytes[SIZES], us[SIZES];
	int n;
};

/* Sets the curve's points: SIMULATE_SVG_LEAST, ... , most_bytes. 0 | the simulator's error */
static int simulate_curve(const struct simulate_svg *s, const struct tt_algorithm *row,
			  const char *name, struct curve *curve)
{
	struct tt_sim_result result;
	const char *argument = "";
	struct tt_sim *sim;
	int rc = tt_sim_open(&s->world, row, name, s->root, s->watch, &sim);

	if (rc)
		return rc;
	tt_algorithm_argument(row, name, &argument);
	tt_algorithm_full_name(row, argument, curve->name);
	for (uint64_t bytes = SIMULATE_SVG_LEAST; !rc && bytes <= s->most_bytes && curve->n < SIZES;
	     bytes *= 2) {
		rc = tt_sim_run(sim, tool_hypothetical_bound(s->collective, s->nranks, bytes),
				s->most_tiles, &result);
		if (rc)
			break;
		curve->bytes[curve->n] = (double)bytes;
		curve->us[curve->n++] = (double)result.time_ps / 1e6;
	}
	tt_sim_close(sim);
	return rc;
}

static int simulate_curves(const struct simulate_svg *s, struct curve *curves, int *ret_n)
{
	int n = 0, rc;

	if (strcmp(s->algo, "all") != 0) {
		*ret_n = 1;
		return simulate_curve(s,
				      tt_algorithm_look((enum tt_collective)s->collective, s->algo),
				      s->algo, curves);
	}
	for (int i = 0; tt_algorithms[i]; i++) {
		if (tt_algorithms[i]->collective != (enum tt_collective)s->collective)
			continue;
		rc = simulate_curve(s, tt_algorithms[i], tt_algorithms[i]->name, &curves[n]);
		n += !rc;
		if (rc && rc != TT_ARG && rc != TT_SIM_TOO_LARGE)
			return rc;
	}
	*ret_n = n;
	return 0;
}

/* Returns 0 | 1: error printed */
static int write_plot(const struct simulate_svg *s, const struct curve *curves, int n)
{
	struct tool_series *series = calloc((size_t)n + 1, sizeof(*series));
	char title[160], *text = NULL;
	size_t bytes;
	FILE *to = series ? open_memstream(&text, &bytes) : NULL;
	struct tool_plot plot = { .title = title,
				  .x = { "size (bytes)", TOOL_SCALE_BYTES },
				  .y = { "predicted time (us)", TOOL_SCALE_LOG },
				  .nseries = n,
				  .series = series };
	bool good = to != NULL;

	snprintf(title, sizeof(title), "%s, ranks: %d, hosts: %d, simulated",
		 tt_collective_name((enum tt_collective)s->collective), s->nranks, s->nhosts);
	for (int i = 0; series && i < n; i++)
		series[i] = (struct tool_series){ curves[i].name, TOOL_MARK_LINE, curves[i].n,
						  curves[i].bytes, curves[i].us };
	if (good) {
		tool_plot_write(to, &plot);
		good = !fclose(to);
	}
	free(series);
	errno = good ? 0 : ENOMEM;
	good = good && !tool_file_write(s->path, text, bytes);
	if (!good)
		fprintf(stderr, "tutti simulate: --svg %s: %m\n", s->path);
	free(text);
	return good ? 0 : 1;
}

int tool_simulate_svg(const struct simulate_svg *s, int *ret_failed)
{
	struct curve *curves;
	int rows = 1, n = 0, rc;

	while (tt_algorithms[rows - 1])
		rows++;
	curves = calloc((size_t)rows, sizeof(*curves));
	*ret_failed = 0;
	if (!curves)
		return tt_fail(TT_SYSTEM, "no memory for the plot");
	rc = simulate_curves(s, curves, &n);
	if (!rc)
		*ret_failed = write_plot(s, curves, n);
	free(curves);
	return rc;
}
