/*
 * tune_fit.c - fits the constants of the simulator to the measurement; factors for the rest
 *
 * Called by cmd_tune.c. Copy and reduction bandwidth of a core are measured directly. The other
 * constants are fitted by coordinate descent: one constant after the other is multiplied or divided
 * by smaller and smaller ratios, as long as the mean |log(modelled / measured)| decreases. The model
 * of the fit is the simulator itself, which also makes the choices later.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "algorithms/algorithms.h"
#include "base/base.h"
#include "mem/peer_lines.h"
#include "mem/reduce.h"
#include "perf/commands/tune.h"

enum { ROUNDS = 4, MOST_PASSES = 6 };
#define STIFFNESS 0.002

/* Same rule as in tt_paths_open. */
static bool is_over_tcp(const struct tool_tune_run *run)
{
	return !strcmp(run->transport, "tcp") || !strcmp(run->transport, "verbs");
}

enum tt_link_class tool_tune_class(const struct tool_tune_run *run)
{
	return tt_cost_class(run->nhosts > 1, is_over_tcp(run), (enum tt_link_class)run->nic);
}

/* ---- the core -------------------------------------------------------------------------------- */

struct tune_buffers {
	char *a, *b, *to;
};

static double copy_gbps(const struct tune_buffers *m, size_t bytes, size_t all)
{
	double best = 0;

	for (int k = 0; k < 7; k++) {
		uint64_t start = tt_now_ns();
		double gbps;

		for (size_t at = 0; at < all; at += bytes)
			memcpy(m->to + at % bytes, m->a + at % bytes, bytes);
		gbps = (double)all / (double)(tt_now_ns() - start + 1);
		best = gbps > best ? gbps : best;
	}
	return best;
}

static double reduce_gbps(const struct tune_buffers *m, size_t bytes, size_t all)
{
	tt_reduce_fn *add = tt_reduce_kernel(tuttiFloat, tuttiSum);
	const void *src[2] = { m->a, m->b };
	double best = 0;

	for (int k = 0; k < 7; k++) {
		uint64_t start = tt_now_ns();
		double gbps;

		for (size_t at = 0; at < all; at += bytes)
			add(m->to, NULL, src, 2, bytes / 4);
		gbps = (double)all / (double)(tt_now_ns() - start + 1);
		best = gbps > best ? gbps : best;
	}
	return best;
}

void tool_tune_core(struct tt_cost *cost)
{
	enum { NEAR = 128 << 10, FAR = 64 << 20 };
	struct tune_buffers m = { aligned_alloc(4096, FAR), aligned_alloc(4096, FAR),
				  aligned_alloc(4096, FAR) };
	long l2 = sysconf(_SC_LEVEL2_CACHE_SIZE);

	if (m.a && m.b && m.to) {
		memset(m.a, 0, FAR);
		memset(m.b, 0, FAR);
		memset(m.to, 0, FAR);
		cost->core.copy_fs = (uint64_t)(1e6 / copy_gbps(&m, NEAR, 64 * NEAR));
		cost->core.reduce_fs = (uint64_t)(1e6 / reduce_gbps(&m, NEAR, 64 * NEAR));
		cost->core.far_copy_fs = (uint64_t)(1e6 / copy_gbps(&m, FAR, FAR));
		cost->core.far_reduce_fs = (uint64_t)(1e6 / reduce_gbps(&m, FAR, FAR));
	}
	if (l2 > 0)
		cost->core.cache_bytes = (uint64_t)l2;
	free(m.a);
	free(m.b);
	free(m.to);
}

/* ---- the model of a sample ------------------------------------------------------------------- */

static void set_world(const struct tool_tune *t, const struct tool_tune_run *run,
		      const struct tt_cost *cost, struct tt_topology *topology, int *host_of,
		      struct tt_sim_world *w)
{
	for (int r = 0; r < run->np; r++)
		host_of[r] = r * run->nhosts / run->np;
	*topology = (struct tt_topology){ .nranks = run->np,
					  .nhosts = run->nhosts,
					  .host_of = host_of };
	*w = (struct tt_sim_world){ .nranks = run->np,
				    .topology = topology,
				    .cores = t->cores,
				    .cost = cost,
				    .paths = { .nranks = run->np,
					       .one_host = run->nhosts == 1,
					       .over_tcp = is_over_tcp(run),
					       .cores = t->cores,
					       .readers_own = tt_readers_own,
					       .nic_class = run->nic } };
	w->message_bytes = tt_connectivity_message_bytes(&w->paths);
}

/* Simulator of one sample, reused for every evaluation. */
struct tune_model {
	struct tt_topology topology;
	int *host_of;
	struct tt_sim *sim;
};

static int open_model(const struct tool_tune *t, const struct tool_tune_sample *s,
		      const struct tt_cost *cost, struct tune_model *m)
{
	const struct tool_tune_run *run = &t->runs[s->run];
	const struct tt_algorithm *a = tt_algorithms[s->algorithm];
	struct tt_sim_world w;

	m->sim = NULL;
	m->host_of = malloc((size_t)run->np * sizeof(*m->host_of));
	if (!m->host_of)
		return 1;
	set_world(t, run, cost, &m->topology, m->host_of, &w);
	return tt_sim_open(&w, a, a->name, 0, NULL, &m->sim) != 0;
}

static void close_model(struct tune_model *m)
{
	if (m->sim)
		tt_sim_close(m->sim);
	free(m->host_of);
}

static double model_us(const struct tune_model *m, uint64_t bytes)
{
	struct tt_sim_result r;

	if (tt_sim_run(m->sim, bytes, ROUNDS * tt_sim_width(m->sim, bytes), &r))
		return 0;
	return (double)r.time_ps / 1e6;
}

double tool_tune_model_us(const struct tool_tune *t, const struct tool_tune_sample *s,
			  const struct tt_cost *cost)
{
	struct tune_model m;
	double us = open_model(t, s, cost, &m) ? 0 : model_us(&m, s->bytes);

	close_model(&m);
	return us;
}

const struct tt_algorithm *tool_tune_choice(const struct tool_tune *t, int number, uint64_t bytes,
					    const struct tt_cost *cost)
{
	const struct tool_tune_run *run = &t->runs[number];
	int *host_of = malloc((size_t)run->np * sizeof(*host_of));
	const struct tt_algorithm *a = NULL;
	struct tt_topology topology;
	struct tt_sim_world w;
	char name[64];

	if (!host_of)
		return NULL;
	set_world(t, run, cost, &topology, host_of, &w);
	struct tt_shape shape = { .collective = TT_ALLREDUCE,
				  .nranks = run->np,
				  .topology = &topology };
	struct tt_call_facts facts = { .bytes = bytes,
				       .over_tcp = w.paths.over_tcp,
				       .cores = t->cores,
				       .readers_own = tt_readers_own,
				       .cost = cost,
				       .nic_class = run->nic,
				       .nic_only = true };

	if (tt_plan_choose("auto", &shape, &facts, &a, name))
		a = NULL;
	free(host_of);
	return a;
}

/* ---- the fit --------------------------------------------------------------------------------- */

struct tune_fit {
	const struct tool_tune *t;
	struct tt_cost *cost;
	struct tune_model *models;
	bool progress;
};

/* Penalty for the distance from the built-in constants (ridge regularization): constants that the
 * runs do not determine keep their built-in values. */
static double penalty(const struct tune_fit *f)
{
	double sum = 0;

	for (size_t k = 0; k < tt_cost_rows; k++) {
		size_t at = tt_cost_table[k].offset;
		double now = (double)*(uint64_t *)((char *)f->cost + at);
		double usual = (double)*(const uint64_t *)((const char *)&tt_cost_builtin + at);

		if (now > 0 && usual > 0)
			sum += log(now / usual) * log(now / usual);
	}
	return STIFFNESS * sum;
}

static double misfit(const struct tune_fit *f)
{
	double sum = 0;

	for (int i = 0; i < f->t->nsamples; i++) {
		const struct tool_tune_sample *s = &f->t->samples[i];
		double us = model_us(&f->models[i], s->bytes),
		       log_ratio = log((us > 0 ? us : 1e-3) / s->half_us[0]);

		sum += fabs(log_ratio); /* not squared: robust against outliers */
	}
	return sum / (f->t->nsamples ? f->t->nsamples : 1) + penalty(f);
}

/* Returns whether the runs can determine the constant. */
static bool is_fitted(const struct tool_tune *t, const struct tt_cost_row *row)
{
	bool used[TT_LINK_CLASSES] = { false }, crowded = false;

	for (int i = 0; i < t->nruns; i++) {
		used[tool_tune_class(&t->runs[i])] = true;
		used[TT_LINK_SHM] |= t->runs[i].nhosts > 1 && t->runs[i].np > t->runs[i].nhosts;
		crowded |= t->runs[i].np > t->cores * t->runs[i].nhosts;
	}
	used[TT_LINK_SLOTS] = used[TT_LINK_SHM];
	if (strstr(row->name, "window") || strstr(row->name, "_bytes"))
		return false;
	if (strstr(row->name, "switch"))
		return crowded;
	if (!strncmp(row->name, "core.", 5))
		return true;
	for (int c = 0; c < TT_LINK_CLASSES; c++)
		if (!strncmp(row->name, tt_link_class_name[c], strlen(tt_link_class_name[c])))
			return used[c];
	return false;
}

/* Multiplies, then divides one constant by ratio, at most 4 times each, while the error decreases.
 * Returns the smallest error. */
static double adjust(struct tune_fit *f, uint64_t *value, double ratio, double best)
{
	for (int way = 0; way < 2; way++) {
		for (int k = 0; k < 4; k++) {
			uint64_t before = *value;
			double now;

			*value = (uint64_t)((double)before * (way ? 1 / ratio : ratio));
			now = *value == before ? best : misfit(f);
			if (now >= best) {
				*value = before;
				break;
			}
			best = now;
		}
	}
	return best;
}

static double descend(struct tune_fit *f)
{
	static const double ratios[] = { 2, 1.4, 1.2, 1.07 };
	double best = misfit(f);

	for (size_t i = 0; i < sizeof(ratios) / sizeof(*ratios); i++)
		for (int pass = 0; pass < MOST_PASSES; pass++) {
			double before = best;

			for (size_t k = 0; k < tt_cost_rows; k++) {
				uint64_t *value = (uint64_t *)((char *)f->cost +
							       tt_cost_table[k].offset);

				if (*value && is_fitted(f->t, &tt_cost_table[k]))
					best = adjust(f, value, ratios[i], best);
				if (f->progress)
					fprintf(stderr,
						"\rfit: steps of %.1f, typical error %.0f %%   ",
						ratios[i], 100 * (exp(best) - 1));
			}
			if (before - best < 0.01 * before)
				break;
		}
	if (f->progress)
		fprintf(stderr, "\r%60s\r", "");
	return best;
}

int tool_tune_fit(const struct tool_tune *t, struct tt_cost *cost, bool progress)
{
	struct tune_fit f = { t, cost, calloc((size_t)t->nsamples + 1, sizeof(*f.models)),
			      progress };
	int rc = !f.models;

	for (int i = 0; i < t->nsamples && !rc; i++)
		rc = open_model(t, &t->samples[i], cost, &f.models[i]);
	if (rc)
		fprintf(stderr, "tutti tune: %s\n",
			f.models ? tt_error_text() : "no memory for the fit");
	else
		descend(&f);
	for (int i = 0; i < t->nsamples && f.models; i++)
		close_model(&f.models[i]);
	free(f.models);
	return rc;
}

int tool_tune_factors(const struct tool_tune *t, struct tt_cost *cost)
{
	struct tt_factor *factors = malloc(((size_t)t->nsamples + 1) * sizeof(*factors));

	if (!factors) {
		fprintf(stderr, "tutti tune: no memory\n");
		return 1;
	}
	free(cost->factors);
	cost->factors = NULL;
	cost->nfactors = 0;
	for (int i = 0; i < t->nsamples; i++) {
		const struct tool_tune_sample *s = &t->samples[i];
		double us = tool_tune_model_us(t, s, cost),
		       factor = us > 0 ? s->half_us[0] / us : 1;

		factor = factor < 0.001 ? 0.001 : factor > 1000 ? 1000 : factor;
		factors[i] = (struct tt_factor){ .algorithm = s->algorithm,
						 .link = (uint8_t)tool_tune_class(&t->runs[s->run]),
						 .nranks = (uint16_t)t->runs[s->run].np,
						 .bytes = s->bytes,
						 .permille = (uint32_t)lround(1000 * factor) };
	}
	qsort(factors, (size_t)t->nsamples, sizeof(*factors), tt_factor_compare);
	cost->factors = factors;
	cost->nfactors = (uint32_t)t->nsamples;
	return 0;
}
