/*
 * sweep.c - every row of the table: types, operations, roots, cycles, sizes, algorithms
 *
 * Called by bench_main.c on every rank; all walk the same way.
 * Calls measure.c for each cell; rank 0 reports.
 */
#include <stdlib.h>
#include <string.h>

#include "mem/reduce.h"
#include "perf/bench/bench.h"

/* ---- one row --------------------------------------------------------------------------------- */

/* "algorithm ring transport shm ...": the plan in words, and its second word. */
static void describe(struct bench_thread *c, const struct bench_cell *cell, struct bench_row *row)
{
	const char *collective = tt_collective_name(cell->bench->collective);

	snprintf(row->plan, sizeof(row->plan), "sends and receives");
	snprintf(row->algorithm, sizeof(row->algorithm), "-");
	if (cell->bench->collective == TT_SENDRECV)
		return;
	if (tuttiCommDescribe(c->seats[0].comms[cell->algo], collective, cell->count, cell->type,
			      row->plan, sizeof(row->plan)))
		snprintf(row->plan, sizeof(row->plan), "algorithm %s", c->algo_names[cell->algo]);
	if (sscanf(row->plan, "algorithm %63s", row->algorithm) != 1)
		snprintf(row->algorithm, sizeof(row->algorithm), "%s", c->algo_names[cell->algo]);
}

static void set_size(struct bench_cell *cell, uint64_t size, int nranks)
{
	size_t sent = cell->bench->send_all ? (size_t)nranks : 1,
	       got = cell->bench->recv_all ? (size_t)nranks : 1;

	cell->count = size / cell->esize / (sent > got ? sent : got);
	cell->send_bytes = cell->count * cell->esize * sent;
	cell->recv_bytes = cell->count * cell->esize * got;
}

static int run_row(struct bench_thread *c, struct bench_cell *cell)
{
	const struct bench_options *line = c->line;
	struct bench_row row = { .cell = cell };
	int rc = 0;

	row.bytes = cell->send_bytes > cell->recv_bytes ? cell->send_bytes : cell->recv_bytes;
	bench_cell_slots(cell, line);
	if (c->report)
		bench_report_progress(c->report, cell, c->algo_names[cell->algo]);
	if (line->place != BENCH_PLACE_IN || !cell->bench->in_place) {
		cell->in_place = false;
		rc = bench_measure(c, cell, &row.out);
	}
	if (!rc && line->place != BENCH_PLACE_OUT && cell->bench->in_place) {
		cell->in_place = true;
		rc = bench_measure(c, cell, &row.in);
	}
	c->wrong |= row.out.wrong > 0 || row.in.wrong > 0;
	if (!rc && c->report) {
		describe(c, cell, &row);
		bench_report_row(c->report, &row);
	}
	free(row.out.iter_us);
	free(row.in.iter_us);
	return rc;
}

static int run_sizes(struct bench_thread *c, struct bench_cell *cell)
{
	const struct bench_options *line = c->line;
	uint64_t size = line->min_bytes, next;
	int rc = 0;

	for (; !rc && size <= line->max_bytes; size = next) {
		set_size(cell, size, c->nranks);
		for (cell->algo = 0; !rc && cell->algo < c->algos; cell->algo++)
			rc = run_row(c, cell);
		next = line->step_factor > 1 ? size * (uint64_t)line->step_factor
					     : size + line->step_bytes;
		if (next <= size)                        /* 0 times a factor, or beyond 64 bits */
			break;
	}
	return rc;
}

static int run_cycles(struct bench_thread *c, struct bench_cell *cell)
{
	int rc = 0;

	for (int64_t i = 0; !rc && (i < c->line->cycles || c->line->cycles == 0); i++)
		rc = run_sizes(c, cell);
	return rc;
}

static int run_roots(struct bench_thread *c, struct bench_cell *cell)
{
	int first = (int)c->line->root, last = first, rc = 0;

	if (!cell->bench->rooted)
		first = last = -1;
	else if (c->line->root < 0) {
		first = 0;
		last = c->nranks - 1;
	}
	for (cell->root = first; !rc && cell->root <= last; cell->root++)
		rc = run_cycles(c, cell);
	return rc;
}

/* ---- types and operations -------------------------------------------------------------------- */

static int make_mulsum(struct bench_thread *c, struct bench_rank *s, const struct bench_cell *cell)
{
	char scalar[8];

	tt_element_set(scalar, 0, cell->type, bench_values_scalar(s->rank));
	for (int a = 0; a < c->algos; a++) {
		tuttiResult_t rc = tuttiRedOpCreatePreMulSum(&s->mulsum[a], scalar, cell->type,
							     tuttiScalarHostImmediate, s->comms[a]);

		if (rc)
			return bench_thread_complain(c, a, "pre-multiplied sum", rc);
	}
	return 0;
}

static int run_op(struct bench_thread *c, tuttiDataType_t type, int op)
{
	struct bench_cell cell = {
		.bench = c->bench, .esize = tt_type_bytes(type), .type = type, .op = op
	};
	uint64_t seed = (uint64_t)c->line->seed;
	int rc = 0;

	for (int i = 0; i < c->nseats && !rc; i++) {
		struct bench_rank *s = &c->seats[i];

		bench_values_input(s->input, type, op, c->nranks, s->rank, seed);
		if (op != BENCH_NO_OP)
			bench_values_result(s->result, type, op, c->nranks, seed);
		if (op == BENCH_MULSUM)
			rc = make_mulsum(c, s, &cell);
	}
	if (!rc)
		rc = run_roots(c, &cell);
	for (int i = 0; i < c->nseats && !rc && op == BENCH_MULSUM; i++)
		for (int a = 0; a < c->algos; a++)
			tuttiRedOpDestroy(c->seats[i].mulsum[a], c->seats[i].comms[a]);
	return rc;
}

static int run_type(struct bench_thread *c, tuttiDataType_t type)
{
	bool all = c->line->op == BENCH_ALL_OPS;
	int first = all ? 0 : c->line->op, last = all ? BENCH_MULSUM : c->line->op, rc = 0;

	if (!c->bench->combines)
		return run_op(c, type, BENCH_NO_OP);
	for (int op = first; op <= last && !rc; op++)
		if (bench_values_defined(op, type))
			rc = run_op(c, type, op);
	return rc;
}

int bench_sweep(struct bench_thread *c)
{
	bool all = c->line->type == BENCH_ALL_TYPES;
	int first = all ? 0 : c->line->type, last = all ? tuttiNumTypes - 1 : c->line->type, rc = 0;

	if (c->report)
		bench_report_table(c->report);
	for (int type = first; type <= last && !rc; type++)
		rc = run_type(c, (tuttiDataType_t)type);
	return rc;
}
