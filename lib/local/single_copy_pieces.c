/*
 * single_copy_pieces.c - the bytes that a rank reads of each peer's buffer, per collective
 *
 * Called by single_copy.c. The pieces are those of the collective's form (form.h), but an allreduce is
 * cut into one part per rank.
 */
#include "local/single_copy.h"
#include "run/plan_cache.h"

#define LEAST_BLOCK (32u << 10) /* bytes between two ranks in collectives that only copy */

bool tt_smsc_sums(const struct tt_op *op)
{
	return op->call.request->collective == TT_ALLREDUCE ||
	       op->call.request->collective == TT_REDUCE_SCATTER;
}

/* A post of two ranks with a core each. No exchange of addresses stops its giver. Xeon, ordinary memory and windows, us,
 * by single copy and by posts: broadcast of 32 KiB 2.17, 2.14, and 1.70; gather of 64 KiB 2.63, 2.77, and 2.06, of 128 KiB
 * 3.55, 4.60, and 3.51; allgather of 64 KiB 3.26, 3.61, and 3.13, of 128 KiB (windows) 6.02, and 7.43. Windows are read in
 * an alltoall and a scatter of 64 KiB within 2.78 and 2.04; their posts take 3.27 and 2.47. */
static bool is_posted(const struct tt_op *op)
{
	const struct tt_connectivity facts = tt_comm_connectivity(op->comm);

	return op->comm->nranks == 2 && !tt_smsc_crowded(op->comm) &&
	       tt_plan_on_slots(op->bound.plan, &facts, op->bound.block);
}

bool tt_smsc_fits(const struct tt_op *op)
{
	bool in_rank_order = op->bound.cached->algorithm->in_place;
	size_t n = (size_t)op->comm->nranks, block = op->bound.block;

	switch (op->call.request->collective) {
	case TT_ALLREDUCE:
		return block >= TT_SINGLE_COPY_BYTES && in_rank_order;
	case TT_REDUCE_SCATTER:
		return block * n >= TT_SINGLE_COPY_BYTES && in_rank_order;
	case TT_BROADCAST:
	case TT_GATHER:
		return block >= LEAST_BLOCK && !is_posted(op);
	case TT_ALLGATHER:
		return block >= (is_posted(op) ? TT_SINGLE_COPY_BYTES : LEAST_BLOCK);
	case TT_ALLTOALL:
	case TT_SCATTER:
		return block >= LEAST_BLOCK;
	default:
		return false;
	}
}

static size_t min_size(size_t a, size_t b)
{
	return a < b ? a : b;
}

struct tt_form tt_smsc_form(const struct tt_op *op)
{
	const struct tt_request *r = op->call.request;

	return tt_form_of(op->comm, r->collective, r->root, op->bound.block);
}

size_t tt_smsc_in_bytes(const struct tt_op *op, int rank)
{
	const struct tt_form f = tt_smsc_form(op);

	return tt_form_gives(&f, rank) ? tt_form_given(&f) : 0;
}

size_t tt_smsc_out_bytes(const struct tt_op *op)
{
	return op->call.request->collective == TT_ALLREDUCE ? op->bound.block : 0;
}

struct tt_smsc_piece tt_smsc_piece(const struct tt_op *op, int peer)
{
	const struct tt_form f = tt_smsc_form(op);
	size_t part = op->comm->single_copy->part, at = (size_t)peer * part;

	if (op->call.request->collective == TT_ALLREDUCE)
		return (struct tt_smsc_piece){ at, at,
					       at < f.block ? min_size(f.block - at, part) : 0 };
	return (struct tt_smsc_piece){ tt_form_from(&f), tt_form_to(&f, peer),
				       tt_form_has_input(&f, peer) && tt_form_takes(&f, f.rank)
					       ? f.block
					       : 0 };
}
