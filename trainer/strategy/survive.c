/* survive.c - after a death: a communicator of the ranks that are left (survive.h) */
#include "trainer/strategy/survive.h"

#include "trainer/strategy/strategy.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

bool train_can_survive(tuttiComm_t comm)
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

int train_shrink(tuttiComm_t *comm, int *ret_rank, int *ret_nranks)
{
	tuttiComm_t left, old = NULL;
	int rc;

	/* the old one stays until all are through: it answers those whom a death kept behind */
	do {
		rc = train_library(tuttiCommShrink(*comm, NULL, 0, &left, NULL, TUTTI_SHRINK_DEFAULT),
				*comm);
		if (old)
			tuttiCommDestroy(old);
		if (rc)
			return rc;
		old = *comm;
		*comm = left;
		rc = train_library(tuttiBarrier(left, NULL), left);
	} while (rc && train_can_survive(left));
	tuttiCommDestroy(old);
	if (rc)
		return rc;
	rc = train_library(tuttiCommUserRank(left, ret_rank), left);
	return rc ? rc : train_library(tuttiCommCount(left, ret_nranks), left);
}

int train_regroup(struct train_rank *t)
{
	bool is_world = t->comm == t->world;
	int rc = train_shrink(&t->comm, &t->rank, &t->nranks);

	if (is_world)
		t->world = t->comm;
	return rc ? rc : train_rank_share(t);
}

int train_catch_up(struct train_rank *t, uint64_t done, uint64_t *ret_done)
{
	uint64_t *all = calloc((size_t)t->nranks, sizeof(*all));
	int best = 0, rc;

	if (!all)
		return train_fail(TRAIN_FAILED, "no memory for %d ranks", t->nranks);
	rc = train_library(tuttiAllGather(&done, all, 1, tuttiUint64, t->comm, NULL), t->comm);
	for (int r = 1; r < t->nranks; r++)
		best = all[r] > all[best] ? r : best;
	*ret_done = all[best];
	free(all);
	return rc ? rc : train_parameters_share_from(t, best);
}

int train_survive(struct train_rank *t, uint64_t done, uint64_t *ret_done)
{
	int before = t->nranks, rc;

	if (t->strategy->rejoin)
		rc = t->strategy->rejoin(t, done, ret_done);
	else if (!(rc = train_regroup(t)))
		rc = train_catch_up(t, done, ret_done);
	if (!rc && t->rank == 0)
		printf("step %" PRIu64 "  %d of %d ranks died; %d go on\n", *ret_done + 1,
		       before - t->nranks, before, t->nranks);
	return rc;
}
