/*
 * prepost.c - tell transports early where messages belong, so that they may land there
 *
 * Called by step.c whenever a cursor has moved or waits. A card can write a message gdr to its
 * place if the sender hears of the place in time, which is before it has the bytes: so not when the
 * step that receives comes up, but as soon as nothing else on this rank needs the place any more.
 * That is so when no step of the lane between now and the receiving one touches it, and no post
 * still reads it. Steps of other lanes are not looked at, so plans of several lanes say it late,
 * when the receiving step waits.
 *
 * A hint, always: a message whose place was told too late comes as ever, and is copied.
 */
#include "run/step.h"

#define FAR 16                 /* messages to look ahead */

/* A place in the lane behind that of cu: the next message
 * of the same step, or the first of the next. */
static bool next_message(const struct tt_op *op, struct tt_cursor *at,
			 const struct tt_step **ret_step)
{
	const struct tt_lane *lane = &op->plan->lanes[at->lane];
	const struct tt_step *s = &op->plan->steps[lane->first + at->step];

	at->sub += op->group;
	if (at->sub >= s->nblocks) {
		at->sub = 0;
		at->step += s->op == TT_COMBINE && s->nsrc > 2 ? 2 : 1;
	}
	if (at->step >= lane->nsteps)
		return false;
	*ret_step = &op->plan->steps[lane->first + at->step];
	return !((*ret_step)->flags & TT_STEP_INTERLEAVED);
}

static bool meets(const struct tt_op *op, const struct tt_cursor *at, tt_ref r, size_t bytes,
		  const char *p, size_t length)
{
	const char *q;

	if (tt_ref_buf(r) >= TT_WIRE)
		return false;
	q = tt_step_address(op, at, r);
	return q < p + length && p < q + bytes;
}

/* Is the result of that step written to its dst? */
static bool is_stored(const struct tt_op *op, const struct tt_cursor *at, const struct tt_step *s)
{
	return !(s->flags & TT_STEP_PASSING) || tt_ref_buf(s->to) != TT_WIRE ||
	       !(tt_step_link(op, at, s->to)->t->flags & TT_T_RESERVE);
}

/* Does the message of that step read or write there? */
static bool touches(const struct tt_op *op, const struct tt_cursor *at, const struct tt_step *s,
		    const char *p, size_t length)
{
	size_t bytes = s->op == TT_NOP ? 0 : tt_step_bytes(op, at, s, tt_step_blocks(op, at, s));
	bool met = bytes && is_stored(op, at, s) && meets(op, at, s->dst, bytes, p, length);

	for (int i = 0; bytes && i < s->nsrc && !met; i++)
		met = meets(op, at, tt_step_source(s, i), bytes, p, length);
	return met;
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

/* Tell of the message at `at`, unless a step from cu on, before it, needs its place. 1 told | 0 not
 * yet | < 0 of no use */
static int tell(struct tt_op *op, const struct tt_cursor *cu, const struct tt_cursor *at,
		const struct tt_step *s)
{
	size_t bytes = tt_step_bytes(op, at, s, tt_step_blocks(op, at, s));
	char *dst = tt_step_address(op, at, s->dst);
	struct tt_link *l = tt_step_link(op, cu, s->src[0]);
	struct tt_cursor on = *cu;
	const struct tt_step *t = &op->plan->steps[op->plan->lanes[cu->lane].first + cu->step];
	uint32_t ahead = 0;

	if (!bytes || !l->t->zcopy_ops)
		return 1;
	/* a computed step has taken its message, and posts its dst */
	for (bool taken = cu->computed; on.step != at->step || on.sub != at->sub; taken = false) {
		if (touches(op, &on, t, dst, bytes))
			return 0;
		ahead += !taken && takes_from(op, &on, t, l->peer);
		next_message(op, &on, &t);
	}
	if (tt_step_needed(op, dst, bytes))
		return 0;
	return l->t->zcopy_ops->prepost(l, ahead, dst, bytes, op->stamp) ? 1 : -1;
}

void tt_prepost(struct tt_op *op, struct tt_cursor *cu)
{
	const struct tt_step *s = &op->plan->steps[op->plan->lanes[cu->lane].first + cu->step];
	struct tt_cursor at = *cu;

	if (op->plan->nlanes > 1 || cu->finished || s->flags & TT_STEP_INTERLEAVED)
		return;
	for (int i = 0; i < FAR; i++) {
		bool past = cu->told_tile == at.tile &&
			    (cu->told_step > at.step ||
			     (cu->told_step == at.step && cu->told_sub > at.sub));
		int rc = 1;

		if (!past && s->op == TT_COPY && tt_ref_buf(s->src[0]) == TT_WIRE &&
		    tt_ref_buf(s->dst) != TT_NONE &&
		    !(at.step == cu->step && at.sub == cu->sub && cu->computed))
			rc = tell(op, cu, &at, s);
		if (rc < 0)
			op->preposts = false;
		if (rc <= 0)
			return;
		if (!past) {
			cu->told_tile = at.tile;
			cu->told_step = at.step;
			cu->told_sub = at.sub + 1;
		}
		if (!next_message(op, &at, &s))
			return;
	}
}
