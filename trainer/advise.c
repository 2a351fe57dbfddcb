/*
 * advise.c - the number of ranks with the shortest step (advise.h)
 *
 *	measure the median step of p = 1, 2, 4 ... and n ranks
 *	fit step(p) = fixed + compute / p + communicate (p - 1)		(least squares, none negative)
 *	predict the other p; measure the best of them, to check the fit
 *	advise it if its step takes at most 0.9 of one device's, else one device
 *
 * Real computations do not get faster with more ranks than the host has processors, so p is at most
 * that in compute / p, unless computing is simulated. Called by job.c.
 */
#include "trainer/advise.h"

#include "trainer/base/fail.h"

#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { STEPS = 12, WARM_UP = 4, RANKS_MAX = 64, TERMS = 3 };

static const double GAIN = 0.9; /* of one device's step: what distribution must reach */

struct advice {
	int argc, ranks, processors;
	char **argv;
	const struct train_config *config;
	double measured[RANKS_MAX + 1], predicted[RANKS_MAX + 1]; /* ms; 0: not measured */
	double term[TERMS];                                       /* the fit */
};

/* ---- a measurement ------------------------------------------------------------------------------ */

/* Becomes the training of p ranks, which writes a JSON line for each step to lines. */
static void train_steps_of(const struct advice *a, int p, int lines)
{
	char np[16], steps[16], file[32], pace[32];
	char *more[] = { "--np",
			 np,
			 "--steps",
			 steps,
			 "--jsonl",
			 file,
			 "--eval-every",
			 "100000000",
			 "--check-replicas",
			 "0",
			 "--sim-compute-ms",
			 pace,
			 NULL };
	size_t given = 0, extra = sizeof(more) / sizeof(more[0]);
	char **all = calloc((size_t)a->argc + extra, sizeof(*all));

	snprintf(np, sizeof(np), "%d", p);
	snprintf(steps, sizeof(steps), "%d", STEPS);
	snprintf(file, sizeof(file), "/proc/self/fd/%d", lines);
	snprintf(pace, sizeof(pace), "%.6f", a->config->sim_compute_ms / p);
	if (!all || !freopen("/dev/null", "w", stdout))
		_exit(1);
	for (int i = 0; i < a->argc; i++)
		if (strcmp(a->argv[i], "--advise"))
			all[given++] = a->argv[i];
	memcpy(all + given, more, sizeof(more));
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	execv("/proc/self/exe", all);
	_exit(1);
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* The median of the steps after the first ones; 0: no such line. */
static double median_step(int lines)
{
	double ms[STEPS];
	char line[1024];
	FILE *from = fdopen(lines, "r");
	int n = 0, seen = 0;

	if (!from)
		return 0;
	rewind(from);
	while (n < STEPS && fgets(line, sizeof(line), from)) {
		const char *at = strstr(line, "\"step_ms\":");

		if (at && seen++ >= WARM_UP)
			ms[n++] = strtod(at + strlen("\"step_ms\":"), NULL);
	}
	fclose(from);
	qsort(ms, (size_t)n, sizeof(*ms), by_value);
	return n ? ms[n / 2] : 0;
}

static int measure(struct advice *a, int p)
{
	int lines = memfd_create("steps", 0), status = -1;
	pid_t child;

	fflush(NULL);
	child = lines < 0 ? -1 : fork();
	if (child == 0)
		train_steps_of(a, p, lines);
	if (child < 0)
		return train_fail(TRAIN_FAILED, "--advise: cannot start %d ranks: %m", p);
	if (waitpid(child, &status, 0) != child || status) {
		close(lines);
		return train_fail(TRAIN_FAILED,
				  "--advise: the training of %d ranks failed; its reason is above",
				  p);
	}
	a->measured[p] = median_step(lines);
	if (a->measured[p] > 0)
		return TRAIN_OK;
	return train_fail(
		TRAIN_FAILED,
		"--advise: the training of %d ranks has fewer than %d steps; use a longer "
		"--data, or a smaller --global-batch",
		p, WARM_UP + 1);
}

/* ---- the fit ------------------------------------------------------------------------------------ */

static void terms_of(const struct advice *a, int p, double term[TERMS])
{
	bool real = a->config->sim_compute_ms <= 0;

	term[0] = 1;
	term[1] = 1.0 / (real && p > a->processors ? a->processors : p);
	term[2] = p - 1;
}

/* Solves m x = right (symmetric, positive; Gauss with a little added to the diagonal, so that fewer
 * measurements than terms have a solution, too). x of a term that is left out is 0. */
static void solve(const double matrix[TERMS][TERMS], const double vector[TERMS],
		  const bool left_out[TERMS], double x[TERMS])
{
	double m[TERMS][TERMS], right[TERMS];

	for (int i = 0; i < TERMS; i++) {
		for (int j = 0; j < TERMS; j++)
			m[i][j] = left_out[i] || left_out[j] ? 0 : matrix[i][j];
		m[i][i] += left_out[i] ? 1 : 1e-9;
		right[i] = left_out[i] ? 0 : vector[i];
	}
	for (int i = 0; i < TERMS; i++)
		for (int j = i + 1; j < TERMS; j++) {
			double factor = m[j][i] / m[i][i];

			for (int k = i; k < TERMS; k++)
				m[j][k] -= factor * m[i][k];
			right[j] -= factor * right[i];
		}
	for (int i = TERMS - 1; i >= 0; i--) {
		x[i] = right[i];
		for (int k = i + 1; k < TERMS; k++)
			x[i] -= m[i][k] * x[k];
		x[i] /= m[i][i];
	}
}

/* Solves without the terms that would be negative, the most negative first. */
static void solve_positive(const double m[TERMS][TERMS], const double right[TERMS], double x[TERMS])
{
	bool left_out[TERMS] = { false };
	int worst;

	do {
		worst = -1;
		solve(m, right, left_out, x);
		for (int i = 0; i < TERMS; i++)
			if (x[i] < 0 && (worst < 0 || x[i] < x[worst]))
				worst = i;
		if (worst >= 0)
			left_out[worst] = true;
	} while (worst >= 0);
}

/* Errors count relative to the measured times. */
static void fit(struct advice *a)
{
	double m[TERMS][TERMS] = { { 0 } }, right[TERMS] = { 0 };

	for (int p = 1; p <= a->ranks; p++) {
		double term[TERMS], ms = a->measured[p];

		terms_of(a, p, term);
		for (int i = 0; i < TERMS && ms > 0; i++) {
			for (int j = 0; j < TERMS; j++)
				m[i][j] += term[i] * term[j] / (ms * ms);
			right[i] += term[i] / ms;
		}
	}
	solve_positive(m, right, a->term);
	for (int p = 1; p <= a->ranks; p++) {
		double term[TERMS];

		terms_of(a, p, term);
		for (int i = 0; i < TERMS; i++)
			a->predicted[p] += a->term[i] * term[i];
	}
}

/* ---- the advice --------------------------------------------------------------------------------- */

static double time_of(const struct advice *a, int p)
{
	return a->measured[p] > 0 ? a->measured[p] : a->predicted[p];
}

static int best_of(const struct advice *a)
{
	int best = 1;

	for (int p = 2; p <= a->ranks; p++)
		if (time_of(a, p) < time_of(a, best))
			best = p;
	return best;
}

/* The best of those that were not measured; 0: there is none. */
static int best_predicted(const struct advice *a)
{
	int best = 0;

	for (int p = 1; p <= a->ranks; p++)
		if (a->measured[p] <= 0 && (!best || a->predicted[p] < a->predicted[best]))
			best = p;
	return best;
}

/* checked: measured after the fit; 0: none */
static void print_advice(const struct advice *a, int best, int checked)
{
	double gain = a->measured[1] / time_of(a, best);

	printf("ranks  measured ms  predicted ms\n");
	for (int p = 1; p <= a->ranks; p++) {
		if (a->measured[p] > 0)
			printf("%5d  %11.3f", p, a->measured[p]);
		else
			printf("%5d  %11s", p, "");
		printf("  %12.3f\n", a->predicted[p]);
	}
	printf("a step takes %.3f ms + %.3f / ranks + %.3f for each further rank\n", a->term[0],
	       a->term[1], a->term[2]);
	if (best > 1)
		printf("use %d ranks: a step takes %.3f ms, one device's takes %.2f times as long\n",
		       best, time_of(a, best), gain);
	else
		printf("use one device: no number of ranks up to %d takes less than %g of its %.3f ms "
		       "a step\n",
		       a->ranks, GAIN, a->measured[1]);
	if (checked)
		printf("check: %d ranks, which the fit had not seen, take %.3f ms, predicted %.3f\n",
		       checked, a->measured[checked], a->predicted[checked]);
	printf("{\"advice\":%d,\"step_ms\":%.3f,\"one_ms\":%.3f,\"checked\":%d,"
	       "\"measured_ms\":%.3f,\"predicted_ms\":%.3f}\n",
	       best, time_of(a, best), a->measured[1], checked, a->measured[checked],
	       a->predicted[checked]);
}

static int check(const struct advice *a)
{
	const struct train_config *c = a->config;

	if (c->np < 2 || c->np > RANKS_MAX)
		return train_fail(TRAIN_USAGE,
				  "--advise: compares 1 to --np ranks of this host; add --np 4, or "
				  "another number from 2 to %d",
				  RANKS_MAX);
	if (strcmp(c->strategy, "mirrored") || c->mesh || c->resume || c->kill || c->jsonl ||
	    c->save)
		return train_fail(TRAIN_USAGE,
				  "--advise: is for mirrored, without --mesh, --resume, --save, "
				  "--kill and --jsonl; omit them");
	return TRAIN_OK;
}

int train_advise(int argc, char **argv, const struct train_config *config)
{
	struct advice a = { .argc = argc,
			    .ranks = (int)config->np,
			    .processors = (int)sysconf(_SC_NPROCESSORS_ONLN),
			    .argv = argv,
			    .config = config };
	int rc = check(&a), checked = 0, best;

	for (int p = 1; p < a.ranks && !rc; p *= 2)
		rc = measure(&a, p);
	if (!rc)
		rc = measure(&a, a.ranks);
	if (!rc) {
		fit(&a);
		checked = best_predicted(&a);
	}
	if (!rc && checked)
		rc = measure(&a, checked);
	if (rc) {
		fprintf(stderr, "tutti-train: %s\n", train_error());
		return -rc;
	}
	best = best_of(&a);
	print_advice(&a, time_of(&a, best) <= GAIN * a.measured[1] ? best : 1, checked);
	return 0;
}
