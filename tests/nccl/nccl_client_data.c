/*
 * nccl_client_data.c - cases about data: every collective with every type and operation, groups,
 * splits
 *
 * Called by nccl_client.c. Expected values come from a formula of rank and index, not from the
 * library.
 */
#include <stdlib.h>

#include "tests/nccl/nccl_client.h"

/* Value of rank r at index i: 0, 1 or 2, so that every type represents sums and products of 4
 * ranks. */
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

static int fill(struct client_rank *client, void *to, size_t count, size_t from, ncclDataType_t type)
{
	static __thread char host[ROOM];

	for (size_t i = 0; i < count; i++)
		value_store(host, i, type, value_of(client->rank, from + i));
	return memory_write(client, to, host, count * value_bytes(type));
}

/* The first index at which `at` differs from `want`, or -1. */
static long wrong(struct client_rank *client, const void *at, size_t count, ncclDataType_t type,
		  double (*want)(struct client_rank *, ncclRedOp_t, size_t), ncclRedOp_t op)
{
	static __thread char host[ROOM];

	if (memory_read(client, host, at, count * value_bytes(type)))
		return 0;
	for (size_t i = 0; i < count; i++)
		if (!value_is(host, i, type, want(client, op, i)))
			return (long)i;
	return -1;
}

static __thread size_t part;           /* elements of a rank's part, in buffers with parts */

static double all_of(struct client_rank *s, ncclRedOp_t op, size_t i)
{
	return combined(op, s->nranks, i);
}
static double my_part(struct client_rank *s, ncclRedOp_t op, size_t i)
{
	return combined(op, s->nranks, (size_t)s->rank * part + i);
}
static double from_1(struct client_rank *s, ncclRedOp_t op, size_t i)
{
	(void)s, (void)op;
	return value_of(1, i);
}
static double gathered(struct client_rank *s, ncclRedOp_t op, size_t i)
{
	(void)s, (void)op;
	return value_of((int)(i / part), i % part);
}
static double exchanged(struct client_rank *s, ncclRedOp_t op, size_t i)
{
	(void)op;
	return value_of((int)(i / part), (size_t)s->rank * part + i % part);
}
static double scattered(struct client_rank *s, ncclRedOp_t op, size_t i)
{
	(void)op;
	return value_of(1, (size_t)s->rank * part + i);
}
static double of_left(struct client_rank *s, ncclRedOp_t op, size_t i)
{
	(void)op;
	return value_of((s->rank + s->nranks - 1) % s->nranks, i);
}

static int reductions(struct client_rank *client, ncclDataType_t type, ncclRedOp_t op)
{
	size_t n = (size_t)client->nranks, count = part * n;
	char *mine;

	EXPECT(!fill(client, client->in, count, 0, type));
	OK(ncclAllReduce(client->in, client->out, count, type, op, client->comm, client->stream));
	EXPECT(wrong(client, client->out, count, type, all_of, op) == -1);
	OK(ncclReduce(client->in, client->out, part, type, op, client->nranks - 1, client->comm,
		      client->stream));
	if (client->rank == client->nranks - 1)
		EXPECT(wrong(client, client->out, part, type, all_of, op) == -1);
	OK(ncclReduceScatter(client->in, client->out, part, type, op, client->comm, client->stream));
	EXPECT(wrong(client, client->out, part, type, my_part, op) == -1);
	mine = (char *)client->in + (size_t)client->rank * part * value_bytes(type);
	OK(ncclReduceScatter(client->in, mine, part, type, op, client->comm, client->stream));
	EXPECT(wrong(client, mine, part, type, my_part, op) == -1);
	EXPECT(!fill(client, client->in, count, 0, type));
	OK(ncclAllReduce(client->in, client->in, count, type, op, client->comm, client->stream));
	EXPECT(wrong(client, client->in, count, type, all_of, op) == -1);
	return 0;
}

static int copies(struct client_rank *client, ncclDataType_t type)
{
	size_t n = (size_t)client->nranks, count = part * n;

	EXPECT(!fill(client, client->in, count, 0, type));
	OK(ncclBroadcast(client->in, client->out, count, type, 1, client->comm, client->stream));
	EXPECT(wrong(client, client->out, count, type, from_1, ncclSum) == -1);
	OK(ncclAllGather(client->in, client->out, part, type, client->comm, client->stream));
	EXPECT(wrong(client, client->out, count, type, gathered, ncclSum) == -1);
	OK(ncclAlltoAll(client->in, client->out, part, type, client->comm, client->stream));
	EXPECT(wrong(client, client->out, count, type, exchanged, ncclSum) == -1);
	EXPECT(!fill(client, client->out, count, 0, type));
	OK(ncclAlltoAll(client->out, client->out, part, type, client->comm, client->stream));
	EXPECT(wrong(client, client->out, count, type, exchanged, ncclSum) == -1);
	OK(ncclGather(client->in, client->out, part, type, 1, client->comm, client->stream));
	if (client->rank == 1)
		EXPECT(wrong(client, client->out, count, type, gathered, ncclSum) == -1);
	OK(ncclScatter(client->in, client->out, part, type, 1, client->comm, client->stream));
	EXPECT(wrong(client, client->out, part, type, scattered, ncclSum) == -1);
	OK(ncclBcast(client->in, count, type, 1, client->comm, client->stream));
	EXPECT(wrong(client, client->in, count, type, from_1, ncclSum) == -1);
	return 0;
}

int case_collectives(struct client_rank *client, const ncclUniqueId *id)
{
	static const size_t parts[] = { 1, 1021 };

	(void)id;
	for (size_t p = 0; p < 2; p++) {
		part = parts[p];
		for (int type = 0; type < ncclNumTypes; type++) {
			EXPECT(!copies(client, (ncclDataType_t)type));
			for (int op = 0; op < ncclNumOps; op++)
				EXPECT(!reductions(client, (ncclDataType_t)type, (ncclRedOp_t)op));
		}
	}
	return 0;
}

/* Every rank sends to its right and receives from its left neighbor; then all-to-all by sends, and
 * two collectives in one group. */
int case_groups(struct client_rank *client, const ncclUniqueId *id)
{
	int n = client->nranks, right = (client->rank + 1) % n, left = (client->rank + n - 1) % n;
	char *in = client->in, *out = client->out;

	(void)id;
	part = 500;
	EXPECT(!fill(client, in, part * (size_t)n, 0, ncclInt));
	OK(ncclGroupStart());
	OK(ncclSend(in, part, ncclInt, right, client->comm, client->stream));
	OK(ncclRecv(out, part, ncclInt, left, client->comm, client->stream));
	OK(ncclGroupEnd());
	EXPECT(wrong(client, out, part, ncclInt, of_left, ncclSum) == -1);
	OK(ncclGroupStart());
	for (int r = 0; r < n; r++) {
		OK(ncclSend(in + (size_t)r * part * 4, part, ncclInt, r, client->comm, client->stream));
		OK(ncclRecv(out + (size_t)r * part * 4, part, ncclInt, r, client->comm,
			    client->stream));
	}
	OK(ncclGroupEnd());
	EXPECT(wrong(client, out, part * (size_t)n, ncclInt, exchanged, ncclSum) == -1);
	OK(ncclGroupStart());
	OK(ncclGroupStart());
	OK(ncclAllReduce(in, out, part, ncclInt, ncclMax, client->comm, client->stream));
	OK(ncclGroupEnd());
	OK(ncclBroadcast(in, out + ROOM / 2, part, ncclInt, 1, client->comm, client->stream));
	OK(ncclGroupEnd());
	EXPECT(wrong(client, out, part, ncclInt, all_of, ncclMax) == -1);
	EXPECT(wrong(client, out + ROOM / 2, part, ncclInt, from_1, ncclSum) == -1);
	return 0;
}

/* Ranks 1.. in two colors, in reverse order; rank 0 without a color. */
int case_split(struct client_rank *client, const ncclUniqueId *id)
{
	int color = client->rank ? client->rank % 2 : NCCL_SPLIT_NOCOLOR, n, r, device, got;
	ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
	ncclComm_t child = (ncclComm_t)client;
	int members = color < 0 ? 0 : color ? client->nranks / 2 : (client->nranks - 1) / 2;

	(void)id;
	config.commName = "child";
	config.splitShare = 1;
	OK(ncclCommSplit(client->comm, color, -client->rank, &child, client->rank == 2 ? NULL : &config));
	if (!client->rank) {
		EXPECT(child == NULL);
		return 0;
	}
	OK(ncclCommCount(child, &n));
	OK(ncclCommUserRank(child, &r));
	OK(ncclCommCuDevice(child, &device));
	EXPECT(device == (memory_is_cuda() ? 0 : -1));
	EXPECT(n == members);
	EXPECT(r == (client->nranks - 1 - client->rank) / 2);
	EXPECT(!memory_write(client, client->in, &(int){ 10 + color }, sizeof(int)));
	OK(ncclAllReduce(client->in, client->out, 1, ncclInt, ncclSum, child, client->stream));
	EXPECT(!memory_read(client, &got, client->out, sizeof(got)));
	EXPECT(got == n * (10 + color));
	OK(ncclCommFinalize(child));
	OK(ncclCommDestroy(child));
	return 0;
}

/* The default stream, and a graph that repeats a call with new inputs. As in PyTorch, the call has
 * its own stream, which joins the captured stream by events. */
int case_streams(struct client_rank *client, const ncclUniqueId *id)
{
	int n = client->nranks, got;
	cudaStream_t own;

	(void)id;
	EXPECT(!memory_stream(&own));
	EXPECT(!memory_write(client, client->in, &(int){ client->rank }, sizeof(int)));
	OK(ncclAllReduce(client->in, client->out, 1, ncclInt, ncclSum, client->comm, NULL));
	EXPECT(!memory_read(&(struct client_rank){ .stream = NULL }, &got, client->out, sizeof(got)));
	EXPECT(got == n * (n - 1) / 2);
	EXPECT(!memory_capture(client));
	EXPECT(!memory_behind(client->stream, own));
	OK(ncclAllReduce(client->in, client->out, 1, ncclInt, ncclSum, client->comm, own));
	EXPECT(!memory_behind(own, client->stream));
	EXPECT(!memory_captured(client));
	for (int i = 1; i <= 3; i++) {
		EXPECT(!memory_write(client, client->in, &(int){ i * (client->rank + 1) }, sizeof(int)));
		EXPECT(!memory_replay(client));
		EXPECT(!memory_read(client, &got, client->out, sizeof(got)));
		EXPECT(got == i * n * (n + 1) / 2);
	}
	memory_stream_close(own);
	return 0;
}

/* A sum of inputs scaled by rank + 1; registered memory. */
int case_scaled(struct client_rank *client, const ncclUniqueId *id)
{
	float scalar = (float)client->rank + 1, got, want = 0;
	void *handle = NULL;
	ncclRedOp_t op;

	(void)id;
	for (int r = 0; r < client->nranks; r++)
		want += (float)(r + 1) * 0.5f;
	OK(ncclCommRegister(client->comm, client->in, ROOM, &handle));
	EXPECT(!memory_write(client, client->in, &(float){ 0.5f }, sizeof(float)));
	OK(ncclRedOpCreatePreMulSum(&op, &scalar, ncclFloat, ncclScalarHostImmediate, client->comm));
	EXPECT(op >= ncclNumOps);
	OK(ncclAllReduce(client->in, client->out, 1, ncclFloat, op, client->comm, client->stream));
	EXPECT(!memory_read(client, &got, client->out, sizeof(got)));
	EXPECT(got == want);
	OK(ncclRedOpDestroy(op, client->comm));
	EXPECT(ncclAllReduce(client->in, client->out, 1, ncclFloat, op, client->comm, client->stream) ==
	       ncclInvalidArgument);
	EXPECT(!memory_write(client, (float *)client->in + 1, &scalar, sizeof(scalar)));
	OK(ncclRedOpCreatePreMulSum(&op, (float *)client->in + 1, ncclFloat, ncclScalarDevice,
				    client->comm));
	OK(ncclAllReduce(client->in, client->out, 1, ncclFloat, op, client->comm, client->stream));
	EXPECT(!memory_read(client, &got, client->out, sizeof(got)));
	EXPECT(got == want);
	OK(ncclRedOpDestroy(op, client->comm));
	OK(ncclCommDeregister(client->comm, handle));
	return 0;
}
