/* survive.c - after a death: a communicator of the ranks that are left (survive.h) */
#include "trainer/strategy/survive.h"

#include "trainer/strategy/strategy.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

bool tt_can_survive(tuttiComm_t comm)
{
	tuttiResult_t broken = tuttiSuccess;
	int nranks = 0;

	tuttiCommGetAsyncError(comm, &broken);
	if (broken != tuttiSuccess)
		return broken == tuttiRemoteError || broken == tuttiTimeout;
	tuttiCommCount(comm, &nranks);
	for (int r = 0; r < nranks; r++) { /* messages may tell of a death before collectives do */
		tuttiRankState_t state = tuttiRankAlive;

		tuttiCommRankState(comm, r, &state);
		if (state == tuttiRankDead)
			return true;
	}
	return false;
}

int tt_shrink(tuttiComm_t *comm, int *ret_rank, int *ret_nranks)
{
	tuttiComm_t left, old = NULL;
	int rc;

	/* the old one stays until all are through: it answers those whom a death kept behind */
	do {
		rc = tt_library(tuttiCommShrink(*comm, NULL, 0, &left, NULL, TUTTI_SHRINK_DEFAULT),
				*comm);
		if (old)
			tuttiCommDestroy(old);
		if (rc)
			return rc;
		old = *comm;
		*comm = left;
		rc = tt_library(tuttiBarrier(left, NULL), left);
	} while (rc && tt_can_survive(left));
	tuttiCommDestroy(old);
	if (rc)
		return rc;
	rc = tt_library(tuttiCommUserRank(left, ret_rank), left);
	return rc ? rc : tt_library(tuttiCommCount(left, ret_nranks), left);
}

int tt_regroup(struct tt_trainer *t)
{
	bool is_world = t->comm == t->world;
	int rc = tt_shrink(&t->comm, &t->rank, &t->nranks);

	if (is_world)
		t->world = t->comm;
	return rc ? rc : tt_trainer_share(t);
}

int tt_catch_up(struct tt_trainer *t, uint64_t done, uint64_t *ret_done)
{
	uint64_t *all = calloc((size_t)t->nranks, sizeof(*all));
	int best = 0, rc;

	if (!all)
		return tt_train_fail(TT_TRAIN_FAILED, "no memory for %d ranks", t->nranks);
	rc = tt_library(tuttiAllGather(&done, all, 1, tuttiUint64, t->comm, NULL), t->comm);
	for (int r = 1; r < t->nranks; r++)
		best = all[r] > all[best] ? r : best;
	*ret_done = all[best];
	free(all);
	return rc ? rc : tt_parameters_share_from(t, best);
}

int tt_survive(struct tt_trainer *t, uint64_t done, uint64_t *ret_done)
{
	int before = t->nranks, rc;

	if (t->strategy->rejoin)
		rc = t->strategy->rejoin(t, done, ret_done);
	else if (!(rc = tt_regroup(t)))
		rc = tt_catch_up(t, done, ret_done);
	if (!rc && t->rank == 0)
		printf("step %" PRIu64 "  %d of %d ranks died; %d go on\n", *ret_done + 1,
		       before - t->nranks, before, t->nranks);
	return rc;
}
