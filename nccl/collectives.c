/*
 * collectives.c - the calls that move data: the handle's communicator does them
 *
 * Called by users. Types and operations have the same numbers on both sides; what only tutti.h has is not let through.
 */
#include "api/api.h"
#include "nccl/layer.h"

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

/* The communicator of a call, in which rank and types are checked by tutti. 5..7 are operations of tutti that NCCL does
 * not have. false: nothing is left to do, *ret_result says why. */
static bool enter(ncclComm_t comm, struct tt_request *r, const char *call, ncclResult_t *ret_result)
{
	int rc = nc_comm_check(comm, call, &r->comm);

	if (!rc && tt_unlikely((int)r->op >= ncclNumOps && (int)r->op < (int)tuttiNumOps))
		rc = tt_fail(TT_ARG, "%s: %d is no reduction operation", call, (int)r->op);
	if (tt_unlikely(rc)) {
		*ret_result = nc_group_fail(rc);
		return false;
	}
	if (nc_on_device(r)) {
		*ret_result = nc_staged_call(comm, r, call);
		return false;
	}
	nc_courier_drain(comm);
	return true;
}

static ncclResult_t leave(tuttiResult_t result)
{
	return tt_likely(!result) ? ncclSuccess : nc_group_fail(nc_code(result));
}

#define TYPE ((tuttiDataType_t)datatype)
#define OP ((tuttiRedOp_t)op)

NCCL_CALL(ncclResult_t, ncclAllReduce, const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
	  ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream)
{
	struct tt_request r = { .collective = TT_ALLREDUCE, .in = sendbuff, .out = recvbuff, .count = count,
				.type = TYPE, .op = OP, .root = -1, .stream = stream };
	ncclResult_t result;

	if (!enter(comm, &r, "ncclAllReduce", &result))
		return result;
	return leave(tuttiAllReduce(sendbuff, recvbuff, count, TYPE, OP, r.comm, stream));
}

NCCL_CALL(ncclResult_t, ncclReduce, const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
	  ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream)
{
	struct tt_request r = { .collective = TT_REDUCE, .in = sendbuff, .out = recvbuff, .count = count,
				.type = TYPE, .op = OP, .root = root, .stream = stream };
	ncclResult_t result;

	if (!enter(comm, &r, "ncclReduce", &result))
		return result;
	return leave(tuttiReduce(sendbuff, recvbuff, count, TYPE, OP, root, r.comm, stream));
}

NCCL_CALL(ncclResult_t, ncclBroadcast, const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
	  int root, ncclComm_t comm, cudaStream_t stream)
{
	struct tt_request r = { .collective = TT_BROADCAST, .in = sendbuff, .out = recvbuff, .count = count,
				.type = TYPE, .root = root, .stream = stream };
	ncclResult_t result;

	if (!enter(comm, &r, "ncclBroadcast", &result))
		return result;
	return leave(tuttiBroadcast(sendbuff, recvbuff, count, TYPE, root, r.comm, stream));
}

NCCL_CALL(ncclResult_t, ncclBcast, void *buff, size_t count, ncclDataType_t datatype, int root, ncclComm_t comm,
	  cudaStream_t stream)
{
	struct tt_request r = { .collective = TT_BROADCAST, .in = buff, .out = buff, .count = count,
				.type = TYPE, .root = root, .stream = stream };
	ncclResult_t result;

	if (!enter(comm, &r, "ncclBcast", &result))
		return result;
	return leave(tuttiBcast(buff, count, TYPE, root, r.comm, stream));
}

NCCL_CALL(ncclResult_t, ncclAllGather, const void *sendbuff, void *recvbuff, size_t sendcount, ncclDataType_t datatype,
	  ncclComm_t comm, cudaStream_t stream)
{
	struct tt_request r = { .collective = TT_ALLGATHER, .in = sendbuff, .out = recvbuff, .count = sendcount,
				.type = TYPE, .root = -1, .stream = stream };
	ncclResult_t result;

	if (!enter(comm, &r, "ncclAllGather", &result))
		return result;
	return leave(tuttiAllGather(sendbuff, recvbuff, sendcount, TYPE, r.comm, stream));
}

NCCL_CALL(ncclResult_t, ncclReduceScatter, const void *sendbuff, void *recvbuff, size_t recvcount,
	  ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream)
{
	struct tt_request r = { .collective = TT_REDUCE_SCATTER, .in = sendbuff, .out = recvbuff, .count = recvcount,
				.type = TYPE, .op = OP, .root = -1, .stream = stream };
	ncclResult_t result;

	if (!enter(comm, &r, "ncclReduceScatter", &result))
		return result;
	return leave(tuttiReduceScatter(sendbuff, recvbuff, recvcount, TYPE, OP, r.comm, stream));
}

NCCL_CALL(ncclResult_t, ncclAlltoAll, const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
	  ncclComm_t comm, cudaStream_t stream)
{
	struct tt_request r = { .collective = TT_ALLTOALL, .in = sendbuff, .out = recvbuff, .count = count,
				.type = TYPE, .root = -1, .stream = stream };
	ncclResult_t result;

	if (!enter(comm, &r, "ncclAlltoAll", &result))
		return result;
	return leave(tuttiAlltoAll(sendbuff, recvbuff, count, TYPE, r.comm, stream));
}

NCCL_CALL(ncclResult_t, ncclGather, const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
	  int root, ncclComm_t comm, cudaStream_t stream)
{
	struct tt_request r = { .collective = TT_GATHER, .in = sendbuff, .out = recvbuff, .count = count,
				.type = TYPE, .root = root, .stream = stream };
	ncclResult_t result;

	if (!enter(comm, &r, "ncclGather", &result))
		return result;
	return leave(tuttiGather(sendbuff, recvbuff, count, TYPE, root, r.comm, stream));
}

NCCL_CALL(ncclResult_t, ncclScatter, const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
	  int root, ncclComm_t comm, cudaStream_t stream)
{
	struct tt_request r = { .collective = TT_SCATTER, .in = sendbuff, .out = recvbuff, .count = count,
				.type = TYPE, .root = root, .stream = stream };
	ncclResult_t result;

	if (!enter(comm, &r, "ncclScatter", &result))
		return result;
	return leave(tuttiScatter(sendbuff, recvbuff, count, TYPE, root, r.comm, stream));
}

NCCL_CALL(ncclResult_t, ncclSend, const void *sendbuff, size_t count, ncclDataType_t datatype, int peer,
	  ncclComm_t comm, cudaStream_t stream)
{
	struct tt_request r = { .collective = TT_SENDRECV, .in = sendbuff, .count = count,
				.type = TYPE, .root = peer, .send = true, .stream = stream };
	ncclResult_t result;

	if (!enter(comm, &r, "ncclSend", &result))
		return result;
	return leave(tuttiSend(sendbuff, count, TYPE, peer, r.comm, stream));
}

NCCL_CALL(ncclResult_t, ncclRecv, void *recvbuff, size_t count, ncclDataType_t datatype, int peer, ncclComm_t comm,
	  cudaStream_t stream)
{
	struct tt_request r = { .collective = TT_SENDRECV, .out = recvbuff, .count = count,
				.type = TYPE, .root = peer, .stream = stream };
	ncclResult_t result;

	if (!enter(comm, &r, "ncclRecv", &result))
		return result;
	return leave(tuttiRecv(recvbuff, count, TYPE, peer, r.comm, stream));
}

/* The scalar is read by the host: where it lies in device memory, this is not built. */
NCCL_CALL(ncclResult_t, ncclRedOpCreatePreMulSum, ncclRedOp_t *op, void *scalar, ncclDataType_t datatype,
	  ncclScalarResidence_t residence, ncclComm_t comm)
{
	struct tt_request r = { .in = scalar };
	int rc = nc_comm_check(comm, "ncclRedOpCreatePreMulSum", &r.comm);

	if (!rc && residence == ncclScalarDevice && nc_on_device(&r))
		rc = tt_fail(TT_USAGE, "ncclRedOpCreatePreMulSum: a scalar in device memory is not built; hand over its value "
			     "with ncclScalarHostImmediate");
	if (rc)
		return nc_group_fail(rc);
	return leave(tuttiRedOpCreatePreMulSum((tuttiRedOp_t *)op, scalar, TYPE, (tuttiScalarResidence_t)residence,
					       r.comm));
}

NCCL_CALL(ncclResult_t, ncclRedOpDestroy, ncclRedOp_t op, ncclComm_t comm)
{
	tuttiComm_t tutti;
	int rc = nc_comm_check(comm, "ncclRedOpDestroy", &tutti);

	return rc ? nc_group_fail(rc) : leave(tuttiRedOpDestroy(OP, tutti));
}
