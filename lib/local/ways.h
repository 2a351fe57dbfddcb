/* ways.h - the ways of one host, for the table of all ways (ways.c) */
#ifndef TT_WAYS_H
#define TT_WAYS_H

#include "run/way.h"

struct tt_form;

extern const struct tt_way tt_slot_way;        /* express.c */
extern const struct tt_way tt_single_copy_way; /* single_copy.c */

/* express.c: waits_for of ways that poll slots: the first rank whose post is missing */
int tt_slots_wait_for(const struct tt_op *op, uint32_t i, struct tt_endpoint **ret_ep);
/* slot_pair.c, slot_pieces.c: as tt_way.advance */
int tt_slot_pair_advance(struct tt_op *op);
int tt_slot_pieces_advance(struct tt_op *op, const struct tt_form *f);
/* slot_pieces.c: do calls like this go by slots, whatever their plan and size? Agreed. */
bool tt_slot_pieces_fit(const struct tt_op *op, const struct tt_connectivity *paths);

#endif
