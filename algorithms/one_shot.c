/*
 * one_shot.c - every rank sends its buffer to all others: one step, small messages, few ranks
 *
 * Each rank sums all contributions itself, in rank order, directly from the messages, so all ranks
 * get the same bits without a second step. n = 2: an exchange, which moves no more bytes than any
 * other algorithm.
 *
 *   n = 4:   rank 1 sends its buffer to 2, 3, 0; then out = g0 + own + g2 + g3
 *
 *   steps          1
 *   bytes          each rank sends (n-1) S
 *   order of sums  rank order; one rounding for the first eight ranks
 *                  and one more for each further seven
 *   restrictions   none
 *   source         Thakur, Rabenseifner and Gropp 2005: Optimization of collective communication
 *                  operations in MPICH; name from NVIDIA TensorRT-LLM and vLLM, which use the
 *                  algorithm between GPUs
 */
#include "algorithms/forms.h"

static void build(struct tt_builder *b, const char *argument)
{
	(void)argument;
	for (int i = 1; i < b->n; i++)
		tt_step_send(b, (b->rank + i) % b->n, tt_all(b));
	tt_step_reduce(b, NULL, b->n, tt_all(b));
}

const struct tt_algorithm tt_allreduce_one_shot = {
	.collective = TT_ALLREDUCE,
	.name = "one-shot",
	.help = "small messages, few ranks: one step, all to all",
	.source =
		"Thakur, Rabenseifner and Gropp 2005, Optimization of collective communication operations in MPICH",
	.symmetry = tt_rotates_in_rank_order,
	.slots = true,
	.build = build,
};
