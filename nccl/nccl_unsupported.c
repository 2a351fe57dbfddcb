/*
 * nccl_unsupported.c - calls of libnccl.so.2 that are exported and not built: each says so
 *
 * Programs are loaded with all their symbols bound at once: one that is missing and the program
 * does not start, though it would never call it. Those of the headers of 2.28 are followed by those
 * of later versions, up to 2.31.
 */
#include "nccl/nccl_layer.h"

static ncclResult_t unbuilt(const char *call, const char *instead)
{
	return nccl_group_fail(tt_fail(TT_USAGE, "%s is not built in Tutti's libnccl.so.2; %s", call,
				     instead));
}

/* Whatever arguments it is called with, in registers or on the stack: it looks at none. */
#define UNBUILT(name, instead) \
	NCCL_CALL(ncclResult_t, name, void) { return unbuilt(#name, instead); }

NCCL_CALL(ncclResult_t, ncclCommRevoke, ncclComm_t comm, int flags)
{
	(void)comm, (void)flags;
	return unbuilt("ncclCommRevoke", "ncclCommAbort ends what is running");
}

UNBUILT(ncclCommGrow, "make a new communicator")
UNBUILT(ncclCommGetUniqueId, "ncclGetUniqueId makes the id of a new communicator")

#define HOST "communication is started by the host only"
UNBUILT(ncclDevCommCreate, HOST)
UNBUILT(ncclDevCommDestroy, HOST)
UNBUILT(ncclLsaBarrierCreateRequirement, HOST)
UNBUILT(ncclGinBarrierCreateRequirement, HOST)
UNBUILT(ncclGinInboxA2ACreateRequirement, HOST)
UNBUILT(ncclGinOutboxCreateRequirement, HOST)
UNBUILT(ncclLLA2ACreateRequirement, HOST)
UNBUILT(ncclGetLsaDevicePointer, HOST)
UNBUILT(ncclGetLsaMultimemDevicePointer, HOST)
UNBUILT(ncclGetMultimemDevicePointer, HOST)
UNBUILT(ncclGetPeerDevicePointer, HOST)

#define PAIR "ncclSend and ncclRecv move data between two ranks"
UNBUILT(ncclPutSignal, PAIR)
UNBUILT(ncclSignal, PAIR)
UNBUILT(ncclWaitSignal, PAIR)

#define BARE "the call without Config does the same"
UNBUILT(ncclAllReduceConfig, BARE)
UNBUILT(ncclBroadcastConfig, BARE)
UNBUILT(ncclReduceConfig, BARE)
UNBUILT(ncclAllGatherConfig, BARE)
UNBUILT(ncclReduceScatterConfig, BARE)
UNBUILT(ncclAlltoAllConfig, BARE)
UNBUILT(ncclGatherConfig, BARE)
UNBUILT(ncclScatterConfig, BARE)

#define NOTHING "nothing stands in for it"
UNBUILT(ncclCommQueryProperties, NOTHING)
UNBUILT(ncclCommMemStats, NOTHING)
UNBUILT(ncclCommSuspend, NOTHING)
UNBUILT(ncclCommResume, NOTHING)

#define TUTTI7 "tutti(7) lists the variables that steer it"
UNBUILT(ncclParamBind, TUTTI7)
UNBUILT(ncclParamGet, TUTTI7)
UNBUILT(ncclParamGetAllParameterKeys, TUTTI7)
UNBUILT(ncclParamGetI8, TUTTI7)
UNBUILT(ncclParamGetI16, TUTTI7)
UNBUILT(ncclParamGetI32, TUTTI7)
UNBUILT(ncclParamGetI64, TUTTI7)
UNBUILT(ncclParamGetParameter, TUTTI7)
UNBUILT(ncclParamGetStr, TUTTI7)
UNBUILT(ncclParamGetU8, TUTTI7)
UNBUILT(ncclParamGetU16, TUTTI7)
UNBUILT(ncclParamGetU32, TUTTI7)
UNBUILT(ncclParamGetU64, TUTTI7)

NCCL_CALL(void, ncclParamDumpAll, void)
{
	unbuilt("ncclParamDumpAll", TUTTI7);
}

/* Those that return no result: an empty team, nobody's rank, no slots. */
struct team { int nranks, rank, stride; };

NCCL_CALL(struct team, ncclTeamWorld, ncclComm_t comm)
{
	(void)comm;
	unbuilt("ncclTeamWorld", HOST);
	return (struct team){ 0, 0, 0 };
}

NCCL_CALL(struct team, ncclTeamLsa, ncclComm_t comm)
{
	(void)comm;
	unbuilt("ncclTeamLsa", HOST);
	return (struct team){ 0, 0, 0 };
}

NCCL_CALL(struct team, ncclTeamRail, ncclComm_t comm)
{
	(void)comm;
	unbuilt("ncclTeamRail", HOST);
	return (struct team){ 0, 0, 0 };
}

NCCL_CALL(int, ncclTeamRankToWorld, ncclComm_t comm, struct team team, int rank)
{
	(void)comm, (void)team, (void)rank;
	unbuilt("ncclTeamRankToWorld", HOST);
	return -1;
}

NCCL_CALL(int, ncclTeamRankToLsa, ncclComm_t comm, struct team team, int rank)
{
	(void)comm, (void)team, (void)rank;
	unbuilt("ncclTeamRankToLsa", HOST);
	return -1;
}

NCCL_CALL(int, ncclLLA2ACalcSlots, int elements, int bytes)
{
	(void)elements, (void)bytes;
	unbuilt("ncclLLA2ACalcSlots", HOST);
	return 0;
}
