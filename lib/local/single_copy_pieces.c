/*
 * single_copy_pieces.c - which bytes of whose buffer a rank needs,
 * for each collective that reads peers' memory
 *
 * Called by single_copy.c. Blocks are those of the call: its count.
 * An allreduce is cut into one part a rank.
 */
#include "local/single_copy.h"

#define LEAST_BLOCK (32u << 10)          /* of what is only copied between two ranks */

bool tt_single_copy_sums(const struct tt_op *op)
{
	return op->request->collective == TT_ALLREDUCE ||
	       op->request->collective == TT_REDUCE_SCATTER;
}

bool tt_single_copy_fits(const struct tt_op *op)
{
	size_t n = (size_t)op->comm->nranks;

	switch (op->request->collective) {
	case TT_ALLREDUCE:
		return op->block >= TT_SINGLE_COPY_BYTES && op->kept->algorithm->in_place;
	case TT_REDUCE_SCATTER:
		return op->block * n >= TT_SINGLE_COPY_BYTES && op->kept->algorithm->in_place;
	case TT_BROADCAST:
	case TT_ALLGATHER:
	case TT_ALLTOALL:
	case TT_GATHER:
	case TT_SCATTER:
		return op->block >= LEAST_BLOCK;
	default:
		return false;
	}
}

static size_t least(size_t a, size_t b)
{
	return a < b ? a : b;
}

/* Bytes of rank's input that others read. */
size_t tt_single_copy_in_bytes(const struct tt_op *op, int rank)
{
	switch (op->request->collective) {
	case TT_REDUCE_SCATTER:
	case TT_ALLTOALL:
		return op->block * (size_t)op->comm->nranks;
	case TT_BROADCAST:
		return rank == op->request->root ? op->block : 0;
	case TT_SCATTER:
		return rank == op->request->root ? op->block * (size_t)op->comm->nranks : 0;
	default:
		return op->block;
	}
}

size_t tt_single_copy_out_bytes(const struct tt_op *op)
{
	return op->request->collective == TT_ALLREDUCE ? op->block : 0;
}

struct tt_single_copy_piece_of_peer tt_single_copy_piece(const struct tt_op *op, int peer)
{
	size_t me = (size_t)op->comm->rank, p = (size_t)peer, block = op->block, at = p * op->part;
	bool of_root = peer == op->request->root, to_root = op->comm->rank == op->request->root;

	switch (op->request->collective) {
	case TT_ALLREDUCE:
		return (struct tt_single_copy_piece_of_peer){ at, at, at < block ? least(block - at, op->part) : 0 };
	case TT_REDUCE_SCATTER:
		return (struct tt_single_copy_piece_of_peer){ me * block, 0, peer == op->comm->rank ? block : 0 };
	case TT_BROADCAST:
		return (struct tt_single_copy_piece_of_peer){ 0, 0, of_root ? block : 0 };
	case TT_ALLGATHER:
		return (struct tt_single_copy_piece_of_peer){ 0, p * block, block };
	case TT_ALLTOALL:
		return (struct tt_single_copy_piece_of_peer){ me * block, p * block, block };
	case TT_GATHER:
		return (struct tt_single_copy_piece_of_peer){ 0, p * block, to_root ? block : 0 };
	default:                                 /* scatter */
		return (struct tt_single_copy_piece_of_peer){ me * block, 0, of_root ? block : 0 };
	}
}
