/*
 * sparse.c - pointers by number, of which few are set
 *
 * Called by control (statuses, logs of pairs) and by active messages (streams).
 */
#include <stdlib.h>

#include "base/sparse.h"

bool tt_sparse_make(struct tt_sparse *s, int n)
{
	s->nblocks = ((size_t)n + TT_SPARSE_BLOCK - 1) / TT_SPARSE_BLOCK;
	s->block = calloc(s->nblocks, sizeof(*s->block));
	return s->block != NULL;
}

void tt_sparse_free(struct tt_sparse *s)
{
	for (size_t i = 0; s->block && i < s->nblocks; i++)
		free(atomic_load(&s->block[i]));
	free(s->block);
	s->block = NULL;
}

void tt_sparse_free_all(struct tt_sparse *s)
{
	for (size_t i = 0; s->block && i < s->nblocks; i++) {
		_Atomic(void *) *block = atomic_load(&s->block[i]);

		for (int k = 0; block && k < TT_SPARSE_BLOCK; k++)
			free(atomic_load(&block[k]));
	}
	tt_sparse_free(s);
}

bool tt_sparse_set(struct tt_sparse *s, int number, void *p)
{
	_Atomic(_Atomic(void *) *) *at = &s->block[number / TT_SPARSE_BLOCK];
	_Atomic(void *) *block = atomic_load(at);

	if (!block) {
		block = p ? calloc(TT_SPARSE_BLOCK, sizeof(*block)) : NULL;
		if (!block)
			return !p;
		atomic_store_explicit(at, block, memory_order_release);
	}
	atomic_store_explicit(&block[number % TT_SPARSE_BLOCK], p, memory_order_release);
	return true;
}

size_t tt_sparse_memory(const struct tt_sparse *s)
{
	size_t bytes = s->nblocks * sizeof(*s->block);

	for (size_t i = 0; i < s->nblocks; i++)
		if (atomic_load(&s->block[i]))
			bytes += TT_SPARSE_BLOCK * sizeof(_Atomic(void *));
	return bytes;
}
