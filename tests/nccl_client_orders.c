/*
 * nccl_client_orders.c - cases of orders in which programs call: what is destroyed before it is
 * used up, in another order elsewhere, in place, by one thread for many ranks, again after an abort
 *
 * Called by nccl_client.c.
 */
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include "nccl_client.h"

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

/* Rank 0 does not come to a collective: a watchdog of each other rank aborts. Then all join anew,
 * twice. */
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

static int is(struct seat *seat, const int *at, int n, const int *want)
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
	EXPECT(!is(seat, x, n, all));
	for (int root = 0; root < n; root++) {
		EXPECT(!memory_write(seat, x, mine, sizeof(mine)));
		OK(ncclBroadcast(x, x, 9, ncclInt, root, c, s));
		EXPECT(!is(seat, x, 1, &(int){ root + 1 }));
		EXPECT(!memory_write(seat, x, mine, sizeof(mine)));
		OK(ncclReduce(x, x, 9, ncclInt, ncclSum, root, c, s));
		EXPECT(!is(seat, x, 1, me == root ? &sum : mine));
		EXPECT(!memory_write(seat, x, mine, sizeof(mine)));
		OK(ncclReduce(x, me == root ? x : NULL, 9, ncclInt, ncclSum, root, c, s));
		EXPECT(!is(seat, x, 1, me == root ? &sum : mine));
	}
	EXPECT(!memory_write(seat, x, mine, sizeof(mine)));
	OK(ncclGroupStart());
	OK(ncclAllReduce(x, x, 3, ncclInt, ncclSum, c, s));
	OK(ncclReduceScatter(x + 4, x + 4 + me, 1, ncclInt, ncclMax, c, s));
	OK(ncclAllGather(x + 8 + me, x + 8, 1, ncclInt, c, s));
	OK(ncclGroupEnd());
	EXPECT(!is(seat, x, 1, &sum));
	EXPECT(!is(seat, x + 4 + me, 1, &n));
	return is(seat, x + 8, n, all);
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

/* PyTorch forgets an operation when it has made the call, which may stand in a group that is still
 * open. */
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
	EXPECT(!is(seat, y, 10, want));
	EXPECT(!is(seat, y + 64, 1, &(int){ 100 * (n - 1) }));
	OK(ncclGroupStart());
	OK(ncclSend(x, 10, ncclInt, left, seat->comm, seat->stream));
	OK(ncclRecv(y, 10, ncclInt, right, seat->comm, other));
	OK(ncclGroupEnd());
	for (int i = 0; i < 16; i++)
		want[i] = 100 * right + i;
	EXPECT(!is(&(struct seat){ .stream = other, .rank = me }, y, 10, want));
	OK(ncclGroupStart());                          /* from rank 0 to the last one only */
	if (me == 0)
		OK(ncclSend(x, 3, ncclInt, n - 1, seat->comm, seat->stream));
	if (me == n - 1)
		OK(ncclRecv(y + 32, 3, ncclInt, 0, seat->comm, seat->stream));
	OK(ncclGroupEnd());
	EXPECT(me != n - 1 || !is(seat, y + 32, 3, (int[]){ 0, 1, 2 }));
	memory_stream_close(other);
	return adds_up(seat, seat->comm, seat->stream);
}

/* ---- one thread, many ranks ------------------------------------------------------------------ */

enum { RANKS = 4 };

/* To the right among ranks of one thread, and a collective of all. */
static int ring_of_one_thread(struct seat *seat, ncclComm_t *comms, struct seat *own)
{
	int *x = seat->in, *y = seat->out;

	for (int r = 0; r < RANKS; r++)
		EXPECT(!memory_write(seat, x + 32 * r, &(int){ r + 1 }, sizeof(int)));
	OK(ncclGroupStart());
	for (int r = 0; r < RANKS; r++) {
		OK(ncclSend(x + 32 * r, 1, ncclInt, (r + 1) % RANKS, comms[r], own[r].stream));
		OK(ncclRecv(y + 32 * r, 1, ncclInt, (r + RANKS - 1) % RANKS, comms[r],
			    own[r].stream));
	}
	OK(ncclGroupEnd());
	for (int r = 0; r < RANKS; r++)
		EXPECT(!is(&own[r], y + 32 * r, 1, &(int){ (r + RANKS - 1) % RANKS + 1 }));
	OK(ncclGroupStart());
	for (int r = 0; r < RANKS; r++)
		OK(ncclAllGather(x + 32 * r, y + 32 * r, 1, ncclInt, comms[r], own[r].stream));
	OK(ncclGroupEnd());
	for (int r = 0; r < RANKS; r++)
		EXPECT(!is(&own[r], y + 32 * r, RANKS, (int[]){ 1, 2, 3, 4 }));
	return 0;
}

/* Without finalizing, one after the other, as the shortest programs do. */
static int destroy_all(struct seat *seat, ncclComm_t *comms, bool group)
{
	if (group)
		OK(ncclGroupStart());
	for (int r = 0; r < RANKS; r++)
		OK(ncclCommDestroy(comms[r]));
	if (group)
		OK(ncclGroupEnd());
	return 0;
}

static int split_all(struct seat *seat, ncclComm_t *comms, struct seat *own)
{
	ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
	ncclComm_t halves[RANKS], behind[RANKS];
	int rank;

	OK(ncclGroupStart());
	for (int r = 0; r < RANKS; r++)
		OK(ncclCommSplit(comms[r], r == 3 ? NCCL_SPLIT_NOCOLOR : 0, -r, &halves[r], NULL));
	OK(ncclGroupEnd());
	EXPECT(halves[3] == NULL);
	for (int r = 0; r < 3; r++) {
		OK(ncclCommUserRank(halves[r], &rank));
		EXPECT(rank == 2 - r);
	}
	EXPECT(!destroy_all(seat, halves, true));      /* NULL as well */
	config.blocking = 0;                           /* other than their parent */
	OK(ncclGroupStart());
	for (int r = 0; r < RANKS; r++)
		EXPECT(accepted(ncclCommSplit(comms[r], 0, r, &behind[r], &config)));
	EXPECT(accepted(ncclGroupEnd()));
	for (int r = 0; r < RANKS; r++)
		EXPECT(settled(behind[r]) == ncclSuccess && settled(comms[r]) == ncclSuccess);
	EXPECT(!ring_of_one_thread(seat, behind, own));
	return destroy_all(seat, behind, false);
}

int case_many_ranks(struct seat *seat, const ncclUniqueId *id)
{
	ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
	struct seat own[RANKS] = { { .comm = NULL } };
	ncclComm_t comms[RANKS];
	ncclUniqueId other;

	for (int r = 0; r < RANKS; r++)
		EXPECT(!memory_stream(&own[r].stream));
	OK(ncclGroupStart());
	for (int r = 0; r < RANKS; r++)
		OK(ncclCommInitRank(&comms[r], RANKS, *id, r));
	OK(ncclGroupEnd());
	EXPECT(!ring_of_one_thread(seat, comms, own));
	EXPECT(!split_all(seat, comms, own));
	EXPECT(!ring_of_one_thread(seat, comms, own));
	EXPECT(!destroy_all(seat, comms, false));
	config.blocking = 0;
	OK(ncclGetUniqueId(&other));
	OK(ncclGroupStart());
	for (int r = 0; r < RANKS; r++)
		EXPECT(accepted(ncclCommInitRankConfig(&comms[r], RANKS, other, r, &config)));
	EXPECT(accepted(ncclGroupEnd()));
	for (int r = 0; r < RANKS; r++)
		EXPECT(settled(comms[r]) == ncclSuccess);
	EXPECT(!ring_of_one_thread(seat, comms, own));
	EXPECT(!destroy_all(seat, comms, true));
	for (int r = 0; r < RANKS; r++)
		memory_stream_close(own[r].stream);
	return 0;
}

/* ---- one thread, many devices ---------------------------------------------------------------- */

enum { DEVICES = 3 };

/* Each rank's memory and stream are of its device, whichever is current when it calls. */
static int add_on_devices(struct seat *seat, ncclComm_t *comms, struct seat *own, const int *device)
{
	int got;

	for (int r = 0; r < DEVICES; r++) {
		EXPECT(!ncclCommCuDevice(comms[r], &got) && got == device[r]);
		EXPECT(!memory_write(&own[device[r]], own[device[r]].in, &(int){ r + 1 },
				     sizeof(int)));
	}
	OK(ncclGroupStart());
	for (int r = 0; r < DEVICES; r++)
		OK(ncclAllReduce(own[device[r]].in, own[device[r]].out, 1, ncclInt, ncclSum,
				 comms[r], own[device[r]].stream));
	OK(ncclGroupEnd());
	for (int r = 0; r < DEVICES; r++)
		EXPECT(!is(&own[device[r]], own[device[r]].out, 1,
			   &(int){ DEVICES * (DEVICES + 1) / 2 }));
	return 0;
}

/* A split lies on its parent's device. */
static int split_on_devices(struct seat *seat, ncclComm_t *comms, struct seat *own,
			    const int *device)
{
	ncclComm_t children[DEVICES];

	OK(ncclGroupStart());
	for (int r = 0; r < DEVICES; r++)
		OK(ncclCommSplit(comms[r], 0, r, &children[r], NULL));
	OK(ncclGroupEnd());
	EXPECT(!add_on_devices(seat, children, own, device));
	for (int r = 0; r < DEVICES; r++)
		OK(ncclCommDestroy(children[r]));
	return 0;
}

int case_devices(struct seat *seat, const ncclUniqueId *id)
{
	static const int upwards[DEVICES] = { 0, 1, 2 }, mixed[DEVICES] = { 2, 0, 1 };
	struct seat own[DEVICES] = { { .rank = 0 } };
	ncclComm_t comms[DEVICES];

	setenv("TUTTI_TEST_CUDA_DEVICES", "3", 1);
	for (int d = 0; d < DEVICES; d++) {
		EXPECT(!memory_device(d));
		EXPECT(!memory_stream(&own[d].stream));
		OK(ncclMemAlloc(&own[d].in, 64));
		OK(ncclMemAlloc(&own[d].out, 64));
	}
	for (int i = 0; i < 3; i++) {
		const int *device = i == 1 ? mixed : upwards;

		EXPECT(!memory_device(0));
		if (i < 2)
			OK(ncclCommInitAll(comms, DEVICES, i ? mixed : NULL));
		else
			OK(ncclGroupStart());
		for (int r = 0; r < DEVICES && i == 2; r++) {
			EXPECT(!memory_device(r));
			OK(ncclCommInitRank(&comms[r], DEVICES, *id, r));
		}
		if (i == 2)
			OK(ncclGroupEnd());
		EXPECT(!add_on_devices(seat, comms, own, device));
		EXPECT(!split_on_devices(seat, comms, own, device));
		for (int r = 0; r < DEVICES; r++)
			OK(ncclCommDestroy(comms[r]));
	}
	for (int d = 0; d < DEVICES; d++) {
		OK(ncclMemFree(own[d].in));
		OK(ncclMemFree(own[d].out));
		memory_stream_close(own[d].stream);
	}
	return memory_device(0);
}
