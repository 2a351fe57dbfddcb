/*
 * sweep.c - loops over the rows of the table: types, operations, roots, cycles, sizes, algorithms
 *
 * Called by bench_main.c in every thread; all threads run the same loops. Calls measure.c for each
 * cell; rank 0 reports.
 */
#include <stdlib.h>
#include <string.h>

#include "mem/reduce.h"
#include "perf/bench/bench.h"

/* ---- one row --------------------------------------------------------------------------------- */

/* Sets plan to the text of tuttiCommDescribe ("algorithm ring transport shm ..."), algorithm to its
 * second word. */
static void describe(struct bench_thread *t, const struct bench_cell *cell, struct bench_row *row)
{
	const char *collective = tt_collective_name(cell->bench->collective);

	snprintf(row->plan, sizeof(row->plan), "sends and receives");
	snprintf(row->algorithm, sizeof(row->algorithm), "-");
	if (cell->bench->collective == TT_SENDRECV)
		return;
	if (tuttiCommDescribe(t->ranks[0].comms[cell->algo], collective, cell->count, cell->type,
			      row->plan, sizeof(row->plan)))
		snprintf(row->plan, sizeof(row->plan), "algorithm %s", t->algo_names[cell->algo]);
	if (sscanf(row->plan, "algorithm %63s", row->algorithm) != 1)
		snprintf(row->algorithm, sizeof(row->algorithm), "%s", t->algo_names[cell->algo]);
}

static void set_size(struct bench_cell *cell, uint64_t size, int nranks)
{
	size_t sent = cell->bench->send_all ? (size_t)nranks : 1,
	       received = cell->bench->recv_all ? (size_t)nranks : 1;

	cell->count = size / cell->esize / (sent > received ? sent : received);
	cell->send_bytes = cell->count * cell->esize * sent;
	cell->recv_bytes = cell->count * cell->esize * received;
}

static int run_row(struct bench_thread *t, struct bench_cell *cell)
{
	const struct bench_options *options = t->options;
	struct bench_row row = { .cell = cell };
	int rc = 0;

	row.bytes = cell->send_bytes > cell->recv_bytes ? cell->send_bytes : cell->recv_bytes;
	bench_cell_slots(cell, options);
	if (t->report)
		bench_report_progress(t->report, cell, t->algo_names[cell->algo]);
	if (options->place != BENCH_PLACE_IN || !cell->bench->in_place) {
		cell->in_place = false;
		rc = bench_measure(t, cell, &row.out);
	}
	if (!rc && options->place != BENCH_PLACE_OUT && cell->bench->in_place) {
		cell->in_place = true;
		rc = bench_measure(t, cell, &row.in);
	}
	t->wrong |= row.out.wrong > 0 || row.in.wrong > 0;
	if (!rc && t->report) {
		describe(t, cell, &row);
		bench_report_row(t->report, &row);
	}
	free(row.out.iter_us);
	free(row.in.iter_us);
	return rc;
}

static int run_sizes(struct bench_thread *t, struct bench_cell *cell)
{
	const struct bench_options *options = t->options;
	uint64_t size = options->min_bytes, next;
	int rc = 0;

	for (; !rc && size <= options->max_bytes; size = next) {
		set_size(cell, size, t->nranks);
		for (cell->algo = 0; !rc && cell->algo < t->algos; cell->algo++)
			rc = run_row(t, cell);
		next = options->step_factor > 1 ? size * (uint64_t)options->step_factor
						: size + options->step_bytes;
		if (next <= size) /* 0 times a factor, or 64-bit overflow */
			break;
	}
	return rc;
}

static int run_cycles(struct bench_thread *t, struct bench_cell *cell)
{
	int rc = 0;

	for (int64_t i = 0; !rc && (i < t->options->cycles || t->options->cycles == 0); i++)
		rc = run_sizes(t, cell);
	return rc;
}

static int run_roots(struct bench_thread *t, struct bench_cell *cell)
{
	int first = (int)t->options->root, last = first, rc = 0;

	if (!cell->bench->rooted)
		first = last = -1;
	else if (t->options->root < 0) {
		first = 0;
		last = t->nranks - 1;
	}
	for (cell->root = first; !rc && cell->root <= last; cell->root++)
		rc = run_cycles(t, cell);
	return rc;
}

/* ---- types and operations -------------------------------------------------------------------- */

static int make_mulsum(struct bench_thread *t, struct bench_rank *r, const struct bench_cell *cell)
{
	char scalar[8];

	tt_element_set(scalar, 0, cell->type, bench_values_scalar(r->rank));
	for (int a = 0; a < t->algos; a++) {
		tuttiResult_t rc = tuttiRedOpCreatePreMulSum(&r->mulsum[a], scalar, cell->type,
							     tuttiScalarHostImmediate, r->comms[a]);

		if (rc)
			return bench_thread_complain(t, a, "pre-multiplied sum", rc);
	}
	return 0;
}

static int run_op(struct bench_thread *t, tuttiDataType_t type, int op)
{
	struct bench_cell cell = {
		.bench = t->bench, .esize = tt_type_bytes(type), .type = type, .op = op
	};
	uint64_t seed = (uint64_t)t->options->seed;
	int rc = 0;

	for (int i = 0; i < t->nown && !rc; i++) {
		struct bench_rank *r = &t->ranks[i];

		bench_values_input(r->input, type, op, t->nranks, r->rank, seed);
		if (op != BENCH_NO_OP)
			bench_values_result(r->result, type, op, t->nranks, seed);
		if (op == BENCH_MULSUM)
			rc = make_mulsum(t, r, &cell);
	}
	if (!rc)
		rc = run_roots(t, &cell);
	for (int i = 0; i < t->nown && !rc && op == BENCH_MULSUM; i++)
		for (int a = 0; a < t->algos; a++)
			tuttiRedOpDestroy(t->ranks[i].mulsum[a], t->ranks[i].comms[a]);
	return rc;
}

static int run_type(struct bench_thread *t, tuttiDataType_t type)
{
	bool all = t->options->op == BENCH_ALL_OPS;
	int first = all ? 0 : t->options->op, last = all ? BENCH_MULSUM : t->options->op, rc = 0;

	if (!t->bench->combines)
		return run_op(t, type, BENCH_NO_OP);
	for (int op = first; op <= last && !rc; op++)
		if (bench_values_defined(op, type))
			rc = run_op(t, type, op);
	return rc;
}

int bench_sweep(struct bench_thread *t)
{
	bool all = t->options->type == BENCH_ALL_TYPES;
	int first = all ? 0 : t->options->type, last = all ? tuttiNumTypes - 1 : t->options->type,
	    rc = 0;

	if (t->report)
		bench_report_table(t->report);
	for (int type = first; type <= last && !rc; type++)
		rc = run_type(t, (tuttiDataType_t)type);
	return rc;
}
