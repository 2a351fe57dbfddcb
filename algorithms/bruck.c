/*
 * bruck.c - allgather in log2 n steps for any n
 *
 * In step k every rank sends its first 2^k blocks or fewer, its own block first, to rank - 2^k, and
 * receives as many from rank + 2^k. After the step a rank has twice as many blocks: its own and
 * those of the next ranks. Blocks are received into their final position, so no rotation is needed
 * at the end; blocks of a step that wrap around the end of the buffer are two messages.
 *
 *   n = 4, blocks of rank 1:  1  |  1 2 (from 2)  |  1 2 3 0 (from 3: 3, and 0)
 *
 *   steps          log2 n, rounded up
 *   bytes          each rank sends n-1 blocks
 *   restrictions   none
 *   source         Bruck et al. 1997: Efficient algorithms for all-to-all communications in
 *                  multiport message-passing systems
 */
#include "algorithms/forms.h"

/* A span that wraps around is two messages, but not on rank 0, which can stand for all. */
static struct tt_symmetry symmetry(const struct tt_shape *shape, const char *argument)
{
	const struct tt_topology *t = shape->topology;
	bool alone = !t || t->nhosts == 1 || t->nhosts == t->nranks;

	(void)argument;
	return (struct tt_symmetry){ .kind = alone ? TT_ROTATION : TT_ASYMMETRIC, .nearly = true };
}

static void build(struct tt_builder *b, const char *argument)
{
	int rank = b->rank, n = b->n;

	(void)argument;
	tt_step_copy(b, tt_part(b, rank));
	for (int d = 1; d < n; d *= 2) {
		int count = d < n - d ? d : n - d, behind = (rank + d) % n;

		tt_row_begin(b);
		tt_step_around(b, tt_step_send, (rank - d + n) % n, rank, count);
		tt_step_around(b, tt_step_recv, behind, behind, count);
		tt_row_end(b);
	}
}

const struct tt_algorithm tt_allgather_bruck = {
	.collective = TT_ALLGATHER,
	.name = "bruck",
	.help = "small messages: log2 n steps for any n",
	.source =
		"Bruck et al. 1997, Efficient algorithms for all-to-all communications in multiport message-passing "
		"systems",
	.symmetry = symmetry,
	.build = build,
};
