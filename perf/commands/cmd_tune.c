/*
 * cmd_tune.c - `tutti tune`: measure this host, fit the cost model, write the tuning table
 *
 * Called by the table in tutti_main.c. Calls tune_measure.c and tune_fit.c (tune.h).
 */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "algorithms/algorithms.h"
#include "base/base.h"
#include "perf/bench/bench.h"
#include "perf/commands/cmd.h"
#include "tools/fresh_file.h"
#include "tools/host.h"
#include "tools/options.h"
#include "perf/commands/topology.h"
#include "perf/commands/tune.h"
#include "tools/plural.h"

enum { MOST_RUNS = 16 };

struct tune_options {
	const char *np, *transport, *output, *costs;
	uint64_t min_bytes, max_bytes;
	int64_t factor, repeats;
	bool check, print, no_factors;
};

static const struct tool_option options[] = {
	{ 'n', "np", TOOL_OPT_TEXT, "N", offsetof(struct tune_options, np), NULL, 0, 0, NULL, NULL,
	  "number of local ranks, or several numbers: 2,4,8; default: join the\nranks of the launcher" },
	{ 0, "transport", TOOL_OPT_TEXT, "NAME", offsetof(struct tune_options, transport), "auto",
	  0, 0, NULL, NULL, "auto, shm, tcp, verbs, or several: shm,tcp" },
	{ 'o', "output", TOOL_OPT_TEXT, "FILE", offsetof(struct tune_options, output), NULL, 0, 0,
	  NULL, NULL, "write the table to FILE, for TUTTI_TUNING and --costs" },
	{ 'b', "minbytes", TOOL_OPT_SIZE, "BYTES", offsetof(struct tune_options, min_bytes), "8", 4,
	  1u << 30, NULL, NULL, "smallest message" },
	{ 'e', "maxbytes", TOOL_OPT_SIZE, "BYTES", offsetof(struct tune_options, max_bytes), "16M",
	  4, 1u << 30, NULL, NULL, "largest message" },
	{ 'f', "stepfactor", TOOL_OPT_INT, "F", offsetof(struct tune_options, factor), "8", 2, 1024,
	  NULL, NULL, "factor between one size and the next" },
	{ 0, "repeats", TOOL_OPT_INT, "R", offsetof(struct tune_options, repeats), "7", 1,
	  TOOL_TUNE_REPEATS, NULL, NULL, "batches in each half of the measurement" },
	{ 0, "costs", TOOL_OPT_TEXT, "FILE", offsetof(struct tune_options, costs), NULL, 0, 0, NULL,
	  NULL, "start from this cost table instead of the built-in table" },
	{ 0, "check", TOOL_OPT_FLAG, NULL, offsetof(struct tune_options, check), NULL, 0, 0, NULL,
	  NULL, "fit nothing: compare the present costs with the measurement" },
	{ 0, "no-factors", TOOL_OPT_FLAG, NULL, offsetof(struct tune_options, no_factors), NULL, 0,
	  0, NULL, NULL, "fit the constants only" },
	{ 0, "print", TOOL_OPT_FLAG, NULL, offsetof(struct tune_options, print), NULL, 0, 0, NULL,
	  NULL, "measure nothing: print the present costs" },
	{ 0, NULL, 0, NULL, 0, NULL, 0, 0, NULL, NULL, NULL },
};

static const struct tool_usage usage = {
	.tool = "tutti tune",
	.help = "Measures every allreduce algorithm, fits the constants of the cost model that chooses\n"
		"algorithms, and writes them. Prints the noise of the measurement, with a warning on a busy\n"
		"machine, predicted and measured times, the sizes at which the choice changes, the loss of\n"
		"the choice against the best algorithm, and the choices that the new table changes.\n"
		"  tutti tune --np 2,4 --transport shm,tcp -o here.tuning      then TUTTI_TUNING=here.tuning\n"
		"  tutti tune --np 4 --check                                   check the present table",
	.options = options,
};

/* ---- the command line ------------------------------------------------------------------------ */

static int set_sizes(const struct tune_options *v, struct tool_tune_run *run)
{
	if (v->max_bytes < v->min_bytes)
		return tool_refuse(usage.tool,
				   "--minbytes %llu is larger than --maxbytes %llu; give both",
				   (unsigned long long)v->min_bytes,
				   (unsigned long long)v->max_bytes);
	for (uint64_t b = v->min_bytes / 4 * 4; b <= v->max_bytes && run->nsizes < TOOL_TUNE_SIZES;
	     b *= (uint64_t)v->factor)
		run->bytes[run->nsizes++] = b;
	run->repeats = (int)v->repeats;
	return 0;
}

/* Lists one run per transport and number of ranks. names: comma-separated transports, split in
 * place. Returns 0 | 2: error printed. */
static int list_runs(const struct tune_options *v, char *names, struct tool_tune *t)
{
	char *rest = names, *name;

	while ((name = strsep(&rest, ","))) {
		const char *at = v->np;

		if (strcmp(name, "auto") && strcmp(name, "shm") && strcmp(name, "tcp") &&
		    strcmp(name, "verbs"))
			return tool_refuse(
				usage.tool,
				"--transport %s: use auto, shm, tcp, verbs, or several separated by commas",
				name);
		do {
			struct tool_tune_run *run = &t->runs[t->nruns];
			int n = at ? tool_parse_number(&at, 2, 1024) : 0;

			if (n < 0 || (at && *at && *at != ','))
				return tool_refuse(
					usage.tool,
					"--np %s: use a number of ranks from 2 to 1024, or several separated "
					"by commas",
					v->np);
			if (t->nruns++ == MOST_RUNS)
				return tool_refuse(
					usage.tool,
					"--np, --transport: more than %d runs; write several tables, or use "
					"fewer values",
					MOST_RUNS);
			*run = (struct tool_tune_run){ .np = n, .transport = name, .nhosts = 1 };
			if (set_sizes(v, run))
				return 2;
			at = at && *at ? at + 1 : NULL;
		} while (at);
	}
	return 0;
}

/* ---- output ---------------------------------------------------------------------------------- */

/* Prints every prediction, then median and 90 % quantile of the errors: both are robust against
 * single measurements on a busy host. */
static void print_prediction(const struct tool_tune *t, const struct tt_cost *cost)
{
	double *off = calloc((size_t)t->nsamples + 1, sizeof(*off));

	printf("# predicted by the model (without factors) and measured, us\n");
	printf("# %-5s %2s %10s  %-26s %12s %12s %8s\n", "link", "n", "bytes", "algorithm",
	       "predicted", "measured", "error");
	for (int i = 0; i < t->nsamples; i++) {
		const struct tool_tune_sample *s = &t->samples[i];
		double us = tool_tune_model_us(t, s, cost);

		if (off)
			off[i] = fabs(log((us > 0 ? us : 1e-3) / s->half_us[0]));
		printf("  %-5s %2d %10llu  %-26s %12.2f %12.2f %+7.0f%%\n",
		       tt_link_class_name[tool_tune_class(&t->runs[s->run])], t->runs[s->run].np,
		       (unsigned long long)s->bytes, tt_algorithms[s->algorithm]->name, us,
		       s->half_us[0], 100 * (us / s->half_us[0] - 1));
	}
	if (off && t->nsamples) {
		bench_sort(off, (size_t)t->nsamples);
		printf("# half of the predictions are within a factor of %.2f, 90 %% within %.2f\n",
		       exp(off[t->nsamples / 2]), exp(off[t->nsamples * 9 / 10]));
	}
	free(off);
}

const struct tool_tune_sample *tool_tune_find(const struct tool_tune *t, int run, uint64_t bytes,
					      const struct tt_algorithm *a)
{
	for (int i = 0; i < t->nsamples; i++)
		if (t->samples[i].run == run && t->samples[i].bytes == bytes &&
		    tt_algorithms[t->samples[i].algorithm] == a)
			return &t->samples[i];
	return NULL;
}

/* Returns the algorithm that is best in the first half of the batches; the caller compares times of
 * the second half, which is free of selection bias. */
static const struct tool_tune_sample *best_of(const struct tool_tune *t, int run, uint64_t bytes)
{
	const struct tool_tune_sample *best = NULL;

	for (int i = 0; i < t->nsamples; i++)
		if (t->samples[i].run == run && t->samples[i].bytes == bytes &&
		    (!best || t->samples[i].half_us[0] < best->half_us[0]))
			best = &t->samples[i];
	return best;
}

static void print_choices(const struct tool_tune *t, const struct tt_cost *cost)
{
	double all = 0;
	int nall = 0;

	printf("\n# auto's algorithm and the best fixed algorithm (selected in one half of the batches, compared in the other), us\n");
	printf("# %-5s %2s %10s  %-26s %12s  %-26s %12s %7s\n", "link", "n", "bytes", "auto", "",
	       "best", "", "ratio");
	for (int r = 0; r < t->nruns; r++) {
		const struct tt_algorithm *before = NULL;
		double sum = 0;
		int n = 0;

		for (int i = 0; i < t->runs[r].nsizes; i++) {
			uint64_t bytes = t->runs[r].bytes[i];
			const struct tt_algorithm *a = tool_tune_choice(t, r, bytes, cost);
			const struct tool_tune_sample *mine = a ? tool_tune_find(t, r, bytes, a)
								: NULL,
						      *best = best_of(t, r, bytes);

			if (!mine || !best)
				continue;
			sum += log(mine->half_us[1] / best->half_us[1]);
			n++;
			printf("  %-5s %2d %10llu  %-26s %12.2f  %-26s %12.2f %7.3f%s\n",
			       tt_link_class_name[tool_tune_class(&t->runs[r])], t->runs[r].np,
			       (unsigned long long)bytes, a->name, mine->half_us[1],
			       tt_algorithms[best->algorithm]->name, best->half_us[1],
			       mine->half_us[1] / best->half_us[1],
			       before && before != a ? "  changes here" : "");
			before = a;
		}
		if (n)
			printf("# %s, %d rank%s: auto / best %.3f (geometric mean)\n",
			       tt_link_class_name[tool_tune_class(&t->runs[r])], t->runs[r].np,
			       tool_s(t->runs[r].np), exp(sum / n));
		all += sum;
		nall += n;
	}
	if (nall)
		printf("# all: auto / best %.3f (geometric mean)\n", exp(all / nall));
}

static int write_table(const struct tune_options *v, const struct tool_tune *t,
		       const struct tt_cost *cost)
{
	char *text = NULL, cpu[128], now[64];
	size_t bytes;
	FILE *f = open_memstream(&text, &bytes);
	int rc;

	if (!f)
		return tool_refuse(usage.tool, "no memory for the table") - 1;
	tool_host_cpu(cpu, sizeof(cpu));
	bench_now_text(now, sizeof(now));
	fprintf(f,
		"# Cost table, for TUTTI_TUNING and `tutti simulate --costs`. Written by tutti tune %d.%d.%d.\n"
		"# machine: %s, %d cores; date: %s\n# measured: allreduce of float32 over %s, ranks %s, %llu to %llu bytes\n",
		TUTTI_VERSION_CODE / 10000, TUTTI_VERSION_CODE / 100 % 100,
		TUTTI_VERSION_CODE % 100, cpu, t->cores, now, v->transport,
		v->np ? v->np : "as launched", (unsigned long long)v->min_bytes,
		(unsigned long long)v->max_bytes);
	tt_cost_print(cost, f);
	fclose(f);
	rc = tool_file_write(v->output, text, bytes);
	if (rc)
		fprintf(stderr, "tutti tune: %s: %s\n", v->output, strerror(errno));
	free(text);
	return rc ? 1 : 0;
}

/* ---- run all --------------------------------------------------------------------------------- */

static int fit(const struct tune_options *v, const struct tool_tune *t, struct tt_cost *cost)
{
	tool_tune_core(cost);
	return tool_tune_fit(t, cost, isatty(STDERR_FILENO)) ||
	       (!v->no_factors && tool_tune_factors(t, cost));
}

static int conclude(const struct tune_options *v, const struct tool_tune *t, struct tt_cost *cost)
{
	struct tt_cost *before = NULL;

	tool_tune_print_noise(t);
	if (!v->check && (tt_cost_copy(cost, &before) || fit(v, t, cost))) {
		tt_cost_free(before);
		return 1;
	}
	print_prediction(t, cost);
	print_choices(t, cost);
	if (before)
		tool_tune_print_changes(t, before, cost);
	tt_cost_free(before);
	return v->output && !v->check ? write_table(v, t, cost) : 0;
}

static int measure_all(const struct tune_options *v, struct tool_tune *t, struct tt_cost *cost)
{
	struct tool_host_topology here;
	bool reports = true;
	int rc = 0;

	tool_host_topology(&here);
	t->cores = here.allowed;
	for (int r = 0; r < t->nruns && !rc; r++) {
		if (isatty(STDERR_FILENO))
			fprintf(stderr, "measuring: %s, %d rank%s\n", t->runs[r].transport,
				t->runs[r].np, tool_s(t->runs[r].np));
		rc = tool_tune_measure(t, r, &reports);
	}
	return rc || !reports ? rc : conclude(v, t, cost);
}

int tool_cmd_tune(int argc, char **argv)
{
	struct tool_tune_run runs[MOST_RUNS + 1] = { 0 };
	struct tool_tune t = { .runs = runs };
	struct tt_cost *cost = NULL;
	struct tune_options v;
	char *names;
	int rc = tool_options_read(&usage, argc, argv, &v);

	if (rc)
		return rc == 1 ? 0 : rc;
	if (v.output && (v.print || v.check))
		return tool_refuse(usage.tool,
				   "%s writes no table to -o %s; use one of the two options only",
				   v.print ? "--print" : "--check", v.output);
	if (v.output && tool_file_check(usage.tool, "-o", v.output))
		return 2;
	rc = v.costs ? tt_cost_read(v.costs, &cost) : tt_cost_copy(&tt_cost_builtin, &cost);
	if (rc) {
		tool_refuse(usage.tool, "%s", tt_error_text());
		return rc == TT_ARG ? 2 : 1;
	}
	names = strdup(v.transport);
	if (v.print)
		tt_cost_print(cost, stdout);
	else
		rc = names ? list_runs(&v, names, &t) : 1;
	if (!rc && !v.print)
		rc = measure_all(&v, &t, cost);
	free(names);
	free(t.samples);
	tt_cost_free(cost);
	return rc;
}
