/*
 * print_goal.c - plans as a GOAL schedule, the input of LogGOPSim
 *
 * Source: Hoefler, Schneider, Lumsdaine 2010.
 *
 * A block is one byte of a message, and one unit of `calc` for each copy or combination within a
 * rank; tags are lanes. A step becomes its receives, then a calc, then its send. The next step of
 * the lane waits for these, but for a send only until the send has started ("irequires"): sends
 * never block their lane. GOAL cannot express that a block must not be overwritten while in flight.
 */
#include "verify/print.h"

#include <stdlib.h>

/* Operations of a step, labeled in order: receives, calc, send. */
struct ops {
	uint32_t receives;
	bool calc, sends;
};

static struct ops ops_of(const struct tt_step *s)
{
	struct ops o = { .sends = s->to != TT_REF_NONE };

	for (int i = 0; i < s->nsrc; i++)
		o.receives += tt_ref_is_wire(tt_step_source(s, i));
	o.calc = s->op == TT_COMBINE || s->op == TT_NOP || (!o.receives && s->dst != TT_REF_NONE);
	return o;
}

static uint32_t last_label(const struct tt_step *s, uint32_t first)
{
	struct ops o = ops_of(s);

	return first + o.receives + o.calc + o.sends - 1;
}

/* Prints the operations of a step, labeled from `label` on. Returns the next label. */
static uint32_t print_ops(const struct tt_step *s, uint32_t lane, uint32_t label, FILE *to)
{
	struct ops o = ops_of(s);
	uint32_t first = label,
		 units = s->op == TT_NOP ? 0 : s->nblocks * (s->nsrc > 1 ? s->nsrc - 1u : 1u);

	for (int i = 0; i < s->nsrc; i++)
		if (tt_ref_is_wire(tt_step_source(s, i)))
			fprintf(to, "l%u: recv %ub from %u tag %u\n", label++, s->nblocks,
				tt_ref_index(tt_step_source(s, i)), lane);
	if (o.calc)
		fprintf(to, "l%u: calc %u\n", label++, units);
	if (o.sends)
		fprintf(to, "l%u: send %ub to %u tag %u\n", label++, s->nblocks,
			tt_ref_index(s->to), lane);
	for (uint32_t i = 0; i < o.receives && (o.calc || o.sends); i++)
		fprintf(to, "l%u requires l%u\n", first + o.receives, first + i);
	if (o.calc && o.sends)
		fprintf(to, "l%u requires l%u\n", label - 1, label - 2);
	return label;
}

/* Prints that a step starts after another step has ended. */
static void print_after(const struct tt_step *s, uint32_t first, const struct tt_step *other,
			uint32_t other_first, FILE *to)
{
	uint32_t starts = ops_of(s).receives ? ops_of(s).receives : 1;

	for (uint32_t i = 0; i < starts; i++)
		fprintf(to, "l%u %s l%u\n", first + i,
			other->to != TT_REF_NONE ? "irequires" : "requires",
			last_label(other, other_first));
}

static void print_rank(const struct tt_plan *p, uint32_t *label, FILE *to)
{
	uint32_t next = 1;

	fprintf(to, "\nrank %d {\n", p->rank);
	for (uint32_t lane = 0; lane < p->nlanes; lane++) {
		for (uint32_t i = 0; i < p->lanes[lane].nsteps;
		     i += tt_step_records(tt_lane_step(p, lane, i))) {
			label[p->lanes[lane].first + i] = next;
			next = print_ops(tt_lane_step(p, lane, i), lane, next, to);
		}
	}
	for (uint32_t lane = 0; lane < p->nlanes; lane++) {
		uint32_t before = 0, first = p->lanes[lane].first;

		for (uint32_t i = 0; i < p->lanes[lane].nsteps;
		     i += tt_step_records(tt_lane_step(p, lane, i))) {
			const struct tt_step *s = tt_lane_step(p, lane, i);

			if (i)
				print_after(s, label[first + i], tt_lane_step(p, lane, before),
					    label[first + before], to);
			if (s->wait_lane != TT_NO_LANE)
				print_after(s, label[first + i],
					    tt_lane_step(p, s->wait_lane, s->wait_step),
					    label[p->lanes[s->wait_lane].first + s->wait_step], to);
			before = i;
		}
	}
	fputs("}\n", to);
}

int tt_print_goal(struct tt_plan *const *plans, int nplans, bool all, FILE *to)
{
	(void)all;
	fprintf(to, "num_ranks %d\n", plans[0]->nranks);
	for (int i = 0; i < nplans; i++) {
		uint32_t *label = calloc(plans[i]->nsteps + 1, sizeof(*label));

		if (!label)
			return tt_fail(TT_SYSTEM, "no memory to print a plan of %u steps",
				       plans[i]->nsteps);
		print_rank(plans[i], label, to);
		free(label);
	}
	return TT_OK;
}
