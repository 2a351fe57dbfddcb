/*
 * reduce_scale.c - an array times a number (premultiplied sums) or divided by one; averages
 *
 * Called by run. Floats use the kernels of the instruction set in force; integers use loops here.
 */
#include "mem/reduce_types.h"

#include <math.h>

/* Products wrap, so they are unsigned. n may exceed the type, so the division has 64 bits. */
#define INTEGER(name, type, product, wide)                                                   \
	typedef type name##_any __attribute__((aligned(1), may_alias));                      \
                                                                                             \
	static void scale_##name(name##_any *dst, const name##_any *src, const void *scalar, \
				 size_t count)                                               \
	{                                                                                    \
		product factor = (product) * (const name##_any *)scalar;                     \
                                                                                             \
		for (size_t i = 0; i < count; i++)                                           \
			dst[i] = (type)((product)src[i] * factor);                           \
	}                                                                                    \
	static void divide_##name(name##_any *dst, const name##_any *src, uint32_t n,        \
				  size_t count)                                              \
	{                                                                                    \
		for (size_t i = 0; i < count; i++)                                           \
			dst[i] = (type)((wide)src[i] / (wide)n);                             \
	}
INTEGER(int8, int8_t, uint32_t, int64_t)
INTEGER(uint8, uint8_t, uint32_t, uint64_t)
INTEGER(int32, int32_t, uint32_t, int64_t)
INTEGER(uint32, uint32_t, uint32_t, uint64_t)
INTEGER(int64, int64_t, uint64_t, int64_t)
INTEGER(uint64, uint64_t, uint64_t, uint64_t)

void tt_scale(void *dst, const void *src, const void *scalar, size_t count, tuttiDataType_t type)
{
	switch (type) {
	case tuttiInt8:
		scale_int8(dst, src, scalar, count);
		break;
	case tuttiUint8:
		scale_uint8(dst, src, scalar, count);
		break;
	case tuttiInt32:
		scale_int32(dst, src, scalar, count);
		break;
	case tuttiUint32:
		scale_uint32(dst, src, scalar, count);
		break;
	case tuttiInt64:
		scale_int64(dst, src, scalar, count);
		break;
	case tuttiUint64:
		scale_uint64(dst, src, scalar, count);
		break;
	default:
		tt_reduce_isa_now()->scale[type](dst, src, tt_element_get(scalar, 0, type), count);
	}
}

void tt_divide(void *dst, const void *src, uint32_t n, size_t count, tuttiDataType_t type)
{
	switch (type) {
	case tuttiInt8:
		divide_int8(dst, src, n, count);
		break;
	case tuttiUint8:
		divide_uint8(dst, src, n, count);
		break;
	case tuttiInt32:
		divide_int32(dst, src, n, count);
		break;
	case tuttiUint32:
		divide_uint32(dst, src, n, count);
		break;
	case tuttiInt64:
		divide_int64(dst, src, n, count);
		break;
	case tuttiUint64:
		divide_uint64(dst, src, n, count);
		break;
	default:
		tt_reduce_isa_now()->divide[type](dst, src, n, count);
	}
}

/* ---- averages -------------------------------------------------------------------------------- */

/* Inputs of an average are divided by 2^shift: at least n, but small enough that 1 / 2^shift is not
 * zero in the type. */
static int average_shift(uint32_t n, tuttiDataType_t type)
{
	const struct tt_small_float *f = tt_small_float(type);
	int shift = 0, most = (int)(f->bias + f->mantissa) - 1;

	while (shift < most && 1ull << shift < n)
		shift++;
	return shift;
}

bool tt_average_scales(tuttiDataType_t type)
{
	/* bfloat16 has the range of float32 */
	return tt_small_float(type) && type != tuttiBfloat16;
}

void tt_average_scale(void *dst, const void *src, uint32_t n, size_t count, tuttiDataType_t type)
{
	tt_reduce_isa_now()->scale[type](dst, src, ldexp(1, -average_shift(n, type)), count);
}

void tt_average_factors(uint32_t n, tuttiDataType_t type, double *ret_times, double *ret_over)
{
	int shift = tt_average_scales(type) ? average_shift(n, type) : 0;

	*ret_times = ldexp(1, -shift);
	*ret_over = ldexp(n, -shift);
}

void tt_average_finish(void *dst, uint32_t n, size_t count, tuttiDataType_t type)
{
	double left;

	if (!tt_average_scales(type)) {
		tt_divide(dst, dst, n, count, type);
		return;
	}
	left = ldexp(n, -average_shift(n, type));
	if (left != 1)
		tt_reduce_isa_now()->divide[type](dst, dst, left, count);
}
