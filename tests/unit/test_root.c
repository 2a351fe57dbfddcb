/*
 * test_root.c - communicators of ranks that meet at TUTTI_ROOT: several at a time, and one after the
 * other
 *
 * Ranks are processes. test_wrong_joins.c has the joins that must fail.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/sock.h"
#include "tests/support/ranks.h"

struct root {
	int port;
	_Atomic int waited; /* a rank has waited in vain for rank 0's next communicator */
};

static void set_environment(const struct root *root, int rank, int n)
{
	char text[32];

	snprintf(text, sizeof(text), "127.0.0.1:%d", root->port);
	setenv("TUTTI_ROOT", text, 1);
	snprintf(text, sizeof(text), "%d", n);
	setenv("TUTTI_NRANKS", text, 1);
	snprintf(text, sizeof(text), "%d", rank);
	setenv("TUTTI_RANK", text, 1);
	setenv("TUTTI_SECRET", "a secret text", 1);
}

/* Join, and sum a one of each rank. 0: the sum is right */
static int join(tuttiComm_t *comm, int n)
{
	float x = 1;
	int rc = tuttiCommInitEnv(comm, NULL);

	if (!rc)
		rc = tuttiAllReduce(&x, &x, 1, tuttiFloat32, tuttiSum, *comm, NULL);
	if (rc)
		fprintf(stderr, "%s\n", tuttiGetLastError(NULL));
	return rc || x != (float)n;
}

static void run(int n, rank_fn *fn)
{
	struct root *root = mmap(NULL, sizeof(*root), PROT_READ | PROT_WRITE,
				 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	struct ranks r = { .n = n, .no_join = true, .arg = root, .limit_s = 40 };
	int fd;

	cr_assert_eq(tt_sock_reserve(0, &fd, &root->port), 0);
	cr_expect_eq(ranks_run(&r, fn), 0);
	close(fd);
	munmap(root, sizeof(*root));
}

/* Rank 1 destroys the first communicator early, rank 0 late. */
static int three_at_a_time(tuttiComm_t *comm, int rank, int n, void *arg)
{
	tuttiComm_t first, second;

	set_environment(arg, rank, n);
	if (join(&first, n) || join(&second, n))
		return 1;
	if (rank == 1 && tuttiCommDestroy(first))
		return 1;
	if (join(comm, n))
		return 1;
	return tuttiCommDestroy(second) || (rank != 1 && tuttiCommDestroy(first));
}

Test(root, a_process_has_several_communicators_of_one_root, .timeout = 60)
{
	run(3, three_at_a_time);
}

/* Until rank 0 joins again, a rank that joins again waits: it is no second process of its rank. */
static int one_waits(tuttiComm_t *comm, int rank, int n, void *arg)
{
	tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
	struct root *root = arg;
	tuttiComm_t first;
	int rc = 0;

	set_environment(root, rank, n);
	config.timeout_ms = 300;
	if (join(&first, n) || (rank == 1 && tuttiCommDestroy(first)))
		return 1;
	while (rank == 0 && !root->waited)
		usleep(1000);
	if (rank == 1) {
		rc = tuttiCommInitEnv(comm, &config);
		root->waited = 1;
		if (rc != tuttiTimeout || strstr(tuttiGetLastError(NULL), "two processes"))
			return fprintf(stderr, "%d: %s\n", rc, tuttiGetLastError(NULL)), 1;
	}
	return join(comm, n) || (rank == 0 && tuttiCommDestroy(first));
}

Test(root, a_rank_that_joins_again_waits_for_rank_0, .timeout = 60)
{
	run(2, one_waits);
}

/* ---- wrong addresses ------------------------------------------------------------------------- */

struct attempt {
	const char *root;
	int rank;
	tuttiResult_t result;
	const char *part; /* of the error */
};

static int fails(tuttiComm_t *comm, int rank, int n, void *arg)
{
	tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
	const struct attempt *a = arg;
	struct root root = { 0 };
	uint64_t begin = tt_now_ns();
	tuttiResult_t rc;

	(void)rank, (void)n;
	set_environment(&root, a->rank, 2);
	setenv("TUTTI_ROOT", a->root, 1);
	setenv("TUTTI_SECRET", "0123456789abcdef0123456789abcdef", 1);
	config.timeout_ms = a->result == tuttiTimeout ? 500 : 60000;
	rc = tuttiCommInitEnv(comm, &config);
	if (rc == a->result && strstr(tuttiGetLastError(NULL), a->part) &&
	    tt_now_ns() - begin < 20000000000ull)
		return 0;
	return fprintf(stderr, "%d: %s\n", rc, tuttiGetLastError(NULL)), 1;
}

static void expect_failure(struct attempt *a)
{
	struct ranks r = { .n = 1, .no_join = true, .arg = a, .limit_s = 40 };

	cr_expect_eq(ranks_run(&r, fails), 0);
}

Test(root, rank_0_fails_at_once_at_an_address_that_its_host_does_not_have, .timeout = 60)
{
	/* RFC 5737 keeps the address for documents */
	expect_failure(&(struct attempt){
		"203.0.113.1:4000", 0, tuttiInvalidUsage,
		"no network interface has the address 203.0.113.1 of TUTTI_ROOT" });
}

Test(root, another_rank_says_why_the_address_of_rank_0_did_not_answer, .timeout = 60)
{
	char root[32];
	int fd, port;

	cr_assert_eq(tt_sock_reserve(0, &fd, &port), 0);
	snprintf(root, sizeof(root), "127.0.0.1:%d", port);
	expect_failure(&(struct attempt){ root, 1, tuttiTimeout, "(Connection refused)" });
	close(fd);
	/* Linux connects to no multicast address */
	expect_failure(&(struct attempt){ "224.0.0.1:4000", 1, tuttiTimeout,
					  "tried 224.0.0.1:4000 (Network is unreachable)" });
}
