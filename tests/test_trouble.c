/*
 * test_trouble.c - what the ranks learn of each other when something goes wrong after joining
 *
 * Deaths and stops of any rank, also of inner ranks of the tree; failures raised; goodbyes; calls that differ; who is
 * missing. Ranks are forked processes on their control alone: no data moves but where a test wants sockets.
 */
#include <criterion/criterion.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "harness_control.h"
#include "plan/plan.h"

#define SAYS(r, words) cr_assert(strstr(m.report[r].text, words), "rank %d says: %s", r, m.report[r].text)
#define HOLD_MS 20000

static const struct tt_call sum_1024 = { .collective = TT_ALLREDUCE, .type = tuttiFloat32, .op = tuttiSum, .root = -1,
					 .count = 1024 };
static const struct tt_call sum_512 = { .collective = TT_ALLREDUCE, .type = tuttiFloat32, .op = tuttiSum, .root = -1,
					.count = 512 };

static void call(struct tt_control *ctl, uint64_t seq, bool finish)
{
	tt_control_note(ctl, seq, &sum_1024);
	if (finish)
		tt_control_done(ctl, seq);
}

/* ---- deaths ------------------------------------------------------------------------------------------------------ */

/* Everybody has finished operation 6 and is in 7 when one rank is killed. */
static int die_or_notice(struct meet *m, int rank, struct tt_control *ctl)
{
	int culprit, victim = *(int *)m->arg, code;
	uint64_t before;

	for (uint64_t seq = 1; seq <= 7; seq++)
		call(ctl, seq, seq < 7);
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
		cr_assert_eq(m.report[r].rc, 0, "rank %d of %d, victim %d: %s", r, n, victim, m.report[r].text);
		SAYS(r, words);
		SAYS(r, "operation 6 (allreduce of 1024 float32, sum");
		cr_assert_lt(m.report[r].took_ms, 1000, "rank %d took %lu ms", r, m.report[r].took_ms);
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

	return meet_await_broken(m, rank, ctl, HOLD_MS, &culprit) == TT_REMOTE && culprit == *(int *)m->arg ? 0 : 1;
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
		until = tt_deadline_ns(2500 + 2000);
		meet_wait(&m);
		cr_assert_lt(tt_now_ns(), until, "round %d took too long", round);
		for (int r = 0; r < 12; r++)
			cr_assert(r == victim || m.report[r].rc == 0, "round %d, rank %d: %d %s", round, r, m.report[r].rc,
				  m.report[r].text);
	}
}

/* A rank stopped while all join is named at the deadline, also when it keeps others out of the tree. */
static void stop_myself(struct meet *m, int rank, struct tt_join *join)
{
	(void)join;
	if (rank == 9)                           /* hangs below rank 1 */
		meet_reached(m, 1, 1, HOLD_MS);
}

Test(trouble, a_rank_stopped_while_joining_is_named, .timeout = 60)
{
	struct meet m = { .n = 10, .before = stop_myself, .timeout_ms = 2000 };

	meet_start(&m);
	sleep_ms(500);
	kill(m.report[1].pid, SIGSTOP);
	sleep_ms(50);
	atomic_store(&m.report[1].stage, 1);
	for (int ms = 0; ms < HOLD_MS && !(m.report[0].text[0] && m.report[9].text[0]); ms++)
		sleep_ms(1);
	kill(m.report[1].pid, SIGKILL);
	meet_wait(&m);
	SAYS(0, "rank 9 came, but rank 1");
	SAYS(9, "rank 1");
	cr_assert_eq(m.report[5].joined, TT_TIMEOUT);
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
	cr_assert_lt(m.report[0].took_ms, 1000);
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

/* ---- failures raised --------------------------------------------------------------------------------------------- */

static _Atomic int hooks;

static void hook(void *ctx)
{
	(void)ctx;
	hooks++;
}

static int raise_or_notice(struct meet *m, int rank, struct tt_control *ctl)
{
	int culprit, code;

	hooks = 0;
	tt_control_on_broken(ctl, hook, NULL);
	if (rank == *(int *)m->arg)
		tt_control_raise(ctl, TT_SYSTEM, rank, "rank 5: no memory\nfor what it wanted");
	code = meet_await_broken(m, rank, ctl, HOLD_MS, &culprit);
	for (int ms = 0; ms < 2000 && !hooks; ms++)
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
		cr_assert_eq(m.report[r].rc, 0, "rank %d: %d %s", r, m.report[r].rc, m.report[r].text);
		SAYS(r, "rank 5: no memory for what it wanted");
	}
}

/* ---- stopped ranks ----------------------------------------------------------------------------------------------- */

/* The others wait as run does and ask at their deadline. */
static int stop_or_ask(struct meet *m, int rank, struct tt_control *ctl)
{
	int victim = *(int *)m->arg, who = -2, culprit;
	uint64_t until;

	call(ctl, 1, true);
	call(ctl, 2, true);
	if (rank != victim)
		call(ctl, 3, false);
	atomic_store(&m->report[rank].stage, 1);
	if (rank == victim) {
		meet_reached(m, victim, 9, HOLD_MS);
		return meet_await_broken(m, rank, ctl, HOLD_MS, &culprit) == TT_TIMEOUT ? 0 : 1;
	}
	meet_reached(m, victim, 2, HOLD_MS);
	for (until = tt_deadline_ns(700); tt_now_ns() < until && !tt_control_broken(ctl); sleep_ms(20))
		tt_control_waiting(ctl, &(struct tt_stuck){ .awaited = victim, .heard = 2 });
	until = tt_now_ns();
	if (!tt_control_broken(ctl))
		who = tt_control_missing(ctl, 3, &(struct tt_stuck){ .awaited = victim, .heard = 2 },
					 m->report[rank].text, sizeof(m->report[rank].text));
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
	kill(m.report[victim].pid, SIGSTOP);
	atomic_store(&m.report[victim].stage, 2);
	for (int r = 0; r < n; r++)
		cr_assert(r == victim || meet_reached(&m, r, 3, HOLD_MS), "rank %d does not know", r);
	atomic_store(&m.report[victim].stage, 9);
	kill(m.report[victim].pid, SIGCONT);
	meet_wait(&m);
	snprintf(words, sizeof(words), "rank %d is not answering (stopped?)", victim);
	for (int r = 0; r < n; r++) {
		cr_assert_eq(m.report[r].rc, 0, "rank %d, victim %d: %s", r, victim, m.report[r].text);
		SAYS(r, words);
		SAYS(r, "operation 2 (allreduce of 1024 float32");
		cr_assert_lt(m.report[r].took_ms, 1900);
	}
}

Test(trouble, a_stopped_rank_is_named_with_its_last_operation, .timeout = 120)
{
	stop_one(3, 0);
	stop_one(3, 2);
	stop_one(20, 1);                         /* an inner rank of the tree */
	stop_one(20, 13);
}

/* ---- ranks that are elsewhere ------------------------------------------------------------------------------------ */

static int one_stays_behind(struct meet *m, int rank, struct tt_control *ctl)
{
	int who, culprit;

	call(ctl, 1, true);
	if (rank == 2) {
		meet_await_broken(m, rank, ctl, HOLD_MS, &culprit);
		return 0;
	}
	call(ctl, 2, false);
	tt_control_waiting(ctl, &(struct tt_stuck){ .awaited = 2, .heard = 1 });
	sleep_ms(300);
	who = tt_control_missing(ctl, 2, &(struct tt_stuck){ .awaited = 2, .heard = 1 },
					 m->report[rank].text, sizeof(m->report[rank].text));
	if (rank == 0) {
		meet_reached(m, 1, 1, HOLD_MS);
		tt_control_raise(ctl, TT_TIMEOUT, who, m->report[rank].text);
	}
	atomic_store(&m->report[rank].stage, 1);
	return who == 2 ? 0 : 1;
}

Test(trouble, a_rank_that_has_not_made_the_call_is_named_with_its_last_one, .timeout = 60)
{
	struct meet m = { .n = 3, .body = one_stays_behind };

	meet_run(&m);
	for (int r = 0; r < 3; r++) {
		cr_assert_eq(m.report[r].rc, 0, "rank %d: %s", r, m.report[r].text);
		SAYS(r, "rank 2 has not called operation 2 yet; its last was: operation 1 (allreduce");
	}
}

static int all_are_in_it(struct meet *m, int rank, struct tt_control *ctl)
{
	int who;

	call(ctl, 1, false);
	tt_control_waiting(ctl, &(struct tt_stuck){ .awaited = (rank + 1) % m->n, .heard = 0 });
	atomic_store(&m->report[rank].stage, 1);
	meet_all_reached(m, 1, HOLD_MS);
	sleep_ms(300);
	who = tt_control_missing(ctl, 1, &(struct tt_stuck){ .awaited = (rank + 1) % m->n },
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

/* ---- calls that differ ------------------------------------------------------------------------------------------- */

static int differ(struct meet *m, int rank, struct tt_control *ctl)
{
	int culprit;

	for (uint64_t seq = 1; seq < 5; seq++)
		call(ctl, seq, true);
	tt_control_note(ctl, 5, rank == 2 ? &sum_512 : &sum_1024);
	if (rank == 2) {                         /* rooted calls return before the others notice */
		tt_control_done(ctl, 5);
		call(ctl, 6, false);
	}
	for (int ms = 0; ms < HOLD_MS && !tt_control_broken(ctl); ms++) {
		if (rank == 3)
			tt_control_waiting(ctl, &(struct tt_stuck){ .awaited = 0, .heard = 4 });
		sleep_ms(1);
	}
	return meet_await_broken(m, rank, ctl, 1, &culprit) == TT_USAGE ? 0 : 1;
}

Test(trouble, calls_that_differ_are_told_to_every_rank_with_both_calls, .timeout = 60)
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

/* Rank 2 made other calls as operations 5, 7 and 8, all unnoticed: the first of them is what must be told. */
static int differ_long_ago(struct meet *m, int rank, struct tt_control *ctl)
{
	int culprit;

	for (uint64_t seq = 1; seq <= 40; seq++) {
		bool other = rank == 2 && (seq == 5 || seq == 7 || seq == 8);

		tt_control_note(ctl, seq, other ? &sum_512 : &sum_1024);
		if (seq < 40)
			tt_control_done(ctl, seq);
	}
	for (int ms = 0; ms < HOLD_MS && !tt_control_broken(ctl); ms++) {
		if (rank == 0)
			tt_control_waiting(ctl, &(struct tt_stuck){ .awaited = 2, .heard = 39 });
		sleep_ms(1);
	}
	return meet_await_broken(m, rank, ctl, 1, &culprit) == TT_USAGE ? 0 : 1;
}

Test(trouble, the_earliest_call_that_differs_is_told, .timeout = 60)
{
	struct meet m = { .n = 3, .body = differ_long_ago };

	meet_run(&m);
	for (int r = 0; r < 3; r++) {
		cr_assert_eq(m.report[r].rc, 0, "rank %d: %s", r, m.report[r].text);
		SAYS(r, "called allreduce of 1024 float32 (sum) as operation 5, rank 2 called allreduce of 512 float32 (sum)");
	}
}

Test(trouble, a_stamp_tells_calls_apart_but_not_the_sides_of_a_send, .timeout = 10)
{
	struct tt_call a = sum_1024, b = sum_1024;

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

/* ---- goodbyes ---------------------------------------------------------------------------------------------------- */

/* Rank 1 leaves after operation 2. The others finish 2, which does not need it any more, and fail in 3. */
static int leave_early(struct meet *m, int rank, struct tt_control *ctl)
{
	int culprit;

	call(ctl, 1, true);
	call(ctl, 2, rank == 1);
	if (rank == 1)
		return 0;
	meet_reached(m, 1, 1, HOLD_MS);          /* it has gone */
	sleep_ms(200);
	if (tt_control_broken(ctl))
		return 3;
	tt_control_done(ctl, 2);
	atomic_store(&m->report[rank].stage, 1);
	meet_all_reached(m, 1, HOLD_MS);
	if (rank == 0)
		call(ctl, 3, false);
	return meet_await_broken(m, rank, ctl, 3000, &culprit) == TT_REMOTE && culprit == 1 ? 0 : 1;
}

Test(trouble, who_left_after_an_operation_fails_only_later_ones, .timeout = 60)
{
	struct meet m = { .n = 12, .body = leave_early };

	meet_start(&m);
	sleep_ms(1500);
	atomic_store(&m.report[1].stage, 1);
	meet_wait(&m);
	for (int r = 0; r < 12; r++) {
		if (r == 1)
			continue;
		cr_assert_eq(m.report[r].rc, 0, "rank %d: %d %s", r, m.report[r].rc, m.report[r].text);
		SAYS(r, "rank 1 left after operation 2; operation 3 (allreduce of 1024 float32, sum");
	}
}

static int leave_at_once(struct meet *m, int rank, struct tt_control *ctl)
{
	(void)m;
	sleep_ms(rank * 7 % 5);
	return tt_control_broken(ctl);
}

Test(trouble, ranks_may_leave_in_any_order, .timeout = 60)
{
	for (int i = 0; i < 20; i++) {
		struct meet m = { .n = 12, .body = leave_at_once, .threads = i % 2 };

		meet_run(&m);
		for (int r = 0; r < 12; r++)
			cr_assert(!m.report[r].joined && !m.report[r].rc, "round %d, rank %d: %s", i, r, m.report[r].text);
	}
}

/* ---- data sockets ------------------------------------------------------------------------------------------------ */

static int take_soon(struct tt_control *ctl, int peer, int channel, int *ret_fd)
{
	int rc = 0;

	for (int ms = 0; ms < HOLD_MS && !rc; ms++) {
		rc = tt_control_take(ctl, peer, channel, ret_fd);
		if (!rc)
			sleep_ms(1);
	}
	return rc == 1 ? 0 : -1;
}

/* Between every two ranks on two channels; each end says who it is. */
static int data_sockets(struct meet *m, int rank, struct tt_control *ctl)
{
	int wrong = 0;

	for (int peer = 0; peer < m->n; peer++)
		for (int channel = 0; channel < 2 && peer != rank; channel++) {
			int fd, mine = rank * 10 + channel, theirs = -1;
			int rc = rank < peer ? tt_control_dial(ctl, peer, channel, tt_deadline_ns(10000), &fd)
					     : take_soon(ctl, peer, channel, &fd);

			if (rc)
				return 100;
			wrong += write(fd, &mine, sizeof(mine)) != sizeof(mine);
			wrong += read(fd, &theirs, sizeof(theirs)) != sizeof(theirs);        /* it blocks */
			wrong += theirs != peer * 10 + channel;
			close(fd);
		}
	return wrong;
}

Test(trouble, data_sockets_connect_every_pair_and_channel, .timeout = 60)
{
	for (int threads = 0; threads < 2; threads++) {
		struct meet m = { .n = 5, .body = data_sockets, .threads = threads };

		meet_run(&m);
		for (int r = 0; r < 5; r++)
			cr_assert_eq(m.report[r].rc, 0, "rank %d: %d", r, m.report[r].rc);
	}
}

/* Rank 1 is stopped, so its thread answers no handshake; rank 2 breaks the job. */
static int dial_a_stopped_rank(struct meet *m, int rank, struct tt_control *ctl)
{
	uint64_t before = tt_now_ns();
	int fd, rc;

	atomic_store(&m->report[rank].stage, 1);
	if (rank == 1)
		sleep_ms(HOLD_MS);
	meet_reached(m, 1, 2, HOLD_MS);
	if (rank == 2) {
		sleep_ms(300);
		tt_control_raise(ctl, TT_REMOTE, 2, "rank 2 has had enough");
		return 0;
	}
	rc = tt_control_dial(ctl, 1, 0, tt_deadline_ns(HOLD_MS), &fd);
	snprintf(m->report[rank].text, sizeof(m->report[rank].text), "%s", tt_error_text());
	m->report[rank].took_ms = (tt_now_ns() - before) / 1000000;
	return rc == TT_REMOTE ? 0 : 1;
}

Test(trouble, a_dial_ends_when_the_job_breaks, .timeout = 60)
{
	struct meet m = { .n = 3, .body = dial_a_stopped_rank };

	meet_start(&m);
	cr_assert(meet_all_reached(&m, 1, HOLD_MS));
	kill(m.report[1].pid, SIGSTOP);
	atomic_store(&m.report[1].stage, 2);
	for (int ms = 0; ms < HOLD_MS && !m.report[0].text[0]; ms++)
		sleep_ms(1);
	kill(m.report[1].pid, SIGKILL);
	kill(m.report[1].pid, SIGCONT);
	meet_wait(&m);
	cr_assert_eq(m.report[0].rc, 0);
	SAYS(0, "rank 2 has had enough");
	cr_assert_lt(m.report[0].took_ms, 2000);
}

/* ---- splits ------------------------------------------------------------------------------------------------------ */

static int split_and_exchange(struct meet *m, int rank, struct tt_control *ctl)
{
	int color = rank % 3 == 2 ? -1 : rank % 3, wrong = 0, new_rank = -1, n = -1, all[MEET_MOST];
	struct tt_control *part;
	int rc = tt_control_split(ctl, color, -rank, 0, 10000, &part, &new_rank, &n);

	if (rc || (color < 0) != !part) {
		snprintf(m->report[rank].text, sizeof(m->report[rank].text), "%s", tt_error_text());
		return 100;
	}
	if (part) {
		rc = tt_control_allgather(part, &rank, sizeof(rank), all, tt_deadline_ns(10000));
		for (int i = 0; i < n && !rc; i++)       /* the key turns the order round */
			wrong += all[i] % 3 != color || (i && all[i] >= all[i - 1]);
		wrong += rc || all[new_rank] != rank || n != (m->n + 2 - color) / 3;
		tt_control_leave(part);
	}
	rc = tt_control_allgather(ctl, &rank, sizeof(rank), all, tt_deadline_ns(10000));
	return wrong + (rc != 0) + (tt_control_broken(ctl) != 0);
}

Test(trouble, splits_make_controls_of_their_own_and_leave_the_parent_alone, .timeout = 60)
{
	static const int sizes[] = { 1, 2, 4, 11, 40 };

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		struct meet m = { .n = sizes[i], .body = split_and_exchange, .threads = i % 2 };

		meet_run(&m);
		for (int r = 0; r < m.n; r++)
			cr_assert(!m.report[r].joined && !m.report[r].rc, "%d ranks, rank %d: %d %s", m.n, r, m.report[r].rc,
				  m.report[r].text);
	}
}
