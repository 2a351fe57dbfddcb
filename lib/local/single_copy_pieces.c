/*
 * single_copy_pieces.c - the bytes that a rank reads of each peer's buffer, per collective
 *
 * Called by single_copy.c. A block is the count of the call. An allreduce is cut into one part per
 * rank.
 */
#include "local/single_copy.h"
#include "run/plan_cache.h"

#define LEAST_BLOCK (32u << 10) /* bytes between two ranks in collectives that only copy */

bool tt_smsc_sums(const struct tt_op *op)
{
	return op->call.request->collective == TT_ALLREDUCE ||
	       op->call.request->collective == TT_REDUCE_SCATTER;
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
	case TT_ALLGATHER:
	case TT_ALLTOALL:
	case TT_GATHER:
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

size_t tt_smsc_in_bytes(const struct tt_op *op, int rank)
{
	size_t n = (size_t)op->comm->nranks, block = op->bound.block;

	switch (op->call.request->collective) {
	case TT_REDUCE_SCATTER:
	case TT_ALLTOALL:
		return block * n;
	case TT_BROADCAST:
		return rank == op->call.request->root ? block : 0;
	case TT_SCATTER:
		return rank == op->call.request->root ? block * n : 0;
	default:
		return block;
	}
}

size_t tt_smsc_out_bytes(const struct tt_op *op)
{
	return op->call.request->collective == TT_ALLREDUCE ? op->bound.block : 0;
}

struct tt_smsc_piece tt_smsc_piece(const struct tt_op *op, int peer)
{
	const struct tt_request *r = op->call.request;
	int rank = op->comm->rank;
	size_t me = (size_t)rank, p = (size_t)peer, block = op->bound.block,
	       part = op->comm->single_copy->part, at = p * part;
	bool of_root = peer == r->root, to_root = rank == r->root;

	switch (r->collective) {
	case TT_ALLREDUCE:
		return (struct tt_smsc_piece){ at, at,
					       at < block ? min_size(block - at, part) : 0 };
	case TT_REDUCE_SCATTER:
		return (struct tt_smsc_piece){ me * block, 0, peer == rank ? block : 0 };
	case TT_BROADCAST:
		return (struct tt_smsc_piece){ 0, 0, of_root ? block : 0 };
	case TT_ALLGATHER:
		return (struct tt_smsc_piece){ 0, p * block, block };
	case TT_ALLTOALL:
		return (struct tt_smsc_piece){ me * block, p * block, block };
	case TT_GATHER:
		return (struct tt_smsc_piece){ 0, p * block, to_root ? block : 0 };
	default: /* scatter */
		return (struct tt_smsc_piece){ me * block, 0, of_root ? block : 0 };
	}
}
