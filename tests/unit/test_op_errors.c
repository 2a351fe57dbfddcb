/*
 * test_op_errors.c - failures after joining, as control reports them to every rank
 *
 * Deaths and stops of any rank, also of inner ranks of the tree; raised errors; mismatched calls;
 * missing ranks. Ranks are forked processes with a control and no transport: no data moves.
 */
#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/support/harness_control.h"
#include "plan/plan.h"

#define HAS_TEXT(r, words) \
	cr_assert(strstr(job.report[r].text, words), "rank %d reports: %s", r, job.report[r].text)
#define HOLD_MS 20000     /* longest wait of a test */
#define SOON_MS 4000      /* far below HOLD_MS, also on a busy machine */
#define MISSING_BYTES 500 /* of the text of tt_control_missing in a report */

static const struct tt_call sum_512 = {
	.collective = TT_ALLREDUCE, .type = tuttiFloat32, .op = tuttiSum, .root = -1, .count = 512
};

/* ---- deaths ---------------------------------------------------------------------------------- */

/* All ranks have finished operation 6 and are in 7 when one rank is killed. */
static int die_or_notice(struct control_job *job, int rank, struct tt_control *ctl)
{
	int culprit, victim = *(int *)job->arg, code;
	uint64_t before;

	for (uint64_t seq = 1; seq <= 7; seq++)
		note_sum(ctl, seq, seq < 7);
	atomic_store(&job->report[rank].progress, 1);
	if (rank == victim)
		sleep_ms(HOLD_MS);
	control_job_reached(job, victim, 2, HOLD_MS);
	before = tt_now_ns();
	code = control_job_await_broken(job, rank, ctl, HOLD_MS, &culprit);
	job->report[rank].took_ms = (tt_now_ns() - before) / 1000000;
	return code == TT_REMOTE && culprit == victim ? 0 : 1;
}

static void kill_one(int n, int victim)
{
	struct control_job job = { .n = n, .body = die_or_notice, .arg = &victim };
	char words[64];

	control_job_start(&job);
	cr_assert(control_job_all_reached(&job, 1, HOLD_MS));
	kill(job.report[victim].pid, SIGKILL);
	atomic_store(&job.report[victim].progress, 2);
	control_job_wait(&job);
	snprintf(words, sizeof(words), "rank %d died", victim);
	for (int r = 0; r < n; r++) {
		if (r == victim)
			continue;
		cr_assert_eq(job.report[r].rc, 0, "rank %d of %d, victim %d: %s", r, n, victim,
			     job.report[r].text);
		HAS_TEXT(r, words);
		HAS_TEXT(r, "operation 6 (allreduce of 1024 float32, sum");
		cr_assert_lt(job.report[r].took_ms, SOON_MS, "rank %d took %lu ms", r,
			     job.report[r].took_ms);
	}
}

Test(op_errors, every_rank_reports_any_death_and_the_last_operation, .timeout = 120)
{
	for (int victim = 0; victim < 3; victim++)
		kill_one(3, victim);
	for (int victim = 0; victim < 20; victim += victim == 3 ? 5 : 1)
		kill_one(20, victim);
}

/* A rank is killed while all ranks join: the others report the death, or time out in the join. */
static int notice(struct control_job *job, int rank, struct tt_control *ctl)
{
	int culprit;

	return control_job_await_broken(job, rank, ctl, HOLD_MS, &culprit) == TT_REMOTE &&
			       culprit == *(int *)job->arg
		       ? 0
		       : 1;
}

Test(op_errors, a_death_while_joining_leaves_no_rank_hanging, .timeout = 120)
{
	for (int round = 0; round < 24; round++) {
		int victim = round % 12;
		struct control_job job = {
			.n = 12, .body = notice, .arg = &victim, .timeout_ms = 2500
		};
		uint64_t until;

		control_job_start(&job);
		for (until = tt_now_ns() + (uint64_t)(rand() % 12000) * 1000; tt_now_ns() < until;)
			;
		kill(job.report[victim].pid, SIGKILL);
		until = tt_deadline_ns(2500 + SOON_MS);
		control_job_wait(&job);
		cr_assert_lt(tt_now_ns(), until, "round %d took too long", round);
		for (int r = 0; r < 12; r++)
			cr_assert(r == victim || job.report[r].rc == 0, "round %d, rank %d: %d %s",
				  round, r, job.report[r].rc, job.report[r].text);
	}
}

/* A rank that is stopped while all ranks join is named at the deadline, also when its children
 * cannot connect to the tree. */
static void stop_myself(struct control_job *job, int rank, struct tt_join *join)
{
	(void)join;
	if (rank == 9) /* child of rank 1 */
		control_job_reached(job, 1, 1, HOLD_MS);
}

Test(op_errors, a_rank_stopped_while_joining_is_named, .timeout = 60)
{
	struct control_job job = {
		.n = 10, .before = stop_myself, .timeout_ms = 3000, .only_rank_0 = true
	};

	control_job_start(&job);
	sleep_ms(1200); /* rank 1 has registered by then */
	control_job_stop(&job, 1);
	atomic_store(&job.report[1].progress, 1);
	for (int ms = 0; ms < HOLD_MS && !(job.report[0].text[0] && job.report[9].text[0]); ms++)
		sleep_ms(1);
	kill(job.report[1].pid, SIGKILL);
	control_job_wait(&job);
	HAS_TEXT(0, "rank 9 registered, but rank 1");
	HAS_TEXT(9, "rank 1");
	cr_assert_eq(job.report[5].joined, TT_TIMEOUT);
	cr_assert_lt(job.report[9].took_ms, HOLD_MS / 2, "rank 9 waited for its own deadline");
}

/* The death of a rank is detected although its forked child lives on. */
static int die_with_a_child(struct control_job *job, int rank, struct tt_control *ctl)
{
	if (rank == *(int *)job->arg && !fork()) {
		sleep_ms(6000);
		_exit(0);
	}
	return die_or_notice(job, rank, ctl);
}

Test(op_errors, a_forked_child_does_not_hide_the_death_of_its_parent, .timeout = 60)
{
	int victim = 1;
	struct control_job job = { .n = 3, .body = die_with_a_child, .arg = &victim };

	control_job_start(&job);
	cr_assert(control_job_all_reached(&job, 1, HOLD_MS));
	kill(job.report[victim].pid, SIGKILL);
	atomic_store(&job.report[victim].progress, 2);
	control_job_wait(&job);
	cr_assert(job.report[0].rc == 0 && job.report[2].rc == 0, "%s", job.report[0].text);
	cr_assert_lt(job.report[0].took_ms, SOON_MS); /* shorter than the child lives */
	HAS_TEXT(2, "rank 1 died");
}

static int child_comes_and_goes(struct control_job *job, int rank, struct tt_control *ctl)
{
	int all[3];

	if (rank == 0 && !fork()) {
		tt_control_leave(ctl); /* no effect in a forked child */
		_exit(0);
	}
	if (rank == 0)
		sleep_ms(300);
	(void)job;
	return tt_control_allgather(ctl, &rank, sizeof(rank), all, tt_deadline_ns(10000)) ||
	       tt_control_broken(ctl);
}

Test(op_errors, the_exit_of_a_forked_child_does_not_break_its_parents_communicator, .timeout = 60)
{
	struct control_job job = { .n = 3, .body = child_comes_and_goes };

	control_job_run(&job);
	for (int r = 0; r < 3; r++)
		cr_assert(!job.report[r].joined && !job.report[r].rc, "rank %d", r);
}

/* A rank exits without tt_control_leave. */
static int just_exit(struct control_job *job, int rank, struct tt_control *ctl)
{
	if (rank == *(int *)job->arg) {
		atomic_store(&job->report[rank].progress, 2);
		_exit(0);
	}
	return die_or_notice(job, rank, ctl);
}

Test(op_errors, an_exit_without_goodbye_is_a_death, .timeout = 60)
{
	int victim = 2;
	struct control_job job = { .n = 4, .body = just_exit, .arg = &victim };

	control_job_run(&job);
	cr_assert_eq(job.report[0].rc, 0, "%s", job.report[0].text);
	HAS_TEXT(0, "rank 2 died");
	HAS_TEXT(1, "rank 2 died");
	HAS_TEXT(3, "rank 2 died");
}

/* ---- failures raised ------------------------------------------------------------------------- */

static _Atomic int hooks;

static void hook(void *ctx)
{
	(void)ctx;
	hooks++;
}

static const struct tt_control_observer hook_observer = { .broken = hook };

static int raise_or_notice(struct control_job *job, int rank, struct tt_control *ctl)
{
	int culprit, code;

	hooks = 0;
	tt_control_observe(ctl, &hook_observer, NULL);
	if (rank == *(int *)job->arg)
		tt_control_raise(ctl, TT_SYSTEM, rank, "rank 5: no memory\nfor what it wanted");
	code = control_job_await_broken(job, rank, ctl, HOLD_MS, &culprit);
	for (int ms = 0; ms < HOLD_MS && !hooks; ms++)
		sleep_ms(1);
	tt_control_raise(ctl, TT_INTERNAL, rank, "too late");
	if (tt_control_broken(ctl) != code || hooks != 1 || culprit != 5)
		return 2;
	return code == (rank == *(int *)job->arg ? TT_SYSTEM : TT_REMOTE) ? 0 : 1;
}

Test(op_errors, an_error_raised_by_one_rank_breaks_every_rank_once, .timeout = 60)
{
	int origin = 5;
	struct control_job job = { .n = 12, .body = raise_or_notice, .arg = &origin };

	control_job_run(&job);
	for (int r = 0; r < 12; r++) {
		cr_assert_eq(job.report[r].rc, 0, "rank %d: %d %s", r, job.report[r].rc,
			     job.report[r].text);
		HAS_TEXT(r, "rank 5: no memory for what it wanted");
	}
}

/* ---- stopped ranks --------------------------------------------------------------------------- */

/* The missing rank. A rank may take longer than a second to answer, so the question is repeated. */
static int ask_for_missing(struct control_job *job, int rank, struct tt_control *ctl, int victim)
{
	struct tt_blocked stuck = { .awaited = victim, .last_received = 2 };
	uint64_t until = tt_deadline_ns(HOLD_MS / 2);
	int missing = -2;

	while (!tt_control_broken(ctl) && missing != victim && tt_now_ns() < until)
		missing = tt_control_missing(ctl, 3, &stuck, job->report[rank].text,
					     sizeof(job->report[rank].text));
	return missing;
}

/* The other ranks wait as run does and ask for the missing rank at their deadline. */
static int stop_or_ask(struct control_job *job, int rank, struct tt_control *ctl)
{
	int victim = *(int *)job->arg, missing, culprit;
	uint64_t until;

	note_sum(ctl, 1, true);
	note_sum(ctl, 2, true);
	if (rank != victim)
		note_sum(ctl, 3, false);
	atomic_store(&job->report[rank].progress, 1);
	if (rank == victim) {
		control_job_reached(job, victim, 9, HOLD_MS);
		return control_job_await_broken(job, rank, ctl, HOLD_MS, &culprit) == TT_TIMEOUT
			       ? 0
			       : 1;
	}
	control_job_reached(job, victim, 2, HOLD_MS);
	for (until = tt_deadline_ns(700); tt_now_ns() < until && !tt_control_broken(ctl);
	     sleep_ms(20))
		tt_control_waiting(ctl,
				   &(struct tt_blocked){ .awaited = victim, .last_received = 2 });
	until = tt_now_ns();
	missing = ask_for_missing(job, rank, ctl, victim);
	job->report[rank].took_ms = (tt_now_ns() - until) / 1000000;
	if (tt_control_broken(ctl))
		missing = victim;
	else
		tt_control_raise(ctl, TT_TIMEOUT, missing, job->report[rank].text);
	control_job_await_broken(job, rank, ctl, HOLD_MS, &culprit);
	atomic_store(&job->report[rank].progress, 3);
	return missing == victim && culprit == victim ? 0 : 1;
}

static void stop_one(int n, int victim)
{
	struct control_job job = { .n = n, .body = stop_or_ask, .arg = &victim };
	char words[64];

	control_job_start(&job);
	cr_assert(control_job_all_reached(&job, 1, HOLD_MS));
	control_job_stop(&job, victim);
	atomic_store(&job.report[victim].progress, 2);
	for (int r = 0; r < n; r++)
		cr_assert(r == victim || control_job_reached(&job, r, 3, HOLD_MS),
			  "rank %d has no error", r);
	atomic_store(&job.report[victim].progress, 9);
	kill(job.report[victim].pid, SIGCONT);
	control_job_wait(&job);
	snprintf(words, sizeof(words), "rank %d is not answering (stopped?)", victim);
	for (int r = 0; r < n; r++) {
		cr_assert_eq(job.report[r].rc, 0, "rank %d, victim %d: %s", r, victim,
			     job.report[r].text);
		HAS_TEXT(r, words);
		HAS_TEXT(r, "operation 2 (allreduce of 1024 float32");
		cr_assert_lt(job.report[r].took_ms, HOLD_MS / 2);
	}
}

Test(op_errors, a_stopped_rank_is_named_with_its_last_operation, .timeout = 120)
{
	stop_one(3, 0);
	stop_one(3, 2);
	stop_one(20, 1); /* an inner rank of the tree */
	stop_one(20, 13);
}

/* Rank 3 receives from rank 7, which receives from rank 11, which receives from rank 19, which is
 * stopped. */
static const int chain[] = { 3, 7, 11, 19 };

static int wait_in_a_chain(struct control_job *job, int rank, struct tt_control *ctl)
{
	struct tt_blocked stuck = { .nwants = 1, .want[0] = { .number = 1, .call = a_sum } };
	uint64_t until = tt_deadline_ns(HOLD_MS / 2);
	char *text = job->report[rank].text;
	int culprit = 0, at = 0;

	while (at < 3 && chain[at] != rank)
		at++;
	stuck.awaited = stuck.want[0].peer = at < 3 ? chain[at + 1] : -1;
	atomic_store(&job->report[rank].progress, 1);
	control_job_reached(job, 19, 2, HOLD_MS);
	while (at < 3 && !tt_control_broken(ctl) && tt_now_ns() < until) {
		tt_control_waiting(ctl, &stuck);
		sleep_ms(20);
		if (rank != chain[0] || tt_control_missing(ctl, 1, &stuck, text, 700) != 19)
			continue;
		tt_control_raise(ctl, TT_TIMEOUT, 19, text);
		atomic_store(&job->report[rank].progress, 3);
	}
	control_job_await_broken(job, rank, ctl, HOLD_MS, &culprit);
	return culprit == 19 ? 0 : 1;
}

Test(op_errors, a_stopped_rank_is_named_by_ranks_that_wait_for_it_through_others, .timeout = 120)
{
	struct control_job job = { .n = 20, .body = wait_in_a_chain };

	control_job_start(&job);
	cr_assert(control_job_all_reached(&job, 1, HOLD_MS));
	control_job_stop(&job, 19);
	atomic_store(&job.report[19].progress, 2);
	cr_expect(control_job_reached(&job, chain[0], 3, HOLD_MS));
	kill(job.report[19].pid, SIGCONT);
	control_job_wait(&job);
	for (int r = 0; r < 20; r++)
		cr_assert_eq(job.report[r].rc, 0, "rank %d: %s", r, job.report[r].text);
	HAS_TEXT(3, "rank 19 is not answering (stopped?)");
	HAS_TEXT(3, "rank 7 has not made the matching call");
}

static void count_departure(void *ctx, int rank, tuttiRankState_t how)
{
	(void)rank;
	*(atomic_int *)ctx += how == tuttiRankLeft;
}

static const struct tt_control_observer departures_observer = { .gone = count_departure };

/* Of six ranks 0 and 3 leave; rank 1 waits for 2, which is stopped, and for 4, which it cannot ask. */
static int wait_for_two(struct control_job *job, int rank, struct tt_control *ctl)
{
	const struct tt_blocked stuck = {
		.awaited = -1,
		.nwants = 2,
		.want = { { .peer = 2, .number = 1, .call = a_sum },
			  { .peer = 4, .number = 1, .call = a_sum } },
	};
	char *text = job->report[rank].text;
	atomic_int departures = 0;
	int missing = 2;

	note_sum(ctl, 1, true);
	atomic_store(&job->report[rank].progress, 1);
	control_job_all_reached(job, 1, HOLD_MS);
	if (rank % 3 == 0)
		return 0;
	tt_control_observe(ctl, &departures_observer, &departures);
	while (departures < 2)
		sleep_ms(1);
	atomic_store(&job->report[rank].progress, 2);
	control_job_reached(job, 1, rank == 1 ? 3 : 4, HOLD_MS);
	if (rank == 1) {
		missing = tt_control_missing(ctl, 2, &stuck, text, MISSING_BYTES);
		if (!tt_control_silent(ctl, 400, text + MISSING_BYTES, MISSING_BYTES))
			missing = -1;
		atomic_store(&job->report[rank].progress, 4);
	}
	tt_control_unobserve(ctl, &departures_observer, &departures);
	return missing != 2;
}

Test(op_errors, a_silent_rank_that_cannot_be_asked_is_not_called_stopped, .timeout = 60)
{
	struct control_job job = { .n = 6, .body = wait_for_two };

	control_job_start(&job);
	for (int r = 0; r < 6; r++)
		cr_assert(r % 3 == 0 || control_job_reached(&job, r, 2, HOLD_MS));
	control_job_stop(&job, 2);
	atomic_store(&job.report[1].progress, 3);
	cr_expect(control_job_reached(&job, 1, 4, HOLD_MS));
	kill(job.report[2].pid, SIGCONT);
	control_job_wait(&job);
	for (int r = 0; r < 6; r++)
		cr_assert_eq(job.report[r].rc, 0, "rank %d: %s", r, job.report[r].text);
	HAS_TEXT(
		1,
		"rank 2 is not answering (stopped?); rank 4 is not answering: the ranks that connect it "
		"to rank 1 have left or died; last operation received from rank 2: operation 1 ");
	cr_assert_str_eq(
		job.report[1].text + MISSING_BYTES,
		"rank 2 is not answering (stopped?); ranks 4, 5 are not answering; rank 4: the "
		"ranks that connect it to rank 1 have left or died");
}

/* ---- ranks that make another call, or none --------------------------------------------------- */

static int one_makes_no_call(struct control_job *job, int rank, struct tt_control *ctl)
{
	int missing, culprit;

	note_sum(ctl, 1, true);
	if (rank == 2) {
		atomic_store(&job->report[rank].progress, 1);
		control_job_await_broken(job, rank, ctl, HOLD_MS, &culprit);
		return 0;
	}
	note_sum(ctl, 2, false);
	atomic_store(&job->report[rank].progress, 1);
	control_job_all_reached(job, 1, HOLD_MS);
	tt_control_waiting(ctl, &(struct tt_blocked){ .awaited = 2, .last_received = 1 });
	sleep_ms(300);
	missing = tt_control_missing(ctl, 2,
				     &(struct tt_blocked){ .awaited = 2, .last_received = 1 },
				     job->report[rank].text, sizeof(job->report[rank].text));
	if (rank == 0) {
		control_job_reached(job, 1, 2, HOLD_MS);
		tt_control_raise(ctl, TT_TIMEOUT, missing, job->report[rank].text);
	}
	atomic_store(&job->report[rank].progress, 2);
	return missing == 2 ? 0 : 1;
}

Test(op_errors, a_rank_that_has_not_made_the_call_is_named_with_its_last_call, .timeout = 60)
{
	struct control_job job = { .n = 3, .body = one_makes_no_call };

	control_job_run(&job);
	for (int r = 0; r < 3; r++) {
		cr_assert_eq(job.report[r].rc, 0, "rank %d: %s", r, job.report[r].text);
		HAS_TEXT(
			r,
			"rank 2 has not called operation 2 yet; its last was: operation 1 (allreduce");
	}
}

static int all_make_the_call(struct control_job *job, int rank, struct tt_control *ctl)
{
	int missing;

	note_sum(ctl, 1, false);
	tt_control_waiting(ctl, &(struct tt_blocked){ .awaited = (rank + 1) % job->n,
						      .last_received = 0 });
	atomic_store(&job->report[rank].progress, 1);
	control_job_all_reached(job, 1, HOLD_MS);
	sleep_ms(300);
	missing = tt_control_missing(ctl, 1, &(struct tt_blocked){ .awaited = (rank + 1) % job->n },
				     job->report[rank].text, sizeof(job->report[rank].text));
	atomic_store(&job->report[rank].progress, 2);
	control_job_all_reached(job, 2, HOLD_MS);
	return missing == -1 ? 0 : 1;
}

Test(op_errors, when_no_rank_is_missing_the_error_lists_which_rank_waits_for_which, .timeout = 60)
{
	struct control_job job = { .n = 3, .body = all_make_the_call };

	control_job_run(&job);
	for (int r = 0; r < 3; r++) {
		cr_assert_eq(job.report[r].rc, 0, "rank %d: %s", r, job.report[r].text);
		HAS_TEXT(r, "every rank is in operation 1");
	}
	HAS_TEXT(0, "rank 1 waits for rank 2");
}

/* ---- mismatched calls ------------------------------------------------------------------------ */

static int differ(struct control_job *job, int rank, struct tt_control *ctl)
{
	int culprit;

	for (uint64_t seq = 1; seq < 5; seq++)
		note_sum(ctl, seq, true);
	tt_control_note(ctl, 5, rank == 2 ? &sum_512 : &a_sum);
	if (rank == 2) { /* as rooted calls return before the error */
		tt_control_done(ctl, 5);
		note_sum(ctl, 6, false);
	}
	for (int ms = 0; ms < HOLD_MS && !tt_control_broken(ctl); ms++) {
		if (rank == 3)
			tt_control_waiting(ctl, &(struct tt_blocked){ .awaited = 0,
								      .last_received = 4 });
		sleep_ms(1);
	}
	return control_job_await_broken(job, rank, ctl, 1, &culprit) == TT_USAGE ? 0 : 1;
}

Test(op_errors, mismatched_calls_are_reported_on_every_rank_with_both_calls, .timeout = 60)
{
	struct control_job job = { .n = 10, .body = differ };

	control_job_run(&job);
	for (int r = 0; r < 10; r++) {
		cr_assert_eq(job.report[r].rc, 0, "rank %d: %s", r, job.report[r].text);
		HAS_TEXT(r, "called allreduce of 1024 float32 (sum)");
		HAS_TEXT(r, "rank 2 called allreduce of 512 float32 (sum)");
		HAS_TEXT(r, "as operation 5, rank ");
	}
}

/* Rank 2 made different calls as operations 5, 7 and 8, none reported yet: the error names
 * operation 5. */
static int differ_long_ago(struct control_job *job, int rank, struct tt_control *ctl)
{
	int culprit;

	for (uint64_t seq = 1; seq <= 40; seq++) {
		bool other = rank == 2 && (seq == 5 || seq == 7 || seq == 8);

		tt_control_note(ctl, seq, other ? &sum_512 : &a_sum);
		if (seq < 40)
			tt_control_done(ctl, seq);
	}
	for (int ms = 0; ms < HOLD_MS && !tt_control_broken(ctl); ms++) {
		if (rank == 0)
			tt_control_waiting(ctl, &(struct tt_blocked){ .awaited = 2,
								      .last_received = 39 });
		sleep_ms(1);
	}
	return control_job_await_broken(job, rank, ctl, 1, &culprit) == TT_USAGE ? 0 : 1;
}

Test(op_errors, the_earliest_mismatched_call_is_reported, .timeout = 60)
{
	struct control_job job = { .n = 3, .body = differ_long_ago };

	control_job_run(&job);
	for (int r = 0; r < 3; r++) {
		cr_assert_eq(job.report[r].rc, 0, "rank %d: %s", r, job.report[r].text);
		HAS_TEXT(
			r,
			"called allreduce of 1024 float32 (sum) as operation 5, rank 2 called allreduce of 512 float32 (sum)");
	}
}

Test(op_errors, stamps_differ_between_calls_but_not_between_a_send_and_its_receive, .timeout = 10)
{
	struct tt_call a = a_sum, b = a_sum;

	cr_assert_eq(tt_call_stamp(&a, 5), tt_call_stamp(&b, 5));
	cr_assert_neq(tt_call_stamp(&a, 5), tt_call_stamp(&b, 6));
	b.root = 0;
	cr_assert_neq(tt_call_stamp(&a, 5), tt_call_stamp(&b, 5));
	b = sum_512;
	cr_assert_neq(tt_call_stamp(&a, 5), tt_call_stamp(&b, 5));
	a.collective = b.collective = TT_SENDRECV;
	a.count = b.count;
	a.root = 3;
	b.root = 4;
	cr_assert_eq(tt_call_stamp(&a, 1), tt_call_stamp(&b, 1));
}
