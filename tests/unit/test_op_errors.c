/*
 * test_op_errors.c - what the ranks learn of each other when something goes wrong after joining
 *
 * Deaths and stops of any rank, also of inner ranks of the tree; failures raised; calls that
 * differ; who is missing. Ranks are forked processes on their control alone: no data moves.
 */
#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/support/harness_control.h"
#include "plan/plan.h"

#define SAYS(r, words) cr_assert(strstr(m.report[r].text, words), "rank %d says: %s", r, m.report[r].text)
#define HOLD_MS 20000
#define SOON_MS 4000                     /* far from that, however busy the machine is */

static const struct tt_call sum_512 = {
	.collective = TT_ALLREDUCE, .type = tuttiFloat32, .op = tuttiSum, .root = -1, .count = 512
};

/* ---- deaths ---------------------------------------------------------------------------------- */

/* Everybody has finished operation 6 and is in 7 when one rank is killed. */
static int die_or_notice(struct meet *m, int rank, struct tt_control *ctl)
{
	int culprit, victim = *(int *)m->arg, code;
	uint64_t before;

	for (uint64_t seq = 1; seq <= 7; seq++)
		note_sum(ctl, seq, seq < 7);
	atomic_store(&m->report[rank].stage, 1);
	if (rank == victim)
		sleep_ms(HOLD_MS);
	meet_reached(m, victim, 2, HOLD_MS);
	before = tt_now_ns();
	code = meet_await_broken(m, rank, ctl, HOLD_MS, &culprit);
	m->report[rank].took_ms = (tt_now_ns() - before) / 1000000;
	return code == TT_REMOTE && culprit == victim ? 0 : 1;
}

static void kill_one(int n, int victim)
{
	struct meet m = { .n = n, .body = die_or_notice, .arg = &victim };
	char words[64];

	meet_start(&m);
	cr_assert(meet_all_reached(&m, 1, HOLD_MS));
	kill(m.report[victim].pid, SIGKILL);
	atomic_store(&m.report[victim].stage, 2);
	meet_wait(&m);
	snprintf(words, sizeof(words), "rank %d died", victim);
	for (int r = 0; r < n; r++) {
		if (r == victim)
			continue;
		cr_assert_eq(m.report[r].rc, 0, "rank %d of %d, victim %d: %s", r, n, victim,
			     m.report[r].text);
		SAYS(r, words);
		SAYS(r, "operation 6 (allreduce of 1024 float32, sum");
		cr_assert_lt(m.report[r].took_ms, SOON_MS, "rank %d took %lu ms", r,
			     m.report[r].took_ms);
	}
}

Test(trouble, every_rank_learns_of_any_death_and_of_the_last_operation, .timeout = 120)
{
	for (int victim = 0; victim < 3; victim++)
		kill_one(3, victim);
	for (int victim = 0; victim < 20; victim += victim == 3 ? 5 : 1)
		kill_one(20, victim);
}

/* A rank killed while all join: the others learn of it, or never see it. */
static int notice(struct meet *m, int rank, struct tt_control *ctl)
{
	int culprit;

	return meet_await_broken(m, rank, ctl, HOLD_MS, &culprit) == TT_REMOTE &&
			       culprit == *(int *)m->arg
		       ? 0
		       : 1;
}

Test(trouble, a_death_while_joining_leaves_nobody_hanging, .timeout = 120)
{
	for (int round = 0; round < 24; round++) {
		int victim = round % 12;
		struct meet m = { .n = 12, .body = notice, .arg = &victim, .timeout_ms = 2500 };
		uint64_t until;

		meet_start(&m);
		for (until = tt_now_ns() + (uint64_t)(rand() % 12000) * 1000; tt_now_ns() < until;)
			;
		kill(m.report[victim].pid, SIGKILL);
		until = tt_deadline_ns(2500 + SOON_MS);
		meet_wait(&m);
		cr_assert_lt(tt_now_ns(), until, "round %d took too long", round);
		for (int r = 0; r < 12; r++)
			cr_assert(r == victim || m.report[r].rc == 0, "round %d, rank %d: %d %s",
				  round, r, m.report[r].rc, m.report[r].text);
	}
}

/* A rank stopped while all join is named at the deadline,
 * also when it keeps others out of the tree. */
static void stop_myself(struct meet *m, int rank, struct tt_join *join)
{
	(void)join;
	if (rank == 9)                           /* hangs below rank 1 */
		meet_reached(m, 1, 1, HOLD_MS);
}

Test(trouble, a_rank_stopped_while_joining_is_named, .timeout = 60)
{
	struct meet m = { .n = 10, .before = stop_myself, .timeout_ms = 3000, .patient = true };

	meet_start(&m);
	sleep_ms(1200);                          /* by then it has come */
	meet_stop(&m, 1);
	atomic_store(&m.report[1].stage, 1);
	for (int ms = 0; ms < HOLD_MS && !(m.report[0].text[0] && m.report[9].text[0]); ms++)
		sleep_ms(1);
	kill(m.report[1].pid, SIGKILL);
	meet_wait(&m);
	SAYS(0, "rank 9 came, but rank 1");
	SAYS(9, "rank 1");
	cr_assert_eq(m.report[5].joined, TT_TIMEOUT);
	cr_assert_lt(m.report[9].took_ms, HOLD_MS / 2, "it need not wait for its own deadline");
}

/* A rank whose child lives on must still be seen to die. */
static int die_with_a_child(struct meet *m, int rank, struct tt_control *ctl)
{
	if (rank == *(int *)m->arg && !fork()) {
		sleep_ms(6000);
		_exit(0);
	}
	return die_or_notice(m, rank, ctl);
}

Test(trouble, a_forked_child_does_not_hide_the_death_of_its_parent, .timeout = 60)
{
	int victim = 1;
	struct meet m = { .n = 3, .body = die_with_a_child, .arg = &victim };

	meet_start(&m);
	cr_assert(meet_all_reached(&m, 1, HOLD_MS));
	kill(m.report[victim].pid, SIGKILL);
	atomic_store(&m.report[victim].stage, 2);
	meet_wait(&m);
	cr_assert(m.report[0].rc == 0 && m.report[2].rc == 0, "%s", m.report[0].text);
	cr_assert_lt(m.report[0].took_ms, SOON_MS);      /* its child lives longer */
	SAYS(2, "rank 1 died");
}

static int child_comes_and_goes(struct meet *m, int rank, struct tt_control *ctl)
{
	int all[3];

	if (rank == 0 && !fork()) {
		tt_control_leave(ctl);           /* not the child's to leave */
		_exit(0);
	}
	if (rank == 0)
		sleep_ms(300);
	(void)m;
	return tt_control_allgather(ctl, &rank, sizeof(rank), all, tt_deadline_ns(10000)) ||
	       tt_control_broken(ctl);
}

Test(trouble, the_exit_of_a_forked_child_does_not_harm_its_parents_job, .timeout = 60)
{
	struct meet m = { .n = 3, .body = child_comes_and_goes };

	meet_run(&m);
	for (int r = 0; r < 3; r++)
		cr_assert(!m.report[r].joined && !m.report[r].rc, "rank %d", r);
}

/* Exit without leaving. */
static int just_exit(struct meet *m, int rank, struct tt_control *ctl)
{
	if (rank == *(int *)m->arg) {
		atomic_store(&m->report[rank].stage, 2);
		_exit(0);
	}
	return die_or_notice(m, rank, ctl);
}

Test(trouble, an_exit_without_goodbye_is_a_death, .timeout = 60)
{
	int victim = 2;
	struct meet m = { .n = 4, .body = just_exit, .arg = &victim };

	meet_run(&m);
	cr_assert_eq(m.report[0].rc, 0, "%s", m.report[0].text);
	SAYS(0, "rank 2 died");
	SAYS(1, "rank 2 died");
	SAYS(3, "rank 2 died");
}

/* ---- failures raised ------------------------------------------------------------------------- */

static _Atomic int hooks;

static void hook(void *ctx)
{
	(void)ctx;
	hooks++;
}

static const struct tt_control_observer hook_observer = { .broken = hook };

static int raise_or_notice(struct meet *m, int rank, struct tt_control *ctl)
{
	int culprit, code;

	hooks = 0;
	tt_control_observe(ctl, &hook_observer, NULL);
	if (rank == *(int *)m->arg)
		tt_control_raise(ctl, TT_SYSTEM, rank, "rank 5: no memory\nfor what it wanted");
	code = meet_await_broken(m, rank, ctl, HOLD_MS, &culprit);
	for (int ms = 0; ms < HOLD_MS && !hooks; ms++)
		sleep_ms(1);
	tt_control_raise(ctl, TT_INTERNAL, rank, "too late");
	if (tt_control_broken(ctl) != code || hooks != 1 || culprit != 5)
		return 2;
	return code == (rank == *(int *)m->arg ? TT_SYSTEM : TT_REMOTE) ? 0 : 1;
}

Test(trouble, what_one_rank_raises_breaks_every_rank_once, .timeout = 60)
{
	int origin = 5;
	struct meet m = { .n = 12, .body = raise_or_notice, .arg = &origin };

	meet_run(&m);
	for (int r = 0; r < 12; r++) {
		cr_assert_eq(m.report[r].rc, 0, "rank %d: %d %s", r, m.report[r].rc,
			     m.report[r].text);
		SAYS(r, "rank 5: no memory for what it wanted");
	}
}

/* ---- stopped ranks --------------------------------------------------------------------------- */

/* Who is missing? Not who only took longer than a second to answer: they are asked again. */
static int ask(struct meet *m, int rank, struct tt_control *ctl, int victim)
{
	struct tt_blocked stuck = { .awaited = victim, .last_received = 2 };
	uint64_t until = tt_deadline_ns(HOLD_MS / 2);
	int who = -2;

	while (!tt_control_broken(ctl) && who != victim && tt_now_ns() < until)
		who = tt_control_missing(ctl, 3, &stuck, m->report[rank].text,
					 sizeof(m->report[rank].text));
	return who;
}

/* The others wait as run does and ask at their deadline. */
static int stop_or_ask(struct meet *m, int rank, struct tt_control *ctl)
{
	int victim = *(int *)m->arg, who, culprit;
	uint64_t until;

	note_sum(ctl, 1, true);
	note_sum(ctl, 2, true);
	if (rank != victim)
		note_sum(ctl, 3, false);
	atomic_store(&m->report[rank].stage, 1);
	if (rank == victim) {
		meet_reached(m, victim, 9, HOLD_MS);
		return meet_await_broken(m, rank, ctl, HOLD_MS, &culprit) == TT_TIMEOUT ? 0 : 1;
	}
	meet_reached(m, victim, 2, HOLD_MS);
	for (until = tt_deadline_ns(700); tt_now_ns() < until && !tt_control_broken(ctl);
	     sleep_ms(20))
		tt_control_waiting(ctl, &(struct tt_blocked){ .awaited = victim, .last_received = 2 });
	until = tt_now_ns();
	who = ask(m, rank, ctl, victim);
	m->report[rank].took_ms = (tt_now_ns() - until) / 1000000;
	if (tt_control_broken(ctl))
		who = victim;
	else
		tt_control_raise(ctl, TT_TIMEOUT, who, m->report[rank].text);
	meet_await_broken(m, rank, ctl, HOLD_MS, &culprit);
	atomic_store(&m->report[rank].stage, 3);
	return who == victim && culprit == victim ? 0 : 1;
}

static void stop_one(int n, int victim)
{
	struct meet m = { .n = n, .body = stop_or_ask, .arg = &victim };
	char words[64];

	meet_start(&m);
	cr_assert(meet_all_reached(&m, 1, HOLD_MS));
	meet_stop(&m, victim);
	atomic_store(&m.report[victim].stage, 2);
	for (int r = 0; r < n; r++)
		cr_assert(r == victim || meet_reached(&m, r, 3, HOLD_MS), "rank %d does not know",
			  r);
	atomic_store(&m.report[victim].stage, 9);
	kill(m.report[victim].pid, SIGCONT);
	meet_wait(&m);
	snprintf(words, sizeof(words), "rank %d is not answering (stopped?)", victim);
	for (int r = 0; r < n; r++) {
		cr_assert_eq(m.report[r].rc, 0, "rank %d, victim %d: %s", r, victim,
			     m.report[r].text);
		SAYS(r, words);
		SAYS(r, "operation 2 (allreduce of 1024 float32");
		cr_assert_lt(m.report[r].took_ms, HOLD_MS / 2);
	}
}

Test(trouble, a_stopped_rank_is_named_with_its_last_operation, .timeout = 120)
{
	stop_one(3, 0);
	stop_one(3, 2);
	stop_one(20, 1);                         /* an inner rank of the tree */
	stop_one(20, 13);
}

/* ---- ranks that are elsewhere ---------------------------------------------------------------- */

static int one_stays_behind(struct meet *m, int rank, struct tt_control *ctl)
{
	int who, culprit;

	note_sum(ctl, 1, true);
	if (rank == 2) {
		atomic_store(&m->report[rank].stage, 1);
		meet_await_broken(m, rank, ctl, HOLD_MS, &culprit);
		return 0;
	}
	note_sum(ctl, 2, false);
	atomic_store(&m->report[rank].stage, 1);
	meet_all_reached(m, 1, HOLD_MS);
	tt_control_waiting(ctl, &(struct tt_blocked){ .awaited = 2, .last_received = 1 });
	sleep_ms(300);
	who = tt_control_missing(ctl, 2, &(struct tt_blocked){ .awaited = 2, .last_received = 1 },
					 m->report[rank].text, sizeof(m->report[rank].text));
	if (rank == 0) {
		meet_reached(m, 1, 2, HOLD_MS);
		tt_control_raise(ctl, TT_TIMEOUT, who, m->report[rank].text);
	}
	atomic_store(&m->report[rank].stage, 2);
	return who == 2 ? 0 : 1;
}

Test(trouble, a_rank_that_has_not_made_the_call_is_named_with_its_last_one, .timeout = 60)
{
	struct meet m = { .n = 3, .body = one_stays_behind };

	meet_run(&m);
	for (int r = 0; r < 3; r++) {
		cr_assert_eq(m.report[r].rc, 0, "rank %d: %s", r, m.report[r].text);
		SAYS(r,
		     "rank 2 has not called operation 2 yet; its last was: operation 1 (allreduce");
	}
}

static int all_are_in_it(struct meet *m, int rank, struct tt_control *ctl)
{
	int who;

	note_sum(ctl, 1, false);
	tt_control_waiting(ctl, &(struct tt_blocked){ .awaited = (rank + 1) % m->n, .last_received = 0 });
	atomic_store(&m->report[rank].stage, 1);
	meet_all_reached(m, 1, HOLD_MS);
	sleep_ms(300);
	who = tt_control_missing(ctl, 1, &(struct tt_blocked){ .awaited = (rank + 1) % m->n },
					 m->report[rank].text, sizeof(m->report[rank].text));
	atomic_store(&m->report[rank].stage, 2);
	meet_all_reached(m, 2, HOLD_MS);
	return who == -1 ? 0 : 1;
}

Test(trouble, when_nobody_is_missing_who_waits_for_whom_is_said, .timeout = 60)
{
	struct meet m = { .n = 3, .body = all_are_in_it };

	meet_run(&m);
	for (int r = 0; r < 3; r++) {
		cr_assert_eq(m.report[r].rc, 0, "rank %d: %s", r, m.report[r].text);
		SAYS(r, "every rank is in operation 1");
	}
	SAYS(0, "rank 1 waits for rank 2");
}

/* ---- calls that differ ----------------------------------------------------------------------- */

static int differ(struct meet *m, int rank, struct tt_control *ctl)
{
	int culprit;

	for (uint64_t seq = 1; seq < 5; seq++)
		note_sum(ctl, seq, true);
	tt_control_note(ctl, 5, rank == 2 ? &sum_512 : &a_sum);
	if (rank == 2) {                         /* rooted calls return before the others notice */
		tt_control_done(ctl, 5);
		note_sum(ctl, 6, false);
	}
	for (int ms = 0; ms < HOLD_MS && !tt_control_broken(ctl); ms++) {
		if (rank == 3)
			tt_control_waiting(ctl, &(struct tt_blocked){ .awaited = 0, .last_received = 4 });
		sleep_ms(1);
	}
	return meet_await_broken(m, rank, ctl, 1, &culprit) == TT_USAGE ? 0 : 1;
}

Test(trouble, calls_that_differ_are_reported_to_every_rank_with_both_calls, .timeout = 60)
{
	struct meet m = { .n = 10, .body = differ };

	meet_run(&m);
	for (int r = 0; r < 10; r++) {
		cr_assert_eq(m.report[r].rc, 0, "rank %d: %s", r, m.report[r].text);
		SAYS(r, "called allreduce of 1024 float32 (sum)");
		SAYS(r, "rank 2 called allreduce of 512 float32 (sum)");
		SAYS(r, "as operation 5, rank ");
	}
}

/* Rank 2 made other calls as operations 5, 7 and 8, all unnoticed:
 * the error must name operation 5. */
static int differ_long_ago(struct meet *m, int rank, struct tt_control *ctl)
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
			tt_control_waiting(ctl, &(struct tt_blocked){ .awaited = 2, .last_received = 39 });
		sleep_ms(1);
	}
	return meet_await_broken(m, rank, ctl, 1, &culprit) == TT_USAGE ? 0 : 1;
}

Test(trouble, the_earliest_call_that_differs_is_reported, .timeout = 60)
{
	struct meet m = { .n = 3, .body = differ_long_ago };

	meet_run(&m);
	for (int r = 0; r < 3; r++) {
		cr_assert_eq(m.report[r].rc, 0, "rank %d: %s", r, m.report[r].text);
		SAYS(r,
		     "called allreduce of 1024 float32 (sum) as operation 5, rank 2 called allreduce of 512 float32 (sum)");
	}
}

Test(trouble, a_stamp_tells_calls_apart_but_not_the_sides_of_a_send, .timeout = 10)
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
