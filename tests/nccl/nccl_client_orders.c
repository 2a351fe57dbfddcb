/*
 * nccl_client_orders.c - cases about the order of calls: objects destroyed while in use, destroyed
 * in different orders on different ranks, calls in place, new communicators after an abort
 *
 * Called by nccl_client.c.
 */
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include "tests/nccl/nccl_client.h"

/* ---- communicators --------------------------------------------------------------------------- */

enum { MANY = 24 };

static int split_many(struct client_rank *client, ncclComm_t *comms)
{
	for (int c = 0; c < MANY; c += 8) {            /* in groups, and one by one */
		if (c)
			OK(ncclGroupStart());
		for (int i = c; i < c + 8; i++)
			OK(ncclCommSplit(client->comm, 0, i % 2 ? client->rank : -client->rank, &comms[i],
					 NULL));
		if (c)
			OK(ncclGroupEnd());
	}
	return 0;
}

/* The stream still has work of all communicators when they are destroyed, in another order on each
 * rank. */
int case_orders(struct client_rank *client, const ncclUniqueId *id)
{
	int *in = client->in, *out = client->out, n = client->nranks, got;
	ncclComm_t comms[MANY], none = (ncclComm_t)client;

	(void)id;
	EXPECT(!split_many(client, comms));
	EXPECT(!memory_write(client, in, &(int){ client->rank + 1 }, sizeof(int)));
	for (int c = 0; c < MANY; c++)
		OK(ncclAllReduce(in, out + 32 * c, 1, ncclInt, ncclSum, comms[c], client->stream));
	/* a split without any member while that work is pending */
	OK(ncclGroupStart());
	OK(ncclCommSplit(client->comm, NCCL_SPLIT_NOCOLOR, 0, &none, NULL));
	OK(ncclGroupEnd());
	EXPECT(none == NULL);
	for (int c = 0; c < MANY; c++) {
		ncclComm_t comm = comms[(c * (client->rank + 1 == 2 ? 5 : 7) + client->rank) % MANY];

		if (c % 3 == 0)
			OK(ncclCommFinalize(comm));
		OK(ncclCommDestroy(comm));
	}
	for (int c = 0; c < MANY; c++) {
		EXPECT(!memory_read(client, &got, out + 32 * c, sizeof(got)));
		EXPECT(got == n * (n + 1) / 2);
	}
	return adds_up(client, client->comm, client->stream);
}

/* Rank 0 distributes the id of the next communicator, as a store would. */
static int next_id(struct client_rank *client, ncclUniqueId *ret_id)
{
	if (!client->rank)
		OK(ncclGetUniqueId(ret_id));
	EXPECT(!memory_write(client, client->in, ret_id, sizeof(*ret_id)));
	OK(ncclBcast(client->in, sizeof(*ret_id), ncclUint8, 0, client->comm, client->stream));
	EXPECT(!memory_read(client, ret_id, client->in, sizeof(*ret_id)));
	return 0;
}

static void *abort_soon(void *comm)
{
	nanosleep(&(struct timespec){ .tv_nsec = 50000000 }, NULL);
	return (void *)(long)ncclCommAbort(comm);
}

/* Rank 0 does not call a collective: a watchdog of each other rank aborts. Then all ranks create a
 * new communicator, twice. */
int case_again(struct client_rank *client, const ncclUniqueId *id)
{
	pthread_t thread;
	void *result;
	ncclUniqueId next[2];
	int n;

	(void)id;
	for (int i = 0; i < 2; i++)
		EXPECT(!next_id(client, &next[i]));
	for (int i = 0; i < 2; i++) {
		EXPECT(!pthread_create(&thread, NULL, abort_soon, client->comm));
		if (client->rank) {
			ncclAllReduce(client->in, client->out, 9000, ncclFloat, ncclSum, client->comm,
				      client->stream);
			memory_read(client, &n, client->out, sizeof(n));
		}
		pthread_join(thread, &result);
		EXPECT(result == NULL);
		EXPECT(ncclCommCount(client->comm, &n) == ncclInvalidArgument);
		OK(ncclCommInitRank(&client->comm, client->nranks, next[i], client->rank));
		EXPECT(!adds_up(client, client->comm, client->stream));
	}
	return 0;
}

/* ---- in place -------------------------------------------------------------------------------- */

int differ(struct client_rank *client, const int *at, int n, const int *want)
{
	int got[16];

	EXPECT(!memory_read(client, got, at, (size_t)n * sizeof(int)));
	for (int i = 0; i < n; i++)
		EXPECT(got[i] == want[i]);
	return 0;
}

int case_in_place(struct client_rank *client, const ncclUniqueId *id)
{
	int n = client->nranks, me = client->rank, *x = client->in, sum = n * (n + 1) / 2;
	int mine[16], all[16];
	ncclComm_t c = client->comm;
	cudaStream_t s = client->stream;

	(void)id;
	for (int i = 0; i < 16; i++) {
		mine[i] = me + 1;
		all[i] = i + 1;
	}
	EXPECT(!memory_write(client, x, mine, sizeof(mine)));
	OK(ncclAllGather(x + me, x, 1, ncclInt, c, s));
	EXPECT(!differ(client, x, n, all));
	for (int root = 0; root < n; root++) {
		EXPECT(!memory_write(client, x, mine, sizeof(mine)));
		OK(ncclBroadcast(x, x, 9, ncclInt, root, c, s));
		EXPECT(!differ(client, x, 1, &(int){ root + 1 }));
		EXPECT(!memory_write(client, x, mine, sizeof(mine)));
		OK(ncclReduce(x, x, 9, ncclInt, ncclSum, root, c, s));
		EXPECT(!differ(client, x, 1, me == root ? &sum : mine));
		EXPECT(!memory_write(client, x, mine, sizeof(mine)));
		OK(ncclReduce(x, me == root ? x : NULL, 9, ncclInt, ncclSum, root, c, s));
		EXPECT(!differ(client, x, 1, me == root ? &sum : mine));
	}
	EXPECT(!memory_write(client, x, mine, sizeof(mine)));
	OK(ncclGroupStart());
	OK(ncclAllReduce(x, x, 3, ncclInt, ncclSum, c, s));
	OK(ncclReduceScatter(x + 4, x + 4 + me, 1, ncclInt, ncclMax, c, s));
	OK(ncclAllGather(x + 8 + me, x + 8, 1, ncclInt, c, s));
	OK(ncclGroupEnd());
	EXPECT(!differ(client, x, 1, &sum));
	EXPECT(!differ(client, x + 4 + me, 1, &n));
	return differ(client, x + 8, n, all);
}

/* ---- operations ------------------------------------------------------------------------------ */

/* A scalar in device memory has the value that the stream has given it when the call executes. */
static int scalars_in_order(struct client_rank *client)
{
	float *x = client->in, *y = client->out, *scalar = x + 64, got[3], number[3] = { 2, 3, 5 };
	ncclRedOp_t op;

	OK(ncclRedOpCreatePreMulSum(&op, scalar, ncclFloat, ncclScalarDevice, client->comm));
	for (int i = 0; i < 3; i++) {
		EXPECT(!memory_write(client, x + 128 + i, &number[i], sizeof(float)));
		OK(ncclBroadcast(x + 128 + i, scalar, 1, ncclFloat, 0, client->comm, client->stream));
		OK(ncclAllReduce(x, y + i, 1, ncclFloat, op, client->comm, client->stream));
	}
	if (memory_is_cuda()) {        /* the value is read later, by the stream */
		EXPECT(!memory_capture(client));
		EXPECT(ncclAllReduce(x, y, 1, ncclFloat, op, client->comm, client->stream) ==
		       ncclInvalidUsage);
		EXPECT(strstr(ncclGetLastError(NULL), "captured") != NULL);
		EXPECT(!memory_captured(client));
	}
	OK(ncclRedOpDestroy(op, client->comm));
	EXPECT(!memory_read(client, got, y, sizeof(got)));
	for (int i = 0; i < 3; i++)
		EXPECT(got[i] == number[i] * (float)client->nranks);
	return 0;
}

/* PyTorch destroys an operation right after the call, even inside an open group. */
int case_operations(struct client_rank *client, const ncclUniqueId *id)
{
	float *x = client->in, *y = client->out, got[4];
	ncclRedOp_t op, other;

	(void)id;
	EXPECT(!memory_write(client, x, &(float){ 1 }, sizeof(float)));
	OK(ncclGroupStart());
	for (int i = 0; i < 4; i++) {
		float factor = (float)(1 << i);

		OK(ncclRedOpCreatePreMulSum(&op, &factor, ncclFloat, ncclScalarHostImmediate,
					    client->comm));
		OK(ncclAllReduce(x, y + i, 1, ncclFloat, op, client->comm, client->stream));
		OK(ncclRedOpDestroy(op, client->comm));
	}
	OK(ncclGroupEnd());
	EXPECT(!memory_read(client, got, y, sizeof(got)));
	for (int i = 0; i < 4; i++)
		EXPECT(got[i] == (float)(client->nranks << i));
	OK(ncclRedOpCreatePreMulSum(&op, &(float){ 0.5f }, ncclFloat, ncclScalarHostImmediate,
				    client->comm));
	OK(ncclRedOpCreatePreMulSum(&other, &(double){ 3 }, ncclDouble, ncclScalarHostImmediate,
				    client->comm));
	EXPECT(op != other);
	OK(ncclRedOpDestroy(op, client->comm));          /* the first of two operations first */
	EXPECT(!memory_write(client, x, &(double){ 2 }, sizeof(double)));
	OK(ncclReduceScatter(x, y, 0, ncclDouble, other, client->comm, client->stream));
	OK(ncclReduce(x, y, 1, ncclDouble, other, 0, client->comm, client->stream));
	OK(ncclRedOpDestroy(other, client->comm));
	EXPECT(!memory_read(client, got, y, sizeof(double)));
	EXPECT(client->rank || !memcmp(got, &(double){ 6.0 * client->nranks }, sizeof(double)));
	EXPECT(!memory_write(client, x, &(float){ 1 }, sizeof(float)));
	return scalars_in_order(client);
}

/* ---- messages -------------------------------------------------------------------------------- */

/* Several messages between the same two ranks match in call order, independent of their sizes; two
 * streams in one group; some ranks send and receive nothing. */
int case_messages(struct client_rank *client, const ncclUniqueId *id)
{
	int n = client->nranks, me = client->rank, right = (me + 1) % n, left = (me + n - 1) % n;
	int *x = client->in, *y = client->out, number[16], want[16];
	cudaStream_t other;

	(void)id;
	EXPECT(!memory_stream(&other));
	for (int i = 0; i < 16; i++) {
		number[i] = 100 * me + i;
		want[i] = 100 * left + i;
	}
	EXPECT(!memory_write(client, x, number, sizeof(number)));
	OK(ncclGroupStart());
	for (int i = 0, at = 0; i < 5; at += i++)      /* 0, 1, 2, 3, 4 numbers */
		OK(ncclSend(x + at, (size_t)i, ncclInt, right, client->comm, client->stream));
	OK(ncclAllReduce(x, y + 64, 1, ncclInt, ncclMax, client->comm, client->stream));
	for (int i = 0, at = 0; i < 5; at += i++)
		OK(ncclRecv(y + at, (size_t)i, ncclInt, left, client->comm, client->stream));
	OK(ncclGroupEnd());
	EXPECT(!differ(client, y, 10, want));
	EXPECT(!differ(client, y + 64, 1, &(int){ 100 * (n - 1) }));
	OK(ncclGroupStart());
	OK(ncclSend(x, 10, ncclInt, left, client->comm, client->stream));
	OK(ncclRecv(y, 10, ncclInt, right, client->comm, other));
	OK(ncclGroupEnd());
	for (int i = 0; i < 16; i++)
		want[i] = 100 * right + i;
	EXPECT(!differ(&(struct client_rank){ .stream = other, .rank = me }, y, 10, want));
	OK(ncclGroupStart());                          /* from rank 0 to the last one only */
	if (me == 0)
		OK(ncclSend(x, 3, ncclInt, n - 1, client->comm, client->stream));
	if (me == n - 1)
		OK(ncclRecv(y + 32, 3, ncclInt, 0, client->comm, client->stream));
	OK(ncclGroupEnd());
	EXPECT(me != n - 1 || !differ(client, y + 32, 3, (int[]){ 0, 1, 2 }));
	memory_stream_close(other);
	return adds_up(client, client->comm, client->stream);
}
