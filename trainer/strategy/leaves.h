/*
 * leaves.h - the expression by which gradients are added up, whatever the number of ranks
 *
 * A global batch is cut into leaves of a fixed number of samples. The gradient of a leaf depends on
 * the leaf alone, and the sum over all leaves is one fixed expression; so its bits do not depend on
 * how many ranks share the leaves, nor on how the parts of the sum travel.
 *
 *	tree     ((l0+l1)+(l2+l3))+..., the perfect binary tree, cut off at the last leaf
 *	chain    ((l0+l1)+l2)+..., from left to right
 *	fixed64  every leaf in whole numbers of 64 bits (fixed64.h), in any order
 *	off      one leaf a rank; the bits depend on the number of ranks and on the algorithm
 *
 * A node is a run of leaves whose sum the expression knows: what a rank can add up by itself.
 * A rank's leaves follow each other, and so do the nodes that they come to. Called by models
 * (train_leaves_each, in the backward pass), trainer.c and gradient_sum.c.
 */
#ifndef TRAIN_LEAVES_H
#define TRAIN_LEAVES_H

#include "trainer/device/device.h"

#include <stddef.h>

enum train_canonical { TRAIN_CANONICAL_OFF, TRAIN_CANONICAL_TREE, TRAIN_CANONICAL_CHAIN, TRAIN_CANONICAL_FIXED64 };

/* The batch, the same on all ranks. */
struct train_leaves {
	enum train_canonical kind;
	size_t batch; /* samples */
	size_t leaf;  /* samples of one, the last may have fewer; off: not used */
	size_t count; /* leaves; off: ranks */
};

/* Leaves first..last-1; none when equal. */
struct train_node {
	size_t first, last;
};

/* ranks: what `off` cuts the batch into */
struct train_leaves train_leaves_of(enum train_canonical kind, size_t batch, size_t leaf, int ranks);

/* Which leaves are part `rank` of nranks, and which rows of the batch are a run of leaves? */
struct train_node train_leaves_share(const struct train_leaves *l, int rank, int nranks);
struct train_node train_leaves_rows(const struct train_leaves *l, struct train_node leaves);

/* The nodes that a run of leaves comes to, at most `run.last - run.first`.
 * node may be NULL. Returns how many; `off` has one even for no samples. */
size_t train_leaves_nodes(const struct train_leaves *l, struct train_node run, struct train_node *node);

/* Adds up what can be added up: at[i][count], in memory of `on`, is the sum of node[i], and the
 * nodes follow each other. Afterwards *n nodes are left, the first n of node and at; the arrays of
 * the rest are used up. One is left when the nodes were all there are. For fixed64 the elements are
 * int64_t, in host memory. */
void train_leaves_fold(const struct train_leaves *l, struct train_device *on, struct train_node *node,
		    void **at, size_t *n, size_t count);

/* ---- inside a rank -------------------------------------------------------------------------- */

/* How one rank adds up its leaves: node i goes to place + i * stride. */
struct train_gradient_sum {
	const struct train_leaves *leaves;
	struct train_device *device;
	struct train_node run;  /* this rank's leaves */
	struct train_node *node;
	size_t nodes, stride;
	float *scratch;      /* device memory, TRAIN_SUM_LEVELS * piece */
	size_t piece;        /* the most floats that are added up at once */
};

enum { TRAIN_SUM_LEVELS = 32, TRAIN_SUM_PIECE = 32768 };

/* Computes out[count] = the sum over these rows, rows counted from the rank's first. */
typedef void train_leaf_fn(void *arg, size_t row, size_t rows, float *out);

/* Calls fn for each leaf of the rank and adds up into place[count] of each node; count is at most
 * piece. sum NULL: one call for all rows. */
void train_leaves_each(const struct train_gradient_sum *sum, size_t rows, size_t count, train_leaf_fn *fn, void *arg,
		    float *place);

#endif
