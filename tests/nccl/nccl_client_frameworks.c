/*
 * nccl_client_frameworks.c - cases in the shape of what frameworks do around their collectives:
 * threads that join nothing, ids of other ranks, the order in which communicators go, processes
 * that just end, calls that do not match
 *
 * Called by nccl_client.c.
 */
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include "tests/nccl/nccl_client.h"

/* ---- PyTorch --------------------------------------------------------------------------------- */

/* Backward passes run in threads of their own, in which no device was ever chosen. */
static void *backward(void *arg)
{
	struct seat *seat = arg;

	return (void *)(long)(ncclAllReduce(seat->in, seat->out, 1, ncclInt, ncclSum, seat->comm,
					    seat->stream) ||
			      ncclGroupStart() ||
			      ncclBroadcast(seat->out, (int *)seat->out + 64, 1, ncclInt, 1,
					    seat->comm, seat->stream) ||
			      ncclGroupEnd());
}

/* As all_to_all with uneven splits: no call at all where there is nothing to move. Rank r has
 * (2r + p) % 3 numbers for rank p. */
static int skip_nothing(struct seat *seat)
{
	int n = seat->nranks, me = seat->rank, *x = seat->in, *y = seat->out;

	for (int p = 0; p < n; p++)
		EXPECT(!memory_write(seat, x + 8 * p, (int[]){ 10 * me + p, -p }, 8));
	OK(ncclGroupStart());
	for (int p = 0; p < n; p++) {
		size_t to = (size_t)(2 * me + p) % 3, from = (size_t)(2 * p + me) % 3;

		if (to)
			OK(ncclSend(x + 8 * p, to, ncclInt, p, seat->comm, seat->stream));
		if (from)
			OK(ncclRecv(y + 8 * p, from, ncclInt, p, seat->comm, seat->stream));
	}
	OK(ncclGroupEnd());
	for (int p = 0; p < n; p++)
		EXPECT(!differ(seat, y + 8 * p, (2 * p + me) % 3, (int[]){ 10 * p + me, -me }));
	return 0;
}

/* As PyTorch from 2.11 on: also what is nothing is called, without memory where there is none, and
 * on the default stream, which is what its waiting calls take. Only rank 0 has something for
 * all. */
static int call_nothing(struct seat *seat)
{
	int n = seat->nranks, me = seat->rank, *x = seat->in, *y = seat->out;
	struct seat by_default = { .rank = me };

	for (int p = 0; p < n; p++)
		EXPECT(!memory_write(&by_default, x + p, &(int){ 10 + p }, sizeof(int)));
	OK(ncclGroupStart());
	for (int p = 0; p < n; p++) {
		OK(ncclSend(me ? NULL : x + p, !me, ncclInt, p, seat->comm, NULL));
		OK(ncclRecv(y, !p, ncclInt, p, seat->comm, NULL));
	}
	OK(ncclGroupEnd());
	EXPECT(!differ(&by_default, y, 1, &(int){ 10 + me }));
	return 0;
}

/* A child outlives its parent, whether that ends well or not, and has children itself. */
static int orphans(struct seat *seat, const ncclUniqueId *ids)
{
	for (int i = 0; i < 2; i++) {
		ncclComm_t parent, child, grandchild;

		OK(ncclCommInitRank(&parent, seat->nranks, ids[i], seat->rank));
		OK(ncclCommSplit(parent, 0, -seat->rank, &child, NULL));
		EXPECT(!adds_up(seat, child, seat->stream));
		OK(i ? ncclCommAbort(parent) : ncclCommDestroy(parent));
		EXPECT(!adds_up(seat, child, seat->stream));
		OK(ncclCommSplit(child, seat->rank % 2, 0, &grandchild, NULL));
		EXPECT(!adds_up(seat, grandchild, seat->stream));
		OK(ncclCommDestroy(child));
		EXPECT(!adds_up(seat, grandchild, seat->stream));
		OK(ncclCommDestroy(grandchild));
	}
	return 0;
}

/* Ids that were made by any rank, handed out by the first communicator as by a store. */
static int ids_of(struct seat *seat, int rank, ncclUniqueId *ret_ids, int n)
{
	size_t bytes = (size_t)n * sizeof(*ret_ids);

	for (int i = 0; i < n && seat->rank == rank; i++)
		OK(ncclGetUniqueId(&ret_ids[i]));
	EXPECT(!memory_write(seat, seat->in, ret_ids, bytes));
	OK(ncclBcast(seat->in, bytes, ncclUint8, rank, seat->comm, seat->stream));
	EXPECT(!memory_read(seat, ret_ids, seat->in, bytes));
	return 0;
}

int case_frameworks(struct seat *seat, const ncclUniqueId *id)
{
	ncclUniqueId ids[3] = { { { 0 } } }, several[2] = { { { 0 } } };
	int sum = seat->nranks * (seat->nranks + 1) / 2;
	ncclComm_t comm;
	pthread_t thread;
	void *failed;

	(void)id;
	EXPECT(!memory_write(seat, seat->in, &(int){ seat->rank + 1 }, sizeof(int)));
	EXPECT(!pthread_create(&thread, NULL, backward, seat));
	pthread_join(thread, &failed);
	EXPECT(!failed);
	EXPECT(!differ(seat, (int *)seat->out + 64, 1, &sum));
	EXPECT(!skip_nothing(seat));
	/* threads that share a device need streams of their own */
	EXPECT((memory_is_cuda() && ranks_are_threads()) || !call_nothing(seat));
	EXPECT(!ids_of(seat, seat->nranks - 1, ids, 3));
	EXPECT(!orphans(seat, ids));
	/* several roots: an id of the first rank, one of another */
	EXPECT(!ids_of(seat, 0, &several[0], 1) && !ids_of(seat, 1, &several[1], 1));
	OK(ncclCommInitRankScalable(&comm, seat->nranks, seat->rank, 2, several, NULL));
	EXPECT(!adds_up(seat, comm, seat->stream));
	OK(ncclCommDestroy(comm));
	return 0;
}

/* ---- nccl-tests, and what coalesces calls ---------------------------------------------------- */

/* Several calls of a group in a graph, on a communicator that has done nothing before; then the
 * same again without one. In place where programs measure it, whatever becomes of the numbers. */
int case_captured_groups(struct seat *seat, const ncclUniqueId *id)
{
	int n = seat->nranks, me = seat->rank, right = (me + 1) % n, left = (me + n - 1) % n;
	int *x = seat->in, *y = seat->out;
	void *more, *handle;
	float half = 0.5f;
	ncclRedOp_t op;

	(void)id;
	EXPECT(!memory_capture(seat));
	OK(ncclMemAlloc(&more, 5000));                 /* a pool that grows */
	OK(ncclCommRegister(seat->comm, more, 5000, &handle));
	OK(ncclGroupStart());
	for (int i = 0; i < 3; i++)
		OK(ncclAllReduce(x + i, y + i, 1, ncclInt, ncclSum, seat->comm, seat->stream));
	OK(ncclRedOpCreatePreMulSum(&op, &half, ncclFloat, ncclScalarHostImmediate, seat->comm));
	OK(ncclAllReduce(x + 8, y + 8, 1, ncclFloat, op, seat->comm, seat->stream));
	OK(ncclRedOpDestroy(op, seat->comm));
	OK(ncclSend(x, 3, ncclInt, right, seat->comm, seat->stream));
	OK(ncclRecv(y + 16, 3, ncclInt, left, seat->comm, seat->stream));
	OK(ncclAllGather(x, y + 32, 1, ncclInt, seat->comm, seat->stream));
	OK(ncclGroupEnd());
	OK(ncclCommDeregister(seat->comm, handle));
	OK(ncclMemFree(more));
	EXPECT(!memory_captured(seat));
	for (int times = 1; times <= 2; times++) {
		float given = 4.0f * (float)times, got;

		EXPECT(!memory_write(seat, x, (int[]){ times, me, 7 }, 12));
		EXPECT(!memory_write(seat, x + 8, &given, sizeof(given)));
		EXPECT(!memory_replay(seat));
		EXPECT(!differ(seat, y, 3, (int[]){ times * n, n * (n - 1) / 2, 7 * n }));
		EXPECT(!differ(seat, y + 16, 3, (int[]){ times, left, 7 }));
		EXPECT(!differ(seat, y + 32, n, (int[]){ times, times, times, times }));
		EXPECT(!memory_read(seat, &got, y + 8, sizeof(got)));
		EXPECT(got == given * half * (float)n);
	}
	OK(ncclGroupStart());
	OK(ncclSend(x, 3, ncclInt, right, seat->comm, seat->stream));
	OK(ncclRecv(x, 3, ncclInt, left, seat->comm, seat->stream));
	OK(ncclGroupEnd());
	return adds_up(seat, seat->comm, seat->stream);
}

/* ---- vLLM ------------------------------------------------------------------------------------ */

/* It never destroys a communicator: processes end as soon as they have what they wanted. */
int case_leaves(struct seat *seat, const ncclUniqueId *id)
{
	int got[1024], last = (int)(memory_room / sizeof(int)) - 1;
	void *handle;

	(void)id;
	OK(ncclCommRegister(seat->comm, seat->in, memory_room, &handle));
	EXPECT(!adds_up(seat, seat->comm, seat->stream));
	EXPECT(!memory_write(seat, (int *)seat->in + last, &(int){ 1 }, sizeof(int)));
	OK(ncclAllReduce(seat->in, seat->in, (size_t)last + 1, ncclInt, ncclSum, seat->comm,
			 seat->stream));
	EXPECT(!memory_read(seat, got, (int *)seat->in + last - 1023, sizeof(got)));
	EXPECT(got[1023] == seat->nranks);
	exit(0);
}

/* ---- calls that do not match ----------------------------------------------------------------- */

/* What rank 1 calls is not what the others call. With NCCL that hangs, or goes wrong. */
static ncclResult_t mismatch(struct seat *seat, ncclComm_t c, int how)
{
	bool odd = seat->rank == 1;
	cudaStream_t s = seat->stream;

	switch (how) {
	case 0:
		return ncclAllReduce(seat->in, seat->out, odd ? 200 : 100, ncclInt, ncclSum, c, s);
	case 1:
		return ncclAllReduce(seat->in, seat->out, 100, odd ? ncclFloat : ncclInt, ncclSum,
				     c, s);
	case 2:
		/* a root that only sends may be through, and learns of it in its next call */
		return ncclBroadcast(seat->in, seat->out, 100, ncclInt, odd, c, s) ||
				       ncclAllReduce(seat->in, seat->out, 100, ncclInt, ncclSum,
						     c, s)
			       ? ncclInvalidArgument
			       : ncclSuccess;
	default:
		return odd ? ncclReduce(seat->in, seat->out, 100, ncclInt, ncclSum, 0, c, s)
			   : ncclAllReduce(seat->in, seat->out, 100, ncclInt, ncclSum, c, s);
	}
}

/* Every rank learns of it in words, and the communicator that the broken one came from works. */
int case_mismatches(struct seat *seat, const ncclUniqueId *id)
{
	(void)id;
	for (int how = 0; how < 4; how++) {
		ncclResult_t result, state = ncclSuccess;
		ncclComm_t child;
		int got;

		OK(ncclCommSplit(seat->comm, 0, seat->rank, &child, NULL));
		result = mismatch(seat, child, how);
		if (!result)
			memory_read(seat, &got, seat->out, sizeof(got));
		for (int i = 0; i < 25000 && !state && !result; i++) {
			OK(ncclCommGetAsyncError(child, &state));
			nanosleep(&(struct timespec){ .tv_nsec = 2000000 }, NULL);
		}
		EXPECT(result || state);
		EXPECT(strstr(ncclGetLastError(NULL), "rank") != NULL);
		OK(ncclCommAbort(child));
	}
	return adds_up(seat, seat->comm, seat->stream);
}
