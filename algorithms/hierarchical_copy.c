/*
 * hierarchical_copy.c - two groups of devices, each with a main device that rotates by block
 *
 * The ranks are split in the middle: 0..h-1 and h..n-1, h = n/2. The buffer is cut into n blocks.
 * Block i has two mains: rank i in its own group, and the rank with the same index in the other
 * group. Each group sums its members' values at its main; main i adds the other group's sum to its
 * own, sends the result to the other main, and each main sends the result to its members. For hosts
 * with fast links within a group and few links between groups. The blocks of two mains are neighbors
 * in the buffer, since scratch spans all blocks that a rank sums.
 *
 *   n = 4, block 1:   0 -> 1 <- 3 <- 2       main 1: (g0+g1) + (g2+g3),  g2+g3 summed at main 3
 *                     0 <- 1 -> 3 -> 2
 *
 *   steps          4 a block; blocks follow each other
 *   bytes          in all 2(n-1) S, 2 S of it across; n even: each rank sends 2(n-1)/n S
 *   order of sums  within a group rank order, then main i's group + the other group
 *   restrictions   none; n odd: the upper group has one rank more, and rank n-1 shares main 0 as
 *                  its other main
 *   source         TensorFlow 2017: HierarchicalCopyAllReduce (cross_device_ops, for DGX-1)
 */
#include <stdlib.h>

#include "algorithms/forms.h"

/* One group for block i: its main, the other group's main, its members. */
struct copy_group {
	int main, other_main, first, count;
};

static struct copy_group group_of(int n, int i, int rank)
{
	int h = n / 2;
	struct copy_group low = { .first = 0, .count = h }, high = { .first = h, .count = n - h };

	low.main = high.other_main = i < h ? i : (i - h) % h;
	high.main = low.other_main = i < h ? h + i : i;
	return rank < h ? low : high;
}

static struct tt_span block(const struct tt_builder *b, int i)
{
	int h = b->n / 2, at = i < h ? 2 * i : 2 * (i - h) + 1;

	return tt_part(b, at < b->n ? at : b->n - 1);
}

static void to_main(struct tt_builder *b, const struct copy_group *group, struct tt_span s)
{
	int *ranks;

	if (b->rank != group->main) {
		tt_step_send(b, group->main, s);
		return;
	}
	ranks = malloc((size_t)group->count * sizeof(*ranks));
	if (!ranks) {
		tt_builder_fail(b, TT_SYSTEM, "no memory for a plan of %d ranks", b->n);
		return;
	}
	for (int k = 0; k < group->count; k++)
		ranks[k] = group->first + k;
	tt_step_reduce(b, ranks, group->count, s);
	free(ranks);
}

static void from_main(struct tt_builder *b, const struct copy_group *group, struct tt_span s)
{
	if (b->rank != group->main)
		tt_step_recv(b, group->main, s);
	for (int r = group->first; r < group->first + group->count && b->rank == group->main; r++)
		if (r != b->rank)
			tt_step_send(b, r, s);
}

/* All ranks process the blocks in one order, so waits form no cycle. */
static void build(struct tt_builder *b, const char *argument)
{
	int n = b->n > 1 ? b->n : 0;

	(void)argument;
	for (int i = 0; i < n; i++) {
		struct copy_group group = group_of(n, i, b->rank);

		to_main(b, &group, block(b, i));
		if (b->rank == i)
			tt_step_recv_reduce(b, group.other_main, block(b, i), TT_MINE_FIRST);
		else if (b->rank == group.main)
			tt_step_send(b, i, block(b, i));
	}
	for (int i = 0; i < n; i++) {
		struct copy_group group = group_of(n, i, b->rank);

		if (b->rank == i)
			tt_step_send(b, group.other_main, block(b, i));
		else if (b->rank == group.main)
			tt_step_recv(b, i, block(b, i));
		from_main(b, &group, block(b, i));
	}
}

const struct tt_algorithm tt_allreduce_hierarchical_copy = {
	.collective = TT_ALLREDUCE,
	.name = "hierarchical-copy",
	.help = "two groups of devices with rotating main devices",
	.source = "TensorFlow 2017, HierarchicalCopyAllReduce",
	.cut = tt_cut_by_ranks,
	.build = build,
};
