/*
 * nccl_client_data.c - cases about data: every collective
 * with every type and operation, groups, splits
 *
 * Called by nccl_client.c. Expected values come from a
 * formula of rank and index, not from the library.
 */
#include <stdlib.h>

#include "tests/nccl/nccl_client.h"

/* What rank r has at index i: 0, 1 or 2, so that sums and
 * products of 4 ranks fit into every type. */
static double value_of(int r, size_t i)
{
	return (double)((i + (size_t)r * 2) % 3);
}

static double combined(ncclRedOp_t op, int n, size_t i)
{
	double x = value_of(0, i);

	for (int r = 1; r < n; r++) {
		double y = value_of(r, i);

		x = op == ncclProd  ? x * y
		    : op == ncclMax ? (x > y ? x : y)
		    : op == ncclMin ? (x < y ? x : y)
				    : x + y;
	}
	return op == ncclAvg ? x / n : x;
}

static int fill(struct seat *seat, void *to, size_t count, size_t from, ncclDataType_t type)
{
	static __thread char host[ROOM];

	for (size_t i = 0; i < count; i++)
		value_store(host, i, type, value_of(seat->rank, from + i));
	return memory_write(seat, to, host, count * value_bytes(type));
}

/* The first index at which `at` is not what `want` says, or -1. */
static long wrong(struct seat *seat, const void *at, size_t count, ncclDataType_t type,
		  double (*want)(struct seat *, ncclRedOp_t, size_t), ncclRedOp_t op)
{
	static __thread char host[ROOM];

	if (memory_read(seat, host, at, count * value_bytes(type)))
		return 0;
	for (size_t i = 0; i < count; i++)
		if (!value_is(host, i, type, want(seat, op, i)))
			return (long)i;
	return -1;
}

static __thread size_t part;           /* elements of a rank's part, where buffers have parts */

static double all_of(struct seat *s, ncclRedOp_t op, size_t i)
{
	return combined(op, s->nranks, i);
}
static double my_part(struct seat *s, ncclRedOp_t op, size_t i)
{
	return combined(op, s->nranks, (size_t)s->rank * part + i);
}
static double from_1(struct seat *s, ncclRedOp_t op, size_t i)
{
	(void)s, (void)op;
	return value_of(1, i);
}
static double gathered(struct seat *s, ncclRedOp_t op, size_t i)
{
	(void)s, (void)op;
	return value_of((int)(i / part), i % part);
}
static double exchanged(struct seat *s, ncclRedOp_t op, size_t i)
{
	(void)op;
	return value_of((int)(i / part), (size_t)s->rank * part + i % part);
}
static double scattered(struct seat *s, ncclRedOp_t op, size_t i)
{
	(void)op;
	return value_of(1, (size_t)s->rank * part + i);
}
static double of_left(struct seat *s, ncclRedOp_t op, size_t i)
{
	(void)op;
	return value_of((s->rank + s->nranks - 1) % s->nranks, i);
}

static int reductions(struct seat *seat, ncclDataType_t type, ncclRedOp_t op)
{
	size_t n = (size_t)seat->nranks, count = part * n;
	char *mine;

	EXPECT(!fill(seat, seat->in, count, 0, type));
	OK(ncclAllReduce(seat->in, seat->out, count, type, op, seat->comm, seat->stream));
	EXPECT(wrong(seat, seat->out, count, type, all_of, op) == -1);
	OK(ncclReduce(seat->in, seat->out, part, type, op, seat->nranks - 1, seat->comm,
		      seat->stream));
	if (seat->rank == seat->nranks - 1)
		EXPECT(wrong(seat, seat->out, part, type, all_of, op) == -1);
	OK(ncclReduceScatter(seat->in, seat->out, part, type, op, seat->comm, seat->stream));
	EXPECT(wrong(seat, seat->out, part, type, my_part, op) == -1);
	mine = (char *)seat->in + (size_t)seat->rank * part * value_bytes(type);
	OK(ncclReduceScatter(seat->in, mine, part, type, op, seat->comm, seat->stream));
	EXPECT(wrong(seat, mine, part, type, my_part, op) == -1);
	EXPECT(!fill(seat, seat->in, count, 0, type));
	OK(ncclAllReduce(seat->in, seat->in, count, type, op, seat->comm, seat->stream));
	EXPECT(wrong(seat, seat->in, count, type, all_of, op) == -1);
	return 0;
}

static int copies(struct seat *seat, ncclDataType_t type)
{
	size_t n = (size_t)seat->nranks, count = part * n;

	EXPECT(!fill(seat, seat->in, count, 0, type));
	OK(ncclBroadcast(seat->in, seat->out, count, type, 1, seat->comm, seat->stream));
	EXPECT(wrong(seat, seat->out, count, type, from_1, ncclSum) == -1);
	OK(ncclAllGather(seat->in, seat->out, part, type, seat->comm, seat->stream));
	EXPECT(wrong(seat, seat->out, count, type, gathered, ncclSum) == -1);
	OK(ncclAlltoAll(seat->in, seat->out, part, type, seat->comm, seat->stream));
	EXPECT(wrong(seat, seat->out, count, type, exchanged, ncclSum) == -1);
	EXPECT(!fill(seat, seat->out, count, 0, type));
	OK(ncclAlltoAll(seat->out, seat->out, part, type, seat->comm, seat->stream));
	EXPECT(wrong(seat, seat->out, count, type, exchanged, ncclSum) == -1);
	OK(ncclGather(seat->in, seat->out, part, type, 1, seat->comm, seat->stream));
	if (seat->rank == 1)
		EXPECT(wrong(seat, seat->out, count, type, gathered, ncclSum) == -1);
	OK(ncclScatter(seat->in, seat->out, part, type, 1, seat->comm, seat->stream));
	EXPECT(wrong(seat, seat->out, part, type, scattered, ncclSum) == -1);
	OK(ncclBcast(seat->in, count, type, 1, seat->comm, seat->stream));
	EXPECT(wrong(seat, seat->in, count, type, from_1, ncclSum) == -1);
	return 0;
}

int case_collectives(struct seat *seat, const ncclUniqueId *id)
{
	static const size_t parts[] = { 1, 1021 };

	(void)id;
	for (size_t p = 0; p < 2; p++) {
		part = parts[p];
		for (int type = 0; type < ncclNumTypes; type++) {
			EXPECT(!copies(seat, (ncclDataType_t)type));
			for (int op = 0; op < ncclNumOps; op++)
				EXPECT(!reductions(seat, (ncclDataType_t)type, (ncclRedOp_t)op));
		}
	}
	return 0;
}

/* Everybody sends to the right and receives from the left; then all to all by sends, and two
 * collectives at once. */
int case_groups(struct seat *seat, const ncclUniqueId *id)
{
	int n = seat->nranks, right = (seat->rank + 1) % n, left = (seat->rank + n - 1) % n;
	char *in = seat->in, *out = seat->out;

	(void)id;
	part = 500;
	EXPECT(!fill(seat, in, part * (size_t)n, 0, ncclInt));
	OK(ncclGroupStart());
	OK(ncclSend(in, part, ncclInt, right, seat->comm, seat->stream));
	OK(ncclRecv(out, part, ncclInt, left, seat->comm, seat->stream));
	OK(ncclGroupEnd());
	EXPECT(wrong(seat, out, part, ncclInt, of_left, ncclSum) == -1);
	OK(ncclGroupStart());
	for (int r = 0; r < n; r++) {
		OK(ncclSend(in + (size_t)r * part * 4, part, ncclInt, r, seat->comm, seat->stream));
		OK(ncclRecv(out + (size_t)r * part * 4, part, ncclInt, r, seat->comm,
			    seat->stream));
	}
	OK(ncclGroupEnd());
	EXPECT(wrong(seat, out, part * (size_t)n, ncclInt, exchanged, ncclSum) == -1);
	OK(ncclGroupStart());
	OK(ncclGroupStart());
	OK(ncclAllReduce(in, out, part, ncclInt, ncclMax, seat->comm, seat->stream));
	OK(ncclGroupEnd());
	OK(ncclBroadcast(in, out + ROOM / 2, part, ncclInt, 1, seat->comm, seat->stream));
	OK(ncclGroupEnd());
	EXPECT(wrong(seat, out, part, ncclInt, all_of, ncclMax) == -1);
	EXPECT(wrong(seat, out + ROOM / 2, part, ncclInt, from_1, ncclSum) == -1);
	return 0;
}

/* Ranks 1.. in two colors, in reverse order; rank 0 in none. */
int case_split(struct seat *seat, const ncclUniqueId *id)
{
	int color = seat->rank ? seat->rank % 2 : NCCL_SPLIT_NOCOLOR, n, r, device, got;
	ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
	ncclComm_t child = (ncclComm_t)seat;
	int members = color < 0 ? 0 : color ? seat->nranks / 2 : (seat->nranks - 1) / 2;

	(void)id;
	config.commName = "child";
	config.splitShare = 1;
	OK(ncclCommSplit(seat->comm, color, -seat->rank, &child, seat->rank == 2 ? NULL : &config));
	if (!seat->rank) {
		EXPECT(child == NULL);
		return 0;
	}
	OK(ncclCommCount(child, &n));
	OK(ncclCommUserRank(child, &r));
	OK(ncclCommCuDevice(child, &device));
	EXPECT(device == (memory_is_cuda() ? 0 : -1));
	EXPECT(n == members);
	EXPECT(r == (seat->nranks - 1 - seat->rank) / 2);
	EXPECT(!memory_write(seat, seat->in, &(int){ 10 + color }, sizeof(int)));
	OK(ncclAllReduce(seat->in, seat->out, 1, ncclInt, ncclSum, child, seat->stream));
	EXPECT(!memory_read(seat, &got, seat->out, sizeof(got)));
	EXPECT(got == n * (10 + color));
	OK(ncclCommFinalize(child));
	OK(ncclCommDestroy(child));
	return 0;
}

/* The default stream; a call that a graph repeats, with what its input holds by then. As in PyTorch
 * the call has a stream of its own, which joins the captured one by events. */
int case_streams(struct seat *seat, const ncclUniqueId *id)
{
	int n = seat->nranks, got;
	cudaStream_t own;

	(void)id;
	EXPECT(!memory_stream(&own));
	EXPECT(!memory_write(seat, seat->in, &(int){ seat->rank }, sizeof(int)));
	OK(ncclAllReduce(seat->in, seat->out, 1, ncclInt, ncclSum, seat->comm, NULL));
	EXPECT(!memory_read(&(struct seat){ .stream = NULL }, &got, seat->out, sizeof(got)));
	EXPECT(got == n * (n - 1) / 2);
	EXPECT(!memory_capture(seat));
	EXPECT(!memory_behind(seat->stream, own));
	OK(ncclAllReduce(seat->in, seat->out, 1, ncclInt, ncclSum, seat->comm, own));
	EXPECT(!memory_behind(own, seat->stream));
	EXPECT(!memory_captured(seat));
	for (int i = 1; i <= 3; i++) {
		EXPECT(!memory_write(seat, seat->in, &(int){ i * (seat->rank + 1) }, sizeof(int)));
		EXPECT(!memory_replay(seat));
		EXPECT(!memory_read(seat, &got, seat->out, sizeof(got)));
		EXPECT(got == i * n * (n + 1) / 2);
	}
	memory_stream_close(own);
	return 0;
}

/* A sum of inputs that are multiplied by rank + 1; registered memory. */
int case_scaled(struct seat *seat, const ncclUniqueId *id)
{
	float scalar = (float)seat->rank + 1, got, want = 0;
	void *handle = NULL;
	ncclRedOp_t op;

	(void)id;
	for (int r = 0; r < seat->nranks; r++)
		want += (float)(r + 1) * 0.5f;
	OK(ncclCommRegister(seat->comm, seat->in, ROOM, &handle));
	EXPECT(!memory_write(seat, seat->in, &(float){ 0.5f }, sizeof(float)));
	OK(ncclRedOpCreatePreMulSum(&op, &scalar, ncclFloat, ncclScalarHostImmediate, seat->comm));
	EXPECT(op >= ncclNumOps);
	OK(ncclAllReduce(seat->in, seat->out, 1, ncclFloat, op, seat->comm, seat->stream));
	EXPECT(!memory_read(seat, &got, seat->out, sizeof(got)));
	EXPECT(got == want);
	OK(ncclRedOpDestroy(op, seat->comm));
	EXPECT(ncclAllReduce(seat->in, seat->out, 1, ncclFloat, op, seat->comm, seat->stream) ==
	       ncclInvalidArgument);
	EXPECT(!memory_write(seat, (float *)seat->in + 1, &scalar, sizeof(scalar)));
	OK(ncclRedOpCreatePreMulSum(&op, (float *)seat->in + 1, ncclFloat, ncclScalarDevice,
				    seat->comm));
	OK(ncclAllReduce(seat->in, seat->out, 1, ncclFloat, op, seat->comm, seat->stream));
	EXPECT(!memory_read(seat, &got, seat->out, sizeof(got)));
	EXPECT(got == want);
	OK(ncclRedOpDestroy(op, seat->comm));
	OK(ncclCommDeregister(seat->comm, handle));
	return 0;
}
