/*
 * nccl_client_wrong.c - cases of wrong uses: each is refused with a code and an error text, and the
 * communicator keeps working
 *
 * Called by nccl_client.c.
 */
#include <dlfcn.h>
#include <stdint.h>

#include "tests/nccl/nccl_client.h"

/* The call fails with that code, and its error text has that word, which no earlier text has. */
#define REFUSED(call, code, word)                                     \
	do {                                                          \
		EXPECT((call) == (code));                             \
		EXPECT(strstr(ncclGetLastError(NULL), word) != NULL); \
	} while (0)
#define BAD ncclInvalidArgument

/* A value that is no communicator, in every call that takes one. */
static int no_communicator(struct client_rank *client, ncclComm_t c)
{
	ncclResult_t state;
	void *x = client->in;
	ncclComm_t other;
	ncclRedOp_t op;
	int n = 0;

	REFUSED(ncclAllReduce(x, x, 1, ncclInt, ncclSum, c, NULL), BAD,
		"ncclAllReduce: the communicator");
	REFUSED(ncclReduce(x, x, 1, ncclInt, ncclSum, 0, c, NULL), BAD,
		"ncclReduce: the communicator");
	REFUSED(ncclBroadcast(x, x, 1, ncclInt, 0, c, NULL), BAD,
		"ncclBroadcast: the communicator");
	REFUSED(ncclBcast(x, 1, ncclInt, 0, c, NULL), BAD, "ncclBcast: the communicator");
	REFUSED(ncclAllGather(x, x, 1, ncclInt, c, NULL), BAD, "ncclAllGather: the communicator");
	REFUSED(ncclReduceScatter(x, x, 1, ncclInt, ncclSum, c, NULL), BAD,
		"ncclReduceScatter: the communicator");
	REFUSED(ncclAlltoAll(x, x, 1, ncclInt, c, NULL), BAD, "ncclAlltoAll: the communicator");
	REFUSED(ncclGather(x, x, 1, ncclInt, 0, c, NULL), BAD, "ncclGather: the communicator");
	REFUSED(ncclScatter(x, x, 1, ncclInt, 0, c, NULL), BAD, "ncclScatter: the communicator");
	REFUSED(ncclSend(x, 1, ncclInt, 0, c, NULL), BAD, "ncclSend: the communicator");
	REFUSED(ncclRecv(x, 1, ncclInt, 0, c, NULL), BAD, "ncclRecv: the communicator");
	REFUSED(ncclCommCount(c, &n), BAD, "ncclCommCount: the communicator");
	REFUSED(ncclCommUserRank(c, &n), BAD, "ncclCommUserRank: the communicator");
	REFUSED(ncclCommCuDevice(c, &n), BAD, "ncclCommCuDevice: the communicator");
	REFUSED(ncclCommGetAsyncError(c, &state), BAD, "ncclCommGetAsyncError: the communicator");
	REFUSED(ncclCommSplit(c, 0, 0, &other, NULL), BAD, "ncclCommSplit: the communicator");
	REFUSED(ncclCommShrink(c, &n, 1, &other, NULL, 0), BAD, "ncclCommShrink: the communicator");
	REFUSED(ncclCommRegister(c, x, 1, &x), BAD, "ncclCommRegister: the communicator");
	REFUSED(ncclCommDeregister(c, x), BAD, "ncclCommDeregister: the communicator");
	REFUSED(ncclRedOpCreatePreMulSum(&op, &n, ncclInt, ncclScalarHostImmediate, c), BAD,
		"ncclRedOpCreatePreMulSum: the communicator");
	REFUSED(ncclRedOpDestroy((ncclRedOp_t)9, c), BAD, "ncclRedOpDestroy: the communicator");
	if (!c)
		return 0;
	REFUSED(ncclCommFinalize(c), BAD, "ncclCommFinalize: the communicator");
	REFUSED(ncclCommDestroy(c), BAD, "ncclCommDestroy: the communicator");
	REFUSED(ncclCommAbort(c), BAD, "ncclCommAbort: the communicator");
	return 0;
}

static int wrong_arguments(struct client_rank *client, ncclComm_t c)
{
	static const int no_types[] = { -1, ncclNumTypes, 99, INT_MAX },
			 no_ops[] = { -1, 5, 6, 7, 8, 1000, INT_MAX };
	static const int no_ranks[] = { -1, INT_MIN, 1, INT_MAX };
	static const size_t no_counts[] = { SIZE_MAX, SIZE_MAX / 2, SIZE_MAX / 4 + 1 };
	char *x = client->in, *y = client->out;

	for (size_t i = 0; i < sizeof(no_types) / sizeof(int); i++) {
		REFUSED(ncclAllReduce(x, y, 1, (ncclDataType_t)no_types[i], ncclSum, c, NULL), BAD,
			"type");
		REFUSED(ncclAllGather(x, y, 0, (ncclDataType_t)no_types[i], c, NULL), BAD, "type");
	}
	for (size_t i = 0; i < sizeof(no_ops) / sizeof(int); i++)
		REFUSED(ncclReduce(x, y, 1, ncclInt, (ncclRedOp_t)no_ops[i], 0, c, NULL), BAD,
			"op");
	for (size_t i = 0; i < sizeof(no_ranks) / sizeof(int); i++) {
		REFUSED(ncclBroadcast(x, y, 1, ncclInt, no_ranks[i], c, NULL), BAD, "root");
		REFUSED(ncclScatter(x, y, 1, ncclInt, no_ranks[i], c, NULL), BAD, "root");
		REFUSED(ncclSend(x, 1, ncclInt, no_ranks[i], c, NULL), BAD, "peer");
		REFUSED(ncclRecv(x, 1, ncclInt, no_ranks[i], c, NULL), BAD, "peer");
	}
	for (size_t i = 0; i < sizeof(no_counts) / sizeof(size_t); i++) {
		REFUSED(ncclAllReduce(x, y, no_counts[i], ncclInt, ncclSum, c, NULL), BAD,
			"memory can hold");
		REFUSED(ncclReduceScatter(x, y, no_counts[i], ncclDouble, ncclSum, c, NULL), BAD,
			"memory can hold");
	}
	REFUSED(ncclAllReduce(NULL, y, 1, ncclInt, ncclSum, c, NULL), BAD, "NULL");
	REFUSED(ncclAllReduce(x, NULL, 1, ncclInt, ncclSum, c, NULL), BAD, "NULL");
	REFUSED(ncclBcast(NULL, 1, ncclInt, 0, c, NULL), BAD, "NULL");
	REFUSED(ncclAllReduce(x, x + 4, 10, ncclInt, ncclSum, c, NULL), BAD, "overlap");
	return 0;
}

static int wrong_joins(struct client_rank *client, const ncclUniqueId *id)
{
	ncclComm_t other = (ncclComm_t)client;
	ncclUniqueId no_id;

	memset(&no_id, 0, sizeof(no_id));
	REFUSED(ncclGetUniqueId(NULL), BAD, "uniqueId is NULL");
	REFUSED(ncclCommInitRank(NULL, 1, *id, 0), BAD, "comm is NULL");
	REFUSED(ncclCommInitRank(&other, 0, *id, 0), BAD, "rank 0 of 0");
	EXPECT(other == NULL);
	REFUSED(ncclCommInitRank(&other, -3, *id, 0), BAD, "rank 0 of -3");
	REFUSED(ncclCommInitRank(&other, 2, *id, 2), BAD, "rank 2 of 2");
	REFUSED(ncclCommInitRank(&other, 2, *id, -1), BAD, "rank -1 of 2");
	REFUSED(ncclCommInitRank(&other, 1, no_id, 0), BAD, "id");
	EXPECT(other == NULL);
	memset(&no_id, 0xa5, sizeof(no_id));
	REFUSED(ncclCommInitRank(&other, 2, no_id, 1), BAD, "id");
	REFUSED(ncclCommInitRankScalable(&other, 1, 0, 0, &no_id, NULL), BAD, "0 ids");
	REFUSED(ncclCommInitRankScalable(&other, 1, 0, 1, NULL, NULL), BAD, "want at least one");
	REFUSED(ncclCommInitAll(NULL, 1, NULL), BAD, "ndev 1");
	REFUSED(ncclCommInitAll(&other, 0, NULL), BAD, "ndev 0");
	if (memory_is_cuda())
		REFUSED(ncclCommInitAll(&other, 1, (int[]){ 99 }), BAD, "device 99");
	return 0;
}

/* Operations, splits, shrinks, memory. */
static int wrong_derivations(struct client_rank *client, ncclComm_t c)
{
	ncclComm_t other = (ncclComm_t)client;
	void *memory = client;
	ncclRedOp_t op;
	float one = 1;
	int r = 0;

	REFUSED(ncclCommSplit(c, 0, 0, NULL, NULL), BAD, "newcomm is NULL");
	REFUSED(ncclCommSplit(c, -2, 0, &other, NULL), BAD, "color");
	EXPECT(other == NULL);
	REFUSED(ncclCommShrink(c, NULL, 1, &other, NULL, 0), BAD, "exclude");
	REFUSED(ncclCommShrink(c, &r, -1, &other, NULL, 0), BAD, "exclude");
	r = 5;
	REFUSED(ncclCommShrink(c, &r, 1, &other, NULL, 0), BAD, "5");
	REFUSED(ncclRedOpCreatePreMulSum(NULL, &one, ncclFloat, ncclScalarHostImmediate, c), BAD,
		"PreMulSum");
	REFUSED(ncclRedOpCreatePreMulSum(&op, NULL, ncclFloat, ncclScalarHostImmediate, c), BAD,
		"PreMulSum");
	REFUSED(ncclRedOpCreatePreMulSum(&op, &one, (ncclDataType_t)77, ncclScalarHostImmediate, c),
		BAD, "type");
	REFUSED(ncclRedOpCreatePreMulSum(&op, &one, ncclFloat, (ncclScalarResidence_t)7, c), BAD,
		"residence");
	REFUSED(ncclRedOpDestroy(ncclSum, c), BAD, "RedOpDestroy");
	REFUSED(ncclRedOpDestroy((ncclRedOp_t)INT_MAX, c), BAD, "RedOpDestroy");
	OK(ncclRedOpCreatePreMulSum(&op, &one, ncclFloat, ncclScalarHostImmediate, c));
	REFUSED(ncclAllReduce(client->in, client->out, 1, ncclDouble, op, c, client->stream), BAD,
		"pre-multiplied");
	OK(ncclRedOpDestroy(op, c));
	REFUSED(ncclRedOpDestroy(op, c), BAD, "RedOpDestroy");
	REFUSED(ncclMemAlloc(NULL, 10), BAD, "MemAlloc");
	EXPECT(ncclMemAlloc(&memory, (size_t)1 << 62) != ncclSuccess);
	EXPECT(strstr(ncclGetLastError(NULL), "4611686018427387904 bytes") != NULL);
	OK(ncclMemFree(NULL));
	REFUSED(ncclCommRegister(c, client->in, ROOM, NULL), BAD, "Register");
	REFUSED(ncclCommCount(c, NULL), BAD, "ncclCommCount: the pointer");
	REFUSED(ncclCommGetAsyncError(c, NULL), BAD, "asyncError is NULL");
	return 0;
}

/* Objects of one communicator passed to another; windows, which are not supported. */
static int wrong_owners(struct client_rank *client, ncclComm_t c)
{
	float one = 1;
	ncclComm_t other;
	ncclWindow_t window = (ncclWindow_t)client;
	ncclRedOp_t op;
	void *handle;

	OK(ncclCommSplit(c, 0, 0, &other, NULL));
	OK(ncclRedOpCreatePreMulSum(&op, &one, ncclFloat, ncclScalarHostImmediate, other));
	REFUSED(ncclAllReduce(client->in, client->out, 1, ncclFloat, op, c, client->stream), BAD,
		"op");
	REFUSED(ncclRedOpDestroy(op, c), BAD, "RedOpDestroy");
	OK(ncclCommRegister(other, client->in, 100, &handle));
	REFUSED(ncclCommDeregister(c, handle), BAD, "handle");
	OK(ncclCommDestroy(other));
	REFUSED(ncclCommWindowRegister(c, NULL, 100, &window, 0), BAD, "WindowRegister: buff");
	REFUSED(ncclCommWindowRegister(c, client->in, 0, &window, 0), BAD, "size 0");
	REFUSED(ncclCommWindowDeregister(c, window), BAD, "no window");
	OK(ncclCommWindowDeregister(c, NULL));
	return 0;
}

/* Failing groups, calls without a group, functions that are not implemented. */
static int wrong_groups(struct client_rank *client, ncclComm_t c, const ncclUniqueId *id)
{
	ncclSimInfo_t info = { 0 };
	ncclComm_t other = NULL;

	REFUSED(ncclGroupEnd(), ncclInvalidUsage, "without ncclGroupStart");
	REFUSED(ncclCommRevoke(c, 0), ncclInvalidUsage, "not built");
	OK(ncclGroupStart());
	REFUSED(ncclGroupSimulateEnd(&info), ncclInvalidUsage, "not built");
	/* the failed group was closed */
	REFUSED(ncclGroupEnd(), ncclInvalidUsage, "without ncclGroupStart");
	OK(ncclGroupStart());
	REFUSED(ncclBroadcast(client->in, client->in, 1, ncclInt, 1, c, NULL), BAD, "root");
	OK(ncclCommInitRank(&other, 1, *id, 0));
	REFUSED(ncclGroupEnd(), BAD, "root"); /* no call of a failed group runs */
	EXPECT(other == NULL);
	return 0;
}

/* Calls of 2.29 to 2.32 are there, for programs that bind all symbols, and name themselves. */
static int later_calls(struct client_rank *client, ncclComm_t c)
{
	static const char *const names[] = {
		"ncclCommGrow",
		"ncclCommGetUniqueId",
		"ncclCommSuspend",
		"ncclCommResume",
		"ncclCommMemStats",
		"ncclCommQueryProperties",
		"ncclPutSignal",
		"ncclSignal",
		"ncclWaitSignal",
		"ncclAllReduceConfig",
		"ncclReduceScatterConfig",
		"ncclParamGet",
		"ncclDevCommCreate",
		"ncclSetEncryption",
	};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		ncclResult_t (*call)(ncclComm_t comm);

		*(void **)&call = dlsym(RTLD_DEFAULT, names[i]);
		EXPECT(call != NULL);
		REFUSED(call(c), ncclInvalidUsage, names[i]);
	}
	return 0;
}

int case_wrong_uses(struct client_rank *client, const ncclUniqueId *id)
{
	char foreign[4096];
	ncclComm_t comm = client->comm;
	int version, got;

	OK(ncclGetVersion(&version));
	EXPECT(version == 22809);
	REFUSED(ncclGetVersion(NULL), BAD, "version is NULL");
	EXPECT(!no_communicator(client, NULL));
	memset(foreign, 0x55, sizeof(foreign));
	EXPECT(!no_communicator(client, (ncclComm_t)foreign));
	EXPECT(!wrong_arguments(client, comm));
	EXPECT(!wrong_joins(client, id));
	EXPECT(!wrong_derivations(client, comm));
	EXPECT(!wrong_owners(client, comm));
	EXPECT(!wrong_groups(client, comm, id));
	EXPECT(!later_calls(client, comm));
	OK(ncclCommDestroy(NULL));
	OK(ncclCommAbort(NULL));
	OK(ncclCommFinalize(NULL));
	/* the communicator still works */
	EXPECT(!memory_write(client, client->in, &(int){ 5 }, sizeof(int)));
	OK(ncclAllReduce(client->in, client->out, 1, ncclInt, ncclSum, comm, client->stream));
	EXPECT(!memory_read(client, &got, client->out, sizeof(got)));
	EXPECT(got == 5);
	OK(ncclCommFinalize(comm));
	OK(ncclCommDestroy(comm));
	EXPECT(!no_communicator(client, comm));
	for (int code = -1; code < 20; code++)
		EXPECT(strlen(ncclGetErrorString((ncclResult_t)code)) > 5);
	client->comm = NULL;
	return 0;
}
