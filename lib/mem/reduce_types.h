/*
 * reduce_types.h - formats of small floats, and the table of kernels of an instruction set
 *
 * Private to lib/mem: used by the kernels (reduce_kernels.h), their choice (reduce.c) and the
 * conversions of one element (type.c), so each format is defined once.
 */
#ifndef TT_REDUCE_TYPES_H
#define TT_REDUCE_TYPES_H

#include "mem/reduce.h"

/* Format of a float of 8 or 16 bits. Codes exclude the sign bit. A finite value above the range
 * becomes `biggest`; an infinite value, `infinity`. */
struct tt_small_float {
	unsigned bits, mantissa, bias;
	uint32_t special; /* codes from here on are not finite */
	uint32_t biggest, infinity, nan;
};

/* fp8 as in "OCP 8-bit Floating Point Specification (OFP8)", 2023:
 * e4m3 has one NaN and no infinity. */
static const struct tt_small_float tt_float16 = { 16, 10, 15, 0x7c00, 0x7c00, 0x7c00, 0x7e00 };
static const struct tt_small_float tt_bfloat16 = { 16, 7, 127, 0x7f80, 0x7f80, 0x7f80, 0x7fc0 };
static const struct tt_small_float tt_float8e4m3 = { 8, 3, 7, 0x7f, 0x7e, 0x7e, 0x7f };
static const struct tt_small_float tt_float8e5m2 = { 8, 2, 15, 0x7c, 0x7b, 0x7c, 0x7f };

/* Format of a type; NULL: not a small float. (type.c) */
const struct tt_small_float *tt_small_float(tuttiDataType_t type);

/* dst[i] = src[i] * value or src[i] / value. */
typedef void tt_scale_fn(void *dst, const void *src, double value, size_t count);

/* pages of which a copy or a sum takes a part of each in turn: of a long one, of a shorter one (peer_lines.c) */
#define TT_INTERLEAVED 16u
#define TT_INTERLEAVED_FEW 8u
#define TT_INTERLEAVED_PAGE 4096u

struct tt_reduce_isa {
	const char *name;
	tt_reduce_fn *kernel[tuttiNumTypes][tuttiNumOps]; /* avg: NULL, uses sum */
	tt_scale_fn *scale[tuttiNumTypes];                /* floats only */
	tt_scale_fn *divide[tuttiNumTypes];
	void (*copy)(void *dst, const void *src,
		     size_t bytes); /* of TT_COPY_LEAST and more (copy.h) */
	void (*copy_interleaved)(void *dst, const void *src); /* TT_INTERLEAVED pages */
	void (*copy_few)(void *dst, const void *src);         /* TT_INTERLEAVED_FEW pages */
};
extern const struct tt_reduce_isa tt_reduce_scalar, tt_reduce_avx2, tt_reduce_avx512;

const struct tt_reduce_isa *tt_reduce_isa_now(void);

#endif
