/*
 * test_print.c - plans as text in every format, compared literally, on plans written by hand;
 * check_plan.py reads the JSON of all algorithms
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "verify/print.h"
#include "tests/support/plan_hand.h"

TestSuite(print, .timeout = 30);

/* The text of all plans (rank < 0) or of one rank's plan. The caller frees the text. */
static char *text_of(struct tt_plan **plans, int n, int rank, const char *format)
{
	char *text = NULL;
	size_t bytes = 0;
	FILE *to = open_memstream(&text, &bytes);

	cr_assert_eq(rank < 0 ? tt_plan_print_all(plans, n, format, to)
			      : tt_plan_print(plans[rank], format, to),
		     TT_OK);
	fclose(to);
	return text;
}

static void prints(struct tt_plan **plans, int n, int rank, const char *format,
		   const char *expected)
{
	char *text = text_of(plans, n, rank, format);

	cr_expect_str_eq(text, expected);
	free(text);
}

/* A plan with every field in use: two lanes, a wait, three sources, several blocks, a passing
 * step. */
static void make(struct tt_plan **plans)
{
	struct tt_plan *p = plans[0] = hand_plan(TT_ALLREDUCE, 3, 0, 0, 2, 4);

	hand_step(p, 0, TT_COMBINE, out(0), none, wire(1), in(0), wire(2), none)->nblocks = 2;
	hand_step(p, 0, TT_COPY, scratch(0), wire(2), wire(1), none)->flags = TT_STEP_PASSING |
									      TT_STEP_INTERLEAVED;
	hand_step(p, 1, TT_COPY, none, wire(1), out(1), none)->wait_lane = 0;
	hand_step(p, 1, TT_NOP, none, none, none)->wait_lane = 0;
	p->steps[p->lanes[1].first + 1].wait_step = 2;
	hand_finish(p);
}

Test(print, table_shows_operands_in_order)
{
	struct tt_plan *plans[1];

	make(plans);
	prints(plans, 1, 0, "table",
	       "allreduce by by-hand: rank 0 of 3, root 0; 2 blocks of in, 2 of out, 4 of scratch, an even split\n"
	       "lane 0  step 0    recv-reduce  from 1,2  out[0..1] <- wire(1) + in[0..1] + wire(2)\n"
	       "lane 0  step 2    recv-send    from 1    scratch[0] <- wire(1)                      then send to 2, not kept  interleaved with the next\n"
	       "lane 1  step 0    send                   wire(1) <- out[1]                          after lane 0 step 0\n"
	       "lane 1  step 1    wait                                                              after lane 0 step 2\n");
	hand_free(plans, 1);
}

Test(print, json_holds_every_field)
{
	struct tt_plan *plans[1];

	make(plans);
	prints(plans, 1, 0, "json",
	       "{\"algorithm\": \"by-hand\", \"collective\": \"allreduce\", \"nranks\": 3, \"rank\": 0, \"root\": 0, "
	       "\"rule\": \"even\",\n"
	       "  \"nblocks\": 2, \"in_blocks\": 2, \"out_blocks\": 2, \"scratch_blocks\": 4, \"scratch_first\": 0, \"peers\": [1, 2],\n"
	       "  \"lanes\": [\n"
	       "    {\"lane\": 0, \"steps\": [\n"
	       "      {\"step\": 0, \"op\": \"recv_reduce\", \"from\": [1, 2], \"to\": null, \"nblocks\": 2, \"dst\": "
	       "{\"buf\": \"out\", \"block\": 0, \"nblocks\": 2}, \"srcs\": [{\"wire\": 1}, {\"buf\": \"in\", \"block\": 0}, "
	       "{\"wire\": 2}], \"wait\": null, \"passing\": false, \"turns\": false},\n"
	       "      {\"step\": 2, \"op\": \"recv_send\", \"from\": [1], \"to\": 2, \"nblocks\": 1, \"dst\": "
	       "{\"buf\": \"scratch\", \"block\": 0, \"nblocks\": 1}, \"srcs\": [{\"wire\": 1}], \"wait\": null, "
	       "\"passing\": true, \"turns\": true}]},\n"
	       "    {\"lane\": 1, \"steps\": [\n"
	       "      {\"step\": 0, \"op\": \"send\", \"from\": [], \"to\": 1, \"nblocks\": 1, \"dst\": null, \"srcs\": "
	       "[{\"buf\": \"out\", \"block\": 1}], \"wait\": {\"lane\": 0, \"step\": 0}, \"passing\": false, \"turns\": false},\n"
	       "      {\"step\": 1, \"op\": \"wait\", \"from\": [], \"to\": null, \"nblocks\": 0, \"dst\": null, \"srcs\": "
	       "[], \"wait\": {\"lane\": 0, \"step\": 2}, \"passing\": false, \"turns\": false}]}]}\n");
	hand_free(plans, 1);
}

Test(print, goal_has_receives_then_calc_then_send)
{
	struct tt_plan *plans[1];

	make(plans);
	prints(plans, 1, 0, "goal",
	       "num_ranks 3\n\n"
	       "rank 0 {\n"
	       "l1: recv 2b from 1 tag 0\n"
	       "l2: recv 2b from 2 tag 0\n"
	       "l3: calc 4\n"
	       "l3 requires l1\n"
	       "l3 requires l2\n"
	       "l4: recv 1b from 1 tag 0\n"
	       "l5: send 1b to 2 tag 0\n"
	       "l5 requires l4\n"
	       "l6: send 1b to 1 tag 1\n"
	       "l7: calc 0\n"
	       "l4 requires l3\n"
	       "l6 requires l3\n"
	       "l7 irequires l6\n"
	       "l7 irequires l5\n"
	       "}\n");
	hand_free(plans, 1);
}

Test(print, dot_connects_the_sends_and_receives_of_all_ranks)
{
	struct tt_plan *plans[2];

	hand_exchange(plans);
	prints(plans, 2, -1, "dot",
	       "digraph \"by-hand allreduce\" {\n"
	       "  node [shape=box, fontname=monospace];\n"
	       "  subgraph cluster_r0 {\n"
	       "    label=\"rank 0\";\n"
	       "    subgraph cluster_r0l0 {\n"
	       "      label=\"lane 0\";\n"
	       "      r0l0s0 [label=\"0 send\\nwire(1) <- in[0]\"];\n"
	       "      r0l0s1 [label=\"1 recv\\nscratch[0] <- wire(1)\"];\n"
	       "      r0l0s0 -> r0l0s1;\n"
	       "      r0l0s2 [label=\"2 reduce\\nout[0] <- in[0] + scratch[0]\"];\n"
	       "      r0l0s1 -> r0l0s2;\n"
	       "    }\n"
	       "  }\n"
	       "  subgraph cluster_r1 {\n"
	       "    label=\"rank 1\";\n"
	       "    subgraph cluster_r1l0 {\n"
	       "      label=\"lane 0\";\n"
	       "      r1l0s0 [label=\"0 send\\nwire(0) <- in[0]\"];\n"
	       "      r1l0s1 [label=\"1 recv\\nscratch[0] <- wire(0)\"];\n"
	       "      r1l0s0 -> r1l0s1;\n"
	       "      r1l0s2 [label=\"2 reduce\\nout[0] <- scratch[0] + in[0]\"];\n"
	       "      r1l0s1 -> r1l0s2;\n"
	       "    }\n"
	       "  }\n"
	       "  r0l0s0 -> r1l0s1 [color=blue, constraint=false];\n"
	       "  r1l0s0 -> r0l0s1 [color=blue, constraint=false];\n"
	       "}\n");
	hand_free(plans, 2);
}

/* Occurrences of word in text. */
static int count(const char *text, const char *word)
{
	int n = 0;

	for (; (text = strstr(text, word)); text++)
		n++;
	return n;
}

Test(print, all_ranks_are_printed_and_each_message_once)
{
	struct tt_plan *plans[9];
	char *text;

	for (int n = 2; n <= 9; n++) {
		hand_ring(plans, n);
		text = text_of(plans, n, -1, "table");
		cr_expect_eq(count(text, "  step "), n * 4 * (n - 1));
		free(text);
		text = text_of(plans, n, -1, "json");
		cr_expect(text[0] == '[' && text[strlen(text) - 2] == ']');
		cr_expect_eq(count(text, "\"algorithm\""), n);
		free(text);
		text = text_of(plans, n, -1, "dot");
		cr_expect_eq(count(text, "color=blue"), n * 2 * (n - 1));
		free(text);
		text = text_of(plans, n, -1, "goal");
		cr_expect_eq(count(text, ": send "), n * 2 * (n - 1));
		cr_expect_eq(count(text, ": recv "), n * 2 * (n - 1));
		cr_expect_eq(count(text, "{"), n);
		free(text);
		hand_free(plans, n);
	}
}

Test(print, unknown_format_is_refused_with_the_known_ones)
{
	struct tt_plan *plans[2];

	hand_exchange(plans);
	cr_expect_eq(tt_plan_print(plans[0], "xml", stdout), TT_ARG);
	cr_expect_str_eq(tt_error_text(),
			 "unknown plan format \"xml\"; use table, json, dot, goal");
	hand_free(plans, 2);
}

Test(print, full_disk_is_an_error)
{
	struct tt_plan *plans[2];
	FILE *full = fopen("/dev/full", "r+");

	if (!full)
		cr_skip_test("no /dev/full here");
	hand_exchange(plans);
	cr_expect_eq(tt_plan_print_all(plans, 2, "table", full), TT_SYSTEM);
	cr_expect(strstr(tt_error_text(), "No space left"), "%s", tt_error_text());
	fclose(full);
	hand_free(plans, 2);
}
