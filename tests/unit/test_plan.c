/*
 * test_plan.c - builder and compiler: the steps of a plan, field by field
 *
 * The algorithms of this file exist for the tests, with one trait each. test_algorithms.c tests the
 * algorithms of the library.
 */
#include <criterion/criterion.h>
#include <string.h>

#include "algorithms/algorithms.h"
#include "verify/check.h"

TestSuite(plan, .timeout = 60);

typedef void build_fn(struct tt_builder *b, const char *argument);

static struct tt_cut test_cut;
static struct tt_cut cut_of(const struct tt_shape *shape, const char *argument)
{
	(void)shape;
	(void)argument;
	return test_cut;
}

static struct tt_plan *plans[8];

/* Builds one rank's plan of the algorithm that fn appends; compiled: also compiles the plan. */
static int build(build_fn *fn, enum tt_collective c, int n, int rank, struct tt_cut cut,
		 bool compiled)
{
	const struct tt_algorithm a = {
		.collective = c, .name = "test", .cut = cut_of, .build = fn
	};
	const struct tt_shape shape = { .collective = c, .nranks = n, .rank = rank };

	test_cut = cut;
	return (compiled ? tt_plan_build : tt_plan_build_plain)(&a, "test", &shape, &plans[rank]);
}

static void build_all(build_fn *fn, int n, struct tt_cut cut, bool compiled)
{
	for (int r = 0; r < n; r++)
		cr_assert_eq(build(fn, TT_ALLREDUCE, n, r, cut, compiled), TT_OK, "%s",
			     tt_error_text());
}

static void free_all(int n)
{
	for (int r = 0; r < n; r++)
		tt_plan_free(plans[r]);
}

static const struct tt_step *step(int rank, uint32_t lane, uint32_t i)
{
	cr_assert_lt(i, plans[rank]->lanes[lane].nsteps);
	return &plans[rank]->steps[plans[rank]->lanes[lane].first + i];
}

static void is_step(const struct tt_step *s, uint8_t op, tt_ref dst, tt_ref to, tt_ref src0,
		    tt_ref src1)
{
	cr_expect_eq(s->op, op);
	cr_expect_eq(s->dst, dst, "dst is %x, not %x", s->dst, dst);
	cr_expect_eq(s->to, to, "to is %x, not %x", s->to, to);
	cr_expect_eq(s->src[0], src0, "src[0] is %x, not %x", s->src[0], src0);
	cr_expect_eq(s->src[1], src1, "src[1] is %x, not %x", s->src[1], src1);
}

static const tt_ref none = TT_REF_NONE;
static tt_ref in(uint32_t b) { return tt_ref_make(TT_IN, b); }
static tt_ref out(uint32_t b) { return tt_ref_make(TT_OUT, b); }
static tt_ref scratch(uint32_t b) { return tt_ref_make(TT_SCRATCH, b); }
static tt_ref wire(int rank) { return tt_ref_make(TT_WIRE, (uint32_t)rank); }

static const struct tt_cut one = { 1, 1 };

Test(plan, records_are_flat_and_32_bytes)
{
	cr_expect_eq(sizeof(struct tt_step), 32);
	cr_expect_eq(sizeof(struct tt_more), 32);
	for (int buf = TT_IN; buf <= TT_NONE; buf++) {
		tt_ref r = tt_ref_make((enum tt_buf)buf, 0x1ffffff);

		cr_expect(tt_ref_buf(r) == (enum tt_buf)buf && tt_ref_index(r) == 0x1ffffff);
	}
}

/* ---- the builder ----------------------------------------------------------------------------- */

static void appends_nothing(struct tt_builder *b, const char *argument)
{
	(void)b;
	(void)argument;
}

Test(plan, blocks_that_are_only_in_in_are_copied_to_out_in_one_step)
{
	cr_assert_eq(build(appends_nothing, TT_ALLREDUCE, 1, 0, (struct tt_cut){ 4, 1 }, true), TT_OK);
	cr_expect_eq(plans[0]->nsteps, 1);
	is_step(step(0, 0, 0), TT_COPY, out(0), none, in(0), none);
	cr_expect_eq(step(0, 0, 0)->nblocks, 4);
	cr_expect_eq(plans[0]->npeers, 0);
	cr_expect_str_eq(plans[0]->algorithm, "test");
	free_all(1);
}

static void fails_twice(struct tt_builder *b, const char *argument)
{
	(void)argument;
	tt_step_send(b, 1, tt_all(b));
	tt_step_send(b, b->n, tt_all(b));                    /* the first error */
	tt_step_recv(b, 1, tt_parts(b, 7, 1));
	tt_lane(b, 5);
	tt_builder_fail(b, TT_SYSTEM, "too late");
}

Test(plan, the_first_error_sticks)
{
	plans[0] = NULL;
	cr_expect_eq(build(fails_twice, TT_ALLREDUCE, 2, 0, one, true), TT_INTERNAL);
	cr_expect(strstr(tt_error_text(), "rank 2 of a group of 2 cannot be a peer"), "%s", tt_error_text());
	cr_expect_null(plans[0]);
}

static void sends_an_empty_block(struct tt_builder *b, const char *argument)
{
	(void)argument;
	tt_step_send(b, (b->rank + 1) % b->n, tt_part(b, b->rank + 1));
}

static void gathers_nothing(struct tt_builder *b, const char *argument)
{
	(void)argument;
	tt_step_send(b, (b->rank + 1) % b->n, tt_part(b, b->rank));
}

static void reduces_without_itself(struct tt_builder *b, const char *argument)
{
	(void)argument;
	tt_step_reduce(b, (const int[]){ 1, 2 }, 2, tt_all(b));
}

static void cuts_unevenly(struct tt_builder *b, const char *argument)
{
	(void)argument;
	tt_group_enter(b, (const int[]){ 0, 1 }, 2, tt_all(b), 2);
}

static void enters_a_group_without_itself(struct tt_builder *b, const char *argument)
{
	(void)argument;
	tt_group_enter(b, (const int[]){ 1, 2 }, 2, tt_all(b), 1);
}

static void sends_parts_apart(struct tt_builder *b, const char *argument)
{
	(void)argument;
	tt_step_recv_reduce(b, 1, tt_part(b, 1), TT_PEER_FIRST);
	tt_step_send(b, 1, tt_all(b));
}

Test(plan, the_builder_refuses_meaningless_steps)
{
	static const struct {
		build_fn *fn;
		enum tt_collective c;
		uint32_t blocks;
		const char *why;
	} wrong[] = {
		{ sends_an_empty_block, TT_ALLGATHER, 1, "block 1 has no value yet" },
		{ gathers_nothing, TT_ALLGATHER, 1, "block 1 has no value at the end" },
		{ reduces_without_itself, TT_ALLREDUCE, 1, "without its own contribution" },
		{ cuts_unevenly, TT_ALLREDUCE, 3, "3 blocks cannot be cut into 2 parts" },
		{ enters_a_group_without_itself, TT_ALLREDUCE, 1, "a group without this rank" },
		{ sends_parts_apart, TT_ALLREDUCE, 2, "are not consecutive" },
		{ appends_nothing, TT_ALLREDUCE, TT_MAX_BLOCKS + 1, "1048577 blocks, at most 1048576" },
		{ appends_nothing, TT_ALLREDUCE, 1u << 31, "2147483648 blocks, at most 1048576" },
	};

	for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
		struct tt_cut cut = { wrong[i].blocks, 1 };

		cr_expect_eq(build(wrong[i].fn, wrong[i].c, 3, 0, cut, true), TT_INTERNAL);
		cr_expect(strstr(tt_error_text(), wrong[i].why), "\"%s\" has no \"%s\"",
			  tt_error_text(), wrong[i].why);
	}
}

Test(plan, an_impossible_shape_is_refused)
{
	const struct tt_algorithm *ring = tt_algorithm_find(TT_ALLREDUCE, "ring");
	const struct tt_shape wrong[] = {
		{ .collective = TT_ALLREDUCE, .nranks = 0 },
		{ .collective = TT_ALLREDUCE, .nranks = 2, .rank = 2 },
		{ .collective = TT_ALLREDUCE, .nranks = 2, .rank = -1 },
		{ .collective = TT_ALLREDUCE, .nranks = 2, .root = 2 },
		{ .collective = TT_ALLTOALL, .nranks = 2 },
	};

	for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++)
		cr_expect_eq(tt_plan_build(ring, "ring", &wrong[i], &plans[0]), TT_ARG);
}

/* An exchange: both ranks send a block, then reduce the received block into it. */
static void exchanges(struct tt_builder *b, const char *argument)
{
	(void)argument;
	tt_step_send(b, !b->rank, tt_all(b));
	tt_step_recv_reduce(b, !b->rank, tt_all(b), b->rank ? TT_PEER_FIRST : TT_MINE_FIRST);
}

Test(plan, a_block_that_is_sent_and_then_reduced_into_is_sent_from_scratch)
{
	build_all(exchanges, 2, one, true);
	cr_expect_eq(plans[1]->scratch_blocks, 1);
	is_step(step(1, 0, 0), TT_COPY, scratch(0), wire(0), in(0), none);
	cr_expect_eq(step(1, 0, 0)->flags, TT_STEP_PASSING);
	is_step(step(1, 0, 1), TT_COMBINE, out(0), none, wire(0), in(0));
	cr_expect_eq(tt_plan_check(plans, 2), TT_OK, "%s", tt_error_text());
	free_all(2);
}

static void sums_at_last_rank(struct tt_builder *b, const char *argument)
{
	(void)argument;
	if (b->rank == b->n - 1)
		tt_step_reduce(b, NULL, b->n, tt_all(b));
	else
		tt_step_send(b, b->n - 1, tt_all(b));
	if (b->rank == b->n - 1)
		for (int r = 0; r < b->n - 1; r++)
			tt_step_send(b, r, tt_all(b));
	else
		tt_step_recv(b, b->n - 1, tt_all(b));
}

static struct tt_plan *build_for(int n, int rank)
{
	static const struct tt_algorithm a = { .collective = TT_ALLREDUCE,
					       .name = "test",
					       .build = sums_at_last_rank };
	const struct tt_shape shape = { .collective = TT_ALLREDUCE, .nranks = n, .rank = rank };
	struct tt_plan *p = NULL;

	cr_assert_eq(tt_plan_build(&a, "test", &shape, &p), TT_OK, "%s", tt_error_text());
	return p;
}

/* A step has at most eight sources. In place, out is not written before the rank's own
 * contribution was read. */
Test(plan, a_long_sum_is_chained_and_keeps_the_ranks_own_contribution)
{
	struct tt_plan *p = build_for(12, 11), *all[12];
	const struct tt_step *first = p->steps, *second = p->steps + 2;

	cr_expect_eq(first->nsrc, 8);
	cr_expect_eq(first->dst, scratch(0));
	for (int i = 0; i < 8; i++)
		cr_expect_eq(tt_step_source(first, i), wire(i));
	cr_expect_eq(second->nsrc, 5);
	cr_expect_eq(second->dst, out(0));
	cr_expect_eq(tt_step_source(second, 0), scratch(0));
	cr_expect_eq(tt_step_source(second, 4), in(0));
	tt_plan_free(p);
	for (int r = 0; r < 12; r++)
		all[r] = build_for(12, r);
	cr_expect_eq(tt_plan_check(all, 12), TT_OK, "%s", tt_error_text());
	for (int r = 0; r < 12; r++)
		tt_plan_free(all[r]);
}

/* ---- lanes ----------------------------------------------------------------------------------- */

/* Block 0, then blocks 1 and 2, each in a lane of its own, then all blocks in lane 0. */
static void forks(struct tt_builder *b, const char *argument)
{
	int peer = !b->rank;

	(void)argument;
	for (uint32_t lane = 0; lane < 3; lane++) {
		struct tt_span s = tt_part(b, (int)lane);

		tt_lane(b, lane);
		tt_wait(b, 0);
		if (b->rank) {
			tt_step_send(b, peer, s);
			tt_step_recv(b, peer, s);
		} else {
			tt_step_recv_reduce(b, peer, s, TT_MINE_FIRST);
			tt_step_send(b, peer, s);
		}
	}
	tt_lane(b, 0);
	tt_wait(b, 1);
	tt_wait(b, 2);
	/* nothing to copy: the waits apply to the next step */
	tt_step_copy(b, tt_all(b));
	if (b->rank)
		tt_step_recv(b, peer, tt_parts(b, 1, 2));
	else
		tt_step_send(b, peer, tt_parts(b, 1, 2));
}

Test(plan, lanes_fork_and_join_by_waits_that_survive_fusing)
{
	for (int compiled = 0; compiled < 2; compiled++) {
		build_all(forks, 2, (struct tt_cut){ 3, 3 }, compiled);
		cr_expect_eq(plans[0]->nlanes, 3);
		for (uint32_t lane = 1; lane < 3; lane++) {
			cr_expect_eq(step(0, lane, 0)->wait_lane, 0);
			cr_expect_eq(step(0, lane, 0)->wait_step, compiled ? 0 : 1);
			cr_expect_eq(plans[0]->lanes[lane].nsteps, compiled ? 1 : 2);
		}
		/* step of the wait that does not fit into the last step */
		uint32_t at = compiled ? 1 : 2;

		cr_expect_eq(step(0, 0, at)->op, TT_NOP);
		cr_expect_eq(step(0, 0, at)->wait_lane, 1);
		cr_expect_eq(step(0, 0, at)->wait_step, compiled ? 0 : 1);
		cr_expect_eq(step(0, 0, at + 1)->wait_lane, 2);
		cr_expect_eq(tt_plan_check(plans, 2), TT_OK, "%s", tt_error_text());
		free_all(2);
	}
}

/* ---- the compiler ---------------------------------------------------------------------------- */

/* A chain: partial sums go up, the sum comes down. */
static void chain(struct tt_builder *b, const char *argument)
{
	int last = b->n - 1;

	(void)argument;
	if (b->rank > 0)
		tt_step_recv_reduce(b, b->rank - 1, tt_all(b), TT_PEER_FIRST);
	if (b->rank < last) {
		tt_step_send(b, b->rank + 1, tt_all(b));
		tt_step_recv(b, b->rank + 1, tt_all(b));
	}
	if (b->rank > 0)
		tt_step_send(b, b->rank - 1, tt_all(b));
}

Test(plan, a_result_is_fused_with_its_send_and_is_passing_unless_it_is_kept)
{
	build_all(chain, 3, one, true);
	cr_expect_eq(plans[1]->nsteps, 2);
	is_step(step(1, 0, 0), TT_COMBINE, out(0), wire(2), wire(0), in(0));
	cr_expect_eq(step(1, 0, 0)->flags, TT_STEP_PASSING);      /* overwritten by the sum */
	is_step(step(1, 0, 1), TT_COPY, out(0), wire(0), wire(2), none);
	cr_expect_eq(step(1, 0, 1)->flags, 0);                    /* the sum is stored */
	is_step(step(2, 0, 0), TT_COMBINE, out(0), wire(1), wire(1), in(0));
	cr_expect_eq(step(2, 0, 0)->flags, 0);
	cr_expect_eq(plans[1]->npeers, 2);
	cr_expect(plans[1]->peers[0] == 0 && plans[1]->peers[1] == 2);
	free_all(3);
}

/* Two sends of one block: the first send is fused, the second reads the block. */
static void sends_twice(struct tt_builder *b, const char *argument)
{
	(void)argument;
	if (b->rank == 1) {
		tt_step_recv_reduce(b, 0, tt_all(b), TT_PEER_FIRST);
		tt_step_send(b, 2, tt_all(b));
		tt_step_send(b, 0, tt_all(b));
		tt_step_recv(b, 2, tt_all(b));
	} else if (b->rank == 0) {
		tt_step_send(b, 1, tt_all(b));
		tt_step_recv(b, 1, tt_all(b));
		tt_step_recv(b, 2, tt_all(b));
	} else {
		tt_step_recv_reduce(b, 1, tt_all(b), TT_PEER_FIRST);
		tt_step_send(b, 0, tt_all(b));
		tt_step_send(b, 1, tt_all(b));
	}
}

Test(plan, a_block_that_is_read_again_is_not_passing)
{
	build_all(sends_twice, 3, one, true);
	cr_expect_eq(plans[1]->nsteps, 3);
	cr_expect_eq(step(1, 0, 0)->to, wire(2));
	cr_expect_eq(step(1, 0, 0)->flags, 0);
	cr_expect_eq(tt_plan_check(plans, 3), TT_OK, "%s", tt_error_text());
	free_all(3);
}

/* Two parts are reduced, then the span of both is sent. */
static void sends_more(struct tt_builder *b, const char *argument)
{
	(void)argument;
	if (b->rank == 0) {
		tt_step_recv_reduce(b, 1, tt_part(b, 0), TT_MINE_FIRST);
		tt_step_recv_reduce(b, 1, tt_part(b, 1), TT_MINE_FIRST);
		tt_step_send(b, 1, tt_all(b));
	} else {
		tt_step_send(b, 0, tt_part(b, 0));
		tt_step_send(b, 0, tt_part(b, 1));
		tt_step_recv(b, 0, tt_all(b));
	}
}

Test(plan, only_steps_on_the_same_blocks_are_fused)
{
	build_all(sends_more, 2, (struct tt_cut){ 2, 1 }, true);
	cr_expect_eq(plans[0]->nsteps, 3);
	is_step(step(0, 0, 2), TT_COPY, none, wire(1), out(0), none);
	cr_expect_eq(tt_plan_check(plans, 2), TT_OK, "%s", tt_error_text());
	free_all(2);
}

/* Reduce-scatter of halves, then allgather: each rank reduces one half of the blocks. */
static void swaps_halves(struct tt_builder *b, const char *argument)
{
	uint32_t half = b->parts / 2, mine = (uint32_t)b->rank * half, theirs = half - mine;

	(void)argument;
	tt_row_begin(b);
	tt_step_send(b, !b->rank, tt_parts(b, theirs, half));
	tt_step_recv_reduce(b, !b->rank, tt_parts(b, mine, half), TT_MINE_FIRST);
	tt_row_end(b);
	tt_row_begin(b);
	tt_step_send(b, !b->rank, tt_parts(b, mine, half));
	tt_step_recv(b, !b->rank, tt_parts(b, theirs, half));
	tt_row_end(b);
}

Test(plan, rows_of_long_steps_are_interleaved_and_not_fused_with_each_other)
{
	build_all(swaps_halves, 2, (struct tt_cut){ 6, 1 }, true);
	cr_expect_eq(plans[0]->nsteps, 4);
	for (uint32_t i = 0; i < 4; i++)
		cr_expect_eq(step(0, 0, i)->flags, i % 2 ? 0 : TT_STEP_INTERLEAVED);
	cr_expect_eq(tt_plan_check(plans, 2), TT_OK, "%s", tt_error_text());
	for (int r = 0; r < 2; r++) {
		struct tt_plan *whole = plans[r];

		cr_assert_eq(tt_plan_expand(whole, &plans[r]), TT_OK);
		tt_plan_free(whole);
	}
	cr_expect_eq(plans[0]->nsteps, 12);
	for (uint32_t k = 0; k < 3; k++) {
		is_step(step(0, 0, 2 * k), TT_COPY, none, wire(1), in(3 + k), none);
		is_step(step(0, 0, 2 * k + 1), TT_COMBINE, out(k), none, in(k), wire(1));
	}
	cr_expect_eq(tt_plan_check(plans, 2), TT_OK, "%s", tt_error_text());
	free_all(2);
}

Test(plan, rows_of_single_blocks_are_fused_and_not_interleaved)
{
	build_all(swaps_halves, 2, (struct tt_cut){ 2, 1 }, true);
	cr_expect_eq(plans[0]->nsteps, 3);
	is_step(step(0, 0, 1), TT_COMBINE, out(0), wire(1), in(0), wire(1));
	for (uint32_t i = 0; i < 3; i++)
		cr_expect_eq(step(0, 0, i)->flags, 0);
	free_all(2);
}

Test(plan, expanding_keeps_lanes_waits_and_long_sums)
{
	struct tt_plan *p = build_for(12, 11), *q;

	cr_assert_eq(tt_plan_expand(p, &q), TT_OK);
	cr_expect_eq(q->nsteps, p->nsteps);
	cr_expect_arr_eq(q->steps, p->steps, p->nsteps * sizeof(*p->steps));
	tt_plan_free(p);
	tt_plan_free(q);
	build_all(forks, 2, (struct tt_cut){ 3, 3 }, true);
	for (int r = 0; r < 2; r++) {
		struct tt_plan *whole = plans[r];

		cr_assert_eq(tt_plan_expand(whole, &plans[r]), TT_OK);
		/* the send of two blocks at the end */
		cr_expect_eq(plans[r]->nsteps, whole->nsteps + 1);
		tt_plan_free(whole);
	}
	cr_expect_eq(tt_plan_check(plans, 2), TT_OK, "%s", tt_error_text());
	free_all(2);
}

Test(plan, compiling_keeps_every_expression_of_every_algorithm)
{
	struct tt_plan *plain[17], *compiled[17];

	for (int i = 0; tt_algorithms[i]; i++) {
		const struct tt_algorithm *a = tt_algorithms[i];

		for (int n = 1; n <= 17; n++) {
			for (int r = 0; r < n; r++) {
				struct tt_shape shape = { .collective = a->collective, .nranks = n,
							  .rank = r, .root = 0 };

				cr_assert_eq(tt_plan_build_plain(a, a->name, &shape, &plain[r]),
					     TT_OK);
				cr_assert_eq(tt_plan_build(a, a->name, &shape, &compiled[r]),
					     TT_OK);
				cr_expect_leq(compiled[r]->nsteps, plain[r]->nsteps);
			}
			cr_expect_eq(tt_plan_check_same(plain, compiled, n), TT_OK,
				     "%s %s n = %d: %s", tt_collective_name(a->collective), a->name,
				     n, tt_error_text());
			for (int r = 0; r < n; r++) {
				tt_plan_free(plain[r]);
				tt_plan_free(compiled[r]);
			}
		}
	}
}
