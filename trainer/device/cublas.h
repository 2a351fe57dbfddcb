/*
 * cublas.h - the cuBLAS functions that the trainer uses: one table, filled by dlopen
 *
 * The declarations are our own; names and numbers are cuBLAS's. Matrices are column-major.
 * Called by device_cuda.c; tests/fakes/cuda/ has a fake libcublas.so.13 of the same functions
 * without a GPU.
 */
#ifndef TRAIN_CUBLAS_H
#define TRAIN_CUBLAS_H

enum { TRAIN_CUBLAS_AS_IS = 0, TRAIN_CUBLAS_TRANSPOSED = 1, TRAIN_CUBLAS_PEDANTIC = 2 };

/* F(member, symbol, parameters); all return int, 0 on success. */
#define TRAIN_CUBLAS_FUNCTIONS(F)                                                           \
	F(create, cublasCreate_v2, (void **ret_handle))                                     \
	F(destroy, cublasDestroy_v2, (void *handle))                                        \
	F(set_stream, cublasSetStream_v2, (void *handle, void *stream))                     \
	F(set_math_mode, cublasSetMathMode, (void *handle, int mode))                       \
	F(sgemm, cublasSgemm_v2,                                                            \
	  (void *handle, int trans_a, int trans_b, int m, int n, int k, const float *alpha, \
	   const float *a, int lda, const float *b, int ldb, const float *beta, float *c,   \
	   int ldc))

#define TRAIN_CUBLAS_MEMBER(member, symbol, parameters) int(*member) parameters;
struct train_cublas {
	TRAIN_CUBLAS_FUNCTIONS(TRAIN_CUBLAS_MEMBER)
};
#undef TRAIN_CUBLAS_MEMBER

/* Loads cuBLAS and never unloads it. Returns 0 | TRAIN_USAGE: not on this host, with the reason. */
int train_cublas_load(struct train_cublas *ret_cublas);

#endif
