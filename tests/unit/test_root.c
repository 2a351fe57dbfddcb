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
