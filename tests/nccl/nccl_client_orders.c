/*
 * nccl_client_orders.c - cases of orders in which programs call: what is destroyed before it is
 * used up, in another order elsewhere, in place, again after an abort
 *
 * Called by nccl_client.c.
 */
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include "tests/nccl/nccl_client.h"

/* ---- communicators --------------------------------------------------------------------------- */

enum { MANY = 24 };

static int split_many(struct seat *seat, ncclComm_t *comms)
{
	for (int c = 0; c < MANY; c += 8) {            /* in groups, and each alone */
		if (c)
			OK(ncclGroupStart());
		for (int i = c; i < c + 8; i++)
			OK(ncclCommSplit(seat->comm, 0, i % 2 ? seat->rank : -seat->rank, &comms[i],
					 NULL));
		if (c)
			OK(ncclGroupEnd());
	}
	return 0;
}

/* Work of all of them lies on the stream when they go, in another order on each rank. */
int case_orders(struct seat *seat, const ncclUniqueId *id)
{
	int *in = seat->in, *out = seat->out, n = seat->nranks, got;
	ncclComm_t comms[MANY], none = (ncclComm_t)seat;

	(void)id;
	EXPECT(!split_many(seat, comms));
	EXPECT(!memory_write(seat, in, &(int){ seat->rank + 1 }, sizeof(int)));
	for (int c = 0; c < MANY; c++)
		OK(ncclAllReduce(in, out + 32 * c, 1, ncclInt, ncclSum, comms[c], seat->stream));
	/* a split while all that is on the way, in which nobody is */
	OK(ncclGroupStart());
	OK(ncclCommSplit(seat->comm, NCCL_SPLIT_NOCOLOR, 0, &none, NULL));
	OK(ncclGroupEnd());
	EXPECT(none == NULL);
	for (int c = 0; c < MANY; c++) {
		ncclComm_t comm = comms[(c * (seat->rank + 1 == 2 ? 5 : 7) + seat->rank) % MANY];

		if (c % 3 == 0)
			OK(ncclCommFinalize(comm));
		OK(ncclCommDestroy(comm));
	}
	for (int c = 0; c < MANY; c++) {
		EXPECT(!memory_read(seat, &got, out + 32 * c, sizeof(got)));
		EXPECT(got == n * (n + 1) / 2);
	}
	return adds_up(seat, seat->comm, seat->stream);
}

/* Rank 0 hands out the id of the next communicator, as a store would. */
static int next_id(struct seat *seat, ncclUniqueId *ret_id)
{
	if (!seat->rank)
		OK(ncclGetUniqueId(ret_id));
	EXPECT(!memory_write(seat, seat->in, ret_id, sizeof(*ret_id)));
	OK(ncclBcast(seat->in, sizeof(*ret_id), ncclUint8, 0, seat->comm, seat->stream));
	EXPECT(!memory_read(seat, ret_id, seat->in, sizeof(*ret_id)));
	return 0;
}

static void *abort_soon(void *comm)
{
	nanosleep(&(struct timespec){ .tv_nsec = 50000000 }, NULL);
	return (void *)(long)ncclCommAbort(comm);
}

/* Rank 0 does not come to a collective: a watchdog of each other rank aborts.
 * Then all join anew, twice. */
int case_again(struct seat *seat, const ncclUniqueId *id)
{
	pthread_t thread;
	void *result;
	ncclUniqueId next[2];
	int n;

	(void)id;
	for (int i = 0; i < 2; i++)
		EXPECT(!next_id(seat, &next[i]));
	for (int i = 0; i < 2; i++) {
		EXPECT(!pthread_create(&thread, NULL, abort_soon, seat->comm));
		if (seat->rank) {
			ncclAllReduce(seat->in, seat->out, 9000, ncclFloat, ncclSum, seat->comm,
				      seat->stream);
			memory_read(seat, &n, seat->out, sizeof(n));
		}
		pthread_join(thread, &result);
		EXPECT(result == NULL);
		EXPECT(ncclCommCount(seat->comm, &n) == ncclInvalidArgument);
		OK(ncclCommInitRank(&seat->comm, seat->nranks, next[i], seat->rank));
		EXPECT(!adds_up(seat, seat->comm, seat->stream));
	}
	return 0;
}

/* ---- in place -------------------------------------------------------------------------------- */

int differ(struct seat *seat, const int *at, int n, const int *want)
{
	int got[16];

	EXPECT(!memory_read(seat, got, at, (size_t)n * sizeof(int)));
	for (int i = 0; i < n; i++)
		EXPECT(got[i] == want[i]);
	return 0;
}

int case_in_place(struct seat *seat, const ncclUniqueId *id)
{
	int n = seat->nranks, me = seat->rank, *x = seat->in, sum = n * (n + 1) / 2;
	int mine[16], all[16];
	ncclComm_t c = seat->comm;
	cudaStream_t s = seat->stream;

	(void)id;
	for (int i = 0; i < 16; i++) {
		mine[i] = me + 1;
		all[i] = i + 1;
	}
	EXPECT(!memory_write(seat, x, mine, sizeof(mine)));
	OK(ncclAllGather(x + me, x, 1, ncclInt, c, s));
	EXPECT(!differ(seat, x, n, all));
	for (int root = 0; root < n; root++) {
		EXPECT(!memory_write(seat, x, mine, sizeof(mine)));
		OK(ncclBroadcast(x, x, 9, ncclInt, root, c, s));
		EXPECT(!differ(seat, x, 1, &(int){ root + 1 }));
		EXPECT(!memory_write(seat, x, mine, sizeof(mine)));
		OK(ncclReduce(x, x, 9, ncclInt, ncclSum, root, c, s));
		EXPECT(!differ(seat, x, 1, me == root ? &sum : mine));
		EXPECT(!memory_write(seat, x, mine, sizeof(mine)));
		OK(ncclReduce(x, me == root ? x : NULL, 9, ncclInt, ncclSum, root, c, s));
		EXPECT(!differ(seat, x, 1, me == root ? &sum : mine));
	}
	EXPECT(!memory_write(seat, x, mine, sizeof(mine)));
	OK(ncclGroupStart());
	OK(ncclAllReduce(x, x, 3, ncclInt, ncclSum, c, s));
	OK(ncclReduceScatter(x + 4, x + 4 + me, 1, ncclInt, ncclMax, c, s));
	OK(ncclAllGather(x + 8 + me, x + 8, 1, ncclInt, c, s));
	OK(ncclGroupEnd());
	EXPECT(!differ(seat, x, 1, &sum));
	EXPECT(!differ(seat, x + 4 + me, 1, &n));
	return differ(seat, x + 8, n, all);
}

/* ---- operations ------------------------------------------------------------------------------ */

/* The scalar in memory is what the stream has made of it when the call comes to run. */
static int scalars_in_order(struct seat *seat)
{
	float *x = seat->in, *y = seat->out, *scalar = x + 64, got[3], number[3] = { 2, 3, 5 };
	ncclRedOp_t op;

	OK(ncclRedOpCreatePreMulSum(&op, scalar, ncclFloat, ncclScalarDevice, seat->comm));
	for (int i = 0; i < 3; i++) {
		EXPECT(!memory_write(seat, x + 128 + i, &number[i], sizeof(float)));
		OK(ncclBroadcast(x + 128 + i, scalar, 1, ncclFloat, 0, seat->comm, seat->stream));
		OK(ncclAllReduce(x, y + i, 1, ncclFloat, op, seat->comm, seat->stream));
	}
	if (memory_is_cuda()) {        /* when it would be read is not now */
		EXPECT(!memory_capture(seat));
		EXPECT(ncclAllReduce(x, y, 1, ncclFloat, op, seat->comm, seat->stream) ==
		       ncclInvalidUsage);
		EXPECT(strstr(ncclGetLastError(NULL), "captured") != NULL);
		EXPECT(!memory_captured(seat));
	}
	OK(ncclRedOpDestroy(op, seat->comm));
	EXPECT(!memory_read(seat, got, y, sizeof(got)));
	for (int i = 0; i < 3; i++)
		EXPECT(got[i] == number[i] * (float)seat->nranks);
	return 0;
}

/* PyTorch forgets an operation when it has made the call,
 * which may stand in a group that is still open. */
int case_operations(struct seat *seat, const ncclUniqueId *id)
{
	float *x = seat->in, *y = seat->out, got[4];
	ncclRedOp_t op, other;

	(void)id;
	EXPECT(!memory_write(seat, x, &(float){ 1 }, sizeof(float)));
	OK(ncclGroupStart());
	for (int i = 0; i < 4; i++) {
		float factor = (float)(1 << i);

		OK(ncclRedOpCreatePreMulSum(&op, &factor, ncclFloat, ncclScalarHostImmediate,
					    seat->comm));
		OK(ncclAllReduce(x, y + i, 1, ncclFloat, op, seat->comm, seat->stream));
		OK(ncclRedOpDestroy(op, seat->comm));
	}
	OK(ncclGroupEnd());
	EXPECT(!memory_read(seat, got, y, sizeof(got)));
	for (int i = 0; i < 4; i++)
		EXPECT(got[i] == (float)(seat->nranks << i));
	OK(ncclRedOpCreatePreMulSum(&op, &(float){ 0.5f }, ncclFloat, ncclScalarHostImmediate,
				    seat->comm));
	OK(ncclRedOpCreatePreMulSum(&other, &(double){ 3 }, ncclDouble, ncclScalarHostImmediate,
				    seat->comm));
	EXPECT(op != other);
	OK(ncclRedOpDestroy(op, seat->comm));          /* the first of two first */
	EXPECT(!memory_write(seat, x, &(double){ 2 }, sizeof(double)));
	OK(ncclReduceScatter(x, y, 0, ncclDouble, other, seat->comm, seat->stream));
	OK(ncclReduce(x, y, 1, ncclDouble, other, 0, seat->comm, seat->stream));
	OK(ncclRedOpDestroy(other, seat->comm));
	EXPECT(!memory_read(seat, got, y, sizeof(double)));
	EXPECT(seat->rank || !memcmp(got, &(double){ 6.0 * seat->nranks }, sizeof(double)));
	EXPECT(!memory_write(seat, x, &(float){ 1 }, sizeof(float)));
	return scalars_in_order(seat);
}

/* ---- messages -------------------------------------------------------------------------------- */

/* Several between the same two ranks are matched in call order, whatever their sizes; two streams
 * in one group; some ranks have nothing to say in it. */
int case_messages(struct seat *seat, const ncclUniqueId *id)
{
	int n = seat->nranks, me = seat->rank, right = (me + 1) % n, left = (me + n - 1) % n;
	int *x = seat->in, *y = seat->out, number[16], want[16];
	cudaStream_t other;

	(void)id;
	EXPECT(!memory_stream(&other));
	for (int i = 0; i < 16; i++) {
		number[i] = 100 * me + i;
		want[i] = 100 * left + i;
	}
	EXPECT(!memory_write(seat, x, number, sizeof(number)));
	OK(ncclGroupStart());
	for (int i = 0, at = 0; i < 5; at += i++)      /* 0, 1, 2, 3, 4 numbers */
		OK(ncclSend(x + at, (size_t)i, ncclInt, right, seat->comm, seat->stream));
	OK(ncclAllReduce(x, y + 64, 1, ncclInt, ncclMax, seat->comm, seat->stream));
	for (int i = 0, at = 0; i < 5; at += i++)
		OK(ncclRecv(y + at, (size_t)i, ncclInt, left, seat->comm, seat->stream));
	OK(ncclGroupEnd());
	EXPECT(!differ(seat, y, 10, want));
	EXPECT(!differ(seat, y + 64, 1, &(int){ 100 * (n - 1) }));
	OK(ncclGroupStart());
	OK(ncclSend(x, 10, ncclInt, left, seat->comm, seat->stream));
	OK(ncclRecv(y, 10, ncclInt, right, seat->comm, other));
	OK(ncclGroupEnd());
	for (int i = 0; i < 16; i++)
		want[i] = 100 * right + i;
	EXPECT(!differ(&(struct seat){ .stream = other, .rank = me }, y, 10, want));
	OK(ncclGroupStart());                          /* from rank 0 to the last one only */
	if (me == 0)
		OK(ncclSend(x, 3, ncclInt, n - 1, seat->comm, seat->stream));
	if (me == n - 1)
		OK(ncclRecv(y + 32, 3, ncclInt, 0, seat->comm, seat->stream));
	OK(ncclGroupEnd());
	EXPECT(me != n - 1 || !differ(seat, y + 32, 3, (int[]){ 0, 1, 2 }));
	memory_stream_close(other);
	return adds_up(seat, seat->comm, seat->stream);
}
