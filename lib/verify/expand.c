/*
 * expand.c - expansion: an equal plan whose steps have single blocks only
 *
 * Writes out the order in which run executes rows and steps of several blocks when every block is a
 * message of its own, so that this order can be proved, printed and compared. Called by the tests
 * and `tutti plan` (check.h).
 */
#include "verify/check.h"

#include <stdlib.h>
#include <string.h>

static tt_ref nth(tt_ref r, uint32_t k)
{
	return tt_ref_is_local(r) ? r + k : r;
}

/* Writes block k of a step as a step of its own; the wait stays with block 0. */
static void put(struct tt_step *to, const struct tt_step *s, uint32_t k)
{
	memcpy(to, s, tt_step_records(s) * sizeof(*to));
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

/* Expands the row that begins at `s`, block by block, to `to` (NULL: only counts). Returns the
 * number of new records; *ret_end: end of the row; *ret_last: index of its last step among the new
 * records. */
static uint32_t expand_row(struct tt_step *to, const struct tt_step *s,
			   const struct tt_step **ret_end, uint32_t *ret_last)
{
	const struct tt_step *end = s;
	uint32_t most = 1, count = 0;

	for (bool more = true; more; end += tt_step_records(end)) {
		more = end->flags & TT_STEP_INTERLEAVED;
		most = end->nblocks > most ? end->nblocks : most;
	}
	for (uint32_t k = 0; k < most; k++) {
		for (const struct tt_step *one = s; one < end; one += tt_step_records(one)) {
			if (k && k >= one->nblocks)
				continue;
			if (to)
				put(to + count, one, k);
			*ret_last = count;
			count += tt_step_records(one);
		}
	}
	*ret_end = end;
	return count;
}

/* Expands a lane. ret_now: [old step] the new last step of its row. Returns the new length. */
static uint32_t expand_lane(struct tt_step *to, const struct tt_plan *p, uint32_t lane,
			    uint32_t *ret_now)
{
	const struct tt_step *first = p->steps + p->lanes[lane].first, *s = first,
			     *end = s + p->lanes[lane].nsteps, *next;
	uint32_t count = 0, last, n;

	while (s < end) {
		n = expand_row(to ? to + count : NULL, s, &next, &last);
		for (; s < next; s += tt_step_records(s))
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
		p->lanes[l].nsteps = expand_lane(p->steps + p->nsteps, plan, l,
						 now + plan->lanes[l].first);
		p->nsteps += p->lanes[l].nsteps;
	}
	for (uint32_t i = 0; i < p->nsteps; i += tt_step_records(&p->steps[i]))
		if (p->steps[i].wait_lane != TT_NO_LANE)
			p->steps[i].wait_step = now[plan->lanes[p->steps[i].wait_lane].first +
						    p->steps[i].wait_step];
	free(now);
	*ret_plan = p;
	return TT_OK;
}
