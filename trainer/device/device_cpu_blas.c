/*
 * device_cpu_blas.c - device cpu-blas: the processor, with OpenBLAS's matrix product
 *
 * OpenBLAS is loaded on demand, so that its environment can be set first: one thread, and
 * kernels of this processor (0.3.21 treats processors newer than itself as a Prescott and loses
 * a factor of 5). The bits depend on the processor and on the division of rows among ranks. Row
 * of the table in device.c.
 */
#include "trainer/base/fail.h"
#include "trainer/device/device_host.h"

#include <dlfcn.h>
#include <stdlib.h>

#define LIBRARY "libopenblas.so.0"

enum { ROW_MAJOR = 101, AS_IS = 111, TRANSPOSED = 112 };

typedef void sgemm_fn(int order, int trans_a, int trans_b, int m, int n, int k, float alpha,
		      const float *a, int lda, const float *b, int ldb, float beta, float *c,
		      int ldc);

struct blas_state {
	void *library;
	sgemm_fn *sgemm;
};

/* Variables that the user has set are kept. */
static void set_environment(void)
{
	setenv("OPENBLAS_NUM_THREADS", "1", 0);
#if defined(__x86_64__)
	if (__builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw") &&
	    __builtin_cpu_supports("avx512vl"))
		setenv("OPENBLAS_CORETYPE", "SkylakeX", 0);
	else if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
		setenv("OPENBLAS_CORETYPE", "Haswell", 0);
#endif
}

static int blas_open(struct train_device *d)
{
	struct blas_state *b = calloc(1, sizeof(*b));

	if (!b)
		return train_fail(TRAIN_FAILED, "no memory for OpenBLAS");
	set_environment();
	b->library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
	if (b->library)
		b->sgemm = (sgemm_fn *)dlsym(b->library, "cblas_sgemm");
	if (!b->sgemm) {
		train_fail(TRAIN_USAGE,
			   "--device cpu-blas: OpenBLAS is not on this host (%s); install "
			   "libopenblas0, or use cpu",
			   dlerror());
		if (b->library)
			dlclose(b->library);
		free(b);
		return TRAIN_USAGE;
	}
	d->state = b;
	return TRAIN_OK;
}

static void blas_close(struct train_device *d)
{
	struct blas_state *b = d->state;

	if (b)
		dlclose(b->library);
	free(b);
}

static void blas_gemm(struct train_device *d, size_t m, size_t n, size_t k, struct train_matrix a,
		      struct train_matrix b, float *c, size_t ldc)
{
	struct blas_state *blas = d->state;

	blas->sgemm(ROW_MAJOR, a.transposed ? TRANSPOSED : AS_IS, b.transposed ? TRANSPOSED : AS_IS,
		    (int)m, (int)n, (int)k, 1.0f, a.at, (int)a.stride, b.at, (int)b.stride, 0.0f, c,
		    (int)ldc);
}

const struct train_device_ops train_device_cpu_blas = {
	.name = "cpu-blas",
	.help = "OpenBLAS, where it is installed; the bits depend on the processor",
	.open = blas_open,
	.close = blas_close,
	.gemm = blas_gemm,
	TRAIN_HOST_OPS,
};
