/* fake_kernels.c - the library's kernels, compiled for the host, one thread per block */
#include <stdio.h>
#include <stdlib.h>

#include "tests/fakes/cuda/fake_cuda.h"

#include "gpu/kernels.cu"

/* Kernels that run on the host would also write host memory that a GPU cannot. */
static void check_host_words(const struct tt_dev_job *j)
{
	for (int p = 0; p < TT_DEV_RANKS; p++)
		if (j->signal_to >> p & 1 &&
		    fake_is_pageable((void *)(uintptr_t)j->host_words[p])) {
			fprintf(stderr,
				"fake: a kernel writes host memory that is not registered\n");
			abort();
		}
}

static bool waits(const void *params)
{
	const struct tt_dev_job *job = params;

	check_host_words(job);
	return (job->way != TT_DEV_ALONE && job->nranks > 1) || job->nawaited;
}

#define ROW(type)                                                        \
	{                                                                \
		"tt_" #type, tt_##type, sizeof(struct tt_dev_job), waits \
	}
const struct fake_kernel fake_kernels[] = {
	ROW(Int8),
	ROW(Uint8),
	ROW(Int32),
	ROW(Uint32),
	ROW(Int64),
	ROW(Uint64),
	ROW(Float16),
	ROW(Bfloat16),
	ROW(Float32),
	ROW(Float64),
	ROW(Float8e4m3),
	ROW(Float8e5m2),
	{ NULL, NULL, 0, NULL },
};
