/*
 * kernel_combine.h - combine elements and vectors of several sources: included by kernel_type.h for each type
 *
 * op is a constant where `sweep` is inlined, and a variable where few bytes are combined.
 */

/* Combines one element of all sources. v: 8 bytes of each source; shift: position of the element */
DEV RAW OF(element)(int op, const struct combine_task *t, const uint64_t *v, uint32_t limit,
		    uint32_t shift)
{
	VALUE x = 0;

	UNROLL
	for (uint32_t s = 0; s < TT_DEV_RANKS; s++)
		if (s < limit && s < t->nsrc) {
			VALUE y = OF(widen)((RAW)(v[s] >> shift));

			if (op == ADJUSTED && t->flags & TT_DEV_SCALES)
				y = OF(widen)(OF(narrow)(BY(times)(y, t->scale[s])));
			x = s ? BY(fold)(op, x, y) : y;
		}
	if (op == ADJUSTED && t->flags & TT_DEV_DIVIDES)
		x = BY(over)(OF(widen)(OF(narrow)(x)), t->divisor);
	return OF(narrow)(x);
}

/* Combines 8 bytes of all sources. Not unrolled where they are eight elements: the compiler would
 * take minutes. */
DEV uint64_t OF(unit)(int op, const struct combine_task *t, const uint64_t *v, uint32_t limit)
{
	uint64_t r = 0;

	UNROLL_TO(BITS == 8 ? 1 : 4)
	for (uint32_t shift = 0; shift < 64; shift += BITS)
		r |= (uint64_t)OF(element)(op, t, v, limit, shift) << shift;
	return r;
}

/* Combines `deep` vectors of up to `limit` sources at once, so that enough loads are in flight for
 * any number of sources. */
DEV void OF(vectors)(int op, const struct combine_task *t, uint64_t i, uint32_t stride,
		     const uint32_t limit, const uint32_t deep)
{
	uint64_t a[2][TT_DEV_RANKS], b[2][TT_DEV_RANKS];

	UNROLL
	for (uint32_t k = 0; k < deep; k++) {
		UNROLL
		for (uint32_t s = 0; s < limit; s++)
			if (s < t->nsrc) {
				struct pair x = load_pair(
					&((const struct pair *)t->src[s])[i + k * stride]);

				a[k][s] = x.a;
				b[k][s] = x.b;
			}
	}
	UNROLL
	for (uint32_t k = 0; k < deep; k++) {
		struct pair x;

		x.a = OF(unit)(op, t, a[k], limit);
		x.b = OF(unit)(op, t, b[k], limit);
		UNROLL
		for (uint32_t d = 0; d < TT_DEV_RANKS; d++)
			if (d < t->ndst)
				store_pair(&((struct pair *)t->dst[d])[i + k * stride], x);
	}
}

/* Combines element by element: the remainder, and buffers that are not aligned to vectors. */
DEV void OF(elements)(int op, const struct combine_task *t, uint64_t from, uint32_t aligned,
		      uint32_t first, uint32_t stride)
{
	uint64_t v[TT_DEV_RANKS], step = stride * sizeof(RAW);

	for (uint64_t at = from + (uint64_t)first * sizeof(RAW); at < t->bytes; at += step) {
		RAW x;

		UNROLL
		for (uint32_t s = 0; s < TT_DEV_RANKS; s++)
			if (s < t->nsrc)
				v[s] = aligned >= sizeof(RAW)
					       ? *(const RAW *)(t->src[s] + at)
					       : get_bytes(t->src[s] + at, sizeof(RAW));
		x = OF(element)(op, t, v, TT_DEV_RANKS, 0);
		UNROLL
		for (uint32_t d = 0; d < TT_DEV_RANKS; d++)
			if (d < t->ndst) {
				if (aligned >= sizeof(RAW))
					*(RAW *)(t->dst[d] + at) = x;
				else
					put_bytes(t->dst[d] + at, x, sizeof(RAW));
			}
	}
}

/* Combines the first n vectors. */
DEV void OF(sweep)(int op, const struct combine_task *t, uint64_t n, uint64_t i, uint32_t stride)
{
	for (; t->nsrc <= 4 && i + stride < n; i += 2 * (uint64_t)stride)
		OF(vectors)(op, t, i, stride, 4, 2);
	for (; i < n; i += stride)
		OF(vectors)(op, t, i, stride, TT_DEV_RANKS, 1);
}
