/*
 * cublas.h - cuBLAS, as far as the trainer uses it: one table of its functions, filled from the
 * library where it is
 *
 * The declarations are our own; names and numbers are the library's. Matrices are stored by
 * columns. Called by device_cuda.c; tests/fakes/cuda/ has a libcublas.so.13 of the same functions
 * without a GPU.
 */
#ifndef TRAIN_CUBLAS_H
#define TRAIN_CUBLAS_H

enum { TRAIN_CUBLAS_AS_IS = 0, TRAIN_CUBLAS_TRANSPOSED = 1, TRAIN_CUBLAS_PEDANTIC = 2 };

/* F(name in the table, symbol, parameters); all return int, 0 when right. */
#define TRAIN_CUBLAS_FUNCTIONS(F)                                                                     \
	F(create, cublasCreate_v2, (void **ret_handle))                                            \
	F(destroy, cublasDestroy_v2, (void *handle))                                               \
	F(set_stream, cublasSetStream_v2, (void *handle, void *stream))                            \
	F(set_math_mode, cublasSetMathMode, (void *handle, int mode))                              \
	F(sgemm, cublasSgemm_v2,                                                                   \
	  (void *handle, int across_a, int across_b, int m, int n, int k, const float *alpha,      \
	   const float *a, int lda, const float *b, int ldb, const float *beta, float *c, int ldc))

#define TRAIN_CUBLAS_MEMBER(member, symbol, parameters) int(*member) parameters;
struct train_cublas {
	TRAIN_CUBLAS_FUNCTIONS(TRAIN_CUBLAS_MEMBER)
};
#undef TRAIN_CUBLAS_MEMBER

/* Loads it, for good. Returns 0 | TRAIN_USAGE: it is not on this host, and why. */
int train_cublas_load(struct train_cublas *ret_cublas);

#endif
