/*
 * reference.h - reductions element by element, slow and plain,
 * written apart from the library's; for tests
 *
 * Small floats are a sorted table of the values that their codes stand for;
 * rounding is a search in it.
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

/* Of an integer type: the element at p, its sign carried on; two of them combined, to be cut to the
 * type's bytes. Averages and pre-multiplied sums are sums. */
bool ref_is_signed(tuttiDataType_t type);
uint64_t ref_integer(tuttiDataType_t type, const void *p);
uint64_t ref_combine(tuttiDataType_t type, int op, uint64_t a, uint64_t b);

/* A float type's element nearest to value. */
void ref_set(tuttiDataType_t type, void *p, double value);

/* Element i of all sources, in order, into element i of dst. */
void ref_reduce(tuttiDataType_t type, tuttiRedOp_t op, void *dst, const void *const *src, int nsrc,
		size_t i);

/* Same bits, or both NaN. */
bool ref_same(tuttiDataType_t type, const void *a, const void *b);

/* Fills count elements: random bits, special values and values near each other, mixed. */
void ref_fill(tuttiDataType_t type, void *p, size_t count, uint64_t seed);

#endif
