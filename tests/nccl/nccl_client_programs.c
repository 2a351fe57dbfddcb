/*
 * nccl_client_programs.c - cases with the call patterns of real programs: PyTorch's process groups,
 * several communicators at once, calls without elements, nonblocking groups, forks
 *
 * Called by nccl_client.c. The order of calls is that of the programs, and matters.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/nccl/nccl_client.h"

int adds_up(struct client_rank *client, ncclComm_t comm, cudaStream_t stream)
{
	struct client_rank on = { .stream = stream };
	int n, rank, got;

	OK(ncclCommCount(comm, &n));
	OK(ncclCommUserRank(comm, &rank));
	EXPECT(!memory_write(&on, client->in, &(int){ rank + 1 }, sizeof(int)));
	OK(ncclAllReduce(client->in, client->out, 1, ncclInt, ncclSum, comm, stream));
	EXPECT(!memory_read(&on, &got, client->out, sizeof(got)));
	EXPECT(got == n * (n + 1) / 2);
	return 0;
}

/* ---- PyTorch --------------------------------------------------------------------------------- */

struct program_watch {
	ncclComm_t comm;
	atomic_bool stop;
	atomic_int asked, wrong;
};

/* As PyTorch's watchdog: polls while other threads work, and reads the last error without a
 * communicator. */
static void *watches(void *arg)
{
	struct program_watch *w = arg;

	while (!w->stop) {
		ncclResult_t state = ncclInternalError;

		w->wrong +=
			ncclCommGetAsyncError(w->comm, &state) || state || !ncclGetLastError(NULL);
		w->asked++;
		nanosleep(&(struct timespec){ .tv_nsec = 100000 }, NULL);
	}
	return NULL;
}

/* Ranks 0 and 1 only: a communicator of two ranks for messages, whose id came through the store of
 * the others. */
static int pair(struct client_rank *client, ncclComm_t *ret_comm)
{
	ncclUniqueId id;
	int got = 0;

	if (!client->rank)
		OK(ncclGetUniqueId(&id));
	EXPECT(!memory_write(client, client->in, &id, sizeof(id)));
	OK(ncclBroadcast(client->in, client->out, sizeof(id), ncclUint8, 0, client->comm, client->stream));
	EXPECT(!memory_read(client, &id, client->out, sizeof(id)));
	if (client->rank > 1)
		return 0;
	OK(ncclCommInitRank(ret_comm, 2, id, client->rank));
	for (int i = 0; i < 3; i++) {                  /* single calls, without a group */
		EXPECT(!memory_write(client, client->in, &(int){ 40 + i }, sizeof(int)));
		if (client->rank)
			OK(ncclRecv(client->out, 1, ncclInt, 0, *ret_comm, client->stream));
		else
			OK(ncclSend(client->in, 1, ncclInt, 1, *ret_comm, client->stream));
		EXPECT(!memory_read(client, &got, client->out, sizeof(got)));
		EXPECT(!client->rank || got == 40 + i);
	}
	return 0;
}

/* Rank r sends r + p numbers to rank p, which is nothing for r = p = 0. */
static int unequal_exchange(struct client_rank *client)
{
	int *in = client->in, *out = client->out, n = client->nranks, got[8], mine[8];

	for (int p = 0; p < n; p++) {
		for (int i = 0; i < 8; i++)
			mine[i] = 100 * client->rank + 10 * p + i;
		EXPECT(!memory_write(client, in + 8 * p, mine, sizeof(mine)));
	}
	OK(ncclGroupStart());
	for (int p = 0; p < n; p++) {
		OK(ncclSend(in + 8 * p, (size_t)(client->rank + p), ncclInt, p, client->comm,
			    client->stream));
		OK(ncclRecv(out + 8 * p, (size_t)(client->rank + p), ncclInt, p, client->comm,
			    client->stream));
	}
	OK(ncclGroupEnd());
	for (int p = 0; p < n; p++) {
		EXPECT(!memory_read(client, got, out + 8 * p, sizeof(got)));
		for (int i = 0; i < client->rank + p; i++)
			EXPECT(got[i] == 100 * p + 10 * client->rank + i);
	}
	return 0;
}

/* A new group of ranks 0 and 1 is split off; the ranks outside of the group call, too. */
static int new_group(struct client_rank *client, ncclComm_t *ret_child)
{
	ncclConfig_t config = NCCL_CONFIG_INITIALIZER;

	config.blocking = 1;
	config.splitShare = 1;
	config.commName = "group 1";
	OK(ncclCommSplit(client->comm, client->rank < 2 ? 0x7ffffff1 : NCCL_SPLIT_NOCOLOR, client->rank,
			 ret_child, &config));
	EXPECT((*ret_child != NULL) == (client->rank < 2));
	return *ret_child ? adds_up(client, *ret_child, client->stream) : 0;
}

/* A pool of memory is registered, as a buffer and as a window; windows are not supported. */
static int pools(struct client_rank *client)
{
	void *handle = NULL, *memory = NULL;
	ncclWindow_t window = NULL;

	OK(ncclGroupStart());
	OK(ncclMemAlloc(&memory, 10000));
	OK(ncclGroupEnd());
	OK(ncclCommRegister(client->comm, memory, 10000, &handle));
	OK(ncclCommWindowRegister(client->comm, memory, 10000, &window, NCCL_WIN_COLL_SYMMETRIC));
	EXPECT(handle && !window);
	EXPECT(!adds_up(client, client->comm, client->stream));
	OK(ncclCommWindowDeregister(client->comm, window));
	OK(ncclCommDeregister(client->comm, handle));
	OK(ncclMemFree(memory));
	return 0;
}

int case_process_groups(struct client_rank *client, const ncclUniqueId *id)
{
	ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
	ncclComm_t child = NULL, two = NULL;
	struct program_watch w = { 0 };
	pthread_t thread;

	config.blocking = 1;
	config.commName = "default_pg";
	OK(ncclCommInitRankConfig(&client->comm, client->nranks, *id, client->rank, &config));
	w.comm = client->comm;
	EXPECT(!pthread_create(&thread, NULL, watches, &w));
	EXPECT(!adds_up(client, client->comm, client->stream));
	EXPECT(!new_group(client, &child));
	EXPECT(!pair(client, &two));
	EXPECT(!unequal_exchange(client));
	EXPECT(!pools(client));
	while (w.asked < 3)
		nanosleep(&(struct timespec){ .tv_nsec = 100000 }, NULL);
	w.stop = true;
	pthread_join(thread, NULL);
	EXPECT(!w.wrong);
	OK(ncclGroupStart());                          /* destroyed in one group */
	OK(ncclCommAbort(child));
	OK(ncclCommAbort(two));
	OK(ncclGroupEnd());
	EXPECT(!adds_up(client, client->comm, client->stream));
	OK(ncclCommFinalize(client->comm));
	OK(ncclCommFinalize(client->comm));              /* a second call does nothing */
	OK(ncclCommDestroy(client->comm));
	client->comm = NULL;
	return 0;
}

/* ---- several communicators, and calls without elements --------------------------------------- */

/* Three communicators of the same ranks in different orders, each on its own stream; one group has
 * calls of all three. */
int case_several(struct client_rank *client, const ncclUniqueId *id)
{
	int n = client->nranks, *in = client->in, *out = client->out, got[3],
	    backward = n - 1 - client->rank;
	ncclComm_t comms[3] = { client->comm };
	cudaStream_t streams[3] = { client->stream };

	(void)id;
	/* two splits of one communicator in one group */
	OK(ncclGroupStart());
	OK(ncclCommSplit(client->comm, 0, backward, &comms[1], NULL));
	OK(ncclCommSplit(client->comm, 0, client->rank, &comms[2], NULL));
	OK(ncclGroupEnd());
	for (int c = 1; c < 3; c++)
		EXPECT(!memory_stream(&streams[c]));
	EXPECT(!memory_write(client, in, &(int[]){ client->rank + 1, backward, client->rank }, 12));
	for (int times = 0; times < 3; times++) {
		OK(ncclGroupStart());
		OK(ncclBroadcast(in + 1, out + 1, 1, ncclInt, 0, comms[1], streams[1]));
		OK(ncclSend(in + 2, 1, ncclInt, (client->rank + 1) % n, comms[2], streams[2]));
		OK(ncclAllReduce(in, out, 1, ncclInt, ncclSum, comms[0], streams[0]));
		OK(ncclRecv(out + 2, 1, ncclInt, (client->rank + n - 1) % n, comms[2], streams[2]));
		OK(ncclGroupEnd());
		for (int c = 0; c < 3; c++) {
			struct client_rank on = { .stream = streams[c] };

			EXPECT(!memory_read(&on, &got[c], out + c, sizeof(int)));
		}
		EXPECT(got[0] == n * (n + 1) / 2 && got[1] == 0 &&
		       got[2] == (client->rank + n - 1) % n);
		EXPECT(!memory_write(client, out, &(int[]){ -1, -1, -1 }, 12));
	}
	for (int c = 1; c < 3; c++) {
		OK(ncclCommDestroy(comms[c]));         /* without finalizing */
		memory_stream_close(streams[c]);
	}
	return 0;
}

/* All calls with no elements and NULL buffers. */
static int nothing(struct client_rank *client)
{
	ncclComm_t c = client->comm;
	cudaStream_t s = client->stream;
	int n = client->nranks;

	OK(ncclAllReduce(NULL, NULL, 0, ncclFloat, ncclSum, c, s));
	OK(ncclReduce(NULL, NULL, 0, ncclHalf, ncclAvg, 0, c, s));
	OK(ncclBroadcast(NULL, NULL, 0, ncclInt8, 0, c, s));
	OK(ncclBcast(NULL, 0, ncclInt8, 0, c, s));
	OK(ncclAllGather(NULL, NULL, 0, ncclInt64, c, s));
	OK(ncclReduceScatter(NULL, NULL, 0, ncclBfloat16, ncclMax, c, s));
	OK(ncclAlltoAll(NULL, NULL, 0, ncclInt8, c, s));
	OK(ncclGather(NULL, NULL, 0, ncclInt8, 0, c, s));
	OK(ncclScatter(NULL, NULL, 0, ncclInt8, 0, c, s));
	OK(ncclGroupStart());
	OK(ncclSend(NULL, 0, ncclInt, (client->rank + 1) % n, c, s));
	OK(ncclRecv(NULL, 0, ncclInt, (client->rank + n - 1) % n, c, s));
	OK(ncclGroupEnd());
	return 0;
}

/* Only the root passes the buffers that only the root needs; the root's own part may be in
 * place. */
static int roots(struct client_rank *client, int root)
{
	int n = client->nranks, me = client->rank, got[16] = { 0 }, *in = client->in, *out = client->out;
	bool mine = me == root;

	EXPECT(!memory_write(client, in, &(int){ me + 1 }, sizeof(int)));
	OK(ncclReduce(in, mine ? out : NULL, 1, ncclInt, ncclSum, root, client->comm, client->stream));
	EXPECT(!memory_read(client, got, out, sizeof(int)));
	EXPECT(!mine || got[0] == n * (n + 1) / 2);
	OK(ncclBroadcast(mine ? in : NULL, out, 1, ncclInt, root, client->comm, client->stream));
	EXPECT(!memory_read(client, got, out, sizeof(int)));
	EXPECT(got[0] == root + 1);
	EXPECT(!memory_write(client, out + me, &(int){ me + 1 }, sizeof(int)));
	OK(ncclGather(out + me, mine ? out : NULL, 1, ncclInt, root, client->comm, client->stream));
	EXPECT(!memory_read(client, got, out, (size_t)n * sizeof(int)));
	for (int r = 0; r < n; r++)
		EXPECT(!mine || got[r] == r + 1);
	OK(ncclScatter(mine ? out : NULL, mine ? out + me : in, 1, ncclInt, root, client->comm,
		       client->stream));
	EXPECT(!memory_read(client, got, mine ? out + me : in, sizeof(int)));
	EXPECT(got[0] == me + 1);
	return 0;
}

int case_roots(struct client_rank *client, const ncclUniqueId *id)
{
	(void)id;
	EXPECT(!nothing(client));
	OK(ncclGroupStart());
	EXPECT(!nothing(client));
	OK(ncclGroupEnd());
	OK(ncclGroupStart());                          /* an empty group */
	OK(ncclGroupEnd());
	for (int root = 0; root < client->nranks; root++)
		EXPECT(!roots(client, root));
	return 0;
}

/* ---- nonblocking ----------------------------------------------------------------------------- */

bool accepted(ncclResult_t result)
{
	return result == ncclSuccess || result == ncclInProgress;
}

/* Ranks outside of all groups of a split; a group of calls; a communicator that is destroyed, or
 * aborted, during its init. */
int case_nonblocking_groups(struct client_rank *client, const ncclUniqueId *id)
{
	ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
	ncclComm_t child = (ncclComm_t)client, lonely = NULL, alone = NULL;
	ncclUniqueId own, none;

	config.blocking = 0;
	OK(ncclGetUniqueId(&own));
	OK(ncclGetUniqueId(&none));
	OK(ncclGroupStart());
	EXPECT(accepted(
		ncclCommInitRankConfig(&client->comm, client->nranks, *id, client->rank, &config)));
	EXPECT(accepted(ncclCommInitRankConfig(&alone, 1, own, 0, &config)));
	EXPECT(accepted(ncclGroupEnd()));
	EXPECT(settled(client->comm) == ncclSuccess && settled(alone) == ncclSuccess);
	OK(ncclCommDestroy(alone));
	EXPECT(accepted(ncclCommSplit(client->comm, client->rank ? 7 : NCCL_SPLIT_NOCOLOR, 0, &child,
				      &config)));
	EXPECT(settled(client->comm) == ncclSuccess);
	EXPECT((child == NULL) == (client->rank == 0));
	EXPECT(!child || settled(child) == ncclSuccess);
	OK(ncclGroupStart());
	if (child)
		EXPECT(accepted(ncclAllReduce(client->in, client->out, 100, ncclFloat, ncclSum, child,
					      client->stream)));
	EXPECT(accepted(
		ncclBcast((int *)client->in + 200, 100, ncclFloat, 1, client->comm, client->stream)));
	EXPECT(accepted(ncclGroupEnd()));
	EXPECT(settled(client->comm) == ncclSuccess && (!child || settled(child) == ncclSuccess));
	EXPECT(!adds_up(client, client->comm, client->stream));
	EXPECT(accepted(ncclCommInitRankConfig(&lonely, 2, none, 0, &config)));
	OK(ncclCommAbort(lonely));                     /* no other rank ever comes */
	OK(ncclCommDestroy(child));
	EXPECT(accepted(ncclCommFinalize(client->comm)));
	OK(ncclCommDestroy(client->comm));               /* waits for the end of that init */
	client->comm = NULL;
	return 0;
}

/* ---- forks ----------------------------------------------------------------------------------- */

/* A child process uses the inherited communicator in all ways: calls that move data are refused,
 * and the parent is not affected. */
static int in_child(struct client_rank *client)
{
	ncclComm_t child;

	EXPECT(ncclAllReduce(client->in, client->out, 1, ncclInt, ncclSum, client->comm, NULL) ==
	       ncclInvalidArgument);
	EXPECT(strstr(ncclGetLastError(NULL), "fork") != NULL);
	EXPECT(ncclCommSplit(client->comm, 0, 0, &child, NULL) == ncclInvalidArgument);
	if (client->rank)
		ncclCommAbort(client->comm);
	else
		ncclCommDestroy(client->comm);
	return 0;
}

/* The workers of a data loader: forked after the ranks' init, and ended before the ranks. */
int case_forks(struct client_rank *client, const ncclUniqueId *id)
{
	ncclResult_t state = ncclInternalError;
	int status;
	pid_t pid;

	(void)id;
	EXPECT(!adds_up(client, client->comm, client->stream));
	pid = fork();
	if (!pid) {
		alarm(20);
		_exit(in_child(client));
	}
	EXPECT(pid > 0 && waitpid(pid, &status, 0) == pid);
	EXPECT(status == 0);
	OK(ncclCommGetAsyncError(client->comm, &state));
	EXPECT(state == ncclSuccess);
	EXPECT(!adds_up(client, client->comm, client->stream));
	return 0;
}
