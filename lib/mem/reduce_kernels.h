/*
 * reduce_kernels.h - all kernels, type x op, of one instruction set: the body of
 * reduce_{scalar,avx2,avx512}.c
 *
 * Defines the conversion of elements to operands, the combination of two operands, and the table of
 * kernels. The loop is in reduce_loop.h. All instruction sets give the same bits, because
 * - small floats are unpacked to float in place, without moving lanes: of a 32-bit lane, part a is
 *   the low element, part b the next; packing reverses that. An element is computed from its own
 *   operands, in operand order;
 * - rounding to a small type is integer arithmetic (F16C gives the same bits), and a NaN result is
 *   replaced by the canonical NaN of its type, since the compiler decides whose NaN an addition
 *   returns;
 * - no expression can be contracted to a multiply-add, and contraction is off.
 */

/* ---- memory ---------------------------------------------------------------------------------- */

INLINE u32v load_up_to(const unsigned char *p, size_t bytes)
{
	return bytes < W ? load_part(p, bytes) : load(p);
}

INLINE void store_up_to(unsigned char *p, u32v v, size_t bytes)
{
	if (bytes < W)
		store_part(p, v, bytes);
	else
		store(p, v);
}

INLINE void put(unsigned char *dst, unsigned char *dst2, size_t at, u32v v)
{
	store(dst + at, v);
	if (dst2)
		store(dst2 + at, v);
}

/* ---- elements to operands and back ----------------------------------------------------------- */

INLINE struct acc widen_whole(u32v raw)
{
	return (struct acc){ .a = raw };
}

INLINE u32v narrow_whole(struct acc x)
{
	return x.a;
}

#define widen_Int8 widen_whole
#define widen_Uint8 widen_whole
#define widen_Int32 widen_whole
#define widen_Uint32 widen_whole
#define widen_Int64 widen_whole
#define widen_Uint64 widen_whole
#define widen_Float32 widen_whole
#define widen_Float64 widen_whole
#define narrow_Int8 narrow_whole
#define narrow_Uint8 narrow_whole
#define narrow_Int32 narrow_whole
#define narrow_Uint32 narrow_whole
#define narrow_Int64 narrow_whole
#define narrow_Uint64 narrow_whole

INLINE u32v narrow_Float32(struct acc x)
{
	return float_quiet(x.a);
}

INLINE u32v narrow_Float64(struct acc x)
{
	u64v nan = 0x7ff8000000000000u - (u64v){ 0 };

	return choose((i32v)((f64v)x.a == (f64v)x.a), x.a, (u32v)nan);
}

INLINE struct acc widen_Float16(u32v raw)
{
	return half_widen(raw);
}

INLINE u32v narrow_Float16(struct acc x)
{
	return half_narrow((struct acc){ .a = float_quiet(x.a), .b = float_quiet(x.b) });
}

INLINE struct acc widen_Bfloat16(u32v raw)
{
	return (struct acc){ .a = raw << 16, .b = raw & 0xffff0000u };
}

/* Rounds to nearest even in the upper half. The canonical NaN has no bits that could carry. */
INLINE u32v bfloat_round(u32v x)
{
	x = float_quiet(x);
	return x + 0x7fff + ((x >> 16) & 1);
}

INLINE u32v narrow_Bfloat16(struct acc x)
{
	return (bfloat_round(x.a) >> 16) | (bfloat_round(x.b) & 0xffff0000u);
}

#define FLOAT8(type, format)                                                              \
	INLINE struct acc widen_##type(u32v raw)                                          \
	{                                                                                 \
		return (struct acc){ small_widen(raw & 0xff, format),                     \
				     small_widen((raw >> 8) & 0xff, format),              \
				     small_widen((raw >> 16) & 0xff, format),             \
				     small_widen(raw >> 24, format) };                    \
	}                                                                                 \
	INLINE u32v narrow_##type(struct acc x)                                           \
	{                                                                                 \
		return small_narrow(x.a, format) | small_narrow(x.b, format) << 8 |       \
		       small_narrow(x.c, format) << 16 | small_narrow(x.d, format) << 24; \
	}
FLOAT8(Float8e4m3, &tt_float8e4m3)
FLOAT8(Float8e5m2, &tt_float8e5m2)

/* ---- two operands to one --------------------------------------------------------------------- */

#define DIVIDE tuttiNumOps /* an op beyond those of the public header */

/* V: type for comparisons; WRAP: its unsigned type, since sums and products wrap. */
#define INTEGER(name, V, WRAP)                                      \
	INLINE u32v combine_##name(tuttiRedOp_t op, u32v x, u32v y) \
	{                                                           \
		switch (op) {                                       \
		case tuttiSum:                                      \
			return (u32v)((WRAP)x + (WRAP)y);           \
		case tuttiProd:                                     \
			return (u32v)((WRAP)x * (WRAP)y);           \
		case tuttiMin:                                      \
			return choose((i32v)((V)x < (V)y), x, y);   \
		case tuttiMax:                                      \
			return choose((i32v)((V)x > (V)y), x, y);   \
		case tuttiBand:                                     \
			return x & y;                               \
		case tuttiBor:                                      \
			return x | y;                               \
		default:                                            \
			return x ^ y;                               \
		}                                                   \
	}
INTEGER(Int8, i8v, u8v)
INTEGER(Uint8, u8v, u8v)
INTEGER(Int32, i32v, u32v)
INTEGER(Uint32, u32v, u32v)
INTEGER(Int64, i64v, u64v)
INTEGER(Uint64, u64v, u64v)

/* If neither operand is less, both are equal or one is a NaN. Then min is x | y: x = y, or -0 of
 * two zeros, or a NaN. For max the same holds except max(-0, +0) = +0, so equal operands
 * give x & y. */
#define FLOATING(name, V)                                                                      \
	INLINE u32v combine_##name(tuttiRedOp_t op, u32v x, u32v y)                            \
	{                                                                                      \
		u32v less = (u32v)((V)x < (V)y), more = (u32v)((V)x > (V)y);                   \
                                                                                               \
		switch (op) {                                                                  \
		case tuttiSum:                                                                 \
			return (u32v)((V)x + (V)y);                                            \
		case tuttiProd:                                                                \
			return (u32v)((V)x * (V)y);                                            \
		case DIVIDE:                                                                   \
			return (u32v)((V)x / (V)y);                                            \
		case tuttiMin:                                                                 \
			return (x & ~more) | (y & ~less);                                      \
		default:                                                                       \
			return choose((i32v)((V)x == (V)y), x & y, (x & ~less) | (y & ~more)); \
		}                                                                              \
	}
FLOATING(Float32, f32v)
FLOATING(Float64, f64v)

#define combine_Float16 combine_Float32
#define combine_Bfloat16 combine_Float32
#define combine_Float8e4m3 combine_Float32
#define combine_Float8e5m2 combine_Float32

/* ---- the kernels ----------------------------------------------------------------------------- */

#define ORDER KERNEL(Min) KERNEL(Max)
#define WHOLE ORDER KERNEL(Sum) KERNEL(Prod) KERNEL(Band) KERNEL(Bor) KERNEL(Bxor)
#define FLOAT ORDER KERNEL(Sum) KERNEL(Prod) SCALE(scale, tuttiProd) SCALE(divide, DIVIDE)

#define TYPE Int8
#define BYTES 1
#define PARTS 1
#define KERNELS ORDER
#include "mem/reduce_loop.h"

#define TYPE Uint8
#define BYTES 1
#define PARTS 1
#define KERNELS WHOLE
#include "mem/reduce_loop.h"

#define TYPE Int32
#define BYTES 4
#define PARTS 1
#define KERNELS ORDER
#include "mem/reduce_loop.h"

#define TYPE Uint32
#define BYTES 4
#define PARTS 1
#define KERNELS WHOLE
#include "mem/reduce_loop.h"

#define TYPE Int64
#define BYTES 8
#define PARTS 1
#define KERNELS ORDER
#include "mem/reduce_loop.h"

#define TYPE Uint64
#define BYTES 8
#define PARTS 1
#define KERNELS WHOLE
#include "mem/reduce_loop.h"

#define TYPE Float16
#define BYTES 2
#define PARTS 2
#define KERNELS FLOAT
#include "mem/reduce_loop.h"

#define TYPE Bfloat16
#define BYTES 2
#define PARTS 2
#define KERNELS FLOAT
#include "mem/reduce_loop.h"

#define TYPE Float32
#define BYTES 4
#define PARTS 1
#define KERNELS FLOAT
#include "mem/reduce_loop.h"

#define TYPE Float64
#define BYTES 8
#define PARTS 1
#define KERNELS FLOAT
#include "mem/reduce_loop.h"

#define TYPE Float8e4m3
#define BYTES 1
#define PARTS 4
#define KERNELS FLOAT
#include "mem/reduce_loop.h"

#define TYPE Float8e5m2
#define BYTES 1
#define PARTS 4
#define KERNELS FLOAT
#include "mem/reduce_loop.h"

/* ---- copy ------------------------------------------------------------------------------------ */

/* The first vector and the last ones overlap the aligned ones between them. */
static void copy(void *to, const void *from, size_t bytes)
{
	const unsigned char *src = from;
	unsigned char *dst = to;
	size_t at = W - (uintptr_t)dst % W;

	store(dst, load(src));
	for (; at + 4 * W <= bytes; at += 4 * W) {
		u32v a = load(src + at), b = load(src + at + W), c = load(src + at + 2 * W),
		     d = load(src + at + 3 * W);

		store(dst + at, a);
		store(dst + at + W, b);
		store(dst + at + 2 * W, c);
		store(dst + at + 3 * W, d);
	}
	for (int i = 4; i > 0; i--)
		store(dst + bytes - i * W, load(src + bytes - i * W));
}

/* 256 bytes of each page in turn */
static void copy_interleaved(void *to, const void *from)
{
	for (size_t at = 0; at < TT_INTERLEAVED_PAGE; at += 256)
		for (size_t page = 0; page < TT_INTERLEAVED; page++)
			for (size_t i = page * TT_INTERLEAVED_PAGE + at, end = i + 256; i < end;
			     i += W)
				store((unsigned char *)to + i,
				      load((const unsigned char *)from + i));
}

/* A vector of each page in turn: all loads, then all stores, so that their lines move at once */
static void copy_few(void *to, const void *from)
{
	enum { PAGE = TT_INTERLEAVED_PAGE };
	const unsigned char *p = from, *end = p + PAGE;
	unsigned char *q = to;

	for (; p < end; p += W, q += W) {
		u32v a = load(p), b = load(p + PAGE), c = load(p + 2 * PAGE),
		     d = load(p + 3 * PAGE), e = load(p + 4 * PAGE), f = load(p + 5 * PAGE),
		     g = load(p + 6 * PAGE), h = load(p + 7 * PAGE);

		store(q, a);
		store(q + PAGE, b);
		store(q + 2 * PAGE, c);
		store(q + 3 * PAGE, d);
		store(q + 4 * PAGE, e);
		store(q + 5 * PAGE, f);
		store(q + 6 * PAGE, g);
		store(q + 7 * PAGE, h);
	}
}

/* ---- the table ------------------------------------------------------------------------------- */

/* Signed and unsigned types differ only in min and max. */
#define ROW_INTEGER(type, wrap)                                                     \
	.kernel[tutti##type] = {                                                    \
		[tuttiSum] = kernel_Sum_##wrap,   [tuttiProd] = kernel_Prod_##wrap, \
		[tuttiBand] = kernel_Band_##wrap, [tuttiBor] = kernel_Bor_##wrap,   \
		[tuttiBxor] = kernel_Bxor_##wrap, [tuttiMin] = kernel_Min_##type,   \
		[tuttiMax] = kernel_Max_##type                                      \
	}
#define ROW_FLOAT(type)                                                           \
	.scale[tutti##type] = scale_##type, .divide[tutti##type] = divide_##type, \
	.kernel[tutti##type] = { [tuttiSum] = kernel_Sum_##type,                  \
				 [tuttiProd] = kernel_Prod_##type,                \
				 [tuttiMin] = kernel_Min_##type,                  \
				 [tuttiMax] = kernel_Max_##type }

#define REDUCE_ISA(text)                                                                     \
	{                                                                                    \
		.name = text, .copy = copy, .copy_interleaved = copy_interleaved,            \
		.copy_few = copy_few, ROW_INTEGER(Int8, Uint8), ROW_INTEGER(Uint8, Uint8),   \
		ROW_INTEGER(Int32, Uint32), ROW_INTEGER(Uint32, Uint32),                     \
		ROW_INTEGER(Int64, Uint64), ROW_INTEGER(Uint64, Uint64), ROW_FLOAT(Float16), \
		ROW_FLOAT(Bfloat16), ROW_FLOAT(Float32), ROW_FLOAT(Float64),                 \
		ROW_FLOAT(Float8e4m3), ROW_FLOAT(Float8e5m2),                                \
	}
