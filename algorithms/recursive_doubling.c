/*
 * recursive_doubling.c - exchange of the whole buffer with partners at doubling distances: fewest
 * steps for small messages
 *
 * In step k, a rank and the rank whose number differs in bit k exchange their sums and both add,
 * the lower rank's operand first, so both hold the same bits of twice as many ranks. n not a power
 * of two, p the largest power of two below n: of the first 2(n - p) ranks, the even ones send their
 * values to the odd ones before, and get the result after.
 *
 *   n = 4:     0   1   2   3          0: (g0+g1) + (g2+g3)
 *              |<->|   |<->|          and the same on 1, 2, 3
 *              |<----->|
 *                  |<----->|
 *
 *   steps          log2 n, and 2 for n not a power of two (log2 n rounded down)
 *   bytes          each rank sends S log2 n; n not a power of two: a folded rank sends S, its
 *                  neighbor S (log2 p + 1)
 *   order of sums  a binary tree over the ranks, in rank order
 *   restrictions   none
 *   source         Thakur, Rabenseifner and Gropp 2005: Optimization of collective communication
 *                  operations in MPICH
 */
#include "algorithms/forms.h"
#include "algorithms/fold.h"

static void exchange(struct tt_builder *b, const struct tt_fold *f)
{
	for (int d = 1; d < f->p2; d *= 2) {
		int peer = tt_fold_rank(f, f->me ^ d);

		tt_step_send(b, peer, tt_all(b));
		if (2 * d < f->p2)
			tt_aside(b);
		tt_step_recv_reduce(b, peer, tt_all(b),
				    peer < b->rank ? TT_PEER_FIRST : TT_MINE_FIRST);
	}
}

static void build(struct tt_builder *b, const char *argument)
{
	struct tt_fold f = tt_fold_of(b->n, b->rank);

	(void)argument;
	if (f.me < 0) {
		tt_step_send(b, b->rank + 1, tt_all(b));
		tt_step_recv(b, b->rank + 1, tt_all(b));
		return;
	}
	if (f.paired) {
		tt_aside(b);
		tt_step_recv_reduce(b, b->rank - 1, tt_all(b), TT_PEER_FIRST);
	}
	exchange(b, &f);
	if (f.paired)
		tt_step_send(b, b->rank - 1, tt_all(b));
}

const struct tt_algorithm tt_allreduce_recursive_doubling = {
	.collective = TT_ALLREDUCE,
	.name = "recursive-doubling",
	.help = "small messages: log2 n exchanges of the whole buffer",
	.source =
		"Thakur, Rabenseifner and Gropp 2005, Optimization of collective communication operations in MPICH",
	.symmetry = tt_exchanges,
	.build = build,
};
