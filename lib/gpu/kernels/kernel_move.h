/*
 * kernel_move.h - copies of any alignment by vectors of 16 bytes
 */
#ifndef TT_KERNEL_MOVE_H
#define TT_KERNEL_MOVE_H

#include "gpu/kernels/kernel_words.h"

#define TT_MOVE_DEEP 4 /* vectors that a thread of a copy has in flight */

/* Sixteen bytes that begin `apart` bytes after those of x; y follows x. */
DEV struct pair shifted(struct pair x, struct pair y, uint32_t apart)
{
	uint64_t low = apart < 8 ? x.a : x.b, middle = apart < 8 ? x.b : y.a,
		 high = apart < 8 ? y.a : y.b;
	uint32_t shift = apart % 8 * 8;
	struct pair r;

	r.a = shift ? low >> shift | middle << (64 - shift) : low;
	r.b = shift ? middle >> shift | high << (64 - shift) : middle;
	return r;
}

/* Copies bytes; the thread takes vector `first` and each `stride`-th of those that follow. Vectors are
 * aligned at dst. Where src is not, two aligned loads give a vector; none of them leaves src. */
DEV void move(char *dst, const char *src, uint64_t bytes, uint32_t first, uint32_t stride)
{
	uint32_t head = (uint32_t)(0 - (uint64_t)dst) & 15,
		 apart = ((uint32_t)(uint64_t)src + head) & 15;
	uint64_t n = 0;
	const struct pair *from;
	struct pair *to;

	head += head < apart ? 16 : 0;
	if (bytes >= head + 16)
		n = (bytes - head + apart) / 16 - (apart ? 1 : 0);
	from = (const struct pair *)(src + head - apart);
	to = (struct pair *)(dst + head);
	ONCE for (uint64_t i = first; apart && i < n; i += stride)
		store_pair(&to[i], shifted(load_pair(&from[i]), load_pair(&from[i + 1]), apart));
	ONCE for (uint64_t i = first; !apart && i < n; i += TT_MOVE_DEEP * stride)
	{
		struct pair x[TT_MOVE_DEEP];

		UNROLL
		for (uint32_t k = 0; k < TT_MOVE_DEEP; k++)
			if (i + k * stride < n)
				x[k] = load_pair(&from[i + k * stride]);
		UNROLL
		for (uint32_t k = 0; k < TT_MOVE_DEEP; k++)
			if (i + k * stride < n)
				store_pair(&to[i + k * stride], x[k]);
	}
	ONCE for (uint64_t at = first; at < head && at < bytes; at += stride) dst[at] = src[at];
	ONCE for (uint64_t at = head + 16 * n + first; at < bytes; at += stride) dst[at] = src[at];
}

#endif
