/*
 * collectives.c - public collective and point-to-point calls: fill a request, check it, run it
 */
#include "api/api.h"

/* A call that the plan cache does not know yet, or cannot repeat. After its success the cache
 * learns it. */
static tuttiResult_t submit_full(struct tt_request *r, const char *call)
{
	bool alone = !r->stream && !tt_group_open();
	int rc = tt_comm_enter(r->comm);
	tuttiResult_t result;

	if (tt_unlikely(rc))
		return tt_result(tt_group_fail(rc));
	rc = tt_request_check(r, call);
	result = tt_unlikely(rc) ? tt_result(tt_group_fail(rc)) : tt_group_request(r);
	if (alone && result == tuttiSuccess)
		tt_run_learn(r);
	tt_comm_leave(r->comm);
	return result;
}

/* A call like one that went before. <= 0 the result | 1 not such a call */
static inline int repeat(tuttiComm_t comm, tuttiStream_t stream, struct tt_call_key key,
			 const void *in, void *out)
{
	return !stream && !tt_group_open() && !tt_comm_check(comm)
		       ? tt_run_cached(comm, key, in, out)
		       : 1;
}

static tuttiResult_t submit(struct tt_request *r, const char *call)
{
	int rc = repeat(r->comm, r->stream, tt_request_key(r), r->in, r->out);

	return rc <= 0 ? tt_result(rc) : submit_full(r, call);
}

/* The request is only made for a call that is not repeated: a small allreduce notices it. */
TUTTI_API tuttiResult_t tuttiAllReduce(const void *sendbuff, void *recvbuff, size_t count,
				       tuttiDataType_t datatype, tuttiRedOp_t op, tuttiComm_t comm,
				       tuttiStream_t stream)
{
	int rc = repeat(comm, stream, tt_call_key(TT_ALLREDUCE, datatype, op, -1, count), sendbuff,
			recvbuff);

	if (tt_likely(rc <= 0))
		return tt_result(rc);
	return submit_full(&(struct tt_request){ .collective = TT_ALLREDUCE,
						 .in = sendbuff,
						 .out = recvbuff,
						 .count = count,
						 .type = datatype,
						 .op = op,
						 .root = -1,
						 .comm = comm,
						 .stream = stream },
			   "tuttiAllReduce");
}

TUTTI_API tuttiResult_t tuttiReduce(const void *sendbuff, void *recvbuff, size_t count,
				    tuttiDataType_t datatype, tuttiRedOp_t op, int root,
				    tuttiComm_t comm, tuttiStream_t stream)
{
	struct tt_request r = { .collective = TT_REDUCE,
				.in = sendbuff,
				.out = recvbuff,
				.count = count,
				.type = datatype,
				.op = op,
				.root = root,
				.comm = comm,
				.stream = stream };

	return submit(&r, "tuttiReduce");
}

TUTTI_API tuttiResult_t tuttiBroadcast(const void *sendbuff, void *recvbuff, size_t count,
				       tuttiDataType_t datatype, int root, tuttiComm_t comm,
				       tuttiStream_t stream)
{
	struct tt_request r = { .collective = TT_BROADCAST,
				.in = sendbuff,
				.out = recvbuff,
				.count = count,
				.type = datatype,
				.root = root,
				.comm = comm,
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
	struct tt_request r = { .collective = TT_ALLGATHER,
				.in = sendbuff,
				.out = recvbuff,
				.count = sendcount,
				.type = datatype,
				.root = -1,
				.comm = comm,
				.stream = stream };

	return submit(&r, "tuttiAllGather");
}

TUTTI_API tuttiResult_t tuttiReduceScatter(const void *sendbuff, void *recvbuff, size_t recvcount,
					   tuttiDataType_t datatype, tuttiRedOp_t op,
					   tuttiComm_t comm, tuttiStream_t stream)
{
	struct tt_request r = { .collective = TT_REDUCE_SCATTER,
				.in = sendbuff,
				.out = recvbuff,
				.count = recvcount,
				.type = datatype,
				.op = op,
				.root = -1,
				.comm = comm,
				.stream = stream };

	return submit(&r, "tuttiReduceScatter");
}

TUTTI_API tuttiResult_t tuttiAlltoAll(const void *sendbuff, void *recvbuff, size_t count,
				      tuttiDataType_t datatype, tuttiComm_t comm,
				      tuttiStream_t stream)
{
	struct tt_request r = { .collective = TT_ALLTOALL,
				.in = sendbuff,
				.out = recvbuff,
				.count = count,
				.type = datatype,
				.root = -1,
				.comm = comm,
				.stream = stream };

	return submit(&r, "tuttiAlltoAll");
}

TUTTI_API tuttiResult_t tuttiGather(const void *sendbuff, void *recvbuff, size_t count,
				    tuttiDataType_t datatype, int root, tuttiComm_t comm,
				    tuttiStream_t stream)
{
	struct tt_request r = { .collective = TT_GATHER,
				.in = sendbuff,
				.out = recvbuff,
				.count = count,
				.type = datatype,
				.root = root,
				.comm = comm,
				.stream = stream };

	return submit(&r, "tuttiGather");
}

TUTTI_API tuttiResult_t tuttiScatter(const void *sendbuff, void *recvbuff, size_t count,
				     tuttiDataType_t datatype, int root, tuttiComm_t comm,
				     tuttiStream_t stream)
{
	struct tt_request r = { .collective = TT_SCATTER,
				.in = sendbuff,
				.out = recvbuff,
				.count = count,
				.type = datatype,
				.root = root,
				.comm = comm,
				.stream = stream };

	return submit(&r, "tuttiScatter");
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

	if (comm)
		r.in = r.out = &comm->memory.barrier_byte;
	return submit(&r, "tuttiBarrier");
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

	return submit(&r, "tuttiSend");
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

	return submit(&r, "tuttiRecv");
}
