/*
 * reduce_loop.h - the reduction loop for one type: included by reduce_kernels.h once per TYPE
 *
 * Defined before and undefined here: TYPE (Int8 ...), BYTES of an element, PARTS of struct acc in
 * use, KERNELS (kernels to generate). Needs widen_TYPE, narrow_TYPE and combine_TYPE. op and, for
 * two sources, nsrc are constants wherever `loop` is inlined, so constant folding specializes each
 * kernel.
 */
#define PASTE2(a, b) a##_##b
#define PASTE(a, b) PASTE2(a, b)
#define OF(name) PASTE(name, TYPE)

INLINE struct acc OF(load)(const unsigned char *p)
{
	return OF(widen)(load(p));
}

INLINE struct acc OF(fold)(tuttiRedOp_t op, struct acc x, struct acc y)
{
	struct acc r = { .a = OF(combine)(op, x.a, y.a) };

#if PARTS > 1
	r.b = OF(combine)(op, x.b, y.b);
#endif
#if PARTS > 2
	r.c = OF(combine)(op, x.c, y.c);
	r.d = OF(combine)(op, x.d, y.d);
#endif
	return r;
}

INLINE void OF(four_vectors)(tuttiRedOp_t op, unsigned char *dst, unsigned char *dst2,
			     const unsigned char *const *src, int nsrc, size_t at)
{
	const unsigned char *p = src[0] + at;
	struct acc x0 = OF(load)(p), x1 = OF(load)(p + W), x2 = OF(load)(p + 2 * W),
		   x3 = OF(load)(p + 3 * W);

	for (int s = 1; s < nsrc; s++) {
		p = src[s] + at;
		x0 = OF(fold)(op, x0, OF(load)(p));
		x1 = OF(fold)(op, x1, OF(load)(p + W));
		x2 = OF(fold)(op, x2, OF(load)(p + 2 * W));
		x3 = OF(fold)(op, x3, OF(load)(p + 3 * W));
	}
	put(dst, dst2, at, OF(narrow)(x0));
	put(dst, dst2, at + W, OF(narrow)(x1));
	put(dst, dst2, at + 2 * W, OF(narrow)(x2));
	put(dst, dst2, at + 3 * W, OF(narrow)(x3));
}

/* Up to W bytes. The rest of a shorter vector is zero, which is harmless for every op. */
INLINE void OF(one_vector)(tuttiRedOp_t op, unsigned char *dst, unsigned char *dst2,
			   const unsigned char *const *src, int nsrc, size_t at, size_t bytes)
{
	struct acc x = OF(widen)(load_up_to(src[0] + at, bytes));
	u32v v;

	for (int s = 1; s < nsrc; s++)
		x = OF(fold)(op, x, OF(widen)(load_up_to(src[s] + at, bytes)));
	v = OF(narrow)(x);
	store_up_to(dst + at, v, bytes);
	if (dst2)
		store_up_to(dst2 + at, v, bytes);
}

/* All loads of a vector precede its store, so dst may be a source. */
INLINE void OF(loop)(tuttiRedOp_t op, unsigned char *dst, unsigned char *dst2,
		     const unsigned char *const *src, int nsrc, size_t bytes)
{
	size_t at = 0;

	if (PARTS < 4) /* 8-bit floats (4 parts) would need too many registers */
		for (; bytes - at >= 4 * W; at += 4 * W)
			OF(four_vectors)(op, dst, dst2, src, nsrc, at);
	for (; at < bytes; at += W)
		OF(one_vector)(op, dst, dst2, src, nsrc, at, bytes - at);
}

/* dst = src op value, for float types; operands are doubles (8-byte elements) or floats. */
INLINE void OF(scale_loop)(tuttiRedOp_t op, unsigned char *dst, const unsigned char *src,
			   double value, size_t bytes)
{
	u32v y = BYTES == 8 ? (u32v)(value - (f64v){ 0 }) : (u32v)((float)value - (f32v){ 0 });

	for (size_t at = 0; at < bytes; at += W) {
		struct acc x = OF(fold)(op, OF(widen)(load_up_to(src + at, bytes - at)),
					(struct acc){ y, y, y, y });

		store_up_to(dst + at, OF(narrow)(x), bytes - at);
	}
}

/* Two sources, the most common case, have a loop that keeps both addresses in registers. */
#define KERNEL(op)                                                                           \
	static void OF(kernel_##op)(void *dst, void *dst2, const void *const *src, int nsrc, \
				    size_t count)                                            \
	{                                                                                    \
		const unsigned char *const two[2] = { src[0], src[1] };                      \
		const unsigned char *const *many = (const unsigned char *const *)src;        \
                                                                                             \
		if (nsrc == 2 && PARTS < 4)                                                  \
			OF(loop)(tutti##op, dst, dst2, two, 2, count * BYTES);               \
		else                                                                         \
			OF(loop)(tutti##op, dst, dst2, many, nsrc, count * BYTES);           \
	}
#define SCALE(name, op)                                                              \
	static void OF(name)(void *dst, const void *src, double value, size_t count) \
	{                                                                            \
		OF(scale_loop)(op, dst, src, value, count * BYTES);                  \
	}
KERNELS

#undef PASTE2
#undef PASTE
#undef OF
#undef KERNEL
#undef SCALE
#undef TYPE
#undef BYTES
#undef PARTS
#undef KERNELS
