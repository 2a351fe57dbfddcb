/*
 * test_check_order.c - the plan checker on order: within a rank, between ranks, deadlocks
 *
 * test_check.c tests the results and the form of plans.
 */
#include "tests/support/plan_checked.h"

TestSuite(check_order, .timeout = 60);

/* ---- order within a rank --------------------------------------------------------------------- */

/* Two ranks, two blocks, one lane per block. The tests add steps on block 0 to lane 1 of rank 0. */
static void two_lanes(struct tt_plan **plans)
{
	for (int r = 0; r < 2; r++) {
		plans[r] = hand_plan(TT_ALLREDUCE, 2, r, 0, 2, 2);
		for (uint32_t b = 0; b < 2; b++) {
			hand_step(plans[r], b, TT_COPY, none, wire(1 - r), in(b), none);
			hand_step(plans[r], b, TT_COPY, scratch(b), none, wire(1 - r), none);
			hand_step(plans[r], b, TT_COMBINE, out(b), none, r ? scratch(b) : in(b),
				  r ? in(b) : scratch(b), none);
		}
		hand_finish(plans[r]);
	}
}

Test(check_order, lanes_on_different_blocks_pass)
{
	struct tt_plan *plans[2];

	two_lanes(plans);
	passes(plans, 2);
}

Test(check_order, an_unordered_write_and_read_is_named_and_a_wait_orders_them)
{
	struct tt_plan *plans[2];

	for (int ordered = 0; ordered < 2; ordered++) {
		two_lanes(plans);
		struct tt_step *s = hand_step(plans[0], 1, TT_COPY, out(0), none, out(0), none);

		if (ordered) {
			s->wait_lane = 0;
			s->wait_step = 2;
			passes(plans, 2);
		} else {
			refused(plans, 2,
				"rank 0 lane 1 step 3: reads out[0], but nothing orders it behind lane 0 step 2, "
				"which writes it",
				"");
		}
	}
	two_lanes(plans);
	hand_step(plans[0], 1, TT_COPY, scratch(0), none, in(0), none);
	refused(plans, 2,
		"rank 0 lane 1 step 3: writes scratch[0], but nothing orders it behind lane 0 step",
		"");
}

Test(check_order, waits_order_transitively)
{
	struct tt_plan *plans[2];

	two_lanes(plans);
	hand_step(plans[0], 2, TT_NOP, none, none, none)->wait_lane = 0;
	step(plans[0], 2, 0)->wait_step = 2;
	hand_step(plans[0], 3, TT_COPY, scratch(0), none, out(0), none)->wait_lane = 2;
	passes(plans, 2);
}

Test(check_order, a_race_that_exists_only_in_place_is_found)
{
	struct tt_plan *plans[2];

	two_lanes(plans);                        /* in[0] may be read while out[0] is written */
	plans[0]->scratch_blocks = 4;
	hand_step(plans[0], 1, TT_COPY, scratch(2), none, in(0), none);
	refused(plans, 2,
		"rank 0 lane 1 step 3: reads out[0], but nothing orders it behind lane 0 step 2, which writes it "
		"(in place)",
		"");
}

/* ---- messages -------------------------------------------------------------------------------- */

Test(check_order, messages_that_do_not_match_are_named)
{
	struct tt_plan *plans[3];

	hand_ring(plans, 3);
	plans[1]->lanes[0].nsteps--;             /* without the last receive */
	refused(plans, 3,
		"rank 0 lane 0 step 6: sends message 4 to rank 1, which takes 3 in this lane", "");
	hand_ring(plans, 3);
	step(plans[2], 0, 6)->to = none;
	step(plans[2], 0, 6)->dst = out(2);
	refused(plans, 3,
		"rank 0 lane 0 step 7: takes message 4 of rank 2, which sends 3 in this lane", "");
	hand_ring(plans, 3);
	step(plans[1], 0, 1)->src[1] = wire(2);
	refused(plans, 3, "rank", "in this lane");
	for (int r = 0; r < 2; r++) {
		plans[r] = hand_plan(TT_BROADCAST, 2, r, 0, 4, 0);
		hand_step(plans[r], 0, TT_COPY, out(0), r ? none : wire(1), r ? wire(0) : in(0),
			  none)
			->nblocks = r ? 3 : 4;
		hand_finish(plans[r]);
	}
	refused(plans, 2, "rank 1 lane 0 step 0: takes 3 blocks from rank 0, which sends 4", "");
	hand_ring(plans, 3);
	step(plans[1], 0, 4)->src[0] = out(0);
	refused(plans, 3,
		"rank 2 lane 0 step 5: takes a message as long as block 2 from rank 1, which sends one as long as "
		"block 0",
		"");
}

Test(check_order, blocks_of_different_lengths_cannot_be_combined)
{
	struct tt_plan *plans[3];

	hand_ring(plans, 3);
	step(plans[0], 0, 1)->src[0] = in(0);
	refused(plans, 3, "rank 0 lane 0 step 1: out[2] and in[0] need not be equally long", "");
}

/* ---- deadlock -------------------------------------------------------------------------------- */

Test(check_order, receiving_first_on_every_rank_is_a_deadlock)
{
	struct tt_plan *plans[3];

	hand_ring(plans, 3);
	for (int r = 0; r < 3; r++) {
		struct tt_step first = *step(plans[r], 0, 0);

		*step(plans[r], 0, 0) = *step(plans[r], 0, 1);
		*step(plans[r], 0, 1) = first;
	}
	refused(plans, 3, "deadlock: rank ", "waits for a message of rank");
}

Test(check_order, a_ring_of_receive_and_forward_steps_passes)
{
	struct tt_plan *plans[5];

	/* allgather: every link holds a message before any rank receives one */
	for (int r = 0; r < 5; r++) {
		struct tt_plan *p = plans[r] = hand_plan(TT_ALLGATHER, 5, r, 0, 1, 0);
		int next = (r + 1) % 5, prev = (r + 4) % 5;

		hand_step(p, 0, TT_COPY, out((uint32_t)r), wire(next), in(0), none);
		for (int i = 1; i < 5; i++)
			hand_step(p, 0, TT_COPY, out((uint32_t)(r + 5 - i) % 5),
				  i < 4 ? wire(next) : none, wire(prev), none);
		hand_finish(p);
	}
	passes(plans, 5);
}

Test(check_order, a_second_send_waits_until_the_first_message_is_received)
{
	struct tt_plan *plans[2];

	for (int r = 0; r < 2; r++) {      /* both ranks send two blocks before they receive */
		plans[r] = hand_plan(TT_ALLREDUCE, 2, r, 0, 2, 2);
		for (uint32_t b = 0; b < 2; b++)
			hand_step(plans[r], 0, TT_COPY, none, wire(1 - r), in(b), none);
		for (uint32_t b = 0; b < 2; b++)
			hand_step(plans[r], 0, TT_COPY, scratch(b), none, wire(1 - r), none);
		for (uint32_t b = 0; b < 2; b++)
			hand_step(plans[r], 0, TT_COMBINE, out(b), none, r ? scratch(b) : in(b),
				  r ? in(b) : scratch(b), none);
		hand_finish(plans[r]);
	}
	refused(plans, 2, "deadlock: rank ", "to take its message");
}

Test(check_order, overwriting_a_block_in_flight_on_both_ranks_is_a_deadlock)
{
	struct tt_plan *plans[2];

	for (int r = 0; r < 2; r++) {
		plans[r] = hand_plan(TT_ALLREDUCE, 2, r, 0, 1, 0);
		hand_step(plans[r], 0, TT_COPY, out(0), wire(1 - r), in(0), none);
		hand_step(plans[r], 0, TT_COMBINE, out(0), none, r ? wire(0) : out(0),
			  r ? out(0) : wire(1), none);
		hand_finish(plans[r]);
	}
	refused(plans, 2, "deadlock: rank ", "to take the message from out[0]");
	for (int r = 0; r < 2; r++) {            /* sent from in: a deadlock only in place */
		plans[r] = hand_plan(TT_ALLREDUCE, 2, r, 0, 1, 0);
		hand_step(plans[r], 0, TT_COPY, none, wire(1 - r), in(0), none);
		hand_step(plans[r], 0, TT_COMBINE, out(0), none, r ? wire(0) : in(0),
			  r ? in(0) : wire(1), none);
		hand_finish(plans[r]);
	}
	refused(plans, 2, "deadlock (in place): rank ", "to take the message from out[0]");
}

Test(check_order, waits_that_form_a_cycle_are_named)
{
	struct tt_plan *plans[2];

	two_lanes(plans);
	step(plans[1], 0, 1)->wait_lane = 1;
	step(plans[1], 0, 1)->wait_step = 2;
	step(plans[1], 1, 1)->wait_lane = 0;
	step(plans[1], 1, 1)->wait_step = 1;
	refused(plans, 2,
		"rank 1 lane 0 step 1: waits for lane 1 step 2, which waits for this lane in turn",
		"");
	two_lanes(plans);
	step(plans[1], 0, 1)->wait_lane = 0;
	step(plans[1], 0, 1)->wait_step = 1;
	refused(plans, 2,
		"rank 1 lane 0 step 1: waits for step 1 of its own lane, which comes later", "");
}

Test(check_order, a_deadlock_through_a_wait_and_a_message_is_found)
{
	struct tt_plan *plans[2];

	two_lanes(plans);
	/* rank 0: lane 0 waits for lane 1's receive; rank 1: lane 1 waits for lane 0's */
	for (uint32_t r = 0; r < 2; r++) {
		step(plans[r], r, 0)->wait_lane = (uint8_t)(1 - r);
		step(plans[r], r, 0)->wait_step = 1;
	}
	refused(plans, 2, "deadlock: rank ", "waits for its lane");
}
