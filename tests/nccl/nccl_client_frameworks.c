/*
 * nccl_client_frameworks.c - cases with the call patterns of frameworks around their collectives:
 * threads without a current device, ids from other ranks, communicators destroyed in any order,
 * processes that exit without destroying, calls that do not match
 *
 * Called by nccl_client.c.
 */
#include <pthread.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/nccl/nccl_client.h"

/* ---- PyTorch --------------------------------------------------------------------------------- */

/* Backward passes run in threads of their own, which never set a device. */
static void *backward(void *arg)
{
	struct client_rank *client = arg;

	return (void *)(long)(ncclAllReduce(client->in, client->out, 1, ncclInt, ncclSum,
					    client->comm, client->stream) ||
			      ncclGroupStart() ||
			      ncclBroadcast(client->out, (int *)client->out + 64, 1, ncclInt, 1,
					    client->comm, client->stream) ||
			      ncclGroupEnd());
}

/* As all_to_all with uneven splits: a transfer without elements is not called. Rank r has (2r + p)
 * % 3 numbers for rank p. */
static int skip_nothing(struct client_rank *client)
{
	int n = client->nranks, me = client->rank, *x = client->in, *y = client->out;

	for (int p = 0; p < n; p++)
		EXPECT(!memory_write(client, x + 8 * p, (int[]){ 10 * me + p, -p }, 8));
	OK(ncclGroupStart());
	for (int p = 0; p < n; p++) {
		size_t to = (size_t)(2 * me + p) % 3, from = (size_t)(2 * p + me) % 3;

		if (to)
			OK(ncclSend(x + 8 * p, to, ncclInt, p, client->comm, client->stream));
		if (from)
			OK(ncclRecv(y + 8 * p, from, ncclInt, p, client->comm, client->stream));
	}
	OK(ncclGroupEnd());
	for (int p = 0; p < n; p++)
		EXPECT(!differ(client, y + 8 * p, (2 * p + me) % 3, (int[]){ 10 * p + me, -me }));
	return 0;
}

/* As PyTorch 2.11 and later: transfers without elements are called as well, without memory, and on
 * the default stream, which PyTorch uses for blocking calls. Only rank 0 sends, to all ranks. */
static int call_nothing(struct client_rank *client)
{
	int n = client->nranks, me = client->rank, *x = client->in, *y = client->out;
	struct client_rank by_default = { .rank = me };

	for (int p = 0; p < n; p++)
		EXPECT(!memory_write(&by_default, x + p, &(int){ 10 + p }, sizeof(int)));
	OK(ncclGroupStart());
	for (int p = 0; p < n; p++) {
		OK(ncclSend(me ? NULL : x + p, !me, ncclInt, p, client->comm, NULL));
		OK(ncclRecv(y, !p, ncclInt, p, client->comm, NULL));
	}
	OK(ncclGroupEnd());
	EXPECT(!differ(&by_default, y, 1, &(int){ 10 + me }));
	return 0;
}

/* A child communicator outlives its parent, even a broken one, and has children itself. */
static int orphans(struct client_rank *client, const ncclUniqueId *ids)
{
	for (int i = 0; i < 2; i++) {
		ncclComm_t parent, child, grandchild;

		OK(ncclCommInitRank(&parent, client->nranks, ids[i], client->rank));
		OK(ncclCommSplit(parent, 0, -client->rank, &child, NULL));
		EXPECT(!adds_up(client, child, client->stream));
		OK(i ? ncclCommAbort(parent) : ncclCommDestroy(parent));
		EXPECT(!adds_up(client, child, client->stream));
		OK(ncclCommSplit(child, client->rank % 2, 0, &grandchild, NULL));
		EXPECT(!adds_up(client, grandchild, client->stream));
		OK(ncclCommDestroy(child));
		EXPECT(!adds_up(client, grandchild, client->stream));
		OK(ncclCommDestroy(grandchild));
	}
	return 0;
}

/* Any rank creates ids, and the first communicator distributes them like a store. */
static int ids_of(struct client_rank *client, int rank, ncclUniqueId *ret_ids, int n)
{
	size_t bytes = (size_t)n * sizeof(*ret_ids);

	for (int i = 0; i < n && client->rank == rank; i++)
		OK(ncclGetUniqueId(&ret_ids[i]));
	EXPECT(!memory_write(client, client->in, ret_ids, bytes));
	OK(ncclBcast(client->in, bytes, ncclUint8, rank, client->comm, client->stream));
	EXPECT(!memory_read(client, ret_ids, client->in, bytes));
	return 0;
}

int case_frameworks(struct client_rank *client, const ncclUniqueId *id)
{
	ncclUniqueId ids[3] = { { { 0 } } }, several[2] = { { { 0 } } };
	int sum = client->nranks * (client->nranks + 1) / 2;
	ncclComm_t comm;
	pthread_t thread;
	void *failed;

	(void)id;
	EXPECT(!memory_write(client, client->in, &(int){ client->rank + 1 }, sizeof(int)));
	EXPECT(!pthread_create(&thread, NULL, backward, client));
	pthread_join(thread, &failed);
	EXPECT(!failed);
	EXPECT(!differ(client, (int *)client->out + 64, 1, &sum));
	EXPECT(!skip_nothing(client));
	/* threads that share a device need streams of their own */
	EXPECT((memory_is_cuda() && ranks_are_threads()) || !call_nothing(client));
	EXPECT(!ids_of(client, client->nranks - 1, ids, 3));
	EXPECT(!orphans(client, ids));
	/* several roots: one id of the first rank, one of another rank */
	EXPECT(!ids_of(client, 0, &several[0], 1) && !ids_of(client, 1, &several[1], 1));
	OK(ncclCommInitRankScalable(&comm, client->nranks, client->rank, 2, several, NULL));
	EXPECT(!adds_up(client, comm, client->stream));
	OK(ncclCommDestroy(comm));
	return 0;
}

/* ---- nccl-tests, and programs that coalesce calls -------------------------------------------- */

/* Several calls of a group in a graph, on a communicator without earlier calls; then the same calls
 * without a graph. In place as in the benchmarks, where the resulting numbers do not matter. */
int case_captured_groups(struct client_rank *client, const ncclUniqueId *id)
{
	int n = client->nranks, me = client->rank, right = (me + 1) % n, left = (me + n - 1) % n;
	int *x = client->in, *y = client->out;
	void *more, *handle;
	float half = 0.5f;
	ncclRedOp_t op;

	(void)id;
	EXPECT(!memory_capture(client));
	OK(ncclMemAlloc(&more, 5000)); /* a pool that grows */
	OK(ncclCommRegister(client->comm, more, 5000, &handle));
	OK(ncclGroupStart());
	for (int i = 0; i < 3; i++)
		OK(ncclAllReduce(x + i, y + i, 1, ncclInt, ncclSum, client->comm, client->stream));
	OK(ncclRedOpCreatePreMulSum(&op, &half, ncclFloat, ncclScalarHostImmediate, client->comm));
	OK(ncclAllReduce(x + 8, y + 8, 1, ncclFloat, op, client->comm, client->stream));
	OK(ncclRedOpDestroy(op, client->comm));
	OK(ncclSend(x, 3, ncclInt, right, client->comm, client->stream));
	OK(ncclRecv(y + 16, 3, ncclInt, left, client->comm, client->stream));
	OK(ncclAllGather(x, y + 32, 1, ncclInt, client->comm, client->stream));
	OK(ncclGroupEnd());
	OK(ncclCommDeregister(client->comm, handle));
	OK(ncclMemFree(more));
	EXPECT(!memory_captured(client));
	for (int times = 1; times <= 2; times++) {
		float given = 4.0f * (float)times, got;

		EXPECT(!memory_write(client, x, (int[]){ times, me, 7 }, 12));
		EXPECT(!memory_write(client, x + 8, &given, sizeof(given)));
		EXPECT(!memory_replay(client));
		EXPECT(!differ(client, y, 3, (int[]){ times * n, n * (n - 1) / 2, 7 * n }));
		EXPECT(!differ(client, y + 16, 3, (int[]){ times, left, 7 }));
		EXPECT(!differ(client, y + 32, n, (int[]){ times, times, times, times }));
		EXPECT(!memory_read(client, &got, y + 8, sizeof(got)));
		EXPECT(got == given * half * (float)n);
	}
	OK(ncclGroupStart());
	OK(ncclSend(x, 3, ncclInt, right, client->comm, client->stream));
	OK(ncclRecv(x, 3, ncclInt, left, client->comm, client->stream));
	OK(ncclGroupEnd());
	return adds_up(client, client->comm, client->stream);
}

/* ---- vLLM ------------------------------------------------------------------------------------ */

/* vLLM never destroys a communicator: its processes exit as soon as the results are there. */
int case_leaves(struct client_rank *client, const ncclUniqueId *id)
{
	int got[1024], last = (int)(memory_room / sizeof(int)) - 1;
	void *handle;

	(void)id;
	OK(ncclCommRegister(client->comm, client->in, memory_room, &handle));
	EXPECT(!adds_up(client, client->comm, client->stream));
	EXPECT(!memory_write(client, (int *)client->in + last, &(int){ 1 }, sizeof(int)));
	OK(ncclAllReduce(client->in, client->in, (size_t)last + 1, ncclInt, ncclSum, client->comm,
			 client->stream));
	EXPECT(!memory_read(client, got, (int *)client->in + last - 1023, sizeof(got)));
	EXPECT(got[1023] == client->nranks);
	exit(0);
}

static ncclUniqueId id_of_many;

static void *join_many(void *rank)
{
	ncclComm_t comm;

	ncclCommInitRank(&comm, 200, id_of_many, (int)(long)rank);
	return NULL;
}

/* 40 of 200 ranks join, and the process exits soon. OpenSSL frees its locks when a process ends, unless it
 * was initialized otherwise. */
static void exit_beside_joins(unsigned after_us)
{
	pthread_t thread;

	ncclGetUniqueId(&id_of_many);
	for (long r = 0; r < 40; r++)
		pthread_create(&thread, NULL, join_many, (void *)r);
	usleep(after_us);
	exit(7);
}

int case_exits(struct client_rank *client, const ncclUniqueId *id)
{
	(void)client, (void)id;
	for (unsigned i = 0; i < 20; i++) {
		int status;
		pid_t child = fork();

		if (child == 0)
			exit_beside_joins(2000 * i);
		EXPECT(waitpid(child, &status, 0) == child);
		EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == 7);
	}
	return 0;
}

/* ---- calls that do not match ----------------------------------------------------------------- */

/* The call of rank 1 differs from that of the others. NCCL hangs or gives wrong results in that
 * case. */
static ncclResult_t mismatch(struct client_rank *client, ncclComm_t c, int how)
{
	bool odd = client->rank == 1;
	cudaStream_t s = client->stream;

	switch (how) {
	case 0:
		return ncclAllReduce(client->in, client->out, odd ? 200 : 100, ncclInt, ncclSum, c,
				     s);
	case 1:
		return ncclAllReduce(client->in, client->out, 100, odd ? ncclFloat : ncclInt,
				     ncclSum, c, s);
	case 2:
		/* a root that only sends may succeed, and gets the error from its next call */
		return ncclBroadcast(client->in, client->out, 100, ncclInt, odd, c, s) ||
				       ncclAllReduce(client->in, client->out, 100, ncclInt, ncclSum,
						     c, s)
			       ? ncclInvalidArgument
			       : ncclSuccess;
	default:
		return odd ? ncclReduce(client->in, client->out, 100, ncclInt, ncclSum, 0, c, s)
			   : ncclAllReduce(client->in, client->out, 100, ncclInt, ncclSum, c, s);
	}
}

/* Every rank gets an error that describes the mismatch, and the parent of the broken communicator
 * still works. */
int case_mismatches(struct client_rank *client, const ncclUniqueId *id)
{
	(void)id;
	for (int how = 0; how < 4; how++) {
		ncclResult_t result, state = ncclSuccess;
		ncclComm_t child;
		int got;

		OK(ncclCommSplit(client->comm, 0, client->rank, &child, NULL));
		result = mismatch(client, child, how);
		if (!result)
			memory_read(client, &got, client->out, sizeof(got));
		for (int i = 0; i < 25000 && !state && !result; i++) {
			OK(ncclCommGetAsyncError(child, &state));
			nanosleep(&(struct timespec){ .tv_nsec = 2000000 }, NULL);
		}
		EXPECT(result || state);
		EXPECT(strstr(ncclGetLastError(NULL), "rank") != NULL);
		OK(ncclCommAbort(child));
	}
	return adds_up(client, client->comm, client->stream);
}
