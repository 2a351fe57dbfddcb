/*
 * compile.c - from a plan as its author wrote it to the one that runs
 *
 * Fuses a step that makes a value with the send of that value right behind it, so that the bits go to the peer while
 * they are at hand; then marks results that only pass through. No step moves, no operand changes: every block keeps its
 * expression. Called by plan.c and the tests.
 */
#include "plan/plan.h"

#include <stdlib.h>

static uint32_t records(const struct tt_step *s)
{
	return s->nsrc > 2 ? 2 : 1;
}

/* ---- fuse ---------------------------------------------------------------------------------------------------------- */

static bool makes(const struct tt_step *s)
{
	return (s->op == TT_COPY || s->op == TT_COMBINE) && s->dst != TT_REF_NONE && s->to == TT_REF_NONE;
}

/* Would the fused step stand in the rows that both stood in? (begun: `made` is not the first of its row.) All ranks must
 * have the same rows, since the order of messages depends on them. */
static bool keeps_rows(const struct tt_step *made, const struct tt_step *s, bool begun)
{
	if (made->flags & TT_STEP_TURNS)
		return true;
	return !begun && (made->nblocks == 1 || !(s->flags & TT_STEP_TURNS));
}

static bool sends(const struct tt_step *s, const struct tt_step *made)
{
	return s->op == TT_COPY && s->dst == TT_REF_NONE && s->src[0] == made->dst && s->nblocks == made->nblocks &&
	       s->wait_lane == TT_NO_LANE;
}

/* Rewrites a lane to `to` (its own place or before it), and notes for each old step which new one does its work. Returns
 * the new length. */
static uint32_t fuse_lane(struct tt_step *to, const struct tt_step *from, uint32_t nsteps, uint32_t *ret_now)
{
	uint32_t count = 0, made = 0;
	bool may_fuse = false, begun = false;

	for (uint32_t i = 0, n; i < nsteps; i += n) {
		n = records(&from[i]);
		if (may_fuse && sends(&from[i], &to[made]) && keeps_rows(&to[made], &from[i], begun)) {
			to[made].to = from[i].to;
			to[made].flags = from[i].flags;
			ret_now[i] = made;
			may_fuse = false;
			continue;
		}
		begun = count && to[made].flags & TT_STEP_TURNS;
		ret_now[i] = made = count;
		for (uint32_t k = 0; k < n; k++)
			to[count++] = from[i + k];
		may_fuse = makes(&to[made]);
	}
	return count;
}

static int fuse(struct tt_plan *p)
{
	uint32_t *now = malloc((p->nsteps + 1) * sizeof(*now)), at = 0;
	struct tt_lane old[TT_MAX_LANES];

	if (!now)
		return tt_fail(TT_SYSTEM, "rank %d: no memory to compile a plan of %u steps", p->rank, p->nsteps);
	for (uint32_t l = 0; l < p->nlanes; l++) {
		old[l] = p->lanes[l];
		p->lanes[l].nsteps = fuse_lane(p->steps + at, p->steps + old[l].first, old[l].nsteps, now + old[l].first);
		p->lanes[l].first = at;
		at += p->lanes[l].nsteps;
	}
	p->nsteps = at;
	for (uint32_t i = 0; i < p->nsteps; i += records(&p->steps[i]))
		if (p->steps[i].wait_lane != TT_NO_LANE)
			p->steps[i].wait_step = now[old[p->steps[i].wait_lane].first + p->steps[i].wait_step];
	free(now);
	return TT_OK;
}

/* ---- passing --------------------------------------------------------------------------------------------------------- */

static bool covers(tt_ref r, uint32_t nblocks, tt_ref cell)
{
	return r <= cell && cell < r + nblocks;
}

static bool reads(const struct tt_step *s, tt_ref cell)
{
	for (int i = 0; i < s->nsrc; i++)
		if (covers(tt_step_source(s, i), s->nblocks, cell))
			return true;
	return false;
}

/* Does another lane have anything to do with the cell? Then what it reads is not looked into. */
static bool shared(const struct tt_plan *p, uint32_t lane, tt_ref cell)
{
	for (uint32_t l = 0; l < p->nlanes; l++) {
		const struct tt_step *s = p->steps + p->lanes[l].first, *end = s + p->lanes[l].nsteps;

		for (; l != lane && s < end; s += records(s))
			if (covers(s->dst, s->nblocks, cell) || reads(s, cell))
				return true;
	}
	return false;
}

/* Is what step s writes to the cell never read again here, and no result? */
static bool dead(const struct tt_plan *p, uint32_t lane, const struct tt_step *s, tt_ref cell)
{
	const struct tt_step *end = p->steps + p->lanes[lane].first + p->lanes[lane].nsteps;

	for (s += records(s); s < end; s += records(s)) {
		if (reads(s, cell))
			return false;
		if (covers(s->dst, s->nblocks, cell))
			return !shared(p, lane, cell);
	}
	return tt_ref_buf(cell) == TT_SCRATCH && !shared(p, lane, cell);
}

static void mark_passing(struct tt_plan *p, uint32_t lane)
{
	struct tt_step *s = p->steps + p->lanes[lane].first, *end = s + p->lanes[lane].nsteps;

	for (; s < end; s += records(s)) {
		bool passing = s->dst != TT_REF_NONE && s->to != TT_REF_NONE;

		for (uint32_t i = 0; i < s->nblocks && passing; i++)
			passing = dead(p, lane, s, s->dst + i);
		if (passing)
			s->flags |= TT_STEP_PASSING;
	}
}

int tt_plan_compile(struct tt_plan *plan)
{
	int rc = fuse(plan);

	for (uint32_t l = 0; !rc && l < plan->nlanes; l++)
		mark_passing(plan, l);
	return rc;
}
