/*
 * memstats.c - public call that reports the memory of a communicator
 */
#include "api/api.h"

static uint64_t of_transports(tuttiComm_t c, bool shared)
{
	uint64_t bytes = 0;

	for (int i = 0; i < c->nep; i++)
		if ((c->ep[i]->t == &tt_shm) == shared)
			bytes += c->ep[i]->t->memory(c->ep[i]);
	return bytes;
}

static uint64_t of_plans(tuttiComm_t c)
{
	uint64_t bytes = 0;

	for (const struct tt_cached_plan *k = c->kept; k; k = k->next)
		bytes += sizeof(*k) + sizeof(*k->plan) + k->plan->nsteps * sizeof(struct tt_step) +
			 k->plan->npeers * sizeof(*k->plan->peers);
	return bytes;
}

static uint64_t of_control(tuttiComm_t c)
{
	size_t per_path = sizeof(*c->path->via) + TT_CHANNELS * sizeof(*c->path->links);
	size_t per_rank = (size_t)c->npaths * per_path + sizeof(*c->p2p_sent) +
			  sizeof(*c->p2p_received) + sizeof(*c->last_received) +
			  (c->group_of ? sizeof(*c->group_of) : 0);

	return sizeof(*c) + (size_t)c->nranks * per_rank + tt_control_memory(c->ctl) +
	       tt_am_memory(c->am);
}

uint64_t tt_memory_held(tuttiComm_t c, tuttiCommMemStat_t stat)
{
	uint64_t sum = 0;

	switch (stat) {
	case tuttiMemShared:
		return of_transports(c, true);
	case tuttiMemStages:
		return of_transports(c, false);
	case tuttiMemScratch:
		return c->scratch_bytes + c->bounce_bytes;
	case tuttiMemPlans:
		return of_plans(c);
	case tuttiMemControl:
		return of_control(c);
	default:
		for (int i = tuttiMemTotal + 1; i < tuttiNumMemStats; i++)
			sum += tt_memory_held(c, (tuttiCommMemStat_t)i);
		return sum;
	}
}

TUTTI_API tuttiResult_t tuttiCommMemStats(tuttiComm_t comm, tuttiCommMemStat_t stat,
					  uint64_t *value)
{
	int rc = tt_comm_check(comm);

	if (!rc && (!value || (unsigned)stat >= tuttiNumMemStats))
		rc = tt_fail(TT_ARG,
			     "rank %d: tuttiCommMemStats: stat %d is not known, or value is NULL",
			     comm->rank, (int)stat);
	if (!rc)
		*value = tt_memory_held(comm, stat);
	return tt_result(rc);
}
