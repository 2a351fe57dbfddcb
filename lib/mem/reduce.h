/*
 * reduce.h - reduction of arrays in host memory: dst = s0 op s1 op ... in operand order, for every
 * datatype and op
 *
 * Called by run (one step of a plan) and the perf checker. Kernels exist for scalar, AVX2 and
 * AVX-512; the instruction set is chosen once at run time (TUTTI_ISA), and all give the same bits.
 * Half types and fp8 are widened to float, combined left to right, and rounded once to nearest
 * even, so one call with three sources differs from two calls with two.
 */
#ifndef TT_REDUCE_H
#define TT_REDUCE_H

#include "base/base.h"
#include "tutti.h"

#define TT_MAX_SOURCES 8

/* dst = ((src[0] op src[1]) op src[2]) ... over count elements; dst2, unless NULL, gets the same
 * bits. dst and dst2 may equal any source exactly; no other overlap. Any alignment. nsrc:
 * 2..TT_MAX_SOURCES. */
typedef void tt_reduce_fn(void *dst, void *dst2, const void *const *src, int nsrc, size_t count);

size_t tt_type_bytes(tuttiDataType_t type);
const char *tt_type_name(tuttiDataType_t type); /* of nccl-tests' columns: float, half */
const char *tt_op_name(tuttiRedOp_t op);        /* sum prod max min avg band bor bxor */
bool tt_type_is_integer(tuttiDataType_t type);

/* Kernel for (type, op) of the instruction set in force; avg has the kernel of sum. NULL: undefined
 * (band on floats). */
tt_reduce_fn *tt_reduce_kernel(tuttiDataType_t type, tuttiRedOp_t op);

/* Choose the instruction set: "auto" or "" (the best of this CPU), "scalar", "avx2", "avx512".
 * 0 | TT_ARG: unknown, or missing on this CPU. Process-wide, thread-safe; results do not depend on
 * the choice. */
int tt_reduce_isa_set(const char *name);
const char *tt_reduce_isa(void);

/* scale: dst[i] = src[i] * *scalar (one rounding). divide: dst[i] = src[i] / n (integers towards
 * zero, floats in float or double, one rounding). dst may equal src. */
void tt_scale(void *dst, const void *src, const void *scalar, size_t count, tuttiDataType_t type);
void tt_divide(void *dst, const void *src, uint32_t n, size_t count, tuttiDataType_t type);

/* An average over n ranks is their sum, divided at the end by tt_average_finish. For types with
 * tt_average_scales (float16, fp8) the sum may exceed the type although the average does not, so
 * tt_average_scale first divides every input by a power of two, n or the next above n. The division
 * is exact, except for bits below the type's least denormal. */
bool tt_average_scales(tuttiDataType_t type);
void tt_average_scale(void *dst, const void *src, uint32_t n, size_t count, tuttiDataType_t type);
/* Both steps as factors: inputs times *ret_times (1 without tt_average_scales), the sum divided by
 * *ret_over. */
void tt_average_factors(uint32_t n, tuttiDataType_t type, double *ret_times, double *ret_over);
void tt_average_finish(void *dst, uint32_t n, size_t count, tuttiDataType_t type);

/* Conversion of one element to and from double, for checkers and tests. Conversions round to
 * nearest even; fp8 saturates. */
double tt_element_get(const void *p, size_t index, tuttiDataType_t type);
void tt_element_set(void *p, size_t index, tuttiDataType_t type, double value);

#endif
