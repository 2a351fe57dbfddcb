/*
 * tree.c - double binary tree: every rank is a leaf of one tree and an inner node of the other, so
 * all links are used
 *
 * Each half of the buffer has its own tree, in its own lane. A node combines its lower subtree, its
 * own value and its upper subtree in one step, sends the sum to its parent, and later sends the
 * result to its children. The trees number nodes, not ranks: node 0 is the root, with one child;
 * below, node v has its children at v -+ half its lowest set bit (nearer, if that is beyond n - 1),
 * so odd nodes are leaves. In the first tree rank r is node r; in the second the ranks are mirrored
 * (n even) or shifted by one (n odd), so even ranks are leaves. For n odd one rank is an inner node
 * of both trees.
 *
 *   n = 4:   half 0:   0          half 1:   3
 *                       \                  /
 *                        2                1
 *                       / \              / \
 *                      1   3            2   0
 *
 *   steps          about 2 log2 n; tiles are pipelined through them
 *   bytes          2(n-1) S in total, at most 2 S per rank
 *   order of sums  order of nodes: half 0 in rank order; one rounding per node
 *   restrictions   none
 *   source         Sanders, Speck and Traff 2009: Two-tree algorithms for full bandwidth broadcast,
 *                  reduction and scan
 */
#include "algorithms/forms.h"

static int rank_at(int node, int tree, int n)
{
	if (tree == 0)
		return node;
	return n % 2 ? (node + 1) % n : n - 1 - node;
}

static int node_of(int rank, int tree, int n)
{
	if (tree == 0)
		return rank;
	return n % 2 ? (rank + n - 1) % n : n - 1 - rank;
}

static int parent_of(int node, int n)
{
	int bit = node & -node, above = (node ^ bit) | bit << 1;

	return above < n ? above : node ^ bit;
}

/* The child with a higher number, -1: none. */
static int upper_child(int node, int n)
{
	int step = node & -node;

	for (step = node ? step / 2 : 1 << 30; step && node + step >= n;)
		step /= 2;
	return step ? node + step : -1;
}

static void up_and_down(struct tt_builder *b, int tree)
{
	int n = b->n, node = node_of(b->rank, tree, n), half = (node & -node) / 2,
	    upper = upper_child(node, n);
	int ranks[3], count = 0, me;
	struct tt_span s = tt_part(b, tree);

	if (half)
		ranks[count++] = rank_at(node - half, tree, n);
	me = count;
	ranks[count++] = b->rank;
	if (upper >= 0)
		ranks[count++] = rank_at(upper, tree, n);
	tt_step_reduce(b, ranks, count, s);
	if (node) {
		int parent = rank_at(parent_of(node, n), tree, n);

		tt_step_send(b, parent, s);
		tt_step_recv(b, parent, s);
	}
	for (int i = 0; i < count; i++)
		if (i != me)
			tt_step_send(b, ranks[i], s);
}

/* The second lane starts after the steps so far of the first; later steps of the first lane wait
 * for both trees. */
static void build(struct tt_builder *b, const char *argument)
{
	uint32_t lane = b->lane;

	(void)argument;
	tt_lane(b, lane + 1);
	tt_wait(b, lane);
	up_and_down(b, 1);
	tt_lane(b, lane);
	up_and_down(b, 0);
	tt_wait(b, lane + 1);
}

static struct tt_cut cut(const struct tt_shape *shape, const char *argument)
{
	(void)shape;
	(void)argument;
	return (struct tt_cut){ 2, 2 };
}

const struct tt_algorithm tt_allreduce_tree = {
	.collective = TT_ALLREDUCE,
	.name = "tree",
	.help = "middle messages, many ranks: double binary tree, pipelined",
	.source =
		"Sanders, Speck and Traff 2009, Two-tree algorithms for full bandwidth broadcast, reduction and scan",
	.cut = cut,
	.build = build,
};
