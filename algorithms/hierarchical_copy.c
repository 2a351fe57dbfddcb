/*
 * hierarchical_copy.c - two groups of devices with a main device each,
 * which rotates from block to block
 *
 * The ranks are split in the middle: 0..h-1 and h..n-1, h = n/2. The buffer is cut into n blocks.
 * Block i has two mains: rank i in its own group, and the rank at the same place of the other
 * group. Each group adds its members on its main; main i adds the other group's sum to its own,
 * copies the result to the other main, and each main copies it to its members. Made for hosts where
 * links within a group are fast and those across are few.
 *
 *   n = 4, block 1:   0 -> 1 <- 3 <- 2       main 1: (g0+g1) + (g2+g3),  g2+g3 summed at main 3
 *                     0 <- 1 -> 3 -> 2
 *
 *   steps          4 a block; blocks follow each other
 *   bytes          in all 2(n-1) S, 2 S of it across; n even: each rank sends 2(n-1)/n S
 *   order of sums  in a group rank order, then main i's group + the other group
 *   restrictions   none; n odd: the upper group has one rank more, and rank n-1 shares main 0 as
 *                  its other main
 *   source         TensorFlow 2017: HierarchicalCopyAllReduce (cross_device_ops, for DGX-1)
 */
#include <stdlib.h>

#include "algorithms/forms.h"

/* Block i as one group sees it: its main, the other group's, its members. */
struct side { int main, other_main, first, count; };

static struct side side_of(int n, int i, int rank)
{
	int h = n / 2;
	struct side low = { .first = 0, .count = h }, high = { .first = h, .count = n - h };

	low.main = high.other_main = i < h ? i : (i - h) % h;
	high.main = low.other_main = i < h ? h + i : i;
	return rank < h ? low : high;
}

static void to_main(struct tt_builder *b, const struct side *side, struct tt_span s)
{
	int *ranks;

	if (b->rank != side->main) {
		tt_step_send(b, side->main, s);
		return;
	}
	ranks = malloc((size_t)side->count * sizeof(*ranks));
	if (!ranks) {
		tt_builder_fail(b, TT_SYSTEM, "no memory for a plan of %d ranks", b->n);
		return;
	}
	for (int k = 0; k < side->count; k++)
		ranks[k] = side->first + k;
	tt_step_reduce(b, ranks, side->count, s);
	free(ranks);
}

static void from_main(struct tt_builder *b, const struct side *side, struct tt_span s)
{
	if (b->rank != side->main)
		tt_step_recv(b, side->main, s);
	for (int r = side->first; r < side->first + side->count && b->rank == side->main; r++)
		if (r != b->rank)
			tt_step_send(b, r, s);
}

/* All ranks take the blocks in one order, so nobody waits for one who waits for him. */
static void build(struct tt_builder *b, const char *argument)
{
	int n = b->n > 1 ? b->n : 0;

	(void)argument;
	for (int i = 0; i < n; i++) {
		struct side side = side_of(n, i, b->rank);

		to_main(b, &side, tt_part(b, i));
		if (b->rank == i)
			tt_step_recv_reduce(b, side.other_main, tt_part(b, i), TT_MINE_FIRST);
		else if (b->rank == side.main)
			tt_step_send(b, i, tt_part(b, i));
	}
	for (int i = 0; i < n; i++) {
		struct side side = side_of(n, i, b->rank);

		if (b->rank == i)
			tt_step_send(b, side.other_main, tt_part(b, i));
		else if (b->rank == side.main)
			tt_step_recv(b, i, tt_part(b, i));
		from_main(b, &side, tt_part(b, i));
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
