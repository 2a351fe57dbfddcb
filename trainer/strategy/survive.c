/* survive.c - recovery after a death: a communicator of the survivors (survive.h) */
#include "trainer/strategy/survive.h"

#include "trainer/strategy/strategy.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

#define NO_TAG INT_MAX /* of no message */

bool train_is_recoverable(tuttiComm_t comm)
{
	tuttiResult_t broken = tuttiSuccess;
	int nranks = 0;

	tuttiCommGetAsyncError(comm, &broken);
	if (broken != tuttiSuccess)
		return broken == tuttiRemoteError || broken == tuttiTimeout;
	tuttiCommCount(comm, &nranks);
	for (int r = 0; r < nranks; r++) { /* messages may report a death before collectives do */
		tuttiRankState_t state = tuttiRankAlive;

		tuttiCommRankState(comm, r, &state);
		if (state == tuttiRankDead)
			return true;
	}
	return false;
}

int train_shrink(tuttiComm_t *comm, int *ret_rank, int *ret_nranks)
{
	tuttiComm_t survivors, previous = NULL;
	int rc;

	/* the previous communicator stays until the barrier: it serves ranks that a death
	 * delayed */
	do {
		rc = train_check(tuttiCommShrink(*comm, NULL, 0, &survivors, NULL,
						 TUTTI_SHRINK_DEFAULT),
				 *comm);
		if (previous)
			tuttiCommDestroy(previous);
		if (rc)
			return rc;
		previous = *comm;
		*comm = survivors;
		rc = train_check(tuttiBarrier(survivors, NULL), survivors);
	} while (rc && train_is_recoverable(survivors));
	tuttiCommDestroy(previous);
	if (rc)
		return rc;
	rc = train_check(tuttiCommUserRank(survivors, ret_rank), survivors);
	return rc ? rc : train_check(tuttiCommCount(survivors, ret_nranks), survivors);
}

int train_regroup(struct train_rank *t)
{
	bool is_world = t->comm == t->world;
	int rc = train_shrink(&t->comm, &t->rank, &t->nranks);

	if (is_world)
		t->world = t->comm;
	return rc ? rc : train_rank_partition(t);
}

int train_catch_up(struct train_rank *t, uint64_t done, uint64_t *ret_done)
{
	uint64_t *all = calloc((size_t)t->nranks, sizeof(*all));
	int best = 0, rc;

	if (!all)
		return train_fail(TRAIN_FAILED, "no memory for %d ranks", t->nranks);
	rc = train_check(tuttiAllGather(&done, all, 1, tuttiUint64, t->comm, NULL), t->comm);
	for (int r = 1; r < t->nranks; r++)
		best = all[r] > all[best] ? r : best;
	*ret_done = all[best];
	free(all);
	return rc ? rc : train_parameters_bcast_from(t, best);
}

int train_await_rank0(struct train_rank *t)
{
	tuttiRankState_t state = tuttiRankAlive;
	int rc = train_check(tuttiBarrier(t->comm, NULL), t->comm);

	if (!rc || t->rank == 0)
		return TRAIN_OK;
	/* The barrier may fail before rank 0's death is known, or for another death while rank 0 lives and writes. Rank 0
	 * sends no message with this tag, so the call ends when rank 0 has left or died. */
	tuttiMsgProbe(0, NO_TAG, -1, t->comm, NULL);
	tuttiCommRankState(t->comm, 0, &state);
	return state == tuttiRankDead ? rc : TRAIN_OK;
}

int train_recover(struct train_rank *t, uint64_t done, uint64_t *ret_done)
{
	int before = t->nranks, rc;

	if (t->strategy->rejoin)
		rc = t->strategy->rejoin(t, done, ret_done);
	else if (!(rc = train_regroup(t)))
		rc = train_catch_up(t, done, ret_done);
	if (!rc && t->rank == 0)
		printf("step %" PRIu64 "  %d of %d ranks died; %d %s\n", *ret_done + 1,
		       before - t->nranks, before, t->nranks,
		       t->nranks == 1 ? "continues" : "continue");
	return rc;
}
