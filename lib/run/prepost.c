/*
 * prepost.c - prepost receives, so that messages can be written directly to their buffers
 *
 * Called by step.c whenever a cursor has moved or waits. A NIC can write a message to its buffer if
 * the sender learns the address (early RTR) before it has the bytes. So the receive is preposted as
 * soon as nothing on this rank needs the buffer any more, not when the receiving step begins: no
 * step of the lane between the current and the receiving one touches the buffer, and no pending
 * post reads it. Steps of other lanes are not checked, so plans of several lanes prepost late, when
 * the receiving step waits.
 *
 * A prepost is a hint: the message of a late one arrives in a slot and is copied.
 */
#include "run/step.h"

#define AHEAD 16 /* messages to look ahead */

/* Move at to the next message in its lane: of the same step, or the first of the next. false: no
 * such message, or its row is interleaved. */
static bool next_message(const struct tt_op *op, struct tt_cursor *at,
			 const struct tt_step **ret_step)
{
	const struct tt_lane *lane = &op->bound.plan->lanes[at->lane];
	const struct tt_step *s = &op->bound.plan->steps[lane->first + at->step];

	at->sub += op->bound.tiles.group;
	if (at->sub >= s->nblocks) {
		at->sub = 0;
		at->step += s->op == TT_COMBINE && s->nsrc > 2 ? 2 : 1;
	}
	if (at->step >= lane->nsteps)
		return false;
	*ret_step = &op->bound.plan->steps[lane->first + at->step];
	return !((*ret_step)->flags & TT_STEP_INTERLEAVED);
}

static bool overlaps(const struct tt_op *op, const struct tt_cursor *at, tt_ref r, size_t bytes,
		     const char *p, size_t length)
{
	const char *q;

	if (tt_ref_buf(r) >= TT_WIRE)
		return false;
	q = tt_step_address(op, at, r);
	return q < p + length && p < q + bytes;
}

/* Is the result of step s written to its dst? */
static bool is_stored(const struct tt_op *op, const struct tt_cursor *at, const struct tt_step *s)
{
	return !(s->flags & TT_STEP_PASSING) || tt_ref_buf(s->to) != TT_WIRE ||
	       !(tt_step_link(op, at, s->to)->t->flags & TT_T_RESERVE);
}

/* Does the message of step s read or write [p, p + length)? */
static bool touches(const struct tt_op *op, const struct tt_cursor *at, const struct tt_step *s,
		    const char *p, size_t length)
{
	size_t bytes = s->op == TT_NOP ? 0 : tt_step_bytes(op, at, s, tt_step_blocks(op, at, s));
	bool found = bytes && is_stored(op, at, s) && overlaps(op, at, s->dst, bytes, p, length);

	for (int i = 0; bytes && i < s->nsrc && !found; i++)
		found = overlaps(op, at, tt_step_source(s, i), bytes, p, length);
	return found;
}

static bool takes_from(const struct tt_op *op, const struct tt_cursor *at, const struct tt_step *s,
		       int peer)
{
	if (s->op == TT_NOP || !tt_step_bytes(op, at, s, tt_step_blocks(op, at, s)))
		return false;
	for (int i = 0; i < s->nsrc; i++)
		if (tt_step_source(s, i) == tt_ref_make(TT_WIRE, (uint32_t)peer))
			return true;
	return false;
}

/* Prepost the message at `at`, unless a step from cu on, before it, needs its buffer. 1 done | 0
 * not yet | < 0 the transport has no use for it */
static int prepost(struct tt_op *op, const struct tt_cursor *cu, const struct tt_cursor *at,
		   const struct tt_step *s)
{
	size_t bytes = tt_step_bytes(op, at, s, tt_step_blocks(op, at, s));
	char *dst = tt_step_address(op, at, s->dst);
	struct tt_link *l = tt_step_link(op, cu, s->src[0]);
	struct tt_cursor on = *cu;
	const struct tt_plan *plan = op->bound.plan;
	const struct tt_step *t = &plan->steps[plan->lanes[cu->lane].first + cu->step];
	uint32_t ahead = 0;

	if (!bytes || !l->t->zcopy_ops || !l->t->zcopy_ops->prepost)
		return 1;
	/* a computed step has received its message, and posts its dst */
	for (bool taken = cu->computed; on.step != at->step || on.sub != at->sub; taken = false) {
		if (touches(op, &on, t, dst, bytes))
			return 0;
		ahead += !taken && takes_from(op, &on, t, l->peer);
		next_message(op, &on, &t);
	}
	if (tt_step_needed(op, dst, bytes))
		return 0;
	return l->t->zcopy_ops->prepost(l, ahead, dst, bytes, op->call.stamp) ? 1 : -1;
}

void tt_prepost(struct tt_op *op, struct tt_cursor *cu)
{
	const struct tt_plan *plan = op->bound.plan;
	const struct tt_step *s = &plan->steps[plan->lanes[cu->lane].first + cu->step];
	struct tt_cursor at = *cu;

	if (plan->nlanes > 1 || cu->finished || s->flags & TT_STEP_INTERLEAVED)
		return;
	for (int i = 0; i < AHEAD; i++) {
		bool past = cu->preposted_tile == at.tile &&
			    (cu->preposted_step > at.step ||
			     (cu->preposted_step == at.step && cu->preposted_sub > at.sub));
		int rc = 1;

		if (!past && s->op == TT_COPY && tt_ref_buf(s->src[0]) == TT_WIRE &&
		    tt_ref_buf(s->dst) != TT_NONE &&
		    !(at.step == cu->step && at.sub == cu->sub && cu->computed))
			rc = prepost(op, cu, &at, s);
		if (rc < 0)
			op->cursors.preposts = false;
		if (rc <= 0)
			return;
		if (!past) {
			cu->preposted_tile = at.tile;
			cu->preposted_step = at.step;
			cu->preposted_sub = at.sub + 1;
		}
		if (!next_message(op, &at, &s))
			return;
	}
}
