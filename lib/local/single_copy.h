/* single_copy.h - what single_copy.c asks of single_copy_pscw.c, single_copy_pieces.c and single_copy_choice.c */
#ifndef TT_SINGLE_COPY_H
#define TT_SINGLE_COPY_H

#include "run/op.h"

/* Has it sums, and is it large enough, with an algorithm
 * whose bits are those of sums in rank order? */
bool tt_single_copy_sums(const struct tt_op *op);
bool tt_single_copy_fits(const struct tt_op *op);

/* Bytes of rank's input, and of every rank's output, that others read; 0: none. */
size_t tt_single_copy_in_bytes(const struct tt_op *op, int rank);
size_t tt_single_copy_out_bytes(const struct tt_op *op);

/* What this rank takes of a peer (of itself: what it sums, or copies at the end): bytes at `from`
 * of the peer's buffer to `to` of its own output. */
struct tt_single_copy_piece_of_peer { size_t from, to, bytes; };
struct tt_single_copy_piece_of_peer tt_single_copy_piece(const struct tt_op *op, int peer);

/* single_copy_pscw.c: a call in which nobody meets. take: is it one? All answer alike. of: has peer
 * offered? 1, and then it can be fetched from | 0 | < 0. left: have all who read this rank? */
bool tt_pscw_take(const struct tt_op *op);
void tt_pscw_begin(struct tt_op *op);
int tt_pscw_of(struct tt_op *op, int peer);
void tt_pscw_leave(struct tt_op *op);
bool tt_pscw_left(struct tt_op *op);

/* Is it worth while to meet, by what came of other meetings? And what came of this one. */
bool tt_single_copy_choice_barrier(const struct tt_op *op);
void tt_single_copy_choice_met(const struct tt_op *op, bool in_vain);

/* What this rank measured goes into its part of the meeting; then: is ordinary memory read in this
 * call? All answer alike. */
void tt_single_copy_choice_tell(const struct tt_op *op, struct tt_address_exchange *mine);
bool tt_single_copy_choice_reads(struct tt_op *op);
/* The call is complete: how long it took. Only where op->trial is set. */
void tt_single_copy_choice_learn(const struct tt_op *op);

#endif
