/*
 * collectives.c - public collective and point-to-point calls: fill a request, check it, run it
 */
#include "api/api.h"

/* The full path. Its result is cached, so the next call like this one is shorter. */
static tuttiResult_t submit_full(struct tt_request *r, const char *call, bool alone)
{
	int rc = tt_comm_enter(r->comm);
	tuttiResult_t result;
	size_t in, out;

	if (tt_unlikely(rc))
		return tt_result(tt_group_fail(rc));
	rc = tt_request_check(r, call);
	result = tt_unlikely(rc) ? tt_result(tt_group_fail(rc)) : tt_group_request(r);
	if (alone && result == tuttiSuccess && !r->comm->gpu && tt_request_extents(r, &in, &out))
		tt_repeat_learn(r, in, out);
	tt_comm_leave(r->comm);
	return result;
}

static tuttiResult_t submit(struct tt_request *r, const char *call)
{
	bool alone = !r->stream && !tt_group_open();
	int rc;

	if (alone && !tt_comm_check(r->comm) && (rc = tt_repeat(r)) <= 0)
		return tt_result(rc);
	return submit_full(r, call, alone);
}

TUTTI_API tuttiResult_t tuttiAllReduce(const void *sendbuff, void *recvbuff, size_t count,
				       tuttiDataType_t datatype, tuttiRedOp_t op, tuttiComm_t comm,
				       tuttiStream_t stream)
{
	struct tt_request r = { .collective = TT_ALLREDUCE, .in = sendbuff, .out = recvbuff,
				.count = count, .type = datatype, .op = op, .root = -1,
				.comm = comm, .stream = stream };
	int rc;

	if (!stream && !tt_group_open() && !tt_comm_check(comm) &&
	    (rc = tt_express(comm, sendbuff, recvbuff, count, datatype, op)) <= 0)
		return tt_result(rc);
	return submit(&r, "tuttiAllReduce");
}

TUTTI_API tuttiResult_t tuttiReduce(const void *sendbuff, void *recvbuff, size_t count,
				    tuttiDataType_t datatype, tuttiRedOp_t op, int root,
				    tuttiComm_t comm, tuttiStream_t stream)
{
	struct tt_request r = { .collective = TT_REDUCE, .in = sendbuff, .out = recvbuff,
				.count = count, .type = datatype, .op = op, .root = root,
				.comm = comm, .stream = stream };

	return submit(&r, "tuttiReduce");
}

TUTTI_API tuttiResult_t tuttiBroadcast(const void *sendbuff, void *recvbuff, size_t count,
				       tuttiDataType_t datatype, int root, tuttiComm_t comm,
				       tuttiStream_t stream)
{
	struct tt_request r = { .collective = TT_BROADCAST, .in = sendbuff, .out = recvbuff,
				.count = count, .type = datatype, .root = root, .comm = comm,
				.stream = stream };

	return submit(&r, "tuttiBroadcast");
}

TUTTI_API tuttiResult_t tuttiBcast(void *buff, size_t count, tuttiDataType_t datatype, int root,
				   tuttiComm_t comm, tuttiStream_t stream)
{
	return tuttiBroadcast(buff, buff, count, datatype, root, comm, stream);
}

TUTTI_API tuttiResult_t tuttiAllGather(const void *sendbuff, void *recvbuff, size_t sendcount,
				       tuttiDataType_t datatype, tuttiComm_t comm,
				       tuttiStream_t stream)
{
	struct tt_request r = { .collective = TT_ALLGATHER, .in = sendbuff, .out = recvbuff,
				.count = sendcount, .type = datatype, .root = -1, .comm = comm,
				.stream = stream };

	return submit(&r, "tuttiAllGather");
}

TUTTI_API tuttiResult_t tuttiReduceScatter(const void *sendbuff, void *recvbuff, size_t recvcount,
					   tuttiDataType_t datatype, tuttiRedOp_t op,
					   tuttiComm_t comm, tuttiStream_t stream)
{
	struct tt_request r = { .collective = TT_REDUCE_SCATTER, .in = sendbuff, .out = recvbuff,
				.count = recvcount, .type = datatype, .op = op, .root = -1,
				.comm = comm, .stream = stream };

	return submit(&r, "tuttiReduceScatter");
}

TUTTI_API tuttiResult_t tuttiAlltoAll(const void *sendbuff, void *recvbuff, size_t count,
				      tuttiDataType_t datatype, tuttiComm_t comm,
				      tuttiStream_t stream)
{
	struct tt_request r = { .collective = TT_ALLTOALL, .in = sendbuff, .out = recvbuff,
				.count = count, .type = datatype, .root = -1, .comm = comm,
				.stream = stream };

	return submit(&r, "tuttiAlltoAll");
}

TUTTI_API tuttiResult_t tuttiGather(const void *sendbuff, void *recvbuff, size_t count,
				    tuttiDataType_t datatype, int root, tuttiComm_t comm,
				    tuttiStream_t stream)
{
	struct tt_request r = { .collective = TT_GATHER, .in = sendbuff, .out = recvbuff,
				.count = count, .type = datatype, .root = root, .comm = comm,
				.stream = stream };

	return submit(&r, "tuttiGather");
}

TUTTI_API tuttiResult_t tuttiScatter(const void *sendbuff, void *recvbuff, size_t count,
				     tuttiDataType_t datatype, int root, tuttiComm_t comm,
				     tuttiStream_t stream)
{
	struct tt_request r = { .collective = TT_SCATTER, .in = sendbuff, .out = recvbuff,
				.count = count, .type = datatype, .root = root, .comm = comm,
				.stream = stream };

	return submit(&r, "tuttiScatter");
}

/* A barrier is an allreduce of one byte: the result of every rank needs the contribution of every
 * rank. The value is unused. */
TUTTI_API tuttiResult_t tuttiBarrier(tuttiComm_t comm, tuttiStream_t stream)
{
	struct tt_request r = { .collective = TT_ALLREDUCE, .barrier = true, .count = 1,
				.type = tuttiUint8, .op = tuttiBor, .root = -1, .comm = comm,
				.stream = stream };

	if (comm)
		r.in = r.out = &comm->barrier_byte;
	return submit(&r, "tuttiBarrier");
}

TUTTI_API tuttiResult_t tuttiSend(const void *sendbuff, size_t count, tuttiDataType_t datatype,
				  int peer, tuttiComm_t comm, tuttiStream_t stream)
{
	struct tt_request r = { .collective = TT_SENDRECV, .in = sendbuff, .count = count,
				.type = datatype, .root = peer, .send = true, .comm = comm,
				.stream = stream };

	return submit(&r, "tuttiSend");
}

TUTTI_API tuttiResult_t tuttiRecv(void *recvbuff, size_t count, tuttiDataType_t datatype, int peer,
				  tuttiComm_t comm, tuttiStream_t stream)
{
	struct tt_request r = { .collective = TT_SENDRECV, .out = recvbuff, .count = count,
				.type = datatype, .root = peer, .comm = comm, .stream = stream };

	return submit(&r, "tuttiRecv");
}
