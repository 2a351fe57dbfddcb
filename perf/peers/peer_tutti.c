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

static int rank, n;

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
	if (failed(tuttiCommUserRank(comm, &rank)) || failed(tuttiCommCount(comm, &n)))
		return 1;
	*ret_rank = rank;
	*ret_n = n;
	return 0;
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

static int gather(const float *in, float *out, size_t count)
{
	return failed(tuttiGather(in, out, count, tuttiFloat, 0, comm, NULL));
}

static int scatter(const float *in, float *out, size_t count)
{
	return failed(tuttiScatter(in, out, count, tuttiFloat, 0, comm, NULL));
}

static int pingpong(const float *in, float *out, size_t count)
{
	if (rank == 0)
		return failed(tuttiSend(in, count, tuttiFloat, 1, comm, NULL)) ||
		       failed(tuttiRecv(out, count, tuttiFloat, 1, comm, NULL));
	return failed(tuttiRecv(out, count, tuttiFloat, 0, comm, NULL)) ||
	       failed(tuttiSend(in, count, tuttiFloat, 0, comm, NULL));
}

static int sendrecv(const float *in, float *out, size_t count)
{
	return failed(tuttiGroupStart()) ||
	       failed(tuttiSend(in, count, tuttiFloat, (rank + 1) % n, comm, NULL)) ||
	       failed(tuttiRecv(out, count, tuttiFloat, (rank + n - 1) % n, comm, NULL)) ||
	       failed(tuttiGroupEnd());
}

const struct peer peer = {
	.open = join,
	.alloc = alloc,
	.close = leave,
	.calls = { allreduce, broadcast, reduce, allgather, reduce_scatter, alltoall, gather,
		   scatter, pingpong, sendrecv },
};
