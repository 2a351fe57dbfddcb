/*
 * kernel_combine.h - combine elements and vectors of several sources: included by kernel_type.h for each type
 *
 * op is a constant where `sweep` is inlined, and a variable where few bytes are combined.
 */

/* Combines one element of nsrc sources, at most `limit`. v: 8 bytes of each source; shift: position of
 * the element */
DEV RAW OF(element)(int op, const struct combine_task *t, uint32_t nsrc, const uint64_t *v,
		    uint32_t limit, uint32_t shift)
{
	VALUE x = 0;

	UNROLL
	for (uint32_t s = 0; s < TT_DEV_RANKS; s++)
		if (s < limit && s < nsrc) {
			VALUE y = OF(widen)((RAW)(v[s] >> shift));

			if (op == ADJUSTED && t->flags & TT_DEV_SCALES)
				y = OF(widen)(OF(narrow)(BY(times)(y, t->scale[s])));
			x = s ? BY(fold)(op, x, y) : y;
		}
	if (op == ADJUSTED && t->flags & TT_DEV_DIVIDES)
		x = BY(over)(OF(widen)(OF(narrow)(x)), t->divisor);
	return OF(narrow)(x);
}

/* Combines 8 bytes of nsrc sources. Not unrolled where they are eight elements: the compiler would
 * take minutes. */
DEV uint64_t OF(unit)(int op, const struct combine_task *t, uint32_t nsrc, const uint64_t *v,
		      uint32_t limit)
{
	uint64_t r = 0;

	UNROLL_TO(BITS == 8 ? 1 : 4)
	for (uint32_t shift = 0; shift < 64; shift += BITS)
		r |= (uint64_t)OF(element)(op, t, nsrc, v, limit, shift) << shift;
	return r;
}

/* Combines every `stride`-th vector of at most `limit` sources from i on, while `deep` of them are below n.
 * Returns the next one. Where elements have 4 or 8 bytes, a copy of the task's numbers and sources stays in
 * registers: fewer loads are in flight where each waits for shared memory. Beside smaller elements the copy
 * would be spilled. */
DEV uint64_t OF(vectors)(int op, const struct combine_task *t, uint64_t n, uint64_t i,
			 uint32_t stride, const uint32_t limit, const uint32_t deep)
{
	uint64_t a[2][TT_DEV_RANKS], b[2][TT_DEV_RANKS];
	struct combine_task copy;
	const struct combine_task *fast = BITS < 32 ? t : &copy;

	copy.nsrc = t->nsrc;
	copy.ndst = t->ndst;
	UNROLL
	for (uint32_t s = 0; s < limit; s++)
		copy.src[s] = t->src[s];
	ONCE for (; i + (deep - 1) * (uint64_t)stride < n; i += deep * (uint64_t)stride)
	{
		UNROLL
		for (uint32_t k = 0; k < deep; k++) {
			UNROLL
			for (uint32_t s = 0; s < limit; s++)
				if (s < fast->nsrc) {
					const struct pair *src = (const struct pair *)fast->src[s];
					struct pair x = load_pair(&src[i + k * stride]);

					a[k][s] = x.a;
					b[k][s] = x.b;
				}
		}
		UNROLL
		for (uint32_t k = 0; k < deep; k++) {
			struct pair x;

			x.a = OF(unit)(op, t, fast->nsrc, a[k], limit);
			x.b = OF(unit)(op, t, fast->nsrc, b[k], limit);
			UNROLL
			for (uint32_t d = 0; d < TT_DEV_RANKS; d++)
				if (d < fast->ndst)
					store_pair(&((struct pair *)t->dst[d])[i + k * stride], x);
		}
	}
	return i;
}

/* The same for sums, where nsrc and ndst, the numbers of sources and destinations, are constants. All addresses
 * are in registers. */
DEV uint64_t OF(sums)(const struct combine_task *t, uint64_t n, uint64_t i, uint32_t stride,
		      const uint32_t nsrc, const uint32_t ndst)
{
	const uint32_t deep = TT_SUM_LOADS / nsrc;
	uint64_t a[TT_SUM_LOADS][TT_DEV_RANKS], b[TT_SUM_LOADS][TT_DEV_RANKS];
	uint64_t at = i * sizeof(struct pair), step = stride * sizeof(struct pair);
	const char *src[TT_DEV_RANKS];
	char *dst[TT_DEV_RANKS];

	UNROLL
	for (uint32_t s = 0; s < nsrc; s++)
		src[s] = t->src[s] + at;
	UNROLL
	for (uint32_t d = 0; d < ndst; d++)
		dst[d] = t->dst[d] + at;
	ONCE for (; i + (deep - 1) * (uint64_t)stride < n; i += deep * (uint64_t)stride)
	{
		UNROLL
		for (uint32_t k = 0; k < deep; k++) {
			UNROLL
			for (uint32_t s = 0; s < nsrc; s++) {
				struct pair x = load_pair((const struct pair *)src[s]);

				a[k][s] = x.a;
				b[k][s] = x.b;
				src[s] += step;
			}
		}
		UNROLL
		for (uint32_t k = 0; k < deep; k++) {
			struct pair x;

			x.a = OF(unit)(SUM, t, nsrc, a[k], nsrc);
			x.b = OF(unit)(SUM, t, nsrc, b[k], nsrc);
			UNROLL
			for (uint32_t d = 0; d < ndst; d++) {
				store_pair((struct pair *)dst[d], x);
				dst[d] += step;
			}
		}
	}
	return i;
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
		x = OF(element)(op, t, t->nsrc, v, TT_DEV_RANKS, 0);
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

/* Sums of two or four ranks, into one buffer or into those of all ranks. More such loops, or more loads at once,
 * would spill registers. */
DEV uint64_t OF(hot)(const struct combine_task *t, uint64_t n, uint64_t i, uint32_t stride)
{
	switch (t->nsrc << 4 | t->ndst) {
	case 0x21:
		return OF(sums)(t, n, i, stride, 2, 1);
	case 0x22:
		return OF(sums)(t, n, i, stride, 2, 2);
	case 0x41:
		return OF(sums)(t, n, i, stride, 4, 1);
	case 0x44:
		return OF(sums)(t, n, i, stride, 4, 4);
	default:
		return i;
	}
}

/* Combines the first n vectors. Where elements have one byte, loops with more loads at once would spill registers. */
DEV void OF(sweep)(int op, const struct combine_task *t, uint64_t n, uint64_t i, uint32_t stride)
{
	const uint32_t few = BITS == 8 ? 2 : 4;

	if (op == SUM && BITS > 8)
		i = OF(hot)(t, n, i, stride);
	if (t->nsrc <= few)
		i = OF(vectors)(op, t, n, i, stride, few, 2);
	OF(vectors)(op, t, n, i, stride, TT_DEV_RANKS, 1);
}
