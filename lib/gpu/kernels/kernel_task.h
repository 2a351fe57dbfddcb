/*
 * kernel_task.h - a piece of a job with the addresses of its operands
 */
#ifndef TT_KERNEL_TASK_H
#define TT_KERNEL_TASK_H

#include "gpu/kernels/kernel_words.h"

#define TT_SUM_LOADS 8 /* loads of 16 bytes that a thread of a sum of 2 or 4 ranks has in flight */

struct combine_task {
	const char *src[TT_DEV_RANKS];
	uint64_t scale[TT_DEV_RANKS];
	char *dst[TT_DEV_RANKS];
	uint32_t nsrc, ndst;
	uint64_t bytes, divisor;
	uint32_t flags;
};

/* Makes the task of piece x; record: [nranks], the addresses of the ranks' buffers. Sources and
 * destinations are in rank order. */
DEV void make_task(const struct tt_dev_job *j, const struct tt_dev_piece *x,
		   const struct tt_dev_record *record, struct combine_task *t)
{
	t->nsrc = t->ndst = 0;
	t->bytes = x->bytes;
	t->flags = j->flags;
	t->divisor = j->divisor;
	for (uint32_t p = 0; p < j->nranks; p++) {
		if (x->from >> p & 1) {
			t->src[t->nsrc] = (const char *)record[p].in + x->from_at;
			t->scale[t->nsrc++] = record[p].scale;
		}
		if (x->to >> p & 1)
			t->dst[t->ndst++] = (char *)record[p].out + x->to_at;
	}
}

/* The largest power of two up to 16 that divides all addresses */
DEV uint32_t alignment(const struct combine_task *t)
{
	uint64_t all = 16;

	for (uint32_t s = 0; s < t->nsrc; s++)
		all |= (uint64_t)t->src[s];
	for (uint32_t d = 0; d < t->ndst; d++)
		all |= (uint64_t)t->dst[d];
	return (uint32_t)(all & (~all + 1));
}

DEV uint64_t get_bytes(const char *p, uint32_t n)
{
	uint64_t v = 0;

	for (uint32_t i = 0; i < n; i++)
		v |= (uint64_t)(unsigned char)p[i] << 8 * i;
	return v;
}

DEV void put_bytes(char *p, uint64_t v, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		p[i] = (char)(v >> 8 * i);
}

#endif
