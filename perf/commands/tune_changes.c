/*
 * tune_changes.c - the noise of a measurement of `tutti tune`, and the choices that the new table changes
 *
 * Called by cmd_tune.c. Every call is measured in two halves, whose batches alternate: on an idle machine both
 * have the same time.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "algorithms/algorithms.h"
#include "perf/bench/bench.h"
#include "perf/commands/tune.h"

#define BUSY 1.25 /* the halves of 10 % of the calls differ by more */

double tool_tune_noise(const struct tool_tune *t, double quantile)
{
	double *off = calloc((size_t)t->nsamples + 1, sizeof(*off)), factor = NAN;

	for (int i = 0; off && i < t->nsamples; i++)
		off[i] = fabs(log(t->samples[i].half_us[1] / t->samples[i].half_us[0]));
	if (off && t->nsamples) {
		bench_sort(off, (size_t)t->nsamples);
		factor = exp(bench_quantile(off, (size_t)t->nsamples, quantile));
	}
	free(off);
	return factor;
}

void tool_tune_print_noise(const struct tool_tune *t)
{
	double most = tool_tune_noise(t, 0.9);

	if (isnan(most))
		return;
	printf("# noise: two measurements of a call differ by a factor of %.2f (half of the calls), %.2f (90 %%)\n",
	       tool_tune_noise(t, 0.5), most);
	fflush(stdout);
	if (most > BUSY)
		fprintf(stderr,
			"tutti tune: two measurements of 10 %% of the calls differ by a factor above %.2f: "
			"this machine is busy; repeat on an idle one, or with more --repeats\n",
			BUSY);
}

static void print_us(const char *name, const struct tool_tune_sample *s)
{
	printf("  %-26s", name);
	if (s)
		printf(" %12.2f", s->half_us[1]);
	else
		printf(" %12s", "-");
}

void tool_tune_print_changes(const struct tool_tune *t, const struct tt_cost *before,
			     const struct tt_cost *after)
{
	int changes = 0;

	for (int r = 0; r < t->nruns; r++)
		for (int i = 0; i < t->runs[r].nsizes; i++) {
			uint64_t bytes = t->runs[r].bytes[i];
			const struct tt_algorithm *a = tool_tune_choice(t, r, bytes, before),
						  *b = tool_tune_choice(t, r, bytes, after);

			if (!a || !b || a == b)
				continue;
			if (!changes++)
				printf("\n# choices that this table changes, and their measured times, us\n"
				       "# %-5s %2s %10s  %-26s %12s  %-26s %12s\n",
				       "link", "n", "bytes", "before", "", "after", "");
			printf("  %-5s %2d %10llu",
			       tt_link_class_name[tool_tune_class(&t->runs[r])], t->runs[r].np,
			       (unsigned long long)bytes);
			print_us(a->name, tool_tune_find(t, r, bytes, a));
			print_us(b->name, tool_tune_find(t, r, bytes, b));
			putchar('\n');
		}
	if (!changes)
		printf("\n# this table changes no choice at these sizes\n");
}
