/*
 * test_dials.c - outstanding dials: a call connects to a rank, and its deadline comes before the answer
 */
#include <criterion/criterion.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#include "control/control_internal.h"
#include "tests/support/descriptors.h"
#include "tests/support/harness_control.h"

#define CLIENT 3 /* no neighbor of: */
#define SERVER 6
#define RANKS 12
#define LIMIT_MS 20000
#define SHORT_MS 20
#define CALLS 5

enum {
	BUSY = 1,
	ASKED,
	LEAVES,
	DIALED,
	CONNECTED,
	DONE
}; /* progress: of the server; the client (3 times); the server; both */

/* ---- calls of the library that the tests count or delay ---------------------------------------- */

int __real_poll(struct pollfd *pfds, nfds_t n, int wait_ms);
int __wrap_poll(struct pollfd *pfds, nfds_t n, int wait_ms);
enum tt_verdict __real_tt_hello_check(const struct tt_control_endpoint *ep, struct tt_tls *tls,
				      const struct tt_hello *hello,
				      const struct tt_hello_message *message);
enum tt_verdict __wrap_tt_hello_check(const struct tt_control_endpoint *ep, struct tt_tls *tls,
				      const struct tt_hello *hello,
				      const struct tt_hello_message *message);

/* of this thread: polls in which nothing happened */
static _Thread_local int waited_ms;

int __wrap_poll(struct pollfd *pfds, nfds_t n, int wait_ms)
{
	int rc = __real_poll(pfds, n, wait_ms);

	waited_ms += rc ? 0 : wait_ms;
	return rc;
}

/* The service thread of the server does not answer the client's hello before the client is DIALED. */
static struct control_job *_Atomic delayed; /* NULL: it answers */
static bool hello_is_answered;              /* locked */

enum tt_verdict __wrap_tt_hello_check(const struct tt_control_endpoint *ep, struct tt_tls *tls,
				      const struct tt_hello *hello,
				      const struct tt_hello_message *message)
{
	if (delayed && hello->from == CLIENT && hello->purpose == TT_P_CONTROL) {
		control_job_reached(delayed, CLIENT, DIALED, LIMIT_MS);
		hello_is_answered = true;
	}
	return __real_tt_hello_check(ep, tls, hello, message);
}

/* ---- the client ------------------------------------------------------------------------------ */

/* Calls end in time; each goes on with the dial of the one before. Returns 1 for a fault. */
static int dial_in_vain(struct tt_control *ctl)
{
	const struct tt_tls *first = NULL;
	atomic_bool stop = false;
	int wrong = 0;

	for (int i = 0; i < CALLS; i++) {
		int rc = tt_control_reach_rank(ctl, SERVER, tt_deadline_ns(SHORT_MS), &stop);
		struct tt_outstanding_dial *d;

		tt_control_lock(ctl);
		d = ctl->ep->peers.outstanding;
		wrong |= rc != TT_TIMEOUT || (d && (d->next || d->attempt.nrunning != 1));
		if (d && first)
			wrong |= d->attempt.running[0].tls != first;
		first = d ? d->attempt.running[0].tls : first;
		tt_control_unlock(ctl);
	}
	return wrong || !first;
}

static bool has_outstanding(struct tt_control *ctl)
{
	bool any;

	tt_control_lock(ctl);
	any = ctl->ep->peers.outstanding != NULL;
	tt_control_unlock(ctl);
	return any;
}

static bool is_connected(struct tt_control *ctl, int rank)
{
	bool connected;

	tt_control_lock(ctl);
	connected = tt_control_is_connected(ctl, rank);
	tt_control_unlock(ctl);
	return connected;
}

/* Waits until the dial has ended. false: it has not */
static bool ends(struct tt_control *ctl)
{
	uint64_t until = tt_deadline_ns(LIMIT_MS);

	while (has_outstanding(ctl) && tt_now_ns() < until)
		sleep_ms(1);
	return !has_outstanding(ctl);
}

/* The thread of this rank, a server, has no lock until the client's calls have ended. */
static void keep_client_waiting(struct control_job *m, int rank, struct tt_control *ctl)
{
	tt_control_lock(ctl);
	m->report[rank].progress = BUSY;
	control_job_reached(m, CLIENT, DIALED, LIMIT_MS);
	if (m->arg && *(const bool *)m->arg)
		raise(SIGKILL);
	tt_control_unlock(ctl);
}

/* ---- the server answers later ---------------------------------------------------------------- */

static int answer_late(struct control_job *m, int rank, struct tt_control *ctl)
{
	int descriptors = count_descriptors(), wrong = 0;

	if (rank == SERVER)
		keep_client_waiting(m, rank, ctl);
	if (rank == CLIENT && control_job_reached(m, SERVER, BUSY, LIMIT_MS)) {
		wrong = dial_in_vain(ctl) || count_descriptors() != descriptors + 1;
		m->report[CLIENT].progress = DIALED;
		wrong |= !ends(ctl) || !is_connected(ctl, SERVER) ||
			 !control_job_reached(m, SERVER, CONNECTED, LIMIT_MS);
		m->report[CLIENT].progress = DONE;
	}
	while (rank == SERVER && !is_connected(ctl, CLIENT))
		sleep_ms(1);
	if (rank == SERVER)
		m->report[SERVER].progress = CONNECTED;
	return wrong || !control_job_reached(m, CLIENT, DONE, LIMIT_MS);
}

Test(dials, one_whose_calls_timed_out_brings_the_connection_when_the_server_answers, .timeout = 60)
{
	struct control_job m = { .n = RANKS, .body = answer_late };

	control_job_run(&m);
	for (int r = 0; r < RANKS; r++)
		cr_assert_eq(m.report[r].rc, 0, "rank %d: %s", r, m.report[r].text);
}

/* ---- the server never answers ---------------------------------------------------------------- */

/* The server dies (arg), or does nothing for longer than a dial may last. */
static int never_answer(struct control_job *m, int rank, struct tt_control *ctl)
{
	int descriptors = count_descriptors(), wrong;
	bool dies = *(const bool *)m->arg;

	if (rank == SERVER)
		keep_client_waiting(m, rank, ctl);
	if (rank != CLIENT)
		return !control_job_reached(m, CLIENT, DONE, LIMIT_MS);
	control_job_reached(m, SERVER, BUSY, LIMIT_MS);
	wrong = dial_in_vain(ctl);
	tt_control_lock(ctl);
	for (struct tt_outstanding_dial *d = ctl->ep->peers.outstanding; d && !dies; d = d->next)
		d->attempt.end_ns = tt_now_ns();
	tt_control_unlock(ctl);
	if (dies)
		m->report[CLIENT].progress = DIALED;
	wrong |= !ends(ctl) || is_connected(ctl, SERVER) ||
		 (!dies && count_descriptors() != descriptors);
	m->report[CLIENT].progress = DONE;
	return wrong;
}

Test(dials, one_to_a_rank_that_dies_ends, .timeout = 60)
{
	struct control_job m = { .n = RANKS, .body = never_answer, .arg = &(bool){ true } };

	control_job_run(&m);
	cr_assert_eq(m.report[CLIENT].rc, 0, "%s", m.report[CLIENT].text);
}

Test(dials, one_to_a_rank_that_does_not_answer_ends_after_a_time_of_its_own, .timeout = 60)
{
	struct control_job m = { .n = RANKS, .body = never_answer, .arg = &(bool){ false } };

	control_job_run(&m);
	cr_assert_eq(m.report[CLIENT].rc, 0, "%s", m.report[CLIENT].text);
}

/* ---- a call's deadline ----------------------------------------------------------------------- */

static int wait_once(struct control_job *m, int rank, struct tt_control *ctl)
{
	atomic_bool stop = false;
	int wrong = 0;

	if (rank == SERVER)
		keep_client_waiting(m, rank, ctl);
	if (rank == CLIENT && control_job_reached(m, SERVER, BUSY, LIMIT_MS)) {
		waited_ms = 0;
		wrong = tt_control_reach_rank(ctl, SERVER, tt_deadline_ns(SHORT_MS), &stop) !=
				TT_TIMEOUT ||
			waited_ms > SHORT_MS + 1;
		snprintf(m->report[CLIENT].text, sizeof(m->report[CLIENT].text),
			 "polls waited %d ms", waited_ms);
		m->report[CLIENT].progress = DIALED;
	}
	return wrong || !control_job_reached(m, CLIENT, DIALED, LIMIT_MS);
}

Test(dials, a_call_does_not_wait_for_a_handshake_beyond_its_deadline, .timeout = 60)
{
	struct control_job m = { .n = RANKS, .body = wait_once };

	control_job_run(&m);
	cr_assert_eq(m.report[CLIENT].rc, 0, "%s", m.report[CLIENT].text);
}

/* ---- the hello waits at the server ----------------------------------------------------------- */

/* Calls until the hello is sent, and then CALLS more, as if each came later than a handshake may last without a
 * hello. Returns 1 unless each call extends the dial, and goes on with its handshake. */
static int ask_in_vain(struct tt_control *ctl)
{
	uint64_t until = tt_deadline_ns(LIMIT_MS);
	atomic_bool stop = false;
	int wrong = 0, asked = 0;

	while (asked <= CALLS && !wrong && tt_now_ns() < until) {
		uint64_t deadline_ns = tt_deadline_ns(SHORT_MS);
		int rc = tt_control_reach_rank(ctl, SERVER, deadline_ns, &stop);
		struct tt_outstanding_dial *d;
		bool asks;

		tt_control_lock(ctl);
		d = ctl->ep->peers.outstanding;
		asks = d && d->attempt.nrunning && d->attempt.running[0].asked;
		wrong |= rc != TT_TIMEOUT || (asked && !asks);
		if (asks) {
			wrong |= d->attempt.end_ns != deadline_ns + TT_DIAL_NS;
			d->attempt.running[0].until_ns = tt_now_ns();
		}
		tt_control_unlock(ctl);
		asked += asks;
	}
	return wrong || asked <= CALLS;
}

/* The time of the dial is over. */
static void end_dials(struct tt_control *ctl)
{
	tt_control_lock(ctl);
	for (struct tt_outstanding_dial *d = ctl->ep->peers.outstanding; d; d = d->next)
		d->attempt.end_ns = tt_now_ns();
	tt_control_unlock(ctl);
}

/* Waits until the hello is answered, and the connection over. Returns 1 if the client is called dead. */
static int see_end(struct tt_control *ctl)
{
	uint64_t until = tt_deadline_ns(LIMIT_MS);
	bool over = false, dead = false;

	for (; !over && tt_now_ns() < until; sleep_ms(1)) {
		tt_control_lock(ctl);
		over = hello_is_answered && !tt_control_is_connected(ctl, CLIENT);
		for (struct tt_conn *c = ctl->ep->conns; c; c = c->next)
			over &= c->peer != CLIENT;
		dead = tt_set_has(ctl->departed.dead, CLIENT);
		tt_control_unlock(ctl);
	}
	return !over || dead || tt_control_broken(ctl);
}

/* The client's dial ends, or with arg the client: the test has it leave, and sees it end. */
static int end_meanwhile(struct control_job *m, int rank, struct tt_control *ctl)
{
	bool leaves = m->arg;
	int wrong = 0;

	if (rank == SERVER) {
		delayed = m;
		m->report[SERVER].progress = BUSY;
		wrong = !control_job_reached(m, CLIENT, DIALED, LIMIT_MS) || see_end(ctl);
		m->report[SERVER].progress = DONE;
	}
	if (rank == CLIENT) {
		wrong = !control_job_reached(m, SERVER, BUSY, LIMIT_MS) || ask_in_vain(ctl);
		m->report[CLIENT].progress = ASKED;
		if (leaves)
			return wrong || !control_job_reached(m, CLIENT, LEAVES, LIMIT_MS);
		end_dials(ctl);
		wrong |= !ends(ctl);
		m->report[CLIENT].progress = DIALED;
	}
	return wrong || !control_job_reached(m, SERVER, DONE, LIMIT_MS);
}

Test(dials, each_call_extends_one_and_a_server_that_reads_its_hello_later_calls_nobody_dead,
     .timeout = 60)
{
	struct control_job m = { .n = RANKS, .body = end_meanwhile };

	control_job_run(&m);
	for (int r = 0; r < RANKS; r++)
		cr_assert_eq(m.report[r].rc, 0, "rank %d: %s", r, m.report[r].text);
}

/* The server does not receive the client's goodbye meanwhile: the others, who would pass it on, are stopped. */
Test(dials, a_rank_leaves_without_waiting_for_one_and_is_not_called_dead, .timeout = 60)
{
	struct control_job m = { .n = RANKS, .body = end_meanwhile, .arg = &(bool){ true } };
	siginfo_t info;

	control_job_start(&m);
	cr_assert(control_job_reached(&m, CLIENT, ASKED, LIMIT_MS));
	for (int r = 0; r < RANKS; r++)
		if (r != CLIENT && r != SERVER)
			control_job_stop(&m, r);
	m.report[CLIENT].progress = LEAVES;
	cr_assert_eq(waitid(P_PID, (id_t)m.report[CLIENT].pid, &info, WEXITED | WNOWAIT), 0);
	m.report[CLIENT].progress = DIALED;
	control_job_reached(&m, SERVER, DONE, LIMIT_MS);
	for (int r = 0; r < RANKS; r++)
		if (r != CLIENT && r != SERVER)
			kill(m.report[r].pid, SIGCONT);
	control_job_wait(&m);
	for (int r = 0; r < RANKS; r++)
		cr_assert_eq(m.report[r].rc, 0, "rank %d: %s", r, m.report[r].text);
}

/* ---- the server takes no more connections ----------------------------------------------------- */

/* Connections of the client that it does not use */
static int hold(struct tt_control *ctl, struct tt_duplex held[TT_PEER_CONNS])
{
	int rc = 0;

	for (int i = 0; i < TT_PEER_CONNS && !rc; i++) {
		struct tt_dial dial = tt_dial_of(ctl, SERVER, TT_P_CONTROL,
						 tt_deadline_ns(LIMIT_MS));

		dial.known = false;
		rc = tt_control_connect(ctl, &dial, &held[i]);
	}
	return rc;
}

/* Calls until the server refuses the connection. Returns 1 unless all of them end at their deadlines. */
static int be_refused(struct tt_control *ctl)
{
	uint64_t until = tt_deadline_ns(LIMIT_MS);
	atomic_bool stop = false;
	bool refused = false;
	int rc = TT_TIMEOUT;

	while (rc == TT_TIMEOUT && !refused && tt_now_ns() < until) {
		rc = tt_control_reach_rank(ctl, SERVER, tt_deadline_ns(SHORT_MS), &stop);
		refused = strstr(tt_error_text(), "as many connections");
	}
	return rc != TT_TIMEOUT || !refused;
}

static void *reach_server(void *arg)
{
	uint64_t deadline_ns = tt_deadline_ns(LIMIT_MS);
	atomic_bool stop = false;
	int rc = tt_control_reach_rank(arg, SERVER, deadline_ns, &stop);

	return rc || tt_now_ns() >= deadline_ns ? arg : NULL;
}

/* A call dials until another thread connects. Returns 1 for a fault. */
static int connect_meanwhile(struct tt_control *ctl, struct tt_duplex held[TT_PEER_CONNS])
{
	void *failed = ctl;
	bool dials = false;
	pthread_t thread;
	int rc = 0;

	if (pthread_create(&thread, NULL, reach_server, ctl))
		return 1;
	while (!dials) {
		tt_control_lock(ctl);
		dials = tt_set_has(ctl->ep->peers.dialed, SERVER);
		for (int i = 0; dials && !rc && i < TT_PEER_CONNS; i++)
			rc = tt_control_use(ctl, held[i], SERVER);
		tt_control_unlock(ctl);
		sleep_ms(1);
	}
	pthread_join(thread, &failed);
	return rc || failed;
}

static int refuse_more(struct control_job *m, int rank, struct tt_control *ctl)
{
	struct tt_duplex held[TT_PEER_CONNS];
	int wrong = 0, descriptors;

	if (rank == SERVER && control_job_reached(m, CLIENT, ASKED, LIMIT_MS))
		keep_client_waiting(m, rank, ctl);
	if (rank == CLIENT) {
		wrong = hold(ctl, held);
		m->report[CLIENT].progress = ASKED;
		descriptors = count_descriptors();
		wrong |= !control_job_reached(m, SERVER, BUSY, LIMIT_MS) || dial_in_vain(ctl);
		m->report[CLIENT].progress = DIALED;
		wrong |= !ends(ctl) || is_connected(ctl, SERVER) || be_refused(ctl) || !ends(ctl) ||
			 connect_meanwhile(ctl, held) || !is_connected(ctl, SERVER) ||
			 has_outstanding(ctl) || count_descriptors() != descriptors;
		m->report[CLIENT].progress = DONE;
	}
	return wrong || !control_job_reached(m, CLIENT, DONE, LIMIT_MS);
}

Test(dials, one_that_is_refused_for_too_many_connections_ends_and_later_calls_use_one_of_them,
     .timeout = 60)
{
	struct control_job m = { .n = RANKS, .body = refuse_more };

	control_job_run(&m);
	for (int r = 0; r < RANKS; r++)
		cr_assert_eq(m.report[r].rc, 0, "rank %d: %s", r, m.report[r].text);
}

/* ---- questions ------------------------------------------------------------------------------- */

static bool is_known(struct tt_control *ctl, int rank)
{
	struct tt_business_card record;

	tt_control_lock(ctl);
	tt_directory_get(&ctl->ep->peers.directory, rank, &record);
	tt_control_unlock(ctl);
	return record.port;
}

/* Has the holder answered? */
static bool is_answered(struct tt_control *ctl)
{
	const struct tt_outstanding_dial *d;
	bool answered;

	tt_control_lock(ctl);
	d = ctl->ep->peers.outstanding;
	answered = d && d->welcomed && d->dial.purpose == TT_P_RECORD;
	tt_control_unlock(ctl);
	return answered;
}

/* Rank 0 is the only holder, and does not answer before the client's call has ended. */
static int ask_holder(struct control_job *m, int rank, struct tt_control *ctl)
{
	uint64_t until = tt_deadline_ns(LIMIT_MS);
	atomic_bool stop = false;
	int wrong = 0, far = m->n - 2;

	if (rank == 0)
		keep_client_waiting(m, rank, ctl);
	if (rank == CLIENT && control_job_reached(m, 0, BUSY, LIMIT_MS)) {
		wrong |= is_known(ctl, far) ||
			 tt_control_reach_rank(ctl, far, tt_deadline_ns(SHORT_MS), &stop) !=
				 TT_TIMEOUT;
		m->report[CLIENT].progress = DIALED;
		while (!is_answered(ctl) && tt_now_ns() < until)
			sleep_ms(1);
		wrong |= !is_answered(ctl) || tt_control_reach_rank(ctl, far, until, &stop) ||
			 !ends(ctl);
		m->report[CLIENT].progress = DONE;
	}
	return wrong || !control_job_reached(m, CLIENT, DONE, LIMIT_MS);
}

/* 40 ranks, of which rank 0 alone is a holder */
static void run_with_holder(int (*body)(struct control_job *, int, struct tt_control *))
{
	struct control_job m = { .n = 40, .body = body };
	struct tt_large before = tt_large;

	tt_large = (struct tt_large){ .above = 1, .holders = { .first = 1, .every = 40 } };
	control_job_run(&m);
	tt_large = before;
	for (int r = 0; r < m.n; r++)
		cr_assert_eq(m.report[r].rc, 0, "rank %d: %s", r, m.report[r].text);
}

Test(dials, the_answer_to_a_question_waits_for_the_next_call, .timeout = 60)
{
	run_with_holder(ask_holder);
}

/* Each unknown rank is asked for once, in vain: the questions stay up to the limit. */
static int ask_for_many(struct control_job *m, int rank, struct tt_control *ctl)
{
	int descriptors = count_descriptors(), wrong = 0, n = 0, asked = 0;
	atomic_bool stop = false;

	if (rank == 0)
		keep_client_waiting(m, rank, ctl);
	if (rank == CLIENT && control_job_reached(m, 0, BUSY, LIMIT_MS)) {
		for (int far = CLIENT + 1; far < m->n; far++) {
			if (is_known(ctl, far) || is_connected(ctl, far))
				continue;
			asked++;
			wrong |= tt_control_reach_rank(ctl, far, tt_deadline_ns(SHORT_MS), &stop) !=
				 TT_TIMEOUT;
		}
		tt_control_lock(ctl);
		for (struct tt_outstanding_dial *d = ctl->ep->peers.outstanding; d; d = d->next)
			n++;
		wrong |= asked <= TT_QUESTIONS || !n || n > TT_QUESTIONS ||
			 count_descriptors() > descriptors + n ||
			 tt_dials_memory(ctl->ep) < (size_t)n * TT_TLS_BYTES;
		tt_control_unlock(ctl);
		snprintf(m->report[CLIENT].text, sizeof(m->report[CLIENT].text),
			 "%d questions, %d outstanding", asked, n);
		m->report[CLIENT].progress = DIALED;
		for (int far = CLIENT + 1; far < m->n; far++)
			wrong |= tt_control_reach_rank(ctl, far, tt_deadline_ns(LIMIT_MS), &stop);
		wrong |= !ends(ctl);
		m->report[CLIENT].progress = DONE;
	}
	return wrong || !control_job_reached(m, CLIENT, DONE, LIMIT_MS);
}

Test(dials, sixteen_questions_stay_and_all_ranks_are_found_later, .timeout = 60)
{
	run_with_holder(ask_for_many);
}
