/*
 * ticks.c - length of a tick, quantiles of times (bench.h)
 */
#include "perf/bench/ticks.h"

#include <stdlib.h>

#include "perf/bench/bench.h"

static int by_size(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

void bench_sort(double *values, size_t n)
{
	qsort(values, n, sizeof(*values), by_size);
}

double bench_quantile(const double *sorted, size_t n, double q)
{
	double exact = q * (double)n;
	size_t rank = (size_t)exact;

	if ((double)rank < exact)
		rank++;
	return sorted[rank ? rank - 1 : 0];
}

double bench_us_per_tick(void)
{
	double start = bench_ticks_us();
	uint64_t first = bench_ticks();

	while (bench_ticks_us() - start < 2000)
		;
	return (bench_ticks_us() - start) / (double)(bench_ticks() - first);
}
