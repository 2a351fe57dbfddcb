/* single_copy.h - what single_copy.c asks of single_copy_pscw.c, single_copy_pieces.c and single_copy_choice.c */
#ifndef TT_DIRECT_H
#define TT_DIRECT_H

#include "run/op.h"

/* Has it sums, and is it large enough, with an algorithm
 * whose bits are those of sums in rank order? */
bool tt_direct_sums(const struct tt_op *op);
bool tt_direct_fits(const struct tt_op *op);

/* Bytes of rank's input, and of every rank's output, that others read; 0: none. */
size_t tt_direct_in_bytes(const struct tt_op *op, int rank);
size_t tt_direct_out_bytes(const struct tt_op *op);

/* What this rank takes of a peer (of itself: what it sums, or copies at the end): bytes at `from`
 * of the peer's buffer to `to` of its own output. */
struct tt_piece { size_t from, to, bytes; };
struct tt_piece tt_direct_piece(const struct tt_op *op, int peer);

/* single_copy_pscw.c: a call in which nobody meets. take: is it one? All answer alike. of: has peer
 * offered? 1, and then it can be fetched from | 0 | < 0. left: have all who read this rank? */
bool tt_offers_take(const struct tt_op *op);
void tt_offers_begin(struct tt_op *op);
int tt_offers_of(struct tt_op *op, int peer);
void tt_offers_leave(struct tt_op *op);
bool tt_offers_left(struct tt_op *op);

/* Is it worth while to meet, by what came of other meetings? And what came of this one. */
bool tt_way_meets(const struct tt_op *op);
void tt_way_met(const struct tt_op *op, bool in_vain);

/* What this rank measured goes into its part of the meeting; then: is ordinary memory read in this
 * call? All answer alike. */
void tt_way_tell(const struct tt_op *op, struct tt_meeting *mine);
bool tt_way_reads(struct tt_op *op);
/* The call is complete: how long it took. Only where op->trial is set. */
void tt_way_learn(const struct tt_op *op);

#endif
