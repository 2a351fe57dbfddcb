/*
 * test_split.c - tuttiCommSplit: child communicators, and errors that every rank gets alike
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/support/must.h"

/* Children of three splits; a group with operations on two of them, several on one. */
static int split(tuttiComm_t *comm, int rank, int n, void *arg)
{
	tuttiComm_t half, reversed, none;
	int size, child_rank, sum = 0, one = 1, all = 0, got = -1;

	(void)arg;
	MUST(tuttiCommSplit(*comm, rank % 2, rank, &half, NULL));
	MUST(tuttiCommSplit(*comm, 0, n - rank, &reversed, NULL));
	MUST(tuttiCommSplit(*comm, rank == 0 ? TUTTI_SPLIT_NOCOLOR : 1, 0, &none, NULL));
	WANT((none == NULL) == (rank == 0));
	MUST(tuttiCommCount(half, &size));
	WANT(size == (n + 1 - rank % 2) / 2);
	MUST(tuttiCommUserRank(reversed, &child_rank));
	WANT(child_rank == n - 1 - rank);
	MUST(tuttiGroupStart());
	MUST(tuttiAllReduce(&one, &sum, 1, tuttiInt32, tuttiSum, half, NULL));
	MUST(tuttiAllReduce(&one, &all, 1, tuttiInt32, tuttiSum, reversed, NULL));
	MUST(tuttiBroadcast(&rank, &got, 1, tuttiInt32, 0, reversed, NULL));
	MUST(tuttiGroupEnd());
	WANT(sum == size && all == n && got == n - 1);
	MUST(tuttiCommDestroy(half));
	MUST(tuttiCommDestroy(reversed));
	MUST(tuttiCommDestroy(none));
	return 0;
}

Test(split, splits_make_communicators_that_work_in_one_group, .timeout = 60)
{
	for (int n = 1; n <= 5; n++)
		run_both(split, n);
}

/* Ranks that split with different settings all get the same error text, and the parent works on. */
static int split_with_other_settings(tuttiComm_t *comm, int rank, int n, void *arg)
{
	tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
	tuttiComm_t made;
	float x = 1;

	(void)arg;
	config.algo = rank ? "ring" : "tree";
	WANT(tuttiCommSplit(*comm, 0, rank, &made, &config) == tuttiInvalidUsage);
	WANT(strstr(tuttiGetLastError(NULL), "ring") && strstr(tuttiGetLastError(NULL), "tree"));
	MUST(tuttiAllReduce(&x, &x, 1, tuttiFloat32, tuttiSum, *comm, NULL));
	WANT(x == (float)n);
	return 0;
}

Test(split, a_split_with_different_settings_is_refused_on_every_rank, .timeout = 60)
{
	run_both(split_with_other_settings, 3);
}

/* One rank cannot split, so no rank splits: all return at once (the limit is far below the
 * deadline), with the reason of that rank, and the parent works on. */
static int split_with_one_bad_rank(tuttiComm_t *comm, int rank, int n, void *arg)
{
	static const char *const words[] = { "maybe", "rings", "-7", "newcomm", "INITIALIZER" };
	tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
	tuttiComm_t made;
	tuttiResult_t rc;
	float x;

	(void)arg;
	for (int i = 0; i < 5; i++) {
		bool bad = rank == (i + 1) % n;
		int color = i == 3 && rank == 0 ? TUTTI_SPLIT_NOCOLOR : rank % 2;

		if (bad && i == 0)
			setenv("TUTTI_WAIT", "maybe", 1);
		config.algo = bad && i == 1 ? "rings" : NULL;
		config.magic = bad && i == 4 ? 0 : TUTTI_CONFIG_MAGIC;
		rc = tuttiCommSplit(*comm, bad && i == 2 ? -7 : color, rank,
				    bad && i == 3 ? NULL : &made, &config);
		unsetenv("TUTTI_WAIT");
		WANT(rc == (bad ? tuttiInvalidArgument : tuttiRemoteError));
		if (!strstr(tuttiGetLastError(NULL), words[i]))
			fprintf(stderr, "rank %d, case %d: %s\n", rank, i, tuttiGetLastError(NULL));
		WANT(strstr(tuttiGetLastError(NULL), words[i]));
		x = 1;
		MUST(tuttiAllReduce(&x, &x, 1, tuttiFloat32, tuttiSum, *comm, NULL));
		WANT(x == (float)n);
	}
	MUST(tuttiCommSplit(*comm, 0, rank, &made, NULL));
	MUST(tuttiCommDestroy(made));
	return 0;
}

Test(split, a_split_that_one_rank_cannot_make_fails_on_every_rank, .timeout = 60)
{
	struct ranks r = { .n = 3, .timeout_ms = 100000, .limit_s = 20 };

	cr_expect_eq(ranks_run(&r, split_with_one_bad_rank), 0);
	r.n = 5;
	cr_expect_eq(ranks_run(&r, split_with_one_bad_rank), 0);
}

/* A child uses the tile size that was set when the parent was joined; later changes of a rank's
 * environment have no effect. */
static int keep_tile(tuttiComm_t *comm, int rank, int n, void *arg)
{
	tuttiComm_t child;
	char text[200];
	static float x[100000];

	(void)arg, (void)n;
	setenv("TUTTI_TILE_BYTES", rank ? "16384" : "65536", 1);
	MUST(tuttiCommSplit(*comm, 0, rank, &child, NULL));
	MUST(tuttiAllReduce(x, x, 100000, tuttiFloat32, tuttiSum, child, NULL));
	MUST(tuttiCommDescribe(child, "allreduce", 100000, tuttiFloat32, text, sizeof(text)));
	WANT(strstr(text, "tile_bytes 8192"));
	MUST(tuttiCommDestroy(child));
	return 0;
}

Test(split, a_split_keeps_its_parents_tile, .timeout = 60)
{
	setenv("TUTTI_TILE_BYTES", "8192", 1);
	run_both(keep_tile, 3);
}
