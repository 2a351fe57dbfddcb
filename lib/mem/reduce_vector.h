/*
 * reduce_vector.h - vectors of W bytes by compiler extensions, and conversions of small floats
 *
 * Included by reduce_{scalar,avx2,avx512}.c, which define W before, under their own instruction
 * set. A file with HAVE_BYTE_MASKS then defines load_part and store_part, a file with HAVE_F16C
 * half_widen and half_narrow; each then includes reduce_kernels.h.
 */
#include "mem/reduce_types.h"

#include <endian.h>
#include <string.h>

#ifdef __FAST_MATH__
#error "the kernels promise bits: build without -ffast-math"
#endif

#define INLINE static inline __attribute__((always_inline))

typedef uint8_t u8v __attribute__((vector_size(W)));
typedef int8_t i8v __attribute__((vector_size(W)));
typedef uint32_t u32v __attribute__((vector_size(W)));
typedef int32_t i32v __attribute__((vector_size(W)));
typedef uint64_t u64v __attribute__((vector_size(W)));
typedef int64_t i64v __attribute__((vector_size(W)));
typedef float f32v __attribute__((vector_size(W)));
typedef double f64v __attribute__((vector_size(W)));

/* Accumulator of operands: a, or a and b (16-bit floats), or all four (8-bit floats). */
struct acc {
	u32v a, b, c, d;
};

INLINE u32v load(const unsigned char *p)
{
	u32v v;

	memcpy(&v, p, W);
	return v;
}

INLINE void store(unsigned char *p, u32v v)
{
	memcpy(p, &v, W);
}

INLINE u32v choose(i32v mask, u32v yes, u32v no)
{
	return ((u32v)mask & yes) | (~(u32v)mask & no);
}

INLINE u32v splat(uint32_t value)
{
	return value - (u32v){ 0 };
}

#ifndef HAVE_BYTE_MASKS
/* Up to 8 bytes of memory as a word with zeros above: read as two pieces that may overlap. */
static inline uint64_t load_word(const unsigned char *p, size_t bytes)
{
	uint64_t word = 0;
	uint32_t head, tail;
	uint16_t head2, tail2;

	if (bytes >= 8) {
		memcpy(&word, p, 8);
	} else if (bytes >= 4) {
		memcpy(&head, p, 4);
		memcpy(&tail, p + bytes - 4, 4);
		word = htole64(le32toh(head) | (uint64_t)le32toh(tail) << (bytes - 4) * 8);
	} else if (bytes >= 2) {
		memcpy(&head2, p, 2);
		memcpy(&tail2, p + bytes - 2, 2);
		word = htole64(le16toh(head2) | (uint64_t)le16toh(tail2) << (bytes - 2) * 8);
	} else {
		memcpy(&word, p, 1);
	}
	return word;
}

static inline void store_word(unsigned char *p, uint64_t word, size_t bytes)
{
	uint64_t value = le64toh(word);

	if (bytes >= 8) {
		memcpy(p, &word, 8);
	} else if (bytes >= 4) {
		memcpy(p, &(uint32_t){ htole32((uint32_t)value) }, 4);
		memcpy(p + bytes - 4, &(uint32_t){ htole32((uint32_t)(value >> (bytes - 4) * 8)) },
		       4);
	} else if (bytes >= 2) {
		memcpy(p, &(uint16_t){ htole16((uint16_t)value) }, 2);
		memcpy(p + bytes - 2, &(uint16_t){ htole16((uint16_t)(value >> (bytes - 2) * 8)) },
		       2);
	} else {
		memcpy(p, &word, 1);
	}
}

/* 1 .. W - 1 bytes. Assembled from words in registers: a vector load from memory just written in
 * pieces would stall (no store forwarding). */
static __attribute__((noinline)) u32v load_part(const unsigned char *p, size_t bytes)
{
	u64v words = { 0 };

	words[0] = load_word(p, bytes);
	if (bytes > 8)
		words[1] = load_word(p + 8, bytes - 8);
#if W > 16
	if (bytes > 16)
		words[2] = load_word(p + 16, bytes - 16);
	if (bytes > 24)
		words[3] = load_word(p + 24, bytes - 24);
#endif
	return (u32v)words;
}

static __attribute__((noinline)) void store_part(unsigned char *p, u32v v, size_t bytes)
{
	u64v words = (u64v)v;

	store_word(p, words[0], bytes);
	if (bytes > 8)
		store_word(p + 8, words[1], bytes - 8);
#if W > 16
	if (bytes > 16)
		store_word(p + 16, words[2], bytes - 16);
	if (bytes > 24)
		store_word(p + 24, words[3], bytes - 24);
#endif
}
#endif

/* ---- small floats, one to a 32-bit lane ------------------------------------------------------ */

INLINE u32v small_widen(u32v code, const struct tt_small_float *f)
{
	u32v magnitude = code & ((1u << (f->bits - 1)) - 1);
	u32v sign = (code >> (f->bits - 1)) << 31;
	u32v shifted = magnitude << (23 - f->mantissa);
	u32v normal = shifted + ((127 - f->bias) << 23);
	/* exponent 0 means exponent 1 without the leading bit: add the bit, then subtract it */
	u32v least = splat((128 - f->bias) << 23);
	u32v tiny = (u32v)((f32v)(shifted + least) - (f32v)least);

	normal |= (u32v)((i32v)magnitude >= (int32_t)f->special) & 0x7f800000u;
	return sign | choose((i32v)magnitude < (1 << f->mantissa), tiny, normal);
}

INLINE u32v small_narrow(u32v x, const struct tt_small_float *f)
{
	unsigned cut = 23 - f->mantissa;
	u32v magnitude = x & 0x7fffffffu;
	u32v sign = (x & 0x80000000u) >> (32 - f->bits);
	u32v rounded = magnitude + ((1u << (cut - 1)) - 1) + ((magnitude >> cut) & 1);
	u32v normal = (rounded >> cut) - ((127 - f->bias) << f->mantissa);
	/* the hardware rounds to the format's least step when a float with that step in its last
	 * bit is added */
	u32v step = splat((151 - f->bias - f->mantissa) << 23);
	u32v tiny = (u32v)((f32v)magnitude + (f32v)step) - step;
	u32v code = choose((i32v)magnitude < (int32_t)((128 - f->bias) << 23), tiny, normal);

	code = choose((i32v)code > (int32_t)f->biggest, splat(f->biggest), code);
	code = choose((i32v)magnitude == 0x7f800000, splat(f->infinity), code);
	return choose((i32v)magnitude > 0x7f800000, splat(f->nan), sign | code);
}

INLINE u32v float_quiet(u32v x)
{
	return choose((f32v)x == (f32v)x, x, splat(0x7fc00000));
}

#ifndef HAVE_F16C
INLINE struct acc half_widen(u32v raw)
{
	return (struct acc){ .a = small_widen(raw & 0xffff, &tt_float16),
			     .b = small_widen(raw >> 16, &tt_float16) };
}

INLINE u32v half_narrow(struct acc x)
{
	return small_narrow(x.a, &tt_float16) | small_narrow(x.b, &tt_float16) << 16;
}
#endif
