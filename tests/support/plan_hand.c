/* plan_hand.c - plans written by hand (plan_hand.h) */
#include "tests/support/plan_hand.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

struct tt_plan *hand_plan(enum tt_collective collective, int nranks, int rank, int root,
			  uint32_t nblocks, uint32_t scratch_blocks)
{
	struct tt_plan *p = calloc(1, sizeof(*p));
	bool even =
		collective == TT_ALLREDUCE || collective == TT_REDUCE || collective == TT_BROADCAST;
	bool in_all = collective == TT_REDUCE_SCATTER || collective == TT_ALLTOALL ||
		      collective == TT_SCATTER;
	bool out_all =
		collective == TT_ALLGATHER || collective == TT_ALLTOALL || collective == TT_GATHER;

	strcpy(p->algorithm, "by-hand");
	p->collective = collective;
	p->nranks = nranks;
	p->rank = rank;
	p->root = root;
	p->rule = even ? TT_EVEN : TT_EQUAL;
	p->nblocks = nblocks;
	p->in_blocks = even ? nblocks : in_all ? (uint32_t)nranks : 1;
	p->out_blocks = even ? nblocks : out_all ? (uint32_t)nranks : 1;
	p->scratch_blocks = scratch_blocks;
	p->nsteps = TT_MAX_LANES * HAND_STEPS;
	p->steps = calloc(p->nsteps, sizeof(*p->steps));
	p->peers = calloc((size_t)nranks, sizeof(*p->peers));
	for (uint32_t lane = 0; lane < TT_MAX_LANES; lane++)
		p->lanes[lane].first = lane * HAND_STEPS;
	return p;
}

struct tt_step *hand_step(struct tt_plan *p, uint32_t lane, uint8_t op, tt_ref dst, tt_ref to, ...)
{
	struct tt_lane *l = &p->lanes[lane];
	struct tt_step *s = &p->steps[l->first + l->nsteps++];
	struct tt_more *more = (struct tt_more *)(s + 1);
	va_list ap;

	p->nlanes = lane >= p->nlanes ? lane + 1 : p->nlanes;
	*s = (struct tt_step){ .op = op, .wait_lane = TT_NO_LANE, .dst = dst, .to = to,
			       .src = { none, none }, .nblocks = 1 };
	va_start(ap, to);
	for (tt_ref ref = va_arg(ap, tt_ref); ref != none; ref = va_arg(ap, tt_ref)) {
		if (s->nsrc < 2)
			s->src[s->nsrc] = ref;
		else
			more->src[s->nsrc - 2] = ref;
		s->nsrc++;
	}
	va_end(ap);
	if (s->nsrc > 2) {
		more->op = TT_MORE;
		more->n = (uint8_t)(s->nsrc - 2);
		l->nsteps++;
	}
	return s;
}

void hand_finish(struct tt_plan *p)
{
	bool named[1024] = { false };

	for (uint32_t lane = 0; lane < p->nlanes; lane++) {
		for (uint32_t i = 0; i < p->lanes[lane].nsteps; i++) {
			const struct tt_step *s = &p->steps[p->lanes[lane].first + i];

			if (tt_ref_buf(s->to) == TT_WIRE)
				named[tt_ref_index(s->to)] = true;
			for (int k = 0; k < s->nsrc; k++)
				if (tt_ref_buf(tt_step_source(s, k)) == TT_WIRE)
					named[tt_ref_index(tt_step_source(s, k))] = true;
			i += s->nsrc > 2;
		}
	}
	p->npeers = 0;
	for (int r = 0; r < p->nranks; r++)
		if (named[r])
			p->peers[p->npeers++] = r;
}

void hand_free(struct tt_plan **plans, int n)
{
	for (int r = 0; r < n; r++) {
		free(plans[r]->steps);
		free(plans[r]->peers);
		free(plans[r]);
	}
}

void hand_ring(struct tt_plan **ret_plans, int n)
{
	for (int r = 0; r < n; r++) {
		struct tt_plan *p = ret_plans[r] = hand_plan(TT_ALLREDUCE, n, r, 0, (uint32_t)n, 0);
		int next = (r + 1) % n, prev = (r + n - 1) % n;

		for (int i = 0; i < n - 1; i++) {
			uint32_t mine = (uint32_t)((r - i + n) % n),
				 got = (uint32_t)((r - i - 1 + n) % n);

			hand_step(p, 0, TT_COPY, none, wire(next), i ? out(mine) : in(mine), none);
			hand_step(p, 0, TT_COMBINE, out(got), none, in(got), wire(prev), none);
		}
		for (int i = 0; i < n - 1; i++) {
			hand_step(p, 0, TT_COPY, none, wire(next),
				  out((uint32_t)((r + 1 - i + n) % n)), none);
			hand_step(p, 0, TT_COPY, out((uint32_t)((r - i + n) % n)), none, wire(prev),
				  none);
		}
		hand_finish(p);
	}
}

void hand_exchange(struct tt_plan **ret_plans)
{
	for (int r = 0; r < 2; r++) {
		struct tt_plan *p = ret_plans[r] = hand_plan(TT_ALLREDUCE, 2, r, 0, 1, 1);

		hand_step(p, 0, TT_COPY, none, wire(1 - r), in(0), none);
		hand_step(p, 0, TT_COPY, scratch(0), none, wire(1 - r), none);
		hand_step(p, 0, TT_COMBINE, out(0), none, r ? scratch(0) : in(0),
			  r ? in(0) : scratch(0), none);
		hand_finish(p);
	}
}

/* Reduce to rank 0, then broadcast in lane `down`, after step 0 of lane 0: the root needs the sum;
 * on the other ranks, in place, out is the input of that step. */
static void star(struct tt_plan **ret_plans, int n, uint32_t down)
{
	for (int r = 0; r < n; r++) {
		struct tt_plan *p = ret_plans[r] = hand_plan(TT_ALLREDUCE, n, r, 0, 1, 0);

		if (r)
			hand_step(p, 0, TT_COPY, none, wire(0), in(0), none);
		else
			hand_step(p, 0, TT_COMBINE, out(0), none, in(0), wire(1),
				  n > 2 ? wire(2) : none, n > 3 ? wire(3) : none,
				  n > 4 ? wire(4) : none, none);
		for (int peer = 1; peer < n && !r; peer++)
			hand_step(p, down, TT_COPY, none, wire(peer), out(0), none);
		if (r)
			hand_step(p, down, TT_COPY, out(0), none, wire(0), none);
		if (down)
			p->steps[p->lanes[down].first].wait_lane = 0;
		hand_finish(p);
	}
}

void hand_star(struct tt_plan **ret_plans, int n)
{
	star(ret_plans, n, 0);
}

void hand_star_lanes(struct tt_plan **ret_plans, int n)
{
	star(ret_plans, n, 1);
}
