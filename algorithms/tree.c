/*
 * tree.c - two binary trees at once: every rank is a leaf of
 * one and inner in the other, so all links work
 *
 * Each half of the buffer has a tree of its own, in a lane of its own. A node combines its lower
 * subtree, itself and its upper subtree in one step, sends that up, and hands the result down. The
 * trees number places, not ranks: place 0 is on top with one child; below it, place p has its
 * children at p -+ half its lowest set bit (nearer, where that is beyond n - 1), so odd places are
 * leaves. In the first tree rank r sits at place r; in the second the ranks are mirrored (n even)
 * or moved by one (n odd), so that even ranks are the leaves. For n odd one rank is inner in both.
 *
 *   n = 4:   half 0:   0          half 1:   3
 *                       \                  /
 *                        2                1
 *                       / \              / \
 *                      1   3            2   0
 *
 *   steps          about 2 log2 n; tiles are pipelined through them
 *   bytes          in all 2(n-1) S, a rank at most 2 S
 *   order of sums  places in order: half 0 in rank order; one rounding a node
 *   restrictions   none
 *   source         Sanders, Speck and Traff 2009: Two-tree algorithms for full bandwidth broadcast,
 *                  reduction and scan
 */
#include "algorithms/forms.h"

static int rank_at(int place, int tree, int n)
{
	if (tree == 0)
		return place;
	return n % 2 ? (place + 1) % n : n - 1 - place;
}

static int place_of(int rank, int tree, int n)
{
	if (tree == 0)
		return rank;
	return n % 2 ? (rank + n - 1) % n : n - 1 - rank;
}

static int parent_of(int place, int n)
{
	int bit = place & -place, above = (place ^ bit) | bit << 1;

	return above < n ? above : place ^ bit;
}

/* The child among higher places, -1: none. */
static int upper_child(int place, int n)
{
	int step = place & -place;

	for (step = place ? step / 2 : 1 << 30; step && place + step >= n;)
		step /= 2;
	return step ? place + step : -1;
}

static void up_and_down(struct tt_builder *b, int tree)
{
	int n = b->n, place = place_of(b->rank, tree, n), half = (place & -place) / 2,
	    upper = upper_child(place, n);
	int ranks[3], count = 0, me;
	struct tt_span s = tt_part(b, tree);

	if (half)
		ranks[count++] = rank_at(place - half, tree, n);
	me = count;
	ranks[count++] = b->rank;
	if (upper >= 0)
		ranks[count++] = rank_at(upper, tree, n);
	tt_step_reduce(b, ranks, count, s);
	if (place) {
		int parent = rank_at(parent_of(place, n), tree, n);

		tt_step_send(b, parent, s);
		tt_step_recv(b, parent, s);
	}
	for (int i = 0; i < count; i++)
		if (i != me)
			tt_step_send(b, ranks[i], s);
}

/* The second lane starts with what the first has done so far,
 * and the first goes on when both are through. */
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
	.help = "middle messages, many ranks: two binary trees, pipelined",
	.source =
		"Sanders, Speck and Traff 2009, Two-tree algorithms for full bandwidth broadcast, reduction and scan",
	.cut = cut,
	.build = build,
};
