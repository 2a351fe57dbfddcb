/*
 * survive.c - the public calls of those that are left: who is there, shrink, messages, quorums
 */
#include "api/api.h"

static tuttiResult_t not_yet(tuttiComm_t comm, const char *call)
{
	int rc = tt_comm_check(comm);

	return tt_result(rc ? rc : tt_fail(TT_USAGE, "rank %d: %s: not built yet", comm->rank, call));
}

TUTTI_API tuttiResult_t tuttiCommRankState(tuttiComm_t comm, int rank, tuttiRankState_t *state)
{
	(void)rank, (void)state;
	return not_yet(comm, "tuttiCommRankState");
}

TUTTI_API tuttiResult_t tuttiCommShrink(tuttiComm_t comm, int *excludeRanksList, int excludeRanksCount,
					tuttiComm_t *newcomm, tuttiConfig_t *config, int shrinkFlags)
{
	(void)excludeRanksList, (void)excludeRanksCount, (void)newcomm, (void)config, (void)shrinkFlags;
	return not_yet(comm, "tuttiCommShrink");
}

TUTTI_API tuttiResult_t tuttiMsgSend(const void *buff, size_t bytes, int peer, int tag, uint64_t version,
				     tuttiComm_t comm)
{
	(void)buff, (void)bytes, (void)peer, (void)tag, (void)version;
	return not_yet(comm, "tuttiMsgSend");
}

TUTTI_API tuttiResult_t tuttiMsgRecv(void *buff, size_t bytes, int source, int tag, int timeout_ms, tuttiComm_t comm,
				     tuttiMsg_t *msg)
{
	(void)buff, (void)bytes, (void)source, (void)tag, (void)timeout_ms, (void)msg;
	return not_yet(comm, "tuttiMsgRecv");
}

TUTTI_API tuttiResult_t tuttiMsgProbe(int source, int tag, int timeout_ms, tuttiComm_t comm, tuttiMsg_t *msg)
{
	(void)source, (void)tag, (void)timeout_ms, (void)msg;
	return not_yet(comm, "tuttiMsgProbe");
}

TUTTI_API tuttiResult_t tuttiMsgCancel(int source, int tag, uint64_t version, tuttiComm_t comm, uint64_t *dropped)
{
	(void)source, (void)tag, (void)version, (void)dropped;
	return not_yet(comm, "tuttiMsgCancel");
}

TUTTI_API tuttiResult_t tuttiAllReduceQuorum(const void *sendbuff, void *recvbuff, size_t count,
					     tuttiDataType_t datatype, tuttiRedOp_t op, int k, int deadline_ms,
					     tuttiComm_t comm, tuttiStream_t stream, tuttiQuorum_t *quorum)
{
	(void)sendbuff, (void)recvbuff, (void)count, (void)datatype, (void)op, (void)k, (void)deadline_ms;
	(void)stream, (void)quorum;
	return not_yet(comm, "tuttiAllReduceQuorum");
}
