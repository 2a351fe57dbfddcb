/*
 * advise.c - the number of ranks, or the layout of a mesh, with the shortest step (advise.h)
 *
 *	measure the median step of p = 1, 2, 4 ... and n ranks; --mesh any: of each axis alone
 *	fit step = fixed + compute * work + data (D - 1) + message * messages + tensor (T - 1)
 *		work: the share of a batch that the slowest rank computes or waits for, of which the
 *		schedule's simulation says the part of a pipeline	(least squares, none negative)
 *	predict the other layouts; measure the best of them, to check the fit
 *	advise the best if its step takes at most 0.9 of one device's, else one device
 *
 * Real computations do not get faster with more ranks than the host has processors, so work is at least
 * 1 / processors, unless computing is simulated. Called by job.c.
 */
#include "trainer/advise.h"

#include "tools/plural.h"
#include "trainer/advise_fit.h"
#include "trainer/base/fail.h"
#include "trainer/schedules/schedule.h"

#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { STEPS = 12, WARM_UP = 4, RANKS_MAX = 64, LAYOUTS_MAX = 512, CHECKS = 2 };

static const double GAIN = 0.9; /* of one device's step: what distribution must reach */

struct layout {
	int data, pipeline, tensor;
	bool unfit;   /* the model cannot be cut like this */
	bool checked; /* measured after the fit */
};

struct advice {
	int argc, ranks, processors, layouts;
	bool mesh; /* --mesh any */
	char **argv;
	const struct train_config *config;
	struct layout layout[LAYOUTS_MAX]; /* the first one is one device */
	struct advise_point point[LAYOUTS_MAX];
	double factor[ADVISE_TERMS];
};

/* ---- layouts ------------------------------------------------------------------------------------ */

static int ranks_of(const struct layout *l)
{
	return l->data * l->pipeline * l->tensor;
}

static const char *name_of(const struct advice *a, const struct layout *l, char name[64])
{
	if (a->mesh)
		snprintf(name, 64, "data=%d,pipeline=%d,tensor=%d", l->data, l->pipeline,
			 l->tensor);
	else
		snprintf(name, 64, "%d", l->data);
	return name;
}

static int micro_of(const struct advice *a, const struct layout *l)
{
	return a->config->micro ? (int)a->config->micro : l->pipeline;
}

/* The part of a batch's time on one device that a pipeline takes; 0: the schedule has no such one. */
static double pipeline_share(const struct advice *a, const struct layout *l)
{
	struct train_costs costs = { 1, 1, 1, 0 };
	struct train_schedule_times times = { 0 };
	struct train_schedule s;
	double share = 0;

	if (!train_schedule_open(&s, a->config->schedule, l->pipeline, micro_of(a, l)) &&
	    !train_schedule_simulate(&s, &costs, &times))
		share = times.span / 3 / s.chunks / s.micro;
	train_schedule_times_free(&times);
	train_schedule_close(&s);
	return share;
}

static void add_layout(struct advice *a, int data, int pipeline, int tensor)
{
	struct layout l = { .data = data, .pipeline = pipeline, .tensor = tensor };
	double least = a->config->sim_compute_ms > 0 ? 0 : 1.0 / a->processors;
	double share = pipeline > 1 ? pipeline_share(a, &l) : 1, work = share / (data * tensor);

	if (a->layouts == LAYOUTS_MAX || share <= 0)
		return;
	a->point[a->layouts] = (struct advise_point){
		.term = { 1, work > least ? work : least, data - 1,
			  pipeline > 1 ? 2 * (micro_of(a, &l) + pipeline - 2) : 0, tensor - 1 },
	};
	a->layout[a->layouts++] = l;
}

static void list_layouts(struct advice *a)
{
	int most = a->mesh ? a->ranks : 1;

	for (int p = 1; p <= most; p *= 2)
		for (int t = 1; t <= most && t <= a->config->shards; t *= 2)
			for (int d = 1; d * p * t <= a->ranks; d++)
				if (!a->mesh || !(d & (d - 1)) || (d + 1) * p * t > a->ranks)
					add_layout(a, d, p, t);
}

/* What is cut at least as often does not fit either. */
static void rule_out(struct advice *a, const struct layout *l)
{
	for (int i = 0; i < a->layouts; i++)
		a->layout[i].unfit |= a->layout[i].data >= l->data &&
				      a->layout[i].pipeline >= l->pipeline &&
				      a->layout[i].tensor >= l->tensor;
}

/* ---- a measurement ------------------------------------------------------------------------------ */

/* A mistake of the user shows in the training of one device. */
static bool may_be_unfit(const struct layout *l)
{
	return l->pipeline * l->tensor > 1;
}

/* Becomes the training of a layout, which writes a JSON line for each step to lines. */
static void train_steps_of(const struct advice *a, const struct layout *l, int lines)
{
	char np[16], steps[16], file[32], pace[32], mesh[64];
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
			 a->mesh ? "--mesh" : NULL,
			 mesh,
			 NULL };
	size_t given = 0, extra = sizeof(more) / sizeof(more[0]);
	char **all = calloc((size_t)a->argc + extra, sizeof(*all));

	snprintf(np, sizeof(np), "%d", ranks_of(l));
	snprintf(steps, sizeof(steps), "%d", STEPS);
	snprintf(file, sizeof(file), "/proc/self/fd/%d", lines);
	snprintf(pace, sizeof(pace), "%.6f", a->config->sim_compute_ms / (l->data * l->tensor));
	name_of(a, l, mesh);
	if (!all || !freopen("/dev/null", "w", stdout) ||
	    (may_be_unfit(l) && !freopen("/dev/null", "w", stderr)))
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

static int measure(struct advice *a, int i)
{
	struct layout *l = &a->layout[i];
	char name[64];
	int lines = memfd_create("steps", 0), status = -1;
	pid_t child;

	fflush(NULL);
	child = lines < 0 ? -1 : fork();
	if (child == 0)
		train_steps_of(a, l, lines);
	if (child < 0)
		return train_fail(TRAIN_FAILED, "--advise: cannot start %d rank%s: %m", ranks_of(l),
				  tool_s(ranks_of(l)));
	if (waitpid(child, &status, 0) != child)
		status = -1;
	if (status)
		close(lines);
	if (may_be_unfit(l) && WIFEXITED(status) && WEXITSTATUS(status) == 2) {
		rule_out(a, l);
		return TRAIN_OK;
	}
	if (status)
		return train_fail(TRAIN_FAILED,
				  "--advise: the training of %s%s failed; its reason is above",
				  name_of(a, l, name), a->mesh ? "" : " ranks");
	a->point[i].measured = median_step(lines);
	if (a->point[i].measured > 0)
		return TRAIN_OK;
	return train_fail(
		TRAIN_FAILED,
		"--advise: the training of %d rank%s has fewer than %d steps; use a longer "
		"--data, or a smaller --global-batch",
		ranks_of(l), tool_s(ranks_of(l)), WARM_UP + 1);
}

static bool is_measured(const struct advice *a, int i)
{
	return a->point[i].measured > 0;
}

/* Each axis alone: of data 1, 2, 4 ... and the most; of others the most that fits, and 2. */
static int measure_axes(struct advice *a)
{
	int rc = TRAIN_OK;

	for (int i = 0; i < a->layouts && !rc; i++) {
		int data = a->layout[i].data;

		if (!may_be_unfit(&a->layout[i]) &&
		    (data <= 2 || data == a->ranks || (!a->mesh && !(data & (data - 1)))))
			rc = measure(a, i);
	}
	for (int axis = 0; axis < 2; axis++)
		for (int n = a->ranks, found = 0; n > 1; n--)
			for (int i = 0; i < a->layouts && !rc; i++) {
				const struct layout *l = &a->layout[i];

				if (l->unfit || (found && n > 2) || ranks_of(l) != n ||
				    (axis ? l->tensor : l->pipeline) != n)
					continue;
				rc = measure(a, i);
				found |= is_measured(a, i);
			}
	return rc;
}

/* ---- the advice --------------------------------------------------------------------------------- */

static double time_of(const struct advice *a, int i)
{
	return is_measured(a, i) ? a->point[i].measured : a->point[i].predicted;
}

static int best_of(const struct advice *a)
{
	int best = 0;

	for (int i = 1; i < a->layouts; i++)
		if (!a->layout[i].unfit && time_of(a, i) < time_of(a, best))
			best = i;
	return best;
}

/* The best of those that were not measured; -1: there is none. */
static int best_predicted(const struct advice *a)
{
	int best = -1;

	for (int i = 0; i < a->layouts; i++)
		if (!a->layout[i].unfit && !is_measured(a, i) &&
		    (best < 0 || a->point[i].predicted < a->point[best].predicted))
			best = i;
	return best;
}

static void print_table(const struct advice *a)
{
	int width = a->mesh ? 30 : 5;
	char name[64];

	printf("%*s  measured ms  predicted ms\n", width, a->mesh ? "layout" : "ranks");
	for (int i = 0; i < a->layouts; i++) {
		if (a->layout[i].unfit)
			continue;
		printf("%*s", width, name_of(a, &a->layout[i], name));
		if (is_measured(a, i))
			printf("  %11.3f", a->point[i].measured);
		else
			printf("  %11s", "");
		printf("  %12.3f\n", a->point[i].predicted);
	}
	printf("a step takes %.3f ms + %.3f %s + %.3f for each further rank", a->factor[0],
	       a->factor[1], a->mesh ? "x the share of the slowest rank" : "/ ranks", a->factor[2]);
	if (a->mesh)
		printf(" of data, %.3f of tensor, %.3f for each message of a pipeline in turn",
		       a->factor[4], a->factor[3]);
	printf("\n");
}

/* The order of mesh_order.c, and its reason, for the axes that were measured. */
static void print_placement(const struct advice *a)
{
	int tensor = 1, stages = 1;

	for (int i = 0; i < a->layouts; i++) {
		const struct layout *l = &a->layout[i];

		tensor = is_measured(a, i) && l->tensor > tensor ? l->tensor : tensor;
		stages = is_measured(a, i) && l->pipeline > stages ? l->pipeline : stages;
	}
	if (tensor > 1)
		printf("ranks of a tensor group belong on one host: they wait for each other in every "
		       "pair of layers, here %.3f ms a step for each further rank\n",
		       a->factor[4]);
	if (stages > 1)
		printf("stages come next: each sends one message for every micro-batch, here %.3f ms\n",
		       a->factor[3]);
	if (tensor * stages > 1)
		printf("replicas may be on other hosts: they add up gradients once a step, here %.3f ms "
		       "for each further one\n",
		       a->factor[2]);
}

/* checked: the first layout that was measured after the fit; -1: none */
static void print_advice(const struct advice *a, int best, int checked)
{
	const struct advise_point *check = checked < 0 ? &(struct advise_point){ 0 }
						       : &a->point[checked];
	const char *ranks = a->mesh ? "" : " ranks";
	char name[64];

	print_table(a);
	if (best)
		printf("use %s%s: a step takes %.3f ms, one device's takes %.2f times as long\n",
		       name_of(a, &a->layout[best], name), ranks, time_of(a, best),
		       a->point[0].measured / time_of(a, best));
	else
		printf("use one device: no %s up to %d%s takes less than %g of its %.3f ms a step\n",
		       a->mesh ? "layout of" : "number of ranks", a->ranks, a->mesh ? " ranks" : "",
		       GAIN, a->point[0].measured);
	print_placement(a);
	for (int i = 0; i < a->layouts; i++)
		if (a->layout[i].checked)
			printf("check: %s%s, which the fit had not seen, take %.3f ms, predicted "
			       "%.3f\n",
			       name_of(a, &a->layout[i], name), ranks, a->point[i].measured,
			       a->point[i].predicted);
	printf("{\"advice\":%d,\"mesh\":\"%s\",\"step_ms\":%.3f,\"one_ms\":%.3f,\"checked\":%d,"
	       "\"measured_ms\":%.3f,\"predicted_ms\":%.3f}\n",
	       ranks_of(&a->layout[best]),
	       a->mesh && best ? name_of(a, &a->layout[best], name) : "", time_of(a, best),
	       a->point[0].measured, checked < 0 ? 0 : ranks_of(&a->layout[checked]),
	       check->measured, check->predicted);
}

static int check(const struct advice *a)
{
	const struct train_config *c = a->config;

	if (c->np < 2 || c->np > RANKS_MAX)
		return train_fail(TRAIN_USAGE,
				  "--advise: compares 1 to --np ranks of this host; add --np 4, or "
				  "another number from 2 to %d",
				  RANKS_MAX);
	if (strcmp(c->strategy, "mirrored") || (c->mesh && !a->mesh) || c->resume || c->kill ||
	    c->jsonl || c->save)
		return train_fail(TRAIN_USAGE,
				  "--advise: is for mirrored, without --mesh but --mesh any, "
				  "--resume, --save, --kill and --jsonl; omit them");
	return TRAIN_OK;
}

int train_advise(int argc, char **argv, const struct train_config *config)
{
	struct advice a = { .argc = argc,
			    .ranks = (int)config->np,
			    .processors = (int)sysconf(_SC_NPROCESSORS_ONLN),
			    .mesh = config->mesh && !strcmp(config->mesh, "any"),
			    .argv = argv,
			    .config = config };
	int rc = check(&a), first = -1, best;

	if (!rc) {
		list_layouts(&a);
		rc = measure_axes(&a);
	}
	if (!rc)
		train_advise_fit(a.point, a.layouts, a.factor);
	for (int n = 0, i; n < (a.mesh ? CHECKS : 1) && !rc && (i = best_predicted(&a)) >= 0;) {
		rc = measure(&a, i);
		if (!is_measured(&a, i)) /* unfit */
			continue;
		a.layout[i].checked = true;
		first = first < 0 ? i : first;
		n++;
	}
	if (rc) {
		fprintf(stderr, "tutti-train: %s\n", train_error());
		return -rc;
	}
	best = best_of(&a);
	print_advice(&a, time_of(&a, best) <= GAIN * a.point[0].measured ? best : 0, first);
	return 0;
}
