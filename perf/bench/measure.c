/*
 * measure.c - one cell of the table: check on fresh data, warm up, time batches of calls, check
 * what the last left
 *
 * Called by sweep.c on every rank at the same time. A batch: every rank writes its inputs (not
 * timed), all meet, then the calls of the batch run one behind the other, each with an input of its
 * own (--buffers rotate). The time of a call is the batch's wall time over its calls, as nccl-tests
 * has it; the quantiles are of the single calls.
 */
#include <stdlib.h>
#include <string.h>

#include "perf/bench/bench.h"
#include "perf/bench/ticks.h"

struct run {
	struct bench_thread *c;
	const struct bench_cell *cell;
	struct bench_call *calls;      /* [nseats * slots] */
	uint64_t first;                  /* number of the first call of the latest batch */
	int made;                        /* calls of the latest batch */
	double wall_us, cpu_us;          /* of all timed iterations; cpu: of the calls alone */
	double *iter_us;                 /* [iters] */
	int64_t done;                    /* timed iterations so far */
};

static int by_size(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static int failed(struct run *m, tuttiResult_t rc)
{
	return bench_thread_complain(m->c, m->cell->algo, tt_collective_name(m->cell->bench->collective),
				rc);
}

/* ---- calls ----------------------------------------------------------------------------------- */

static int wait_streams(struct run *m)
{
	for (int i = 0; i < m->c->nseats; i++) {
		const struct bench_rank *s = &m->c->seats[i];
		tuttiResult_t rc = bench_rank_wait(s, s->comms[m->cell->algo]);

		if (rc)
			return failed(m, rc);
	}
	return 0;
}

/* So many calls, in one group, on every rank of this thread, with the inputs from slot on. */
static int iterate(struct run *m, int slot, int64_t calls)
{
	bool group = calls > 1 || m->c->nseats > 1;
	int slots = m->cell->slots;
	tuttiResult_t rc = group ? tuttiGroupStart() : tuttiSuccess, end = tuttiSuccess;

	for (int64_t k = 0; k < calls && !rc; k++)
		for (int i = 0; i < m->c->nseats && !rc; i++)
			rc = m->cell->bench->call(&m->calls[i * slots + (slot + k) % slots]);
	if (group)
		end = tuttiGroupEnd();
	return rc || end ? failed(m, rc ? rc : end) : 0;
}

/* Data for the calls number `first`, first + 1 ... into the slots. */
static int write_inputs(struct run *m, uint64_t first, int calls, bool poison)
{
	for (int i = 0; i < m->c->nseats; i++) {
		for (int k = 0; k < calls && k < m->cell->slots; k++)
			if (bench_rank_fill(&m->c->seats[i], m->c->line, m->cell, k,
					 first + (uint64_t)k, poison))
				return 1;
		if (m->c->line->buffers == BENCH_BUFFERS_COLD)
			bench_rank_flush(&m->c->seats[i], m->cell);
	}
	return 0;
}

static int judge(struct run *m, int slot, uint64_t number, bool poisoned, struct bench_share *shares)
{
	for (int i = 0; i < m->c->nseats; i++) {
		uint64_t wrong;

		if (bench_rank_check(&m->c->seats[i], m->c->line, m->cell, slot, number, poisoned,
				  &wrong))
			return 1;
		shares[i].wrong += (int64_t)wrong;
	}
	return 0;
}

/* One call that is not timed, on fresh data. */
static int single(struct run *m, bool judged, struct bench_share *shares)
{
	uint64_t number = m->c->calls++;
	int rc = write_inputs(m, number, 1, true);

	if (!rc)
		rc = iterate(m, 0, 1);
	if (!rc)
		rc = wait_streams(m);
	return rc || !judged ? rc : judge(m, 0, number, true, shares);
}

static int before(struct run *m, struct bench_share *shares)
{
	const struct bench_options *line = m->c->line;
	int rc = 0;

	for (int64_t i = 0; !rc && (i == 0 || i < line->check); i++)
		rc = single(m, line->check > 0, shares);
	for (int64_t i = 0; !rc && i < line->warmup; i++)
		rc = iterate(m, 0, line->aggregate);
	return rc ? rc : wait_streams(m);
}

/* The results that the timed calls left; where each call
 * overwrote the input of the next, one more call. */
static int after(struct run *m, struct bench_share *shares)
{
	const struct bench_options *line = m->c->line;
	int last = (m->made - 1) % m->cell->slots, rc = 0;

	if (!line->check)
		return 0;
	if (m->cell->in_place &&
	    (line->buffers == BENCH_BUFFERS_SAME || m->made > m->cell->slots || line->graph))
		return single(m, true, shares);
	for (int slot = m->cell->in_place ? 0 : last; slot <= last && !rc; slot++)
		rc = judge(m, slot, m->first + (uint64_t)slot, false, shares);
	return rc;
}

/* ---- timing ---------------------------------------------------------------------------------- */

/* The timed part of a batch. */
static int time_batch(struct run *m, int iters)
{
	const struct bench_options *line = m->c->line;
	double us = m->c->us_per_tick, start = bench_ticks_us(), apart = 0, wall;
	uint64_t last = bench_ticks();
	int rc = 0;

	for (int i = 0; i < iters && !rc; i++) {
		uint64_t now;

		rc = iterate(m, (int)(i * line->aggregate % m->cell->slots), line->aggregate);
		if (!rc && line->blocking)
			rc = wait_streams(m);
		if (!rc && line->blocking == 1)
			rc = bench_thread_barrier(m->c);
		now = bench_ticks();
		m->iter_us[m->done + i] = (double)(now - last) * us;
		last = now;
		if (!rc && line->blocking == 3) {
			rc = bench_thread_barrier(m->c);
			last = bench_ticks();
			apart += (double)(last - now) * us;
		}
	}
	m->cpu_us += bench_ticks_us() - start - apart;
	if (!rc)
		rc = wait_streams(m);
	wall = bench_ticks_us() - start - apart;
	m->wall_us += wall;
	/* Calls that only queue have no time of their own. */
	for (int i = 0; !line->null_stream && !line->blocking && i < iters; i++)
		m->iter_us[m->done + i] = wall / iters;
	m->done += iters;
	return rc;
}

static int replay(struct run *m, const struct bench_graph *graphs, int iters)
{
	double launches = (double)m->c->line->graph, start, wall;
	int rc = bench_graph_launch(m->c, graphs);          /* the first takes it to the GPU */

	if (!rc)
		rc = wait_streams(m);
	if (!rc)
		rc = bench_thread_barrier(m->c);
	start = bench_ticks_us();
	for (int64_t i = 0; i < m->c->line->graph && !rc; i++)
		rc = bench_graph_launch(m->c, graphs);
	m->cpu_us += (bench_ticks_us() - start) / launches;
	if (!rc)
		rc = wait_streams(m);
	wall = (bench_ticks_us() - start) / launches;
	m->wall_us += wall;
	for (int i = 0; i < iters; i++)
		m->iter_us[m->done + i] = wall / iters;
	m->done += iters;
	return rc;
}

/* The timed part of a batch, its calls captured before. */
static int time_graph(struct run *m, int iters)
{
	struct bench_graph *graphs = calloc((size_t)m->c->nseats, sizeof(*graphs));
	int rc = graphs ? bench_graph_begin(m->c) : 1;

	for (int i = 0; i < iters && !rc; i++)
		rc = iterate(m, (int)(i * m->c->line->aggregate % m->cell->slots),
			     m->c->line->aggregate);
	if (!rc)
		rc = bench_graph_end(m->c, graphs);
	if (!rc)
		rc = replay(m, graphs, iters);
	if (graphs)
		bench_graph_free(m->c, graphs);
	free(graphs);
	return rc;
}

static int time_all(struct run *m)
{
	const struct bench_options *line = m->c->line;
	bool same = line->buffers == BENCH_BUFFERS_SAME;
	int64_t most = same ? line->iters : m->cell->slots / line->aggregate;
	int rc = 0;

	while (m->done < line->iters && !rc) {
		int64_t left = line->iters - m->done, iters = most < left ? most : left;

		if (iters < 1)
			iters = 1;
		m->first = m->c->calls;
		m->made = same ? 1 : (int)(iters * line->aggregate);
		m->c->calls += (uint64_t)m->made;
		rc = write_inputs(m, m->first, m->made, false);
		if (!rc)
			rc = bench_thread_barrier(m->c);
		if (!rc)
			rc = line->graph ? time_graph(m, (int)iters) : time_batch(m, (int)iters);
	}
	return rc;
}

/* ---- what this thread measured --------------------------------------------------------------- */

static void count_bytes(struct run *m, struct bench_share *shares, int sign)
{
	for (int i = 0; i < m->c->nseats; i++) {
		tuttiCounters_t n = { .size = sizeof(n) };

		tuttiCommGetCounters(m->c->seats[i].comms[m->cell->algo], &n);
		shares[i].shm_bytes += (uint64_t)sign * n.sent_bytes_shm;
		shares[i].tcp_bytes += (uint64_t)sign * n.sent_bytes_tcp;
		shares[i].verbs_bytes += (uint64_t)sign * n.sent_bytes_verbs;
	}
}

static void fill_shares(struct run *m, struct bench_share *shares)
{
	const struct bench_options *line = m->c->line;
	size_t n = (size_t)line->iters, calls = n * (size_t)line->aggregate,
	       runs = line->graph ? (size_t)line->graph + 1 : 1;
	double *sorted = malloc(n * sizeof(*sorted));

	if (sorted) {
		memcpy(sorted, m->iter_us, n * sizeof(*sorted));
		qsort(sorted, n, sizeof(*sorted), by_size);
	}
	for (int i = 0; i < m->c->nseats; i++) {
		shares[i].time_us = m->wall_us / (double)calls;
		shares[i].cpu_us = m->cpu_us / (double)calls;
		shares[i].p50_us =
			sorted ? bench_quantile(sorted, n, 0.50) / (double)line->aggregate : 0;
		shares[i].p99_us =
			sorted ? bench_quantile(sorted, n, 0.99) / (double)line->aggregate : 0;
		shares[i].shm_bytes /= calls * runs;
		shares[i].tcp_bytes /= calls * runs;
		shares[i].verbs_bytes /= calls * runs;
	}
	free(sorted);
}

static int prepare(struct run *m, struct bench_share **ret_shares)
{
	struct bench_thread *c = m->c;
	int slots = m->cell->slots;

	m->calls = calloc((size_t)(c->nseats * slots), sizeof(*m->calls));
	m->iter_us = calloc((size_t)c->line->iters, sizeof(*m->iter_us));
	*ret_shares = calloc((size_t)c->nseats, sizeof(**ret_shares));
	if (!m->calls || !m->iter_us || !*ret_shares) {
		fprintf(stderr, "rank %d: no memory for %lld times\n", c->first,
			(long long)c->line->iters);
		return 1;
	}
	for (int i = 0; i < c->nseats * slots; i++)
		m->calls[i] = bench_rank_call(&c->seats[i / slots], c->line, m->cell, i % slots);
	return 0;
}

int bench_measure(struct bench_thread *c, const struct bench_cell *cell, struct bench_figure *ret_figure)
{
	struct run m = { .c = c, .cell = cell };
	struct bench_figure f = { .wrong = -1 };
	struct bench_share *shares = NULL;
	int rc = prepare(&m, &shares);

	if (!rc)
		rc = before(&m, shares);
	if (!rc) {
		count_bytes(&m, shares, -1);
		rc = time_all(&m);
		count_bytes(&m, shares, 1);
	}
	if (!rc)
		rc = after(&m, shares);
	if (!rc) {
		fill_shares(&m, shares);
		rc = bench_figure_of(c, cell, shares, &f);
	}
	if (!rc && c->line->per_iter)
		rc = bench_figure_slowest(c, m.iter_us, &f);
	free(m.calls);
	free(m.iter_us);
	free(shares);
	if (!rc)
		*ret_figure = f;
	return rc;
}
