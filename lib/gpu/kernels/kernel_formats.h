/*
 * kernel_formats.h - elements to operands and back; the formats are those of lib/mem/reduce_types.h
 *
 * widen_TYPE gives the operand of an element, narrow_TYPE the element of an operand.
 */
#ifndef TT_KERNEL_FORMATS_H
#define TT_KERNEL_FORMATS_H

#include "gpu/kernels/kernel_words.h"

DEV uint32_t quiet(uint32_t x)
{
	return (x & 0x7fffffffu) > 0x7f800000u ? 0x7fc00000u : x;
}

DEV float small_widen(uint32_t code, uint32_t bits, uint32_t mantissa, uint32_t bias,
		      uint32_t special)
{
	uint32_t magnitude = code & ((1u << (bits - 1)) - 1), sign = (code >> (bits - 1)) << 31;
	uint32_t shifted = magnitude << (23 - mantissa), least = (128 - bias) << 23;

	/* a subnormal: add the leading bit as float, then subtract it */
	if (magnitude < 1u << mantissa)
		return float_of(sign | bits_of(float_of(shifted + least) - float_of(least)));
	return float_of(sign | ((shifted + ((127 - bias) << 23)) |
				(magnitude >= special ? 0x7f800000u : 0)));
}

DEV uint32_t small_narrow(float value, uint32_t bits, uint32_t mantissa, uint32_t bias,
			  uint32_t biggest, uint32_t infinity, uint32_t nan)
{
	uint32_t x = bits_of(value), magnitude = x & 0x7fffffffu, cut = 23 - mantissa, code;

	if (magnitude > 0x7f800000u)
		return nan;
	if (magnitude == 0x7f800000u) {
		code = infinity;
	} else if (magnitude < (128 - bias)
				       << 23) { /* the hardware rounds to the format's least step */
		uint32_t step = (151 - bias - mantissa) << 23;

		code = bits_of(float_of(magnitude) + float_of(step)) - step;
	} else {
		code = ((magnitude + ((1u << (cut - 1)) - 1) + ((magnitude >> cut) & 1)) >> cut) -
		       ((127 - bias) << mantissa);
		code = code > biggest ? biggest : code;
	}
	return ((x & 0x80000000u) >> (32 - bits)) | code;
}

#ifdef __CUDACC__
DEV float widen_Float16(uint16_t x)
{
	float f;

	asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(x));
	return f;
}

DEV uint16_t narrow_Float16(float f)
{
	uint16_t x;

	asm("cvt.rn.f16.f32 %0, %1;" : "=h"(x) : "f"(f));
	return (x & 0x7fff) > 0x7c00 ? 0x7e00 : x;
}
#else
DEV float widen_Float16(uint16_t x)
{
	return small_widen(x, 16, 10, 15, 0x7c00);
}
DEV uint16_t narrow_Float16(float f)
{
	return (uint16_t)small_narrow(f, 16, 10, 15, 0x7c00, 0x7c00, 0x7e00);
}
#endif

DEV float widen_Bfloat16(uint16_t x)
{
	return float_of((uint32_t)x << 16);
}
DEV uint16_t narrow_Bfloat16(float f)
{
	uint32_t x = quiet(bits_of(f));

	return (uint16_t)((x + 0x7fff + ((x >> 16) & 1)) >> 16);
}

DEV float widen_Float8e4m3(uint8_t x)
{
	return small_widen(x, 8, 3, 7, 0x7f);
}
DEV uint8_t narrow_Float8e4m3(float f)
{
	return (uint8_t)small_narrow(f, 8, 3, 7, 0x7e, 0x7e, 0x7f);
}
DEV float widen_Float8e5m2(uint8_t x)
{
	return small_widen(x, 8, 2, 15, 0x7c);
}
DEV uint8_t narrow_Float8e5m2(float f)
{
	return (uint8_t)small_narrow(f, 8, 2, 15, 0x7b, 0x7c, 0x7f);
}
DEV float widen_Float32(uint32_t x)
{
	return float_of(x);
}
DEV uint32_t narrow_Float32(float f)
{
	return quiet(bits_of(f));
}
DEV double widen_Float64(uint64_t x)
{
	return double_of(x);
}
DEV uint64_t narrow_Float64(double f)
{
	return f == f ? bits_of_double(f) : 0x7ff8000000000000u;
}

#endif
