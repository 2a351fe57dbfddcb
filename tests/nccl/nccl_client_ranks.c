/*
 * nccl_client_ranks.c - runs ranks as processes or threads; host or CUDA memory; values
 *
 * Called by nccl_client.c and the cases.
 */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/nccl/nccl_client.h"

#define MOST 16

unsigned ranks_may_die, ranks_limit_s = 60;

static struct client_ranks running;
static int (*running_body)(struct client_rank *client, const ncclUniqueId *id);

bool ranks_are_threads(void)
{
	return running.threads;
}

/* A rank that fails exits at once: the others must detect it. */
static int live(int rank)
{
	struct client_rank s = { .rank = rank, .nranks = running.n }, *client = &s;
	int failed;

	EXPECT(!memory_open(client));
	if (!running.joins_itself)
		OK(ncclCommInitRank(&s.comm, running.n, running.id, rank));
	failed = running_body(client, &running.id);
	if (failed || running.joins_itself)
		ncclCommAbort(s.comm);
	else
		OK(ncclCommDestroy(s.comm));
	memory_close(client);
	return failed;
}

static void *live_as_thread(void *rank)
{
	return (void *)(long)live((int)(long)rank);
}

static int run_threads(void)
{
	pthread_t thread[MOST];
	int failed = 0;

	for (long r = 0; r < running.n; r++)
		if (pthread_create(&thread[r], NULL, live_as_thread, (void *)r))
			exit(99);
	for (int r = 0; r < running.n; r++) {
		void *result;

		pthread_join(thread[r], &result);
		failed += result != NULL;
	}
	return failed;
}

/* Runs threads in a child process, too: a process that has used CUDA must not fork again. */
static int run_apart(int (*run)(void))
{
	int status;
	pid_t pid;

	fflush(NULL);
	pid = fork();
	if (!pid) {
		alarm(ranks_limit_s);
		status = run();
		fflush(NULL);
		_exit(status);
	}
	if (pid < 0 || waitpid(pid, &status, 0) != pid)
		exit(99);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 100;
}

static int run_processes(void)
{
	pid_t pid[MOST];
	int failed = 0;

	fflush(NULL);
	for (int r = 0; r < running.n; r++) {
		pid[r] = fork();
		if (pid[r] < 0)
			exit(99);
		if (!pid[r]) {
			alarm(ranks_limit_s);
			_exit(live(r));
		}
	}
	for (int r = 0; r < running.n; r++) {
		int status = 0;

		waitpid(pid[r], &status, 0);
		if (!(ranks_may_die >> r & 1) && status) {
			fprintf(stderr, "# rank %d ended with status %#x\n", r, (unsigned)status);
			failed++;
		}
	}
	return failed;
}

int ranks_run(struct client_ranks *how, int (*body)(struct client_rank *client, const ncclUniqueId *id))
{
	running = *how;
	running_body = body;
	if (ncclGetUniqueId(&running.id)) {
		fprintf(stderr, "# ncclGetUniqueId: %s\n", ncclGetLastError(NULL));
		return how->n;
	}
	return how->threads ? run_apart(run_threads) : run_processes();
}

/* ---- values ---------------------------------------------------------------------------------- */

static const struct {
	size_t bytes;
	int exponent_bits, mantissa_bits;      /* 0: an integer */
	int bias;
} types[ncclNumTypes] = {
	[ncclInt8] = { 1, 0, 0, 0 }, [ncclUint8] = { 1, 0, 0, 0 }, [ncclInt32] = { 4, 0, 0, 0 },
	[ncclUint32] = { 4, 0, 0, 0 }, [ncclInt64] = { 8, 0, 0, 0 }, [ncclUint64] = { 8, 0, 0, 0 },
	[ncclFloat16] = { 2, 5, 10, 15 }, [ncclFloat32] = { 4, 8, 23, 127 }, [ncclFloat64] = { 8,
	11, 52, 1023 },
	[ncclBfloat16] = { 2, 8, 7, 127 }, [ncclFloat8e4m3] = { 1, 4, 3, 7 },
	[ncclFloat8e5m2] = { 1, 5, 2, 15 },
};

size_t value_bytes(ncclDataType_t type)
{
	return types[type].bytes;
}

/* The bits of a value >= 0 that the type represents exactly. */
static unsigned long long encode(ncclDataType_t type, double value)
{
	int exponent = types[type].bias;

	if (!types[type].mantissa_bits)
		return (unsigned long long)value;
	if (value == 0)
		return 0;
	for (; value >= 2; value /= 2)
		exponent++;
	for (; value < 1; value *= 2)
		exponent--;
	return ((unsigned long long)exponent << types[type].mantissa_bits) +
	       (unsigned long long)((value - 1) * (double)(1ull << types[type].mantissa_bits));
}

void value_store(void *to, size_t index, ncclDataType_t type, double value)
{
	unsigned long long bits = encode(type, value);

	memcpy((char *)to + index * types[type].bytes, &bits, types[type].bytes);
}

bool value_is(const void *at, size_t index, ncclDataType_t type, double value)
{
	unsigned long long bits = encode(type, value);

	return !memcmp((const char *)at + index * types[type].bytes, &bits, types[type].bytes);
}
