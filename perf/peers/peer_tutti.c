/*
 * peer_tutti.c - Tutti as a peer of perf/compare
 *
 * PEER_REGISTERED=1: buffers of tuttiMemAlloc, registered with the communicator. The TUTTI_
 * variables have their usual meaning (tutti(7)).
 */
#include <stdio.h>
#include <stdlib.h>
#include <tutti.h>

#include "perf/peers/peer.h"

static tuttiComm_t comm;

static int failed(tuttiResult_t rc)
{
	if (rc)
		fprintf(stderr, "Tutti: %s\n", tuttiGetLastError(NULL));
	return rc != tuttiSuccess;
}

static int join(int *ret_rank, int *ret_n)
{
	if (failed(tuttiCommInitEnv(&comm, NULL)))
		return 1;
	return failed(tuttiCommUserRank(comm, ret_rank)) || failed(tuttiCommCount(comm, ret_n));
}

static float *alloc(size_t bytes)
{
	void *p = NULL, *handle;

	if (!getenv("PEER_REGISTERED"))
		return posix_memalign(&p, 4096, bytes) ? NULL : p;
	if (failed(tuttiMemAlloc(&p, bytes)) || failed(tuttiCommRegister(comm, p, bytes, &handle)))
		return NULL;
	return p;
}

static void leave(void)
{
	failed(tuttiCommDestroy(comm));
}

static int allreduce(const float *in, float *out, size_t count)
{
	return failed(tuttiAllReduce(in, out, count, tuttiFloat, tuttiSum, comm, NULL));
}

static int broadcast(const float *in, float *out, size_t count)
{
	return failed(tuttiBroadcast(in, out, count, tuttiFloat, 0, comm, NULL));
}

static int reduce(const float *in, float *out, size_t count)
{
	return failed(tuttiReduce(in, out, count, tuttiFloat, tuttiSum, 0, comm, NULL));
}

static int allgather(const float *in, float *out, size_t count)
{
	return failed(tuttiAllGather(in, out, count, tuttiFloat, comm, NULL));
}

static int reduce_scatter(const float *in, float *out, size_t count)
{
	return failed(tuttiReduceScatter(in, out, count, tuttiFloat, tuttiSum, comm, NULL));
}

static int alltoall(const float *in, float *out, size_t count)
{
	return failed(tuttiAlltoAll(in, out, count, tuttiFloat, comm, NULL));
}

const struct peer peer = {
	.open = join,
	.alloc = alloc,
	.close = leave,
	.calls = { allreduce, broadcast, reduce, allgather, reduce_scatter, alltoall },
};
