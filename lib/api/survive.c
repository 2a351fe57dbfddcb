/*
 * survive.c - the public calls of those that are left: who is there, shrink, messages, quorums
 */
#include "api/api.h"

static tuttiResult_t not_yet(tuttiComm_t comm, const char *call)
{
	int rc = tt_comm_check(comm);

	return tt_result(rc ? rc : tt_fail(TT_USAGE, "rank %d: %s: not built yet", comm->rank, call));
}

TUTTI_API tuttiResult_t tuttiAllReduceQuorum(const void *sendbuff, void *recvbuff, size_t count,
					     tuttiDataType_t datatype, tuttiRedOp_t op, int k, int deadline_ms,
					     tuttiComm_t comm, tuttiStream_t stream, tuttiQuorum_t *quorum)
{
	(void)sendbuff, (void)recvbuff, (void)count, (void)datatype, (void)op, (void)k, (void)deadline_ms;
	(void)stream, (void)quorum;
	return not_yet(comm, "tuttiAllReduceQuorum");
}
