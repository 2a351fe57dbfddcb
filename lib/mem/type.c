/*
 * type.c - names and sizes of datatypes and ops; conversion of one element to and from double
 *
 * Called by the api, the tools and the tests. The conversions of small floats are the simple, slow
 * reference for those of the kernels (reduce_vector.h).
 */
#include "mem/reduce_types.h"

#include <math.h>
#include <string.h>

static const struct {
	const char *name;
	size_t bytes;
	bool integer;
} types[tuttiNumTypes] = {
	[tuttiInt8] = { "int8", 1, true },          [tuttiUint8] = { "uint8", 1, true },
	[tuttiInt32] = { "int32", 4, true },        [tuttiUint32] = { "uint32", 4, true },
	[tuttiInt64] = { "int64", 8, true },        [tuttiUint64] = { "uint64", 8, true },
	[tuttiFloat16] = { "half", 2, false },      [tuttiFloat32] = { "float", 4, false },
	[tuttiFloat64] = { "double", 8, false },    [tuttiBfloat16] = { "bfloat16", 2, false },
	[tuttiFloat8e4m3] = { "f8e4m3", 1, false }, [tuttiFloat8e5m2] = { "f8e5m2", 1, false },
};

static const char *const ops[tuttiNumOps] = {
	[tuttiSum] = "sum", [tuttiProd] = "prod", [tuttiMax] = "max", [tuttiMin] = "min",
	[tuttiAvg] = "avg", [tuttiBand] = "band", [tuttiBor] = "bor", [tuttiBxor] = "bxor",
};

size_t tt_type_bytes(tuttiDataType_t type)
{
	return types[type].bytes;
}

const char *tt_type_name(tuttiDataType_t type)
{
	return types[type].name;
}

const char *tt_op_name(tuttiRedOp_t op)
{
	return ops[op];
}

bool tt_type_is_integer(tuttiDataType_t type)
{
	return types[type].integer;
}

/* ---- small floats ---------------------------------------------------------------------------- */

const struct tt_small_float *tt_small_float(tuttiDataType_t type)
{
	switch (type) {
	case tuttiFloat16:
		return &tt_float16;
	case tuttiBfloat16:
		return &tt_bfloat16;
	case tuttiFloat8e4m3:
		return &tt_float8e4m3;
	case tuttiFloat8e5m2:
		return &tt_float8e5m2;
	default:
		return NULL;
	}
}

static double small_get(uint32_t code, const struct tt_small_float *f)
{
	uint32_t sign = code >> (f->bits - 1), magnitude = code & ((1u << (f->bits - 1)) - 1);
	int exponent = (int)(magnitude >> f->mantissa);
	uint32_t fraction = magnitude & ((1u << f->mantissa) - 1);
	double value;

	if (magnitude >= f->special)
		value = magnitude == f->infinity ? INFINITY : NAN;
	else if (!exponent)
		value = ldexp(fraction, 1 - (int)(f->bias + f->mantissa));
	else
		value = ldexp(fraction + (1u << f->mantissa),
			      exponent - (int)(f->bias + f->mantissa));
	return sign ? -value : value;
}

/* Rounds value to the nearest integer, ties to even. */
static double nearest(double value)
{
	double magnitude = fabs(value);

	if (magnitude < 0x1p52)
		/* the sum has no fraction bits left */
		magnitude = (magnitude + 0x1p52) - 0x1p52;
	return copysign(magnitude, value);
}

static uint32_t small_set(double value, const struct tt_small_float *f)
{
	uint32_t sign = signbit(value) ? 1u << (f->bits - 1) : 0, code;
	int exponent, least = 1 - (int)f->bias;

	if (isnan(value))
		return f->nan;
	if (isinf(value))
		return sign | f->infinity;
	if (value == 0)
		return sign;
	frexp(value, &exponent);
	exponent--; /* 2^exponent <= |value| */
	if (exponent < least)
		exponent = least;
	/* in units of the last place; a carry out of the fraction correctly goes to the exponent */
	code = (uint32_t)nearest(ldexp(fabs(value), (int)f->mantissa - exponent));
	code += (uint32_t)(exponent - least) << f->mantissa;
	return sign | (code > f->biggest ? f->biggest : code);
}

/* ---- any type -------------------------------------------------------------------------------- */

union element_bits {
	int8_t i8;
	uint8_t u8;
	uint16_t u16;
	int32_t i32;
	uint32_t u32;
	int64_t i64;
	uint64_t u64;
	float f32;
	double f64;
};

double tt_element_get(const void *p, size_t index, tuttiDataType_t type)
{
	const struct tt_small_float *f = tt_small_float(type);
	const unsigned char *at = (const unsigned char *)p + index * types[type].bytes;
	union element_bits v = { 0 };

	memcpy(&v, at, types[type].bytes);
	if (f)
		return small_get(f->bits == 8 ? v.u8 : v.u16, f);
	switch (type) {
	case tuttiInt8:
		return v.i8;
	case tuttiUint8:
		return v.u8;
	case tuttiInt32:
		return v.i32;
	case tuttiUint32:
		return v.u32;
	case tuttiInt64:
		return (double)v.i64;
	case tuttiUint64:
		return (double)v.u64;
	case tuttiFloat32:
		return v.f32;
	default:
		return v.f64;
	}
}

/* Nearest integer within low..high. The bounds are exact as doubles, except 2^63 - 1. */
static int64_t whole(double value, int64_t low, int64_t high)
{
	value = nearest(value);
	if (isnan(value))
		return 0;
	if (value <= (double)low)
		return low;
	return value >= (double)high ? high : (int64_t)value;
}

static uint64_t whole_unsigned(double value)
{
	value = nearest(value);
	if (!(value > 0))
		return 0;
	return value >= 0x1p64 ? UINT64_MAX : (uint64_t)value;
}

void tt_element_set(void *p, size_t index, tuttiDataType_t type, double value)
{
	const struct tt_small_float *f = tt_small_float(type);
	unsigned char *at = (unsigned char *)p + index * types[type].bytes;
	union element_bits v = { 0 };

	if (f && f->bits == 8)
		v.u8 = (uint8_t)small_set(value, f);
	else if (f)
		v.u16 = (uint16_t)small_set(value, f);
	else if (type == tuttiInt8)
		v.i8 = (int8_t)whole(value, INT8_MIN, INT8_MAX);
	else if (type == tuttiUint8)
		v.u8 = (uint8_t)whole(value, 0, UINT8_MAX);
	else if (type == tuttiInt32)
		v.i32 = (int32_t)whole(value, INT32_MIN, INT32_MAX);
	else if (type == tuttiUint32)
		v.u32 = (uint32_t)whole(value, 0, UINT32_MAX);
	else if (type == tuttiInt64)
		v.i64 = whole(value, INT64_MIN, INT64_MAX);
	else if (type == tuttiUint64)
		v.u64 = whole_unsigned(value);
	else if (type == tuttiFloat32)
		v.f32 = (float)value;
	else
		v.f64 = value;
	memcpy(at, &v, types[type].bytes);
}
