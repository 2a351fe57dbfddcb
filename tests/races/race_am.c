/*
 * race_am.c - messages, quorum allreduces and shrink concurrently, ranks as threads, for
 * ThreadSanitizer
 *
 * Each rank has a server thread and a client thread, which exchange messages, and a thread for
 * quorum allreduces, while the main thread runs allreduces. Then the ranks shrink the communicator
 * and abort the old one while a receiver waits.
 */
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/comm.h"
#include "am/am_internal.h"
#include "tests/support/ranks.h"

#define RANKS 3
#define ROUNDS 40
#define BYTES 30000

enum { ASK = 1, ANSWER, NEVER };

static int failed(int line)
{
	printf("# line %d: %s\n", line, tuttiGetLastError(NULL));
	return 1;
}
#define MUST(call)                                                 \
	do {                                                       \
		if (call)                                          \
			return (void *)(intptr_t)failed(__LINE__); \
	} while (0)
#define WANT(cond)                               \
	do {                                     \
		if (!(cond))                     \
			return failed(__LINE__); \
	} while (0)

static void *serve(void *arg)
{
	unsigned char *data = malloc(BYTES);
	tuttiMsg_t m;

	for (int i = 0; i < RANKS * ROUNDS; i++) {
		MUST(tuttiMsgRecv(data, BYTES, TUTTI_ANY, ASK, -1, arg, &m));
		MUST(tuttiMsgSend(data, m.bytes, m.source, ANSWER, m.version, arg));
	}
	free(data);
	return NULL;
}

static void *ask(void *arg)
{
	unsigned char *data = calloc(1, BYTES);
	tuttiMsg_t m;

	for (int i = 0; i < ROUNDS; i++)
		for (int p = 0; p < RANKS; p++) {
			MUST(tuttiMsgSend(data, (size_t)(i * 700), p, ASK, (uint64_t)i, arg));
			MUST(tuttiMsgRecv(data, BYTES, p, ANSWER, -1, arg, &m));
			MUST(m.bytes != (size_t)(i * 700) || m.version != (uint64_t)i);
		}
	free(data);
	return NULL;
}

static void *wait_in_vain(void *arg)
{
	tuttiMsg_t m;

	MUST(tuttiMsgRecv(NULL, 0, TUTTI_ANY, NEVER, 60000, arg, &m) != tuttiRemoteError);
	return NULL;
}

/* Wait until the receiver is posted: an abort before that would leave its call no communicator. */
static void await_receiver(tuttiComm_t comm)
{
	struct tt_am *am = comm->am;
	bool waits = false;

	while (!waits) {
		sched_yield();
		pthread_mutex_lock(am->lock);
		waits = am->posted != NULL;
		pthread_mutex_unlock(am->lock);
	}
}

static int body(tuttiComm_t *comm, int rank, int nranks, void *arg)
{
	pthread_t threads[2], receiver;
	tuttiComm_t next;
	float x[500] = { 0 };
	void *result;

	(void)arg;
	WANT(!pthread_create(&threads[0], NULL, serve, *comm) &&
	     !pthread_create(&threads[1], NULL, ask, *comm));
	for (int i = 0; i < ROUNDS; i++) {
		WANT(!tuttiAllReduceQuorum(x, x, 500, tuttiFloat32, tuttiSum, nranks - 1, 0, *comm,
					   NULL, NULL));
		WANT(!tuttiAllReduce(x, x, 500, tuttiFloat32, tuttiMin, *comm, NULL));
	}
	for (int i = 0; i < 2; i++) {
		pthread_join(threads[i], &result);
		WANT(!result);
	}
	WANT(!tuttiBarrier(*comm, NULL));
	WANT(!pthread_create(&receiver, NULL, wait_in_vain, *comm));
	await_receiver(*comm);
	WANT(!tuttiCommShrink(*comm, NULL, 0, &next, NULL, TUTTI_SHRINK_DEFAULT));
	x[0] = (float)rank;
	WANT(!tuttiAllReduce(x, x, 1, tuttiFloat32, tuttiSum, next, NULL) && x[0] == 3);
	WANT(!tuttiCommAbort(*comm));
	*comm = next;
	pthread_join(receiver, &result);
	return result != NULL;
}

int main(void)
{
	struct ranks r = { .n = RANKS, .threads = true };
	int bad = 0;

	for (int i = 0; i < 3; i++)
		bad += ranks_run(&r, body);
	printf("%s 1 - messages, quorum allreduces and shrink run concurrently\n1..1\n",
	       bad ? "not ok" : "ok");
	return bad != 0;
}
