/*
 * device_cpu.c - device cpu: the processor, bit-reproducible
 *
 * The matrix product is gemm.c's: the result is the same on every processor, instruction set and C
 * library. One thread; ranks provide the parallelism. Row of the table in device.c.
 */
#include "trainer/base/fail.h"
#include "trainer/device/device_host.h"

#include <stdlib.h>
#include <string.h>

static int cpu_open(struct train_device *d)
{
	const char *isa = getenv("TUTTI_ISA");
	bool any = !isa || !strcmp(isa, "auto");

	d->state = train_gemm_open(any ? NULL : isa);
	if (!d->state && !any)
		return train_fail(TRAIN_USAGE,
				  "TUTTI_ISA=%s: this processor has no such instructions; use auto",
				  isa);
	if (!d->state)
		return train_fail(TRAIN_FAILED, "no memory for the matrix product");
	return TRAIN_OK;
}

static void cpu_close(struct train_device *d)
{
	train_gemm_close(d->state);
}

static void cpu_gemm(struct train_device *d, size_t m, size_t n, size_t k, struct train_matrix a,
		     struct train_matrix b, float *c, size_t ldc)
{
	train_gemm(d->state, m, n, k, a, b, c, ldc);
}

const struct train_device_ops train_device_cpu = {
	.name = "cpu",
	.help = "own kernels; the same bits on every processor",
	.open = cpu_open,
	.close = cpu_close,
	.gemm = cpu_gemm,
	TRAIN_HOST_OPS,
};
