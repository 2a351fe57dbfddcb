/* leaves.c - the summation order of gradients (leaves.h) */
#include "trainer/model/leaves.h"

#include "trainer/data/sampler.h"

#include <stdint.h>

struct train_leaves train_leaves_of(enum train_canonical kind, size_t batch, size_t leaf, int ranks)
{
	size_t count = kind == TRAIN_CANONICAL_OFF ? (size_t)ranks : (batch + leaf - 1) / leaf;

	return (struct train_leaves){ kind, batch, leaf, count };
}

struct train_node train_leaves_share(const struct train_leaves *l, int rank, int nranks)
{
	struct train_share share = train_share_of(l->count, rank, nranks);

	return (struct train_node){ share.first, share.first + share.count };
}

struct train_node train_leaves_rows(const struct train_leaves *l, struct train_node run)
{
	size_t first = run.first * l->leaf, last = run.last * l->leaf;

	if (l->kind == TRAIN_CANONICAL_OFF) {
		first = l->batch * run.first / l->count;
		last = l->batch * run.last / l->count;
	}
	return (struct train_node){ first < l->batch ? first : l->batch,
				    last < l->batch ? last : l->batch };
}

/* ---- the tree ------------------------------------------------------------------------------- */

/* The greatest power of two below n > 1: the size of the left child of a node of n leaves. */
static size_t half_of(size_t n)
{
	size_t half = 1;

	while (half * 2 < n)
		half *= 2;
	return half;
}

/* True if the neighbors left and right are the two children of one node. */
static bool are_siblings(const struct train_leaves *l, struct train_node left,
			 struct train_node right)
{
	size_t wide = left.last - left.first, end = left.last + wide;

	return !(wide & (wide - 1)) && left.first % (2 * wide) == 0 &&
	       right.last == (end < l->count ? end : l->count);
}

/* True if the expression adds the neighbors left and right. */
static bool may_add(const struct train_leaves *l, struct train_node left, struct train_node right)
{
	if (l->kind == TRAIN_CANONICAL_TREE)
		return are_siblings(l, left, right);
	if (l->kind == TRAIN_CANONICAL_CHAIN)
		return left.first == 0 && right.last == right.first + 1;
	return true;
}

size_t train_leaves_nodes(const struct train_leaves *l, struct train_node run,
			  struct train_node *node)
{
	size_t n = 0;

	if (l->kind == TRAIN_CANONICAL_OFF) {
		if (node)
			node[0] = run;
		return 1;
	}
	for (size_t at = run.first; at < run.last; n++) {
		size_t end = at + 1;

		if (l->kind == TRAIN_CANONICAL_CHAIN && at == 0)
			end = run.last;
		if (l->kind == TRAIN_CANONICAL_TREE)
			for (size_t wide = 2; at % wide == 0; wide *= 2) {
				size_t next = at + wide < l->count ? at + wide : l->count;

				if (next > run.last || next == end)
					break;
				end = next;
			}
		if (node)
			node[n] = (struct train_node){ at, end };
		at = end;
	}
	return n;
}

size_t train_leaves_levels(struct train_node run)
{
	size_t levels = 1;

	while (run.last - run.first > (size_t)1 << levels)
		levels++;
	return levels;
}

/* ---- adding up nodes ------------------------------------------------------------------------ */

/* Unsigned to avoid undefined behavior; fixed64.c rules out overflow */
static void add_whole(uint64_t *restrict to, const uint64_t *restrict from, size_t count)
{
	for (size_t i = 0; i < count; i++)
		to[i] += from[i];
}

static void add(const struct train_leaves *l, struct train_device *on, void *to, const void *from,
		size_t count)
{
	if (l->kind == TRAIN_CANONICAL_FIXED64)
		add_whole(to, from, count);
	else
		on->ops->add(on, count, from, to);
}

void train_leaves_fold(const struct train_leaves *l, struct train_device *on,
		       struct train_node *node, void **at, size_t *n, size_t count)
{
	size_t top = 0;

	for (size_t i = 0; i < *n; i++) {
		node[top] = node[i];
		at[top++] = at[i];
		for (; top > 1 && may_add(l, node[top - 2], node[top - 1]); top--) {
			add(l, on, at[top - 2], at[top - 1], count);
			node[top - 2].last = node[top - 1].last;
		}
	}
	*n = top;
}

/* ---- inside a rank -------------------------------------------------------------------------- */

/* One call of train_leaves_each. */
struct leaf_pass {
	const struct train_leaf_sum *sum;
	size_t count;
	train_leaf_fn *fn;
	void *arg;
	size_t row; /* the rank's first row in the batch */
};

static void one_leaf(const struct leaf_pass *p, size_t leaf, float *out)
{
	struct train_node rows = train_leaves_rows(p->sum->leaves,
						   (struct train_node){ leaf, leaf + 1 });

	p->fn(p->arg, rows.first - p->row, rows.last - rows.first, out);
}

static void add_scratch(const struct leaf_pass *p, size_t level, float *out)
{
	struct train_device *d = p->sum->device;

	d->ops->add(d, p->count, p->sum->scratch + level * p->sum->piece, out);
}

/* out = the sum of a node of the tree; uses scratch from `level` on */
static void sum_tree(const struct leaf_pass *p, struct train_node node, size_t level, float *out)
{
	size_t middle;

	if (node.last - node.first == 1) {
		one_leaf(p, node.first, out);
		return;
	}
	middle = node.first + half_of(node.last - node.first);
	sum_tree(p, (struct train_node){ node.first, middle }, level, out);
	sum_tree(p, (struct train_node){ middle, node.last }, level + 1,
		 p->sum->scratch + level * p->sum->piece);
	add_scratch(p, level, out);
}

static void sum_chain(const struct leaf_pass *p, struct train_node node, float *out)
{
	one_leaf(p, node.first, out);
	for (size_t leaf = node.first + 1; leaf < node.last; leaf++) {
		one_leaf(p, leaf, p->sum->scratch);
		add_scratch(p, 0, out);
	}
}

void train_leaves_each(const struct train_leaf_sum *sum, size_t rows, size_t count,
		       train_leaf_fn *fn, void *arg, float *place)
{
	struct leaf_pass p = { .sum = sum, .count = count, .fn = fn, .arg = arg };

	if (!sum || sum->leaves->kind == TRAIN_CANONICAL_OFF) {
		fn(arg, 0, rows, place);
		return;
	}
	p.row = train_leaves_rows(sum->leaves, sum->run).first - sum->skip;
	for (size_t i = 0; i < sum->nodes; i++) {
		float *out = place + i * sum->stride;

		if (sum->leaves->kind == TRAIN_CANONICAL_CHAIN)
			sum_chain(&p, sum->node[i], out);
		else
			sum_tree(&p, sum->node[i], 0, out);
	}
}
