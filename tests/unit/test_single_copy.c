/*
 * test_single_copy.c - single copy: large collectives that read the buffers of peers give the same
 * bits as messages
 *
 * Modes: slots (TUTTI_CMA=off, ordinary memory), process_vm_readv (TUTTI_CMA=on), trials of both
 * (TUTTI_CMA=auto), windows (tuttiMemAlloc); ranks as processes and as threads. Every mode gives
 * every rank the bits of the first mode; the counter of read bytes shows which mode was used.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "comm/comm.h"
#include "local/single_copy.h"
#include "mem/reduce.h"
#include "tests/support/must.h"
#include "tests/support/ranks.h"

#define MAX_BYTES (600u << 10)

enum memory { ORDINARY, WINDOWS, MIXED };

struct single_copy_mode {
	const char *cma;
	enum memory memory;
	bool threads;
	/* does the rank read peers' memory? PERHAPS: auto tries both modes if there are cores */
	enum { NOT, READS, PERHAPS } reads;
};

/* Does the count of read bytes contradict the mode? */
static bool contradicts_mode(const struct single_copy_mode *w, uint64_t bytes)
{
	return w->reads != PERHAPS && (bytes > 0) != (w->reads == READS);
}

/* Shared by the ranks of all runs: the first run writes the hashes of the results, the others
 * compare. */
struct single_copy_results {
	_Atomic unsigned long long hash[4096];
};

struct single_copy_task {
	const struct single_copy_mode *mode;
	struct single_copy_results *results;
	bool first;
};

static unsigned long long hash_of(const void *p, size_t bytes)
{
	const unsigned char *b = p;
	unsigned long long h = 1469598103934665603ull;

	for (size_t i = 0; i < bytes; i++)
		h = (h ^ b[i]) * 1099511628211ull;
	return h;
}

static void *get(const struct single_copy_mode *w, int rank, size_t bytes)
{
	void *p = NULL;

	if (w->memory == WINDOWS || (w->memory == MIXED && rank % 2))
		return tuttiMemAlloc(&p, bytes) ? NULL : p;
	return malloc(bytes);
}

static void put(const struct single_copy_mode *w, int rank, void *p)
{
	if (w->memory == WINDOWS || (w->memory == MIXED && rank % 2))
		tuttiMemFree(p);
	else
		free(p);
}

static void fill(void *p, size_t count, tuttiDataType_t type, unsigned long long seed)
{
	for (size_t i = 0; i < count; i++) {
		unsigned long long z = random_of(seed, i);

		if (tt_type_is_integer(type))
			memcpy((char *)p + i * tt_type_bytes(type), &z, tt_type_bytes(type));
		else
			tt_element_set(p, i, type, (double)(long long)(z >> 40) / 65536 - 100);
	}
}

static const struct {
	tuttiDataType_t type;
	tuttiRedOp_t op;
	size_t bytes, shift;
	bool in_place;
} calls[] = {
	{ tuttiFloat32, tuttiSum, 64u << 10, 0, false },
	{ tuttiFloat32, tuttiSum, MAX_BYTES, 0, true },
	{ tuttiFloat32, tuttiSum, 100004, 4, false },
	{ tuttiFloat32, tuttiSum, 100004, 3, true },
	{ tuttiFloat64, tuttiProd, 300000, 8, false },
	{ tuttiBfloat16, tuttiSum, 200002, 1, true },
	{ tuttiFloat16, tuttiAvg, 131072, 0, false },
	{ tuttiInt8, tuttiMax, 70001, 0, false },
	{ tuttiUint64, tuttiBxor, 400000, 0, true },
	{ tuttiFloat8e4m3, tuttiSum, 99999, 5, false },
	{ tuttiInt32, tuttiAvg, 80000, 0, true },
};
#define CALLS (sizeof(calls) / sizeof(calls[0]))

static int reduce_all(tuttiComm_t *comm, int rank, int n, void *arg)
{
	const struct single_copy_task *t = arg;
	char *in = get(t->mode, rank, MAX_BYTES + 64), *out = get(t->mode, rank, MAX_BYTES + 64);
	tuttiCounters_t counters = { .size = sizeof(counters) };
	int bad = 0;

	for (size_t i = 0; i < 2 * CALLS && !bad; i++) {
		size_t k = i % CALLS, bytes = tt_type_bytes(calls[k].type),
		       count = calls[k].bytes / bytes;
		char *to = calls[k].in_place ? in + calls[k].shift : out + calls[k].shift;
		_Atomic unsigned long long *expected = &t->results->hash[(size_t)n * 64 + k];

		fill(in + calls[k].shift, count, calls[k].type, 1000 * k + (unsigned)rank);
		bad = tuttiAllReduce(in + calls[k].shift, to, count, calls[k].type, calls[k].op,
				     *comm, NULL);
		if (t->first && rank == 0 && i == k)
			*expected = hash_of(to, count * bytes);
		tuttiBarrier(*comm, NULL);
		if (!bad && hash_of(to, count * bytes) != *expected) {
			fprintf(stderr, "rank %d of %d: call %zu has other bits\n", rank, n, k);
			bad = 1;
		}
	}
	bad |= tuttiCommGetCounters(*comm, &counters) ||
	       contradicts_mode(t->mode, counters.read_bytes);
	if (bad)
		fprintf(stderr, "rank %d of %d: cma %s, memory %d, read %llu bytes: %s\n", rank, n,
			t->mode->cma, t->mode->memory, (unsigned long long)counters.read_bytes,
			tuttiGetLastError(*comm));
	put(t->mode, rank, in);
	put(t->mode, rank, out);
	return bad;
}

/* Do two ranks share a core? Then only messages are used. */
static bool is_crowded(void)
{
	cpu_set_t cores;

	return !sched_getaffinity(0, sizeof(cores), &cores) && CPU_COUNT(&cores) < 2;
}

/* Large calls of two ranks try every way; those by slots take several posts, no message, and read no
 * memory of the peer. Four posts are those of two pieces; more are an exchange of addresses, which ends
 * after some exchanges in vain, but for a few calls. */
static int sum_pairs(tuttiComm_t *comm, int rank, int n, void *arg)
{
	static int32_t in[MAX_BYTES / 4], out[MAX_BYTES / 4];
	tuttiCounters_t before = { .size = sizeof(before) }, after = { .size = sizeof(after) };
	int by_slots = 0, exchanges = 0;

	(void)n, (void)arg;
	for (int i = 0; i < 40; i++) {
		size_t count = MAX_BYTES / 4 - (size_t)(i % 5);
		uint64_t seed = (uint64_t)i * 2, rounds = (*comm)->calls.rounds.now;

		for (size_t k = 0; k < count; k++)
			in[k] = (int32_t)random_of(seed + (unsigned)rank, k);
		WANT(!tuttiCommGetCounters(*comm, &before));
		MUST(tuttiAllReduce(in, out, count, tuttiInt32, tuttiSum, *comm, NULL));
		WANT(!tuttiCommGetCounters(*comm, &after));
		exchanges += (*comm)->calls.rounds.now - rounds > 4;
		by_slots += after.messages == before.messages &&
			    after.read_bytes == before.read_bytes;
		for (size_t k = 0; k < count; k++)
			WANT((uint32_t)out[k] ==
			     (uint32_t)random_of(seed, k) + (uint32_t)random_of(seed + 1, k));
	}
	WANT(by_slots >= 3 || is_crowded());
	WANT(exchanges <= 6 || is_crowded());
	return 0;
}

Test(single_copy, pairs_try_slots_for_large_calls, .timeout = 100)
{
	static const char *const modes[] = { "auto", "off" };

	for (int i = 0; i < 2; i++) {
		struct ranks r = { .n = 2, .transport = "shm", .algo = "two-shot" };

		setenv("TUTTI_CMA", modes[i], 1);
		cr_expect_eq(ranks_run(&r, sum_pairs), 0, "TUTTI_CMA=%s", modes[i]);
	}
}

/* Element i of the block from rank `from` to rank `to`; to 99: of the block for all ranks. */
static int element(int from, int to, size_t i)
{
	return from * 1000003 + to * 7919 + (int)(i % 65521);
}

static void fill_parts(int *p, int rank, int first, int n, size_t count)
{
	for (int to = first; to < first + n; to++)
		for (size_t i = 0; i < count; i++)
			p[(size_t)(to - first) * count + i] = element(rank, to, i);
}

static bool holds(const int *p, int from, int to, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (p[i] != element(from, to, i))
			return false;
	return true;
}

/* Two ranks on windows: an allreduce tries slots, whose calls read nothing, as well as reading, a gather messages; an
 * allgather only reads. */
static int try_windows(tuttiComm_t *comm, int rank, int n, void *arg)
{
	enum { COUNT = MAX_BYTES / sizeof(int), TRIES = 12 };
	static const struct single_copy_mode windows = { .memory = WINDOWS };
	int *in = get(&windows, rank, MAX_BYTES), *out = get(&windows, rank, 2 * MAX_BYTES);
	tuttiCounters_t before = { .size = sizeof(before) }, after = { .size = sizeof(after) };
	int read[3] = { 0 };

	(void)n, (void)arg;
	WANT(in && out);
	for (int i = 0; i < 3 * TRIES; i++) {
		fill_parts(in, rank + i, 99, 1, COUNT);
		WANT(!tuttiCommGetCounters(*comm, &before));
		if (i < TRIES) {
			MUST(tuttiAllReduce(in, out, COUNT, tuttiInt32, tuttiMax, *comm, NULL));
			WANT(holds(out, 1 + i, 99, COUNT));
		} else if (i < 2 * TRIES) {
			MUST(tuttiAllGather(in, out, COUNT, tuttiInt32, *comm, NULL));
			WANT(holds(out, i, 99, COUNT) && holds(out + COUNT, 1 + i, 99, COUNT));
		} else {
			MUST(tuttiGather(in, out, COUNT, tuttiInt32, 0, *comm, NULL));
			WANT(rank ||
			     (holds(out, i, 99, COUNT) && holds(out + COUNT, 1 + i, 99, COUNT)));
		}
		WANT(!tuttiCommGetCounters(*comm, &after));
		WANT(i >= 2 * TRIES || before.messages == after.messages);
		read[i / TRIES] += after.read_bytes > before.read_bytes;
	}
	WANT(read[0] > 0 && read[0] < TRIES && read[1] == TRIES);
	WANT(rank || tt_smsc_crowded(*comm) || (read[2] > 0 && read[2] < TRIES));
	put(&windows, rank, in);
	put(&windows, rank, out);
	return 0;
}

Test(single_copy, pairs_try_slots_and_messages_for_windows, .timeout = 100)
{
	struct ranks r = { .n = 2, .transport = "shm", .algo = "two-shot" };

	cr_expect_eq(ranks_run(&r, try_windows), 0);
}

/* Slots take an alltoall of two ranks, and of ranks that share cores; long ones try reading, too: not parts of 512 KiB of
 * two ranks with a core each. */
static int try_alltoalls(tuttiComm_t *comm, int rank, int n, void *arg)
{
	enum { MOST = (2 << 20) / sizeof(int) + 5, TRIES = 12 };
	static int in[4 * MOST], out[4 * MOST];
	const size_t count = *(const size_t *)arg;
	bool tried = count == MOST || tt_smsc_crowded(*comm);
	tuttiCounters_t before = { .size = sizeof(before) }, after = { .size = sizeof(after) };
	int read = 0;

	for (int i = 0; i < TRIES; i++) {
		fill_parts(in, rank + i, 0, n, count);
		WANT(!tuttiCommGetCounters(*comm, &before));
		MUST(tuttiAlltoAll(in, out, count, tuttiInt32, *comm, NULL));
		WANT(!tuttiCommGetCounters(*comm, &after));
		for (int from = 0; from < n; from++)
			WANT(holds(out + (size_t)from * count, from + i, rank, count));
		WANT(before.messages == after.messages);
		read += after.read_bytes > before.read_bytes;
	}
	WANT(read < TRIES);
	WANT((*comm)->single_copy->memory != TT_SMSC_READABLE || (read > 0) == tried);
	return 0;
}

Test(single_copy, long_alltoalls_try_reading_and_slots, .timeout = 100)
{
	size_t counts[] = { (512 << 10) / sizeof(int), (2 << 20) / sizeof(int) + 5 };

	cr_assert(ranks_on_two_cores());
	for (int i = 0; i < 4; i++) {
		struct ranks r = { .n = i < 2 ? 2 : 4, .transport = "shm", .arg = &counts[i % 2] };

		cr_expect_eq(ranks_run(&r, try_alltoalls), 0, "%d ranks, %zu elements", r.n,
			     counts[i % 2]);
	}
}

static struct single_copy_results *new_results(void)
{
	return mmap(NULL, sizeof(struct single_copy_results), PROT_READ | PROT_WRITE,
		    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
}

Test(single_copy, every_mode_gives_the_bits_that_messages_give, .timeout = 200)
{
	static const struct single_copy_mode modes[] = {
		{ "off", ORDINARY, false, NOT },  { "on", ORDINARY, false, READS },
		{ "off", WINDOWS, false, READS }, { "on", MIXED, false, READS },
		{ "off", MIXED, false, NOT },     { "off", ORDINARY, true, NOT },
		{ "on", ORDINARY, true, READS },  { "auto", ORDINARY, false, PERHAPS },
		{ "auto", WINDOWS, true, READS },
	};
	struct single_copy_results *results = new_results();
	int most = getenv("TUTTI_TEST_FEWER") ? 3 : 8;

	for (int n = 2; n <= most; n += n < 4 ? 1 : 4)
		for (size_t w = 0; w < sizeof(modes) / sizeof(modes[0]); w++) {
			struct single_copy_task t = { .mode = &modes[w],
						      .results = results,
						      .first = w == 0 };
			struct ranks r = { .n = n,
					   .transport = "shm",
					   .threads = modes[w].threads,
					   .algo = "two-shot",
					   .arg = &t };

			setenv("TUTTI_CMA", modes[w].cma, 1);
			cr_expect_eq(ranks_run(&r, reduce_all), 0, "n %d, mode %zu", n, w);
		}
	unsetenv("TUTTI_CMA");
	munmap(results, sizeof(*results));
}

/* Every collective but allreduce, out of place and in place, with every root. */
static int move_around(tuttiComm_t *comm, int rank, int n, void *arg)
{
	const struct single_copy_mode *w = ((const struct single_copy_task *)arg)->mode;
	const size_t count = 70001, all = (size_t)n * count; /* more than a slot has */
	int *in = get(w, rank, all * sizeof(int)), *out = get(w, rank, all * sizeof(int)), bad = 0,
	    at = 0;
	tuttiCounters_t counters = { .size = sizeof(counters) };

#define STEP(call, right)                         \
	do {                                      \
		at++;                             \
		if (!bad && ((call) || !(right))) \
			bad = at;                 \
	} while (0)
	for (int in_place = 0; in_place < 2 && !bad; in_place++) {
		int *o = in_place ? in : out;

		for (int root = 0; root < n; root++) {
			fill_parts(in, rank, 99, 1, count);
			STEP(tuttiBroadcast(in, o, count, tuttiInt32, root, *comm, NULL),
			     holds(o, root, 99, count));
			fill_parts(in_place ? in + rank * (int)count : in, rank, 99, 1, count);
			STEP(tuttiGather(in_place ? in + rank * (int)count : in, o, count,
					 tuttiInt32, root, *comm, NULL),
			     rank != root || (holds(o, 0, 99, count) &&
					      holds(o + all - count, n - 1, 99, count)));
			fill_parts(in, rank, 0, n, count);
			STEP(tuttiScatter(in,
					  in_place && rank == root ? in + rank * (int)count : out,
					  count, tuttiInt32, root, *comm, NULL),
			     holds(in_place && rank == root ? in + rank * (int)count : out, root,
				   rank, count));
		}
		fill_parts(in_place ? in + rank * (int)count : in, rank, 99, 1, count);
		STEP(tuttiAllGather(in_place ? in + rank * (int)count : in, o, count, tuttiInt32,
				    *comm, NULL),
		     holds(o, 0, 99, count) && holds(o + all - count, n - 1, 99, count));
		fill_parts(in, rank, 0, n, count);
		STEP(tuttiAlltoAll(in, o, count, tuttiInt32, *comm, NULL),
		     holds(o, 0, rank, count) && holds(o + all - count, n - 1, rank, count));
		fill_parts(in, rank, 0, n, count);
		o = in_place ? in + rank * (int)count : out;
		STEP(tuttiReduceScatter(in, o, count, tuttiInt32, tuttiMax, *comm, NULL),
		     holds(o, n - 1, rank, count));
	}
	bad |= tuttiCommGetCounters(*comm, &counters) || contradicts_mode(w, counters.read_bytes);
	if (bad)
		fprintf(stderr, "rank %d of %d: check %d, cma %s, memory %d, read %llu: %s\n", rank,
			n, bad, w->cma, w->memory, (unsigned long long)counters.read_bytes,
			tuttiGetLastError(*comm));
	put(w, rank, in);
	put(w, rank, out);
	return bad;
}

Test(single_copy, the_other_collectives_are_right_in_every_mode, .timeout = 200)
{
	static const struct single_copy_mode modes[] = {
		{ "off", ORDINARY, false, NOT },      { "on", ORDINARY, false, READS },
		{ "off", WINDOWS, false, READS },     { "on", MIXED, false, READS },
		{ "auto", ORDINARY, false, PERHAPS }, { "on", ORDINARY, true, READS },
	};

	for (int n = 2; n <= 4; n++)
		for (size_t i = 0; i < sizeof(modes) / sizeof(modes[0]); i++) {
			struct single_copy_task t = { .mode = &modes[i] };
			struct ranks r = {
				.n = n, .transport = "shm", .threads = modes[i].threads, .arg = &t
			};

			setenv("TUTTI_CMA", modes[i].cma, 1);
			cr_expect_eq(ranks_run(&r, move_around), 0, "n %d, mode %zu", n, i);
		}
	unsetenv("TUTTI_CMA");
}

/* Buffers are freed and allocated between calls, more than stay mapped; some calls mix windows and
 * ordinary memory. */
static int change_buffers(tuttiComm_t *comm, int rank, int n, void *arg)
{
	enum { N = 20000, MANY = 150 };
	float *many[MANY] = { NULL }, *ordinary = malloc(N * sizeof(float));
	int bad = 0;

	(void)arg;
	for (int round = 0; round < 2; round++)
		for (int i = 0; i < MANY && !bad; i++) {
			float *in, *out;

			if (many[i])
				tuttiMemFree(many[i]);
			if (tuttiMemAlloc((void **)&many[i], (N + 1) * sizeof(float)))
				return 1;
			in = (i + rank) % 5 ? many[i] : ordinary;
			out = i % 3 || i >= 140 ? NULL : many[(i + 7) % MANY];
			if (!out)
				out = in;
			for (int k = 0; k < N; k++)
				in[k] = (float)(rank + i + k % 100);
			bad = tuttiAllReduce(in, out, N, tuttiFloat32, tuttiSum, *comm, NULL);
			for (int k = 0; k < N && !bad; k++)
				bad = out[k] != (float)(n * (n - 1) / 2 + n * (i + k % 100));
			if (bad)
				fprintf(stderr, "rank %d, round %d, buffer %d: %s\n", rank, round,
					i, tuttiGetLastError(*comm));
		}
	for (int i = 0; i < MANY; i++)
		tuttiMemFree(many[i]);
	free(ordinary);
	return bad;
}

Test(single_copy, buffers_may_be_allocated_freed_and_mixed_between_calls, .timeout = 100)
{
	static const char *const cma[] = { "on", "off" };

	for (int i = 0; i < 2; i++)
		for (int n = 2; n <= 4; n++) {
			struct ranks r = { .n = n, .transport = "shm", .algo = "two-shot" };

			setenv("TUTTI_CMA", cma[i], 1);
			cr_expect_eq(ranks_run(&r, change_buffers), 0, "n %d, TUTTI_CMA=%s", n,
				     cma[i]);
		}
	unsetenv("TUTTI_CMA");
}

/* ---- ranks that share a core ----------------------------------------------------------------- */

static bool share_one_core(void)
{
	cpu_set_t may, one;
	int cpu = 0;

	if (sched_getaffinity(0, sizeof(may), &may))
		return false;
	while (!CPU_ISSET(cpu, &may))
		cpu++;
	CPU_ZERO(&one);
	CPU_SET(cpu, &one);
	return !sched_setaffinity(0, sizeof(one), &one);
}

/* Calls without a barrier in between: some ranks are late, and each rank overwrites its input as
 * soon as a call returns. */
static int run_ahead(tuttiComm_t *comm, int rank, int n, void *arg)
{
	enum { COUNT = 66000, CALLS_AHEAD = 160 };
	const struct single_copy_mode *w = arg;
	const size_t bytes = (size_t)n * COUNT * sizeof(int);
	int *in = get(w, rank, bytes), *out = get(w, rank, bytes), bad = 0, ones = 1, sum;
	tuttiCounters_t counters = { .size = sizeof(counters) };

	for (int i = 0; i < CALLS_AHEAD && !bad; i++) {
		int root = (int)(random_of(1, (unsigned)i) % (unsigned)n);

		fill_parts(in, rank + i, 0, n, COUNT);
		if (random_of((unsigned)rank + 2, (unsigned)i) % 8 == 0)
			usleep(2000);
		switch (random_of(3, (unsigned)i) % 6) {
		case 0:
			bad = tuttiAlltoAll(in, out, COUNT, tuttiInt32, *comm, NULL);
			for (int p = 0; p < n && !bad; p++)
				bad = !holds(out + (size_t)p * COUNT, p + i, rank, COUNT);
			break;
		case 1:
			bad = tuttiGather(in, out, COUNT, tuttiInt32, root, *comm, NULL);
			for (int p = 0; p < n && rank == root && !bad; p++)
				bad = !holds(out + (size_t)p * COUNT, p + i, 0, COUNT);
			break;
		case 2:
			bad = tuttiAllReduce(&ones, &sum, 1, tuttiInt32, tuttiSum, *comm, NULL) ||
			      sum != n;
			break;
		case 3:
			bad = tuttiScatter(in, out, COUNT, tuttiInt32, root, *comm, NULL) ||
			      !holds(out, root + i, rank, COUNT);
			break;
		default:
			bad = tuttiBroadcast(in, out, COUNT, tuttiInt32, root, *comm, NULL) ||
			      !holds(out, root + i, 0, COUNT);
		}
		memset(in, 0x55, bytes);
		if (bad)
			fprintf(stderr, "rank %d of %d: call %d: %s\n", rank, n, i,
				tuttiGetLastError(*comm));
	}
	bad |= tuttiCommGetCounters(*comm, &counters) || !counters.read_bytes;
	put(w, rank, in);
	put(w, rank, out);
	return bad;
}

static struct ranks sharing_ranks;

static int join_and_run_ahead(tuttiComm_t *comm, int rank, int n, void *arg)
{
	return !share_one_core() || tuttiCommInitRank(comm, n, sharing_ranks.id, rank) ||
	       run_ahead(comm, rank, n, arg);
}

Test(single_copy, ranks_that_share_a_core_need_no_barrier_between_calls, .timeout = 200)
{
	static struct single_copy_mode modes[] = { { "auto", ORDINARY, false, READS },
						   { "auto", MIXED, false, READS } };

	setenv("TUTTI_TRANSPORT", "shm", 1);
	for (int n = 2; n <= 5; n += 3)
		for (size_t i = 0; i < sizeof(modes) / sizeof(modes[0]); i++) {
			sharing_ranks = (struct ranks){ .n = n, .no_join = true, .arg = &modes[i] };
			cr_expect_eq(ranks_run(&sharing_ranks, join_and_run_ahead), 0,
				     "n %d, mode %zu", n, i);
		}
	unsetenv("TUTTI_TRANSPORT");
}

/* The kernel reads no secret memory for peers, as it reads no mapping of a device. */
static int sum_secrets(tuttiComm_t *comm, int rank, int n, void *arg)
{
	enum { COUNT = 70001 };
	int fd = (int)syscall(SYS_memfd_secret, 0), rc;
	const size_t bytes = COUNT * sizeof(int);
	int *out = malloc(bytes), *in;

	(void)rank, (void)n, (void)arg;
	WANT(out && fd >= 0 && !ftruncate(fd, (off_t)bytes));
	in = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	WANT(in != MAP_FAILED);
	rc = tuttiAllReduce(in, out, COUNT, tuttiInt32, tuttiSum, *comm, NULL);
	WANT(rc == tuttiRemoteError && strstr(tuttiGetLastError(*comm), "set TUTTI_CMA=off"));
	munmap(in, bytes);
	close(fd);
	free(out);
	return 0;
}

Test(single_copy, of_memory_that_peers_cannot_read_is_an_error_with_its_remedy, .timeout = 100)
{
	struct ranks r = { .n = 2, .transport = "shm", .algo = "two-shot" };
	int fd = (int)syscall(SYS_memfd_secret, 0);

	if (fd < 0)
		cr_skip_test("no secret memory: memfd_secret: %s", strerror(errno));
	close(fd);
	setenv("TUTTI_CMA", "on", 1);
	cr_expect_eq(ranks_run(&r, sum_secrets), 0);
}
