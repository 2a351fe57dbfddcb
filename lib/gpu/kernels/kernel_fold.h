/*
 * kernel_fold.h - two operands to one: fold_TYPE by each op; times_TYPE and over_TYPE for averages and factors
 */
#ifndef TT_KERNEL_FOLD_H
#define TT_KERNEL_FOLD_H

#include "gpu/kernels/kernel_words.h"

/* The numbers of tuttiRedOp_t (AVG runs as a sum), and ADJUSTED: a sum whose inputs are scaled or
 * whose result is divided */
enum { SUM, PROD, MAX, MIN, AVG, BAND, BOR, BXOR, ADJUSTED };

/* Sums and products wrap, so they are computed unsigned. */
#define INTEGER(name, raw, compared, product, wide)               \
	DEV raw widen_##name(raw x)                               \
	{                                                         \
		return x;                                         \
	}                                                         \
	DEV raw narrow_##name(raw x)                              \
	{                                                         \
		return x;                                         \
	}                                                         \
	DEV raw fold_##name(int op, raw x, raw y)                 \
	{                                                         \
		switch (op) {                                     \
		case SUM:                                         \
		case ADJUSTED:                                    \
			return (raw)((product)x + (product)y);    \
		case PROD:                                        \
			return (raw)((product)x * (product)y);    \
		case MIN:                                         \
			return (compared)x < (compared)y ? x : y; \
		case MAX:                                         \
			return (compared)x > (compared)y ? x : y; \
		case BAND:                                        \
			return x & y;                             \
		case BOR:                                         \
			return x | y;                             \
		default:                                          \
			return x ^ y;                             \
		}                                                 \
	}                                                         \
	DEV raw times_##name(raw x, uint64_t scale)               \
	{                                                         \
		return (raw)((product)x * (product)scale);        \
	}                                                         \
	DEV raw over_##name(raw x, uint64_t n)                    \
	{                                                         \
		return (raw)((wide)(compared)x / (wide)n);        \
	}
INTEGER(Int8, uint8_t, int8_t, uint32_t, int64_t)
INTEGER(Uint8, uint8_t, uint8_t, uint32_t, uint64_t)
INTEGER(Int32, uint32_t, int32_t, uint32_t, int64_t)
INTEGER(Uint32, uint32_t, uint32_t, uint32_t, uint64_t)
INTEGER(Int64, uint64_t, int64_t, uint64_t, int64_t)
INTEGER(Uint64, uint64_t, uint64_t, uint64_t, uint64_t)

/* If neither operand is less, both are equal or one is a NaN. The OR of the bits is the minimum
 * then: x = y, or -0 of two zeros, or a NaN. It is the maximum too, except that max(-0, +0) =
 * +0. */
#define FLOATING(name, value, word, bits, back)                                    \
	DEV value fold_##name(int op, value x, value y)                            \
	{                                                                          \
		word a = bits(x), b = bits(y);                                     \
                                                                                   \
		if (op == SUM || op == ADJUSTED)                                   \
			return x + y;                                              \
		if (op == PROD)                                                    \
			return x * y;                                              \
		if (op == MIN)                                                     \
			return x < y ? x : x > y ? y : back(a | b);                \
		return x > y ? x : x < y ? y : x == y ? back(a & b) : back(a | b); \
	}                                                                          \
	DEV value times_##name(value x, uint64_t scale)                            \
	{                                                                          \
		return x * (value)double_of(scale);                                \
	}                                                                          \
	DEV value over_##name(value x, uint64_t divisor)                           \
	{                                                                          \
		return x / (value)double_of(divisor);                              \
	}
FLOATING(Float32, float, uint32_t, bits_of, float_of)
FLOATING(Float64, double, uint64_t, bits_of_double, double_of)

#endif
