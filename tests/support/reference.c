/*
 * reference.c - see reference.h
 */
#include "tests/support/reference.h"

#include <math.h>
#include <string.h>

#include "tests/support/ranks.h"

const size_t ref_bytes[tuttiNumTypes] = { 1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1 };

/* ---- small floats ---------------------------------------------------------------------------- */

struct format {
	tuttiDataType_t type;
	int exponent, mantissa;      /* bits */
	bool infinite, saturates;
	int finite;                  /* finite codes; codes 0 ... finite - 1 */
	double value[1 << 15];       /* value of each code without sign, ascending */
};

static struct format formats[] = {
	{ .type = tuttiFloat16, .exponent = 5, .mantissa = 10, .infinite = true },
	{ .type = tuttiBfloat16, .exponent = 8, .mantissa = 7, .infinite = true },
	{ .type = tuttiFloat8e4m3, .exponent = 4, .mantissa = 3, .saturates = true },
	{ .type = tuttiFloat8e5m2, .exponent = 5, .mantissa = 2, .infinite = true,
	  .saturates = true },
};

static void build(struct format *f)
{
	int bias = (1 << (f->exponent - 1)) - 1, top = (1 << f->exponent) - 1,
	    fractions = 1 << f->mantissa;

	for (int e = 0; e <= top; e++)
		for (int m = 0; m < fractions; m++) {
			bool finite = f->infinite ? e < top : e < top || m < fractions - 1;
			double fraction = (double)m / fractions + (e > 0),
			       value = fraction * pow(2, (e ? e : 1) - bias);

			if (!finite)
				value = f->infinite && m == 0 ? INFINITY : NAN;
			f->value[e * fractions + m] = value;
			f->finite += finite;
		}
}

static struct format *format_of(tuttiDataType_t type)
{
	for (size_t i = 0; i < sizeof(formats) / sizeof(formats[0]); i++)
		if (formats[i].type == type) {
			if (!formats[i].finite)
				build(&formats[i]);
			return &formats[i];
		}
	return NULL;
}

static int code_of(struct format *f, double magnitude)
{
	int low = 0, high = f->finite - 1, codes = 1 << (f->exponent + f->mantissa);
	double last = f->value[high], step = last - f->value[high - 1];

	if (isnan(magnitude))
		return codes - 1;
	if (isinf(magnitude))
		return f->infinite ? f->finite : high;
	if (magnitude >= last)
		return !f->saturates && magnitude >= last + step / 2 ? f->finite : high;
	while (high - low > 1) {
		int middle = (low + high) / 2;

		if (f->value[middle] <= magnitude)
			low = middle;
		else
			high = middle;
	}
	if (magnitude - f->value[low] == f->value[high] - magnitude)
		return low % 2 ? high : low;
	return magnitude - f->value[low] < f->value[high] - magnitude ? low : high;
}

bool ref_is_small_float(tuttiDataType_t type)
{
	return format_of(type) != NULL;
}

double ref_get(tuttiDataType_t type, const void *p)
{
	struct format *f = format_of(type);
	uint64_t bits = 0;
	float single;
	double value;

	memcpy(&bits, p, ref_bytes[type]);
	if (f) {
		int signs = 1 << (f->exponent + f->mantissa);

		value = f->value[bits % (unsigned)signs];
		return bits / (unsigned)signs ? -value : value;
	}
	switch (type) {
	case tuttiInt8:
		return (int8_t)bits;
	case tuttiInt32:
		return (int32_t)bits;
	case tuttiInt64:
		return (double)(int64_t)bits;
	case tuttiFloat32:
		memcpy(&single, p, 4);
		return single;
	case tuttiFloat64:
		memcpy(&value, p, 8);
		return value;
	default:
		return (double)bits;
	}
}

void ref_set(tuttiDataType_t type, void *p, double value)
{
	struct format *f = format_of(type);
	float single = (float)value;

	if (f) {
		uint16_t code = (uint16_t)code_of(f, fabs(value));

		if (signbit(value))
			code |= (uint16_t)(1 << (f->exponent + f->mantissa));
		memcpy(p, &code, ref_bytes[type]);
	} else if (type == tuttiFloat32) {
		memcpy(p, &single, 4);
	} else {
		memcpy(p, &value, 8);
	}
}

/* ---- one element ----------------------------------------------------------------------------- */

static double combine_floats(tuttiDataType_t type, tuttiRedOp_t op, double a, double b)
{
	/* volatile: rounded after every operation */
	volatile float fa = (float)a, fb = (float)b, f;
	volatile double d;

	switch (op) {
	case tuttiSum:
		f = fa + fb;
		d = a + b;
		return type == tuttiFloat64 ? d : f;
	case tuttiProd:
		f = fa * fb;
		d = a * b;
		return type == tuttiFloat64 ? d : f;
	default:
		break;
	}
	if (isnan(a) || isnan(b))
		return NAN;
	if (a == b)
		return (op == tuttiMin) == !!signbit(a) ? a : b;
	return (a < b) == (op == tuttiMin) ? a : b;
}

bool ref_is_signed(tuttiDataType_t type)
{
	return type == tuttiInt8 || type == tuttiInt32 || type == tuttiInt64;
}

uint64_t ref_combine(tuttiDataType_t type, int op, uint64_t a, uint64_t b)
{
	bool less = ref_is_signed(type) ? (int64_t)a < (int64_t)b : a < b;

	switch (op) {
	case tuttiProd:
		return a * b;
	case tuttiMin:
		return less ? a : b;
	case tuttiMax:
		return less ? b : a;
	case tuttiBand:
		return a & b;
	case tuttiBor:
		return a | b;
	case tuttiBxor:
		return a ^ b;
	default:
		return a + b;
	}
}

uint64_t ref_integer(tuttiDataType_t type, const void *p)
{
	uint64_t bits = 0;

	memcpy(&bits, p, ref_bytes[type]);
	if (type == tuttiInt8)
		return (uint64_t)(int64_t)(int8_t)bits;
	return type == tuttiInt32 ? (uint64_t)(int64_t)(int32_t)bits : bits;
}

bool ref_defined(tuttiDataType_t type, tuttiRedOp_t op)
{
	return op < tuttiBand || type <= tuttiUint64;
}

void ref_reduce(tuttiDataType_t type, tuttiRedOp_t op, void *dst, const void *const *src, int nsrc,
		size_t i)
{
	size_t at = i * ref_bytes[type];
	uint64_t bits = 0;
	double value = 0;

	for (int s = 0; s < nsrc; s++) {
		const char *p = (const char *)src[s] + at;

		if (type <= tuttiUint64)
			bits = s ? ref_combine(type, op, bits, ref_integer(type, p))
				 : ref_integer(type, p);
		else
			value = s ? combine_floats(type, op, value, ref_get(type, p))
				  : ref_get(type, p);
	}
	if (type <= tuttiUint64)
		memcpy((char *)dst + at, &bits, ref_bytes[type]);
	else
		ref_set(type, (char *)dst + at, value);
}

bool ref_same(tuttiDataType_t type, const void *a, const void *b)
{
	return !memcmp(a, b, ref_bytes[type]) ||
	       (type > tuttiUint64 && isnan(ref_get(type, a)) && isnan(ref_get(type, b)));
}

void ref_fill(tuttiDataType_t type, void *p, size_t count, uint64_t seed)
{
	static const double special[] = { 0.0,	   -0.0,	 1,
					  -1,	   INFINITY,	 -INFINITY,
					  NAN,	   448,		 -57344,
					  65504,   3.4028235e38, 1.1754944e-38,
					  1.4e-45, -5e-324,	 1.7976931348623157e308,
					  0x1p-14, 0x1p-24 };

	for (size_t i = 0; i < count; i++) {
		uint64_t random = random_of(seed, i);
		char *at = (char *)p + i * ref_bytes[type];

		if (type <= tuttiUint64 || random % 4 < 2) {
			random = random_of(seed + 1000003, i);
			memcpy(at, &random, ref_bytes[type]);
		} else if (random % 4 == 2) {
			ref_set(type, at, (double)(int64_t)(random >> 8 & 0xfffff) / 0x40000 - 2);
		} else {
			ref_set(type, at,
				special[(random >> 8) % (sizeof(special) / sizeof(special[0]))]);
		}
	}
}
