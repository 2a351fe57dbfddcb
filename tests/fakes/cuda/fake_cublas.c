/*
 * fake_cublas.c - a libcublas.so.13 without a GPU: matrix products as host functions of the fake
 * driver's streams
 *
 * For tests only. The library has the functions of trainer/device/cublas.h with cuBLAS's meaning;
 * matrices are stored by columns. Sums run in another order than the trainer's own products, so
 * that no test relies on the bits.
 */
#include <stdlib.h>

#include "trainer/device/cublas.h"

#define EXPORT __attribute__((visibility("default")))

int cuLaunchHostFunc(void *stream, void (*fn)(void *arg), void *arg);

struct fake_cublas_handle {
	void *stream;
};

struct product {
	int across_a, across_b, m, n, k, lda, ldb, ldc;
	float alpha, beta;
	const float *a, *b;
	float *c;
};

EXPORT int cublasCreate_v2(void **ret_handle)
{
	*ret_handle = calloc(1, sizeof(struct fake_cublas_handle));
	return *ret_handle ? 0 : 3;
}

EXPORT int cublasDestroy_v2(void *handle)
{
	free(handle);
	return 0;
}

EXPORT int cublasSetStream_v2(void *handle, void *stream)
{
	((struct fake_cublas_handle *)handle)->stream = stream;
	return 0;
}

EXPORT int cublasSetMathMode(void *handle, int mode)
{
	(void)handle;
	return mode == TRAIN_CUBLAS_PEDANTIC ? 0 : 7;
}

/* Adds b times a column of a to a column of c, in a form that the compiler can vectorize. */
static void add_column(float *restrict c, const float *restrict a, long a_row, long m, float b)
{
	if (a_row == 1)
		for (long i = 0; i < m; i++)
			c[i] += a[i] * b;
	else
		for (long i = 0; i < m; i++)
			c[i] += a[i * a_row] * b;
}

static void multiply(void *arg)
{
	struct product *p = arg;
	long a_row = p->across_a ? p->lda : 1, a_column = p->across_a ? 1 : p->lda;
	long b_row = p->across_b ? p->ldb : 1, b_column = p->across_b ? 1 : p->ldb;

	for (long j = 0; j < p->n; j++) {
		float *c = p->c + j * p->ldc;

		for (long i = 0; i < p->m; i++)
			c[i] = p->beta != 0.0f ? p->beta * c[i] : 0.0f;
		for (long k = p->k; k-- > 0;)
			add_column(c, p->a + k * a_column, a_row, p->m,
				   p->alpha * p->b[k * b_row + j * b_column]);
	}
	free(p);
}

EXPORT int cublasSgemm_v2(void *handle, int across_a, int across_b, int m, int n, int k,
			  const float *alpha, const float *a, int lda, const float *b, int ldb,
			  const float *beta, float *c, int ldc)
{
	struct product *p = malloc(sizeof(*p));

	if (!p || m < 0 || n < 0 || k < 0 || lda < (across_a ? k : m) || ldb < (across_b ? n : k) ||
	    ldc < m) {
		free(p);
		return 7; /* CUBLAS_STATUS_INVALID_VALUE */
	}
	*p = (struct product){ across_a, across_b, m, n, k, lda, ldb, ldc, *alpha, *beta, a, b, c };
	return cuLaunchHostFunc(((struct fake_cublas_handle *)handle)->stream, multiply, p) ? 13
											    : 0;
}
