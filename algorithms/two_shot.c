/*
 * two_shot.c - reduce-scatter and allgather in one all-to-all step each: for few ranks that share
 * memory
 *
 * The buffer is cut into n parts. Every rank sends part p to rank p; rank p sums part p in rank
 * order, directly from the messages, and sends the sum to all ranks. As few bytes as the ring, two
 * steps for any n, but n-1 peers at once.
 *
 *   n = 4:   1st   rank 1 sends part 2 to 2, part 3 to 3, part 0 to 0;
 *                  receives part 1 from 0, 2, 3 and sums
 *            2nd   rank 1 sends the sum of part 1 to 2, 3, 0;
 *                  receives part 0 from 0, part 3 from 3, part 2 from 2
 *
 *   steps          2
 *   bytes          each rank sends 2(n-1)/n S
 *   order of sums  rank order; one rounding for the first eight ranks
 *                  and one more for each further seven
 *   restrictions   none
 *   source         Barnett et al. 1994: Interprocessor collective communication library (InterCom);
 *                  name from NVIDIA TensorRT-LLM and vLLM, which use the algorithm between GPUs
 */
#include "algorithms/forms.h"

static void build(struct tt_builder *b, const char *argument)
{
	(void)argument;
	tt_linear_reduce_scatter(b);
	tt_linear_allgather(b);
}

const struct tt_algorithm tt_allreduce_two_shot = {
	.collective = TT_ALLREDUCE,
	.name = "two-shot",
	.in_place = true,
	.help = "few ranks, middle and large messages: two steps, all to all",
	.source = "Barnett et al. 1994, Interprocessor collective communication library (InterCom)",
	.cut = tt_cut_by_ranks,
	.symmetry = tt_rotates_in_rank_order,
	.build = build,
};
