/*
 * nccl_unsupported.c - calls of libnccl.so.2 that are exported but not built: each returns an error
 *
 * Called by users. The calls are exported because many programs bind all symbols when they are
 * loaded: a program with a missing symbol does not start, even if it never calls the function. The
 * calls of 2.28's headers come first, then those of later versions up to 2.32.
 */
#include "nccl/nccl_layer.h"

static ncclResult_t unbuilt(const char *call, const char *instead)
{
	return nccl_group_fail(
		tt_fail(TT_USAGE, "%s is not built in Tutti's libnccl.so.2; %s", call, instead));
}

/* The function ignores its arguments, in registers or on the stack, whatever their number is. */
#define UNBUILT(name, instead)                  \
	NCCL_CALL(ncclResult_t, name, void)     \
	{                                       \
		return unbuilt(#name, instead); \
	}

NCCL_CALL(ncclResult_t, ncclCommRevoke, ncclComm_t comm, int flags)
{
	(void)comm, (void)flags;
	return unbuilt("ncclCommRevoke", "ncclCommAbort ends what is running");
}

UNBUILT(ncclCommGrow, "make a new communicator")
UNBUILT(ncclCommGetUniqueId, "ncclGetUniqueId makes the id of a new communicator")
UNBUILT(ncclSetEncryption, "TUTTI_ENCRYPT and TUTTI_SECRET of tutti(7) encrypt connections")

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

#define NO_CONFIG "the call without Config does the same"
UNBUILT(ncclAllReduceConfig, NO_CONFIG)
UNBUILT(ncclBroadcastConfig, NO_CONFIG)
UNBUILT(ncclReduceConfig, NO_CONFIG)
UNBUILT(ncclAllGatherConfig, NO_CONFIG)
UNBUILT(ncclReduceScatterConfig, NO_CONFIG)
UNBUILT(ncclAlltoAllConfig, NO_CONFIG)
UNBUILT(ncclGatherConfig, NO_CONFIG)
UNBUILT(ncclScatterConfig, NO_CONFIG)

#define NO_REPLACEMENT "Tutti has no replacement"
UNBUILT(ncclCommQueryProperties, NO_REPLACEMENT)
UNBUILT(ncclCommMemStats, NO_REPLACEMENT)
UNBUILT(ncclCommSuspend, NO_REPLACEMENT)
UNBUILT(ncclCommResume, NO_REPLACEMENT)

#define TUTTI7 "tutti(7) lists the variables for settings"
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

/* Calls without a result code return an empty team, rank -1, or 0 slots. */
struct nccl_team {
	int nranks, rank, stride;
};

NCCL_CALL(struct nccl_team, ncclTeamWorld, ncclComm_t comm)
{
	(void)comm;
	unbuilt("ncclTeamWorld", HOST);
	return (struct nccl_team){ 0, 0, 0 };
}

NCCL_CALL(struct nccl_team, ncclTeamLsa, ncclComm_t comm)
{
	(void)comm;
	unbuilt("ncclTeamLsa", HOST);
	return (struct nccl_team){ 0, 0, 0 };
}

NCCL_CALL(struct nccl_team, ncclTeamRail, ncclComm_t comm)
{
	(void)comm;
	unbuilt("ncclTeamRail", HOST);
	return (struct nccl_team){ 0, 0, 0 };
}

NCCL_CALL(int, ncclTeamRankToWorld, ncclComm_t comm, struct nccl_team team, int rank)
{
	(void)comm, (void)team, (void)rank;
	unbuilt("ncclTeamRankToWorld", HOST);
	return -1;
}

NCCL_CALL(int, ncclTeamRankToLsa, ncclComm_t comm, struct nccl_team team, int rank)
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
