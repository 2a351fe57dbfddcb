/*
 * reduce_kernels.h - every kernel, type x op, of one instruction set: the body of reduce_{scalar,avx2,avx512}.c
 *
 * The idea: `loop` below is the only loop. It moves vectors of W bytes, whatever the type; type, op and (for two
 * sources) nsrc are constants where it is inlined, so each kernel is what is left of it after folding.
 *
 * The same bits everywhere, because
 * - small floats are unpacked to float in place, without moving lanes: of a 32-bit lane, part 0 is the low element,
 *   part 1 the next; packing puts them back. An element is computed from its own operands, in operand order.
 * - rounding to a small type is integer arithmetic (F16C gives the same bits), and a NaN result is replaced by the
 *   one NaN of its type, since which operand's NaN an addition passes on depends on the compiler.
 * - there is no multiply-add to contract, and contraction is off.
 */
/* ---- from memory's form to the operands' and back -------------------------------------------------------------- */

INLINE struct acc widen_bytes(u32v raw, const struct tt_small_float *f)
{
	return (struct acc){ small_widen(raw & 0xff, f), small_widen((raw >> 8) & 0xff, f),
			     small_widen((raw >> 16) & 0xff, f), small_widen(raw >> 24, f) };
}

INLINE u32v narrow_bytes(struct acc x, const struct tt_small_float *f)
{
	return small_narrow(x.a, f) | small_narrow(x.b, f) << 8 | small_narrow(x.c, f) << 16 |
	       small_narrow(x.d, f) << 24;
}

INLINE int parts(tuttiDataType_t type)
{
	switch (type) {
	case tuttiFloat16:
	case tuttiBfloat16:
		return 2;
	case tuttiFloat8e4m3:
	case tuttiFloat8e5m2:
		return 4;
	default:
		return 1;
	}
}

INLINE struct acc widen(tuttiDataType_t type, u32v raw)
{
	switch (type) {
	case tuttiFloat16:
		return half_widen(raw);
	case tuttiBfloat16:
		return (struct acc){ .a = raw << 16, .b = raw & 0xffff0000u };
	case tuttiFloat8e4m3:
		return widen_bytes(raw, &tt_float8e4m3);
	case tuttiFloat8e5m2:
		return widen_bytes(raw, &tt_float8e5m2);
	default:
		return (struct acc){ .a = raw };
	}
}

INLINE u32v narrow(tuttiDataType_t type, struct acc x)
{
	switch (type) {
	case tuttiFloat16:
		return half_narrow((struct acc){ .a = float_quiet(x.a), .b = float_quiet(x.b) });
	case tuttiBfloat16:
		return (bfloat_round(x.a) >> 16) | (bfloat_round(x.b) & 0xffff0000u);
	case tuttiFloat8e4m3:
		return narrow_bytes(x, &tt_float8e4m3);
	case tuttiFloat8e5m2:
		return narrow_bytes(x, &tt_float8e5m2);
	case tuttiFloat32:
		return float_quiet(x.a);
	case tuttiFloat64:
		return double_quiet(x.a);
	default:
		return x.a;
	}
}

/* ---- two operands to one --------------------------------------------------------------------------------------- */

/* ORDER is the type that compares, WRAP its unsigned twin: sums and products wrap. */
#define INTEGER(name, ORDER, WRAP)                                                           \
	INLINE u32v combine_##name(tuttiRedOp_t op, u32v x, u32v y)                          \
	{                                                                                    \
		switch (op) {                                                                \
		case tuttiSum:                                                               \
			return (u32v)((WRAP)x + (WRAP)y);                                    \
		case tuttiProd:                                                              \
			return (u32v)((WRAP)x * (WRAP)y);                                    \
		case tuttiMin:                                                               \
			return choose((i32v)((ORDER)x < (ORDER)y), x, y);                    \
		case tuttiMax:                                                               \
			return choose((i32v)((ORDER)x > (ORDER)y), x, y);                    \
		case tuttiBand:                                                              \
			return x & y;                                                        \
		case tuttiBor:                                                               \
			return x | y;                                                        \
		default:                                                                     \
			return x ^ y;                                                        \
		}                                                                            \
	}
INTEGER(int8, i8v, u8v)
INTEGER(uint8, u8v, u8v)
INTEGER(int32, i32v, u32v)
INTEGER(uint32, u32v, u32v)
INTEGER(int64, i64v, u64v)
INTEGER(uint64, u64v, u64v)

/* When neither operand is less, both are equal or one is a NaN. Then x | y is right for min: it is x = y, or -0 of two
 * zeros, or a NaN. For max it is so too except that max(-0, +0) = +0. */
#define FLOATING(name, V)                                                                    \
	INLINE u32v combine_##name(tuttiRedOp_t op, u32v x, u32v y)                          \
	{                                                                                    \
		u32v less = (u32v)((V)x < (V)y), more = (u32v)((V)x > (V)y);                 \
											     \
		switch (op) {                                                                \
		case tuttiSum:                                                               \
			return (u32v)((V)x + (V)y);                                          \
		case tuttiProd:                                                              \
			return (u32v)((V)x * (V)y);                                          \
		case tuttiMin:                                                               \
			return (x & ~more) | (y & ~less);                                    \
		default:                                                                     \
			return choose((i32v)((V)x == (V)y), x & y,                           \
				      (x & ~less) | (y & ~more));                            \
		}                                                                            \
	}
FLOATING(float, f32v)
FLOATING(double, f64v)

INLINE u32v combine_part(tuttiDataType_t type, tuttiRedOp_t op, u32v x, u32v y)
{
	switch (type) {
	case tuttiInt8:
		return combine_int8(op, x, y);
	case tuttiUint8:
		return combine_uint8(op, x, y);
	case tuttiInt32:
		return combine_int32(op, x, y);
	case tuttiUint32:
		return combine_uint32(op, x, y);
	case tuttiInt64:
		return combine_int64(op, x, y);
	case tuttiUint64:
		return combine_uint64(op, x, y);
	case tuttiFloat64:
		return combine_double(op, x, y);
	default:
		return combine_float(op, x, y);
	}
}

INLINE struct acc combine(tuttiDataType_t type, tuttiRedOp_t op, struct acc x, struct acc y)
{
	struct acc r = { .a = combine_part(type, op, x.a, y.a) };

	if (parts(type) > 1)
		r.b = combine_part(type, op, x.b, y.b);
	if (parts(type) > 2) {
		r.c = combine_part(type, op, x.c, y.c);
		r.d = combine_part(type, op, x.d, y.d);
	}
	return r;
}

/* ---- the loop -------------------------------------------------------------------------------------------------- */

INLINE struct acc load_wide(tuttiDataType_t type, const unsigned char *p)
{
	return widen(type, load(p));
}

INLINE void put(unsigned char *dst, unsigned char *dst2, size_t at, u32v v)
{
	store(dst + at, v);
	if (dst2)
		store(dst2 + at, v);
}

/* Combines the sources' vectors at byte `at`; all loads of a vector come before its store, so dst may be a source. */
INLINE void one_vector(tuttiDataType_t type, tuttiRedOp_t op, unsigned char *dst, unsigned char *dst2,
		       const unsigned char *const *src, int nsrc, size_t at)
{
	struct acc x = load_wide(type, src[0] + at);

	for (int s = 1; s < nsrc; s++)
		x = combine(type, op, x, load_wide(type, src[s] + at));
	put(dst, dst2, at, narrow(type, x));
}

INLINE void four_vectors(tuttiDataType_t type, tuttiRedOp_t op, unsigned char *dst, unsigned char *dst2,
			 const unsigned char *const *src, int nsrc, size_t at)
{
	const unsigned char *p = src[0] + at;
	struct acc x0 = load_wide(type, p), x1 = load_wide(type, p + W);
	struct acc x2 = load_wide(type, p + 2 * W), x3 = load_wide(type, p + 3 * W);

	for (int s = 1; s < nsrc; s++) {
		p = src[s] + at;
		x0 = combine(type, op, x0, load_wide(type, p));
		x1 = combine(type, op, x1, load_wide(type, p + W));
		x2 = combine(type, op, x2, load_wide(type, p + 2 * W));
		x3 = combine(type, op, x3, load_wide(type, p + 3 * W));
	}
	put(dst, dst2, at, narrow(type, x0));
	put(dst, dst2, at + W, narrow(type, x1));
	put(dst, dst2, at + 2 * W, narrow(type, x2));
	put(dst, dst2, at + 3 * W, narrow(type, x3));
}

/* Fewer than W bytes at the end: the rest of the vector is zero, which no op minds. */
INLINE void part_vector(tuttiDataType_t type, tuttiRedOp_t op, unsigned char *dst, unsigned char *dst2,
			const unsigned char *const *src, int nsrc, size_t at, size_t bytes)
{
	struct acc x = widen(type, load_part(src[0] + at, bytes));
	u32v v;

	for (int s = 1; s < nsrc; s++)
		x = combine(type, op, x, widen(type, load_part(src[s] + at, bytes)));
	v = narrow(type, x);
	store_part(dst + at, v, bytes);
	if (dst2)
		store_part(dst2 + at, v, bytes);
}

INLINE void loop(tuttiDataType_t type, tuttiRedOp_t op, unsigned char *dst, unsigned char *dst2,
		 const unsigned char *const *src, int nsrc, size_t bytes)
{
	size_t at = 0;

	if (parts(type) < 4)              /* 8-bit floats would run out of registers */
		for (; bytes - at >= 4 * W; at += 4 * W)
			four_vectors(type, op, dst, dst2, src, nsrc, at);
	for (; bytes - at >= W; at += W)
		one_vector(type, op, dst, dst2, src, nsrc, at);
	if (at < bytes)
		part_vector(type, op, dst, dst2, src, nsrc, at, bytes - at);
}

/* With two sources their addresses stay in registers; that is the case most plans are made of. */
#define KERNEL(type, op, element)                                                                          \
	static void kernel_##op##_##type(void *dst, void *dst2, const void *const *src, int nsrc, size_t count) \
	{                                                                                                  \
		if (nsrc == 2) {                                                                           \
			const unsigned char *two[2] = { src[0], src[1] };                                  \
											                   \
			loop(tutti##type, tutti##op, dst, dst2, two, 2, count * (element));                \
		} else {                                                                                   \
			loop(tutti##type, tutti##op, dst, dst2, (const unsigned char *const *)src, nsrc,   \
			     count * (element));                                                           \
		}                                                                                          \
	}

#define KERNEL_BOTH(type, element) KERNEL(type, Min, element) KERNEL(type, Max, element)
#define KERNEL_FLOAT(type, element) \
	KERNEL(type, Sum, element) KERNEL(type, Prod, element) KERNEL_BOTH(type, element)
#define KERNEL_WRAP(type, element)                                                                         \
	KERNEL(type, Sum, element) KERNEL(type, Prod, element) KERNEL(type, Band, element)                 \
	KERNEL(type, Bor, element) KERNEL(type, Bxor, element) KERNEL_BOTH(type, element)

KERNEL_WRAP(Uint8, 1)
KERNEL_WRAP(Uint32, 4)
KERNEL_WRAP(Uint64, 8)
KERNEL_BOTH(Int8, 1)
KERNEL_BOTH(Int32, 4)
KERNEL_BOTH(Int64, 8)
KERNEL_FLOAT(Float16, 2)
KERNEL_FLOAT(Bfloat16, 2)
KERNEL_FLOAT(Float32, 4)
KERNEL_FLOAT(Float64, 8)
KERNEL_FLOAT(Float8e4m3, 1)
KERNEL_FLOAT(Float8e5m2, 1)

/* ---- one operand and a number ---------------------------------------------------------------------------------- */

INLINE u32v scale_part(tuttiDataType_t type, bool divide, u32v x, double value)
{
	f64v doubles = value - (f64v){ 0 };
	f32v floats = (float)value - (f32v){ 0 };

	if (type == tuttiFloat64)
		return (u32v)(divide ? (f64v)x / doubles : (f64v)x * doubles);
	return (u32v)(divide ? (f32v)x / floats : (f32v)x * floats);
}

INLINE u32v scale_vector(tuttiDataType_t type, bool divide, u32v raw, double value)
{
	struct acc x = widen(type, raw);

	x.a = scale_part(type, divide, x.a, value);
	if (parts(type) > 1)
		x.b = scale_part(type, divide, x.b, value);
	if (parts(type) > 2) {
		x.c = scale_part(type, divide, x.c, value);
		x.d = scale_part(type, divide, x.d, value);
	}
	return narrow(type, x);
}

INLINE void scale_loop(tuttiDataType_t type, bool divide, unsigned char *dst, const unsigned char *src, double value,
		       size_t bytes)
{
	size_t at = 0;

	for (; bytes - at >= W; at += W)
		store(dst + at, scale_vector(type, divide, load(src + at), value));
	if (at < bytes)
		store_part(dst + at, scale_vector(type, divide, load_part(src + at, bytes - at), value), bytes - at);
}

#define SCALE(type, element)                                                                               \
	static void scale_##type(void *dst, const void *src, double value, size_t count)                   \
	{                                                                                                  \
		scale_loop(tutti##type, false, dst, src, value, count * (element));                        \
	}                                                                                                  \
	static void divide_##type(void *dst, const void *src, double value, size_t count)                  \
	{                                                                                                  \
		scale_loop(tutti##type, true, dst, src, value, count * (element));                         \
	}

SCALE(Float16, 2)
SCALE(Bfloat16, 2)
SCALE(Float32, 4)
SCALE(Float64, 8)
SCALE(Float8e4m3, 1)
SCALE(Float8e5m2, 1)

/* ---- the table ------------------------------------------------------------------------------------------------- */

/* Signed and unsigned differ in min and max only. */
#define ROW_INTEGER(type, wrap)                                                                            \
	.kernel[tutti##type] = { [tuttiSum] = kernel_Sum_##wrap, [tuttiProd] = kernel_Prod_##wrap,         \
				 [tuttiBand] = kernel_Band_##wrap, [tuttiBor] = kernel_Bor_##wrap,         \
				 [tuttiBxor] = kernel_Bxor_##wrap, [tuttiMin] = kernel_Min_##type,         \
				 [tuttiMax] = kernel_Max_##type }
#define ROW_FLOAT(type)                                                                                    \
	.scale[tutti##type] = scale_##type, .divide[tutti##type] = divide_##type,                          \
	.kernel[tutti##type] = { [tuttiSum] = kernel_Sum_##type, [tuttiProd] = kernel_Prod_##type,         \
				 [tuttiMin] = kernel_Min_##type, [tuttiMax] = kernel_Max_##type }

#define REDUCE_ISA(text)                                                                                   \
	{                                                                                                  \
		.name = text,                                                                              \
		ROW_INTEGER(Int8, Uint8),                                                                  \
		ROW_INTEGER(Uint8, Uint8),                                                                 \
		ROW_INTEGER(Int32, Uint32),                                                                \
		ROW_INTEGER(Uint32, Uint32),                                                               \
		ROW_INTEGER(Int64, Uint64),                                                                \
		ROW_INTEGER(Uint64, Uint64),                                                               \
		ROW_FLOAT(Float16),                                                                        \
		ROW_FLOAT(Bfloat16),                                                                       \
		ROW_FLOAT(Float32),                                                                        \
		ROW_FLOAT(Float64),                                                                        \
		ROW_FLOAT(Float8e4m3),                                                                     \
		ROW_FLOAT(Float8e5m2),                                                                     \
	}
