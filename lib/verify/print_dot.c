/*
 * print_dot.c - plans as a graph for Graphviz: boxes are ranks, inner boxes lanes, nodes steps
 *
 * Solid arrows: order within a lane. Dashed: waits. Blue, if all ranks are printed: messages.
 */
#include "verify/print.h"

static void print_node(const struct tt_plan *p, uint32_t lane, uint32_t index, FILE *to)
{
	const struct tt_step *s = tt_lane_step(p, lane, index);
	char name[TT_STEP_NAME_BYTES], text[TT_STEP_TEXT_BYTES];

	fprintf(to, "      r%dl%us%u [label=\"%u %s\\n%s", p->rank, lane, index, index,
		tt_step_name(s, '-', name), tt_step_text(s, text));
	if (s->to != TT_REF_NONE && s->dst != TT_REF_NONE)
		fprintf(to, "\\nthen send to %u", tt_ref_index(s->to));
	fputs("\"];\n", to);
}

static void print_lane(const struct tt_plan *p, uint32_t lane, FILE *to)
{
	uint32_t before = 0;

	fprintf(to, "    subgraph cluster_r%dl%u {\n      label=\"lane %u\";\n", p->rank, lane,
		lane);
	for (uint32_t i = 0; i < p->lanes[lane].nsteps;
	     i += tt_step_records(tt_lane_step(p, lane, i))) {
		print_node(p, lane, i, to);
		if (i)
			fprintf(to, "      r%dl%us%u -> r%dl%us%u;\n", p->rank, lane, before,
				p->rank, lane, i);
		before = i;
	}
	fputs("    }\n", to);
}

static void print_waits(const struct tt_plan *p, FILE *to)
{
	for (uint32_t lane = 0; lane < p->nlanes; lane++) {
		for (uint32_t i = 0; i < p->lanes[lane].nsteps;
		     i += tt_step_records(tt_lane_step(p, lane, i))) {
			const struct tt_step *s = tt_lane_step(p, lane, i);

			if (s->wait_lane != TT_NO_LANE)
				fprintf(to, "  r%dl%us%u -> r%dl%us%u [style=dashed];\n", p->rank,
					s->wait_lane, s->wait_step, p->rank, lane, i);
		}
	}
}

/* Messages of one lane from one rank to another: message k sent is message k received. */
static void print_messages(const struct tt_plan *from, const struct tt_plan *taker, uint32_t lane,
			   FILE *to)
{
	uint32_t i = 0, k = 0, ni = from->lanes[lane].nsteps,
		 nk = lane < taker->nlanes ? taker->lanes[lane].nsteps : 0;

	for (; i < ni; i += tt_step_records(tt_lane_step(from, lane, i))) {
		if (tt_lane_step(from, lane, i)->to != tt_ref_make(TT_WIRE, (uint32_t)taker->rank))
			continue;
		while (k < nk && !tt_step_takes(tt_lane_step(taker, lane, k), from->rank))
			k += tt_step_records(tt_lane_step(taker, lane, k));
		if (k >= nk)
			return;
		fprintf(to, "  r%dl%us%u -> r%dl%us%u [color=blue, constraint=false];\n",
			from->rank, lane, i, taker->rank, lane, k);
		k += tt_step_records(tt_lane_step(taker, lane, k));
	}
}

int tt_print_dot(struct tt_plan *const *plans, int nplans, bool all, FILE *to)
{
	fprintf(to, "digraph \"%s %s\" {\n  node [shape=box, fontname=monospace];\n",
		plans[0]->algorithm, tt_collective_name(plans[0]->collective));
	for (int i = 0; i < nplans; i++) {
		fprintf(to, "  subgraph cluster_r%d {\n    label=\"rank %d\";\n", plans[i]->rank,
			plans[i]->rank);
		for (uint32_t lane = 0; lane < plans[i]->nlanes; lane++)
			print_lane(plans[i], lane, to);
		fputs("  }\n", to);
		print_waits(plans[i], to);
	}
	for (int i = 0; i < nplans && all; i++)
		for (uint32_t k = 0; k < plans[i]->npeers; k++)
			for (uint32_t lane = 0; lane < plans[i]->nlanes; lane++)
				print_messages(plans[i], plans[plans[i]->peers[k]], lane, to);
	fputs("}\n", to);
	return TT_OK;
}
