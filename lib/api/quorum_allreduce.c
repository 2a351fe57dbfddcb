/*
 * quorum_allreduce.c - public call for quorum allreduce
 *
 * Checks the arguments as for an allreduce, then runs at once or in stream order.
 */
#include <stdlib.h>
#include <string.h>

#include "api/api.h"
#include "gpu/gpu.h"

static int check(struct tt_request *r, int k, int deadline_ms, const tuttiQuorum_t *quorum)
{
	tuttiComm_t c = r->comm;
	bool result_only = !r->in;
	int rc;

	if (tt_group_open())
		return tt_fail(
			TT_USAGE,
			"rank %d: tuttiAllReduceQuorum: not between tuttiGroupStart and tuttiGroupEnd",
			c->rank);
	if (quorum && quorum->size < offsetof(tuttiQuorum_t, mask))
		return tt_fail(
			TT_ARG,
			"rank %d: tuttiAllReduceQuorum: quorum was not made by TUTTI_QUORUM_INITIALIZER (size %zu)",
			c->rank, quorum->size);
	if (k < 1 || k > c->nranks || deadline_ms < 0)
		return tt_fail(
			TT_ARG,
			"rank %d: tuttiAllReduceQuorum: k = %d of %d ranks, deadline_ms = %d; want a k from 1 to the number of ranks, and a deadline of 0 or more",
			c->rank, k, c->nranks, deadline_ms);
	if (c->nranks > TUTTI_QUORUM_RANKS)
		return tt_fail(TT_ARG, "rank %d: tuttiAllReduceQuorum: %d ranks; the limit is %d",
			       c->rank, c->nranks, TUTTI_QUORUM_RANKS);
	if (r->op >= tuttiNumOps)
		return tt_fail(
			TT_ARG,
			"rank %d: tuttiAllReduceQuorum: op %d was created by a call; only built-in operations are supported",
			c->rank, (int)r->op);
	if (result_only)
		r->in = r->out;
	rc = tt_request_check(r, "tuttiAllReduceQuorum");
	if (result_only)
		r->in = NULL;
	return rc;
}

static int submit(struct tt_request *r, int k, int deadline_ms, tuttiQuorum_t *quorum)
{
	struct tt_quorum_request *q = calloc(1, sizeof(*q));

	if (!q)
		return tt_fail(TT_SYSTEM, "rank %d: no memory for a quorum operation",
			       r->comm->rank);
	q->user = quorum;
	q->call = (struct tt_quorum_call){
		.in = r->in,
		.out = r->out,
		.count = r->count,
		.type = r->type,
		.op = r->op,
		.k = k,
		.deadline_ms = deadline_ms ? (uint32_t)deadline_ms : r->comm->settings.timeout_ms,
		.carry = quorum ? quorum->carry : NULL,
		.every = quorum && quorum->every,
	};
	r->quorum = q;
	return r->stream ? tt_stream_submit(r->stream, r, 1) : tt_run_in_order(r, 1);
}

TUTTI_API tuttiResult_t tuttiAllReduceQuorum(const void *sendbuff, void *recvbuff, size_t count,
					     tuttiDataType_t datatype, tuttiRedOp_t op, int k,
					     int deadline_ms, tuttiComm_t comm,
					     tuttiStream_t stream, tuttiQuorum_t *quorum)
{
	struct tt_request r = { .collective = TT_ALLREDUCE,
				.in = sendbuff,
				.out = recvbuff,
				.count = count,
				.type = datatype,
				.op = op,
				.root = -1,
				.comm = comm,
				.stream = stream };
	int rc = tt_comm_enter(comm, "tuttiAllReduceQuorum", TT_ONE_CALL);

	if (rc)
		return tt_result(tt_group_fail(rc));
	rc = check(&r, k, deadline_ms, quorum);
	if (!rc && !(rc = tt_gpu_refuse(comm, "tuttiAllReduceQuorum", sendbuff)))
		rc = tt_gpu_refuse(comm, "tuttiAllReduceQuorum", recvbuff);
	rc = rc ? tt_group_fail(rc) : submit(&r, k, deadline_ms, quorum);
	return tt_result(tt_comm_leave(comm, TT_ONE_CALL, rc));
}
