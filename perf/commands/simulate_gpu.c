/*
 * simulate_gpu.c - `tutti simulate --gpu`: predicted time of allreduces by GPU kernels
 *
 * Called by cmd_simulate.c. Calls lib/model/gpu_time.c for times, and lib/gpu/gpu_job.c for the steps,
 * chunks and blocks that the library chooses.
 */
#include <stdio.h>

#include "gpu/gpu_call.h"
#include "model/gpu_time.h"
#include "perf/commands/cmd.h"
#include "tools/options.h"

/* Returns the predicted us by FIFO; *ret_steps: 1 or 2 */
static double fifo_us(const struct tt_gpu_kind *kind, uint32_t n, uint64_t bytes,
		      uint32_t *ret_steps)
{
	struct tt_dev_fifo shape;
	struct tt_gpu_fifo_call call = { .nranks = n, .lag = TT_FIFO_LAG, .bytes = bytes };

	call.blocks = tt_gpu_fifo_shape(TT_ALLREDUCE, bytes, n, TT_FIFO_BLOCKS, &shape);
	call.steps = *ret_steps = shape.steps;
	call.chunk = shape.chunk;
	return tt_gpu_fifo_us(kind, &call);
}

/* A row of the table: the way that the library takes, its time and busbw; the other times */
static void row(const struct tt_gpu_kind *kind, uint32_t n, uint64_t bytes)
{
	uint32_t steps;
	double fifo = fifo_us(kind, n, bytes, &steps), ring = tt_gpu_ring_us(kind, n, bytes),
	       ll = tt_gpu_ll_us(kind, n, bytes), us = bytes <= TT_LL_BYTES ? ll : fifo;
	const char *way = bytes <= TT_LL_BYTES ? "LL"
			  : steps == 1         ? "FIFO, 1 step"
					       : "FIFO, 2 steps";

	printf("%12llu  %-14s %10.1f %10.1f %12.1f %12.1f\n", (unsigned long long)bytes, way, us,
	       (double)bytes * 2 * (n - 1) / n / us * 1e-3, fifo, ring);
}

int tool_simulate_gpu(const char *tool, const char *name, int64_t np, uint64_t bytes)
{
	const struct tt_gpu_kind *kind = tt_gpu_kind_find(name);
	double shared_us;

	if (!kind)
		return tool_refuse(tool, "--gpu %s: no such kind; give h100 or h200", name);
	if (np < 2 || np > TT_DEV_RANKS)
		return tool_refuse(tool, "--np %d: GPU kernels have 2 to %d ranks", (int)np,
				   TT_DEV_RANKS);
	printf("# allreduce of %d processes with a %s each on one NVSwitch: predicted, not measured\n",
	       (int)np, kind->name);
	printf("%12s  %-14s %10s %10s %12s %12s\n", "bytes", "way", "us", "busbw GB/s", "FIFO us",
	       "ring us");
	for (uint64_t at = 1024; at < bytes; at *= 4)
		row(kind, (uint32_t)np, at);
	row(kind, (uint32_t)np, bytes);
	shared_us = tt_gpu_shared_us(kind, (uint32_t)np, bytes);
	printf("# %d threads that share a %s: %llu bytes in %.1f us, %.2f of a copy's rate\n",
	       (int)np, kind->name, (unsigned long long)bytes, shared_us,
	       2 * (double)np * (double)bytes / shared_us * 1e-3 / kind->memory);
	return 0;
}
