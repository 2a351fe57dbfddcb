/*
 * test_wrong_joins.c - joins that must fail: inconsistent ranks, unauthenticated connections,
 * secrets, ports, descriptors, settings
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/sock.h"
#include "tests/support/ranks.h"

#define TIMEOUT_MS 4000
#define LONG_MS 15000 /* for joins that never reach their timeout */

/* Joins with a rank and a number of ranks that the test sets for each process. */
struct joins {
	struct ranks ranks;
	int nranks[4], rank[4];
	const char *word;
	_Atomic int *reported; /* ranks whose error has the reason */
};

static void *shared_memory(size_t bytes)
{
	return mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
}

static int join_by_hand(tuttiComm_t *comm, int rank, int n, void *arg)
{
	struct joins *j = arg;
	tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
	tuttiResult_t rc;

	(void)n;
	config.timeout_ms = TIMEOUT_MS;
	rc = tuttiCommInitRankConfig(comm, j->nranks[rank], j->ranks.id, j->rank[rank], &config);
	while (!rc && !*j->reported) /* a late rank still finds the others */
		usleep(1000);
	if (rc && strstr(tuttiGetLastError(NULL), j->word)) {
		++*j->reported;
		return 0;
	}
	fprintf(stderr, "process %d: result %d: %s\n", rank, rc, tuttiGetLastError(NULL));
	return 1;
}

Test(wrong_joins, inconsistent_joins_fail_on_every_rank, .timeout = 120)
{
	static struct joins cases[] = {
		/* the same rank twice */
		{ .nranks = { 2, 2, 2 }, .rank = { 0, 1, 1 }, .word = "rank 1" },
		/* different nranks */
		{ .nranks = { 3, 3, 2 }, .rank = { 0, 1, 1 }, .word = "2" },
		/* rank 2 never joins */
		{ .nranks = { 4, 4, 4 }, .rank = { 0, 1, 3 }, .word = "2" },
		/* rank beyond nranks */
		{ .nranks = { 3, 3, 3 }, .rank = { 0, 1, 5 }, .word = "rank" },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		cases[i].ranks = (struct ranks){
			.n = 3, .no_join = true, .limit_s = 20, .arg = &cases[i]
		};
		cases[i].reported = shared_memory(sizeof(*cases[i].reported));
		if (i == 0) {
			/* two of the three ranks may form the communicator of two; the third gets
			 * the reason */
			cr_expect_leq(ranks_run(&cases[i].ranks, join_by_hand), 2);
			cr_expect_gt(*cases[i].reported, 0);
			continue;
		}
		cr_expect_eq(ranks_run(&cases[i].ranks, join_by_hand), 0, "case %zu", i);
	}
}

/* Foreign connections arrive while the ranks join and work: with garbage, nothing, or a part of a
 * greeting. The job goes on. */
static int work_beside_connections(tuttiComm_t *comm, int rank, int n, void *arg)
{
	float x = 1;

	(void)rank, (void)arg;
	for (int i = 0; i < 200; i++) {
		x = 1;
		if (tuttiAllReduce(&x, &x, 1, tuttiFloat32, tuttiSum, *comm, NULL) || x != (float)n)
			return 1;
		usleep(1000);
	}
	return 0;
}

/* Connect to every listening TCP port of this network namespace. */
static void connect_to_all_ports(int seconds)
{
	time_t until = time(NULL) + seconds;
	unsigned char noise[512];

	for (unsigned i = 0; time(NULL) < until; i++) {
		FILE *f = fopen("/proc/net/tcp", "r");
		char line[256];
		int fds[32], nfds = 0;

		while (f && nfds < 32 && fgets(line, sizeof(line), f)) {
			unsigned port, state;
			struct sockaddr_in a = { .sin_family = AF_INET,
						 .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };

			if (sscanf(line, "%*d: %*x:%x %*x:%*x %x", &port, &state) != 2 ||
			    state != 10)
				continue;
			a.sin_port = htons((uint16_t)port);
			fds[nfds] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
			connect(fds[nfds], (struct sockaddr *)&a, sizeof(a));
			nfds++;
		}
		if (f)
			fclose(f);
		usleep(2000);
		for (size_t k = 0; k < sizeof(noise); k++)
			noise[k] = (unsigned char)random_of(i, k);
		for (int k = 0; k < nfds; k++) {
			if (k % 3)
				send(fds[k], noise, k % 2 ? sizeof(noise) : 7,
				     MSG_NOSIGNAL | MSG_DONTWAIT);
			close(fds[k]);
		}
		usleep(10000);
	}
	_exit(0);
}

Test(wrong_joins, unauthenticated_connections_do_not_disturb_a_job, .timeout = 60)
{
	struct ranks r = { .n = 3 };
	pid_t foreign = fork();

	if (foreign == 0)
		connect_to_all_ports(4);
	for (int i = 0; i < 3; i++) {
		r.transport = i % 2 ? "tcp" : "auto";
		cr_expect_eq(ranks_run(&r, work_beside_connections), 0);
	}
	kill(foreign, SIGKILL);
}

struct secret_test {
	int port;
	_Atomic int refused;
};

/* A rank with a wrong secret is refused with an error text; the ranks with the right secret are not
 * disturbed. */
static int other_secret(tuttiComm_t *comm, int rank, int n, void *arg)
{
	tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
	struct secret_test *test = arg;
	tuttiResult_t rc;
	char port[32];
	float x = 1;

	(void)n;
	config.timeout_ms = rank == 2 ? TIMEOUT_MS : LONG_MS;
	snprintf(port, sizeof(port), "127.0.0.1:%d", test->port);
	setenv("TUTTI_ROOT", port, 1);
	setenv("TUTTI_NRANKS", "2", 1);
	setenv("TUTTI_RANK", rank ? "1" : "0", 1);
	setenv("TUTTI_SECRET", rank == 2 ? "wrong" : "right", 1);
	while (rank == 1 && !test->refused) /* the job forms after the refusal */
		usleep(1000);
	rc = tuttiCommInitEnv(comm, &config);
	if (rank == 2) {
		test->refused = 1;
		return !(rc && strstr(tuttiGetLastError(NULL), "secret"));
	}
	return rc || tuttiAllReduce(&x, &x, 1, tuttiFloat32, tuttiSum, *comm, NULL) || x != 2;
}

Test(wrong_joins, a_wrong_secret_is_refused_with_an_error_text, .timeout = 60)
{
	struct secret_test *test = shared_memory(sizeof(*test));
	struct ranks r = { .n = 3, .no_join = true, .arg = test, .limit_s = 20 };
	int fd;

	cr_assert_eq(tt_sock_reserve(0, &fd, &test->port), 0);
	cr_expect_eq(ranks_run(&r, other_secret), 0);
	close(fd);
}

static int port_taken(tuttiComm_t *comm, int rank, int n, void *arg)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_ANY) };
	socklen_t len = sizeof(a);
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	char root[32], digits[16];
	tuttiResult_t rc;

	(void)rank, (void)n, (void)arg;
	bind(fd, (struct sockaddr *)&a, sizeof(a));
	listen(fd, 1);
	getsockname(fd, (struct sockaddr *)&a, &len);
	snprintf(digits, sizeof(digits), "%d", ntohs(a.sin_port));
	snprintf(root, sizeof(root), "127.0.0.1:%s", digits);
	setenv("TUTTI_ROOT", root, 1);
	setenv("TUTTI_NRANKS", "2", 1);
	setenv("TUTTI_RANK", "0", 1);
	setenv("TUTTI_SECRET", "s", 1);
	rc = tuttiCommInitEnv(comm, NULL);
	if (rc == tuttiSystemError && strstr(tuttiGetLastError(NULL), digits))
		return 0;
	fprintf(stderr, "result %d: %s\n", rc, tuttiGetLastError(NULL));
	return 1;
}

Test(wrong_joins, a_port_in_use_is_named, .timeout = 30)
{
	struct ranks r = { .n = 1, .no_join = true };

	cr_expect_eq(ranks_run(&r, port_taken), 0);
}

/* With too few file descriptors the join, or the first call, fails with a text; no rank hangs. */
static int few_descriptors(tuttiComm_t *comm, int rank, int n, void *arg)
{
	struct joins *j = arg;
	tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
	struct rlimit limit = { 12, 12 };
	float x = 1;
	tuttiResult_t rc;

	config.timeout_ms = TIMEOUT_MS;
	config.transport = "tcp";
	if (rank == 1)
		setrlimit(RLIMIT_NOFILE, &limit);
	rc = tuttiCommInitRankConfig(comm, n, j->ranks.id, rank, &config);
	for (int i = 0; !rc && i < 3; i++)
		rc = tuttiAllReduce(&x, &x, 1, tuttiFloat32, tuttiSum, *comm, NULL);
	if (!rc || (rank == 1 && !strstr(tuttiGetLastError(NULL), "descriptor") &&
		    !strstr(tuttiGetLastError(NULL), "files")))
		fprintf(stderr, "rank %d: result %d: %s\n", rank, rc, tuttiGetLastError(NULL));
	return rc == tuttiSuccess || !tuttiGetLastError(NULL)[0];
}

Test(wrong_joins, too_few_descriptors_are_an_error_with_a_text, .timeout = 60)
{
	static struct joins j;

	j.ranks = (struct ranks){ .n = 6, .no_join = true, .limit_s = 30, .arg = &j };
	cr_expect_eq(ranks_run(&j.ranks, few_descriptors), 0);
}

/* With `spare` descriptors left on one rank, a split and the first calls on the child work on all
 * ranks, or fail on all ranks with an error that names the rank and the reason. */
struct shortage {
	struct ranks ranks;
	int spare, victim;
	struct join_outcome {
		int rc;
		char text[600];
	} * outcome; /* [n], shared */
};

static void keep_descriptors(int spare)
{
	int lowest = dup(0);
	struct rlimit limit;

	close(lowest);
	getrlimit(RLIMIT_NOFILE, &limit);
	limit.rlim_cur = (rlim_t)(lowest + spare);
	setrlimit(RLIMIT_NOFILE, &limit);
}

static int split_with_few_descriptors(tuttiComm_t *comm, int rank, int n, void *arg)
{
	struct shortage *s = arg;
	struct join_outcome *o = &s->outcome[rank];
	tuttiComm_t child = NULL;
	float x = 1;

	if (rank == s->victim)
		keep_descriptors(s->spare);
	o->rc = tuttiCommSplit(*comm, 0, n - rank, &child, NULL);
	for (int i = 0; !o->rc && i < 3; i++)
		o->rc = tuttiAllReduce(&x, &x, 1, tuttiFloat32, tuttiSum, child, NULL);
	snprintf(o->text, sizeof(o->text), "%s", o->rc ? tuttiGetLastError(NULL) : "");
	if (child)
		tuttiCommDestroy(child);
	return 0;
}

/* Does text name the victim, by its rank in the parent or in the child, and the limit? */
static bool names_victim(const struct shortage *s, const char *text)
{
	char parent[32], child[32];

	snprintf(parent, sizeof(parent), "rank %d", s->victim);
	snprintf(child, sizeof(child), "rank %d", s->ranks.n - 1 - s->victim);
	return (strstr(text, parent) || strstr(text, child)) && strstr(text, "open files");
}

static bool some_fail(struct shortage *s)
{
	int failed = 0;

	cr_expect_eq(ranks_run(&s->ranks, split_with_few_descriptors), 0, "%d spare", s->spare);
	for (int r = 0; r < s->ranks.n; r++)
		failed += s->outcome[r].rc != 0;
	cr_expect(failed == 0 || failed == s->ranks.n, "%d spare: %d of %d fail", s->spare, failed,
		  s->ranks.n);
	for (int r = 0; failed && r < s->ranks.n; r++)
		cr_expect(names_victim(s, s->outcome[r].text), "%d spare, rank %d: %s", s->spare, r,
			  s->outcome[r].text);
	return failed;
}

Test(wrong_joins, descriptors_that_run_out_in_a_split_are_reported_on_every_rank, .timeout = 240)
{
	static const char *const transports[] = { "auto", "tcp" };

	for (int t = 0; t < 2; t++) {
		struct shortage s = { .victim = 1 + t };

		s.outcome = shared_memory(4 * sizeof(*s.outcome));
		s.ranks = (struct ranks){ .n = 4,
					  .transport = transports[t],
					  .timeout_ms = 100000,
					  .limit_s = 30,
					  .arg = &s };
		while (some_fail(&s))
			s.spare++;
		/* with none left not even data can be connected */
		cr_expect_gt(s.spare, 0);
	}
}

Test(wrong_joins, a_bad_environment_value_is_an_error_that_names_it, .timeout = 30)
{
	static const char *const bad[][2] = {
		{ "TUTTI_TIMEOUT_MS", "soon" }, { "TUTTI_TRANSPORT", "pigeon" },
		{ "TUTTI_ALGO", "rings" },      { "TUTTI_ISA", "mmx" },
		{ "TUTTI_WAIT", "maybe" },      { "TUTTI_TRANSPROT", "shm" }
	};

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		tuttiUniqueId id;
		tuttiComm_t c;
		tuttiResult_t rc;

		cr_assert_eq(tuttiGetUniqueId(&id), tuttiSuccess);
		setenv(bad[i][0], bad[i][1], 1);
		rc = tuttiCommInitRank(&c, 1, id, 0);
		cr_expect_eq(rc, tuttiInvalidArgument, "%s=%s gave %d", bad[i][0], bad[i][1], rc);
		cr_expect(strstr(tuttiGetLastError(NULL), bad[i][1]) ||
				  strstr(tuttiGetLastError(NULL), bad[i][0]),
			  "%s", tuttiGetLastError(NULL));
		unsetenv(bad[i][0]);
	}
}

Test(wrong_joins, a_negative_timeout_is_refused)
{
	tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
	tuttiUniqueId id;
	tuttiComm_t c;

	config.timeout_ms = -1;
	cr_assert_eq(tuttiGetUniqueId(&id), tuttiSuccess);
	cr_expect_eq(tuttiCommInitRankConfig(&c, 1, id, 0, &config), tuttiInvalidArgument);
	cr_expect(strstr(tuttiGetLastError(NULL), "timeout_ms is -1"));
}

/* A rank whose environment has a bad value reports that to rank 0, which would wait for its
 * deadline. */
static int join_with_a_bad_variable(tuttiComm_t *comm, int rank, int n, void *arg)
{
	char number[2] = { (char)('0' + rank) };
	tuttiResult_t rc;

	(void)n;
	setenv("TUTTI_RANK", number, 1);
	setenv("TUTTI_NRANKS", "2", 1);
	setenv("TUTTI_ROOT", arg, 1);
	setenv("TUTTI_SECRET", "of this test", 1);
	setenv("TUTTI_TIMEOUT_MS", "45000", 1); /* later than the test's limit */
	if (rank)
		setenv("TUTTI_CMA", "perhaps", 1);
	rc = tuttiCommInitEnv(comm, NULL);
	fprintf(stderr, "rank %d: result %d: %s\n", rank, rc, tuttiGetLastError(NULL));
	return rc != (rank ? tuttiInvalidArgument : tuttiRemoteError) ||
	       !strstr(tuttiGetLastError(NULL), "TUTTI_CMA is 'perhaps'") ||
	       (!rank && !strstr(tuttiGetLastError(NULL), "rank 1 cannot join"));
}

Test(wrong_joins, a_bad_variable_of_one_rank_ends_the_join_of_all, .timeout = 60)
{
	char root[32];
	struct ranks r = { .n = 2, .no_join = true, .limit_s = 30, .arg = root };
	int fd, port;

	cr_assert_eq(tt_sock_listen(0, &fd, &port), 0);
	close(fd);
	snprintf(root, sizeof(root), "127.0.0.1:%d", port);
	cr_expect_eq(ranks_run(&r, join_with_a_bad_variable), 0);
}

/* Such a number would need all memory of the host. */
Test(wrong_joins, an_impossible_number_of_ranks_is_refused, .timeout = 60)
{
	tuttiUniqueId id;
	tuttiComm_t c;

	cr_assert_eq(tuttiGetUniqueId(&id), tuttiSuccess);
	cr_expect_eq(tuttiCommInitRank(&c, INT_MAX, id, 0), tuttiInvalidArgument);
	cr_expect(strstr(tuttiGetLastError(NULL), "nranks must be 1 to 1048576"));
	cr_expect_eq(tuttiCommInitAll(&c, INT_MAX, NULL), tuttiInvalidArgument);
}
