/*
 * test_pscw.c - copying collectives of ranks that share cores: pairs of ranks complete, and calls between two trials
 * need no address exchange
 *
 * The tests set the state of the trials, since the times of a busy machine decide them. A call without an exchange
 * leaves the time of the last exchange as it was.
 */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "comm/comm.h"
#include "local/single_copy.h"
#include "tests/support/must.h"
#include "tests/support/ranks.h"

#define COUNT \
	(70000 + 5) /* elements of a part: with three ranks, an alltoall that is tried both ways */

struct pscw_buffers {
	int *in, *out;
};

static int element(int from, int to, int call, size_t i)
{
	return from * 1000003 + to * 10007 + call * 101 + (int)(i % 97);
}

/* An alltoall whose every element is checked, and whose input is overwritten at once. 0 | 1 */
static int exchange_parts(tuttiComm_t c, int rank, int n, int call, const struct pscw_buffers *b)
{
	for (int to = 0; to < n; to++)
		for (size_t i = 0; i < COUNT; i++)
			b->in[(size_t)to * COUNT + i] = element(rank, to, call, i);
	MUST(tuttiAlltoAll(b->in, b->out, COUNT, tuttiInt32, c, NULL));
	memset(b->in, 0x55, (size_t)n * COUNT * sizeof(int));
	for (int from = 0; from < n; from++)
		for (size_t i = 0; i < COUNT; i++)
			WANT(b->out[(size_t)from * COUNT + i] == element(from, rank, call, i));
	return 0;
}

/* All trials of alltoall are over: `prefers` won, and the next trial begins after `left` calls. */
static void decide(tuttiComm_t c, enum tt_smsc_by prefers, uint32_t left)
{
	for (int size = 0; size < TT_SMSC_SIZES; size++) {
		struct tt_smsc_trial *t = &c->single_copy->history[TT_ALLTOALL][size].trial[0];

		*t = (struct tt_smsc_trial){ 0 };
		tt_trial_begin(&t->trial, prefers);
		t->trial.judged = true;
		t->trial.left = left;
	}
}

/* Calls between trials: `way`, and none exchanges addresses; then a call does, since the next trial is near. */
static int follow(tuttiComm_t c, int rank, int n, enum tt_smsc_by way, const struct pscw_buffers *b)
{
	enum { CALLS = 6, TRIAL = 3 };
	uint64_t exchanged = c->single_copy->exchanged_ns;
	tuttiCounters_t before = { .size = sizeof(before) }, after = { .size = sizeof(after) };
	size_t read = way == TT_BY_READING ? (size_t)(n - 1) * COUNT * sizeof(int) : 0;

	decide(c, way, CALLS + TRIAL - 1);
	for (int i = 0; i < CALLS; i++) {
		WANT(!tuttiCommGetCounters(c, &before));
		WANT(!exchange_parts(c, rank, n, i, b));
		WANT(!tuttiCommGetCounters(c, &after));
		WANT(after.read_bytes - before.read_bytes == read);
		WANT(c->single_copy->exchanged_ns == exchanged);
	}
	WANT(!exchange_parts(c, rank, n, CALLS, b));
	WANT(c->single_copy->exchanged_ns > exchanged);
	return 0;
}

static int follow_both_ways(tuttiComm_t *comm, int rank, int n, void *arg)
{
	const size_t bytes = (size_t)n * COUNT * sizeof(int);
	struct pscw_buffers b = { malloc(bytes), malloc(bytes) };

	(void)arg;
	WANT(b.in && b.out && tt_smsc_crowded(*comm));
	WANT(!exchange_parts(*comm, rank, n, 0, &b));
	if ((*comm)->single_copy->memory == TT_SMSC_READABLE) {
		WANT(!follow(*comm, rank, n, TT_BY_READING, &b));
		WANT(!follow(*comm, rank, n, TT_BY_MESSAGES, &b));
	} else if (rank == 0) {
		fprintf(stderr, "skipped: the kernel forbids reads of peers' memory\n");
	}
	free(b.in);
	free(b.out);
	return 0;
}

Test(pscw, calls_between_trials_go_the_faster_way_without_an_exchange, .timeout = 60)
{
	cr_assert(ranks_on_two_cores());
	for (int n = 3; n <= 5; n += 2) {
		struct ranks r = { .n = n, .transport = "shm" };

		cr_expect_eq(ranks_run(&r, follow_both_ways), 0, "%d ranks", n);
	}
}

/* Rank 0 has read rank 1's buffer, and nobody else's. */
static int complete_with_one(tuttiComm_t *comm, int rank, int n, void *arg)
{
	struct tt_endpoint *ep = (*comm)->paths.slots;
	const struct tt_peer_memory_ops *ops = ep->peer_memory_ops;
	const uint64_t call = 1000;

	(void)arg;
	if (rank == 0)
		ops->complete(ep, 1, call);
	MUST(tuttiBarrier(*comm, NULL));
	for (int r = 0; r < n; r++)
		if (r != rank)
			WANT(ops->test_complete(ep, r, call) == (rank == 1 && r == 0));
	if (rank == 1)
		WANT(ops->test_complete(ep, 0, call - 1) && !ops->test_complete(ep, 0, call + 1));
	return 0;
}

Test(pscw, a_rank_completes_its_reads_of_one_peer_for_that_peer_alone, .timeout = 60)
{
	struct ranks r = { .n = 4, .transport = "shm" };

	cr_expect_eq(ranks_run(&r, complete_with_one), 0);
}
