/*
 * figure.c - combines the figures of all ranks into the figures of one cell
 *
 * Called by measure.c in every thread at the same time; gathers the figures of all ranks.
 */
#include <stdlib.h>
#include <string.h>

#include "perf/bench/bench.h"

/* Combines the double at `offset` of all ranks by -a: 0 rank 0, 1 mean, 2 minimum, 3 maximum. */
static double over_ranks(const struct bench_rank_figure *all, int n, size_t offset, int64_t how)
{
	double result = *(const double *)((const char *)&all[0] + offset);

	for (int r = 1; r < n && how; r++) {
		double x = *(const double *)((const char *)&all[r] + offset);

		if (how == 1)
			result += x;
		else if (how == 2 ? x < result : x > result)
			result = x;
	}
	return how == 1 ? result / n : result;
}

int bench_figure_of(struct bench_thread *t, const struct bench_cell *cell,
		    const struct bench_rank_figure *mine, struct bench_figure *f)
{
	int n = t->nranks, rc;
	struct bench_rank_figure *all = calloc((size_t)n, sizeof(*all));
	int64_t how = t->options->average;
	size_t sent = cell->send_bytes, received = cell->recv_bytes;
	double gb = (double)(sent > received ? sent : received) / 1e9;

	if (!all) {
		fprintf(stderr, "rank %d: no memory for the figures of %d ranks\n", t->first, n);
		return 1;
	}
	rc = bench_thread_gather(t, mine, sizeof(*mine), all);
	f->measured = true;
	f->time_us = over_ranks(all, n, offsetof(struct bench_rank_figure, time_us), how);
	f->cpu_us = over_ranks(all, n, offsetof(struct bench_rank_figure, cpu_us), how);
	f->p50_us = over_ranks(all, n, offsetof(struct bench_rank_figure, p50_us), how);
	f->p99_us = over_ranks(all, n, offsetof(struct bench_rank_figure, p99_us), how);
	f->alg_gbps = f->time_us > 0 ? gb / (f->time_us * 1e-6) : 0;
	f->bus_gbps = f->alg_gbps * cell->bench->bus_factor(n);
	f->memory_gbps = 0;
	if (t->one_gpu)
		f->memory_gbps = f->alg_gbps * cell->bench->memory_factor(n, cell->in_place);
	f->wrong = t->options->check ? 0 : -1;
	f->shm_bytes = f->tcp_bytes = f->verbs_bytes = 0;
	for (int r = 0; r < n; r++) {
		f->wrong += all[r].wrong;
		f->shm_bytes += all[r].shm_bytes;
		f->tcp_bytes += all[r].tcp_bytes;
		f->verbs_bytes += all[r].verbs_bytes;
	}
	free(all);
	return rc;
}

int bench_figure_slowest(struct bench_thread *t, const double *mine_us, struct bench_figure *f)
{
	size_t n = (size_t)t->options->iters, bytes = n * sizeof(double);
	double *mine = malloc(bytes * (size_t)t->nown), *all = malloc(bytes * (size_t)t->nranks);
	int rc = 1;

	f->iter_us = calloc(n, sizeof(double));
	if (!mine || !all || !f->iter_us) {
		fprintf(stderr, "rank %d: no memory for %zu times of %d ranks\n", t->first, n,
			t->nranks);
		goto free_tables;
	}
	for (int i = 0; i < t->nown; i++)
		memcpy(mine + (size_t)i * n, mine_us, bytes);
	rc = bench_thread_gather(t, mine, bytes, all);
	for (size_t i = 0; i < n * (size_t)t->nranks; i++)
		if (all[i] > f->iter_us[i % n])
			f->iter_us[i % n] = all[i];
free_tables:
	free(mine);
	free(all);
	return rc;
}
