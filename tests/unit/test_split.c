/*
 * test_split.c - tuttiCommSplit: child communicators, and errors that every rank gets alike
 */
#include <criterion/criterion.h>
#include <dirent.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "comm/comm.h"
#include "control/control_internal.h"
#include "tests/support/descriptors.h"
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

/* ---- deaths, stops, leaves ------------------------------------------------------------------- */

#define HANG_MS 60000 /* the communicator's deadline: longer than any of these tests may take */
#define SOON_MS 15000 /* a survivor's call ends by then even on a busy machine */

struct split_death {
	int victim;
	unsigned delay_us;
};

static uint64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

/* One rank is killed while all split by 2, again and again. Every other rank gets an error at once,
 * which names the dead rank by its number in the parent. */
static int split_until_death(tuttiComm_t *comm, int rank, int n, void *arg)
{
	const struct split_death *d = arg;
	uint64_t begin = now_ms();
	tuttiResult_t rc = tuttiSuccess;
	char dead[32];

	(void)n;
	snprintf(dead, sizeof(dead), "rank %d", d->victim);
	if (rank == d->victim) {
		signal(SIGALRM, SIG_DFL);
		ualarm(d->delay_us, 0);
	}
	while (!rc) {
		tuttiComm_t half = NULL;

		begin = now_ms();
		rc = tuttiCommSplit(*comm, rank % 2, -rank, &half, NULL);
		tuttiCommDestroy(half);
	}
	WANT(rc == tuttiRemoteError);
	WANT(now_ms() - begin < SOON_MS);
	if (!strstr(tuttiGetLastError(NULL), dead))
		fprintf(stderr, "rank %d: %s\n", rank, tuttiGetLastError(NULL));
	WANT(strstr(tuttiGetLastError(NULL), dead));
	return 0;
}

Test(split, a_death_during_a_split_ends_it_on_every_rank_at_once, .timeout = 240)
{
	for (unsigned i = 0; i < 12; i++) {
		struct split_death d = { .victim = (int)(i * 5 % (3 + i % 5)),
					 .delay_us = 1 + (unsigned)(random_of(5, i) % 20000) };
		struct ranks r = { .n = (int)(3 + i % 5),
				   .transport = i % 2 ? "tcp" : "shm",
				   .timeout_ms = HANG_MS,
				   .limit_s = 50,
				   .arg = &d };

		cr_expect_eq(ranks_run(&r, split_until_death), 1, "%d ranks, rank %d, %u us", r.n,
			     d.victim, d.delay_us);
	}
}

struct leaving {
	int rank;
	atomic_int joined;
};

/* A rank leaves, rank 0 or another one; the others split. */
static int split_without_one(tuttiComm_t *comm, int rank, int n, void *arg)
{
	struct leaving *l = arg;
	uint64_t begin;
	tuttiComm_t all = NULL;

	l->joined++;
	while (l->joined < n) /* an error of one rank may overtake the end of another's join */
		usleep(1000);
	if (rank == l->rank)
		return 0;
	begin = now_ms();
	WANT(tuttiCommSplit(*comm, 0, rank, &all, NULL) == tuttiRemoteError);
	WANT(now_ms() - begin < SOON_MS);
	WANT(strstr(tuttiGetLastError(NULL), "left"));
	return 0;
}

Test(split, a_rank_that_left_ends_the_split_of_the_others_at_once, .timeout = 240)
{
	struct leaving *l = mmap(NULL, sizeof(*l), PROT_READ | PROT_WRITE,
				 MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	for (int left = 0; left < 11; left += 5) {
		struct ranks r = {
			.n = 11, .transport = "shm", .timeout_ms = HANG_MS, .limit_s = 50, .arg = l
		};

		*l = (struct leaving){ .rank = left };
		cr_expect_eq(ranks_run(&r, split_without_one), 0, "rank %d left", left);
	}
}

/* ---- cost ------------------------------------------------------------------------------------ */

#define SPLITS 32

/* Splits by halves, quarters and so on, in changing orders: no thread, no listener, and connections
 * to new neighbors only. *arg: the descriptors that a communicator has itself, 1 for its shared memory;
 * tcp connects with the first message. */
static int split_often(tuttiComm_t *comm, int rank, int n, void *arg)
{
	int threads, descriptors, own = *(int *)arg;
	tuttiComm_t made[SPLITS];
	uint64_t began;

	MUST(tuttiCommSplit(*comm, 0, rank, &made[0], NULL)); /* what a first split may load */
	MUST(tuttiCommDestroy(made[0]));
	threads = count_threads();
	descriptors = count_descriptors();
	began = tt_now_ns();
	for (int i = 0; i < SPLITS; i++)
		MUST(tuttiCommSplit(*comm, 0, rank, &made[i], NULL));
	if (rank == 0) /* for people */
		fprintf(stderr, "%d splits of %d ranks, %s: %.1f ms\n", SPLITS, n,
			own ? "shm" : "tcp", 1e-6 * (double)(tt_now_ns() - began));
	WANT(count_threads() == threads);
	WANT(count_descriptors() == descriptors + own * SPLITS);
	for (int i = 0; i < SPLITS; i++)
		MUST(tuttiCommDestroy(made[i]));
	for (int i = 0; i < SPLITS; i++)
		MUST(tuttiCommSplit(*comm, rank % (1 << i % 4), i % 2 ? -rank : rank * 7 % n,
				    &made[i], NULL));
	WANT(count_threads() == threads);
	/* at most one to each other rank */
	WANT(count_descriptors() <= descriptors + own * SPLITS + n);
	for (int i = 0; i < SPLITS; i++)
		MUST(tuttiCommDestroy(made[i]));
	WANT(count_descriptors() <= descriptors + n);
	return 0;
}

Test(split, many_splits_make_no_thread_and_connect_to_new_neighbors_only, .timeout = 240)
{
	int own = 0;
	struct ranks r = { .n = 16, .transport = "tcp", .limit_s = 200, .arg = &own };

	cr_expect_eq(ranks_run(&r, split_often), 0, "tcp");
	own = 1;
	r.transport = "shm";
	cr_expect_eq(ranks_run(&r, split_often), 0, "shm");
}

/* A split is two exchanges of the parent: one with the colors and facts, one with the outcome. A join has had
 * these two, and one before. */
static int count_exchanges(tuttiComm_t *comm, int rank, int n, void *arg)
{
	const struct tt_gather *parents = &(*comm)->ctl->gather;
	uint64_t before = parents->number;
	tuttiComm_t made;

	(void)arg;
	WANT(before == 3);
	MUST(tuttiCommSplit(*comm, rank % 2, n - rank, &made, NULL));
	WANT(parents->number == before + 2);
	WANT(made->ctl->gather.number == 0);
	MUST(tuttiCommDestroy(made));
	MUST(tuttiCommSplit(*comm, rank ? 0 : TUTTI_SPLIT_NOCOLOR, 0, &made, NULL));
	WANT(parents->number == before + 4);
	MUST(tuttiCommDestroy(made));
	return 0;
}

Test(split, a_split_is_two_exchanges, .timeout = 60)
{
	static const char *const transports[] = { "tcp", "shm", "auto" };

	for (int i = 0; i < 3; i++) {
		struct ranks r = { .n = 5, .transport = transports[i], .limit_s = 40 };

		cr_expect_eq(ranks_run(&r, count_exchanges), 0, "%s", transports[i]);
	}
}

/* Ranks that fail in words of their own: one of the most severe reasons is that of all others. */
static int agree_on_a_reason(tuttiComm_t *comm, int rank, int n, void *arg)
{
	static const int codes[] = { 0, TT_REMOTE, TT_TIMEOUT, TT_SYSTEM, TT_ARG, TT_SYSTEM };
	struct tt_control *ctl = (*comm)->ctl;
	uint64_t exchange = ctl->gather.number;
	int rc;

	(void)arg;
	tt_fail(codes[rank] ? codes[rank] : TT_INTERNAL, "rank %d has its own reason", rank);
	rc = tt_control_agree(ctl, codes[rank], "the test", NULL, tt_deadline_ns(20000));
	WANT(n == 6 && ctl->gather.number == exchange + 2);
	WANT(rc == (rank >= 3 ? codes[rank] : TT_REMOTE));
	WANT(strstr(tt_error_text(),
		    rank < 3 ? "the test failed at rank 3: rank 3 has its own reason"
			     : "has its own reason"));
	WANT(rank < 4 || !strstr(tt_error_text(), "rank 3"));
	return 0;
}

Test(split, ranks_that_fail_agree_on_a_reason_and_keep_their_own, .timeout = 60)
{
	struct ranks r = { .n = 6, .transport = "tcp", .limit_s = 40 };

	cr_expect_eq(ranks_run(&r, agree_on_a_reason), 0);
}

/* Rank 1 fails, and sends a sentence, or none, in the exchange of sentences. */
static int agree_on_a_sentence(tuttiComm_t *comm, int rank, int n, void *arg)
{
	struct tt_control *ctl = (*comm)->ctl;
	uint64_t deadline_ns = tt_deadline_ns(20000);

	(void)n, (void)arg;
	for (int empty = 0; empty < 2; empty++) {
		char text[512] = "this sentence";
		int32_t code = TT_TIMEOUT;
		struct tt_parts columns[2] = { { .mine = &code, .bytes = sizeof(code) } },
				sentence = { .mine = text, .bytes = sizeof(text) };

		if (empty)
			memset(text, 0, sizeof(text));
		if (rank != 1) {
			WANT(tt_control_agree(ctl, 0, "the test", NULL, deadline_ns) ==
			     (empty ? TT_REMOTE : TT_TIMEOUT));
			WANT(strstr(tt_error_text(),
				    empty ? "the test failed, and no rank has a reason"
					  : "the test failed at rank 1: this sentence"));
			continue;
		}
		WANT(!tt_control_allgather_columns(ctl, columns, 2, deadline_ns));
		WANT(!tt_control_allgather_columns(ctl, &sentence, 1, deadline_ns));
		tt_parts_free(&columns[0]);
		tt_parts_free(&columns[1]);
		tt_parts_free(&sentence);
	}
	return 0;
}

Test(split, the_code_of_a_failure_is_that_of_the_exchange_of_codes, .timeout = 60)
{
	struct ranks r = { .n = 3, .transport = "tcp", .limit_s = 40 };

	cr_expect_eq(ranks_run(&r, agree_on_a_sentence), 0);
}
