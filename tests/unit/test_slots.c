/*
 * test_slots.c - collectives by shared-memory slots: bytes, order of sums, and posts that wait for readers
 *
 * Ranks call random collectives of random sizes, roots and layouts. Counters show that no message was sent, and no
 * peer's memory read. Ranks whose calls differ so that none of them polls a post get an error from releases. The
 * linker gives the library's calls of tt_copy_nontemporal to this file (--wrap).
 */
#include <criterion/criterion.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "mem/peer_lines.h"
#include "mem/reduce.h"
#include "run/way.h"
#include "tests/support/must.h"

enum { MOST = 2048, MOST_RANKS = 33 }; /* doubles of a post, of a collective's inputs */
enum { CALLS = 400 };

struct slots_task {
	int calls;
	bool naps; /* ranks sleep now and then, each at other calls */
};

struct slots_call {
	enum tt_collective collective;
	size_t count;
	int root;
	bool in_place;
	unsigned long long seed;
};

/* Element i of rank's input; sums of several depend on their order. */
static double element(const struct slots_call *k, int rank, size_t i)
{
	return (double)(random_of(k->seed + (unsigned)rank, i) >> 11) /
	       (double)(1 + (rank * 7 + i) % 1000);
}

static double sum_in_rank_order(const struct slots_call *k, int n, size_t i)
{
	double sum = element(k, 0, i);

	for (int r = 1; r < n; r++)
		sum += element(k, r, i);
	return sum;
}

/* Element i of this rank's output */
static double expected(const struct slots_call *k, int rank, int n, size_t i)
{
	const struct tt_need *need = &tt_needs[k->collective];
	size_t mine = (need->in_parts ? (size_t)rank * k->count : 0) + i % k->count;

	if (need->reduces)
		return sum_in_rank_order(k, n, mine);
	return element(k, need->out_parts ? (int)(i / k->count) : k->root, mine);
}

static struct slots_call random_call(unsigned long long seed, int n)
{
	static const size_t sizes[] = { 1, 2, 7, 8, 42, 43, 100, 512, MOST };
	struct slots_call k = { .collective = random_of(seed, 0) % TT_SENDRECV,
				.count = sizes[random_of(seed, 1) % 9],
				.root = (int)(random_of(seed, 2) % (unsigned)n),
				.in_place = random_of(seed, 3) % 2,
				.seed = seed * 100 };
	size_t most = tt_needs[k.collective].in_parts ? MOST / (unsigned)n
		      : n > 16                        ? MOST / 16
						      : MOST;

	/* sums of longer calls go by messages, in another order; of many ranks sooner */
	k.count = k.count < most ? k.count : most;
	return k;
}

static tuttiResult_t make(const struct slots_call *k, const double *in, double *out,
			  tuttiComm_t comm)
{
	const tuttiDataType_t type = tuttiFloat64;

	switch (k->collective) {
	case TT_REDUCE:
		return tuttiReduce(in, out, k->count, type, tuttiSum, k->root, comm, NULL);
	case TT_BROADCAST:
		return tuttiBroadcast(in, out, k->count, type, k->root, comm, NULL);
	case TT_ALLGATHER:
		return tuttiAllGather(in, out, k->count, type, comm, NULL);
	case TT_REDUCE_SCATTER:
		return tuttiReduceScatter(in, out, k->count, type, tuttiSum, comm, NULL);
	case TT_ALLTOALL:
		return tuttiAlltoAll(in, out, k->count, type, comm, NULL);
	case TT_GATHER:
		return tuttiGather(in, out, k->count, type, k->root, comm, NULL);
	case TT_SCATTER:
		return tuttiScatter(in, out, k->count, type, k->root, comm, NULL);
	default:
		return tuttiAllReduce(in, out, k->count, type, tuttiSum, comm, NULL);
	}
}

/* Buffers that a rank does not need are NULL. In place this rank's piece stays where it is. */
static int call_in(const struct slots_call *k, tuttiComm_t comm, int rank, int n, double *input,
		   double *output)
{
	const struct tt_need *need = &tt_needs[k->collective];
	size_t part = (size_t)rank * k->count;
	bool gives = need->in_all || rank == k->root, takes = need->out_all || rank == k->root;
	size_t taken = k->count * (need->out_parts ? (size_t)n : 1),
	       given = k->count * (need->in_parts ? (size_t)n : 1);
	double *in = input, *out = output + k->seed % 2;

	if (k->in_place && need->in_parts && !need->out_parts)
		out = in + part;
	else if (k->in_place && need->out_parts && !need->in_parts)
		in = out + part;
	else if (k->in_place)
		in = out;
	for (size_t i = 0; gives && i < given; i++)
		in[i] = element(k, rank, i);
	MUST(make(k, gives ? in : NULL, takes ? out : NULL, comm));
	for (size_t i = 0; takes && i < taken; i++)
		WANT(out[i] == expected(k, rank, n, i));
	return 0;
}

static int call_and_check(const struct slots_call *k, tuttiComm_t comm, int rank, int n)
{
	static _Thread_local double input[MOST_RANKS * MOST + 1], output[MOST_RANKS * MOST + 1];

	return call_in(k, comm, rank, n, input, output);
}

/* Does the call go by slots, as the cache knows after it? */
static bool by_slots(const struct slots_call *k, tuttiComm_t comm)
{
	bool rooted = tt_needs[k->collective].rooted, reduces = tt_needs[k->collective].reduces;
	struct tt_request r = { .collective = k->collective,
				.count = k->count,
				.type = tuttiFloat64,
				.op = reduces ? tuttiSum : 0,
				.root = rooted ? k->root : -1,
				.comm = comm };
	struct tt_plan_row *row;

	return !tt_plan_cache_find(&r, false, &row) && row->way && !strcmp(row->way->name, "slots");
}

static int call_many(tuttiComm_t *comm, int rank, int n, void *arg)
{
	const struct slots_task *t = arg;
	tuttiCounters_t before = { .size = sizeof(before) }, after = { .size = sizeof(after) };
	int slots = 0;

	for (int i = 0; i < t->calls; i++) {
		/* runs of like calls, in which ranks that only give are ahead */
		unsigned long long seed = i < t->calls / 2 ? (unsigned)i : (unsigned)i / 40;
		struct slots_call k = random_call(seed, n);

		k.seed = (unsigned)i * 100;
		if (t->naps && random_of(k.seed, (unsigned)rank) % 16 == 0)
			usleep((useconds_t)(random_of(k.seed, 50) % 1000));
		WANT(!tuttiCommGetCounters(*comm, &before));
		WANT(call_and_check(&k, *comm, rank, n) == 0);
		WANT(!tuttiCommGetCounters(*comm, &after));
		slots += by_slots(&k, *comm);
		WANT(!by_slots(&k, *comm) || before.messages == after.messages);
	}
	WANT(slots > t->calls * 3 / 4);
	return 0;
}

static void call_as(int n, bool threads, bool naps)
{
	struct slots_task t = { .calls = n > 8 ? CALLS / 4 : CALLS, .naps = naps };
	struct ranks r = { .n = n, .threads = threads, .transport = "shm", .arg = &t };

	cr_expect_eq(ranks_run(&r, call_many), 0, "%d ranks", n);
}

Test(slots, random_collectives_give_every_byte_and_sums_in_rank_order, .timeout = 120)
{
	for (int n = 2; n <= 5; n++)
		call_as(n, false, false);
	call_as(8, true, false);
	call_as(9, true, false);
	call_as(MOST_RANKS, true, false);
}

Test(slots, a_rank_that_is_ahead_overwrites_no_post_that_is_unread, .timeout = 120)
{
	call_as(2, false, true);
	call_as(3, true, true);
	call_as(4, false, true);
}

/* ---- more posts than a call of reduce takes ---------------------------------------------------- */

/* What plans promise: one rounding for the first eight ranks, one for each further seven */
static void rounded_like_plans(uint16_t (*in)[MOST], int n, size_t count, uint16_t *out)
{
	tt_reduce_fn *reduce = tt_reduce_kernel(tuttiBfloat16, tuttiSum);
	const void *src[TT_MAX_SOURCES];
	int taken = 0;

	for (int r = 0; r < n; r++) {
		src[taken++] = in[r];
		if (taken < TT_MAX_SOURCES && r < n - 1)
			continue;
		reduce(out, NULL, src, taken, count);
		src[0] = out;
		taken = 1;
	}
}

static int sum_of_many(tuttiComm_t *comm, int rank, int n, void *arg)
{
	static _Thread_local uint16_t in[MOST_RANKS][MOST], sum[MOST], mine[MOST];
	const size_t counts[] = { 1, 100, MOST };

	(void)arg;
	for (int i = 0; i < 12; i++) {
		size_t count = counts[i % 3];
		int root = i % 2 ? n - 1
				 : 0; /* in place: its input is the last, or in the first sum */

		for (int r = 0; r < n; r++)
			for (size_t k = 0; k < count; k++)
				in[r][k] = (uint16_t)(0x3f80 +
						      random_of((unsigned)(i * n + r), k) % 512);
		rounded_like_plans(in, n, count, sum);
		memcpy(mine, in[rank], sizeof(mine));
		MUST(tuttiReduce(mine, mine, count, tuttiBfloat16, tuttiSum, root, *comm, NULL));
		WANT(rank != root || !memcmp(mine, sum, count * sizeof(*sum)));
		count = count < 100 ? count : 100;
		memcpy(mine, in[rank], sizeof(mine));
		MUST(tuttiAllReduce(mine, mine, count, tuttiBfloat16, tuttiSum, *comm, NULL));
		WANT(!memcmp(mine, sum, count * sizeof(*sum)));
	}
	return 0;
}

Test(slots, sums_of_more_than_eight_ranks_are_rounded_as_plans_round_them, .timeout = 60)
{
	for (int n = 9; n <= 16; n += 7) {
		struct ranks r = { .n = n, .threads = true, .transport = "shm" };

		cr_expect_eq(ranks_run(&r, sum_of_many), 0, "%d ranks", n);
	}
}

/* ---- ranks that only give -------------------------------------------------------------------- */

/* Calls of a size, of which givers finish some before a taker begins */
struct lead {
	enum tt_collective collective;
	size_t count, ahead;
	atomic_size_t *finished; /* by all givers */
};

static int lead(tuttiComm_t *comm, int rank, int n, void *arg)
{
	const struct lead *l = arg;
	struct slots_call k = { .collective = l->collective, .count = l->count };
	bool gives = tt_needs[k.collective].in_all ? rank != k.root : rank == k.root;
	size_t givers = tt_needs[k.collective].in_all ? (size_t)n - 1 : 1;

	while (!gives && atomic_load(l->finished) < givers * l->ahead)
		usleep(1000);
	/* givers that overwrite what is unread have time to do so */
	if (!gives)
		usleep(5000);
	for (k.seed = 0; k.seed < 4 * l->ahead; k.seed++) {
		WANT(call_and_check(&k, *comm, rank, n) == 0);
		atomic_fetch_add(l->finished, gives);
	}
	return 0;
}

Test(slots, ranks_that_only_give_are_ahead_and_overwrite_nothing_unread, .timeout = 120)
{
	enum { SMALL = 3 * TT_SLOT_DEPTH / 4, PAGES = TT_SLOT_HALF / TT_SLOT_PAGE };
	static const enum tt_collective with_root[] = { TT_BROADCAST, TT_REDUCE, TT_GATHER,
							TT_SCATTER };
	/* of the last row: between two ranks */
	static const size_t bytes[][2] = {
		{ 8, SMALL }, { TT_SLOT_PAGE, PAGES }, { 16384, PAGES / 4 }, { 65536, PAGES / 16 }
	};
	bool own = tt_readers_own;

	for (int i = 0; i < 4 * 4; i++) {
		atomic_size_t finished = 0;
		bool parts = tt_needs[with_root[i / 4]].in_parts;
		struct lead l = { .collective = with_root[i / 4],
				  .count = bytes[i % 4][0] / sizeof(double) / (parts ? 4 : 1),
				  .ahead = bytes[i % 4][1],
				  .finished = &finished };
		struct ranks r = { .n = i % 4 == 3 ? 2 : 4,
				   .threads = true,
				   .transport = "shm",
				   .timeout_ms = 20000,
				   .arg = &l };

		tt_readers_own = own && r.n > 2; /* else two ranks post 16 KiB at most */

		l.count += !l.count;
		cr_expect_eq(ranks_run(&r, lead), 0, "%s of %zu elements",
			     tt_collective_name(l.collective), l.count);
	}
	tt_readers_own = own;
}

/* ---- two ranks, several pieces --------------------------------------------------------------- */

/* Calls of both ranks, out of place and in place, none by messages */
static int call_long(tuttiComm_t *comm, int rank, int n, void *arg)
{
	enum { PAGE = TT_SLOT_BYTES / sizeof(double), LONGEST = 6 * PAGE };
	/* a rest of less than a line behind whole pieces, and others */
	static const size_t counts[] = { PAGE + 1,     2 * PAGE + 1, 2 * PAGE - 1,
					 2 * PAGE + 8, 4 * PAGE + 7, LONGEST - 1 };
	static const enum tt_collective without_root[] = { TT_ALLREDUCE, TT_REDUCE_SCATTER,
							   TT_ALLGATHER, TT_ALLTOALL };
	double *input = malloc(2 * LONGEST * sizeof(*input)),
	       *output = malloc(2 * LONGEST * sizeof(*output));
	tuttiCounters_t before = { .size = sizeof(before) }, after = { .size = sizeof(after) };
	int rc = 0;

	(void)arg;
	WANT(input && output);
	for (unsigned i = 0; i < 4 * 6 * 2 && !rc; i++) {
		struct slots_call k = { .collective = without_root[i % 4],
					.count = counts[i / 4 % 6],
					.in_place = i >= 4 * 6,
					.seed = i * 100 };

		WANT(!tuttiCommGetCounters(*comm, &before));
		/* posts that do not begin a half of the pages come before */
		for (unsigned b = 0; b < i % 5; b++) {
			const struct slots_call small = { .collective = TT_BROADCAST,
							  .count = MOST,
							  .root = i / 5 % 2,
							  .seed = i };

			WANT(call_and_check(&small, *comm, rank, n) == 0);
		}
		rc = call_in(&k, *comm, rank, n, input, output);
		WANT(!tuttiCommGetCounters(*comm, &after));
		WANT(before.messages == after.messages);
	}
	free(input);
	free(output);
	return rc;
}

Test(slots, calls_of_two_ranks_without_a_root_have_any_length, .timeout = 120)
{
	struct ranks r = { .n = 2, .transport = "shm" };

	cr_expect_eq(ranks_run(&r, call_long), 0);
}

/* ---- two ranks, the longest post ------------------------------------------------------------- */

struct at_limit {
	struct ranks r;
	bool own[2]; /* of the ranks' processors */
};

/* Calls of two ranks up to the longest post and behind it: their sums and copies, and which go by slots. Ranks agree
 * on the limit, though their processors differ, as under an emulator. */
static int call_at_limit(tuttiComm_t *comm, int rank, int n, void *arg)
{
	static const enum tt_collective with_root[] = { TT_BROADCAST, TT_REDUCE, TT_GATHER,
							TT_SCATTER };
	enum { PAGE = 65536 / sizeof(double) };
	static double input[2 * PAGE + 4], output[2 * PAGE + 4];
	const struct at_limit *l = arg;
	tuttiCounters_t before = { .size = sizeof(before) }, after = { .size = sizeof(after) };
	bool own = l->own[0] || l->own[1], crowded;

	tt_readers_own = l->own[rank];
	MUST(tuttiCommInitRank(comm, n, l->r.id, rank));
	crowded = (*comm)->hosts.crowded;
	for (unsigned i = 0; i < 4 * 4 * 2; i++) {
		enum tt_collective collective = with_root[i % 4];
		size_t limit = !own ? PAGE : collective == TT_SCATTER ? PAGE / 8 : PAGE / 4;
		const size_t counts[] = { limit / 2, limit - 1, limit, limit + 1 };
		struct slots_call k = { .collective = collective,
					.count = counts[i / 4 % 4],
					.root = (int)(i / 4 % 2),
					.in_place = i >= 16,
					.seed = i * 100 };

		bool gives = (collective == TT_REDUCE || collective == TT_GATHER) !=
			     (rank == k.root);

		WANT(!tuttiCommGetCounters(*comm, &before));
		WANT(call_in(&k, *comm, rank, n, input, output) == 0);
		WANT(!tuttiCommGetCounters(*comm, &after));
		WANT(crowded || !gives ||
		     (before.messages == after.messages) == (k.count <= limit));
	}
	return 0;
}

Test(slots, two_ranks_post_up_to_64_KiB_where_lines_stay_shared, .timeout = 120)
{
	setenv("TUTTI_CMA", "off", 1); /* else calls of 64 KiB try it */
	for (unsigned i = 0; i < 4; i++) {
		struct at_limit l = { .r = { .n = 2, .transport = "shm", .no_join = true },
				      .own = { i & 1, i & 2 } };

		l.r.arg = &l;
		cr_expect_eq(ranks_run(&l.r, call_at_limit), 0, "processors %u", i);
	}
}

/* ---- ranks that share cores ------------------------------------------------------------------ */

/* Calls that only copy, out of place and in place: no rank reads another's memory. */
static int call_crowded(tuttiComm_t *comm, int rank, int n, void *arg)
{
	enum { PAGE = TT_SLOT_BYTES / sizeof(double), LONGEST = 3 * PAGE };
	static const size_t counts[] = { PAGE + 1, 2 * PAGE + 9, LONGEST - 1 };
	static const enum tt_collective all[] = { TT_ALLTOALL, TT_ALLGATHER, TT_GATHER,
						  TT_BROADCAST };
	size_t room = (size_t)n * LONGEST + 1;
	double *input = malloc(room * sizeof(*input)), *output = malloc(room * sizeof(*output));
	int rc = 0;

	(void)arg;
	WANT(input && output && (*comm)->hosts.cores && n > (*comm)->hosts.cores);
	for (unsigned i = 0; i < 4 * 3 * 2 && !rc; i++) {
		struct slots_call k = { .collective = all[i % 4],
					.count = counts[i / 4 % 3],
					.root = (int)(i / 4) % n,
					.in_place = i >= 4 * 3,
					.seed = i * 100 };
		uint64_t before;

		if (k.collective == TT_BROADCAST && n > 2 * (*comm)->hosts.cores)
			continue;
		rc = call_in(&k, *comm, rank, n, input, output);
		if (rc)
			break;
		before = (*comm)->paths.slots->slot_bytes;
		rc = call_in(&k, *comm, rank, n, input, output);
		WANT((*comm)->paths.slots->read_bytes == 0);
		WANT((*comm)->paths.slots->slot_bytes > before ||
		     (tt_needs[k.collective].rooted &&
		      (k.collective == TT_GATHER) == (rank == k.root)));
	}
	free(input);
	free(output);
	return rc;
}

Test(slots, ranks_that_share_cores_copy_any_length_in_pieces, .timeout = 120)
{
	cr_assert(ranks_on_two_cores());
	setenv("TUTTI_CMA", "off", 1); /* else long alltoalls try it */
	for (int n = 3; n <= 4; n++) {
		struct ranks r = { .n = n, .transport = "shm" };

		cr_expect_eq(ranks_run(&r, call_crowded), 0, "%d ranks", n);
	}
}

/* ---- bytes of a post ------------------------------------------------------------------------- */

/* Posts of parts hold those that other ranks take: the words that a call writes to the pages of this rank. */
static int count_posted(tuttiComm_t *comm, int rank, int n, void *arg)
{
	static const enum tt_collective with_parts[] = { TT_ALLTOALL, TT_REDUCE_SCATTER,
							 TT_SCATTER };
	enum { WORDS = 2 * TT_SLOT_HALF / sizeof(uint64_t) };
	const uint64_t unwritten = UINT64_MAX; /* not a number */
	struct tt_endpoint *ep = (*comm)->paths.slots;
	uint64_t *room = ep->slot_ops->room(ep);

	(void)arg;
	for (int i = 0; i < 4 * 3; i++) {
		struct slots_call k = { .collective = with_parts[i % 3],
					.count = TT_STORES_LEAST / sizeof(double),
					.root = i % n,
					.in_place = i % 2,
					.seed = 100 * (unsigned)i };
		bool gives = tt_needs[k.collective].in_all || rank == k.root;
		size_t written = 0;

		MUST(tuttiBarrier(*comm, NULL));
		for (size_t w = 0; w < WORDS; w++)
			room[w] = unwritten;
		MUST(tuttiBarrier(*comm, NULL));
		WANT(call_and_check(&k, *comm, rank, n) == 0 && by_slots(&k, *comm));
		for (size_t w = 0; w < WORDS; w++)
			written += room[w] != unwritten;
		WANT(written == (gives ? (size_t)(n - 1) * k.count : 0));
	}
	return 0;
}

Test(slots, of_parts_leave_out_the_part_that_nobody_takes, .timeout = 60)
{
	for (int n = 3; n <= 4; n++) {
		struct ranks r = { .n = n, .transport = "shm" };

		cr_expect_eq(ranks_run(&r, count_posted), 0, "%d ranks", n);
	}
}

static int nontemporal_copies;
void __real_tt_copy_nontemporal(void *dst, const void *src, size_t bytes);
void __wrap_tt_copy_nontemporal(void *dst, const void *src, size_t bytes);
void __wrap_tt_copy_nontemporal(void *dst, const void *src, size_t bytes)
{
	nontemporal_copies += bytes > 0;
	__real_tt_copy_nontemporal(dst, src, bytes);
}

/* The parts before this rank's own, and those behind it, are one copy each. */
static int count_copies(tuttiComm_t *comm, int rank, int n, void *arg)
{
	const struct slots_call k = { .collective = TT_ALLTOALL,
				      .count = TT_STORES_LEAST / sizeof(double) };

	(void)arg;
	for (int i = 0; i < TT_STORES_SIZES; i++)
		(*comm)->calls.slot_stores[i] = (struct tt_stores){ .nontemporal = true,
								    .prefers = true };
	nontemporal_copies = 0;
	WANT(call_and_check(&k, *comm, rank, n) == 0 && by_slots(&k, *comm));
	WANT(nontemporal_copies == (rank > 0) + (rank < n - 1));
	return 0;
}

Test(slots, of_parts_take_two_copies, .timeout = 60)
{
	struct ranks r = { .n = 4, .transport = "shm" };

	cr_expect_eq(ranks_run(&r, count_copies), 0);
}

/* ---- mismatches ------------------------------------------------------------------------------ */

struct mismatch {
	enum tt_collective collective[2]; /* of rank 0, of the others */
	const char *text[2];
};

/* Every rank takes itself for the root, so it posts and polls nothing. */
static int call_as_root(tuttiComm_t *comm, int rank, int n, void *arg)
{
	const struct mismatch *m = arg;
	const struct slots_call k = { .collective = m->collective[rank != 0],
				      .count = 1,
				      .root = rank };
	double in[MOST_RANKS] = { 0 }, out[MOST_RANKS];
	tuttiResult_t rc = tuttiSuccess;
	int calls = 0;

	(void)n;
	while (!rc && calls < 10 * TT_SLOT_DEPTH) {
		rc = make(&k, in, out, *comm);
		calls++;
	}
	WANT(rc == tuttiInvalidUsage);
	WANT(strstr(tuttiGetLastError(*comm), m->text[0]) &&
	     strstr(tuttiGetLastError(*comm), m->text[1]));
	return 0;
}

Test(slots, ranks_that_all_take_themselves_for_the_root_get_an_error, .timeout = 60)
{
	static struct mismatch all[] = {
		{ { TT_BROADCAST, TT_BROADCAST },
		  { "broadcast of 1 float64 (root 0)", "broadcast of 1 float64 (root 1)" } },
		{ { TT_SCATTER, TT_SCATTER }, { "scatter of 1 float64 (root ", "(root 1)" } },
		{ { TT_BROADCAST, TT_SCATTER },
		  { "broadcast of 1 float64 (root 0)", "scatter of 1 float64 (root 1)" } },
	};

	for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++) {
		struct ranks r = {
			.n = 2, .transport = "shm", .timeout_ms = 20000, .arg = &all[i]
		};

		cr_expect_eq(ranks_run(&r, call_as_root), 0, "mismatch %zu", i);
	}
}
