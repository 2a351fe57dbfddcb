/*
 * halving_doubling.c - Rabenseifner's algorithm: bytes of the ring, steps of recursive doubling
 *
 * Reduce-scatter by recursive halving: a rank and its partner at distance p/2 split the parts that
 * they share; each sends the partner's half and adds the received half to its own; then the same at
 * distance p/4 with half the parts, and so on. Allgather by recursive doubling reverses these
 * steps. p is the largest power of two not above n; of the first 2(n-p) ranks the even ones are
 * folded into the odd ones before and get the result after.
 *
 *   n = 4, parts a b c d:
 *      rank 0   abcd --cd-> 2, +ab --b-> 1, +a | --a-> 1, ab --ab-> 2, abcd
 *      rank 1   abcd --cd-> 3, +ab --a-> 0, +b | --b-> 0, ab --ab-> 3, abcd
 *      rank 2   abcd --ab-> 0, +cd --d-> 3, +c | --c-> 3, cd --cd-> 0, abcd
 *      rank 3   abcd --ab-> 1, +cd --c-> 2, +d | --d-> 2, cd --cd-> 1, abcd
 *
 *   steps          allreduce 2 log2 p, and 2 if n is not p; reduce_scatter (halving), allgather
 *                  (recursive-doubling): half
 *   bytes          a member sends 2(p-1)/p S; a folded rank S, its neighbor S more;
 *                  reduce_scatter, allgather of n = p: n-1 blocks
 *   order of sums  a binary tree over the members, in rank order
 *   restrictions   none
 *   source         Rabenseifner 2004: Optimization of collective reduction operations
 */
#include "algorithms/forms.h"
#include "algorithms/fold.h"

/* Parts of members from..to-1; the group has one part per member, or one part per rank. */
static struct tt_span parts_of(struct tt_builder *b, const struct tt_fold *f, int from, int to)
{
	bool by_member = b->parts == (uint32_t)f->p2;
	int first = by_member ? from : tt_fold_first(f, from),
	    end = by_member ? to : tt_fold_first(f, to);

	return tt_parts(b, (uint32_t)first, (uint32_t)(end - first));
}

static void halve(struct tt_builder *b, const struct tt_fold *f)
{
	int from = 0, to = f->p2;

	for (int d = f->p2 / 2; d >= 1; d /= 2) {
		int peer = tt_fold_rank(f, f->me ^ d), middle = from + d;
		struct tt_span low = parts_of(b, f, from, middle),
			       high = parts_of(b, f, middle, to);

		tt_row_begin(b);
		if (f->me & d) {
			tt_step_send(b, peer, low);
			tt_step_recv_reduce(b, peer, high, TT_PEER_FIRST);
			from = middle;
		} else {
			tt_step_send(b, peer, high);
			tt_step_recv_reduce(b, peer, low, TT_MINE_FIRST);
			to = middle;
		}
		tt_row_end(b);
	}
}

static void redouble(struct tt_builder *b, const struct tt_fold *f)
{
	for (int d = 1; d < f->p2; d *= 2) {
		int peer = tt_fold_rank(f, f->me ^ d), mine = f->me & -d, theirs = mine ^ d;

		tt_row_begin(b);
		tt_step_send(b, peer, parts_of(b, f, mine, mine + d));
		tt_step_recv(b, peer, parts_of(b, f, theirs, theirs + d));
		tt_row_end(b);
	}
}

static void fold_in(struct tt_builder *b, const struct tt_fold *f)
{
	if (f->me < 0)
		tt_step_send(b, b->rank + 1, tt_all(b));
	if (f->paired)
		tt_step_recv_reduce(b, b->rank - 1, tt_all(b), TT_PEER_FIRST);
}

static void allreduce(struct tt_builder *b, const char *argument)
{
	struct tt_fold f = tt_fold_of(b->n, b->rank);

	(void)argument;
	fold_in(b, &f);
	if (f.me >= 0) {
		halve(b, &f);
		redouble(b, &f);
	} else {
		tt_step_recv(b, b->rank + 1, tt_all(b));
	}
	if (f.paired)
		tt_step_send(b, b->rank - 1, tt_all(b));
}

/* A member ends with its own part and the part of the rank folded into it, which it sends there. */
void tt_halving_reduce_scatter(struct tt_builder *b)
{
	struct tt_fold f = tt_fold_of(b->n, b->rank);

	fold_in(b, &f);
	if (f.me >= 0)
		halve(b, &f);
	else
		tt_step_recv(b, b->rank + 1, tt_part(b, b->rank));
	if (f.paired)
		tt_step_send(b, b->rank - 1, tt_part(b, b->rank - 1));
}

/* The same in reverse: a folded rank sends its part, and receives all others. */
void tt_doubling_allgather(struct tt_builder *b)
{
	struct tt_fold f = tt_fold_of(b->n, b->rank);
	uint32_t rank = (uint32_t)b->rank, n = (uint32_t)b->n;

	tt_step_copy(b, tt_part(b, b->rank));
	if (f.me < 0) {
		tt_step_send(b, b->rank + 1, tt_part(b, b->rank));
		tt_step_recv(b, b->rank + 1, tt_parts(b, 0, rank));
		tt_step_recv(b, b->rank + 1, tt_parts(b, rank + 1, n - rank - 1));
		return;
	}
	if (f.paired)
		tt_step_recv(b, b->rank - 1, tt_part(b, b->rank - 1));
	redouble(b, &f);
	if (f.paired) {
		tt_step_send(b, b->rank - 1, tt_parts(b, 0, rank - 1));
		tt_step_send(b, b->rank - 1, tt_parts(b, rank, n - rank));
	}
}

static struct tt_cut cut(const struct tt_shape *shape, const char *argument)
{
	(void)argument;
	return (struct tt_cut){ (uint32_t)tt_fold_of(shape->nranks, 0).p2, 1 };
}

static void reduce_scatter(struct tt_builder *b, const char *argument)
{
	(void)argument;
	tt_halving_reduce_scatter(b);
}

static void allgather(struct tt_builder *b, const char *argument)
{
	(void)argument;
	tt_doubling_allgather(b);
}

#define SOURCE "Rabenseifner 2004, Optimization of collective reduction operations"

const struct tt_algorithm tt_allreduce_halving_doubling = {
	.collective = TT_ALLREDUCE,
	.name = "halving-doubling",
	.help = "middle messages: few bytes in 2 log2 n steps",
	.source = SOURCE,
	.cut = cut,
	.symmetry = tt_exchanges,
	.build = allreduce,
};

const struct tt_algorithm tt_reduce_scatter_halving = {
	.collective = TT_REDUCE_SCATTER,
	.name = "halving",
	.help = "middle messages: log2 n steps",
	.source = SOURCE,
	.symmetry = tt_exchanges,
	.build = reduce_scatter,
};

const struct tt_algorithm tt_allgather_recursive_doubling = {
	.collective = TT_ALLGATHER,
	.name = "recursive-doubling",
	.help = "middle messages, n a power of two: log2 n steps",
	.source = SOURCE,
	.symmetry = tt_exchanges,
	.build = allgather,
};
