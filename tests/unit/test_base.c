/*
 * test_base.c - error texts, the log, the clock, sockets, the environment variables
 */
#include <criterion/criterion.h>
#include <limits.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/base.h"
#include "base/fence.h"
#include "base/sock.h"
#include "base/sparse.h"

/* ---- error ----------------------------------------------------------------------------------- */

Test(base, a_failure_keeps_its_error_text_and_errno, .timeout = 10)
{
	cr_assert_str_eq(tt_error_text(), "");
	errno = ENOENT;
	cr_assert_eq(tt_fail(TT_SYSTEM, "rank %d: %m", 3), TT_SYSTEM);
	cr_assert_eq(errno, ENOENT);
	cr_assert_str_eq(tt_error_text(), "rank 3: No such file or directory");
	tt_fail(TT_ARG, "again: %s", tt_error_text());
	cr_assert_str_eq(tt_error_text(), "again: rank 3: No such file or directory");
	tt_error_clear();
	cr_assert_str_eq(tt_error_text(), "");
}

Test(base, a_long_error_text_is_truncated, .timeout = 10)
{
	tt_fail(TT_ARG, "%5000d", 7);
	cr_assert_eq(strlen(tt_error_text()), 1023);
}

static void *fail_elsewhere(void *arg)
{
	(void)arg;
	tt_fail(TT_ARG, "elsewhere");
	return NULL;
}

Test(base, each_thread_has_its_own_error_text, .timeout = 10)
{
	pthread_t thread;

	tt_fail(TT_ARG, "here");
	pthread_create(&thread, NULL, fail_elsewhere, NULL);
	pthread_join(thread, NULL);
	cr_assert_str_eq(tt_error_text(), "here");
}

/* ---- log, clock ------------------------------------------------------------------------------ */

/* Output of the log to stderr for one message of every level, in text. Returns its length. */
static size_t logged(char *text, size_t size)
{
	int ends[2], saved = dup(STDERR_FILENO);
	ssize_t bytes;

	cr_assert_eq(pipe(ends), 0);
	dup2(ends[1], STDERR_FILENO);
	close(ends[1]);
	for (int level = TT_LOG_ERROR; level <= TT_LOG_DEBUG; level++)
		tt_log(level, "level %d\nsame line", level);
	dup2(saved, STDERR_FILENO);
	close(saved);
	bytes = read(ends[0], text, size - 1);
	close(ends[0]);
	text[bytes > 0 ? bytes : 0] = '\0';
	return (size_t)bytes;
}

Test(base, the_log_is_off_by_default, .timeout = 10)
{
	char text[512];

	unsetenv("TUTTI_LOG");
	cr_assert_eq(logged(text, sizeof(text)), 0, "%s", text);
}

Test(base, the_log_level_comes_from_the_environment, .timeout = 10)
{
	char text[512], wanted[512];

	setenv("TUTTI_LOG", "warn", 1);
	logged(text, sizeof(text));
	snprintf(wanted, sizeof(wanted),
		 "tutti %d error: level 1 same line\ntutti %d warn: level 2 same line\n",
		 (int)getpid(), (int)getpid());
	cr_assert_str_eq(text, wanted);
}

Test(base, a_level_set_by_tt_log_set_overrides_the_environment, .timeout = 10)
{
	char text[512];

	setenv("TUTTI_LOG", "debug", 1);
	tt_log_set(0);
	cr_assert_eq(logged(text, sizeof(text)), 0);
	tt_log_set(TT_LOG_DEBUG);
	logged(text, sizeof(text));
	cr_assert(strstr(text, " debug: level 4 same line\n"));
}

Test(base, a_long_log_line_is_truncated_and_ends_with_a_newline, .timeout = 10)
{
	char *text = malloc(4096);
	int ends[2], saved = dup(STDERR_FILENO);
	ssize_t bytes;

	tt_log_set(TT_LOG_INFO);
	cr_assert_eq(pipe(ends), 0);
	dup2(ends[1], STDERR_FILENO);
	tt_log(TT_LOG_INFO, "%3000d", 7);
	dup2(saved, STDERR_FILENO);
	bytes = read(ends[0], text, 4096);
	cr_assert(bytes > 1000 && bytes < 3000 && text[bytes - 1] == '\n' &&
		  !memchr(text, '\n', (size_t)bytes - 1));
	free(text);
}

Test(base, the_clock_is_monotonic, .timeout = 10)
{
	uint64_t last = tt_now_ns();

	for (int i = 0; i < 100000; i++) {
		uint64_t now = tt_now_ns();

		cr_assert(now >= last);
		last = now;
	}
	cr_assert(tt_deadline_ns(UINT32_MAX) - last >= UINT32_MAX * 1000000ull);
}

/* ---- sockets --------------------------------------------------------------------------------- */

static void assert_unpaced(int fd)
{
	char name[16] = "";

	cr_assert(fd >= 0);
	cr_assert_eq(getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name,
				&(socklen_t){ sizeof(name) }),
		     0);
	cr_assert_str_eq(name, "reno");
}

Test(sockets, a_loopback_connection_is_not_paced_on_either_side, .timeout = 10)
{
	const struct tt_patience patience = { .deadline_ns = tt_deadline_ns(5000) };
	struct tt_sock_target target = { .address = tt_loopback4 };
	int listener, index, ours, theirs;

	cr_assert_eq(tt_sock_listen(0, &listener, &target.port), 0);
	cr_assert_eq(tt_sock_happy_eyeballs(&target, 1, &patience, &index, &ours), 0);
	cr_assert_eq(poll(&(struct pollfd){ .fd = listener, .events = POLLIN }, 1, 5000), 1);
	theirs = accept(listener, NULL, NULL);
	tt_sock_settle(theirs);
	assert_unpaced(ours);
	assert_unpaced(theirs);
	tt_sock_close(ours);
	close(theirs);
	tt_sock_close(listener);
}

/* ---- environment ----------------------------------------------------------------------------- */

static void unset_all(void)
{
	for (size_t i = 0; i < tt_env_rows; i++)
		unsetenv(tt_env_table[i].name);
}

TestSuite(environment, .init = unset_all, .timeout = 10);

Test(environment, unset_variables_have_their_defaults)
{
	struct tt_env env;

	cr_assert_eq(tt_env_read(&env), 0, "%s", tt_error_text());
	cr_assert_str_eq(env.transport, "auto");
	cr_assert_str_eq(env.algo, "auto");
	cr_assert_str_eq(env.log, "none");
	cr_assert_str_eq(env.ifname, "");
	cr_assert_str_eq(env.isa, "auto");
	cr_assert_str_eq(env.wait, "auto");
	cr_assert_str_eq(env.host_id, "");
	cr_assert_str_eq(env.fault, "");
	cr_assert_str_eq(env.root, "");
	cr_assert_str_eq(env.secret, "");
	cr_assert_eq(env.timeout_ms, 30000);
	cr_assert_eq(env.tile_bytes, 0);
	cr_assert_eq(env.rank, -1);
	cr_assert_eq(env.nranks, -1);
}

static const struct {
	const char *name, *value;
	bool good;
} cases[] = {
	{ "TUTTI_TRANSPORT", "shm", true },
	{ "TUTTI_TRANSPORT", "sh", false },
	{ "TUTTI_TRANSPORT", "", false },
	{ "TUTTI_TRANSPORT", "shm tcp", false },
	{ "TUTTI_TRANSPORT", "SHM", false },
	{ "TUTTI_TRANSPORT", " shm", false },
	{ "TUTTI_ALGO", "ring", true },
	{ "TUTTI_ALGO", "", false },
	{ "TUTTI_TIMEOUT_MS", "1", true },
	{ "TUTTI_TIMEOUT_MS", "2147483647", true },
	{ "TUTTI_TIMEOUT_MS", "2147483648", false },
	{ "TUTTI_TIMEOUT_MS", "0", false },
	{ "TUTTI_TIMEOUT_MS", "-5", false },
	{ "TUTTI_TIMEOUT_MS", "+5", false },
	{ "TUTTI_TIMEOUT_MS", " 5", false },
	{ "TUTTI_TIMEOUT_MS", "5s", false },
	{ "TUTTI_TIMEOUT_MS", "1e3", false },
	{ "TUTTI_TIMEOUT_MS", "", false },
	{ "TUTTI_TIMEOUT_MS", "99999999999999999999999", false },
	{ "TUTTI_TILE_BYTES", "0", true },
	{ "TUTTI_TILE_BYTES", "4096", true },
	{ "TUTTI_TILE_BYTES", "4095", false },
	{ "TUTTI_TILE_BYTES", "16777217", false },
	{ "TUTTI_RANK", "0", true },
	{ "TUTTI_RANK", "-1", false },
	{ "TUTTI_NRANKS", "0", false },
	{ "TUTTI_LOG", "debug", true },
	{ "TUTTI_LOG", "trace", false },
	{ "TUTTI_ISA", "avx2", true },
	{ "TUTTI_ISA", "sse2", false },
	{ "TUTTI_WAIT", "sleep", true },
	{ "TUTTI_WAIT", "block", false },
	{ "TUTTI_SOCKET_IFNAME", "eth", true },
	{ "TUTTI_SOCKET_IFNAME", "eth,ib", true },
	{ "TUTTI_SOCKET_IFNAME", "=eth0,ib1", true },
	{ "TUTTI_SOCKET_IFNAME", "^docker,lo", true },
	{ "TUTTI_SOCKET_IFNAME", "^=lo", true },
	{ "TUTTI_SOCKET_IFNAME", "=^lo", false },
	{ "TUTTI_SOCKET_IFNAME", "eth,,ib", false },
	{ "TUTTI_SOCKET_IFNAME", "eth,", false },
	{ "TUTTI_SOCKET_IFNAME", "^", false },
	{ "TUTTI_SOCKET_IFNAME", "a name", false },
	{ "TUTTI_SOCKET_IFNAME", "a/b", false },
	{ "TUTTI_SOCKET_IFNAME", "sixteencharacter", false },
	{ "TUTTI_FAULT", "kill@0:1", true },
	{ "TUTTI_FAULT", "stop@12:345", true },
	{ "TUTTI_FAULT", "exit@1:0", true },
	{ "TUTTI_FAULT", "kill@0", false },
	{ "TUTTI_FAULT", "kill@:1", false },
	{ "TUTTI_FAULT", "kill@0:", false },
	{ "TUTTI_FAULT", "burn@0:1", false },
	{ "TUTTI_FAULT", "kill@0:1x", false },
	{ "TUTTI_FAULT", "kill", false },
	{ "TUTTI_FAULT", "kill@-1:1", false },
	{ "TUTTI_FAULT", "kill@99999999999999:1", false },
	{ "TUTTI_ROOT", "host:1", true },
	{ "TUTTI_ROOT", "10.0.0.1:65535", true },
	{ "TUTTI_ROOT", "[::1]:80", true },
	{ "TUTTI_ROOT", "host", false },
	{ "TUTTI_ROOT", "host:", false },
	{ "TUTTI_ROOT", ":80", false },
	{ "TUTTI_ROOT", "host:0", false },
	{ "TUTTI_ROOT", "host:65536", false },
	{ "TUTTI_ROOT", "::1:80", false },
	{ "TUTTI_ROOT", "[]:80", false },
	{ "TUTTI_ROOT", "file:/shared/x", true },
	{ "TUTTI_ROOT", "file:/", false },
	{ "TUTTI_ROOT", "file:x", false },
	{ "TUTTI_PORT_RANGE", "50000-50099", true },
	{ "TUTTI_PORT_RANGE", "1-1", true },
	{ "TUTTI_PORT_RANGE", "50000", false },
	{ "TUTTI_PORT_RANGE", "50099-50000", false },
	{ "TUTTI_PORT_RANGE", "0-5", false },
	{ "TUTTI_PORT_RANGE", "1-65536", false },
	{ "TUTTI_PORT_RANGE", "-5", false },
	{ "TUTTI_LAUNCH", "torchrun", true },
	{ "TUTTI_LAUNCH", "mpirun", false },
	{ "TUTTI_SECRET", "x", true },
	{ "TUTTI_SECRET", "", false },
};

Test(environment, valid_values_are_accepted_and_invalid_ones_named)
{
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct tt_env env;
		char quoted[64];
		int rc;

		unset_all();
		setenv(cases[i].name, cases[i].value, 1);
		snprintf(quoted, sizeof(quoted), "%s is '%s'", cases[i].name, cases[i].value);
		tt_error_clear();
		rc = tt_env_read(&env);
		cr_expect_eq(rc, cases[i].good ? 0 : TT_ARG, "%s=%s: %s", cases[i].name,
			     cases[i].value, tt_error_text());
		if (!cases[i].good)
			cr_expect(strstr(tt_error_text(), *cases[i].value ? quoted : "empty") &&
					  strstr(tt_error_text(),
						 *cases[i].value ? "allowed" : "unset it, or use"),
				  "%s", tt_error_text());
	}
}

/* The first free port of the range is taken; without a free port the error text names the range. */
Test(sockets, ports_of_a_range_are_tried_in_order)
{
	struct tt_ports range = tt_ports_read("");
	int first, fd[3], port[3];

	cr_assert(range.first == 0 && range.count == 0);
	cr_assert_eq(tt_sock_among(&range, tt_sock_listen, &fd[0], &first), 0);
	range = (struct tt_ports){ .first = first, .count = first < 65534 ? 3 : 1 };
	for (int i = 1; i < 3 && range.count > 1; i++) {
		int rc = tt_sock_among(&range, i % 2 ? tt_sock_reserve : tt_sock_listen, &fd[i],
				       &port[i]);

		cr_expect(rc == TT_SYSTEM || (port[i] > first && port[i] < first + 3), "%d: %s", rc,
			  tt_error_text());
		cr_expect(rc == 0 || strstr(tt_error_text(), "none of the ports"), "%s",
			  tt_error_text());
	}
	range.count = 1;
	cr_expect_eq(tt_sock_among(&range, tt_sock_listen, &fd[2], &port[2]), TT_SYSTEM);
}

/* Records the ports that are tried; every port is in use. */
static int tried[8], ntried;

static int no_free_port(int port, int *ret_fd, int *ret_port)
{
	(void)ret_fd;
	(void)ret_port;
	tried[ntried++] = port;
	errno = EADDRINUSE;
	return TT_SYSTEM;
}

Test(sockets, ports_to_avoid_are_tried_last)
{
	struct tt_ports range = { 100, 4, 99, 3 };
	int fd, port;

	cr_assert_eq(tt_sock_among(&range, no_free_port, &fd, &port), TT_SYSTEM);
	cr_assert_eq(ntried, 4);
	cr_expect(tried[0] == 102 && tried[1] == 103 && tried[2] == 100 && tried[3] == 101);
}

/* The side that closes first keeps the connection in TIME_WAIT for a minute. */
Test(sockets, a_port_in_time_wait_can_be_reserved)
{
	struct sockaddr_in to = { .sin_family = AF_INET,
				  .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int listener, port, accepted, client = socket(AF_INET, SOCK_STREAM, 0), fd, same;
	char byte;

	cr_assert_eq(tt_sock_listen(0, &listener, &port), 0);
	to.sin_port = htons((uint16_t)port);
	cr_assert_eq(connect(client, (struct sockaddr *)&to, sizeof(to)), 0);
	while ((accepted = accept(listener, NULL, NULL)) < 0)
		;
	cr_expect_eq(tt_sock_reserve_used(port, &fd, &same), TT_SYSTEM,
		     "a socket listens on the port");
	close(accepted);
	cr_expect_eq(read(client, &byte, 1), 0);
	close(client);
	tt_sock_close(listener);
	cr_expect_eq(tt_sock_reserve(port, &fd, &same), TT_SYSTEM);
	cr_expect_eq(tt_sock_reserve_used(port, &fd, &same), 0, "%s", tt_error_text());
	cr_expect_eq(same, port);
	close(fd);
}

Test(environment, values_are_stored_in_their_fields)
{
	struct tt_env env;

	setenv("TUTTI_TRANSPORT", "tcp", 1);
	setenv("TUTTI_TIMEOUT_MS", "1234", 1);
	setenv("TUTTI_SOCKET_IFNAME", "eth", 1);
	setenv("TUTTI_RANK", "3", 1);
	setenv("TUTTI_NRANKS", "4", 1);
	cr_assert_eq(tt_env_read(&env), 0);
	cr_assert_str_eq(env.transport, "tcp");
	cr_assert_eq(env.timeout_ms, 1234);
	cr_assert_str_eq(env.ifname, "eth");
	cr_assert_eq(env.rank, 3);
	cr_assert_eq(env.nranks, 4);
}

Test(environment, an_unknown_variable_is_an_error_that_suggests_the_nearest_name)
{
	struct tt_env env;
	char name[300] = "TUTTI_";

	setenv("TUTTI_TIMEOUT", "5", 1);
	cr_assert_eq(tt_env_read(&env), TT_ARG);
	cr_assert(strstr(tt_error_text(), "TUTTI_TIMEOUT;"), "%s", tt_error_text());
	cr_assert(strstr(tt_error_text(), "TUTTI_TIMEOUT_MS"), "%s", tt_error_text());
	unsetenv("TUTTI_TIMEOUT");

	memset(name + 6, 'X', 290);
	setenv(name, "5", 1);
	cr_assert_eq(tt_env_read(&env), TT_ARG);
	unsetenv(name);

	setenv("TUTTI_TEST_ANYTHING", "5", 1);
	setenv("TUTTIFRUTTI", "5", 1);
	cr_assert_eq(tt_env_read(&env), 0, "%s", tt_error_text());
}

Test(environment, bad_values_have_their_defaults_and_the_first_is_reported)
{
	struct tt_env env;

	setenv("TUTTI_TRANSPORT", "pigeon", 1);
	setenv("TUTTI_TIMEOUT_MS", "soon", 1);
	setenv("TUTTI_RANK", "1", 1);
	cr_assert_eq(tt_env_read(&env), TT_ARG);
	cr_assert(strstr(tt_error_text(), "TUTTI_TRANSPORT is 'pigeon'"), "%s", tt_error_text());
	cr_assert_str_eq(env.transport, "auto");
	cr_assert_eq(env.timeout_ms, 30000);
	cr_assert_eq(env.rank, 1);
}

Test(environment, every_variable_has_help_choices_and_a_default)
{
	for (size_t i = 0; i < tt_env_rows; i++) {
		const struct tt_env_row *row = &tt_env_table[i];

		cr_expect(!strncmp(row->name, "TUTTI_", 6));
		cr_expect(row->help && *row->help && row->choices && *row->choices &&
			  row->fallback);
		for (size_t k = 0; k < i; k++)
			cr_expect(strcmp(row->name, tt_env_table[k].name) &&
				  row->offset != tt_env_table[k].offset);
	}
}

/* A wait that lasts long polls 50 times a second. */
/* The kernel refuses the fence to a process that has not registered, and takes long to register one with
 * several threads. */
Test(base, the_asymmetric_fence_is_registered_before_the_first_thread, .timeout = 10)
{
	if (!(syscall(SYS_membarrier, MEMBARRIER_CMD_QUERY, 0, 0) &
	      MEMBARRIER_CMD_PRIVATE_EXPEDITED))
		cr_skip_test("no membarrier in this kernel");
	cr_assert(tt_membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED));
	tt_asymmetric_fence();
}

Test(clock, a_wait_polls_less_often_the_longer_it_lasts)
{
	uint64_t now = tt_now_ns();

	cr_assert_geq(tt_poll_interval_ns(now, 15000000), 15000000);
	cr_assert_geq(tt_poll_interval_ns(now - 640000000, 200000), 10000000);
	cr_assert_eq(tt_poll_interval_ns(now - 10000000000, 200000), 20000000);
}

/* ---- sparse.h -------------------------------------------------------------------------------- */

Test(sparse, pointers_that_are_not_set_take_a_bit_for_sixteen)
{
	struct tt_sparse s = { 0 };
	int n = 10000, number[] = { 0, 4711, n - 1 }, what[3];

	cr_assert(tt_sparse_make(&s, n));
	cr_assert_eq(tt_sparse_next(&s, 0), INT_MAX);
	cr_assert(tt_sparse_set(&s, 7, NULL), "that needs no memory");
	cr_assert_leq(tt_sparse_memory(&s), (size_t)n / 128 + sizeof(void *));
	for (int i = 0; i < 3; i++)
		cr_assert(tt_sparse_set(&s, number[i], &what[i]));
	for (int i = 0, at = 0; i < n; i++) {
		bool is_set = at < 3 && i == number[at];

		cr_assert_eq(tt_sparse_next(&s, i), at < 3 ? number[at] : INT_MAX, "from %d", i);
		cr_assert_eq(tt_sparse_get(&s, i), is_set ? &what[at++] : NULL, "number %d", i);
	}
	tt_sparse_set(&s, n - 1, NULL);
	cr_assert_null(tt_sparse_get(&s, n - 1));
	tt_sparse_free(&s);
}
