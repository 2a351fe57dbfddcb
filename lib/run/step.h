/* step.h - operands of a step in a call: links, addresses, lengths. Shared by step.c and
 * prepost.c. */
#ifndef TT_STEP_H
#define TT_STEP_H

#include "run/op.h"

static inline struct tt_link *tt_step_link(const struct tt_op *op, const struct tt_cursor *cu,
					   tt_ref wire)
{
	return op->bound.path->links[cu->channel][tt_ref_index(wire)];
}

static inline char *tt_step_address(const struct tt_op *op, const struct tt_cursor *cu, tt_ref r)
{
	return op->bound.base[tt_ref_buf(r)] + (tt_ref_index(r) + cu->sub) * op->bound.tiles.unit +
	       cu->tile * op->bound.tiles.tile_bytes;
}

/* Blocks of the next message of a step; 0: only other steps of its row have more messages. */
static inline uint32_t tt_step_blocks(const struct tt_op *op, const struct tt_cursor *cu,
				      const struct tt_step *s)
{
	uint32_t left = s->nblocks > cu->sub ? s->nblocks - cu->sub : 0;

	return left < op->bound.tiles.group ? left : op->bound.tiles.group;
}

/* Bytes of this step's message, computed from a local operand: all operands have equal lengths. */
static inline size_t tt_step_bytes(const struct tt_op *op, const struct tt_cursor *cu,
				   const struct tt_step *s, uint32_t nblocks)
{
	tt_ref r = tt_ref_buf(s->dst) != TT_NONE ? s->dst : s->src[0];
	const struct tt_plan *plan = op->bound.plan;

	return tt_binding_length(&op->bound.tiles, plan->rule, plan->nblocks,
				 tt_ref_index(r) + cu->sub, nblocks, cu->tile);
}

/* Would writing [p, p + bytes) change bytes that a socket or NIC has still to read? */
bool tt_step_needed(struct tt_op *op, const char *p, size_t bytes);

/* prepost.c: prepost receives for the next messages of this cursor whose buffers are free */
void tt_prepost(struct tt_op *op, struct tt_cursor *cu);

#endif
