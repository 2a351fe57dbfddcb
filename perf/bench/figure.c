/*
 * figure.c - the figures of one cell, from what every rank measured
 *
 * Called by measure.c on every rank at the same time, since the ranks tell each other.
 */
#include <stdlib.h>
#include <string.h>

#include "perf/bench/bench.h"

/* One of four figures of all ranks as -a says. */
static double over_ranks(const struct bench_share *all, int n, size_t offset, int64_t how)
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

int bench_figure_of(struct bench_thread *c, const struct bench_cell *cell, const struct bench_share *shares,
		 struct bench_figure *f)
{
	int n = c->nranks, rc;
	struct bench_share *all = calloc((size_t)n, sizeof(*all));
	int64_t how = c->line->average;
	size_t sent = cell->send_bytes, received = cell->recv_bytes;
	double gb = (double)(sent > received ? sent : received) / 1e9;

	if (!all) {
		fprintf(stderr, "rank %d: no memory for the figures of %d ranks\n", c->first, n);
		return 1;
	}
	rc = bench_thread_gather(c, shares, sizeof(*shares), all);
	f->measured = true;
	f->time_us = over_ranks(all, n, offsetof(struct bench_share, time_us), how);
	f->cpu_us = over_ranks(all, n, offsetof(struct bench_share, cpu_us), how);
	f->p50_us = over_ranks(all, n, offsetof(struct bench_share, p50_us), how);
	f->p99_us = over_ranks(all, n, offsetof(struct bench_share, p99_us), how);
	f->alg_gbps = f->time_us > 0 ? gb / (f->time_us * 1e-6) : 0;
	f->bus_gbps = f->alg_gbps * cell->bench->bus_factor(n);
	f->memory_gbps = 0;
	if (c->one_gpu)
		f->memory_gbps = f->alg_gbps * cell->bench->memory_factor(n, cell->in_place);
	f->wrong = c->line->check ? 0 : -1;
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

int bench_figure_slowest(struct bench_thread *c, const double *mine_us, struct bench_figure *f)
{
	size_t n = (size_t)c->line->iters, bytes = n * sizeof(double);
	double *mine = malloc(bytes * (size_t)c->nseats), *all = malloc(bytes * (size_t)c->nranks);
	int rc = 1;

	f->iter_us = calloc(n, sizeof(double));
	if (!mine || !all || !f->iter_us) {
		fprintf(stderr, "rank %d: no memory for %zu times of %d ranks\n", c->first, n,
			c->nranks);
		goto free_tables;
	}
	for (int i = 0; i < c->nseats; i++)
		memcpy(mine + (size_t)i * n, mine_us, bytes);
	rc = bench_thread_gather(c, mine, bytes, all);
	for (size_t i = 0; i < n * (size_t)c->nranks; i++)
		if (all[i] > f->iter_us[i % n])
			f->iter_us[i % n] = all[i];
free_tables:
	free(mine);
	free(all);
	return rc;
}
