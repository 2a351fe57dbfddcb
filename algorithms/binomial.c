/*
 * binomial.c - reduce, broadcast and scatter along a binomial tree: log2 n steps, for small messages
 *
 * Ranks are counted from the root. Rank v has the children v + 1, v + 2, v + 4 ..., as far as the
 * distance is below the lowest set bit of v (the root: below n); their subtrees have 1, 2, 4 ...
 * ranks. A rank combines its own value and its children's, in that order, in one step, and sends
 * the result to its parent: v without its lowest set bit. Broadcast runs down the same tree, the
 * largest subtree first; so does scatter, which sends to each child the parts of its subtree: v,
 * v + 1, v + 2 ... as one message, or two around the end of the buffer.
 *
 *   n = 4:        0          reduce: 2: g2+g3;  0: g0 + g1 + (g2+g3)
 *                / \
 *               1   2
 *                    \
 *                     3
 *
 *   steps          log2 n, rounded up
 *   bytes          reduce: each rank but the root sends S; broadcast: each sends S to each of its
 *                  children; scatter: each sends the blocks of its subtree but its own
 *   order of sums  rank order, counted from the root; one rounding per node
 *   restrictions   none
 *   source         Thakur, Rabenseifner and Gropp 2005: Optimization of collective communication
 *                  operations in MPICH
 */
#include "algorithms/forms.h"

/* Node of the tree, in ranks of the group; child: small subtrees first. */
struct binomial_node {
	int v, parent, nchildren, child[31];
};

static struct binomial_node node_of(const struct tt_builder *b)
{
	struct binomial_node node = { .v = (b->rank - b->root + b->n) % b->n };

	for (int bit = 1; node.v + bit < b->n && !(node.v & bit); bit *= 2)
		node.child[node.nchildren++] = (node.v + bit + b->root) % b->n;
	node.parent = ((node.v & (node.v - 1)) + b->root) % b->n;
	return node;
}

void tt_binomial_reduce(struct tt_builder *b)
{
	struct binomial_node node = node_of(b);
	int ranks[32] = { b->rank };

	for (int i = 0; i < node.nchildren; i++)
		ranks[1 + i] = node.child[i];
	tt_step_reduce(b, ranks, 1 + node.nchildren, tt_all(b));
	if (node.v)
		tt_step_send(b, node.parent, tt_all(b));
}

void tt_binomial_broadcast(struct tt_builder *b)
{
	struct binomial_node node = node_of(b);

	if (node.v)
		tt_step_recv(b, node.parent, tt_all(b));
	for (int i = node.nchildren - 1; i >= 0; i--)
		tt_step_send(b, node.child[i], tt_all(b));
}

/* Number of ranks in the subtree of a child that is `bit` behind node v */
static int subtree(const struct tt_builder *b, int v, int bit)
{
	return bit < b->n - v - bit ? bit : b->n - v - bit;
}

static void scatter(struct tt_builder *b, const char *argument)
{
	struct binomial_node node = node_of(b);
	int bit = node.v & -node.v;

	(void)argument;
	if (node.v)
		tt_step_around(b, tt_step_recv, node.parent, b->rank,
			       subtree(b, node.v - bit, bit));
	for (int i = node.nchildren - 1; i >= 0; i--)
		tt_step_around(b, tt_step_send, node.child[i], node.child[i],
			       subtree(b, node.v, 1 << i));
}

static void reduce(struct tt_builder *b, const char *argument)
{
	(void)argument;
	tt_binomial_reduce(b);
}

static void broadcast(struct tt_builder *b, const char *argument)
{
	(void)argument;
	tt_binomial_broadcast(b);
}

#define SOURCE \
	"Thakur, Rabenseifner and Gropp 2005, Optimization of collective communication operations in MPICH"

const struct tt_algorithm tt_reduce_tree = {
	.collective = TT_REDUCE,
	.name = "tree",
	.help = "small messages: log2 n steps",
	.source = SOURCE,
	.build = reduce,
};

const struct tt_algorithm tt_broadcast_tree = {
	.collective = TT_BROADCAST,
	.name = "tree",
	.help = "small messages: log2 n steps",
	.source = SOURCE,
	.build = broadcast,
};

const struct tt_algorithm tt_scatter_tree = {
	.collective = TT_SCATTER,
	.name = "tree",
	.help = "small messages: log2 n steps",
	.source = SOURCE,
	.build = scatter,
};
