/*
 * test_check.c - the plan checker on hand-written plans: valid plans pass, every violation is named
 *
 * test_check_order.c tests order, messages and deadlocks; test_mutants.c mutates the plans of the
 * real algorithms.
 */
#include "tests/support/plan_checked.h"

TestSuite(check, .timeout = 60);

/* ---- valid plans ----------------------------------------------------------------------------- */

Test(check, ring_star_and_exchange_pass)
{
	struct tt_plan *plans[64];

	for (int n = 2; n <= 64; n += n < 8 ? 1 : 19) {
		hand_ring(plans, n);
		passes(plans, n);
	}
	for (int n = 2; n <= 5; n++) {
		hand_star(plans, n);
		passes(plans, n);
		hand_star_lanes(plans, n);
		passes(plans, n);
	}
	hand_exchange(plans);
	passes(plans, 2);
}

Test(check, a_plan_for_one_rank_is_a_copy)
{
	struct tt_plan *plans[1] = { hand_plan(TT_ALLREDUCE, 1, 0, 0, 1, 0) };

	hand_step(plans[0], 0, TT_COPY, out(0), none, in(0), none);
	passes(plans, 1);
}

/* Linear plans of the other collectives: each owner of a block sends the block to every rank that
 * needs the block. */
static void linear(struct tt_plan **plans, enum tt_collective collective, int n, int root)
{
	for (int r = 0; r < n; r++)
		plans[r] = hand_plan(collective, n, r, root, 1, 0);
	for (int from = 0; from < n; from++) {
		for (int to = 0; to < n; to++) {
			bool wanted = (collective != TT_BROADCAST && collective != TT_SCATTER) ||
				      from == root;
			uint32_t theirs = collective == TT_SCATTER || collective == TT_ALLTOALL
						  ? (uint32_t)to
						  : 0;
			uint32_t mine = collective == TT_SCATTER || collective == TT_BROADCAST
						? 0
						: (uint32_t)from;

			if (!wanted || (collective == TT_GATHER && to != root))
				continue;
			if (from == to) {
				hand_step(plans[from], 0, TT_COPY, out(mine), none, in(theirs),
					  none);
				continue;
			}
			hand_step(plans[from], 0, TT_COPY, none, wire(to), in(theirs), none);
			hand_step(plans[to], 1, TT_COPY, out(mine), none, wire(from), none)
				->wait_lane = TT_NO_LANE;
		}
	}
	for (int r = 0; r < n; r++)
		hand_finish(plans[r]);
}

/* Append lane 1 to lane 0. linear() sends in lane 0 and receives in lane 1, which must not match;
 * in one lane the messages match. */
static void to_one_lane(struct tt_plan **plans, int n)
{
	for (int r = 0; r < n; r++) {
		struct tt_plan *p = plans[r];
		uint32_t count = p->nlanes > 1 ? p->lanes[1].nsteps : 0;

		memcpy(step(p, 0, p->lanes[0].nsteps), step(p, 1, 0),
		       count * sizeof(struct tt_step));
		p->lanes[0].nsteps += count;
		p->lanes[1].nsteps = 0;
		p->nlanes = 1;
	}
}

Test(check, linear_plans_of_all_collectives_pass)
{
	static const enum tt_collective each[] = { TT_BROADCAST, TT_ALLGATHER, TT_ALLTOALL,
						   TT_GATHER, TT_SCATTER };
	struct tt_plan *plans[5];

	for (size_t i = 0; i < sizeof(each) / sizeof(*each); i++) {
		for (int n = 2; n <= 5; n++) {
			for (int root = 0; root < n; root++) {
				linear(plans, each[i], n, root);
				refused(plans, n, "rank", "in this lane");
				linear(plans, each[i], n, root);
				to_one_lane(plans, n);
				passes(plans, n);
			}
		}
	}
}

Test(check, reduce_and_reduce_scatter_pass)
{
	struct tt_plan *plans[2];

	for (int r = 0; r < 2; r++) {
		plans[r] = hand_plan(TT_REDUCE, 2, r, 1, 3, 0);
		if (r == 1)
			hand_step(plans[r], 0, TT_COMBINE, out(0), none, wire(0), in(0), none)
				->nblocks = 3;
		else
			hand_step(plans[r], 0, TT_COPY, none, wire(1), in(0), none)->nblocks = 3;
		hand_finish(plans[r]);
	}
	passes(plans, 2);
	for (int r = 0; r < 2; r++) {
		plans[r] = hand_plan(TT_REDUCE_SCATTER, 2, r, 0, 1, 0);
		hand_step(plans[r], 0, TT_COPY, none, wire(1 - r), in((uint32_t)(1 - r)), none);
		hand_step(plans[r], 0, TT_COMBINE, out(0), none, in((uint32_t)r), wire(1 - r),
			  none);
		hand_finish(plans[r]);
	}
	passes(plans, 2);
}

/* ---- results --------------------------------------------------------------------------------- */

Test(check, a_missing_contribution_is_named)
{
	struct tt_plan *plans[3];

	hand_star(plans, 3);
	step(plans[2], 0, 0)->op = TT_NOP;      /* no message from rank 2 to rank 0 */
	step(plans[2], 0, 0)->nsrc = 0;
	step(plans[2], 0, 0)->to = none;
	step(plans[0], 0, 0)->nsrc = 2;
	step(plans[0], 0, 1)->op = TT_NOP;
	*step(plans[0], 0, 1) = *step(plans[2], 0, 0);
	refused(plans, 3, "rank 0 lane 0 step 0: leaves out[0] without rank 2's contribution", "");
}

Test(check, a_doubled_contribution_is_named)
{
	struct tt_plan *plans[2];

	hand_exchange(plans);
	step(plans[0], 0, 2)->src[0] = scratch(0);
	refused(plans, 2, "rank 0 lane 0 step 2: combines rank 1's block 0 twice", "");
}

Test(check, a_wrong_block_is_named)
{
	struct tt_plan *plans[3];

	linear(plans, TT_SCATTER, 3, 1);
	to_one_lane(plans, 3);
	step(plans[1], 0, 0)->src[0] = in(2);
	refused(plans, 3,
		"rank 0 lane 0 step 0: leaves in out[0] block 2 of rank 1 instead of block 0 of rank 1",
		"");
	for (int r = 0; r < 2; r++) {
		plans[r] = hand_plan(TT_REDUCE_SCATTER, 2, r, 0, 1, 0);
		hand_step(plans[r], 0, TT_COPY, none, wire(1 - r), in(0), none);
		hand_step(plans[r], 0, TT_COMBINE, out(0), none, in((uint32_t)r), wire(1 - r),
			  none);
		hand_finish(plans[r]);
	}
	refused(plans, 2, "rank 1 lane 0 step 1: combines block 1 with block 0", "");
}

Test(check, an_unwritten_result_is_named)
{
	struct tt_plan *plans[2];

	hand_star(plans, 2);
	step(plans[1], 0, 1)->dst = scratch(0);
	plans[1]->scratch_blocks = 1;
	refused(plans, 2,
		"rank 1: leaves in out[0] nothing instead of every rank's contribution to block 0",
		"");
}

Test(check, a_different_order_on_one_rank_is_named)
{
	struct tt_plan *plans[2];

	hand_exchange(plans);
	step(plans[1], 0, 2)->src[0] = in(0);
	step(plans[1], 0, 2)->src[1] = scratch(0);
	refused(plans, 2,
		"rank 1 lane 0 step 2: leaves out[0] combined in another order than on rank 0",
		": g1 + g0, there g0 + g1");
}

Test(check, rounding_once_and_rounding_twice_are_different_expressions)
{
	struct tt_plan *plans[3], *others[3];

	hand_star(plans, 3);
	hand_star(others, 3);
	cr_expect_eq(tt_plan_check_same(plans, others, 3), TT_OK, "%s", tt_error_text());
	hand_free(others, 3);
	hand_star(others, 3);
	others[0]->lanes[0].nsteps = 0;
	hand_step(others[0], 0, TT_COMBINE, out(0), none, in(0), wire(1), none);
	hand_step(others[0], 0, TT_COMBINE, out(0), none, out(0), wire(2), none);
	hand_step(others[0], 0, TT_COPY, none, wire(1), out(0), none);
	hand_step(others[0], 0, TT_COPY, none, wire(2), out(0), none);
	cr_expect_eq(tt_plan_check(others, 3), TT_OK, "%s", tt_error_text());
	cr_expect_eq(tt_plan_check_same(plans, others, 3), TT_USAGE);
	cr_expect_str_eq(tt_error_text(),
		"rank 0 lane 0 step 1: combines out[0] in another order than the other plan");
	hand_free(plans, 3);
	hand_free(others, 3);
}

/* ---- reading and writing --------------------------------------------------------------------- */

Test(check, reading_an_unwritten_block_is_named)
{
	struct tt_plan *plans[2];

	hand_exchange(plans);
	step(plans[0], 0, 0)->src[0] = out(0);
	refused(plans, 2, "rank 0 lane 0 step 0: reads out[0], which nothing wrote", "");
	hand_exchange(plans);
	plans[1]->scratch_blocks = 2;
	step(plans[1], 0, 1)->dst = scratch(1);
	refused(plans, 2, "rank 1 lane 0 step 2: reads scratch[0], which nothing wrote", "");
}

Test(check, a_block_that_is_only_passed_on_cannot_be_read_or_kept)
{
	struct tt_plan *plans[3];

	/* 0 -> 1 -> 2: rank 1 passes the block on, with keeps == 2 also receives the block again */
	for (int keeps = 0; keeps < 3; keeps++) {
		for (int r = 0; r < 3; r++)
			plans[r] = hand_plan(TT_BROADCAST, 3, r, 0, 1, 0);
		hand_step(plans[0], 0, TT_COPY, out(0), wire(1), in(0), none);
		hand_step(plans[1], 0, TT_COPY, out(0), wire(2), wire(0), none)->flags =
			keeps ? TT_STEP_PASSING : 0;
		hand_step(plans[2], 0, TT_COPY, out(0), none, wire(1), none);
		if (keeps == 2) {
			hand_step(plans[2], 0, TT_COPY, none, wire(1), out(0), none);
			hand_step(plans[1], 0, TT_COPY, out(0), none, wire(2), none);
		}
		for (int r = 0; r < 3; r++)
			hand_finish(plans[r]);
		if (keeps == 1)
			refused(plans, 3,
				"rank 1 lane 0 step 0: leaves in out[0] a value that was only passed on",
				"");
		else
			passes(plans, 3);
	}
	hand_ring(plans, 3);
	step(plans[1], 0, 1)->flags = TT_STEP_PASSING;
	refused(plans, 3, "rank 1 lane 0 step 1: is passing, but has no peer to pass to", "");
	for (int r = 0; r < 2; r++)
		plans[r] = hand_plan(TT_BROADCAST, 2, r, 0, 1, 0);
	hand_step(plans[0], 0, TT_COPY, out(0), wire(1), in(0), none)->flags = TT_STEP_PASSING;
	hand_step(plans[0], 0, TT_COPY, none, wire(1), out(0), none);
	for (int i = 0; i < 2; i++)
		hand_step(plans[1], 0, TT_COPY, out(0), none, wire(0), none);
	hand_finish(plans[0]);
	hand_finish(plans[1]);
	refused(plans, 2, "rank 0 lane 0 step 1: reads out[0], which lane 0 step 0 only passed on",
		"");
}

Test(check, the_input_is_never_written)
{
	struct tt_plan *plans[2];

	hand_exchange(plans);
	step(plans[0], 0, 1)->dst = in(0);
	refused(plans, 2, "rank 0 lane 0 step 1: in cannot be written", "");
}

Test(check, buffers_that_only_the_root_has_are_not_used_on_other_ranks)
{
	struct tt_plan *plans[2];

	for (int r = 0; r < 2; r++)
		plans[r] = hand_plan(TT_REDUCE, 2, r, 0, 1, 0);
	hand_step(plans[0], 0, TT_COMBINE, out(0), none, in(0), wire(1), none);
	hand_step(plans[1], 0, TT_COPY, out(0), wire(0), in(0), none);
	hand_finish(plans[0]);
	hand_finish(plans[1]);
	refused(plans, 2, "rank 1 lane 0 step 0: uses out, which only root 0 has in a reduce", "");
}

/* ---- form ------------------------------------------------------------------------------------ */

/* Ring of 3 with one change in step 1 of rank 1 (out[0] <- in[0] + wire(0)). */
#define malformed(change, what) do { \
	struct tt_plan *plans[3]; \
	struct tt_plan *p; \
	struct tt_step *s; \
	hand_ring(plans, 3); \
	p = plans[1]; \
	s = step(p, 0, 1); \
	(void)p, (void)s; \
	change; \
	refused(plans, 3, "rank 1 lane 0 step 1: ", what); \
} while (0)

Test(check, malformed_steps_are_named)
{
	malformed(s->op = 7, "opcode 7 does not begin a step");
	malformed(s->op = TT_MORE, "opcode 3 does not begin a step");
	malformed(s->nsrc = 1, "has 1 sources, not 2..8");
	malformed(s->nsrc = 9, "has 9 sources, not 2..8");
	malformed(s->nsrc = 3, "no record with its 1 further sources follows");
	malformed(s->op = TT_COPY, "has 2 sources, not 1..1");
	malformed(s->op = TT_NOP, "has 2 sources, not 0..0");
	malformed((s->op = TT_NOP, s->nsrc = 0), "is a NOP, but has a destination");
	malformed(s->flags = 4, "unknown flags");
	malformed(s->dst = none, "no destination and no peer");
	malformed((s->dst = none, s->to = wire(2)), "sends a result without storing it in a block");
	malformed((s->op = TT_COPY, s->nsrc = 1, s->src[0] = wire(0), s->dst = none,
		   s->to = wire(2)),
		  "sends a result without storing it in a block");
	malformed(s->dst = wire(2), "has a destination that is not a block");
	malformed(s->to = out(1), "sends to an operand that is not a peer");
	malformed(s->nblocks = 0, "has no blocks");
	malformed(s->nblocks = 4, "uses out[0..3], but there are 3 blocks");
	malformed(s->nblocks = UINT32_MAX, "there are 3 blocks");
	malformed(s->dst = scratch(0), "uses scratch[0..0], but there are 0 blocks");
	malformed(s->src[0] = in(3), "uses in[3..3], but there are 3 blocks");
	malformed(s->src[0] = none, "nothing cannot be read");
	malformed(s->src[1] = wire(1), "rank 1 of 3 cannot be a peer");
	malformed(s->src[1] = wire(3), "rank 3 of 3 cannot be a peer");
	malformed(s->src[0] = wire(0), "takes two messages of rank 0 at once");
	malformed((p->npeers = 1, p->peers[0] = 2), "rank 0 is not in the plan's list of peers");
	malformed((s->wait_lane = 1, s->wait_step = 0),
		  "waits for lane 1 step 0, which does not exist");
	malformed((s->wait_lane = 0, s->wait_step = 0, step(p, 0, 0)->flags = TT_STEP_INTERLEAVED),
		  "waits for lane 0 step 0, which is interleaved with the next");
	malformed((p->lanes[0].nsteps = 2, s->flags = TT_STEP_INTERLEAVED),
		  "is interleaved with the next step, but is the last");
	malformed((s->wait_lane = 0, s->wait_step = 99),
		  "waits for lane 0 step 99, which does not exist");
}

Test(check, malformed_plan_headers_are_named)
{
	struct tt_plan *plans[3];

	hand_ring(plans, 3);
	plans[2]->rank = 1;
	refused(plans, 3, "plan 2 of 3 is made for rank 1 of 3", "");
	hand_ring(plans, 3);
	plans[2]->root = 1;
	refused(plans, 3, "rank 2 plans by-hand allreduce of 3 blocks with root 1", "root 0");
	hand_ring(plans, 3);
	plans[0]->in_blocks = 2;
	refused(plans, 3, "rank 0: in has 2 blocks, not 3", "");
	hand_ring(plans, 3);
	plans[0]->nlanes = 9;
	refused(plans, 3, "rank 0 has 9 lanes, more than 8", "");
	hand_ring(plans, 3);
	plans[0]->lanes[0].nsteps = 9 * HAND_STEPS;
	refused(plans, 3, "rank 0 lane 0: steps", "outside");
	hand_ring(plans, 3);
	plans[0]->nlanes = 2;
	plans[0]->lanes[1] = (struct tt_lane){ 3, 1 };
	refused(plans, 3, "rank 0: lanes 0 and 1 share steps", "");
	hand_ring(plans, 3);
	plans[0]->peers[1] = 1;
	refused(plans, 3, "rank 0: entry 1 of its list of peers is 1", "");
	hand_star(plans, 3);
	plans[1]->peers[1] = 2;
	plans[1]->npeers = 2;
	refused(plans, 3, "rank 1: rank 2 is in its list of peers, but no step names it", "");
}

Test(check, partial_overlap_of_source_and_destination_is_found)
{
	struct tt_plan *plans[1] = { hand_plan(TT_ALLREDUCE, 1, 0, 0, 1, 0) };
	struct tt_plan *p = plans[0];

	p->rule = TT_EVEN;
	p->nblocks = p->in_blocks = p->out_blocks = 3;
	hand_step(p, 0, TT_COPY, out(0), none, in(0), none)->nblocks = 2;
	hand_step(p, 0, TT_COPY, out(1), none, in(1), none)->nblocks = 2;
	passes(plans, 1);
	plans[0] = p = hand_plan(TT_ALLREDUCE, 1, 0, 0, 3, 6);
	hand_step(p, 0, TT_COPY, scratch(0), none, in(0), none)->nblocks = 3;
	hand_step(p, 0, TT_COPY, scratch(3), none, in(0), none)->nblocks = 3;
	hand_step(p, 0, TT_COPY, scratch(0), none, scratch(3), none)->nblocks = 3;
	hand_step(p, 0, TT_COPY, out(0), none, scratch(0), none)->nblocks = 3;
	passes(plans, 1);
	plans[0] = p = hand_plan(TT_ALLREDUCE, 1, 0, 0, 1, 4);
	hand_step(p, 0, TT_COPY, scratch(0), none, in(0), none);
	hand_step(p, 0, TT_COPY, scratch(1), none, in(0), none);
	hand_step(p, 0, TT_COPY, scratch(1), none, scratch(0), none)->nblocks = 2;
	hand_step(p, 0, TT_COPY, out(0), none, scratch(2), none);
	refused(plans, 1, "rank 0 lane 0 step 2: reads and writes blocks that overlap partly", "");
}
