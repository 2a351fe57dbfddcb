/*
 * reference.h - reductions element by element, slow and plain, independent of the library's
 * kernels; for tests
 *
 * A type of small floats is a sorted table of the values of its codes; rounding searches the table.
 */
#ifndef TESTS_REFERENCE_H
#define TESTS_REFERENCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tutti.h"

extern const size_t ref_bytes[tuttiNumTypes];
bool ref_is_small_float(tuttiDataType_t type);
bool ref_defined(tuttiDataType_t type, tuttiRedOp_t op);

/* The element at p; 64-bit integers lose bits. */
double ref_get(tuttiDataType_t type, const void *p);

/* Integer types. ref_integer: the element at p, sign-extended. ref_combine: a op b in 64 bits, to
 * be truncated to the type; averages and pre-multiplied sums are sums. */
bool ref_is_signed(tuttiDataType_t type);
uint64_t ref_integer(tuttiDataType_t type, const void *p);
uint64_t ref_combine(tuttiDataType_t type, int op, uint64_t a, uint64_t b);

/* Set the element at p to the value of the float type that is nearest to value. */
void ref_set(tuttiDataType_t type, void *p, double value);

/* Reduce element i of all sources, in order, into element i of dst. */
void ref_reduce(tuttiDataType_t type, tuttiRedOp_t op, void *dst, const void *const *src, int nsrc,
		size_t i);

/* Same bits, or both NaN. */
bool ref_same(tuttiDataType_t type, const void *a, const void *b);

/* Fills count elements: random bits, special values and values near each other, mixed. */
void ref_fill(tuttiDataType_t type, void *p, size_t count, uint64_t seed);

#endif
