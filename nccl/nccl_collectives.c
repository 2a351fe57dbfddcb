/*
 * nccl_collectives.c - the calls that move data, passed to the handle's communicator
 *
 * Called by users; calls tutti.h. Types and operations have the same numbers in NCCL and tutti.h;
 * operations that only tutti.h has are refused.
 */
#include "nccl/nccl_layer.h"

#define EQUAL(name) _Static_assert((int)nccl##name == (int)tutti##name, #name)
EQUAL(Int8);
EQUAL(Uint8);
EQUAL(Int32);
EQUAL(Uint32);
EQUAL(Int64);
EQUAL(Uint64);
EQUAL(Float16);
EQUAL(Float32);
EQUAL(Float64);
EQUAL(Bfloat16);
EQUAL(Float8e4m3);
EQUAL(Float8e5m2);
EQUAL(NumTypes);
EQUAL(Sum);
EQUAL(Prod);
EQUAL(Max);
EQUAL(Min);
EQUAL(Avg);
EQUAL(ScalarDevice);
EQUAL(ScalarHostImmediate);
EQUAL(RemoteError);
EQUAL(InProgress);

/* The communicator of a call. tutti.h's calls check ranks, ops and types, but ops 5..7 exist only
 * there, so they are refused here. NULL: *ret_result is the error. */
static tuttiComm_t enter(ncclComm_t comm, ncclRedOp_t op, const char *call,
			 ncclResult_t *ret_result)
{
	tuttiComm_t tutti = NULL;
	int rc = nccl_comm_check(comm, call, &tutti);

	if (!rc && tt_unlikely((int)op >= ncclNumOps && (int)op < (int)tuttiNumOps))
		rc = tt_fail(TT_ARG, "%s: %d is no reduction operation", call, (int)op);
	if (tt_unlikely(rc))
		*ret_result = nccl_group_fail(rc);
	return rc ? NULL : tutti;
}

static ncclResult_t leave(tuttiResult_t result)
{
	return tt_likely(!result) ? ncclSuccess : nccl_group_fail(nccl_code(result));
}

/* The body of a call: passes it to tutti.h on the communicator t of the handle comm. The name of
 * the call is behind the p of the exported function (NCCL_CALL). */
#define FORWARD(op, call)                                       \
	ncclResult_t result = ncclSuccess;                      \
	tuttiComm_t t = enter(comm, op, __func__ + 1, &result); \
                                                                \
	return t ? leave(call) : result

#define TYPE ((tuttiDataType_t)datatype)
#define OP ((tuttiRedOp_t)op)
#define STREAM(in, out) nccl_stream(t, stream, in, out)

NCCL_CALL(ncclResult_t, ncclAllReduce, const void *sendbuff, void *recvbuff, size_t count,
	  ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream)
{
	FORWARD(op,
		tuttiAllReduce(sendbuff, recvbuff, count, TYPE, OP, t, STREAM(sendbuff, recvbuff)));
}

NCCL_CALL(ncclResult_t, ncclReduce, const void *sendbuff, void *recvbuff, size_t count,
	  ncclDataType_t datatype, ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream)
{
	FORWARD(op, tuttiReduce(sendbuff, recvbuff, count, TYPE, OP, root, t,
				STREAM(sendbuff, recvbuff)));
}

NCCL_CALL(ncclResult_t, ncclBroadcast, const void *sendbuff, void *recvbuff, size_t count,
	  ncclDataType_t datatype, int root, ncclComm_t comm, cudaStream_t stream)
{
	FORWARD(ncclSum, tuttiBroadcast(sendbuff, recvbuff, count, TYPE, root, t,
					STREAM(sendbuff, recvbuff)));
}

NCCL_CALL(ncclResult_t, ncclBcast, void *buff, size_t count, ncclDataType_t datatype, int root,
	  ncclComm_t comm, cudaStream_t stream)
{
	FORWARD(ncclSum, tuttiBcast(buff, count, TYPE, root, t, STREAM(buff, buff)));
}

NCCL_CALL(ncclResult_t, ncclAllGather, const void *sendbuff, void *recvbuff, size_t sendcount,
	  ncclDataType_t datatype, ncclComm_t comm, cudaStream_t stream)
{
	FORWARD(ncclSum,
		tuttiAllGather(sendbuff, recvbuff, sendcount, TYPE, t, STREAM(sendbuff, recvbuff)));
}

NCCL_CALL(ncclResult_t, ncclReduceScatter, const void *sendbuff, void *recvbuff, size_t recvcount,
	  ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream)
{
	FORWARD(op, tuttiReduceScatter(sendbuff, recvbuff, recvcount, TYPE, OP, t,
				       STREAM(sendbuff, recvbuff)));
}

/* Kernels cannot run alltoall in place, messages can: all sends are copied out before the first
 * receive is copied in. */
static tuttiResult_t exchange_in_place(char *buff, size_t bytes, int nranks, tuttiComm_t t,
				       tuttiStream_t stream)
{
	tuttiResult_t result = tuttiGroupStart();

	for (int peer = 0; peer < nranks && !result; peer++) {
		result = tuttiSend(buff + (size_t)peer * bytes, bytes, tuttiUint8, peer, t, stream);
		if (!result)
			result = tuttiRecv(buff + (size_t)peer * bytes, bytes, tuttiUint8, peer, t,
					   stream);
	}
	return result ? (tuttiGroupEnd(), result) : tuttiGroupEnd();
}

NCCL_CALL(ncclResult_t, ncclAlltoAll, const void *sendbuff, void *recvbuff, size_t count,
	  ncclDataType_t datatype, ncclComm_t comm, cudaStream_t stream)
{
	ncclResult_t result = ncclSuccess;
	tuttiComm_t t = enter(comm, ncclSum, "ncclAlltoAll", &result);
	int n;

	if (t && sendbuff == recvbuff && count && (unsigned)datatype < ncclNumTypes &&
	    !tuttiCommCount(t, &n) && count <= SIZE_MAX / tt_nccl_type_bytes(TYPE) / (size_t)n &&
	    nccl_on_device(sendbuff))
		return leave(exchange_in_place(recvbuff, count * tt_nccl_type_bytes(TYPE), n, t,
					       STREAM(sendbuff, recvbuff)));
	return t ? leave(tuttiAlltoAll(sendbuff, recvbuff, count, TYPE, t,
				       STREAM(sendbuff, recvbuff)))
		 : result;
}

NCCL_CALL(ncclResult_t, ncclGather, const void *sendbuff, void *recvbuff, size_t count,
	  ncclDataType_t datatype, int root, ncclComm_t comm, cudaStream_t stream)
{
	FORWARD(ncclSum,
		tuttiGather(sendbuff, recvbuff, count, TYPE, root, t, STREAM(sendbuff, recvbuff)));
}

NCCL_CALL(ncclResult_t, ncclScatter, const void *sendbuff, void *recvbuff, size_t count,
	  ncclDataType_t datatype, int root, ncclComm_t comm, cudaStream_t stream)
{
	FORWARD(ncclSum,
		tuttiScatter(sendbuff, recvbuff, count, TYPE, root, t, STREAM(sendbuff, recvbuff)));
}

NCCL_CALL(ncclResult_t, ncclSend, const void *sendbuff, size_t count, ncclDataType_t datatype,
	  int peer, ncclComm_t comm, cudaStream_t stream)
{
	FORWARD(ncclSum, tuttiSend(sendbuff, count, TYPE, peer, t, STREAM(sendbuff, NULL)));
}

NCCL_CALL(ncclResult_t, ncclRecv, void *recvbuff, size_t count, ncclDataType_t datatype, int peer,
	  ncclComm_t comm, cudaStream_t stream)
{
	FORWARD(ncclSum, tuttiRecv(recvbuff, count, TYPE, peer, t, STREAM(NULL, recvbuff)));
}

NCCL_CALL(ncclResult_t, ncclRedOpCreatePreMulSum, ncclRedOp_t *op, void *scalar,
	  ncclDataType_t datatype, ncclScalarResidence_t residence, ncclComm_t comm)
{
	FORWARD(ncclSum, tuttiRedOpCreatePreMulSum((tuttiRedOp_t *)op, scalar, TYPE,
						   (tuttiScalarResidence_t)residence, t));
}

NCCL_CALL(ncclResult_t, ncclRedOpDestroy, ncclRedOp_t op, ncclComm_t comm)
{
	FORWARD(op, tuttiRedOpDestroy(OP, t));
}
