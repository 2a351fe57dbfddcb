/*
 * compile.c - compiler: from a plan as the algorithm wrote it to the plan that runs
 *
 * Pass 1 fuses a step that produces a value with the send of that value right behind, so the bits
 * go to the peer while they are in cache. Pass 2 marks results that are only passed on. Steps keep
 * their order and operands, so every block keeps its expression. Called by plan.c and the tests.
 */
#include "plan/plan.h"

#include <stdlib.h>
#include <string.h>

/* ---- fuse ------------------------------------------------------------------------------------ */

static bool produces(const struct tt_step *s)
{
	return (s->op == TT_COPY || s->op == TT_COMBINE) && s->dst != TT_REF_NONE &&
	       s->to == TT_REF_NONE;
}

/* Does the fused step belong to the rows of both steps? (begun: `made` is not the first step of its
 * row.) All ranks must have the same rows, since rows determine the order of messages. */
static bool keeps_rows(const struct tt_step *made, const struct tt_step *s, bool begun)
{
	if (made->flags & TT_STEP_INTERLEAVED)
		return true;
	return !begun && (made->nblocks == 1 || !(s->flags & TT_STEP_INTERLEAVED));
}

static bool sends(const struct tt_step *s, const struct tt_step *made)
{
	return s->op == TT_COPY && s->dst == TT_REF_NONE && s->src[0] == made->dst &&
	       s->nblocks == made->nblocks && s->wait_lane == TT_NO_LANE;
}

/* Rewrites a lane to `to` (its old position or before). ret_now: [old step] the new step that does
 * its work. Returns the new length. */
static uint32_t fuse_lane(struct tt_step *to, const struct tt_step *from, uint32_t nsteps,
			  uint32_t *ret_now)
{
	uint32_t count = 0, made = 0;
	bool may_fuse = false, begun = false;

	for (uint32_t i = 0, n; i < nsteps; i += n) {
		n = tt_step_records(&from[i]);
		if (may_fuse && sends(&from[i], &to[made]) &&
		    keeps_rows(&to[made], &from[i], begun)) {
			to[made].to = from[i].to;
			to[made].flags = from[i].flags;
			ret_now[i] = made;
			may_fuse = false;
			continue;
		}
		begun = count && to[made].flags & TT_STEP_INTERLEAVED;
		ret_now[i] = made = count;
		for (uint32_t k = 0; k < n; k++)
			to[count++] = from[i + k];
		may_fuse = produces(&to[made]);
	}
	return count;
}

static int fuse(struct tt_plan *p)
{
	uint32_t *now = malloc((p->nsteps + 1) * sizeof(*now)), at = 0;
	struct tt_lane old[TT_MAX_LANES];

	if (!now)
		return tt_fail(TT_SYSTEM, "rank %d: no memory to compile a plan of %u steps",
			       p->rank, p->nsteps);
	for (uint32_t l = 0; l < p->nlanes; l++) {
		old[l] = p->lanes[l];
		p->lanes[l].nsteps = fuse_lane(p->steps + at, p->steps + old[l].first,
					       old[l].nsteps, now + old[l].first);
		p->lanes[l].first = at;
		at += p->lanes[l].nsteps;
	}
	p->nsteps = at;
	for (uint32_t i = 0; i < p->nsteps; i += tt_step_records(&p->steps[i]))
		if (p->steps[i].wait_lane != TT_NO_LANE)
			p->steps[i].wait_step =
				now[old[p->steps[i].wait_lane].first + p->steps[i].wait_step];
	free(now);
	return TT_OK;
}

/* ---- passing --------------------------------------------------------------------------------- */

/* Next access of a lane to a block, seen from a step of the lane. */
enum { NO_ACCESS, READS, WRITES };

/* One cell for every local block of a plan. */
struct cells {
	uint32_t start[3], count; /* first cell of in, out, scratch */
	uint8_t *lanes;           /* [count] bit l: lane l accesses the cell; NULL: a single lane */
	uint8_t *next;            /* [count] next access: NO_ACCESS, READS, WRITES */
};

static uint8_t *at(const struct cells *c, uint8_t *field, tt_ref r)
{
	return &field[c->start[tt_ref_buf(r)] + tt_ref_index(r)];
}

static void extend(uint32_t most[3], tt_ref r, uint32_t nblocks)
{
	if (tt_ref_is_local(r) && tt_ref_index(r) + nblocks > most[tt_ref_buf(r)])
		most[tt_ref_buf(r)] = tt_ref_index(r) + nblocks;
}

static int open_cells(const struct tt_plan *p, struct cells *c)
{
	uint32_t most[3] = { 0, 0, 0 };

	for (const struct tt_step *s = p->steps, *end = s + p->nsteps; s < end;
	     s += tt_step_records(s)) {
		extend(most, s->dst, s->nblocks);
		for (int i = 0; i < s->nsrc; i++)
			extend(most, tt_step_source(s, i), s->nblocks);
	}
	c->count = most[0] + most[1] + most[2];
	c->start[0] = 0;
	c->start[1] = most[0];
	c->start[2] = most[0] + most[1];
	c->next = calloc((p->nlanes > 1 ? 2 : 1) * (size_t)c->count + 1, 1);
	if (!c->next)
		return tt_fail(TT_SYSTEM, "rank %d: no memory to compile a plan of %u steps",
			       p->rank, p->nsteps);
	if (p->nlanes > 1)
		c->lanes = c->next + c->count;
	return TT_OK;
}

static void note(const struct cells *c, tt_ref r, uint32_t nblocks, uint8_t bits)
{
	for (uint32_t i = 0; i < nblocks && tt_ref_is_local(r); i++)
		*at(c, c->lanes, r + i) |= bits;
}

static void note_lanes(const struct tt_plan *p, const struct cells *c)
{
	for (uint32_t l = 0; l < p->nlanes; l++) {
		const struct tt_step *s = p->steps + p->lanes[l].first,
				     *end = s + p->lanes[l].nsteps;

		for (; s < end; s += tt_step_records(s)) {
			note(c, s->dst, s->nblocks, (uint8_t)(1u << l));
			for (int i = 0; i < s->nsrc; i++)
				note(c, tt_step_source(s, i), s->nblocks, (uint8_t)(1u << l));
		}
	}
}

/* Is the block's value, written by a step of this lane, neither read again nor a result? False if
 * another lane accesses the block. */
static bool dead(const struct cells *c, uint32_t lane, tt_ref r)
{
	uint8_t next = *at(c, c->next, r);

	if (c->lanes && *at(c, c->lanes, r) & ~(1u << lane))
		return false;
	return next == WRITES || (next == NO_ACCESS && tt_ref_buf(r) == TT_SCRATCH);
}

static void set_next(const struct cells *c, tt_ref r, uint32_t nblocks, uint8_t what)
{
	for (uint32_t i = 0; i < nblocks && tt_ref_is_local(r); i++)
		*at(c, c->next, r + i) = what;
}

/* Visits the steps from last to first, so that `next` has the accesses behind the step. */
static void mark_passing(struct tt_plan *p, const struct cells *c, uint32_t lane)
{
	struct tt_step *first = p->steps + p->lanes[lane].first, *s = first + p->lanes[lane].nsteps;

	memset(c->next, NO_ACCESS, c->count);
	while (s-- > first) {
		bool passing;

		s -= s->op == TT_MORE;
		passing = s->dst != TT_REF_NONE && s->to != TT_REF_NONE;
		for (uint32_t i = 0; i < s->nblocks && passing; i++)
			passing = dead(c, lane, s->dst + i);
		if (passing)
			s->flags |= TT_STEP_PASSING;
		set_next(c, s->dst, s->nblocks, WRITES);
		for (int i = 0; i < s->nsrc; i++)
			set_next(c, tt_step_source(s, i), s->nblocks, READS);
	}
}

static int pass(struct tt_plan *plan)
{
	struct cells c = { 0 };
	int rc = open_cells(plan, &c);

	if (rc)
		return rc;
	if (c.lanes)
		note_lanes(plan, &c);
	for (uint32_t l = 0; l < plan->nlanes; l++)
		mark_passing(plan, &c, l);
	free(c.next);
	return TT_OK;
}

int tt_plan_compile(struct tt_plan *plan)
{
	int rc = fuse(plan);

	return rc ? rc : pass(plan);
}
