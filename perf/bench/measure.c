/*
 * measure.c - measures one cell of the table: check on fresh data, warm up, time batches of calls,
 * check the last results
 *
 * Called by sweep.c in every thread at the same time. In a batch, every rank writes its inputs (not
 * timed), passes a barrier, and runs the calls of the batch, each with its own input (--buffers
 * rotate). The time of a call is the batch's wall time divided by its calls, as in nccl-tests;
 * quantiles are taken over single iterations.
 */
#include <stdlib.h>
#include <string.h>

#include "perf/bench/bench.h"
#include "perf/bench/ticks.h"

struct measurement {
	struct bench_thread *t;
	const struct bench_cell *cell;
	struct bench_call *calls; /* [nown * slots] */
	uint64_t first;           /* number of the first call of the last batch */
	int made;                 /* number of calls of the last batch */
	double wall_us, cpu_us;   /* sum over timed iterations; cpu: until the calls return */
	double *iter_us;          /* [iters] */
	int64_t done;             /* timed iterations so far */
};

static int failed(struct measurement *m, tuttiResult_t rc)
{
	return bench_thread_complain(m->t, m->cell->algo,
				     tt_collective_name(m->cell->bench->collective), rc);
}

/* ---- calls ----------------------------------------------------------------------------------- */

static int wait_streams(struct measurement *m)
{
	for (int i = 0; i < m->t->nown; i++) {
		const struct bench_rank *r = &m->t->ranks[i];
		tuttiResult_t rc = bench_rank_wait(r, r->comms[m->cell->algo]);

		if (rc)
			return failed(m, rc);
	}
	return 0;
}

/* Runs `calls` calls as one group on every rank of this thread, with inputs from slot `slot` on. */
static int iterate(struct measurement *m, int slot, int64_t calls)
{
	bool group = calls > 1 || m->t->nown > 1;
	int slots = m->cell->slots;
	tuttiResult_t rc = group ? tuttiGroupStart() : tuttiSuccess, end = tuttiSuccess;

	for (int64_t k = 0; k < calls && !rc; k++)
		for (int i = 0; i < m->t->nown && !rc; i++)
			rc = m->cell->bench->call(&m->calls[i * slots + (slot + k) % slots]);
	if (group)
		end = tuttiGroupEnd();
	return rc || end ? failed(m, rc ? rc : end) : 0;
}

/* Writes the inputs of calls number first, first + 1 ... into the slots. */
static int write_inputs(struct measurement *m, uint64_t first, int calls, bool poison)
{
	for (int i = 0; i < m->t->nown; i++) {
		for (int k = 0; k < calls && k < m->cell->slots; k++)
			if (bench_rank_fill(&m->t->ranks[i], m->t->options, m->cell, k,
					    first + (uint64_t)k, poison))
				return 1;
		if (m->t->options->buffers == BENCH_BUFFERS_COLD)
			bench_rank_flush(&m->t->ranks[i], m->cell);
	}
	return 0;
}

static int check(struct measurement *m, int slot, uint64_t number, bool poisoned,
		 struct bench_rank_figure *figures)
{
	for (int i = 0; i < m->t->nown; i++) {
		uint64_t wrong;

		if (bench_rank_check(&m->t->ranks[i], m->t->options, m->cell, slot, number,
				     poisoned, &wrong))
			return 1;
		figures[i].wrong += (int64_t)wrong;
	}
	return 0;
}

/* Runs one call on fresh data, not timed. */
static int run_single(struct measurement *m, bool checked, struct bench_rank_figure *figures)
{
	uint64_t number = m->t->calls++;
	int rc = write_inputs(m, number, 1, true);

	if (!rc)
		rc = iterate(m, 0, 1);
	if (!rc)
		rc = wait_streams(m);
	return rc || !checked ? rc : check(m, 0, number, true, figures);
}

static int check_and_warm_up(struct measurement *m, struct bench_rank_figure *figures)
{
	const struct bench_options *options = m->t->options;
	int rc = 0;

	for (int64_t i = 0; !rc && (i == 0 || i < options->check); i++)
		rc = run_single(m, options->check > 0, figures);
	for (int64_t i = 0; !rc && i < options->warmup; i++)
		rc = iterate(m, 0, options->aggregate);
	return rc ? rc : wait_streams(m);
}

/* Checks the results of the timed calls. Where in-place calls overwrote the input of later calls,
 * runs and checks one more call instead. */
static int check_timed(struct measurement *m, struct bench_rank_figure *figures)
{
	const struct bench_options *options = m->t->options;
	int last = (m->made - 1) % m->cell->slots, rc = 0;

	if (!options->check)
		return 0;
	if (m->cell->in_place &&
	    (options->buffers == BENCH_BUFFERS_SAME || m->made > m->cell->slots || options->graph))
		return run_single(m, true, figures);
	for (int slot = m->cell->in_place ? 0 : last; slot <= last && !rc; slot++)
		rc = check(m, slot, m->first + (uint64_t)slot, false, figures);
	return rc;
}

/* ---- timing ---------------------------------------------------------------------------------- */

/* Times the iterations of a batch. */
static int time_batch(struct measurement *m, int iters)
{
	const struct bench_options *options = m->t->options;
	double us = m->t->us_per_tick, start = bench_ticks_us(), apart = 0, wall;
	uint64_t last = bench_ticks();
	int rc = 0;

	for (int i = 0; i < iters && !rc; i++) {
		uint64_t now;

		rc = iterate(m, (int)(i * options->aggregate % m->cell->slots), options->aggregate);
		if (!rc && options->blocking)
			rc = wait_streams(m);
		if (!rc && options->blocking == 1)
			rc = bench_thread_barrier(m->t);
		now = bench_ticks();
		m->iter_us[m->done + i] = (double)(now - last) * us;
		last = now;
		if (!rc && options->blocking == 3) {
			rc = bench_thread_barrier(m->t);
			last = bench_ticks();
			apart += (double)(last - now) * us;
		}
	}
	m->cpu_us += bench_ticks_us() - start - apart;
	if (!rc)
		rc = wait_streams(m);
	wall = bench_ticks_us() - start - apart;
	m->wall_us += wall;
	/* queued calls have no single times: each iteration gets the mean */
	for (int i = 0; !options->null_stream && !options->blocking && i < iters; i++)
		m->iter_us[m->done + i] = wall / iters;
	m->done += iters;
	return rc;
}

static int replay(struct measurement *m, const struct bench_graph *graphs, int iters)
{
	double launches = (double)m->t->options->graph, start, wall;
	int rc = bench_graph_launch(m->t, graphs); /* the first launch uploads the graph */

	if (!rc)
		rc = wait_streams(m);
	if (!rc)
		rc = bench_thread_barrier(m->t);
	start = bench_ticks_us();
	for (int64_t i = 0; i < m->t->options->graph && !rc; i++)
		rc = bench_graph_launch(m->t, graphs);
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

/* Captures the calls of a batch, then times their replay. */
static int time_graph(struct measurement *m, int iters)
{
	struct bench_graph *graphs = calloc((size_t)m->t->nown, sizeof(*graphs));
	int rc = graphs ? bench_graph_begin(m->t) : 1;

	for (int i = 0; i < iters && !rc; i++)
		rc = iterate(m, (int)(i * m->t->options->aggregate % m->cell->slots),
			     m->t->options->aggregate);
	if (!rc)
		rc = bench_graph_end(m->t, graphs);
	if (!rc)
		rc = replay(m, graphs, iters);
	if (graphs)
		bench_graph_free(m->t, graphs);
	free(graphs);
	return rc;
}

static int time_all(struct measurement *m)
{
	const struct bench_options *options = m->t->options;
	bool same = options->buffers == BENCH_BUFFERS_SAME;
	int64_t most = same ? options->iters : m->cell->slots / options->aggregate;
	int rc = 0;

	while (m->done < options->iters && !rc) {
		int64_t left = options->iters - m->done, iters = most < left ? most : left;

		if (iters < 1)
			iters = 1;
		m->first = m->t->calls;
		m->made = same ? 1 : (int)(iters * options->aggregate);
		m->t->calls += (uint64_t)m->made;
		rc = write_inputs(m, m->first, m->made, false);
		if (!rc)
			rc = bench_thread_barrier(m->t);
		if (!rc)
			rc = options->graph ? time_graph(m, (int)iters) : time_batch(m, (int)iters);
	}
	return rc;
}

/* ---- figures of this thread ------------------------------------------------------------------ */

/* Adds sign * the counters of sent bytes to the figures of each rank. */
static void count_bytes(struct measurement *m, struct bench_rank_figure *figures, int sign)
{
	for (int i = 0; i < m->t->nown; i++) {
		tuttiCounters_t n = { .size = sizeof(n) };

		tuttiCommGetCounters(m->t->ranks[i].comms[m->cell->algo], &n);
		figures[i].shm_bytes += (uint64_t)sign * n.sent_bytes_shm;
		figures[i].tcp_bytes += (uint64_t)sign * n.sent_bytes_tcp;
		figures[i].verbs_bytes += (uint64_t)sign * n.sent_bytes_verbs;
	}
}

static void fill_figures(struct measurement *m, struct bench_rank_figure *figures)
{
	const struct bench_options *options = m->t->options;
	size_t n = (size_t)options->iters, calls = n * (size_t)options->aggregate,
	       runs = options->graph ? (size_t)options->graph + 1 : 1;
	double *sorted = malloc(n * sizeof(*sorted));

	if (sorted) {
		memcpy(sorted, m->iter_us, n * sizeof(*sorted));
		bench_sort(sorted, n);
	}
	for (int i = 0; i < m->t->nown; i++) {
		figures[i].time_us = m->wall_us / (double)calls;
		figures[i].cpu_us = m->cpu_us / (double)calls;
		figures[i].p50_us = sorted ? bench_quantile(sorted, n, 0.50) /
						     (double)options->aggregate
					   : 0;
		figures[i].p99_us = sorted ? bench_quantile(sorted, n, 0.99) /
						     (double)options->aggregate
					   : 0;
		figures[i].shm_bytes /= calls * runs;
		figures[i].tcp_bytes /= calls * runs;
		figures[i].verbs_bytes /= calls * runs;
	}
	free(sorted);
}

static int prepare(struct measurement *m, struct bench_rank_figure **ret_figures)
{
	struct bench_thread *t = m->t;
	int slots = m->cell->slots;

	m->calls = calloc((size_t)(t->nown * slots), sizeof(*m->calls));
	m->iter_us = calloc((size_t)t->options->iters, sizeof(*m->iter_us));
	*ret_figures = calloc((size_t)t->nown, sizeof(**ret_figures));
	if (!m->calls || !m->iter_us || !*ret_figures) {
		fprintf(stderr, "rank %d: no memory for %lld times\n", t->first,
			(long long)t->options->iters);
		return 1;
	}
	for (int i = 0; i < t->nown * slots; i++)
		m->calls[i] = bench_rank_call(&t->ranks[i / slots], t->options, m->cell, i % slots);
	return 0;
}

int bench_measure(struct bench_thread *t, const struct bench_cell *cell,
		  struct bench_figure *ret_figure)
{
	struct measurement m = { .t = t, .cell = cell };
	struct bench_figure f = { .wrong = -1 };
	struct bench_rank_figure *figures = NULL;
	int rc = prepare(&m, &figures);

	if (!rc)
		rc = check_and_warm_up(&m, figures);
	if (!rc) {
		count_bytes(&m, figures, -1);
		rc = time_all(&m);
		count_bytes(&m, figures, 1);
	}
	if (!rc)
		rc = check_timed(&m, figures);
	if (!rc) {
		fill_figures(&m, figures);
		rc = bench_figure_of(t, cell, figures, &f);
	}
	if (!rc && t->options->per_iter)
		rc = bench_figure_slowest(t, m.iter_us, &f);
	free(m.calls);
	free(m.iter_us);
	free(figures);
	if (!rc)
		*ret_figure = f;
	return rc;
}
