/*
 * sparse.h - pointers by number, of which few are set
 *
 * A communicator keeps several things for each rank that it exchanges messages with, and that is some
 * ranks of thousands. An unused pointer costs two bits. One thread at a time sets; any may get.
 */
#ifndef TT_SPARSE_H
#define TT_SPARSE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#define TT_SPARSE_BLOCK 32

struct tt_sparse {
	_Atomic(_Atomic(void *) *) *block; /* [nblocks] of TT_SPARSE_BLOCK; NULL: none is set */
	size_t nblocks;
};

/* For the numbers 0 ... n - 1, none set. false: no memory */
bool tt_sparse_make(struct tt_sparse *s, int n);
/* Frees the set, but not the objects that its pointers lead to; frees these objects, too. */
void tt_sparse_free(struct tt_sparse *s);
void tt_sparse_free_all(struct tt_sparse *s);
/* p NULL: not set. false: no memory; never for a number that was set before */
bool tt_sparse_set(struct tt_sparse *s, int number, void *p);
size_t tt_sparse_memory(const struct tt_sparse *s);

/* NULL: not set */
static inline void *tt_sparse_get(const struct tt_sparse *s, int number)
{
	_Atomic(void *) *block = atomic_load_explicit(&s->block[(unsigned)number / TT_SPARSE_BLOCK],
						      memory_order_acquire);

	return block ? atomic_load_explicit(&block[(unsigned)number % TT_SPARSE_BLOCK],
					    memory_order_acquire)
		     : NULL;
}

#endif
