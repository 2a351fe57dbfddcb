/*
 * check_steps.c - static checks of plans: heads, lanes, operands
 *
 * Proves that all indices of later parts (blocks, peers, lanes, steps) are in range. Called by
 * check.c.
 */
#include "verify/check.h"

#include <string.h>

/* ---- the heads of the plans ------------------------------------------------------------------ */

bool tt_check_has(const struct tt_plan *p, enum tt_buf buf)
{
	bool root_gives_in = p->collective == TT_BROADCAST || p->collective == TT_SCATTER;
	bool root_gives_out = p->collective == TT_REDUCE || p->collective == TT_GATHER;

	return p->rank == p->root ||
	       !(buf == TT_IN ? root_gives_in : buf == TT_OUT && root_gives_out);
}

/* Number of blocks that in or out must have. */
static uint32_t blocks_of(const struct tt_plan *p, enum tt_buf buf)
{
	uint32_t n = (uint32_t)p->nranks;

	switch (p->collective) {
	case TT_ALLGATHER:
	case TT_GATHER:
		return buf == TT_IN ? 1 : n;
	case TT_REDUCE_SCATTER:
	case TT_SCATTER:
		return buf == TT_IN ? n : 1;
	case TT_ALLTOALL:
		return n;
	default:
		return p->rule == TT_EVEN ? p->nblocks : 1;
	}
}

static int head_blocks(const struct tt_plan *p)
{
	bool may_be_even = p->collective == TT_ALLREDUCE || p->collective == TT_REDUCE ||
			   p->collective == TT_BROADCAST;

	if (p->rule != TT_EQUAL && !(p->rule == TT_EVEN && may_be_even && p->nblocks))
		return tt_fail(TT_USAGE,
			       "rank %d: %s cannot split its buffers by rule %d into %u blocks",
			       p->rank, tt_collective_name(p->collective), (int)p->rule,
			       p->nblocks);
	if (tt_check_has(p, TT_IN) && p->in_blocks != blocks_of(p, TT_IN))
		return tt_fail(TT_USAGE, "rank %d: in has %u blocks, not %u", p->rank, p->in_blocks,
			       blocks_of(p, TT_IN));
	if (tt_check_has(p, TT_OUT) && p->out_blocks != blocks_of(p, TT_OUT))
		return tt_fail(TT_USAGE, "rank %d: out has %u blocks, not %u", p->rank,
			       p->out_blocks, blocks_of(p, TT_OUT));
	if (p->scratch_first > p->scratch_blocks)
		return tt_fail(TT_USAGE, "rank %d: the first of %u blocks of scratch is %u",
			       p->rank, p->scratch_blocks, p->scratch_first);
	if (p->scratch_blocks > 1u << 28)
		return tt_fail(TT_USAGE, "rank %d: %u blocks of scratch are too many", p->rank,
			       p->scratch_blocks);
	return TT_OK;
}

/* Lanes lie within steps[] and share no record. */
static int head_lanes(const struct tt_plan *p)
{
	if (p->nlanes > TT_MAX_LANES)
		return tt_fail(TT_USAGE, "rank %d has %u lanes, more than %d", p->rank, p->nlanes,
			       TT_MAX_LANES);
	for (uint32_t i = 0; i < p->nlanes; i++) {
		const struct tt_lane *a = &p->lanes[i];

		if (a->first > p->nsteps || a->nsteps > p->nsteps - a->first)
			return tt_fail(TT_USAGE,
				       "rank %d lane %u: steps %u..%u lie outside the plan's %u",
				       p->rank, i, a->first, a->first + a->nsteps, p->nsteps);
		for (uint32_t k = 0; k < i; k++) {
			const struct tt_lane *b = &p->lanes[k];

			if (a->first < b->first + b->nsteps && b->first < a->first + a->nsteps)
				return tt_fail(TT_USAGE, "rank %d: lanes %u and %u share steps",
					       p->rank, k, i);
		}
	}
	return TT_OK;
}

int tt_check_heads(struct tt_plan *const *plans, int nranks)
{
	if (nranks < 1 || nranks >= UINT16_MAX)
		return tt_fail(TT_USAGE, "%d ranks cannot be checked", nranks);
	for (int r = 0; r < nranks; r++) {
		const struct tt_plan *p = plans[r], *first = plans[0];
		int rc;

		if (p->nranks != nranks || p->rank != r)
			return tt_fail(TT_USAGE, "plan %d of %d is made for rank %d of %d", r,
				       nranks, p->rank, p->nranks);
		if ((unsigned)p->collective >= TT_SENDRECV || p->root < 0 || p->root >= nranks)
			return tt_fail(TT_USAGE,
				       "rank %d: collective %d with root %d is not planned", r,
				       (int)p->collective, p->root);
		if (p->collective != first->collective || p->root != first->root ||
		    p->rule != first->rule || p->nblocks != first->nblocks ||
		    strcmp(p->algorithm, first->algorithm))
			return tt_fail(
				TT_USAGE,
				"rank %d plans %s %s of %u blocks with root %d, rank 0 %s %s of %u blocks "
				"with root %d",
				r, p->algorithm, tt_collective_name(p->collective), p->nblocks,
				p->root, first->algorithm, tt_collective_name(first->collective),
				first->nblocks, first->root);
		if ((rc = head_blocks(p)) || (rc = head_lanes(p)))
			return rc;
	}
	return TT_OK;
}

/* ---- steps ----------------------------------------------------------------------------------- */

/* A step and its position, for error texts. */
struct at {
	const struct tt_check *c;
	const struct tt_plan *plan;
	const struct tt_step *step;
	uint32_t lane, index;
};

#define at_fail(a, ...) tt_check_fail((a)->plan->rank, (a)->lane, (a)->index, __VA_ARGS__)

static int check_operand(const struct at *a, tt_ref ref, bool is_source)
{
	const struct tt_plan *p = a->plan;
	enum tt_buf buf = tt_ref_buf(ref);
	uint32_t index = tt_ref_index(ref), n = a->step->nblocks, room;

	if (buf == TT_WIRE) {
		if (index >= (uint32_t)p->nranks || (int)index == p->rank)
			return at_fail(a, "rank %u of %d cannot be a peer", index, p->nranks);
		if (!tt_check_knows(a->c, p->rank, (int)index))
			return at_fail(a, "rank %u is not in the plan's list of peers", index);
		return TT_OK;
	}
	if (buf > TT_SCRATCH || (buf == TT_IN && !is_source))
		return at_fail(a, "%s cannot be %s", tt_buf_name(buf),
			       is_source ? "read" : "written");
	if (!tt_check_has(p, buf))
		return at_fail(a, "uses %s, which only root %d has in a %s", tt_buf_name(buf),
			       p->root, tt_collective_name(p->collective));
	room = tt_plan_blocks(p, buf);
	if (n > room || index > room - n)
		return at_fail(a, "uses %s[%u..%u], but there are %u blocks", tt_buf_name(buf),
			       index, index + n - 1, room);
	if (buf == TT_SCRATCH && index < p->scratch_first)
		return at_fail(a, "uses scratch[%u], but the plan has no memory below scratch[%u]",
			       index, p->scratch_first);
	return TT_OK;
}

/* All local operands have one length. */
static int check_length(const struct at *a, tt_ref ref, tt_ref *first_local)
{
	if (!tt_ref_is_local(ref))
		return TT_OK;
	if (*first_local == TT_REF_NONE)
		*first_local = ref;
	if (tt_ref_index(ref) % a->c->classes != tt_ref_index(*first_local) % a->c->classes)
		return at_fail(a, "%s[%u] and %s[%u] need not be equally long",
			       tt_buf_name(tt_ref_buf(*first_local)), tt_ref_index(*first_local),
			       tt_buf_name(tt_ref_buf(ref)), tt_ref_index(ref));
	return TT_OK;
}

static int check_sources(const struct at *a)
{
	const struct tt_step *s = a->step;
	tt_ref first_local = TT_REF_NONE;
	int rc;

	if (s->dst != TT_REF_NONE) {
		if ((rc = check_operand(a, s->dst, false)) ||
		    (rc = check_length(a, s->dst, &first_local)))
			return rc;
	}
	for (int i = 0; i < s->nsrc; i++) {
		tt_ref ref = tt_step_source(s, i);

		if ((rc = check_operand(a, ref, true)) || (rc = check_length(a, ref, &first_local)))
			return rc;
		for (int k = 0; k < i && tt_ref_is_wire(ref); k++)
			if (tt_step_source(s, k) == ref)
				return at_fail(a, "takes two messages of rank %u at once",
					       tt_ref_index(ref));
	}
	return TT_OK;
}

static int check_wait(const struct at *a)
{
	const struct tt_step *s = a->step;
	const struct tt_plan *p = a->plan;

	if (s->wait_lane == TT_NO_LANE)
		return TT_OK;
	if (s->wait_lane >= p->nlanes || s->wait_step >= p->lanes[s->wait_lane].nsteps ||
	    tt_lane_step(p, s->wait_lane, s->wait_step)->op == TT_MORE)
		return at_fail(a, "waits for lane %u step %u, which does not exist", s->wait_lane,
			       s->wait_step);
	if (tt_lane_step(p, s->wait_lane, s->wait_step)->flags & TT_STEP_INTERLEAVED)
		return at_fail(a, "waits for lane %u step %u, which is interleaved with the next",
			       s->wait_lane, s->wait_step);
	if (s->wait_lane == a->lane && s->wait_step >= a->index)
		return at_fail(a, "waits for step %u of its own lane, which comes later",
			       s->wait_step);
	return TT_OK;
}

/* Checks the form of one step: 0 | < 0. */
static int check_step(const struct at *a)
{
	const struct tt_step *s = a->step;
	bool nop = s->op == TT_NOP, passing = s->flags & TT_STEP_PASSING;
	int least = nop ? 0 : s->op == TT_COPY ? 1 : 2, most = nop ? 0 : s->op == TT_COPY ? 1 : 8;
	int rc = check_wait(a);

	if (rc)
		return rc;
	if (s->op != TT_NOP && s->op != TT_COPY && s->op != TT_COMBINE)
		return at_fail(a, "opcode %u does not begin a step", s->op);
	if (s->nsrc < least || s->nsrc > most)
		return at_fail(a, "has %u sources, not %d..%d", s->nsrc, least, most);
	if (s->flags & ~(TT_STEP_PASSING | TT_STEP_INTERLEAVED) || s->reserved)
		return at_fail(a, "has unknown flags %#x", s->flags);
	if (s->flags & TT_STEP_INTERLEAVED &&
	    a->index + tt_step_records(s) >= a->plan->lanes[a->lane].nsteps)
		return at_fail(a, "is interleaved with the next step, but is the last");
	if (passing && (s->dst == TT_REF_NONE || s->to == TT_REF_NONE))
		return at_fail(a, "is passing, but has no %s",
			       s->dst == TT_REF_NONE ? "destination" : "peer to pass to");
	if (nop)
		return s->dst == TT_REF_NONE && s->to == TT_REF_NONE
			       ? TT_OK
			       : at_fail(a, "is a NOP, but has a destination");
	if (s->dst == TT_REF_NONE && s->to == TT_REF_NONE)
		return at_fail(a, "has no destination and no peer to send to");
	if (s->dst != TT_REF_NONE && !tt_ref_is_local(s->dst))
		return at_fail(a, "has a destination that is not a block");
	if (s->to != TT_REF_NONE && tt_ref_buf(s->to) != TT_WIRE)
		return at_fail(a, "sends to an operand that is not a peer");
	if (s->dst == TT_REF_NONE && (s->op != TT_COPY || tt_ref_is_wire(s->src[0])))
		return at_fail(a, "sends a result without storing it in a block");
	if (!s->nblocks)
		return at_fail(a, "has no blocks");
	if (s->to != TT_REF_NONE && (rc = check_operand(a, s->to, true)))
		return rc;
	return check_sources(a);
}

/* Checks the TT_MORE record that must follow a step of more than two sources. */
static int check_more(const struct at *a)
{
	const struct tt_more *more = (const struct tt_more *)(a->step + 1);

	if (a->step->nsrc <= 2)
		return TT_OK;
	if (a->index + 1 >= a->plan->lanes[a->lane].nsteps || more->op != TT_MORE ||
	    more->n != a->step->nsrc - 2 || more->reserved)
		return at_fail(a, "no record with its %u further sources follows",
			       a->step->nsrc - 2);
	return TT_OK;
}

static int check_peers(const struct tt_check *c, const struct tt_plan *p)
{
	for (uint32_t i = 0; i < p->npeers; i++) {
		int peer = p->peers[i];

		if (peer < 0 || peer >= p->nranks || peer == p->rank ||
		    (i && p->peers[i - 1] >= peer))
			return tt_fail(
				TT_USAGE,
				"rank %d: entry %u of its list of peers is %d, out of order or range",
				p->rank, i, peer);
		c->peer_index[(size_t)p->rank * (size_t)p->nranks + (size_t)peer] = (uint16_t)i;
	}
	return TT_OK;
}

int tt_check_steps(const struct tt_check *c)
{
	int rc;

	for (int r = 0; r < c->nranks; r++) {
		const struct tt_plan *p = c->plans[r];
		struct at a = { .c = c, .plan = p };

		if ((rc = check_peers(c, p)))
			return rc;
		for (a.lane = 0; a.lane < p->nlanes; a.lane++) {
			for (a.index = 0; a.index < p->lanes[a.lane].nsteps; a.index++) {
				a.step = tt_lane_step(p, a.lane, a.index);
				if ((a.step->nsrc <= 8 && (rc = check_more(&a))) ||
				    (rc = check_step(&a)))
					return rc;
				a.index += tt_step_records(a.step) - 1;
			}
		}
	}
	return TT_OK;
}
