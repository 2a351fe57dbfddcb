/*
 * test_ras.c - NCCL's RAS protocol: the answers to lines, and the reports of ranks in every state;
 * ras.sh asks jobs that run
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/ras.h"

TestSuite(ras, .timeout = 60);

static struct tt_ras_session session;
static char answer[TT_RAS_ANSWER];

static enum tt_ras_step say(const char *text)
{
	cr_assert(session.have + strlen(text) <= sizeof(session.in));
	memcpy(session.in + session.have, text, strlen(text));
	session.have += strlen(text);
	return tt_ras_step(&session, answer);
}

static void begin(void)
{
	session = (struct tt_ras_session){ .timeout_ms = TT_RAS_TIMEOUT_MS };
}

Test(ras, a_handshake_is_answered_in_upper_and_lower_case, .init = begin)
{
	cr_expect_eq(say("CLIENT PROTOCOL 2\n"), TT_RAS_ANSWERED);
	cr_expect_str_eq(answer, "SERVER PROTOCOL 2\n");
	cr_expect_eq(say("client protocol 99\r\n"), TT_RAS_ANSWERED);
	cr_expect_str_eq(answer, "SERVER PROTOCOL 2\n");
}

Test(ras, lines_that_come_in_pieces_or_together_are_taken_one_by_one, .init = begin)
{
	cr_expect_eq(say("SET FOR"), TT_RAS_MORE);
	cr_expect_eq(say("MAT json\nSTATUS\nrest"), TT_RAS_ANSWERED);
	cr_expect_str_eq(answer, "OK\n");
	cr_expect(session.json);
	cr_expect_eq(tt_ras_step(&session, answer), TT_RAS_STATUS);
	cr_expect_str_eq(answer, "");
	cr_expect_eq(tt_ras_step(&session, answer), TT_RAS_MORE);
	cr_expect_eq(session.have, strlen("rest"));
}

Test(ras, a_timeout_is_bounded_and_must_be_a_number, .init = begin)
{
	static const struct {
		const char *line;
		uint32_t ms;
	} good[] = { { "TIMEOUT 1\n", 1000 },
		     { "timeout 59\n", 59000 },
		     { "TIMEOUT 0\n", 60000 },
		     { "TIMEOUT 99999999999999999999\n", 60000 } };

	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
		cr_expect_eq(say(good[i].line), TT_RAS_ANSWERED);
		cr_expect_str_eq(answer, "OK\n", "%s", good[i].line);
		cr_expect_eq(session.timeout_ms, good[i].ms, "%s", good[i].line);
	}
	say("TIMEOUT -1\n");
	cr_expect_str_eq(answer, "ERROR: Invalid timeout value -1\n");
	say("TIMEOUT 3s\n");
	cr_expect_str_eq(answer, "ERROR: Invalid timeout value 3s\n");
	say("TIMEOUT \n");
	cr_expect_str_eq(answer, "ERROR: Invalid timeout value \n");
	cr_expect_eq(session.timeout_ms, 60000);
}

Test(ras, a_line_fits_its_answer_and_a_longer_one_is_too_long, .init = begin)
{
	char line[TT_RAS_LINE + 1];

	memset(line, 'x', sizeof(line));
	line[TT_RAS_LINE - 1] = '\n';
	line[TT_RAS_LINE] = '\0';
	cr_expect_eq(say(line), TT_RAS_ANSWERED);
	cr_expect_eq(strlen(answer), strlen("ERROR: Unknown command ") + TT_RAS_LINE);
	line[TT_RAS_LINE - 1] = 'x';
	cr_expect_eq(say(line), TT_RAS_TOO_LONG);
}

/* ---- reports --------------------------------------------------------------------------------- */

static struct tt_rank_report ranks[] = {
	{ .pid = 100,
	  .host = "node\"7",
	  .started = 9,
	  .finished = 8,
	  .tally.calls = { [TT_ALLREDUCE] = 7, [TT_COLLECTIVES] = 2 } },
	{ .state = TT_RANK_SILENT, .pid = 101, .host = "node8" },
	{ .state = TT_RANK_LEFT, .pid = 102, .host = "node8", .started = 8, .finished = 8 },
	{ .state = TT_RANK_DEAD, .pid = 103, .host = "node8", .started = 8, .finished = 8 },
	{ .pid = 104,
	  .host = "node8",
	  .started = 8,
	  .finished = 8,
	  .tally.calls = { [TT_ALLREDUCE] = 6, [TT_COLLECTIVES] = 2 } },
};
static struct tt_ras_comm comms[] = {
	{ 0xab, 5, TT_TIMEOUT, ranks },
	{ 0xcd, 1, 0, ranks },
};
static const struct tt_ras_report report = { 2, comms, 0.25 };

static char *text_of(bool json, bool verbose)
{
	char *text = NULL;
	size_t bytes;
	FILE *to = open_memstream(&text, &bytes);

	if (json)
		tt_ras_write_json(&report, to);
	else
		tt_ras_write_text(&report, verbose, to);
	fclose(to);
	return text;
}

static void expect(const char *text, const char *part)
{
	cr_expect_not_null(strstr(text, part), "no\n%s\nin\n%s", part, text);
}

Test(ras, json_has_ranks_and_missing_ranks_with_the_states_of_nccl)
{
	char *text = text_of(true, false);

	expect(text, "\"communicators_count\": 2,");
	expect(text,
	       "      \"size\": 5,\n      \"ranks_count\": 2,\n      \"missing_ranks_count\": 3,\n");
	expect(text, "\"host\": \"node?7\",\n          \"pid\": 100,");
	expect(text, "\"async_error\": 6,"); /* ncclRemoteError: NCCL has no time-out */
	expect(text, "\"AllReduce\": 7,");
	expect(text, "\"Barrier\": 2\n");
	expect(text, "\"pid\": 101,\n          \"cuda_dev\": -1,\n          \"nvml_dev\": -1,\n"
		     "          \"status\": {\n            \"unresponsive\": true,\n"
		     "            \"considered_dead\": false\n");
	expect(text, "\"pid\": 102,\n          \"cuda_dev\": -1,\n          \"nvml_dev\": -1,\n"
		     "          \"status\": {\n            \"unresponsive\": false,\n"
		     "            \"considered_dead\": false\n");
	expect(text, "\"pid\": 103,\n          \"cuda_dev\": -1,\n          \"nvml_dev\": -1,\n"
		     "          \"status\": {\n            \"unresponsive\": true,\n"
		     "            \"considered_dead\": true\n");
	expect(text, "\"collection_time_sec\": 0.250,\n    \"timeouts_count\": 1\n");
	free(text);
}

Test(ras, text_names_missing_and_late_ranks_and_all_if_it_is_verbose)
{
	char *text = text_of(false, false);

	expect(text,
	       "    0         1         2       1-4         5         5     ABORT  INCOMPLETE\n"
	       "    1         1         1         1         1         1   RUNNING  OK\n");
	expect(text, "#0-0 (00000000000000ab) INCOMPLETE\n"
		     "  Rank 1 -- process 101 on node node8, unresponsive\n"
		     "  Rank 2 -- process 102 on node node8, left, after operation 8\n"
		     "  Rank 3 -- process 103 on node node8, dead, after operation 8\n"
		     "  Rank 4 -- process 104 on node node8, running, after operation 8\n"
		     "  The latest operation of any rank is 9\n");
	cr_expect_null(strstr(text, "#1-0"));
	free(text);
	text = text_of(false, true);
	expect(text, "  Rank 0 -- process 100 on node node\"7, running, in operation 9\n");
	expect(text, "#1-0 (00000000000000cd) OK\n");
	free(text);
}
