/*
 * sparse.c - pointers by number, of which few are set
 *
 * Called by control (statuses, logs of pairs) and by active messages (streams).
 */
#include <limits.h>
#include <stdlib.h>

#include "base/sparse.h"

#define BRANCH (TT_SPARSE_WIDTH * TT_SPARSE_WIDTH) /* numbers of a branch */

bool tt_sparse_make(struct tt_sparse *s, int n)
{
	s->nbranches = ((size_t)n + BRANCH - 1) / BRANCH;
	s->branch = calloc(s->nbranches, sizeof(*s->branch));
	return s->branch != NULL;
}

void tt_sparse_free(struct tt_sparse *s)
{
	for (size_t i = 0; s->branch && i < s->nbranches; i++) {
		struct tt_sparse_branch *branch = atomic_load(&s->branch[i]);

		for (int k = 0; branch && k < TT_SPARSE_WIDTH; k++)
			free(atomic_load(&branch->leaf[k]));
		free(branch);
	}
	free(s->branch);
	s->branch = NULL;
}

void tt_sparse_free_all(struct tt_sparse *s)
{
	for (int i = tt_sparse_next(s, 0); i < INT_MAX; i = tt_sparse_next(s, i + 1))
		free(tt_sparse_get(s, i));
	tt_sparse_free(s);
}

/* NULL: no memory */
static struct tt_sparse_leaf *make_leaf(struct tt_sparse *s, int number)
{
	_Atomic(struct tt_sparse_branch *) *at = &s->branch[number / BRANCH];
	struct tt_sparse_branch *branch = atomic_load(at);
	struct tt_sparse_leaf *leaf;

	if (!branch) {
		branch = calloc(1, sizeof(*branch));
		if (!branch)
			return NULL;
		atomic_store_explicit(at, branch, memory_order_release);
	}
	leaf = calloc(1, sizeof(*leaf));
	if (leaf)
		atomic_store_explicit(&branch->leaf[number / TT_SPARSE_WIDTH % TT_SPARSE_WIDTH],
				      leaf, memory_order_release);
	return leaf;
}

bool tt_sparse_set(struct tt_sparse *s, int number, void *p)
{
	struct tt_sparse_leaf *leaf = tt_sparse_leaf_of(s, number);

	if (!leaf) {
		leaf = p ? make_leaf(s, number) : NULL;
		if (!leaf)
			return !p;
	}
	atomic_store_explicit(&leaf->at[number % TT_SPARSE_WIDTH], p, memory_order_release);
	return true;
}

int tt_sparse_next(const struct tt_sparse *s, int from)
{
	size_t number = (size_t)from;

	while (s->branch && number / BRANCH < s->nbranches) {
		const struct tt_sparse_leaf *leaf = tt_sparse_leaf_of(s, (int)number);

		if (!atomic_load(&s->branch[number / BRANCH]))
			number = (number / BRANCH + 1) * BRANCH;
		else if (!leaf)
			number = (number / TT_SPARSE_WIDTH + 1) * TT_SPARSE_WIDTH;
		else if (!atomic_load(&leaf->at[number % TT_SPARSE_WIDTH]))
			number++;
		else
			return (int)number;
	}
	return INT_MAX;
}

size_t tt_sparse_memory(const struct tt_sparse *s)
{
	size_t bytes = s->nbranches * sizeof(*s->branch);

	for (size_t i = 0; i < s->nbranches; i++) {
		const struct tt_sparse_branch *branch = atomic_load(&s->branch[i]);

		bytes += branch ? sizeof(*branch) : 0;
		for (int k = 0; branch && k < TT_SPARSE_WIDTH; k++)
			bytes += atomic_load(&branch->leaf[k]) ? sizeof(struct tt_sparse_leaf) : 0;
	}
	return bytes;
}
