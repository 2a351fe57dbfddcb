/* walk.h - questions about steps that the checker and the printers share */
#ifndef TT_WALK_H
#define TT_WALK_H

#include "plan/plan.h"

static inline const char *tt_buf_name(enum tt_buf buf)
{
	static const char *const name[] = { "in", "out", "scratch", "wire" };

	return (unsigned)buf < TT_NONE ? name[buf] : "nothing";
}

/* Does a step receive a message from that rank? */
static inline bool tt_step_takes(const struct tt_step *s, int from)
{
	for (int i = 0; i < s->nsrc; i++)
		if (tt_step_source(s, i) == tt_ref_make(TT_WIRE, (uint32_t)from))
			return true;
	return false;
}

#endif
