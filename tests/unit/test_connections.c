/*
 * test_connections.c - connections of control without failures: goodbyes, data sockets, splits
 */
#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "control/control_internal.h"
#include "tests/support/harness_control.h"
#include "base/sock.h"
#include "plan/plan.h"

#define ASSERT_TEXT(r, phrase) \
	cr_assert(strstr(m.report[r].text, phrase), "rank %d: %s", r, m.report[r].text)
#define HOLD_MS 20000

/* ---- goodbyes -------------------------------------------------------------------------------- */

/* Rank 1 leaves after operation 2. The other ranks finish operation 2, which no longer needs rank
 * 1, and fail in operation 3. */
static int leave_early(struct control_job *m, int rank, struct tt_control *ctl)
{
	int culprit;

	note_sum(ctl, 1, true);
	note_sum(ctl, 2, rank == 1);
	if (rank == 1)
		return 0;
	control_job_reached(m, 1, 1, HOLD_MS); /* rank 1 has exited */
	sleep_ms(200);
	if (tt_control_broken(ctl))
		return 3;
	tt_control_done(ctl, 2);
	atomic_store(&m->report[rank].progress, 1);
	control_job_all_reached(m, 1, HOLD_MS);
	if (rank == 0)
		note_sum(ctl, 3, false);
	return control_job_await_broken(m, rank, ctl, HOLD_MS, &culprit) == TT_REMOTE &&
			       culprit == 1
		       ? 0
		       : 1;
}

Test(connections, a_rank_that_leaves_after_an_operation_fails_only_later_operations, .timeout = 60)
{
	struct control_job m = { .n = 12, .body = leave_early };
	siginfo_t info;

	control_job_start(&m);
	cr_assert_eq(waitid(P_PID, (id_t)m.report[1].pid, &info, WEXITED | WNOWAIT), 0);
	atomic_store(&m.report[1].progress, 1);
	control_job_wait(&m);
	for (int r = 0; r < 12; r++) {
		if (r == 1)
			continue;
		cr_assert_eq(m.report[r].rc, 0, "rank %d: %d %s", r, m.report[r].rc,
			     m.report[r].text);
		ASSERT_TEXT(
			r,
			"rank 1 left after operation 2; operation 3 (allreduce of 1024 float32, sum");
	}
}

static int leave_at_once(struct control_job *m, int rank, struct tt_control *ctl)
{
	(void)m;
	sleep_ms(rank * 7 % 5);
	return tt_control_broken(ctl);
}

Test(connections, ranks_may_leave_in_any_order, .timeout = 60)
{
	for (int i = 0; i < 20; i++) {
		struct control_job m = { .n = 12, .body = leave_at_once, .threads = i % 2 };

		control_job_run(&m);
		for (int r = 0; r < 12; r++)
			cr_assert(!m.report[r].joined && !m.report[r].rc, "round %d, rank %d: %s",
				  i, r, m.report[r].text);
	}
}

/* ---- data sockets ---------------------------------------------------------------------------- */

static int await_data_socket(struct tt_control *ctl, int peer, int channel, int *ret_fd,
			     struct tt_data_keys *ret_keys)
{
	int rc = 0;

	for (int ms = 0; ms < HOLD_MS && !rc; ms++) {
		rc = tt_control_take(ctl, peer, channel, false, ret_fd, ret_keys);
		if (!rc)
			sleep_ms(1);
	}
	return rc == 1 ? 0 : rc < 0 ? rc : -1;
}

struct data_greeting {
	int from;
	struct tt_data_keys keys;
};

/* Data sockets between every two ranks on two channels; each end sends its rank and channel, and
 * the keys. No key occurs twice. */
static int data_sockets(struct control_job *m, int rank, struct tt_control *ctl)
{
	uint8_t last[32] = { 0 };
	int wrong = 0;

	for (int peer = 0; peer < m->n; peer++)
		for (int channel = 0; channel < 2 && peer != rank; channel++) {
			struct data_greeting mine = { .from = rank * 10 + channel }, theirs = { 0 };
			const struct tt_data_keys *keys = &mine.keys;
			int fd;

			if (rank < peer &&
			    tt_control_dial(ctl, peer, channel, tt_deadline_ns(HOLD_MS)))
				return 100;
			if (await_data_socket(ctl, peer, channel, &fd, &mine.keys))
				return 100;
			wrong += write(fd, &mine, sizeof(mine)) != sizeof(mine);
			/* the socket is blocking */
			wrong += read(fd, &theirs, sizeof(theirs)) != sizeof(theirs);
			wrong += theirs.from != peer * 10 + channel;
			wrong += memcmp(theirs.keys.send, keys->recv, 32) ||
				 memcmp(theirs.keys.recv, keys->send, 32);
			wrong += !memcmp(keys->send, keys->recv, 32) ||
				 !memcmp(keys->send, last, 32);
			memcpy(last, keys->send, 32);
			close(fd);
		}
	return wrong;
}

Test(connections, data_sockets_connect_every_pair_and_channel, .timeout = 60)
{
	for (int threads = 0; threads < 2; threads++) {
		struct control_job m = { .n = 5, .body = data_sockets, .threads = threads };

		control_job_run(&m);
		for (int r = 0; r < 5; r++)
			cr_assert_eq(m.report[r].rc, 0, "rank %d: %d", r, m.report[r].rc);
	}
}

static void count(void *ctx)
{
	atomic_fetch_add((atomic_int *)ctx, 1);
}

static const struct tt_control_observer wakes = { .connected = count };

static bool await_wakes(const atomic_int *woken, int n)
{
	for (int ms = 0; ms < HOLD_MS && *woken < n; ms++)
		sleep_ms(1);
	return *woken >= n;
}

/* Rank 0 dials rank 1, and then rank 2 after its deadline. */
static int wake_when_connected(struct control_job *m, int rank, struct tt_control *ctl)
{
	atomic_int woken = 0;
	struct tt_data_keys keys;
	int fd, wrong = 0;

	(void)m;
	tt_control_observe(ctl, &wakes, &woken);
	if (rank == 0)
		wrong += tt_control_dial(ctl, 1, 0, tt_deadline_ns(HOLD_MS)) != 0;
	if (rank < 2) {
		wrong += !await_wakes(&woken, 1) ||
			 tt_control_take(ctl, 1 - rank, 0, false, &fd, &keys) != 1 || close(fd);
	}
	if (rank == 0)
		wrong += tt_control_dial(ctl, 2, 0, tt_now_ns() - 1) || !await_wakes(&woken, 2) ||
			 tt_control_take(ctl, 2, 0, false, &fd, &keys) != TT_TIMEOUT;
	tt_control_unobserve(ctl, &wakes, &woken);
	return wrong;
}

Test(connections, a_data_socket_wakes_both_ranks, .timeout = 60)
{
	struct control_job m = { .n = 3, .body = wake_when_connected };

	control_job_run(&m);
	for (int r = 0; r < 3; r++)
		cr_expect_eq(m.report[r].rc, 0, "rank %d: %d", r, m.report[r].rc);
}

/* Rank 1 is stopped, so its service thread answers no handshake; rank 2 breaks the job. */
static int dial_a_stopped_rank(struct control_job *m, int rank, struct tt_control *ctl)
{
	uint64_t before = tt_now_ns();
	struct tt_data_keys keys;
	int fd, rc;

	atomic_store(&m->report[rank].progress, 1);
	if (rank == 1)
		sleep_ms(HOLD_MS);
	control_job_reached(m, 1, 2, HOLD_MS);
	if (rank == 2) {
		sleep_ms(300);
		tt_control_raise(ctl, TT_REMOTE, 2, "rank 2 breaks the job");
		return 0;
	}
	rc = tt_control_dial(ctl, 1, 0, tt_deadline_ns(HOLD_MS));
	if (!rc)
		rc = await_data_socket(ctl, 1, 0, &fd, &keys);
	snprintf(m->report[rank].text, sizeof(m->report[rank].text), "%s", tt_error_text());
	m->report[rank].took_ms = (tt_now_ns() - before) / 1000000;
	return rc == TT_REMOTE ? 0 : 1;
}

/* Stops rank 1 when all ranks have begun, and kills it when rank 0 has reported. */
static void run_beside_a_stopped_rank(struct control_job *m)
{
	control_job_start(m);
	cr_assert(control_job_all_reached(m, 1, HOLD_MS));
	control_job_stop(m, 1);
	atomic_store(&m->report[1].progress, 2);
	for (int ms = 0; ms < HOLD_MS && !m->report[0].text[0]; ms++)
		sleep_ms(1);
	kill(m->report[1].pid, SIGKILL);
	kill(m->report[1].pid, SIGCONT);
	control_job_wait(m);
}

Test(connections, a_dial_ends_when_the_job_breaks, .timeout = 60)
{
	struct control_job m = { .n = 3, .body = dial_a_stopped_rank };

	run_beside_a_stopped_rank(&m);
	cr_assert_eq(m.report[0].rc, 0);
	ASSERT_TEXT(0, "rank 2 breaks the job");
	cr_assert_lt(m.report[0].took_ms, HOLD_MS / 2);
}

/* Rank 1 is stopped. Rank 0 dials it first, and then rank 2. */
static int dial_past_a_stopped_rank(struct control_job *m, int rank, struct tt_control *ctl)
{
	struct tt_data_keys keys;
	int fd, rc;

	atomic_store(&m->report[rank].progress, 1);
	if (rank == 1)
		sleep_ms(HOLD_MS);
	control_job_reached(m, 1, 2, HOLD_MS);
	if (rank == 0 && (tt_control_dial(ctl, 1, 0, tt_deadline_ns(10 * HOLD_MS)) ||
			  tt_control_dial(ctl, 2, 0, tt_deadline_ns(10 * HOLD_MS))))
		return 1;
	rc = await_data_socket(ctl, 2 - rank, 0, &fd, &keys);
	if (!rc)
		close(fd);
	snprintf(m->report[rank].text, sizeof(m->report[rank].text), "connected");
	return rc;
}

Test(connections, a_dial_does_not_wait_for_another, .timeout = 60)
{
	struct control_job m = { .n = 3, .body = dial_past_a_stopped_rank };

	control_job_start(&m);
	cr_assert(control_job_all_reached(&m, 1, HOLD_MS));
	control_job_stop(&m, 1);
	atomic_store(&m.report[1].progress, 2);
	for (int ms = 0; ms < HOLD_MS && !(m.report[0].text[0] && m.report[2].text[0]); ms++)
		sleep_ms(1);
	kill(m.report[1].pid, SIGKILL);
	kill(m.report[1].pid, SIGCONT);
	control_job_wait(&m);
	cr_assert_eq(m.report[0].rc, 0);
	cr_assert_eq(m.report[2].rc, 0);
}

/* Rank 1 listens no more, and breaks the job a moment later. */
static int dial_a_closed_listener(struct control_job *m, int rank, struct tt_control *ctl)
{
	struct tt_data_keys keys;
	int fd, rc;

	if (rank == 1) {
		shutdown(ctl->ep->listening.listener->fd, SHUT_RDWR);
		atomic_store(&m->report[1].progress, 1);
		control_job_reached(m, 0, 1, HOLD_MS);
		sleep_ms(50);
		tt_control_raise(ctl, TT_REMOTE, 1, "rank 1 breaks the job");
		return 0;
	}
	control_job_reached(m, 1, 1, HOLD_MS);
	rc = tt_control_dial(ctl, 1, 0, tt_deadline_ns(HOLD_MS));
	atomic_store(&m->report[0].progress, 1);
	if (!rc)
		rc = await_data_socket(ctl, 1, 0, &fd, &keys);
	snprintf(m->report[0].text, sizeof(m->report[0].text), "%s", tt_error_text());
	return rc == TT_REMOTE ? 0 : 1;
}

Test(connections, a_refused_dial_gets_the_reason_that_is_on_its_way, .timeout = 60)
{
	struct control_job m = { .n = 2, .body = dial_a_closed_listener };

	control_job_run(&m);
	cr_assert_eq(m.report[0].rc, 0, "%s", m.report[0].text);
	ASSERT_TEXT(0, "rank 1 breaks the job");
}

static bool has_left(struct tt_control *ctl, int rank)
{
	bool left;

	tt_control_lock(ctl);
	left = tt_set_has(ctl->departed.left, rank);
	tt_control_unlock(ctl);
	return left;
}

/* Ranks 0, 2 and 4, the neighbors of 1 and of 3, leave; then rank 1 breaks the job. */
static int break_beyond_the_neighbors(struct control_job *m, int rank, struct tt_control *ctl)
{
	uint64_t until = tt_deadline_ns(HOLD_MS);
	atomic_bool stop = false;
	int rc = 0, culprit;

	if (rank % 2 == 0)
		return 0;
	while (tt_now_ns() < until &&
	       !(has_left(ctl, 0) && has_left(ctl, rank - 1) && has_left(ctl, rank + 1)))
		sleep_ms(1);
	if (rank == 1) {
		tt_control_raise(ctl, TT_REMOTE, -1, "rank 1 breaks the job");
		rc = tt_control_reach_rank(ctl, 3, until, &stop);
	}
	while (tt_now_ns() < until && !tt_control_broken(ctl))
		sleep_ms(1);
	snprintf(m->report[rank].text, sizeof(m->report[rank].text), "%s",
		 tt_control_text(ctl, &culprit));
	atomic_store(&m->report[rank].progress, 1);
	control_job_reached(m, 4 - rank, 1, HOLD_MS);
	return rc;
}

Test(connections, a_new_connection_tells_what_has_broken, .timeout = 60)
{
	struct control_job m = { .n = 5, .body = break_beyond_the_neighbors };

	control_job_run(&m);
	cr_assert_eq(m.report[1].rc, 0, "%s", m.report[1].text);
	ASSERT_TEXT(3, "rank 1 breaks the job");
}

/* Rank 6 connects to rank 3, which has begun to leave. The goodbye comes on that connection,
 * which therefore ends without a death, before the flood of the goodbye arrives. */
static int connect_to_one_that_leaves(struct control_job *m, int rank, struct tt_control *ctl)
{
	uint64_t until = tt_deadline_ns(HOLD_MS);
	atomic_bool stop = false;
	bool over = false;
	int rc;

	if (rank == 3) {
		tt_control_lock(ctl);
		ctl->departed.leaving = true;
		tt_control_unlock(ctl);
		atomic_store(&m->report[3].progress, 1);
	}
	if (rank != 6)
		return control_job_reached(m, 6, 1, HOLD_MS) ? 0 : 1;
	control_job_reached(m, 3, 1, HOLD_MS);
	rc = tt_control_reach_rank(ctl, 3, until, &stop);
	while (!rc && !over && tt_now_ns() < until) {
		sleep_ms(1);
		tt_control_lock(ctl);
		over = tt_set_has(ctl->departed.over, 3) && !tt_control_is_connected(ctl, 3);
		tt_control_unlock(ctl);
	}
	atomic_store(&m->report[6].progress, 1);
	return rc                                                                      ? rc
	       : over && !tt_set_has(ctl->departed.dead, 3) && !tt_control_broken(ctl) ? 0
										       : 1;
}

Test(connections, one_made_while_the_other_side_leaves_ends_without_a_death, .timeout = 60)
{
	struct control_job m = { .n = 8, .body = connect_to_one_that_leaves };

	control_job_run(&m);
	for (int r = 0; r < 8; r++)
		cr_assert_eq(m.report[r].rc, 0, "rank %d: %s", r, m.report[r].text);
}

/* Rank 1 is stopped and rank 2 is not: the dial of rank 1 fails at its deadline, and stays failed. */
static int dial_until_the_deadline(struct control_job *m, int rank, struct tt_control *ctl)
{
	struct tt_data_keys keys;
	int fd, rc;

	atomic_store(&m->report[rank].progress, 1);
	if (rank == 1)
		sleep_ms(HOLD_MS);
	control_job_reached(m, 1, 2, HOLD_MS);
	if (rank == 2)
		return await_data_socket(ctl, 0, 0, &fd, &keys);
	rc = tt_control_dial(ctl, 2, 0, tt_deadline_ns(HOLD_MS));
	if (rc || await_data_socket(ctl, 2, 0, &fd, &keys) ||
	    tt_control_dial(ctl, 1, 0, tt_deadline_ns(300)))
		return 100;
	rc = await_data_socket(ctl, 1, 0, &fd, &keys);
	snprintf(m->report[rank].text, sizeof(m->report[rank].text), "%s", tt_error_text());
	return rc == TT_TIMEOUT && tt_control_take(ctl, 1, 0, false, &fd, &keys) == rc ? 0 : 1;
}

#define REACHING 32

struct reacher {
	struct tt_control *ctl;
	int rc;
	char text[1000];
};

/* Rank 5 is no neighbor of rank 3. */
static void *reach_rank_3(void *arg)
{
	struct reacher *r = arg;

	r->rc = tt_control_reach(r->ctl, 3, 5, 3, tt_deadline_ns(HOLD_MS));
	if (r->rc)
		snprintf(r->text, sizeof(r->text), "%s", tt_error_text());
	return NULL;
}

static int reach_at_once(struct control_job *m, int rank, struct tt_control *ctl)
{
	struct reacher r[REACHING];
	pthread_t thread[REACHING];
	int failed = 0, most;

	for (int i = 0; i < REACHING && rank == 5; i++) {
		r[i].ctl = ctl;
		failed += pthread_create(&thread[i], NULL, reach_rank_3, &r[i]) != 0;
	}
	for (int i = 0; i < REACHING && rank == 5 && !failed; i++) {
		pthread_join(thread[i], NULL);
		if (r[i].rc)
			snprintf(m->report[5].text, sizeof(m->report[5].text), "%s", r[i].text);
	}
	failed += *m->report[rank].text != 0;
	if (tt_control_allgather(ctl, NULL, 0, NULL, tt_deadline_ns(HOLD_MS)))
		return 1;
	tt_control_lock(ctl);
	most = rank == 3 ? tt_conns_of(ctl->ep, 5) : 1;
	tt_control_unlock(ctl);
	if (most < 1 || most > TT_PEER_CONNS)
		failed += snprintf(m->report[rank].text, sizeof(m->report[rank].text),
				   "%d connections", most);
	/* no rank leaves before */
	return failed || tt_control_allgather(ctl, NULL, 0, NULL, tt_deadline_ns(HOLD_MS));
}

/* Beyond the connections that rank 3 takes of rank 5, threads use one that another has made. */
Test(connections, threads_that_dial_a_rank_at_once_are_all_connected, .timeout = 60)
{
	for (int threads = 0; threads < 2; threads++) {
		struct control_job m = { .n = 12, .threads = threads, .body = reach_at_once };

		control_job_run(&m);
		for (int r = 0; r < m.n; r++)
			cr_assert(m.report[r].joined == 0 && m.report[r].rc == 0,
				  "rank %d: %d %d %s", r, m.report[r].joined, m.report[r].rc,
				  m.report[r].text);
	}
}

Test(connections, a_dial_that_fails_names_the_rank_and_its_addresses, .timeout = 60)
{
	struct control_job m = { .n = 3, .body = dial_until_the_deadline };

	run_beside_a_stopped_rank(&m);
	cr_assert_eq(m.report[0].rc, 0, "%s", m.report[0].text);
	cr_assert_eq(m.report[2].rc, 0);
	ASSERT_TEXT(0, "cannot be reached; tried 127.0.0.1:");
}

/* Rank 0 dials when the time is over, as on an overloaded host. */
static int dial_too_late(struct control_job *m, int rank, struct tt_control *ctl)
{
	struct tt_data_keys keys;
	int fd, rc;

	if (rank == 0 && tt_control_dial(ctl, 1, 0, tt_now_ns() - 1))
		return 100;
	if (rank == 0) {
		rc = await_data_socket(ctl, 1, 0, &fd, &keys);
		snprintf(m->report[0].text, sizeof(m->report[0].text), "%s", tt_error_text());
		atomic_store(&m->report[0].progress, 2);
		return rc == TT_TIMEOUT ? 0 : 1;
	}
	control_job_reached(m, 0, 2, HOLD_MS);
	return 0;
}

Test(connections, a_dial_after_the_deadline_says_so, .timeout = 60)
{
	struct control_job m = { .n = 2, .body = dial_too_late };

	control_job_run(&m);
	cr_assert_eq(m.report[0].rc, 0, "%s", m.report[0].text);
	ASSERT_TEXT(0, "the time to connect was over before this rank came to dial rank 1");
}

static bool is_rank_0(int rank)
{
	return rank == 0;
}

/* Rank 1 looks for rank 0 in its own network namespace, where something listens that never answers. */
Test(connections, a_slow_listener_of_this_host_gets_one_connection, .timeout = 60)
{
	struct control_job m = { .n = 2, .has_id = true, .absent = is_rank_0, .timeout_ms = 1000 };
	int listener, port, fd[2];
	struct tt_id id;

	cr_assert_eq(tt_id_make("", "", &m.id), 0, "%s", tt_error_text());
	cr_assert_eq(tt_id_unpack(&m.id, &id), 0);
	cr_assert_eq(tt_sock_listen(id.port, &listener, &port), 0, "%s", tt_error_text());
	control_job_run(&m);
	cr_assert_eq(m.report[1].joined, TT_TIMEOUT, "%s", m.report[1].text);
	ASSERT_TEXT(1, "tried 127.0.0.1:");
	cr_assert_null(strstr(m.report[1].text, "(not tried)"), "%s", m.report[1].text);
	for (int i = 0; i < 2; i++)
		fd[i] = accept4(listener, NULL, NULL, SOCK_NONBLOCK);
	cr_assert(fd[0] >= 0);
	cr_assert(fd[1] < 0, "rank 1 connected twice");
	close(fd[0]);
	tt_sock_close(listener);
	tt_id_release(id.port);
}

/* ---- splits ---------------------------------------------------------------------------------- */

static int split_and_exchange(struct control_job *m, int rank, struct tt_control *ctl)
{
	int color = rank % 3 == 2 ? -1 : rank % 3, wrong = 0, all[CONTROL_JOB_MOST];
	struct tt_members members;
	struct tt_control *part;
	int rc = tt_control_split(ctl, color, -rank, 0, 10000, NULL, 0, &part, &members);
	int new_rank = members.rank, n = members.map.n;

	tt_control_formed(ctl);
	tt_rank_map_free(&members.map);
	if (rc || (color < 0) != !part) {
		snprintf(m->report[rank].text, sizeof(m->report[rank].text), "%s", tt_error_text());
		return 100;
	}
	if (part) {
		rc = tt_control_allgather(part, &rank, sizeof(rank), all, tt_deadline_ns(10000));
		for (int i = 0; i < n && !rc; i++) /* the key reverses the order */
			wrong += all[i] % 3 != color || (i && all[i] >= all[i - 1]);
		if (rc)
			snprintf(m->report[rank].text, sizeof(m->report[rank].text), "%s",
				 tt_error_text());
		wrong += rc || all[new_rank] != rank || n != (m->n + 2 - color) / 3;
		tt_control_leave(part);
	}
	rc = tt_control_allgather(ctl, &rank, sizeof(rank), all, tt_deadline_ns(10000));
	return wrong + (rc != 0) + (tt_control_broken(ctl) != 0);
}

Test(connections, splits_make_separate_controls_and_do_not_change_the_parent, .timeout = 60)
{
	static const int sizes[] = { 1, 2, 4, 11, 40 };

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		struct control_job m = { .n = sizes[i],
					 .body = split_and_exchange,
					 .threads = i % 2 };

		control_job_run(&m);
		for (int r = 0; r < m.n; r++)
			cr_assert(!m.report[r].joined && !m.report[r].rc,
				  "%d ranks, rank %d: %d %s", m.n, r, m.report[r].rc,
				  m.report[r].text);
	}
}
