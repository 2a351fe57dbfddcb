/* fake_kernels.c - the library's kernels, compiled for the host, one thread per block */
#include "tests/fakes/cuda/fake_cuda.h"

#include "gpu/kernels.cu"

static bool waits(const void *params)
{
	return ((const struct tt_dev_job *)params)->way != TT_DEV_ALONE;
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
