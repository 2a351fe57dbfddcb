/*
 * linear.c - one message per pair of ranks that share data: fewest steps, for few ranks
 *
 * Users select these algorithms by the name "direct". Messages are sent in rotated order, to
 * rank + 1 first, so that no rank is the first peer of all. Sums are taken in rank order,
 * ((g0 + g1) + g2) + ..., directly from the messages.
 *
 *   n = 4, reduce_scatter:   rank 1 sends in[2] to 2, in[3] to 3, in[0] to 0,
 *                            then out = in[1] of 0 + own in[1] + in[1] of 2 + in[1] of 3
 *          allgather, alltoall: the same sends, then receives from 0, 3, 2
 *          reduce, gather:   0 <- 1, 2, 3            broadcast, scatter:   0 -> 1, 2, 3
 *
 *   steps    1; a reduction has one rounding for the first eight ranks and one more for each
 *            further seven
 *   bytes    allgather, reduce_scatter, alltoall: each rank sends n-1 blocks; reduce, gather: S,
 *            the root receives (n-1) S; broadcast, scatter: the root sends (n-1) S
 *   restrictions   none
 *   source   Thakur, Rabenseifner and Gropp 2005: Optimization of collective communication
 *            operations in MPICH
 */
#include "algorithms/forms.h"

void tt_linear_reduce_scatter(struct tt_builder *b)
{
	tt_row_begin(b);
	for (int i = 1; i < b->n; i++)
		tt_step_send(b, (b->rank + i) % b->n, tt_part(b, b->rank + i));
	tt_step_reduce(b, NULL, b->n, tt_part(b, b->rank));
	tt_row_end(b);
}

void tt_linear_allgather(struct tt_builder *b)
{
	tt_row_begin(b);
	for (int i = 1; i < b->n; i++)
		tt_step_send(b, (b->rank + i) % b->n, tt_part(b, b->rank));
	for (int i = 1; i < b->n; i++)
		tt_step_recv(b, (b->rank + b->n - i) % b->n, tt_part(b, b->rank - i));
	tt_row_end(b);
}

void tt_linear_reduce(struct tt_builder *b)
{
	if (b->rank == b->root)
		tt_step_reduce(b, NULL, b->n, tt_all(b));
	else
		tt_step_send(b, b->root, tt_all(b));
}

void tt_linear_broadcast(struct tt_builder *b)
{
	if (b->rank != b->root)
		tt_step_recv(b, b->root, tt_all(b));
	for (int i = 1; i < b->n && b->rank == b->root; i++)
		tt_step_send(b, (b->root + i) % b->n, tt_all(b));
}

static void reduce_scatter(struct tt_builder *b, const char *argument)
{
	(void)argument;
	tt_linear_reduce_scatter(b);
}

static void allgather(struct tt_builder *b, const char *argument)
{
	(void)argument;
	tt_linear_allgather(b);
}

static void broadcast(struct tt_builder *b, const char *argument)
{
	(void)argument;
	tt_linear_broadcast(b);
}

static void alltoall(struct tt_builder *b, const char *argument)
{
	(void)argument;
	for (int i = 1; i < b->n; i++)
		tt_step_send(b, (b->rank + i) % b->n, tt_part(b, b->rank + i));
	for (int i = 1; i < b->n; i++)
		tt_step_recv(b, (b->rank + b->n - i) % b->n, tt_part(b, b->rank - i));
}

static void gather(struct tt_builder *b, const char *argument)
{
	(void)argument;
	if (b->rank != b->root)
		tt_step_send(b, b->root, tt_part(b, b->rank));
	for (int i = 1; i < b->n && b->rank == b->root; i++)
		tt_step_recv(b, (b->root + i) % b->n, tt_part(b, b->root + i));
}

static void scatter(struct tt_builder *b, const char *argument)
{
	(void)argument;
	for (int i = 1; i < b->n && b->rank == b->root; i++)
		tt_step_send(b, (b->root + i) % b->n, tt_part(b, b->root + i));
	if (b->rank != b->root)
		tt_step_recv(b, b->root, tt_part(b, b->rank));
}

#define SOURCE \
	"Thakur, Rabenseifner and Gropp 2005, Optimization of collective communication operations in MPICH"

const struct tt_algorithm tt_reduce_scatter_linear = {
	.collective = TT_REDUCE_SCATTER,
	.name = "direct",
	.in_place = true,
	.help = "few ranks: one step, sums in rank order",
	.source = SOURCE,
	.symmetry = tt_rotates_in_rank_order,
	.slots = true,
	.build = reduce_scatter,
};

const struct tt_algorithm tt_allgather_linear = {
	.collective = TT_ALLGATHER,
	.name = "direct",
	.help = "few ranks: one step",
	.source = SOURCE,
	.symmetry = tt_rotates,
	.slots = true,
	.build = allgather,
};

const struct tt_algorithm tt_broadcast_linear = {
	.collective = TT_BROADCAST,
	.name = "direct",
	.help = "few ranks: one step",
	.source = SOURCE,
	.slots = true,
	.build = broadcast,
};

const struct tt_algorithm tt_alltoall_linear = {
	.collective = TT_ALLTOALL,
	.name = "direct",
	.help = "every pair exchanges its blocks",
	.source = SOURCE,
	.symmetry = tt_rotates,
	.slots = true,
	.build = alltoall,
};

const struct tt_algorithm tt_gather_linear = {
	.collective = TT_GATHER,
	.name = "direct",
	.help = "every rank sends to the root",
	.source = SOURCE,
	.slots = true,
	.build = gather,
};

const struct tt_algorithm tt_scatter_linear = {
	.collective = TT_SCATTER,
	.name = "direct",
	.help = "the root sends to every rank",
	.source = SOURCE,
	.slots = true,
	.build = scatter,
};
