/*
 * bruck.c - allgather in log2 n steps for any n
 *
 * In step k every rank sends the blocks it has, at most 2^k of them from its own on, to rank - 2^k,
 * and takes as many from rank + 2^k: it then has twice as many, its own and those of the ranks
 * behind it. Blocks lie at their final places from the start, so there is nothing to rotate at the
 * end; where the blocks of a step run over the end of the buffer they travel as two messages.
 *
 *   n = 4, what rank 1 has:   1  |  1 2 (from 2)  |  1 2 3 0 (from 3: 3, and 0)
 *
 *   steps          log2 n, rounded up
 *   bytes          each rank sends n-1 blocks
 *   restrictions   none
 *   source         Bruck et al. 1997: Efficient algorithms for all-to-all communications in
 *                  multiport message-passing systems
 */
#include "algorithms/forms.h"

typedef void verb(struct tt_builder *b, int peer, struct tt_span s);

/* Moves `count` blocks from `first` on, counted round. */
static void move(struct tt_builder *b, verb *v, int peer, int first, int count)
{
	int gdr = first + count <= b->n ? count : b->n - first;

	v(b, peer, tt_parts(b, (uint32_t)first, (uint32_t)gdr));
	v(b, peer, tt_parts(b, 0, (uint32_t)(count - gdr)));
}

static void build(struct tt_builder *b, const char *argument)
{
	int rank = b->rank, n = b->n;

	(void)argument;
	tt_step_copy(b, tt_part(b, rank));
	for (int d = 1; d < n; d *= 2) {
		int count = d < n - d ? d : n - d, behind = (rank + d) % n;

		tt_row_begin(b);
		move(b, tt_step_send, (rank - d + n) % n, rank, count);
		move(b, tt_step_recv, behind, behind, count);
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
	.build = build,
};
