/*
 * expand.c - a plan of single blocks that says the same as one whose steps name several
 *
 * What run makes of rows and long steps when every block is a message of its own, written out; so
 * that it can be proved, printed and compared. Called by the tests and `tutti plan`.
 */
#include "plan/plan.h"

#include <stdlib.h>
#include <string.h>

static uint32_t records(const struct tt_step *s)
{
	return s->nsrc > 2 ? 2 : 1;
}

static tt_ref nth(tt_ref r, uint32_t k)
{
	return tt_ref_buf(r) <= TT_SCRATCH ? r + k : r;
}

/* Block k of a step, alone. Its wait stays with the first. */
static void put(struct tt_step *to, const struct tt_step *s, uint32_t k)
{
	memcpy(to, s, records(s) * sizeof(*to));
	to->flags &= (uint8_t)~TT_STEP_INTERLEAVED;
	to->nblocks = s->nblocks ? 1 : 0;
	to->dst = nth(s->dst, k);
	for (int i = 0; i < 2; i++)
		to->src[i] = nth(s->src[i], k);
	for (int i = 2; i < s->nsrc; i++)
		((struct tt_more *)(to + 1))->src[i - 2] = nth(tt_step_source(s, i), k);
	if (k)
		to->wait_lane = TT_NO_LANE;
}

/* One row from `s` on: its blocks in turn to `to`, unless that is NULL. Returns how many records
 * that takes; *ret_end is behind the row, *ret_last the place of its last step in the new one. */
static uint32_t expand_row(struct tt_step *to, const struct tt_step *s,
			   const struct tt_step **ret_end, uint32_t *ret_last)
{
	const struct tt_step *end = s;
	uint32_t most = 1, count = 0;

	for (bool more = true; more; end += records(end)) {
		more = end->flags & TT_STEP_INTERLEAVED;
		most = end->nblocks > most ? end->nblocks : most;
	}
	for (uint32_t k = 0; k < most; k++) {
		for (const struct tt_step *one = s; one < end; one += records(one)) {
			if (k && k >= one->nblocks)
				continue;
			if (to)
				put(to + count, one, k);
			*ret_last = count;
			count += records(one);
		}
	}
	*ret_end = end;
	return count;
}

/* A lane, and for the last step of each row where it now is. */
static uint32_t expand_lane(struct tt_step *to, const struct tt_plan *p, uint32_t lane,
			    uint32_t *ret_now)
{
	const struct tt_step *first = p->steps + p->lanes[lane].first, *s = first,
			     *end = s + p->lanes[lane].nsteps, *next;
	uint32_t count = 0, last, n;

	while (s < end) {
		n = expand_row(to ? to + count : NULL, s, &next, &last);
		for (; s < next; s += records(s))
			ret_now[s - first] = count + last;
		count += n;
	}
	return count;
}

int tt_plan_expand(const struct tt_plan *plan, struct tt_plan **ret_plan)
{
	struct tt_plan *p = malloc(sizeof(*p));
	uint32_t *now = malloc((plan->nsteps + 1) * sizeof(*now)), total = 0;

	for (uint32_t l = 0; now && l < plan->nlanes; l++)
		total += expand_lane(NULL, plan, l, now + plan->lanes[l].first);
	if (p) {
		*p = *plan;
		p->peers = malloc((plan->npeers + 1) * sizeof(*p->peers));
		p->steps = malloc((total + 1) * sizeof(*p->steps));
	}
	if (!now || !p || !p->peers || !p->steps) {
		free(now);
		tt_plan_free(p);
		return tt_fail(TT_SYSTEM, "rank %d: no memory for a plan of %u steps", plan->rank,
			       total);
	}
	if (plan->npeers)
		memcpy(p->peers, plan->peers, plan->npeers * sizeof(*p->peers));
	p->nsteps = 0;
	for (uint32_t l = 0; l < p->nlanes; l++) {
		p->lanes[l].first = p->nsteps;
		p->lanes[l].nsteps =
			expand_lane(p->steps + p->nsteps, plan, l, now + plan->lanes[l].first);
		p->nsteps += p->lanes[l].nsteps;
	}
	for (uint32_t i = 0; i < p->nsteps; i += records(&p->steps[i]))
		if (p->steps[i].wait_lane != TT_NO_LANE)
			p->steps[i].wait_step = now[plan->lanes[p->steps[i].wait_lane].first +
						    p->steps[i].wait_step];
	free(now);
	*ret_plan = p;
	return TT_OK;
}
