/*
 * test_strangers.c - processes that do not belong to a job: idle and hasty connections, listeners
 * that lie, a holder of the secret with a rank that does not exist; and what a failed join leaves
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <limits.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "control/control_internal.h"
#include "tests/support/descriptors.h"
#include "tests/support/harness_control.h"
#include "tests/support/tls_pair.h"

#define ASSERT_JOINED(m)                                                                      \
	for (int r = 0; r < (m).n; r++)                                                       \
	cr_assert((m).report[r].joined == 0 && (m).report[r].rc == 0, "rank %d: %d %d %s", r, \
		  (m).report[r].joined, (m).report[r].rc, (m).report[r].text)

/* Of the ranks that wait for rank 0. */
static uint64_t slowest_join_ms(const struct control_job *m)
{
	uint64_t most = 0;

	for (int r = 1; r < m->n; r++)
		most = m->report[r].took_ms > most ? m->report[r].took_ms : most;
	return most;
}

/* ---- connections without a proof ------------------------------------------------------------- */

/* Connect from 127.0.0.source, without waiting for the listener. */
static int connect_from(int source, int port)
{
	struct sockaddr_in us = { .sin_family = AF_INET },
			   them = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port) };
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	us.sin_addr.s_addr = htonl(INADDR_LOOPBACK + (unsigned)source - 1);
	them.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (fd >= 0 && !bind(fd, (struct sockaddr *)&us, sizeof(us)))
		(void)!connect(fd, (struct sockaddr *)&them, sizeof(them));
	return fd;
}

/* Rank 0 has few descriptors and listens (it joins at once); the others wait for progress 1. */
static void others_wait(struct control_job *m, int rank, struct tt_join *join)
{
	const struct rlimit *limit = m->arg;

	(void)join;
	if (rank)
		control_job_reached(m, rank, 1, 20000);
	else if (limit)
		setrlimit(RLIMIT_NOFILE, limit);
}

static void await_listener(int port)
{
	int fd;

	do {
		sleep_ms(1);
		fd = connect_from(1, port);
		sleep_ms(1);
	} while (send(fd, "", 1, MSG_NOSIGNAL) != 1 && !close(fd));
	close(fd);
}

static void release(struct control_job *m)
{
	for (int r = 1; r < m->n; r++)
		atomic_store(&m->report[r].progress, 1);
}

Test(strangers, idle_connections_at_a_small_descriptor_limit_do_not_end_a_join, .timeout = 60)
{
	static struct rlimit few = { 40, 40 };
	struct control_job m = { .n = 4, .before = others_wait, .arg = &few };
	struct tt_id id;
	int fds[150];

	control_job_start(&m);
	cr_assert_eq(tt_id_unpack(&m.id, &id), 0);
	await_listener(id.port);
	for (int i = 0; i < 150; i++)
		fds[i] = connect_from(2, id.port);
	release(&m);
	control_job_wait(&m);
	ASSERT_JOINED(m);
	for (int i = 0; i < 150; i++)
		close(fds[i]);
}

/* A rank that was served at another address closes this connection. Returns the bytes of the answer */
static ssize_t answer_to_hello(bool gone)
{
	struct tt_control_endpoint *ep;
	char answer[16];
	struct tt_tls *tls;
	int fd, left;
	ssize_t n;

	cr_assert_eq(tt_endpoint_make(0, 2, &ep), 0);
	cr_assert_eq(tt_endpoint_authenticate(ep, &(struct tt_id){ .nonce = { 1 } }), 0);
	cr_assert_eq(tt_endpoint_tls(ep), 0);
	cr_assert_eq(tt_endpoint_listen(ep, &(struct tt_ports){ 0 }), 0);
	fd = connect_from(1, ep->listening.port);
	cr_assert_eq(poll(&(struct pollfd){ .fd = fd, .events = POLLOUT }, 1, 20000), 1);
	tls = tt_tls_client(ep->auth.tls, fd, (uint8_t[TT_PUBLIC_KEY]){ 0 });
	cr_assert_eq(tt_tls_handshake(tls), 0, "%s", tt_error_text());
	if (gone)
		shutdown(fd, SHUT_WR);
	while (!ioctl(fd, SIOCOUTQ, &left) && left) /* the end is there, too */
		sleep_ms(1);
	cr_assert_eq(tt_listener_enter(ep), 0);
	tt_listeners_event(&ep->listening.listener->watched);
	cr_assert_eq(poll(&(struct pollfd){ .fd = fd, .events = POLLIN }, 1, 20000), 1);
	n = recv(fd, answer, sizeof(answer), MSG_DONTWAIT);
	tt_tls_close(tls);
	tt_endpoint_free(ep);
	return n;
}

Test(strangers, a_client_that_has_gone_costs_no_handshake, .timeout = 60)
{
	cr_assert_gt(answer_to_hello(false), 0);
	cr_assert_leq(answer_to_hello(true), 0);
}

/* Returns the bytes of the listener's answer to a connection that sends the message and closes. */
static ssize_t answer_to(struct tt_listener *l, const uint8_t *message, size_t bytes)
{
	int fd = connect_from(1, l->port);
	char answer[512];
	ssize_t n;

	cr_assert_eq(poll(&(struct pollfd){ .fd = fd, .events = POLLOUT }, 1, 20000), 1);
	cr_assert_eq(send(fd, message, bytes, MSG_NOSIGNAL), (ssize_t)bytes);
	while (!l->unauth) {
		tt_listeners_event(&l->watched);
		sleep_ms(1);
	}
	tt_listeners_event(&l->unauth->watched);
	cr_assert_eq(poll(&(struct pollfd){ .fd = fd, .events = POLLIN }, 1, 20000), 1);
	n = recv(fd, answer, sizeof(answer), MSG_DONTWAIT);
	close(fd);
	while (!l->unauth->dead) {
		sleep_ms(1);
		tt_listeners_event(&l->unauth->watched);
	}
	tt_listeners_reap();
	return n;
}

Test(strangers, a_recorded_first_message_is_answered_once, .timeout = 60)
{
	const struct tt_id id = { .nonce = { 1 } };
	uint8_t message[2][512];
	struct tt_control_endpoint *ep;
	struct tt_listener *l;
	size_t bytes[2];

	cr_assert_eq(tt_endpoint_make(0, 2, &ep), 0);
	cr_assert_eq(tt_endpoint_authenticate(ep, &id), 0);
	cr_assert_eq(tt_endpoint_tls(ep), 0);
	cr_assert_eq(tt_endpoint_listen(ep, &(struct tt_ports){ 0 }), 0);
	cr_assert_eq(tt_listener_enter(ep), 0);
	l = ep->listening.listener;
	for (int i = 0; i < 2; i++)
		bytes[i] = tls_client_hello(id.nonce, ep->auth.key, message[i], 512);
	cr_assert_gt(answer_to(l, message[0], bytes[0]), 100);
	cr_assert_eq(answer_to(l, message[0], bytes[0]), 7, "no alert, but an answer");
	cr_assert_gt(answer_to(l, message[1], bytes[1]), 100);
	tt_endpoint_free(ep);
}

#define SILENT_EACH 100 /* at each listener */
#define LISTENERS 5     /* each holds half of what is left */

/* A process that connects to the ports and stays silent; a byte in the pipe says that it has connected. */
static pid_t start_silent(const int port[LISTENERS], int *ret_pipe)
{
	int fds[2];
	pid_t pid;

	cr_assert_eq(pipe(fds), 0);
	pid = fork();
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (int i = 0; i < SILENT_EACH * LISTENERS; i++) {
			int fd = connect_from(2 + i % 4, port[i % LISTENERS]);

			poll(&(struct pollfd){ .fd = fd, .events = POLLOUT }, 1, 1000);
		}
		(void)!write(fds[1], "", 1);
		for (;;)
			pause();
	}
	close(fds[1]);
	*ret_pipe = fds[0];
	return pid;
}

/* The most descriptors that silent connections at the listeners hold at a time, where the process may have
 * `limit` */
static int most_held(rlim_t limit)
{
	struct tt_control_endpoint *ep[LISTENERS];
	int port[LISTENERS], most = 0, before, done;
	struct rlimit old;
	pid_t silent;
	char byte;

	for (int i = 0; i < LISTENERS; i++) {
		cr_assert_eq(tt_endpoint_make(0, 2, &ep[i]), 0);
		cr_assert_eq(tt_endpoint_authenticate(ep[i], &(struct tt_id){ .nonce = { 1 } }), 0);
		cr_assert_eq(tt_endpoint_tls(ep[i]), 0);
		cr_assert_eq(tt_endpoint_listen(ep[i], &(struct tt_ports){ 0 }), 0);
		cr_assert_eq(tt_listener_enter(ep[i]), 0);
		port[i] = ep[i]->listening.port;
	}
	silent = start_silent(port, &done);
	cr_assert_eq(read(done, &byte, 1), 1);
	before = count_descriptors();
	getrlimit(RLIMIT_NOFILE, &old);
	setrlimit(RLIMIT_NOFILE, &(struct rlimit){ limit, old.rlim_max });
	for (int i = 0; i < 400; i++) {
		int held;

		tt_listeners_event(&ep[i % LISTENERS]->listening.listener->watched);
		held = count_descriptors() - before;
		most = held > most ? held : most;
		sleep_ms(i % 20 == 0);
	}
	setrlimit(RLIMIT_NOFILE, &old);
	kill(silent, SIGKILL);
	waitpid(silent, NULL, 0);
	close(done);
	for (int i = 0; i < LISTENERS; i++)
		tt_endpoint_free(ep[i]);
	return most;
}

Test(strangers, connections_hold_64_descriptors_at_most_and_a_quarter_of_a_small_limit,
     .timeout = 120)
{
	int many = most_held(1024), few = most_held(100);

	cr_expect(many > 32 && many <= 64, "%d descriptors of 1024", many);
	cr_expect(few > 8 && few <= 25, "%d descriptors of 100", few);
}

#define HASTY_PER_SECOND 2000
#define HASTY_OPEN 10000

/* Connect HASTY_PER_SECOND times a second, and send a message; the latest HASTY_OPEN connections stay
 * open. */
static pid_t start_hasty(int port, const uint8_t *message, size_t bytes, atomic_int *made)
{
	static int open_fds[HASTY_OPEN];
	pid_t pid = fork();

	if (pid)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	setrlimit(RLIMIT_NOFILE, &(struct rlimit){ HASTY_OPEN + 64, HASTY_OPEN + 64 });
	memset(open_fds, -1, sizeof(open_fds));
	for (uint64_t i = 0, begin = tt_now_ns();; i++) {
		int *slot = &open_fds[i % HASTY_OPEN];

		while (tt_now_ns() - begin < i * (1000000000ull / HASTY_PER_SECOND))
			sleep_ms(1);
		if (*slot >= 0)
			close(*slot);
		*slot = connect_from(2, port);
		(void)!send(*slot, message, bytes, MSG_NOSIGNAL);
		atomic_fetch_add(made, 1);
	}
}

/* 16 ranks join beside it. repeats: each connection sends the first message of a rank, as recorded */
static void join_beside_flood(bool repeats)
{
	struct control_job m = { .n = 16, .before = others_wait };
	uint8_t message[512];
	size_t bytes = 0;
	struct tt_key key;
	struct tt_id id;
	int idle[64];
	pid_t hasty;

	control_job_start(&m);
	cr_assert_eq(tt_id_unpack(&m.id, &id), 0);
	cr_assert(tt_key_make(id.secret, id.nonce, &key));
	if (repeats)
		bytes = tls_client_hello(id.nonce, &key, message, sizeof(message));
	cr_assert_eq(bytes > 0, repeats);
	await_listener(id.port);
	for (int i = 0; i < 64; i++)
		idle[i] = connect_from(3, id.port);
	/* rank 0's report of progress counts the connections */
	hasty = start_hasty(id.port, message, bytes, &m.report[0].progress);
	cr_assert(control_job_reached(&m, 0, HASTY_PER_SECOND * 4, 60000));
	release(&m);
	control_job_wait(&m);
	kill(hasty, SIGKILL);
	waitpid(hasty, NULL, 0);
	printf("# slowest join beside the flood: %llu ms\n",
	       (unsigned long long)slowest_join_ms(&m));
	ASSERT_JOINED(m);
	for (int i = 0; i < 64; i++)
		close(idle[i]);
}

Test(strangers, a_flood_from_one_source_and_64_idle_connections_do_not_keep_ranks_out,
     .timeout = 120)
{
	join_beside_flood(false);
}

Test(strangers, a_flood_of_a_recorded_first_message_does_not_keep_ranks_out, .timeout = 120)
{
	join_beside_flood(true);
}

/* ---- listeners that lie ---------------------------------------------------------------------- */

#define CANDIDATES 8

enum false_answer { SILENCE, NOISE, ALERT, LAST_ALERT = ALERT + 255, GUESS };

/* Answer every client with an alert of TLS (which nothing proves), noise, or a session of TLS with a
 * guessed key, which a verdict would follow. */
static void lie(int fd, enum false_answer kind, enum tt_verdict verdict)
{
	struct tt_key guess = { { 1, 2, 3 } };
	uint8_t hello[512], alert[7] = { 21, 3, 3, 0, 2, 2, (uint8_t)(kind - ALERT) };

	tt_sock_set_blocking(fd, true);
	for (;;) {
		int client = accept(fd, NULL, NULL), rc = 0;

		if (kind == GUESS) {
			struct tt_tls *tls = tt_tls_server(client, tls_any_client, &guess);

			while (!(rc = tt_tls_handshake(tls)))
				sleep_ms(1);
			(void)!tt_tls_send(tls, &(uint8_t){ (uint8_t)verdict }, 1);
			tt_tls_close(tls);
		} else if (kind != SILENCE && recv(client, hello, sizeof(hello), 0) > 0) {
			(void)!send(client, kind == NOISE ? hello : alert,
				    kind == NOISE ? sizeof(hello) : sizeof(alert), MSG_NOSIGNAL);
			close(client);
		}
	}
}

/* Liars listen at all but the last of CANDIDATES ports. Returns the first port. */
static int start_liars(const enum false_answer *lies, pid_t liar[CANDIDATES - 1])
{
	int fd[CANDIDATES], got, first = 21000 + getpid() % 8000, port;

	do {
		first += CANDIDATES;
		for (got = 0; got < CANDIDATES && !tt_sock_listen(first + got, &fd[got], &port);)
			got++;
		for (int i = 0; i < got; i++)
			tt_sock_close(fd[i]);
	} while (got < CANDIDATES);
	for (int i = 0; i < CANDIDATES - 1; i++) {
		liar[i] = fork();
		if (!liar[i]) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			if (tt_sock_listen(first + i, &fd[i], &port))
				_exit(1);
			lie(fd[i], lies[i], (enum tt_verdict)(1 + i % (TT_VERDICTS - 1)));
		}
	}
	return first;
}

static void join_beside(const enum false_answer *lies)
{
	struct control_job m = { .n = 3, .has_id = true };
	struct tt_root_endpoint root = { .job = "liars", .nports = CANDIDATES, .naddresses = 1 };
	pid_t liar[CANDIDATES - 1];

	root.addresses[0] = tt_loopback4;
	root.port = start_liars(lies, liar);
	for (int i = 0; i < CANDIDATES - 1; i++)
		await_listener(root.port + i);
	cr_assert_eq(tt_id_at(&root, "a secret of the test", &m.id), 0);
	control_job_run(&m);
	for (int i = 0; i < CANDIDATES - 1; i++) {
		kill(liar[i], SIGKILL);
		waitpid(liar[i], NULL, 0);
	}
	printf("# slowest join beside %d liars: %llu ms\n", CANDIDATES - 1,
	       (unsigned long long)slowest_join_ms(&m));
	ASSERT_JOINED(m);
}

Test(strangers, a_listener_without_the_secret_cannot_end_a_join_by_a_verdict, .timeout = 60)
{
	/* alerts: handshake_failure, illegal_parameter, internal_error, and one that does not exist */
	static const enum false_answer lies[] = { ALERT + 40, ALERT + 47, ALERT + 80, ALERT + 200,
						  NOISE,      GUESS,      GUESS };

	join_beside(lies);
}

Test(strangers, silent_listeners_at_seven_of_eight_ports_do_not_keep_ranks_out, .timeout = 60)
{
	static const enum false_answer silence[CANDIDATES - 1];

	join_beside(silence);
}

/* ---- a holder of the secret with a rank that does not exist ---------------------------------- */

/* Connect as a rank would, until the welcome. */
static struct tt_tls *connect_with_secret(const struct tt_id *id, const struct tt_hello *hello)
{
	struct tt_hello_message message;
	struct tt_verdict_message verdict;
	struct tt_control_endpoint *ep;
	struct tt_tls *tls;
	ssize_t n;
	int rc;

	cr_assert_eq(tt_endpoint_make(1, 2, &ep), 0);
	cr_assert_eq(tt_endpoint_authenticate(ep, id), 0);
	cr_assert_eq(tt_endpoint_tls(ep), 0);
	tls = tt_tls_client(ep->auth.tls, connect_from(1, id->port), (uint8_t[TT_PUBLIC_KEY]){ 0 });
	while (!(rc = tt_tls_handshake(tls)))
		sleep_ms(1);
	cr_assert_eq(rc, 1, "%s", tt_error_text());
	tt_hello_put(hello, message.hello);
	cr_assert(tt_hello_sign(ep, tls, &message));
	cr_assert_eq(tt_tls_send(tls, &message, sizeof(message)), sizeof(message));
	while ((n = tt_tls_recv(tls, &verdict, sizeof(verdict))) < 0 && errno == EAGAIN)
		sleep_ms(1);
	cr_assert(n == sizeof(verdict) && verdict.verdict == TT_V_WELCOME, "%zd, verdict %d", n,
		  verdict.verdict);
	tt_endpoint_free(ep); /* the session holds what it needs of it */
	return tls;
}

/* Messages of a communicator that rank 0 does not have */
static void send_unknown_context(struct tt_tls *tls)
{
	uint8_t bytes[TT_FRAME_HEAD + 8];
	struct tt_writer w = TT_WRITER_INTO(bytes);

	tt_put_frame_head(&w, &(struct tt_frame_head){ TT_F_CREDIT, 77, 8 });
	tt_put(&w, 0, 8);
	cr_assert_eq(tt_tls_send(tls, bytes, w.have), (ssize_t)w.have);
}

/* Rank 1 is stopped. Rank 0 asks who is missing, beside a connection as rank 2^31 - 1. */
static int look_for_rank_1(struct control_job *m, int rank, struct tt_control *ctl)
{
	struct tt_blocked nothing = { .awaited = -1 };

	atomic_store(&m->report[rank].progress, 1);
	control_job_reached(m, 0, 2, 20000);
	if (rank) /* until rank 0 has left */
		return tt_control_allgather(ctl, NULL, 0, NULL, tt_deadline_ns(20000)) == 0;
	note_sum(ctl, 1, false);
	return tt_control_missing(ctl, 1, &nothing, m->report[0].text, sizeof(m->report[0].text)) !=
	       1;
}

Test(strangers, a_registration_beyond_the_ranks_is_no_index, .timeout = 60)
{
	struct control_job m = { .n = 3, .body = look_for_rank_1 };
	struct tt_hello hello = { .purpose = TT_P_REGISTER, .from = INT_MAX };
	struct tt_tls *tls;
	struct tt_id id;
	int rc;

	control_job_start(&m);
	cr_assert(control_job_all_reached(&m, 1, 20000));
	cr_assert_eq(tt_id_unpack(&m.id, &id), 0);
	tls = connect_with_secret(&id, &hello);
	send_unknown_context(tls);
	control_job_stop(&m, 1);
	atomic_store(&m.report[0].progress, 2);
	waitpid(m.report[0].pid, &rc, 0);
	kill(m.report[1].pid, SIGKILL);
	kill(m.report[1].pid, SIGCONT);
	cr_assert(WIFEXITED(rc), "rank 0 ended by signal %d", WTERMSIG(rc));
	cr_assert(strstr(m.report[0].text, "rank 1 is not answering"), "%s", m.report[0].text);
	tt_tls_close(tls);
}

/* ---- a rank that ends while it joins ---------------------------------------------------------- */

static bool is_rank_1(int rank)
{
	return rank == 1;
}

Test(strangers, a_rank_that_dies_before_it_registers_is_named_at_once, .timeout = 60)
{
	struct control_job m = { .n = 3, .absent = is_rank_1 };
	struct tt_hello hello = { .purpose = TT_P_REGISTER, .from = 1 };
	struct tt_id id;

	control_job_start(&m);
	cr_assert_eq(tt_id_unpack(&m.id, &id), 0);
	await_listener(id.port);
	tt_tls_close(connect_with_secret(&id, &hello));
	control_job_wait(&m);
	for (int r = 0; r < 3; r += 2)
		cr_assert(m.report[r].joined == TT_REMOTE &&
				  strstr(m.report[r].text, "rank 1 died: its connection to rank 0"),
			  "rank %d: %d %s", r, m.report[r].joined, m.report[r].text);
}

/* ---- what a failed join leaves --------------------------------------------------------------- */

Test(strangers, a_failed_join_leaves_no_socket_and_no_thread, .timeout = 60)
{
	tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
	int before, threads;
	tuttiUniqueId id;
	tuttiComm_t comm;

	config.timeout_ms = 100;
	for (int round = 0; round < 2; round++) { /* the first one opens what stays, a log */
		before = count_descriptors();
		threads = count_threads();
		for (int rank = 0; rank < 2; rank++) {
			cr_assert_eq(tuttiGetUniqueId(&id), tuttiSuccess);
			cr_assert_neq(tuttiCommInitRankConfig(&comm, 2, id, rank, &config),
				      tuttiSuccess);
		}
		cr_assert_eq(tuttiGetUniqueId(&id), tuttiSuccess);
		cr_assert_eq(setenv("TUTTI_SOCKET_IFNAME", "=nosuch", 1), 0);
		cr_assert_neq(tuttiCommInitRankConfig(&comm, 2, id, 0, &config), tuttiSuccess);
		unsetenv("TUTTI_SOCKET_IFNAME");
	}
	cr_expect_eq(count_descriptors(), before, "%d descriptors, %d before", count_descriptors(),
		     before);
	cr_expect_eq(count_threads(), threads);
}
