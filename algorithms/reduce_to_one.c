/*
 * reduce_to_one.c - one rank sums all buffers in rank order and sends the sum to all ranks
 *
 * The simplest reduction, ((g0 + g1) + g2) + ..., as in a parameter server or "reduction to one
 * device". Rank 0 sums; with reduce-to-one:rotate the buffer is cut into n blocks and rank r sums
 * block r, so work and bytes are spread over the ranks (by the exchange of two-shot).
 *
 *   n = 4:        1 --\               /--> 1
 *                 2 ---> 0: g0+g1+g2+g3 ---> 2
 *                 3 --/               \--> 3
 *
 *   steps          2
 *   bytes          rank 0 receives and sends (n-1) S, the others send S; rotate: each rank sends
 *                  2(n-1)/n S
 *   order of sums  rank order; one rounding for the first eight ranks
 *                  and one more for each further seven
 *   restrictions   none; good for small messages and few ranks
 *   source         Dean et al. 2012: Large scale distributed deep networks; TensorFlow's
 *                  ReductionToOneDevice
 */
#include <string.h>

#include "algorithms/forms.h"

static bool takes(const char *argument)
{
	return !strcmp(argument, "rotate");
}

static struct tt_cut cut(const struct tt_shape *shape, const char *argument)
{
	return takes(argument) ? tt_cut_by_ranks(shape, argument) : (struct tt_cut){ 1, 1 };
}

static struct tt_symmetry symmetry(const struct tt_shape *shape, const char *argument)
{
	if (!takes(argument))
		return (struct tt_symmetry){ .kind = TT_ASYMMETRIC };
	return tt_rotates_in_rank_order(shape, argument);
}

static void allreduce(struct tt_builder *b, const char *argument)
{
	if (takes(argument)) {
		tt_linear_reduce_scatter(b);
		tt_linear_allgather(b);
	} else {
		tt_linear_reduce(b);
		tt_linear_broadcast(b);
	}
}

static void reduce(struct tt_builder *b, const char *argument)
{
	(void)argument;
	tt_linear_reduce(b);
}

#define SOURCE "Dean et al. 2012, Large scale distributed deep networks"

const struct tt_algorithm tt_allreduce_reduce_to_one = {
	.collective = TT_ALLREDUCE,
	.name = "reduce-to-one",
	.help = "small messages: rank 0 sums in rank order, then sends",
	.source = SOURCE,
	.argument = "",
	.form = "rotate",
	.takes = takes,
	.cut = cut,
	.symmetry = symmetry,
	.build = allreduce,
};

const struct tt_algorithm tt_reduce_to_one = {
	.collective = TT_REDUCE,
	.name = "reduce-to-one",
	.help = "small messages: the root sums in rank order",
	.source = SOURCE,
	.slots = true,
	.build = reduce,
};
