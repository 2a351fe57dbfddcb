/*
 * device_cpu.c - the processor, with bits that depend on nothing but the numbers
 *
 * The matrix product is gemm.c's: the same parameters come out on any processor, instruction set
 * and C library. One thread: ranks are what runs in parallel. Row of the table in device.c.
 */
#include "trainer/device/device_host.h"
#include "trainer/fail.h"

#include <stdlib.h>
#include <string.h>

static int cpu_open(struct tt_device *d)
{
	const char *isa = getenv("TUTTI_ISA");
	bool any = !isa || !strcmp(isa, "auto");

	d->state = tt_gemm_open(any ? NULL : isa);
	if (!d->state && !any)
		return tt_train_fail(TT_TRAIN_USAGE,
			"TUTTI_ISA=%s: this processor has no such instructions; use auto", isa);
	if (!d->state)
		return tt_train_fail(TT_TRAIN_FAILED, "no memory for the matrix product");
	return TT_TRAIN_OK;
}

static void cpu_close(struct tt_device *d) { tt_gemm_close(d->state); }

static void cpu_gemm(struct tt_device *d, size_t m, size_t n, size_t k, struct tt_matrix a,
		     struct tt_matrix b, float *c, size_t ldc)
{
	tt_gemm(d->state, m, n, k, a, b, c, ldc);
}

const struct tt_device_ops tt_device_cpu = {
	.name = "cpu",
	.help = "own kernels; the same bits on every processor",
	.open = cpu_open,
	.close = cpu_close,
	.gemm = cpu_gemm,
	TT_HOST_WORK,
};
