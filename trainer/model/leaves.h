/*
 * leaves.h - the summation order of gradients (--canonical), independent of the number of ranks
 *
 * A global batch is cut into leaves of a fixed number of samples. The gradient of a leaf depends
 * on its samples alone, and the sum over all leaves is one fixed expression. The bits of the sum
 * therefore depend neither on the number of ranks that share the leaves nor on the path of the
 * partial sums.
 *
 *	tree     ((l0+l1)+(l2+l3))+..., the perfect binary tree, cut off after the last leaf
 *	chain    ((l0+l1)+l2)+..., from left to right
 *	fixed64  every leaf as 64-bit integers (fixed64.h), in any order
 *	off      one leaf per rank; the bits depend on the number of ranks and on the algorithm
 *
 * A node is a run of leaves whose sum is a subexpression: a rank can compute it alone. A rank's
 * leaves are consecutive, and so are their nodes. Called by models (train_leaves_each, in the
 * backward pass), rank.c and gradient_sum.c.
 */
#ifndef TRAIN_LEAVES_H
#define TRAIN_LEAVES_H

#include "trainer/device/device.h"

#include <stddef.h>

enum train_canonical {
	TRAIN_CANONICAL_OFF,
	TRAIN_CANONICAL_TREE,
	TRAIN_CANONICAL_CHAIN,
	TRAIN_CANONICAL_FIXED64
};

/* The division of a batch, the same on all ranks. */
struct train_leaves {
	enum train_canonical kind;
	size_t batch; /* samples */
	size_t leaf;  /* samples of a leaf, the last may have fewer; off: not used */
	size_t count; /* leaves; off: ranks */
};

/* Leaves first..last-1; empty if equal. */
struct train_node {
	size_t first, last;
};

/* ranks: the number of parts of the batch for `off` */
struct train_leaves train_leaves_of(enum train_canonical kind, size_t batch, size_t leaf,
				    int ranks);

/* The leaves of part `rank` of nranks. */
struct train_node train_leaves_share(const struct train_leaves *l, int rank, int nranks);
/* The rows of the batch that a run of leaves covers. */
struct train_node train_leaves_rows(const struct train_leaves *l, struct train_node leaves);

/* Splits a run of leaves into nodes, at most `run.last - run.first`. node may be NULL. Returns the
 * number of nodes; `off` has one node even without samples. */
size_t train_leaves_nodes(const struct train_leaves *l, struct train_node run,
			  struct train_node *node);

/* The partial sums that a sum over a run of leaves keeps at once. */
size_t train_leaves_levels(struct train_node run);

/* train_leaves_fold - add up neighboring nodes as far as the expression allows
 *
 *   node, at   [*n] consecutive nodes; at[i][count], memory of `on`, is the sum of node[i]
 *   n          number of nodes before and after; the first n of node and at are the result, the arrays
 *              of the others are overwritten; 1 if the nodes were all leaves
 *   fixed64    elements are int64_t, in host memory */
void train_leaves_fold(const struct train_leaves *l, struct train_device *on,
		       struct train_node *node, void **at, size_t *n, size_t count);

/* ---- inside a rank -------------------------------------------------------------------------- */

/* The sums of one rank: node i is stored at place + i * stride. */
struct train_leaf_sum {
	const struct train_leaves *leaves;
	struct train_device *device;
	struct train_node run; /* this rank's leaves */
	size_t skip;           /* rows of a pass in front of those of run */
	struct train_node *node;
	size_t nodes, stride;
	float *scratch; /* device memory, [train_leaves_levels of run][piece] */
	size_t piece;   /* greatest number of floats summed at once */
};

enum { TRAIN_SUM_PIECE = 32768 };

/* Computes out[count] = the sum over `rows` rows from `row` on, counted from the rank's first
 * row. */
typedef void train_leaf_fn(void *arg, size_t row, size_t rows, float *out);

/* Calls fn for each leaf of the rank and sums into place[count] of each node; count is at most
 * piece. sum NULL: one call for all rows. */
void train_leaves_each(const struct train_leaf_sum *sum, size_t rows, size_t count,
		       train_leaf_fn *fn, void *arg, float *place);

#endif
