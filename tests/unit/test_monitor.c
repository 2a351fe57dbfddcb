/*
 * test_monitor.c - monitors: the bytes of a report, reports of jobs in every state, monitors that are
 * strangers, silent, loud or many; top.sh asks jobs by `tutti top`
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "control/control_internal.h"
#include "control/monitor.h"
#include "tests/support/harness_control.h"

TestSuite(monitor, .timeout = 60);

#define HOLD_MS 30000

/* ---- bytes ----------------------------------------------------------------------------------- */

static const struct tt_comm_report a_comm = { .mark = 0xab,
					      .name = "world",
					      .rank = 1,
					      .nranks = 2,
					      .failed = true,
					      .error = "rank 1 died" };
static const struct tt_rank_report ranks[2] = {
	{ TT_RANK_ANSWERS,
	  100,
	  "node7",
	  9,
	  8,
	  5,
	  1,
	  "operation 9 (barrier)",
	  "send of",
	  true,
	  { { 1 }, { 2 }, { 3 } } },
	{ TT_RANK_DEAD, 101, "node8", 0, 0, 0, -1, "", "", false, { { 0 }, { 0 }, { 0 } } },
};

static const struct tt_business_card a_server = { .rank = 3,
						  .port = 4000,
						  .naddresses = 1,
						  .pid = 7,
						  .name = "node9",
						  .public_key = { 1 },
						  .addresses = {
							  { .family = 4, .bytes = { 10 } } } };

static struct tt_writer written(void)
{
	struct tt_writer w = { 0 };

	tt_put(&w, 1, 4);
	tt_put(&w, 3, 4);
	tt_put_comm_report(&w, &a_comm);
	for (int r = 0; r < 2; r++)
		tt_put_rank_report(&w, &ranks[r]);
	tt_put(&w, 1, 4);
	tt_put_business_card(&w, &a_server);
	return w;
}

Test(monitor, a_report_is_read_as_it_was_written)
{
	struct tt_writer w = written();
	struct tt_job_report got;
	const struct tt_comm_report *c;

	cr_assert(tt_get_job_report(w.data, w.have, &got));
	cr_assert_eq(got.ncomms, 1);
	cr_expect_eq(got.left_out, 3);
	c = got.comms;
	cr_expect(c->mark == 0xab && c->rank == 1 && c->nranks == 2 && c->failed);
	cr_expect_str_eq(c->name, "world");
	cr_expect_str_eq(c->error, "rank 1 died");
	for (int r = 0; r < 2; r++)
		cr_expect_eq(memcmp(&c->ranks[r], &ranks[r], sizeof(ranks[r])), 0, "rank %d", r);
	cr_assert_eq(got.nservers, 1);
	cr_expect_eq(memcmp(got.servers, &a_server, sizeof(a_server)), 0);
	tt_job_report_free(&got);
	free(w.data);
}

Test(monitor, a_report_that_is_cut_or_announces_too_much_is_malformed)
{
	struct tt_writer w = written();
	struct tt_job_report got;

	for (size_t bytes = 0; bytes < w.have; bytes++) {
		uint8_t *part = malloc(bytes + 1); /* so that a sanitizer sees a read behind it */

		memcpy(part, w.data, bytes);
		cr_expect_not(tt_get_job_report(part, bytes, &got), "%zu bytes", bytes);
		free(part);
	}
	memset(w.data, 0x7f, 4); /* communicators */
	cr_expect_not(tt_get_job_report(w.data, w.have, &got));
	free(w.data);
}

/* ---- jobs ------------------------------------------------------------------------------------ */

/* Each rank has ended one sum; all but the last one are in another. */
static int compute(struct control_job *m, int rank, struct tt_control *ctl)
{
	int rc;

	note_sum(ctl, 1, true);
	if (rank < m->n - 1)
		note_sum(ctl, 2, false);
	atomic_store(&m->report[rank].progress, 1);
	control_job_reached(m, rank, 2, HOLD_MS);
	rc = tt_control_broken(ctl);
	atomic_store(&m->report[rank].progress, 3);
	control_job_all_reached(m, 3, HOLD_MS); /* else the last one leaves without sum 2 */
	return rc;
}

static void begin(struct control_job *m)
{
	control_job_start(m);
	cr_assert(control_job_all_reached(m, 1, HOLD_MS));
}

/* No rank has noticed anything. */
static void end(struct control_job *m)
{
	for (int r = 0; r < m->n; r++)
		atomic_store(&m->report[r].progress, 2);
	control_job_wait(m);
	for (int r = 0; r < m->n; r++)
		cr_expect(!m->report[r].joined && !m->report[r].rc, "rank %d: %s", r,
			  m->report[r].text);
}

static void expect_states(const struct control_job *m, int silent)
{
	struct tt_job_report report;

	cr_assert_eq(tt_monitor_ask(&m->id, &report), 0, "%s", tt_error_text());
	cr_assert_eq(report.ncomms, 1);
	cr_assert_eq(report.comms[0].nranks, m->n);
	for (int r = 0; r < m->n; r++) {
		const struct tt_rank_report *rank = &report.comms[0].ranks[r];
		uint64_t started = r < m->n - 1 ? 2 : 1;

		cr_expect_eq(rank->state, r == silent ? TT_RANK_SILENT : TT_RANK_ANSWERS, "%d", r);
		if (r == silent)
			continue;
		cr_expect_eq(rank->pid, m->threads ? getpid() : m->report[r].pid);
		cr_expect_eq(rank->started, started, "rank %d", r);
		cr_expect_eq(rank->finished, 1, "rank %d", r);
		cr_expect(started == 1 ||
				  strstr(rank->collective, "operation 2 (allreduce of 1024"),
			  "%s", rank->collective);
		cr_expect_not(rank->counted);
	}
	tt_job_report_free(&report);
}

Test(monitor, a_report_has_the_calls_of_all_processes)
{
	struct control_job m = { .n = 12, .body = compute };

	begin(&m);
	expect_states(&m, -1);
	expect_states(&m, -1);
	end(&m);
}

Test(monitor, a_report_has_the_calls_of_threads)
{
	struct control_job m = { .n = 12, .body = compute, .threads = true };

	begin(&m);
	expect_states(&m, -1);
	end(&m);
}

Test(monitor, a_stopped_rank_is_silent_within_3_s_also_above_others_in_the_tree)
{
	struct control_job m = { .n = 12, .body = compute };
	uint64_t began;

	begin(&m);
	control_job_stop(&m, 1);
	began = tt_now_ns();
	expect_states(&m, 1);
	cr_expect_lt(tt_now_ns() - began, 3 * TT_SECOND);
	kill(m.report[1].pid, SIGCONT);
	end(&m);
}

Test(monitor, a_stopped_rank_0_is_named_within_3_s)
{
	struct control_job m = { .n = 2, .body = compute };
	uint64_t began;
	struct tt_job_report report;

	begin(&m);
	control_job_stop(&m, 0);
	began = tt_now_ns();
	cr_expect_eq(tt_monitor_ask(&m.id, &report), TT_TIMEOUT);
	cr_expect_not_null(strstr(tt_error_text(), "rank 0 accepts the connection and does not"));
	cr_expect_lt(tt_now_ns() - began, 3 * TT_SECOND);
	kill(m.report[0].pid, SIGCONT);
	end(&m);
}

static int die(struct control_job *m, int rank, struct tt_control *ctl)
{
	int culprit;

	atomic_store(&m->report[rank].progress, 1);
	if (rank == 2) {
		control_job_all_reached(m, 1, HOLD_MS); /* else a death ends another rank's join */
		raise(SIGKILL);
	}
	control_job_await_broken(m, rank, ctl, HOLD_MS, &culprit);
	atomic_store(&m->report[rank].progress, 2);
	control_job_reached(m, rank, 3, HOLD_MS);
	return 0;
}

Test(monitor, a_failed_job_reports_its_error_and_its_dead_rank)
{
	struct control_job m = { .n = 3, .body = die };
	struct tt_job_report report;

	begin(&m);
	cr_assert(control_job_reached(&m, 0, 2, HOLD_MS));
	cr_assert_eq(tt_monitor_ask(&m.id, &report), 0, "%s", tt_error_text());
	cr_expect(report.comms[0].failed);
	cr_expect_not_null(strstr(report.comms[0].error, "rank 2"), "%s", report.comms[0].error);
	cr_expect_eq(report.comms[0].ranks[2].state, TT_RANK_DEAD);
	cr_expect_eq(report.comms[0].ranks[1].state, TT_RANK_ANSWERS);
	tt_job_report_free(&report);
	for (int r = 0; r < m.n; r++)
		atomic_store(&m.report[r].progress, 3);
	control_job_wait(&m);
}

static void late(struct control_job *m, int rank, struct tt_join *join)
{
	(void)join;
	if (rank != 1)
		return;
	control_job_reached(m, 0, 1, HOLD_MS); /* by the test, since rank 0 waits for this rank */
	atomic_store(&m->report[0].progress, 0);
}

Test(monitor, a_job_that_joins_still_says_so)
{
	struct control_job m = { .n = 2, .body = compute, .before = late };
	struct tt_job_report report;
	int rc;

	control_job_start(&m);
	do
		rc = tt_monitor_ask(&m.id, &report);
	while (rc && strstr(tt_error_text(), "has not begun"));
	cr_expect_eq(rc, TT_REMOTE);
	cr_expect_not_null(strstr(tt_error_text(), "have not all joined yet"), "%s",
			   tt_error_text());
	atomic_store(&m.report[0].progress, 1);
	cr_assert(control_job_reached(&m, 1, 1, HOLD_MS));
	cr_assert(control_job_reached(&m, 0, 1, HOLD_MS));
	end(&m);
}

/* ---- strangers and bad monitors ---------------------------------------------------------------- */

Test(monitor, another_secret_is_refused_in_words)
{
	struct control_job m = { .n = 2, .body = compute };
	struct tt_job_report report;
	tuttiUniqueId other;
	struct tt_id id;

	begin(&m);
	cr_assert_eq(tt_id_unpack(&m.id, &id), 0);
	id.secret[3] ^= 1;
	tt_id_pack(&id, &other);
	cr_expect_eq(tt_monitor_ask(&other, &report), TT_REMOTE);
	cr_expect_not_null(strstr(tt_error_text(), "uses a different secret"), "%s",
			   tt_error_text());
	id.secret[3] ^= 1;
	id.nonce[0] ^= 1;
	tt_id_pack(&id, &other);
	cr_expect_eq(tt_monitor_ask(&other, &report), TT_REMOTE);
	cr_expect_not_null(strstr(tt_error_text(), "another job"), "%s", tt_error_text());
	end(&m);
}

static struct tt_control_endpoint *identity_of(const struct control_job *m, struct tt_id *ret_id)
{
	struct tt_control_endpoint *ep;

	cr_assert_eq(tt_id_unpack(&m->id, ret_id), 0);
	cr_assert_eq(tt_endpoint_make(TT_MONITOR, 2, &ep), 0);
	cr_assert_eq(tt_endpoint_authenticate(ep, ret_id), 0);
	cr_assert_eq(tt_endpoint_tls(ep), 0);
	return ep;
}

static void await_bytes(const struct tt_tls *tls)
{
	struct pollfd pfd = { .fd = tt_tls_fd(tls), .events = POLLIN };

	cr_assert_eq(poll(&pfd, 1, HOLD_MS), 1);
}

/* A monitor up to its verdict */
static struct tt_tls *monitor(const struct control_job *m, int *ret_verdict)
{
	struct tt_hello hello = { .purpose = TT_P_MONITOR, .from = TT_MONITOR };
	struct tt_patience patience = { .deadline_ns = tt_deadline_ns(HOLD_MS) };
	struct tt_verdict_message verdict;
	struct tt_hello_message message;
	struct tt_sock_target to = { .address = tt_loopback4 };
	struct tt_id id;
	struct tt_control_endpoint *ep = identity_of(m, &id);
	struct tt_tls *tls;
	int i, fd;

	to.port = id.port;
	cr_assert_eq(tt_sock_happy_eyeballs(&to, 1, &patience, &i, &fd), 0, "%s", to.why);
	tls = tt_tls_client(ep->auth.tls, fd, (uint8_t[TT_PUBLIC_KEY]){ 0 });
	while (!(i = tt_tls_handshake(tls)))
		await_bytes(tls);
	cr_assert_eq(i, 1, "%s", tt_error_text());
	tt_hello_put(&hello, message.hello);
	cr_assert(tt_hello_sign(ep, tls, &message));
	cr_assert_eq(tt_tls_send(tls, &message, sizeof(message)), (ssize_t)sizeof(message));
	await_bytes(tls);
	cr_assert_eq(tt_tls_recv(tls, &verdict, sizeof(verdict)), (ssize_t)sizeof(verdict));
	*ret_verdict = verdict.verdict;
	tt_endpoint_free(ep);
	return tls;
}

/* All bytes until the end of the connection */
static size_t read_all(struct tt_tls *tls)
{
	char data[4096];
	size_t bytes = 0;
	ssize_t n;

	do {
		n = tt_tls_recv(tls, data, sizeof(data));
		bytes += n > 0 ? (size_t)n : 0;
		if (n < 0 && errno == EAGAIN)
			await_bytes(tls);
	} while (n > 0 || (n < 0 && errno == EAGAIN));
	return bytes;
}

Test(monitor, four_ask_at_a_time_and_others_wait_for_a_place)
{
	struct control_job m = { .n = 3, .body = compute };
	struct tt_tls *tls[5];
	int verdict;

	begin(&m);
	control_job_stop(&m, 2); /* so that reports take a while */
	for (int i = 0; i < 4; i++) {
		tls[i] = monitor(&m, &verdict);
		cr_expect_eq(verdict, TT_V_WELCOME);
	}
	tls[4] = monitor(&m, &verdict);
	cr_expect_eq(verdict, TT_V_BUSY);
	expect_states(&m, 2);
	for (int i = 0; i < 4; i++)
		cr_expect_gt(read_all(tls[i]), 100, "monitor %d", i);
	for (int i = 0; i < 5; i++)
		tt_tls_close(tls[i]);
	kill(m.report[2].pid, SIGCONT);
	end(&m);
}

Test(monitor, bytes_of_a_monitor_end_its_own_connection_only)
{
	struct control_job m = { .n = 3, .body = compute };
	struct tt_tls *loud, *quiet;
	int verdict;

	begin(&m);
	control_job_stop(&m, 2);
	loud = monitor(&m, &verdict);
	quiet = monitor(&m, &verdict);
	cr_assert_eq(tt_tls_send(loud, "status", 6), 6);
	cr_expect_eq(read_all(loud), 0);
	cr_expect_gt(read_all(quiet), 100);
	tt_tls_close(loud);
	tt_tls_close(quiet);
	kill(m.report[2].pid, SIGCONT);
	expect_states(&m, -1);
	end(&m);
}

Test(monitor, monitors_that_go_at_once_leave_their_places)
{
	struct control_job m = { .n = 3, .body = compute };
	int verdict;

	begin(&m);
	for (int i = 0; i < 20; i++)
		tt_tls_close(monitor(&m, &verdict));
	expect_states(&m, -1);
	end(&m);
}

/* ---- files of ids ------------------------------------------------------------------------------ */

Test(monitor, an_id_is_found_in_a_file_of_its_user_alone)
{
	char folder[] = "/tmp/tutti-test-XXXXXX", copy[4096];
	tuttiUniqueId id, got;
	char *path = NULL;
	struct stat st;
	FILE *f;

	cr_assert_not_null(mkdtemp(folder));
	cr_assert_eq(tt_id_make("", "", &id), 0);
	cr_assert_eq(tt_id_file_write(folder, &id, &path), 0, "%s", tt_error_text());
	cr_assert(!stat(path, &st) && (st.st_mode & 0777) == 0600);
	cr_assert_eq(tt_id_file_read(path, &got), 0, "%s", tt_error_text());
	cr_expect_eq(memcmp(&id, &got, sizeof(id)), 0);
	f = fopen(path, "r+");
	fputc('x', f);
	fclose(f);
	cr_expect_eq(tt_id_file_read(path, &got), TT_ARG);
	snprintf(copy, sizeof(copy), "%s", path);
	tt_id_file_remove(path);
	cr_expect_eq(tt_id_file_read(copy, &got), TT_ARG);
	cr_expect_eq(tt_id_file_write("/nowhere", &id, &path), TT_ARG);
	cr_expect_not_null(strstr(tt_error_text(), "TUTTI_TOP=/nowhere: "), "%s", tt_error_text());
	cr_expect_eq(rmdir(folder), 0);
}

Test(monitor, a_file_that_other_users_can_read_is_refused)
{
	char folder[] = "/tmp/tutti-test-XXXXXX";
	tuttiUniqueId id, got;
	char *path = NULL;

	cr_assert_not_null(mkdtemp(folder));
	cr_assert_eq(tt_id_make("", "", &id), 0);
	cr_assert_eq(tt_id_file_write(folder, &id, &path), 0, "%s", tt_error_text());
	cr_assert_eq(chmod(path, 0640), 0);
	cr_expect_eq(tt_id_file_read(path, &got), TT_ARG);
	cr_expect_not_null(strstr(tt_error_text(), "mode 640"), "%s", tt_error_text());
	tt_id_file_remove(path);
	cr_expect_eq(rmdir(folder), 0);
}

Test(monitor, communicators_of_one_job_share_a_file_that_the_last_one_removes)
{
	char folder[] = "/tmp/tutti-test-XXXXXX";
	tuttiUniqueId id, got;
	char *first = NULL, *second = NULL;

	cr_assert_not_null(mkdtemp(folder));
	cr_assert_eq(tt_id_make("", "", &id), 0);
	cr_assert_eq(tt_id_file_write(folder, &id, &first), 0, "%s", tt_error_text());
	cr_assert_eq(tt_id_file_write(folder, &id, &second), 0, "%s", tt_error_text());
	cr_expect_str_eq(first, second);
	tt_id_file_remove(first);
	cr_expect_eq(tt_id_file_read(second, &got), 0, "%s", tt_error_text());
	tt_id_file_remove(second);
	cr_expect_eq(rmdir(folder), 0);
}

Test(monitor, a_file_that_cannot_be_written_whole_leaves_nothing)
{
	char folder[] = "/tmp/tutti-test-XXXXXX";
	struct rlimit limit, small;
	char *path = NULL;
	tuttiUniqueId id;

	cr_assert_not_null(mkdtemp(folder));
	cr_assert_eq(tt_id_make("", "", &id), 0);
	signal(SIGXFSZ, SIG_IGN);
	getrlimit(RLIMIT_FSIZE, &limit);
	small = limit;
	small.rlim_cur = 100;
	setrlimit(RLIMIT_FSIZE, &small);
	cr_expect_eq(tt_id_file_write(folder, &id, &path), TT_SYSTEM);
	setrlimit(RLIMIT_FSIZE, &limit);
	cr_expect_null(path);
	cr_expect_eq(rmdir(folder), 0, "a part of the id is left");
}
