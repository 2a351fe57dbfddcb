/*
 * sparse.h - pointers by number, of which few are set
 *
 * A communicator keeps several things for each rank that it exchanges messages with, and that is some
 * ranks of thousands. Pointers that are not set cost one bit for 16 of them. One thread at a time sets; any may get.
 *
 *   branch[number / 1024] -> leaf[number / 32 % 32] -> at[number % 32]      NULL: none of these is set
 */
#ifndef TT_SPARSE_H
#define TT_SPARSE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#define TT_SPARSE_WIDTH 32

struct tt_sparse_leaf {
	_Atomic(void *) at[TT_SPARSE_WIDTH];
};

struct tt_sparse_branch {
	_Atomic(struct tt_sparse_leaf *) leaf[TT_SPARSE_WIDTH];
};

struct tt_sparse {
	_Atomic(struct tt_sparse_branch *) *branch; /* [nbranches] */
	size_t nbranches;
};

/* For the numbers 0 ... n - 1, none set. false: no memory */
bool tt_sparse_make(struct tt_sparse *s, int n);
/* Frees the set, but not the objects that its pointers lead to; frees these objects, too. */
void tt_sparse_free(struct tt_sparse *s);
void tt_sparse_free_all(struct tt_sparse *s);
/* p NULL: not set. false: no memory; never for a number that was set before */
bool tt_sparse_set(struct tt_sparse *s, int number, void *p);
/* The lowest number from `from` on that is set; INT_MAX: none */
int tt_sparse_next(const struct tt_sparse *s, int from);
size_t tt_sparse_memory(const struct tt_sparse *s);

static inline struct tt_sparse_leaf *tt_sparse_leaf_of(const struct tt_sparse *s, int number)
{
	struct tt_sparse_branch *branch = atomic_load_explicit(
		&s->branch[(unsigned)number / (TT_SPARSE_WIDTH * TT_SPARSE_WIDTH)],
		memory_order_acquire);

	return branch ? atomic_load_explicit(
				&branch->leaf[(unsigned)number / TT_SPARSE_WIDTH % TT_SPARSE_WIDTH],
				memory_order_acquire)
		      : NULL;
}

/* NULL: not set */
static inline void *tt_sparse_get(const struct tt_sparse *s, int number)
{
	struct tt_sparse_leaf *leaf = tt_sparse_leaf_of(s, number);

	return leaf ? atomic_load_explicit(&leaf->at[(unsigned)number % TT_SPARSE_WIDTH],
					   memory_order_acquire)
		    : NULL;
}

#endif
