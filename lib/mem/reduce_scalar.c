/*
 * reduce_scalar.c - reduction kernels for any machine: vectors of 16 bytes, which the compiler maps
 * to SSE2, NEON or single words
 */
#if defined(__clang__)
#pragma clang fp contract(off)
#else
#pragma GCC optimize("fp-contract=off")
#endif

#define W 16
#include "mem/reduce_vector.h"
#include "mem/reduce_kernels.h"

const struct tt_reduce_isa tt_reduce_scalar = REDUCE_ISA("scalar");
