/*
 * ticks.c - how long a tick is, and quantiles of times (bench.h)
 */
#include "perf/bench/ticks.h"

#include "perf/bench/bench.h"

double tt_quantile(const double *sorted, size_t n, double q)
{
	double exact = q * (double)n;
	size_t rank = (size_t)exact;

	if ((double)rank < exact)
		rank++;
	return sorted[rank ? rank - 1 : 0];
}

double tt_us_per_tick(void)
{
	double start = tt_ticks_us();
	uint64_t first = tt_ticks();

	while (tt_ticks_us() - start < 2000)
		;
	return (tt_ticks_us() - start) / (double)(tt_ticks() - first);
}
