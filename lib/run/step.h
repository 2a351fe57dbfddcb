/* step.h - what a step's operands are for a call:
 * links, addresses, lengths. Shared by step.c and prepost.c. */
#ifndef TT_STEP_H
#define TT_STEP_H

#include "run/op.h"

static inline struct tt_link *tt_step_link(const struct tt_op *op, const struct tt_cursor *cu,
					   tt_ref wire)
{
	return op->road->links[cu->channel * op->comm->nranks + (int)tt_ref_index(wire)];
}

static inline char *tt_step_address(const struct tt_op *op, const struct tt_cursor *cu, tt_ref r)
{
	return op->base[tt_ref_buf(r)] + (tt_ref_index(r) + cu->sub) * op->unit +
	       cu->tile * op->tile_bytes;
}

/* Blocks of the next message of a step; 0 when the other
 * steps of its row have more messages than it. */
static inline uint32_t tt_step_blocks(const struct tt_op *op, const struct tt_cursor *cu,
				      const struct tt_step *s)
{
	uint32_t left = s->nblocks > cu->sub ? s->nblocks - cu->sub : 0;

	return left < op->group ? left : op->group;
}

/* Bytes of this step's message: from any local operand, since all have equal lengths. */
static inline size_t tt_step_bytes(const struct tt_op *op, const struct tt_cursor *cu,
				   const struct tt_step *s, uint32_t nblocks)
{
	tt_ref r = tt_ref_buf(s->dst) != TT_NONE ? s->dst : s->src[0];
	size_t first = 0, from, end, to;

	if (op->plan->rule == TT_EVEN)
		first = (tt_ref_index(r) % op->plan->nblocks + cu->sub) * op->unit;
	from = first + cu->tile * op->tile_bytes;
	end = first + nblocks * op->unit;
	if (end > op->total)
		end = op->total;
	if (op->ntiles == 1)
		return from < end ? end - from : 0;
	to = from + op->tile_bytes < end ? from + op->tile_bytes : end;
	return from < to ? to - from : 0;
}

/* Would writing [p, p + bytes) change bytes that a socket or card has still to take? */
bool tt_step_needed(struct tt_op *op, const char *p, size_t bytes);

/* prepost.c: tell transports where the messages of this cursor that are still to come belong, as
 * far as that is sure */
void tt_prepost(struct tt_op *op, struct tt_cursor *cu);

#endif
