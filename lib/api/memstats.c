/*
 * memstats.c - public call that reports the memory of a communicator
 */
#include "api/api.h"
#include "comm/paths.h"

static uint64_t of_transports(tuttiComm_t c, bool shared)
{
	uint64_t bytes = 0;

	for (int i = 0; i < c->paths.nep; i++)
		if ((c->paths.ep[i]->t == &tt_shm) == shared)
			bytes += c->paths.ep[i]->t->memory(c->paths.ep[i]);
	return bytes;
}

static uint64_t of_control(tuttiComm_t c)
{
	size_t per_rank = (c->calls.last_received ? sizeof(*c->calls.last_received) : 0) +
			  (c->calls.p2p_sent ? 2 * sizeof(*c->calls.p2p_sent) : 0) +
			  (c->hosts.group_of ? sizeof(*c->hosts.group_of) : 0),
	       bytes = sizeof(*c) + (size_t)c->nranks * per_rank;

	for (int i = 0; i < c->paths.npaths; i++)
		bytes += tt_path_memory(&c->paths.path[i], c->nranks);
	return bytes + tt_control_memory(c->ctl) + tt_am_memory(c->am);
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
		return c->memory.scratch_bytes + tt_ways_memory(c);
	case tuttiMemPlans:
		return tt_plan_cache_memory(c);
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
