/*
 * ring.c - every rank exchanges with its two neighbors only: bandwidth-optimal, for large messages
 *
 * Allreduce is reduce-scatter, then allgather. The buffer is cut into n parts. In n - 1 steps each
 * rank sends the sum of one part to the next rank, which adds its own values; then rank r has the
 * whole sum of part r. In n - 1 more steps the sums travel around the ring. Reduce and broadcast
 * cut the ring open at the root: a chain through which tiles are pipelined.
 *
 *   n = 4, steps of rank 0 by part (s: sends, +: receives and adds, r: receives):
 *
 *        0 --> 1          step   1    2    3  |  4    5    6
 *        ^     |          sends  s3   s2   s1 |  s0   s3   s2
 *        |     v          takes  +2   +1   +0 |  r3   r2   r1
 *        3 <-- 2
 *
 *   allreduce        2(n-1) steps, each rank sends 2(n-1)/n S
 *   reduce_scatter, allgather   n-1 steps, each rank sends n-1 blocks
 *   reduce, broadcast           n-1 steps, each rank but the last of the chain sends S
 *   order of sums    part r: rank r+1, r+2, ... and r last; reduce: the rank after the root first,
 *                    the root last
 *   restrictions     none
 *   source           Patarasuk and Yuan 2009: Bandwidth optimal all-reduce algorithms for clusters
 *                    of workstations
 */
#include "algorithms/forms.h"

void tt_ring_reduce_scatter(struct tt_builder *b)
{
	int rank = b->rank, n = b->n, next = (rank + 1) % n, prev = (rank + n - 1) % n;

	tt_row_begin(b);
	for (int i = 1; i < n; i++) {
		tt_step_send(b, next, tt_part(b, rank - i));
		tt_step_recv_reduce(b, prev, tt_part(b, rank - i - 1), TT_PEER_FIRST);
	}
	tt_row_end(b);
}

void tt_ring_allgather(struct tt_builder *b)
{
	int rank = b->rank, n = b->n, next = (rank + 1) % n, prev = (rank + n - 1) % n;

	tt_row_begin(b);
	for (int i = 0; i < n - 1; i++) {
		tt_step_send(b, next, tt_part(b, rank - i));
		tt_step_recv(b, prev, tt_part(b, rank - i - 1));
	}
	tt_row_end(b);
}

static void allreduce(struct tt_builder *b, const char *argument)
{
	(void)argument;
	tt_ring_reduce_scatter(b);
	tt_ring_allgather(b);
}

static void reduce_scatter(struct tt_builder *b, const char *argument)
{
	(void)argument;
	tt_ring_reduce_scatter(b);
}

static void allgather(struct tt_builder *b, const char *argument)
{
	(void)argument;
	tt_ring_allgather(b);
}

static void reduce(struct tt_builder *b, const char *argument)
{
	int rank = b->rank, n = b->n, next = (rank + 1) % n, prev = (rank + n - 1) % n;

	(void)argument;
	if (prev != b->root)
		tt_step_recv_reduce(b, prev, tt_all(b), TT_PEER_FIRST);
	if (rank != b->root)
		tt_step_send(b, next, tt_all(b));
}

static void broadcast(struct tt_builder *b, const char *argument)
{
	int rank = b->rank, n = b->n, next = (rank + 1) % n, prev = (rank + n - 1) % n;

	(void)argument;
	if (rank != b->root)
		tt_step_recv(b, prev, tt_all(b));
	if (next != b->root)
		tt_step_send(b, next, tt_all(b));
}

#define SOURCE \
	"Patarasuk and Yuan 2009, Bandwidth optimal all-reduce algorithms for clusters of workstations"

const struct tt_algorithm tt_allreduce_ring = {
	.collective = TT_ALLREDUCE,
	.name = "ring",
	.help = "large messages: moves the fewest bytes, between neighbors only",
	.source = SOURCE,
	.cut = tt_cut_by_ranks,
	.symmetry = tt_rotates,
	.build = allreduce,
};

const struct tt_algorithm tt_reduce_scatter_ring = {
	.collective = TT_REDUCE_SCATTER,
	.name = "ring",
	.help = "large messages: between neighbors only",
	.source = SOURCE,
	.symmetry = tt_rotates,
	.build = reduce_scatter,
};

const struct tt_algorithm tt_allgather_ring = {
	.collective = TT_ALLGATHER,
	.name = "ring",
	.help = "large messages: between neighbors only",
	.source = SOURCE,
	.symmetry = tt_rotates,
	.build = allgather,
};

const struct tt_algorithm tt_reduce_ring = {
	.collective = TT_REDUCE,
	.name = "ring",
	.help = "large messages: a chain that ends at the root",
	.source = SOURCE,
	.build = reduce,
};

const struct tt_algorithm tt_broadcast_ring = {
	.collective = TT_BROADCAST,
	.name = "ring",
	.help = "large messages: a chain that begins at the root",
	.source = SOURCE,
	.build = broadcast,
};
