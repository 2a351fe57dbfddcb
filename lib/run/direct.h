/* direct.h - what direct.c asks of direct_pieces.c */
#ifndef TT_DIRECT_H
#define TT_DIRECT_H

#include "run/op.h"

/* Has it sums, and is it large enough, with an algorithm whose bits are those of sums in rank order? */
bool tt_direct_sums(const struct tt_op *op);
bool tt_direct_fits(const struct tt_op *op);

/* Bytes of rank's input, and of every rank's output, that others read; 0: none. */
size_t tt_direct_in_bytes(const struct tt_op *op, int rank);
size_t tt_direct_out_bytes(const struct tt_op *op);

/* What this rank takes of a peer (of itself: what it sums, or copies at the end): bytes at `from` of the peer's buffer to `to`
 * of its own output. */
struct tt_piece { size_t from, to, bytes; };
struct tt_piece tt_direct_piece(const struct tt_op *op, int peer);

#endif
