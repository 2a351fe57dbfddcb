/*
 * test_control.c - joining a control: bootstrap, authentication, inconsistent joins, host limits
 *
 * Ranks are forked processes with real sockets, in some tests threads. test_op_errors.c tests
 * deaths, statuses and goodbyes after the join, test_unique_id.c tests ids.
 */
#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "control/tls.h"
#include "control/unique_id.h"
#include "tests/support/harness_control.h"
#include "tests/support/tls_pair.h"

#define SOON_MS 10000 /* far below JOIN_TIMEOUT_MS, even on a busy machine */
#define ASSERT_TEXT(r, phrase) \
	cr_assert(strstr(m.report[r].text, phrase), "rank %d: %s", r, m.report[r].text)

static uint64_t deadline(void)
{
	return tt_deadline_ns(60000);
}

/* ---- joining --------------------------------------------------------------------------------- */

/* The part of a rank: equal ones in a row, or all different, or all equal */
static char part_of(int rank, int exchange)
{
	static const int equal[] = { 3, 1, 64, 1 };

	return (char)(rank / equal[exchange] * (rank / equal[exchange]) + exchange);
}

/* Allgathers in sizes from 0 bytes to more than a socket buffer */
static int allgather_parts(struct control_job *m, int rank, struct tt_control *ctl)
{
	const size_t sizes[] = { 8, 3, 500, 1000000 / (size_t)m->n };
	int wrong = tt_control_allgather(ctl, NULL, 0, NULL, deadline()) != 0;

	for (int s = 0; s < 4; s++) {
		char *mine = malloc(sizes[s]), *all = malloc(sizes[s] * (size_t)m->n);

		memset(mine, part_of(rank, s), sizes[s]);
		if (tt_control_allgather(ctl, mine, sizes[s], all, deadline())) {
			snprintf(m->report[rank].text, sizeof(m->report[rank].text), "%s",
				 tt_error_text());
			wrong++;
		}
		for (int r = 0; r < m->n; r++) {
			memset(mine, part_of(r, s), sizes[s]);
			wrong += memcmp(all + (size_t)r * sizes[s], mine, sizes[s]) != 0;
		}
		free(mine);
		free(all);
	}
	return wrong;
}

static void join_and_allgather(int n, bool in_threads)
{
	struct control_job m = { .n = n, .body = allgather_parts, .threads = in_threads };

	control_job_run(&m);
	for (int r = 0; r < n; r++) {
		cr_assert_eq(m.report[r].joined, 0, "rank %d of %d: %s", r, n, m.report[r].text);
		cr_assert_eq(m.report[r].rc, 0, "rank %d of %d: %d wrong, %s", r, n, m.report[r].rc,
			     m.report[r].text);
	}
}

Test(control, processes_join_and_allgather, .timeout = 120)
{
	static const int sizes[] = { 1, 2, 3, 9, 17, 64 };

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
		join_and_allgather(sizes[i], false);
}

Test(control, threads_of_one_process_join_and_allgather, .timeout = 120)
{
	static const int sizes[] = { 1, 2, 3, 9, 17, 64 };

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
		join_and_allgather(sizes[i], true);
}

/* Four equal parts of 6 MiB are one part in a message; four different ones do not fit into a frame. */
static int allgather_large(struct control_job *m, int rank, struct tt_control *ctl)
{
	size_t bytes = 6u << 20;
	char *mine = calloc(1, bytes), *all = malloc(bytes * (size_t)m->n);
	int wrong = tt_control_allgather(ctl, mine, bytes, all, deadline()) != 0;

	for (int r = 0; r < m->n; r++)
		wrong += memcmp(all + (size_t)r * bytes, mine, bytes) != 0;
	mine[0] = (char)(rank + 1);
	wrong += tt_control_allgather(ctl, mine, bytes, all, deadline()) != TT_USAGE;
	snprintf(m->report[rank].text, sizeof(m->report[rank].text), "%s", tt_error_text());
	free(mine);
	free(all);
	return wrong;
}

Test(control, an_exchange_is_too_large_by_its_parts_that_differ, .timeout = 120)
{
	struct control_job m = { .n = 4, .body = allgather_large };

	control_job_run(&m);
	for (int r = 0; r < m.n; r++) {
		cr_assert_eq(m.report[r].rc, 0, "rank %d: %s", r, m.report[r].text);
		ASSERT_TEXT(r, "an exchange of 6291456 bytes among 4 ranks is too large");
	}
}

static void odd_hosts(struct control_job *m, int rank, struct tt_join *join)
{
	(void)m;
	join->host_id = rank == 0 ? "" : rank % 2 ? "red" : "blue";
}

static int hosts_are_numbered(struct control_job *m, int rank, struct tt_control *ctl)
{
	static const int want[] = { 0, 1, 2, 1, 2 };
	int n, wrong = 0;
	const struct tt_counted_bits *firsts;
	const int *host_of = tt_control_hosts(ctl, &firsts, &n);

	(void)rank;
	for (int r = 0; r < m->n; r++)
		wrong += tt_host_number(host_of, firsts, r) != want[r];
	return wrong + (n != 3);
}

Test(control, hosts_are_numbered_by_their_lowest_rank, .timeout = 30)
{
	struct control_job m = { .n = 5, .before = odd_hosts, .body = hosts_are_numbered };

	control_job_run(&m);
	for (int r = 0; r < 5; r++)
		cr_assert(m.report[r].joined == 0 && m.report[r].rc == 0, "rank %d: %s", r,
			  m.report[r].text);
}

static void rank_0_is_late(struct control_job *m, int rank, struct tt_join *join)
{
	(void)m;
	(void)join;
	if (rank == 0)
		sleep_ms(700);
}

Test(control, rank_0_may_join_last, .timeout = 30)
{
	struct control_job m = { .n = 3, .before = rank_0_is_late };

	control_job_run(&m);
	for (int r = 0; r < 3; r++)
		cr_assert_eq(m.report[r].joined, 0, "%s", m.report[r].text);
}

/* ---- missing ranks --------------------------------------------------------------------------- */

/* Run a join that times out after 1.5 s. On a slow machine, ranks that do start have not joined by
 * then: without the phrase in the text of this rank, run it with a later deadline. */
static void run_until_timeout(struct control_job *m, int rank, const char *phrase)
{
	m->timeout_ms = 1500;
	control_job_run(m);
	if (strstr(m->report[rank].text, phrase))
		return;
	m->timeout_ms = 8000;
	control_job_run(m);
}

static bool ranks_2_and_5(int rank)
{
	return rank == 2 || rank == 5;
}

static bool inner_rank(int rank)
{
	return rank == 1;
}

static bool rank_0(int rank)
{
	return rank == 0;
}

static void missing(int n, bool (*absent)(int), const char *phrase)
{
	struct control_job m = { .n = n, .absent = absent, .only_rank_0 = !absent(0) };

	run_until_timeout(&m, absent(0), phrase);
	for (int r = 0; r < n; r++) {
		if (absent(r))
			continue;
		cr_assert_eq(m.report[r].joined, TT_TIMEOUT, "rank %d: %d %s", r,
			     m.report[r].joined, m.report[r].text);
		ASSERT_TEXT(r, phrase);
		cr_assert_leq(m.report[r].took_ms, SOON_MS);
	}
	if (!absent(0))
		cr_assert_geq(m.report[0].took_ms, m.timeout_ms - 10,
			      "rank 0 did not wait for the missing ranks");
}

Test(control, every_rank_names_the_missing_ranks, .timeout = 30)
{
	missing(12, ranks_2_and_5, "ranks 2, 5 did not join");
}

Test(control, a_missing_inner_rank_of_the_tree_is_named_by_its_subtree, .timeout = 30)
{
	missing(12, inner_rank, "rank 1 did not join");
}

Test(control, a_missing_rank_0_is_named_by_the_other_ranks, .timeout = 30)
{
	/* no listener at rank 0's address, or not every address has answered yet */
	missing(3, rank_0, "did not join, or cannot be reached");
}

/* ---- authentication -------------------------------------------------------------------------- */

static void another_secret(struct control_job *m, int rank, struct tt_join *join)
{
	static tuttiUniqueId forged;
	struct tt_id id;

	(void)m;
	if (rank != 2)
		return;
	cr_assert_eq(tt_id_unpack(join->id, &id), 0);
	id.secret[0] ^= 1;
	tt_id_pack(&id, &forged);
	join->id = &forged;
}

Test(control, a_rank_with_another_secret_is_refused_and_both_sides_report_the_mismatch,
     .timeout = 30)
{
	struct control_job m = { .n = 4, .before = another_secret };

	run_until_timeout(&m, 2, "a different secret");
	for (int r = 0; r < 4; r++)
		ASSERT_TEXT(r, "a different secret");
	/* rank 2 goes on looking: a listener without its secret may be a stranger */
	cr_assert_eq(m.report[2].joined, TT_TIMEOUT);
	cr_assert_eq(m.report[0].joined, TT_TIMEOUT);
	ASSERT_TEXT(0, "rank 2 did not join");
}

static int connect_to(int port)
{
	struct sockaddr_in sa = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port) };
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	sa.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	for (int i = 0; i < 2000 && connect(fd, (struct sockaddr *)&sa, sizeof(sa)); i++) {
		close(fd);
		sleep_ms(1);
		fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	}
	return fd;
}

/* Connect and send, by kind: 0 nothing, 1 half a ClientHello, 2 one of another job, 3 one of this
 * job, and nothing more, 4 one of this job with another key, 5 random bytes, 6 one of this job and
 * another version. */
static int connect_unauthenticated(const struct tt_id *id, int kind)
{
	static const uint8_t other_job[TT_NONCE];
	uint8_t noise[512];
	struct tt_key key;
	size_t n = sizeof(noise);
	int fd = connect_to(id->port);

	cr_assert(tt_key_make(id->secret, id->nonce, &key));
	key.bytes[0] ^= kind == 4;
	for (size_t i = 0; i < sizeof(noise); i++)
		noise[i] = (uint8_t)(rand() >> 7);
	if (kind >= 1 && kind != 5)
		n = tls_client_hello(kind == 2 ? other_job : id->nonce, &key, noise, n);
	if (kind == 6) /* two bytes of the version precede the job */
		((uint8_t *)memmem(noise, n, id->nonce, TT_NONCE))[-2]--;
	if (kind > 0)
		(void)!send(fd, noise, kind == 1 ? n / 2 : n, MSG_NOSIGNAL);
	return fd;
}

static int work_among_unauthenticated(struct control_job *m, int rank, struct tt_control *ctl)
{
	int wrong = allgather_parts(m, rank, ctl);

	control_job_reached(m, 0, 2, 10000); /* unauthenticated connections are open again */
	return wrong + allgather_parts(m, rank, ctl) + (tt_control_broken(ctl) != 0);
}

static void wait_for_unauthenticated(struct control_job *m, int rank, struct tt_join *join)
{
	(void)join;
	if (rank)
		control_job_reached(m, rank, 1, 10000);
}

Test(control, unauthenticated_connections_disturb_neither_the_join_nor_the_job, .timeout = 60)
{
	struct control_job m = { .n = 3,
				 .before = wait_for_unauthenticated,
				 .body = work_among_unauthenticated };
	struct tt_id id;
	int fds[240], n = 0;

	control_job_start(&m);
	cr_assert_eq(tt_id_unpack(&m.id, &id), 0);
	while (n < 120) { /* more than are admitted at a time */
		fds[n] = connect_unauthenticated(&id, n % 7);
		n++;
	}
	for (int r = 0; r < 3; r++)
		atomic_store(&m.report[r].progress, 1);
	sleep_ms(300);
	while (n < 240) {
		fds[n] = connect_unauthenticated(&id, n % 7);
		n++;
	}
	atomic_store(&m.report[0].progress, 2);
	control_job_wait(&m);
	for (int r = 0; r < 3; r++)
		cr_assert(m.report[r].joined == 0 && m.report[r].rc == 0, "rank %d: %d %s", r,
			  m.report[r].rc, m.report[r].text);
	while (n > 0)
		close(fds[--n]);
}

Test(control, a_rank_of_another_version_is_named_by_rank_0_and_refused, .timeout = 60)
{
	struct control_job m = {
		.n = 3, .absent = inner_rank, .timeout_ms = 4000, .only_rank_0 = true
	};
	static const uint8_t internal_error[] = { 21, 3, 3, 0, 2, 2, 80 };
	uint8_t alert[16];
	struct tt_id id;
	int fd;

	control_job_start(&m);
	cr_assert_eq(tt_id_unpack(&m.id, &id), 0);
	fd = connect_unauthenticated(&id, 6);
	cr_assert_eq(recv(fd, alert, sizeof(alert), 0), sizeof(internal_error));
	cr_assert_arr_eq(alert, internal_error, sizeof(internal_error));
	control_job_wait(&m);
	for (int r = 0; r < m.n; r += 2)
		ASSERT_TEXT(r,
			    "rank 1 did not join; a process that claims to be rank 1 has another "
			    "version of Tutti");
	close(fd);
}

/* ---- inconsistent joins ---------------------------------------------------------------------- */

typedef void before_fn(struct control_job *m, int rank, struct tt_join *join);

/* The join of n ranks, changed by `before`, fails on every rank with a text that has a and b. */
static void all_refuse(int n, before_fn *before, const char *a, const char *b)
{
	struct control_job m = { .n = n, .before = before };

	control_job_run(&m);
	for (int r = 0; r < n; r++) {
		cr_assert_eq(m.report[r].joined, TT_USAGE, "rank %d: %d %s", r, m.report[r].joined,
			     m.report[r].text);
		ASSERT_TEXT(r, a);
		ASSERT_TEXT(r, b);
		cr_assert_leq(m.report[r].took_ms, SOON_MS, "not long before the deadline");
	}
}

static void rank_3_joins_as_2(struct control_job *m, int rank, struct tt_join *join)
{
	(void)m;
	if (rank == 3)
		join->rank = 2;
}

Test(control, a_rank_that_joins_twice_is_reported_to_every_rank, .timeout = 60)
{
	all_refuse(4, rank_3_joins_as_2, "two processes join as rank 2: pid ", " and pid ");
}

static void rank_11_has_nranks_13(struct control_job *m, int rank, struct tt_join *join)
{
	(void)m;
	if (rank == 11)
		join->nranks = 13;
}

Test(control, different_nranks_are_reported_to_every_rank, .timeout = 60)
{
	all_refuse(12, rank_11_has_nranks_13, "rank 11", "13 ranks, rank 0 as one of 12");
}

static void rank_2_has_algo_ring(struct control_job *m, int rank, struct tt_join *join)
{
	(void)m;
	if (rank == 2)
		join->settings = "algo=ring transport=auto";
}

Test(control, different_settings_are_reported_to_every_rank_with_both_values, .timeout = 60)
{
	all_refuse(10, rank_2_has_algo_ring, "rank 0 has algo=auto", "rank 2 has algo=ring");
}

static void rank_3_joins_as_7(struct control_job *m, int rank, struct tt_join *join)
{
	(void)m;
	if (rank == 3)
		*join = (struct tt_join){ .id = join->id,
					  .rank = 7,
					  .nranks = 8,
					  .settings = join->settings,
					  .timeout_ms = join->timeout_ms,
					  .ifname = "",
					  .host_id = "",
					  .port_range = "" };
}

Test(control, a_rank_beyond_nranks_is_reported_to_every_rank, .timeout = 60)
{
	struct tt_join join = { .rank = 4,
				.nranks = 4,
				.settings = "",
				.ifname = "",
				.host_id = "",
				.port_range = "",
				.timeout_ms = 1000 };
	tuttiUniqueId id;
	struct tt_control *ctl;

	all_refuse(4, rank_3_joins_as_7, "rank 7", "rank 0 as one of 4");
	cr_assert_eq(tt_id_make("", "", &id), 0);
	join.id = &id;
	cr_assert_eq(tt_control_join(&join, &ctl), TT_ARG);
	cr_assert(strstr(tt_error_text(), "rank 4 is not one of 4 ranks"), "%s", tt_error_text());
}

/* Ranks 0 and 1 have joined; another process joins as rank 1. */
static int stay_joined(struct control_job *m, int rank, struct tt_control *ctl)
{
	atomic_store(&m->report[rank].progress, 1);
	control_job_reached(m, 0, 2, 10000);
	return allgather_parts(m, rank, ctl) + (tt_control_broken(ctl) != 0);
}

Test(control, a_join_of_a_complete_job_is_refused_and_the_job_continues, .timeout = 60)
{
	struct control_job m = { .n = 2, .body = stay_joined };
	struct tt_join join = { .rank = 1,
				.nranks = 2,
				.settings = "algo=auto transport=auto",
				.ifname = "",
				.host_id = "",
				.port_range = "",
				.timeout_ms = 5000 };
	struct tt_control *ctl;

	control_job_start(&m);
	cr_assert(control_job_all_reached(&m, 1, 10000));
	join.id = &m.id;
	cr_assert_eq(tt_control_join(&join, &ctl), TT_USAGE);
	cr_assert(strstr(tt_error_text(), "two processes join as rank 1"), "%s", tt_error_text());
	atomic_store(&m.report[0].progress, 2);
	control_job_wait(&m);
	cr_assert_eq(m.report[0].rc, 0);
	cr_assert_eq(m.report[1].rc, 0);
}

/* ---- limits of the host ---------------------------------------------------------------------- */

Test(control, a_port_in_use_is_named, .timeout = 30)
{
	struct tt_join join = { .nranks = 2,
				.settings = "",
				.ifname = "",
				.host_id = "",
				.port_range = "",
				.timeout_ms = 1000 };
	tuttiUniqueId id;
	struct tt_control *ctl;
	char root[32], words[32];
	int fd, port;

	cr_assert_eq(tt_sock_listen(0, &fd, &port), 0);
	snprintf(root, sizeof(root), "127.0.0.1:%d", port);
	cr_assert_eq(tt_id_from_root(root, "secret", &id), 0);
	join.id = &id;
	cr_assert_eq(tt_control_join(&join, &ctl), TT_SYSTEM);
	snprintf(words, sizeof(words), "port %d", port);
	cr_assert(strstr(tt_error_text(), words) && strstr(tt_error_text(), "is taken"), "%s",
		  tt_error_text());
	tt_sock_close(fd);
}

/* Limit this process to `more` further descriptors. */
static void limit_descriptors(int more)
{
	struct rlimit limit;
	int fd = 0;

	for (int unused = 0; unused < more || fcntl(fd, F_GETFD) >= 0; fd++)
		unused += fcntl(fd, F_GETFD) < 0;
	limit.rlim_cur = limit.rlim_max = (rlim_t)fd;
	setrlimit(RLIMIT_NOFILE, &limit);
}

static void limit_rank_1(struct control_job *m, int rank, struct tt_join *join)
{
	(void)join;
	if (rank == 1)
		limit_descriptors(*(int *)m->arg);
}

static void limit_rank_0(struct control_job *m, int rank, struct tt_join *join)
{
	(void)join;
	if (rank == 0)
		limit_descriptors(*(int *)m->arg);
}

static void too_few(void (*before)(struct control_job *, int, struct tt_join *), int limited,
		    int from, int to)
{
	for (int more = from; more <= to; more++) {
		struct control_job m = { .n = 6, .before = before, .arg = &more };

		control_job_run(&m);
		cr_assert_eq(m.report[limited].joined, TT_SYSTEM, "%d more descriptors: %d %s",
			     more, m.report[limited].joined, m.report[limited].text);
		for (int r = 0; r < 6; r++) {
			cr_assert(m.report[r].joined, "%d more descriptors: rank %d joined", more,
				  r);
			ASSERT_TEXT(r, "Too many open files");
			cr_assert_leq(m.report[r].took_ms, SOON_MS,
				      "rank %d waited for its deadline", r);
		}
	}
}

Test(control, too_few_descriptors_of_a_leaf_rank_are_reported_to_every_rank, .timeout = 120)
{
	too_few(limit_rank_1, 1, 1, 4);
}

Test(control, too_few_descriptors_of_rank_0_are_reported_to_every_rank, .timeout = 120)
{
	too_few(limit_rank_0, 0, 5, 8); /* with fewer descriptors rank 0 cannot listen */
}

static void a_wrong_interface(struct control_job *m, int rank, struct tt_join *join)
{
	(void)m;
	if (rank == 9)
		join->ifname = "=nosuch";
}

Test(control, the_reason_why_a_rank_cannot_join_is_reported_to_every_rank, .timeout = 60)
{
	struct control_job m = { .n = 11, .before = a_wrong_interface };

	control_job_run(&m);
	for (int r = 0; r < 11; r++) {
		cr_assert_eq(m.report[r].joined, r == 9 ? TT_ARG : TT_REMOTE, "%s",
			     m.report[r].text);
		ASSERT_TEXT(r, "TUTTI_SOCKET_IFNAME==nosuch chooses no interface");
		cr_assert_leq(m.report[r].took_ms, SOON_MS);
	}
}
