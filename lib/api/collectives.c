/*
 * collectives.c - public collective and point-to-point calls: fill a request, check it, run it
 */
#include "api/api.h"

/* A call that the plan cache does not know yet, or cannot repeat. After its success the cache
 * learns it. */
static tuttiResult_t submit_full(struct tt_request *r, const char *call)
{
	bool alone = !r->stream && !tt_group_open();
	int rc;

	if (tt_unlikely(tt_needs[r->collective].reduces && (unsigned)r->op >= tuttiNumOps) &&
	    tt_user_operator(r->comm, r->op))
		return tt_user_reduction(r, call, NULL);
	rc = tt_comm_enter(r->comm, call, TT_ONE_CALL);
	if (tt_unlikely(rc))
		return tt_result(tt_group_fail(rc));
	rc = tt_request_check(r, call);
	rc = tt_unlikely(rc) ? tt_group_fail(rc) : tt_group_request(r);
	if (alone && !rc)
		tt_run_learn(r);
	return tt_result(tt_comm_leave(r->comm, TT_ONE_CALL, rc));
}

/* Runs a call that the plan cache can repeat. <= 0 the result | 1 it cannot */
static inline int repeat(tuttiComm_t comm, tuttiStream_t stream, struct tt_call_key key,
			 const void *in, void *out)
{
	return !stream && !tt_group_open() && !tt_comm_check(comm)
		       ? tt_run_cached(comm, key, in, out)
		       : 1;
}

/* Makes the request only for a call that is not repeated, since making it would slow a small
 * allreduce. */
static inline __attribute__((always_inline)) tuttiResult_t submit(
	const char *call, enum tt_collective collective, const void *in, void *out, size_t count,
	tuttiDataType_t type, tuttiRedOp_t op, int root, tuttiComm_t comm, tuttiStream_t stream)
{
	int rc = repeat(comm, stream, tt_call_key(collective, type, op, root, count), in, out);

	if (tt_likely(rc <= 0))
		return tt_result(rc);
	return submit_full(&(struct tt_request){ .collective = collective,
						 .in = in,
						 .out = out,
						 .count = count,
						 .type = type,
						 .op = op,
						 .root = root,
						 .comm = comm,
						 .stream = stream },
			   call);
}

TUTTI_API tuttiResult_t tuttiAllReduce(const void *sendbuff, void *recvbuff, size_t count,
				       tuttiDataType_t datatype, tuttiRedOp_t op, tuttiComm_t comm,
				       tuttiStream_t stream)
{
	return submit("tuttiAllReduce", TT_ALLREDUCE, sendbuff, recvbuff, count, datatype, op, -1,
		      comm, stream);
}

TUTTI_API tuttiResult_t tuttiReduce(const void *sendbuff, void *recvbuff, size_t count,
				    tuttiDataType_t datatype, tuttiRedOp_t op, int root,
				    tuttiComm_t comm, tuttiStream_t stream)
{
	return submit("tuttiReduce", TT_REDUCE, sendbuff, recvbuff, count, datatype, op, root, comm,
		      stream);
}

TUTTI_API tuttiResult_t tuttiBroadcast(const void *sendbuff, void *recvbuff, size_t count,
				       tuttiDataType_t datatype, int root, tuttiComm_t comm,
				       tuttiStream_t stream)
{
	return submit("tuttiBroadcast", TT_BROADCAST, sendbuff, recvbuff, count, datatype, tuttiSum,
		      root, comm, stream);
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
	return submit("tuttiAllGather", TT_ALLGATHER, sendbuff, recvbuff, sendcount, datatype,
		      tuttiSum, -1, comm, stream);
}

TUTTI_API tuttiResult_t tuttiReduceScatter(const void *sendbuff, void *recvbuff, size_t recvcount,
					   tuttiDataType_t datatype, tuttiRedOp_t op,
					   tuttiComm_t comm, tuttiStream_t stream)
{
	return submit("tuttiReduceScatter", TT_REDUCE_SCATTER, sendbuff, recvbuff, recvcount,
		      datatype, op, -1, comm, stream);
}

TUTTI_API tuttiResult_t tuttiAlltoAll(const void *sendbuff, void *recvbuff, size_t count,
				      tuttiDataType_t datatype, tuttiComm_t comm,
				      tuttiStream_t stream)
{
	return submit("tuttiAlltoAll", TT_ALLTOALL, sendbuff, recvbuff, count, datatype, tuttiSum,
		      -1, comm, stream);
}

TUTTI_API tuttiResult_t tuttiGather(const void *sendbuff, void *recvbuff, size_t count,
				    tuttiDataType_t datatype, int root, tuttiComm_t comm,
				    tuttiStream_t stream)
{
	return submit("tuttiGather", TT_GATHER, sendbuff, recvbuff, count, datatype, tuttiSum, root,
		      comm, stream);
}

TUTTI_API tuttiResult_t tuttiScatter(const void *sendbuff, void *recvbuff, size_t count,
				     tuttiDataType_t datatype, int root, tuttiComm_t comm,
				     tuttiStream_t stream)
{
	return submit("tuttiScatter", TT_SCATTER, sendbuff, recvbuff, count, datatype, tuttiSum,
		      root, comm, stream);
}

/* A barrier is an allreduce of one byte: the result of every rank needs the contribution of every
 * rank. The value is unused. */
TUTTI_API tuttiResult_t tuttiBarrier(tuttiComm_t comm, tuttiStream_t stream)
{
	struct tt_request r = { .collective = TT_ALLREDUCE,
				.barrier = true,
				.count = 1,
				.type = tuttiUint8,
				.op = tuttiBor,
				.root = -1,
				.comm = comm,
				.stream = stream };
	int rc;

	if (comm)
		r.in = r.out = &comm->memory.barrier_byte;
	rc = repeat(comm, stream, tt_request_key(&r), r.in, r.out);
	return rc <= 0 ? tt_result(rc) : submit_full(&r, "tuttiBarrier");
}

TUTTI_API tuttiResult_t tuttiSend(const void *sendbuff, size_t count, tuttiDataType_t datatype,
				  int peer, tuttiComm_t comm, tuttiStream_t stream)
{
	struct tt_request r = { .collective = TT_SENDRECV,
				.in = sendbuff,
				.count = count,
				.type = datatype,
				.root = peer,
				.send = true,
				.comm = comm,
				.stream = stream };

	return submit_full(&r, "tuttiSend");
}

TUTTI_API tuttiResult_t tuttiRecv(void *recvbuff, size_t count, tuttiDataType_t datatype, int peer,
				  tuttiComm_t comm, tuttiStream_t stream)
{
	struct tt_request r = { .collective = TT_SENDRECV,
				.out = recvbuff,
				.count = count,
				.type = datatype,
				.root = peer,
				.comm = comm,
				.stream = stream };

	return submit_full(&r, "tuttiRecv");
}
