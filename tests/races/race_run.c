/*
 * race_run.c - calls, groups, streams and abort concurrently, ranks as threads, for ThreadSanitizer
 *
 * Each rank makes calls on two streams and without a stream, while a second thread of the rank
 * queries the communicator and the streams. The sizes cover every path of an allreduce: slots in
 * shared memory, single copy, messages. Then a thread without calls aborts a communicator with
 * queued calls; the other communicator continues.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "tests/races/race_maps.h"
#include "tests/support/ranks.h"

#define RANKS 3
#define ROUNDS 4
#define MOST 40000u

static const size_t counts[] = { 1, 50, 3000, MOST };

#define MUST(call) do { if (call) return failed(__LINE__, #call); } while (0)
#define WANT(cond) do { if (!(cond)) return failed(__LINE__, #cond); } while (0)

static int failed(int line, const char *what)
{
	printf("# line %d: %s: %s\n", line, what, tuttiGetLastError(NULL));
	return 1;
}

struct race_run_watch { tuttiComm_t comm; tuttiStream_t a, b; atomic_bool stop; };

static void *query(void *arg)
{
	struct race_run_watch *w = arg;
	tuttiResult_t state;

	while (!atomic_load(&w->stop)) {
		if (tuttiCommGetAsyncError(w->comm, &state) || state || !tuttiGetLastError(w->comm))
			return (void *)1;
		tuttiStreamQuery(w->a);
		tuttiStreamQuery(w->b);
		usleep(300);
	}
	return NULL;
}

struct race_buffers { float *a, *b, *c, sent, got; };

static void fill(float *x, size_t count, float value)
{
	for (size_t i = 0; i < count; i++)
		x[i] = value;
}

static bool is_sum(const float *x, size_t count, float times)
{
	for (size_t i = 0; i < count; i++)
		if (x[i] != times * RANKS * (RANKS + 1) / 2)
			return false;
	return true;
}

static int round_of_all(struct race_run_watch *w, struct race_buffers *x, int rank, size_t count)
{
	fill(x->a, count, (float)(rank + 1));
	fill(x->b, count, (float)(2 * (rank + 1)));
	fill(x->c, count, (float)(3 * (rank + 1)));
	x->sent = (float)rank;
	MUST(tuttiAllReduce(x->a, x->a, count, tuttiFloat32, tuttiSum, w->comm, w->a));
	MUST(tuttiAllReduce(x->b, x->b, count, tuttiFloat32, tuttiSum, w->comm, w->b));
	MUST(tuttiGroupStart());
	MUST(tuttiSend(&x->sent, 1, tuttiFloat32, (rank + 1) % RANKS, w->comm, w->a));
	MUST(tuttiRecv(&x->got, 1, tuttiFloat32, (rank + RANKS - 1) % RANKS, w->comm, w->a));
	MUST(tuttiGroupEnd());
	MUST(tuttiAllReduce(x->c, x->c, count, tuttiFloat32, tuttiSum, w->comm, NULL));
	WANT(is_sum(x->c, count, 3));
	MUST(tuttiStreamSynchronize(w->b));
	MUST(tuttiStreamSynchronize(w->a));
	WANT(is_sum(x->a, count, 1) && is_sum(x->b, count, 2) &&
	     x->got == (float)((rank + RANKS - 1) % RANKS));
	return 0;
}

static int all_rounds(struct race_run_watch *w, struct race_buffers *x, int rank)
{
	pthread_t watcher;
	void *queried;
	int bad = 0;

	WANT(!pthread_create(&watcher, NULL, query, w));
	for (int i = 0; i < ROUNDS && !bad; i++)
		for (size_t k = 0; k < sizeof(counts) / sizeof(counts[0]) && !bad; k++)
			bad = round_of_all(w, x, rank, counts[k]);
	atomic_store(&w->stop, true);
	pthread_join(watcher, &queried);
	return bad || queried;
}

static void *abort_soon(void *comm)
{
	usleep(2000);
	return (void *)(size_t)tuttiCommAbort(comm);
}

/* Make calls until the abort, by this rank or another rank, ends the calls. */
static int aborted(struct race_run_watch *w, struct race_buffers *x, int rank)
{
	tuttiResult_t rc = tuttiSuccess;
	pthread_t other;
	tuttiComm_t c;
	void *result;

	MUST(tuttiCommSplit(w->comm, 0, rank, &c, NULL));
	if (rank == 1)
		WANT(!pthread_create(&other, NULL, abort_soon, c));
	for (int i = 0; !rc; i++) {
		rc = tuttiAllReduce(x->a, x->a, counts[i % 3], tuttiFloat32, tuttiSum, c, w->a);
		if (!rc)
			rc = tuttiAllReduce(x->b, x->b, counts[i % 3], tuttiFloat32, tuttiSum, c,
					    w->b);
		if (!rc)
			rc = tuttiAllReduce(x->c, x->c, counts[i % 3], tuttiFloat32, tuttiSum, c,
					    NULL);
	}
	tuttiStreamSynchronize(w->a);
	tuttiStreamSynchronize(w->b);
	if (rank == 1) {
		pthread_join(other, &result);
		WANT(!result);
	} else {
		MUST(tuttiCommAbort(c));
	}
	return 0;
}

/* The same without streams: the fast paths of a call, which take no lock. */
static int aborted_without_streams(struct race_run_watch *w, struct race_buffers *x, int rank)
{
	tuttiResult_t rc = tuttiSuccess;
	pthread_t other;
	tuttiComm_t c;
	void *result;

	MUST(tuttiCommSplit(w->comm, 0, rank, &c, NULL));
	if (rank == 2)
		WANT(!pthread_create(&other, NULL, abort_soon, c));
	for (int i = 0; !rc; i++) {
		rc = tuttiBroadcast(x->c, x->c, counts[i % 3], tuttiFloat32, i % RANKS, c, NULL);
		if (!rc)
			rc = tuttiAllReduce(x->c, x->c, counts[i % 3], tuttiFloat32, tuttiSum, c,
					    NULL);
		if (!rc)
			rc = tuttiReduce(x->a, x->b, counts[i % 3], tuttiFloat32, tuttiSum,
					 i % RANKS, c, NULL);
	}
	if (rank == 2) {
		pthread_join(other, &result);
		WANT(!result);
	} else {
		MUST(tuttiCommAbort(c));
	}
	return 0;
}

static int work(tuttiComm_t *comm, int rank, int n, void *arg)
{
	struct race_buffers x = { 0 };
	struct race_run_watch w = { .comm = *comm };
	int bad;

	(void)n, (void)arg;
	MUST(tuttiMemAlloc((void **)&x.a, MOST * sizeof(float)));
	MUST(tuttiMemAlloc((void **)&x.b, MOST * sizeof(float)));
	WANT((x.c = malloc(MOST * sizeof(float))));
	MUST(tuttiStreamCreate(&w.a));
	MUST(tuttiStreamCreate(&w.b));
	bad = all_rounds(&w, &x, rank) || aborted(&w, &x, rank) || aborted_without_streams(&w, &x, rank);
	MUST(tuttiAllReduce(x.c, x.c, 1, tuttiFloat32, tuttiSum, *comm, NULL));
	MUST(tuttiStreamDestroy(w.a));
	MUST(tuttiStreamDestroy(w.b));
	MUST(tuttiMemFree(x.a));
	MUST(tuttiMemFree(x.b));
	free(x.c);
	return bad;
}

int main(void)
{
	static const char *const transports[] = { "shm", "tcp" }, *const algos[] = { "auto",
										     "two-shot",
										     "ring" };
	int wrong = 0;

	race_maps_share();
	for (int t = 0; t < 2; t++)
		for (int a = 0; a < 3; a++) {
			struct ranks r = { .n = RANKS, .threads = true, .transport = transports[t],
					   .algo = algos[a] };
			int bad = ranks_run(&r, work) != 0;

			printf("%s - concurrent calls, streams and abort, %s, %s\n",
			       bad ? "not ok" : "ok", transports[t], algos[a]);
			wrong += bad;
		}
	return wrong != 0;
}
