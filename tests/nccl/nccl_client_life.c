/*
 * nccl_client_life.c - cases about communicators: several in one thread, nonblocking, aborted,
 * killed, old configs
 *
 * Called by nccl_client.c.
 */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "tests/nccl/nccl_client.h"

static void nap(void)
{
	nanosleep(&(struct timespec){ .tv_nsec = 2000000 }, NULL);
}

ncclResult_t settled(ncclComm_t comm)
{
	ncclResult_t state = ncclInProgress;

	for (int i = 0; i < 25000 && state == ncclInProgress; i++) {
		if (ncclCommGetAsyncError(comm, &state))
			return ncclInternalError;
		if (state == ncclInProgress)
			nap();
	}
	return state;
}

/* One thread runs all ranks: inits in a group block only at the group's end; the calls of a
 * collective are in one group, on a stream per rank. */
static int reduce_all(struct client_rank *client, ncclComm_t *comms, struct client_rank *own, int n)
{
	int *in = client->in, *out = client->out, got;

	for (int r = 0; r < n; r++)
		EXPECT(!memory_write(client, in + 16 * r, &(int){ r + 1 }, sizeof(int)));
	OK(ncclGroupStart());
	for (int r = 0; r < n; r++)
		OK(ncclAllReduce(in + 16 * r, out + 16 * r, 1, ncclInt, ncclSum, comms[r],
				 own[r].stream));
	OK(ncclGroupEnd());
	for (int r = 0; r < n; r++) {
		EXPECT(!memory_read(&own[r], &got, out + 16 * r, sizeof(got)));
		EXPECT(got == n * (n + 1) / 2);
	}
	return 0;
}

static int all_ranks(struct client_rank *client, ncclComm_t *comms, int n)
{
	struct client_rank own[4];

	for (int r = 0; r < n; r++)
		EXPECT(!memory_stream(&own[r].stream));
	EXPECT(!reduce_all(client, comms, own, n));
	OK(ncclGroupStart());
	for (int r = 0; r < n; r++)
		OK(ncclCommFinalize(comms[r]));
	OK(ncclGroupEnd());
	for (int r = 0; r < n; r++) {
		OK(ncclCommDestroy(comms[r]));
		memory_stream_close(own[r].stream);
	}
	return 0;
}

/* A thread without a current CUDA context works on device 0. */
static void *without_context(void *arg)
{
	struct client_rank own = *(struct client_rank *)arg;
	ncclUniqueId id;
	void *memory;
	int device = -2;
	bool good = !ncclGetUniqueId(&id) && !ncclCommInitRank(&own.comm, 1, id, 0) &&
		    !ncclCommCuDevice(own.comm, &device) && device == (memory_is_cuda() ? 0 : -1) &&
		    !ncclMemAlloc(&memory, 100) &&
		    !ncclAllReduce(memory, memory, 25, ncclInt, ncclSum, own.comm, own.stream) &&
		    !ncclCommDestroy(own.comm) && !ncclMemFree(memory);

	return (void *)(long)good;
}

int case_one_thread(struct client_rank *client, const ncclUniqueId *id)
{
	ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
	ncclComm_t comms[4] = { NULL };
	int devices[3] = { 0, 0, 0 }, rank;
	ncclUniqueId two[2];
	pthread_t thread;
	void *good;

	config.nvlinkCentricSched = 1;
	OK(ncclGroupStart());
	for (int r = 0; r < 4; r++)
		OK(ncclCommInitRankConfig(&comms[r], 4, *id, r, &config));
	/* not initialized yet */
	EXPECT(ncclCommUserRank(comms[3], &rank) == ncclInvalidArgument);
	OK(ncclGroupEnd());
	OK(ncclCommUserRank(comms[3], &rank));
	EXPECT(rank == 3);
	EXPECT(!all_ranks(client, comms, 4));
	OK(ncclCommInitAll(comms, 3, devices));
	EXPECT(!all_ranks(client, comms, 3));
	OK(ncclGetUniqueId(&two[0]));
	OK(ncclGetUniqueId(&two[1]));
	OK(ncclCommInitRankScalable(&comms[0], 1, 0, 2, two, &config));
	EXPECT(!all_ranks(client, comms, 1));
	EXPECT(!pthread_create(&thread, NULL, without_context, client));
	pthread_join(thread, &good);
	EXPECT(good);
	return 0;
}

struct life_watch {
	ncclComm_t comm;
	ncclResult_t last;
};

static void *watchdog(void *arg)
{
	struct life_watch *w = arg;

	w->last = settled(w->comm);
	return NULL;
}

/* The init continues after the call returns; another thread observes its end; finalizing
 * likewise. */
int case_nonblocking(struct client_rank *client, const ncclUniqueId *id)
{
	ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
	ncclComm_t child = NULL;
	ncclResult_t result;
	struct life_watch w;
	pthread_t thread;

	config.blocking = 0;
	result = ncclCommInitRankConfig(&client->comm, client->nranks, *id, client->rank, &config);
	EXPECT(result == ncclSuccess || result == ncclInProgress);
	EXPECT(client->comm != NULL);
	w.comm = client->comm;
	EXPECT(!pthread_create(&thread, NULL, watchdog, &w));
	pthread_join(thread, NULL);
	EXPECT(w.last == ncclSuccess);
	result = ncclCommSplit(client->comm, 0, client->rank, &child, NULL);
	EXPECT(result == ncclSuccess || result == ncclInProgress);
	EXPECT(settled(client->comm) == ncclSuccess);
	EXPECT(settled(child) == ncclSuccess);
	OK(ncclAllReduce(client->in, client->out, 100, ncclFloat, ncclSum, child, client->stream));
	EXPECT(!memory_read(client, &result, client->out, sizeof(result)));
	for (int i = 0; i < 2; i++) {
		ncclComm_t comm = i ? client->comm : child;

		result = ncclCommFinalize(comm);
		EXPECT(result == ncclSuccess || result == ncclInProgress);
		EXPECT(settled(comm) == ncclSuccess);
		OK(ncclCommDestroy(comm));
	}
	client->comm = NULL;
	return 0;
}

static void *abort_later(void *comm)
{
	for (int i = 0; i < 20; i++)
		nap();
	return (void *)(long)ncclCommAbort(comm);
}

/* Does a call that hangs until its communicator is broken return an error: at once, or when its
 * stream is awaited? */
static bool breaks(struct client_rank *client)
{
	int got;

	return ncclAllReduce(client->in, client->out, 8000, ncclFloat, ncclSum, client->comm,
			     client->stream) != ncclSuccess ||
	       memory_read(client, &got, client->out, sizeof(got)) ||
	       settled(client->comm) != ncclSuccess;
}

/* Rank 0 never calls and aborts: the calls of the others end with an error. Rank 1 ends its own
 * call by an abort from another thread. */
int case_abort(struct client_rank *client, const ncclUniqueId *id)
{
	ncclResult_t error;
	pthread_t thread;
	void *result;

	(void)id;
	if (client->rank == 0) {
		for (int i = 0; i < 100; i++)
			nap();
		OK(ncclCommAbort(client->comm));
	} else if (client->rank == 1) {
		EXPECT(!pthread_create(&thread, NULL, abort_later, client->comm));
		EXPECT(breaks(client));
		pthread_join(thread, &result);
		EXPECT(result == NULL);
	} else {
		EXPECT(breaks(client));
		for (int i = 0; i < 25000 && !ncclCommGetAsyncError(client->comm, &error) && !error;
		     i++)
			nap();
		EXPECT(error == ncclRemoteError);
		EXPECT(strstr(ncclGetLastError(NULL), "rank") != NULL);
		EXPECT(ncclAllReduce(client->in, client->out, 1, ncclInt, ncclSum, client->comm,
				     client->stream) == ncclRemoteError);
		OK(ncclCommAbort(client->comm));
	}
	client->comm = NULL;
	return 0;
}

static ncclUniqueId alone;

static void *join_alone(void *arg)
{
	struct client_rank *client = arg;

	return (void *)(long)(ncclCommInitRank(&client->comm, 2, alone, 0) == ncclSuccess);
}

/* No other rank comes: a blocking init ends when another thread aborts it. */
int case_abort_join(struct client_rank *client, const ncclUniqueId *id)
{
	ncclResult_t state = ncclSuccess;
	pthread_t thread;
	void *joined;

	alone = *id;
	EXPECT(!pthread_create(&thread, NULL, join_alone, client));
	while (!__atomic_load_n(&client->comm, __ATOMIC_ACQUIRE))
		nap();
	OK(ncclCommGetAsyncError(client->comm, &state));
	EXPECT(state == ncclInProgress);
	OK(ncclCommAbort(client->comm));
	pthread_join(thread, &joined);
	EXPECT(joined == NULL);
	client->comm = NULL;
	return 0;
}

/* The survivors continue without the last rank. */
static int shrinks(struct client_rank *client)
{
	int gone = client->nranks - 1, n, got;
	ncclComm_t left = NULL;

	EXPECT(ncclCommShrink(client->comm, &gone, 0, &left, NULL, NCCL_SHRINK_DEFAULT) ==
	       ncclInvalidArgument);
	OK(ncclCommShrink(client->comm, &gone, 1, &left, NULL, NCCL_SHRINK_ABORT));
	OK(ncclCommCount(left, &n));
	EXPECT(n == client->nranks - 1);
	EXPECT(!memory_write(client, client->in, &(int){ client->rank + 1 }, sizeof(int)));
	OK(ncclAllReduce(client->in, client->out, 1, ncclInt, ncclSum, left, client->stream));
	EXPECT(!memory_read(client, &got, client->out, sizeof(got)));
	EXPECT(got == n * (n + 1) / 2);
	OK(ncclCommDestroy(left));
	return 0;
}

/* The last rank is killed; the others continue, and each gets the error by polling. */
int case_killed(struct client_rank *client, const ncclUniqueId *id)
{
	ncclResult_t error = ncclSuccess;
	void *handle;

	(void)id;
	OK(ncclCommRegister(client->comm, client->in, memory_room, &handle));
	OK(ncclAllReduce(client->in, client->out, 100, ncclFloat, ncclSum, client->comm, client->stream));
	EXPECT(!memory_read(client, &error, client->out, sizeof(error)));
	if (client->rank == client->nranks - 1)
		raise(SIGKILL);
	for (int i = 0; i < 25000 && !ncclCommGetAsyncError(client->comm, &error) && !error; i++)
		nap();
	EXPECT(error == ncclRemoteError);
	EXPECT(strstr(ncclGetLastError(client->comm), "rank") != NULL);
	EXPECT(breaks(client));
	EXPECT(!shrinks(client));
	OK(ncclCommDeregister(client->comm, handle));    /* as PyTorch does before each abort */
	OK(ncclCommAbort(client->comm));
	client->comm = NULL;
	return 0;
}

/* The fake driver of rank 0 fails the first function of a call: rank 0 reports the failure, the
 * others receive it. */
int case_refused(struct client_rank *client, const ncclUniqueId *id)
{
	(void)id;
	if (client->rank) {
		EXPECT(breaks(client));
		EXPECT(settled(client->comm) == ncclRemoteError);
		OK(ncclCommAbort(client->comm));
		client->comm = NULL;
		return 0;
	}
	setenv("TUTTI_TEST_CUDA_FAIL", "cuLaunchKernel:1:700", 1);
	EXPECT(ncclAllReduce(client->in, client->out, 8000, ncclFloat, ncclSum, client->comm,
			     client->stream) == ncclUnhandledCudaError);
	EXPECT(strstr(ncclGetLastError(NULL), "700") != NULL);
	/* the fault breaks this rank's communicator, too */
	while (settled(client->comm) == ncclSuccess)
		nap();
	OK(ncclCommAbort(client->comm));
	client->comm = NULL;
	return 0;
}

/* Each size that ncclConfig_t has had, and a future one. The memory behind the size, and fields of
 * later versions, hold garbage. */
int case_configs(struct client_rank *client, const ncclUniqueId *id)
{
	static const struct { unsigned version; size_t size;
	} headers[] = {
		{ 21405, 24 }, { 21701, 40 }, { 21801, 48 }, { 22602, 48 },  { 22703, 72 },
		{ 22809, 80 }, { 22902, 88 }, { 23007, 96 }, { 23100, 120 },
	};
	ncclConfig_t start = NCCL_CONFIG_INITIALIZER, *config;
	char bytes[128];
	ncclComm_t comm;
	ncclUniqueId own;

	(void)id;
	config = (ncclConfig_t *)bytes;
	for (size_t i = 0; i < sizeof(headers) / sizeof(headers[0]); i++) {
		size_t known = headers[i].version < 21700 ? offsetof(ncclConfig_t, cgaClusterSize) :
			       headers[i].version < 22600 && headers[i].version >= 21800 ?
			       offsetof(ncclConfig_t, trafficClass) : headers[i].size;

		memset(bytes, 0x55, sizeof(bytes));
		memcpy(bytes, &start, known < sizeof(start) ? known : sizeof(start));
		config->size = headers[i].size;
		config->version = headers[i].version;
		config->blocking = 1;
		OK(ncclGetUniqueId(&own));
		OK(ncclCommInitRankConfig(&comm, 1, own, 0, config));
		OK(ncclCommDestroy(comm));
	}
	config->blocking = 2;
	EXPECT(ncclCommInitRankConfig(&comm, 1, own, 0, config) == ncclInvalidArgument);
	EXPECT(strstr(ncclGetLastError(NULL), "blocking") != NULL);
	EXPECT(comm == NULL);
	config->magic = 0;
	EXPECT(ncclCommInitRankConfig(&comm, 1, own, 0, config) == ncclInvalidArgument);
	return 0;
}
