/*
 * call_cost.c - the calls whose instructions, loads and stores, system calls and allocations
 * tests/scripts/guards.sh counts
 *
 *   call_cost calls WINDOWS CALLS CALL BYTES [CALL BYTES ...]     one rank, joined by the
 *           environment. Callgrind counts inside guarded_call; for strace, a close of an invalid
 *           descriptor marks the begin and the end of each window of CALLS calls. TT_GUARD_LATE_US: sleep before each
 *           call, so that the messages of other ranks have arrived
 *   call_cost allocations NP TRANSPORT          forks its ranks; prints the allocations of a join, and
 *           of 20 calls of each kind with planned shapes, counted in malloc
 *   call_cost build                             exit 0 where instructions may be counted: an
 *           optimized build without sanitizer
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/support/malloc_count.h"
#include "tests/support/ranks.h"
#include "tutti.h"

#define LIBRARY_MEMORY "allreduce-library-memory"
#define MARK_BEFORE (-1000)
#define MARK_AFTER (-1001)

/* ---- calls ----------------------------------------------------------------------------------- */

struct cost_job {
	tuttiComm_t comm;
	tuttiStream_t stream;
	int rank, n;
	float *in, *out;
	size_t count;        /* floats of a message */
	bool library_memory; /* in and out are of tuttiMemAlloc */
};

typedef tuttiResult_t call_fn(struct cost_job *j);

static tuttiResult_t allreduce(struct cost_job *j)
{
	return tuttiAllReduce(j->in, j->out, j->count, tuttiFloat, tuttiSum, j->comm, j->stream);
}

static tuttiResult_t allreduce_in_place(struct cost_job *j)
{
	return tuttiAllReduce(j->out, j->out, j->count, tuttiFloat, tuttiSum, j->comm, j->stream);
}

static tuttiResult_t broadcast(struct cost_job *j)
{
	return tuttiBcast(j->out, j->count, tuttiFloat, 0, j->comm, j->stream);
}

static tuttiResult_t allgather(struct cost_job *j)
{
	return tuttiAllGather(j->in, j->out, j->count / (size_t)j->n, tuttiFloat, j->comm,
			      j->stream);
}

static tuttiResult_t reduce_scatter(struct cost_job *j)
{
	return tuttiReduceScatter(j->in, j->out, j->count / (size_t)j->n, tuttiFloat, tuttiSum,
				  j->comm, j->stream);
}

static tuttiResult_t reduce(struct cost_job *j)
{
	return tuttiReduce(j->in, j->out, j->count, tuttiFloat, tuttiSum, 0, j->comm, j->stream);
}

static tuttiResult_t alltoall(struct cost_job *j)
{
	return tuttiAlltoAll(j->in, j->out, j->count / (size_t)j->n, tuttiFloat, j->comm,
			     j->stream);
}

static tuttiResult_t gather(struct cost_job *j)
{
	return tuttiGather(j->in, j->out, j->count / (size_t)j->n, tuttiFloat, 0, j->comm,
			   j->stream);
}

static tuttiResult_t scatter(struct cost_job *j)
{
	return tuttiScatter(j->in, j->out, j->count / (size_t)j->n, tuttiFloat, 0, j->comm,
			    j->stream);
}

/* Buffers that begin one element behind a cache line. */
static tuttiResult_t allreduce_odd(struct cost_job *j)
{
	return tuttiAllReduce(j->in + 1, j->out + 1, j->count, tuttiFloat, tuttiSum, j->comm,
			      j->stream);
}

static tuttiResult_t group(struct cost_job *j)
{
	tuttiResult_t rc = tuttiGroupStart(), end;

	for (int i = 0; i < 3 && !rc; i++)
		rc = allreduce(j);
	end = tuttiGroupEnd();
	return rc ? rc : end;
}

static tuttiResult_t exchange(struct cost_job *j)
{
	int next = (j->rank + 1) % j->n, before = (j->rank + j->n - 1) % j->n;
	tuttiResult_t rc = tuttiGroupStart(), end;

	if (!rc)
		rc = tuttiSend(j->in, j->count, tuttiFloat, next, j->comm, j->stream);
	if (!rc)
		rc = tuttiRecv(j->out, j->count, tuttiFloat, before, j->comm, j->stream);
	end = tuttiGroupEnd();
	return rc ? rc : end;
}

static const struct {
	const char *name;
	call_fn *call;
} calls[] = {
	{ "allreduce", allreduce },
	{ "allreduce-in-place", allreduce_in_place },
	{ LIBRARY_MEMORY, allreduce },
	{ "broadcast", broadcast },
	{ "allgather", allgather },
	{ "reduce-scatter", reduce_scatter },
	{ "reduce", reduce },
	{ "alltoall", alltoall },
	{ "gather", gather },
	{ "scatter", scatter },
	{ "allreduce-odd", allreduce_odd },
	{ "group", group },
	{ "exchange", exchange },
};
enum { NCALLS = sizeof(calls) / sizeof(calls[0]) };

static int open_job(struct cost_job *j, size_t bytes)
{
	void *in, *out;

	j->count = bytes / sizeof(float);
	if (j->library_memory
		    ? tuttiMemAlloc(&in, bytes + 4096) || tuttiMemAlloc(&out, bytes + 4096)
		    : posix_memalign(&in, 4096, bytes + 4096) ||
			      posix_memalign(&out, 4096, bytes + 4096))
		return 1;
	memset(in, 0, bytes + 4096);
	memset(out, 0, bytes + 4096);
	j->in = in;
	j->out = out;
	return tuttiCommUserRank(j->comm, &j->rank) || tuttiCommCount(j->comm, &j->n);
}

static void close_job(struct cost_job *j)
{
	if (j->library_memory) {
		tuttiMemFree(j->in);
		tuttiMemFree(j->out);
		return;
	}
	free(j->in);
	free(j->out);
}

static int report(const char *what, tuttiResult_t rc)
{
	if (rc)
		fprintf(stderr, "%s: %s\n", what, tuttiGetLastError(NULL));
	return rc != tuttiSuccess;
}

/* ---- call_cost calls ------------------------------------------------------------------------- */

/* Callgrind counts inside this function, and dumps its counts after each call. */
__attribute__((noinline)) static tuttiResult_t guarded_call(struct cost_job *j, call_fn *call)
{
	return call(j);
}

static int window(struct cost_job *j, call_fn *call, int ncalls)
{
	const char *late = getenv("TT_GUARD_LATE_US");
	tuttiResult_t rc = tuttiSuccess;

	close(MARK_BEFORE);
	for (int i = 0; i < ncalls && !rc; i++) {
		if (late && *late)
			usleep((useconds_t)atoi(late));
		rc = guarded_call(j, call);
	}
	close(MARK_AFTER);
	return report("call", rc);
}

static int run_call(tuttiComm_t comm, const char *name, size_t bytes, int windows, int ncalls)
{
	struct cost_job j = { .comm = comm };
	int which = 0, rc;

	j.library_memory = !strcmp(name, LIBRARY_MEMORY);
	while (which < NCALLS && strcmp(calls[which].name, name))
		which++;
	if (which == NCALLS || open_job(&j, bytes))
		return 2;
	rc = report(name, calls[which].call(&j));
	for (int i = 0; i < windows && !rc; i++)
		rc = window(&j, calls[which].call, ncalls);
	close_job(&j);
	return rc;
}

/* list: CALL BYTES CALL BYTES ... */
static int run_calls(int windows, int ncalls, char **list)
{
	tuttiComm_t comm;
	int rc = 0;

	if (report("join", tuttiCommInitEnv(&comm, NULL)))
		return 2;
	for (; list[0] && list[1] && !rc; list += 2)
		rc = run_call(comm, list[0], (size_t)atoll(list[1]), windows, ncalls);
	return report("leave", tuttiCommDestroy(comm)) || rc;
}

/* ---- call_cost allocations ------------------------------------------------------------------- */

/* Allocations of 20 calls with a planned shape: the minimum of five rounds, because the service
 * thread may allocate meanwhile. */
static long count(struct cost_job *j, call_fn *call, int *ret_rc)
{
	long least = -1;

	for (int again = 0; again < 6 && !*ret_rc; again++) {
		long before = (long)allocations, now;

		for (int i = 0; i < 20 && !*ret_rc; i++)
			*ret_rc = (int)call(j);
		if (j->stream && !*ret_rc)
			*ret_rc = (int)tuttiStreamSynchronize(j->stream);
		now = (long)allocations - before;
		if (again > 0 && (least < 0 || now < least))
			least = now;
	}
	return least;
}

static int count_all(tuttiComm_t *comm, int rank, int n, void *transport)
{
	static const size_t sizes[] = { 8, 1024, 65536 };
	struct cost_job j = { .comm = *comm, .rank = rank, .n = n };
	tuttiStream_t stream;
	int rc;

	if (rank == 0) /* with the few of the parent before the fork */
		printf("%s blocking join 0 %ld\n", (const char *)transport, (long)allocations);
	rc = report("stream", tuttiStreamCreate(&stream)) || open_job(&j, 64 << 10);
	for (int k = 0; k < 6 && !rc; k++) {
		bool on_stream = k % 2;
		size_t bytes = sizes[k / 2];

		j.stream = on_stream ? stream : NULL;
		j.count = bytes / sizeof(float);
		for (int i = 0; i < NCALLS && !rc; i++) {
			long found = count(&j, calls[i].call, &rc);

			if (rank == 0)
				printf("%s %s %s %zu %ld\n", (const char *)transport,
				       on_stream ? "stream" : "blocking", calls[i].name, bytes,
				       found);
		}
	}
	fflush(stdout);
	report("call", (tuttiResult_t)rc);
	close_job(&j);
	return report("stream", tuttiStreamDestroy(stream)) || rc;
}

static int count_allocations(int np, char *transport)
{
	struct ranks r = { .n = np, .transport = transport, .arg = transport };

	if (!COUNTED) {
		fprintf(stderr, "malloc is not counted in this build\n");
		return 77;
	}
	return ranks_run(&r, count_all) != 0;
}

int main(int argc, char **argv)
{
	if (argc >= 6 && argc % 2 == 0 && !strcmp(argv[1], "calls"))
		return run_calls(atoi(argv[2]), atoi(argv[3]), argv + 4);
	if (argc == 4 && !strcmp(argv[1], "allocations"))
		return count_allocations(atoi(argv[2]), argv[3]);
	if (argc == 2 && !strcmp(argv[1], "build")) {
#ifdef __OPTIMIZE__
		return !COUNTED;
#else
		return 1;
#endif
	}
	fprintf(stderr,
		"usage: call_cost calls WINDOWS CALLS CALL BYTES ... | call_cost allocations NP TRANSPORT | call_cost build\n");
	return 2;
}
