/* walk.h - small helpers for whoever reads plans: the checker and the printers */
#ifndef TT_WALK_H
#define TT_WALK_H

#include "plan/plan.h"

static inline const struct tt_step *tt_lane_step(const struct tt_plan *p, uint32_t lane,
						 uint32_t index)
{
	return &p->steps[p->lanes[lane].first + index];
}

/* Records of a step: one, or two where its sources need a TT_MORE. */
static inline uint32_t tt_step_records(const struct tt_step *s)
{
	return s->nsrc > 2 ? 2 : 1;
}

static inline bool tt_ref_is_local(tt_ref r)
{
	return tt_ref_buf(r) <= TT_SCRATCH;
}

static inline bool tt_ref_is_wire(tt_ref r)
{
	return tt_ref_buf(r) == TT_WIRE;
}

static inline const char *tt_buf_name(enum tt_buf buf)
{
	static const char *const name[] = { "in", "out", "scratch", "wire" };

	return (unsigned)buf < TT_NONE ? name[buf] : "nothing";
}

/* Does a step take a message of that rank? */
static inline bool tt_step_takes(const struct tt_step *s, int from)
{
	for (int i = 0; i < s->nsrc; i++)
		if (tt_step_source(s, i) == tt_ref_make(TT_WIRE, (uint32_t)from))
			return true;
	return false;
}

#endif
