/*
 * csv_results.c - results of a benchmark as CSV: one line for each row and place
 *
 * Called by report.c at rank 0. Fields have no commas and no quotes.
 */
#include "perf/bench/bench.h"
#include "mem/reduce.h"

const char bench_csv_names[] =
	"size,count,type,redop,root,place,time_us,algbw_gbps,busbw_gbps,wrong,p50_us,p99_us,algorithm\n";

static void print_place(FILE *to, const struct bench_options *options, const struct bench_row *row,
			bool in_place)
{
	const struct bench_figure *f = in_place ? &row->in : &row->out;
	const struct bench_cell *cell = row->cell;

	if (!f->measured)
		return;
	fprintf(to, "%zu,%zu,%s,%s,%d,%s,%.9g,%.9g,%.9g,", row->bytes, cell->count,
		tt_type_name(cell->type), bench_values_op_name(cell->op), cell->root,
		in_place ? "in" : "out", options->cpu_time ? f->cpu_us : f->time_us, f->alg_gbps,
		f->bus_gbps);
	if (f->wrong >= 0)
		fprintf(to, "%lld", (long long)f->wrong);
	fprintf(to, ",%.9g,%.9g,%s\n", f->p50_us, f->p99_us, row->algorithm);
}

void bench_csv_row(FILE *to, const struct bench_options *options, const struct bench_row *row)
{
	print_place(to, options, row, false);
	print_place(to, options, row, true);
}
