/*
 * test_listener.c - the listener of a process: one for all ranks and all unique ids, beside those of
 * the ids; the rank that a connection is for; ranges of ports, network namespaces
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "control/control_internal.h"
#include "tests/support/descriptors.h"
#include "tests/support/harness_control.h"

TestSuite(listener, .timeout = 120);

#define LIMIT_MS 60000

#define ASSERT_RIGHT(m)                                                               \
	for (int r = 0; r < (m).n; r++)                                               \
	cr_assert(!(m).report[r].joined && !(m).report[r].rc, "rank %d: %d %d %s", r, \
		  (m).report[r].joined, (m).report[r].rc, (m).report[r].text)

/* ---- one listener ---------------------------------------------------------------------------- */

/* Ranks are threads; progress 1: joined, 2: all have been counted */
static int count_ours(struct control_job *m, int rank, struct tt_control *ctl)
{
	int wrong = tt_control_allgather(ctl, NULL, 0, NULL, tt_deadline_ns(LIMIT_MS)) != 0;

	if (!rank && count_listeners() != 2) {
		snprintf(m->report[0].text, sizeof(m->report[0].text), "%d listeners",
			 count_listeners());
		wrong = 1;
	}
	return wrong + (tt_control_allgather(ctl, NULL, 0, NULL, tt_deadline_ns(LIMIT_MS)) != 0);
}

Test(listener, sixty_four_ranks_of_a_process_have_one_beside_that_of_the_id)
{
	struct control_job m = { .n = 64, .threads = true, .body = count_ours };

	control_job_run(&m);
	ASSERT_RIGHT(m);
	cr_assert_eq(count_listeners(), 0);
}

#define IDS 32

static int join_one(const tuttiUniqueId *id, int rank, struct tt_control **ret_ctl)
{
	struct tt_join join = { .id = id,
				.rank = rank,
				.nranks = 2,
				.settings = "",
				.timeout_ms = LIMIT_MS,
				.ifname = "",
				.host_id = "",
				.port_range = "" };

	return tt_control_join(&join, ret_ctl);
}

/* Join all ids as rank, exchange over each, then leave all but the last. Returns the failures. */
static int join_all(const tuttiUniqueId *ids, int rank, int listeners)
{
	struct tt_control *ctl[IDS] = { NULL };
	int wrong = 0, last;

	for (int i = 0; i < IDS; i++)
		wrong += join_one(&ids[i], rank, &ctl[i]) != 0;
	if (count_listeners() != listeners)
		fprintf(stderr, "rank %d: %d listeners\n", rank, count_listeners());
	wrong += count_listeners() != listeners;
	for (int i = 0; i < IDS && !wrong; i++)
		wrong += tt_control_allgather(ctl[i], NULL, 0, NULL, tt_deadline_ns(LIMIT_MS)) != 0;
	for (int i = 0; i < IDS - 1; i++)
		tt_control_leave(ctl[i]);
	last = count_listeners();
	wrong += tt_control_allgather(ctl[IDS - 1], NULL, 0, NULL, tt_deadline_ns(LIMIT_MS)) != 0;
	tt_control_leave(ctl[IDS - 1]);
	return wrong + (last != 1) + (count_listeners() != 0);
}

/* Rank 0 of each id is in another process. */
Test(listener, a_rank_of_thirty_two_ids_has_one)
{
	tuttiUniqueId ids[IDS];
	int status;
	pid_t root;

	for (int i = 0; i < IDS; i++)
		cr_assert_eq(tt_id_make("", "", &ids[i]), 0);
	root = fork();
	if (!root)
		_exit(join_all(ids, 0, IDS));
	cr_expect_eq(join_all(ids, 1, 1), 0);
	waitpid(root, &status, 0);
	cr_expect(WIFEXITED(status) && !WEXITSTATUS(status), "status %x", status);
}

/* ---- ports and networks ---------------------------------------------------------------------- */

static char range[32];

static void use_range(struct control_job *m, int rank, struct tt_join *join)
{
	(void)m, (void)rank;
	join->port_range = range;
}

Test(listener, the_ranks_of_a_process_share_a_range_of_one_port)
{
	struct control_job m = { .n = 8, .threads = true, .before = use_range };
	int fd, port;

	cr_assert_eq(tt_sock_listen(0, &fd, &port), 0);
	tt_sock_close(fd);
	snprintf(range, sizeof(range), "%d-%d", port, port);
	control_job_run(&m);
	ASSERT_RIGHT(m);
}

static struct tt_control_endpoint *listen_as(int rank, uint8_t job, const struct tt_ports *ports)
{
	struct tt_control_endpoint *ep;

	cr_assert_eq(tt_endpoint_make(rank, 4, &ep), 0);
	cr_assert_eq(tt_endpoint_authenticate(ep, &(struct tt_id){ .nonce = { job } }), 0);
	cr_assert_eq(tt_endpoint_tls(ep), 0);
	cr_assert_eq(tt_endpoint_listen(ep, ports), 0, "%s", tt_error_text());
	return ep;
}

/* Of a range that the listener is outside of, in another network namespace, and of rank 0 */
Test(listener, another_one_is_opened_where_the_first_does_not_serve)
{
	struct tt_control_endpoint *first = listen_as(1, 1, &(struct tt_ports){ 0 }),
				   *second = listen_as(2, 2, &(struct tt_ports){ 0 }),
				   *root = listen_as(0, 3, &(struct tt_ports){ 0 }), *other, *away;
	int port = first->listening.port;

	cr_assert_eq(second->listening.port, port);
	cr_assert_neq(root->listening.port, port);
	other = listen_as(3, 4, &(struct tt_ports){ .first = port + 1, .count = 64 });
	cr_assert(other->listening.port > port && other->listening.port <= port + 64);
	cr_assert_eq(count_listeners(), 3);
	if (unshare(CLONE_NEWNET)) {
		printf("# no rights to make a network namespace\n");
	} else {
		away = listen_as(3, 1, &(struct tt_ports){ 0 });
		cr_assert_eq(count_listeners(), 4);
		tt_endpoint_free(away);
	}
	tt_endpoint_free(other);
	tt_endpoint_free(root);
	tt_endpoint_free(first);
	cr_assert_eq(count_listeners(), 1);
	tt_endpoint_free(second);
	cr_assert_eq(count_listeners(), 0);
}

/* ---- the rank of a connection ---------------------------------------------------------------- */

/* 1: the server proves the job's key, else the reason is the thread's last error */
static int shake(struct tt_control_endpoint *client, const struct tt_control_endpoint *server,
		 const uint8_t key[TT_PUBLIC_KEY], struct tt_tls **ret_tls)
{
	struct tt_sock_target to = { .address = tt_loopback4, .port = server->listening.port };
	struct tt_patience patience = { .deadline_ns = tt_deadline_ns(LIMIT_MS) };
	int index, fd, rc;

	cr_assert_eq(tt_sock_happy_eyeballs(&to, 1, &patience, &index, &fd), 0);
	*ret_tls = tt_tls_client(client->auth.tls, fd, key);
	while (!(rc = tt_tls_handshake(*ret_tls)))
		sleep_ms(1);
	return rc;
}

/* Two jobs at one port. A client reaches the rank that it names, by the key of its job only. */
Test(listener, a_connection_reaches_the_rank_and_the_job_that_it_names)
{
	struct tt_control_endpoint *server[2], *client[2];
	struct tt_tls *tls;

	for (int i = 0; i < 2; i++) {
		server[i] = listen_as(1 + i, (uint8_t)i, &(struct tt_ports){ 0 });
		client[i] = listen_as(3, (uint8_t)i, &(struct tt_ports){ 0 });
		cr_assert_eq(tt_endpoint_start(server[i]), 0);
	}
	for (int c = 0; c < 2; c++) {
		for (int s = 0; s < 2; s++) {
			const uint8_t *key = server[s]->auth.identity.public_key;
			int rc = shake(client[c], server[s], key, &tls);

			cr_assert_eq(rc, c == s ? 1 : TT_REMOTE);
			cr_assert(c == s || strstr(tt_error_text(), "another job or another rank"),
				  "%s", tt_error_text());
			tt_tls_close(tls);
		}
		/* rank 0 is not here */
		cr_assert_eq(shake(client[c], server[c], (uint8_t[TT_PUBLIC_KEY]){ 0 }, &tls),
			     TT_REMOTE);
		tt_tls_close(tls);
	}
	for (int i = 0; i < 2; i++) {
		tt_endpoint_free(client[i]);
		tt_endpoint_free(server[i]);
	}
}

/* It drops the connections that are for it; the others at the port go on. */
Test(listener, a_rank_that_leaves_takes_its_connections_along)
{
	struct tt_control_endpoint *stays = listen_as(1, 1, &(struct tt_ports){ 0 }),
				   *leaves = listen_as(2, 1, &(struct tt_ports){ 0 }),
				   *client = listen_as(3, 1, &(struct tt_ports){ 0 });
	struct tt_patience patience = { .deadline_ns = tt_deadline_ns(3000) };
	struct tt_tls *to_one, *to_other;
	char end;

	cr_assert(!tt_endpoint_start(stays) && !tt_endpoint_start(leaves));
	cr_assert_eq(shake(client, stays, stays->auth.identity.public_key, &to_one), 1);
	cr_assert_eq(shake(client, leaves, leaves->auth.identity.public_key, &to_other), 1);
	tt_endpoint_free(leaves);
	cr_assert_eq(tt_sock_recv(tt_tls_fd(to_other), &end, 1, &patience), TT_REMOTE);
	cr_assert(recv(tt_tls_fd(to_one), &end, 1, MSG_DONTWAIT) < 0 && errno == EAGAIN);
	tt_tls_close(to_one);
	tt_tls_close(to_other);
	tt_endpoint_free(client);
	tt_endpoint_free(stays);
}
