/*
 * test_repeated.c - calls that the plan cache repeats without binding: several tiles and cursors
 */
#include <criterion/criterion.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "run/way.h"
#include "tests/support/must.h"

enum { LEN = 30011, TILE = 4096 };

/* Is a call like this repeated, as several tiles in several cursors? */
static bool is_repeated(const struct tt_request *r)
{
	struct tt_plan_row *row;

	return !tt_plan_cache_find(r, false, &row) && row->way == &tt_message_way && row->again &&
	       row->binding.ntiles > 1 && row->binding.width > 1;
}

static bool is_repeated_sum(tuttiComm_t c)
{
	struct tt_request r = { .collective = TT_ALLREDUCE,
				.count = LEN,
				.type = tuttiInt32,
				.op = tuttiSum,
				.root = -1,
				.comm = c };

	return is_repeated(&r);
}

/* failing: ranks that fail */
static void run_tiles(rank_fn *fn, int n, bool tcp, const char *algo, void *arg, int failing)
{
	struct ranks r = { .n = n, .transport = tcp ? "tcp" : "shm", .algo = algo, .arg = arg };
	char tile[16];

	snprintf(tile, sizeof(tile), "%d", TILE);
	setenv("TUTTI_TILE_BYTES", tile, 1);
	cr_expect_eq(ranks_run(&r, fn), failing, "%d ranks, %s, %s", n, r.transport, algo);
}

/* ---- results --------------------------------------------------------------------------------- */

/* Buffers and their layout differ from call to call; the inputs too. */
static int sums(tuttiComm_t *comm, int rank, int n, void *arg)
{
	static int32_t in[2][LEN], out[2][LEN];

	(void)arg;
	for (int round = 0; round < 9; round++) {
		int32_t *from = in[round % 2], *to = round % 3 ? out[round % 2] : from;

		for (int i = 0; i < LEN; i++)
			from[i] = rank * (i + 1) + round;
		MUST(tuttiAllReduce(from, to, LEN, tuttiInt32, tuttiSum, *comm, NULL));
		for (int i = 0; i < LEN; i++)
			WANT(to[i] == n * (n - 1) / 2 * (i + 1) + n * round);
		WANT(is_repeated_sum(*comm));
		WANT(tuttiAllReduce(from, from + 1, LEN - 1, tuttiInt32, tuttiSum, *comm, NULL) ==
		     tuttiInvalidArgument);
		WANT(tuttiAllReduce(from, NULL, LEN, tuttiInt32, tuttiSum, *comm, NULL) ==
		     tuttiInvalidArgument);
	}
	return 0;
}

Test(repeated, allreduces_of_many_tiles_take_any_buffers, .timeout = 120)
{
	static const char *const algos[] = { "ring", "tree", "halving-doubling" };

	for (int n = 2; n <= 3; n++)
		for (int i = 0; i < 3; i++)
			for (int tcp = 0; tcp < 2; tcp++)
				run_tiles(sums, n, tcp, algos[i], NULL, 0);
}

/* Outputs that only the plan needs lie in the scratch, which grows between the calls. */
static int rooted(tuttiComm_t *comm, int rank, int n, void *arg)
{
	static int32_t in[LEN], out[LEN], more[8 * LEN];
	struct tt_request r = { .collective = TT_REDUCE,
				.count = LEN,
				.type = tuttiInt32,
				.op = tuttiSum,
				.root = 1,
				.comm = *comm };

	(void)arg;
	for (int round = 0; round < 6; round++) {
		for (int i = 0; i < LEN; i++)
			in[i] = rank + i + round;
		MUST(tuttiReduce(in, rank == 1 ? out : NULL, LEN, tuttiInt32, tuttiSum, 1, *comm,
				 NULL));
		WANT(is_repeated(&r));
		for (int i = 0; i < LEN && rank == 1; i++)
			WANT(out[i] == n * (n - 1) / 2 + n * (i + round));
		MUST(tuttiBroadcast(rank == 1 ? out : NULL, in, LEN, tuttiInt32, 1, *comm, NULL));
		for (int i = 0; i < LEN; i++)
			WANT(in[i] == n * (n - 1) / 2 + n * (i + round));
		if (round == 3)
			MUST(tuttiReduce(more, rank == 0 ? more : NULL, 8 * LEN, tuttiInt32,
					 tuttiMax, 0, *comm, NULL));
	}
	return 0;
}

Test(repeated, outputs_that_only_the_plan_needs_follow_the_scratch, .timeout = 120)
{
	run_tiles(rooted, 3, false, "tree", NULL, 0); /* auto: by slots where ranks share cores */
	run_tiles(rooted, 3, true, "auto", NULL, 0);
}

/* ---- failures -------------------------------------------------------------------------------- */

enum failure { OTHER_CALL, ABORT, NO_CALL, DEATH };

/* Shared by the ranks, which are processes. */
struct failing {
	enum failure how;
	atomic_int good; /* ranks whose three good calls are complete */
};

/* After three good calls of all ranks rank 1 fails; the others are in the fourth, or begin it later.
 * Each names a reason, also for the call after it. */
static int failing_call(tuttiComm_t *comm, int rank, int n, void *arg)
{
	static int32_t x[LEN];
	struct failing *shared = arg;
	enum failure how = shared->how;
	tuttiResult_t rc;

	for (int round = 0; round < 3; round++)
		MUST(tuttiAllReduce(x, x, LEN, tuttiInt32, tuttiSum, *comm, NULL));
	WANT(is_repeated_sum(*comm) || (rank == 1 && how == DEATH));
	shared->good++;
	while (rank == 1 && shared->good < n)
		usleep(1000);
	if (rank == 1 && how == ABORT) {
		MUST(tuttiCommAbort(*comm));
		*comm = NULL;
		return 0;
	}
	if (rank == 1 && how == NO_CALL) {
		do
			WANT(tuttiCommGetAsyncError(*comm, &rc) == tuttiSuccess);
		while (rc == tuttiSuccess);
		return 0;
	}
	rc = tuttiAllReduce(x, x, LEN, tuttiInt32,
			    rank == 1 && how == OTHER_CALL ? tuttiMax : tuttiSum, *comm, NULL);
	WANT(rank != 1 || how != DEATH);
	WANT(rc == (how == OTHER_CALL ? tuttiInvalidUsage
		    : how == NO_CALL  ? tuttiTimeout
				      : tuttiRemoteError));
	WANT(strstr(tuttiGetLastError(NULL), "rank 1"));
	WANT(tuttiAllReduce(x, x, LEN, tuttiInt32, tuttiSum, *comm, NULL) == rc);
	return 0;
}

static void fail(enum failure how, int n)
{
	struct failing *shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE,
				      MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	cr_assert_neq(shared, MAP_FAILED);
	shared->how = how;
	for (int tcp = 0; tcp < 2; tcp++) {
		shared->good = 0;
		run_tiles(failing_call, n, tcp, "ring", shared, how == DEATH);
	}
	munmap(shared, sizeof(*shared));
}

Test(repeated, a_rank_that_makes_another_call_breaks_the_call, .timeout = 120)
{
	fail(OTHER_CALL, 2);
	fail(OTHER_CALL, 3);
}

Test(repeated, a_rank_that_aborts_breaks_the_call, .timeout = 120)
{
	fail(ABORT, 2);
	fail(ABORT, 3);
}

Test(repeated, a_rank_that_does_not_call_is_named_at_the_deadline, .timeout = 120)
{
	setenv("TUTTI_TIMEOUT_MS", "1000", 1);
	fail(NO_CALL, 2);
	fail(NO_CALL, 3);
}

/* A ring of two ranks has three steps per tile: send, combine and pass on, receive. */
Test(repeated, a_rank_that_dies_in_the_middle_of_a_call_is_named, .timeout = 120)
{
	int tiles = LEN * (int)sizeof(int32_t) / 2 / TILE + 1;
	char fault[32];

	snprintf(fault, sizeof(fault), "kill@1:%d", 3 * tiles * 7 / 2);
	setenv("TUTTI_FAULT", fault, 1);
	fail(DEATH, 2);
}
