/*
 * print_json.c - plans as JSON, complete enough for an independent checker
 *
 * One rank: one object. All ranks: an array of them, in rank order.
 *
 *   algorithm, collective     strings; nranks, rank, root: numbers
 *   rule                      "even": in and out are nblocks blocks of one even split, whose last
 *                             blocks may be short or empty; "equal": all blocks have one length, in
 *                             and out may have different numbers of blocks
 *   nblocks, in_blocks, out_blocks, scratch_blocks
 *                             even: scratch block i is as long as block i modulo nblocks
 *   scratch_first             no step uses scratch blocks below it
 *   peers                     ranks that this rank sends to or receives from
 *   lanes                     [{"lane": number, "steps": [...]}]
 *
 * A step:
 *   step      index in the lane, as in `wait`; indices may skip
 *   op        name: send, recv, copy, reduce, recv_reduce, recv_send, recv_reduce_send ..., wait.
 *             Derived from the other members, which define the step: dst, to <- srcs combined left
 *             to right, rounded once
 *   from      ranks whose next message in this lane is received, in operand order
 *   to        rank that the result is sent to, or null
 *   nblocks   consecutive blocks of every local operand, and of messages
 *   dst       {"buf": "out" | "scratch", "block": number, "nblocks": number} or null
 *   srcs      operands in order:
 *             {"buf": "in" | "out" | "scratch", "block": number} or {"wire": rank}
 *   wait      null, or {"lane": number, "step": number}: starts after that step
 *   passing   true: no step reads dst afterwards, so dst need not be stored; only `to` needs the
 *             value
 *   turns     true: the step is interleaved with the next one: if nblocks are too many for one
 *             message, the first message of each step goes first, then the second of each ...
 *
 * Lanes run concurrently, each in order. Message k from rank a to rank b in lane l is message k
 * that b receives from a in lane l. Nothing else is ordered. A step that receives and sends
 * receives first. In place, in and out share memory: block b of both (allreduce, reduce,
 * broadcast), in[0] is out[rank] (allgather, gather at root), out[0] is in[rank] (reduce_scatter,
 * scatter at root).
 */
#include "verify/print.h"

/* Ranks whose messages the step receives. */
static void print_from(const struct tt_step *s, FILE *to)
{
	const char *comma = "";

	for (int i = 0; i < s->nsrc; i++) {
		if (!tt_ref_is_wire(tt_step_source(s, i)))
			continue;
		fprintf(to, "%s%u", comma, tt_ref_index(tt_step_source(s, i)));
		comma = ", ";
	}
}

static void print_sources(const struct tt_step *s, FILE *to)
{
	for (int i = 0; i < s->nsrc; i++) {
		tt_ref ref = tt_step_source(s, i);

		fputs(i ? ", " : "", to);
		if (tt_ref_is_wire(ref))
			fprintf(to, "{\"wire\": %u}", tt_ref_index(ref));
		else
			fprintf(to, "{\"buf\": \"%s\", \"block\": %u}",
				tt_buf_name(tt_ref_buf(ref)), tt_ref_index(ref));
	}
}

static void print_step(const struct tt_step *s, uint32_t index, FILE *to)
{
	char name[TT_STEP_NAME_BYTES];

	fprintf(to, "      {\"step\": %u, \"op\": \"%s\", \"from\": [", index,
		tt_step_name(s, '_', name));
	print_from(s, to);
	if (s->to != TT_REF_NONE)
		fprintf(to, "], \"to\": %u, ", tt_ref_index(s->to));
	else
		fputs("], \"to\": null, ", to);
	fprintf(to, "\"nblocks\": %u, \"dst\": ", s->op == TT_NOP ? 0 : s->nblocks);
	if (s->dst != TT_REF_NONE)
		fprintf(to, "{\"buf\": \"%s\", \"block\": %u, \"nblocks\": %u}",
			tt_buf_name(tt_ref_buf(s->dst)), tt_ref_index(s->dst), s->nblocks);
	else
		fputs("null", to);
	fputs(", \"srcs\": [", to);
	print_sources(s, to);
	if (s->wait_lane != TT_NO_LANE)
		fprintf(to, "], \"wait\": {\"lane\": %u, \"step\": %u}, ", s->wait_lane,
			s->wait_step);
	else
		fputs("], \"wait\": null, ", to);
	fprintf(to, "\"passing\": %s, \"turns\": %s}",
		s->flags & TT_STEP_PASSING ? "true" : "false",
		s->flags & TT_STEP_INTERLEAVED ? "true" : "false");
}

static void print_plan(const struct tt_plan *p, FILE *to)
{
	fprintf(to,
		"{\"algorithm\": \"%s\", \"collective\": \"%s\", \"nranks\": %d, \"rank\": %d, \"root\": %d, \"rule\": \"%s\",\n",
		p->algorithm, tt_collective_name(p->collective), p->nranks, p->rank, p->root,
		p->rule == TT_EVEN ? "even" : "equal");
	fprintf(to,
		"  \"nblocks\": %u, \"in_blocks\": %u, \"out_blocks\": %u, \"scratch_blocks\": %u, \"scratch_first\": %u, \"peers\": [",
		p->nblocks, p->in_blocks, p->out_blocks, p->scratch_blocks, p->scratch_first);
	for (uint32_t i = 0; i < p->npeers; i++)
		fprintf(to, "%s%d", i ? ", " : "", p->peers[i]);
	fputs("],\n  \"lanes\": [", to);
	for (uint32_t lane = 0; lane < p->nlanes; lane++) {
		const char *comma = "";

		fprintf(to, "%s\n    {\"lane\": %u, \"steps\": [", lane ? "," : "", lane);
		for (uint32_t i = 0; i < p->lanes[lane].nsteps;
		     i += tt_step_records(tt_lane_step(p, lane, i))) {
			fprintf(to, "%s\n", comma);
			print_step(tt_lane_step(p, lane, i), i, to);
			comma = ",";
		}
		fputs("]}", to);
	}
	fputs("]}", to);
}

int tt_print_json(struct tt_plan *const *plans, int nplans, bool all, FILE *to)
{
	fputs(all ? "[" : "", to);
	for (int i = 0; i < nplans; i++) {
		fputs(i ? ",\n" : "", to);
		print_plan(plans[i], to);
	}
	fputs(all ? "]\n" : "\n", to);
	return TT_OK;
}
