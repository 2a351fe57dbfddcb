/*
 * test_quorum.c - quorum allreduce: bits, masks, stragglers, deaths, stored results
 */
#include <criterion/criterion.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/support/must.h"

#define COUNT 300
#define OPERATIONS 400

/* Shared memory: hash and mask of every operation, equal on all ranks that got its result. */
struct quorum_world {
	int k, slow, every, victims, deadline_ms;
	unsigned seed;
	_Atomic unsigned long long hash[OPERATIONS + 1], mask[OPERATIONS + 1];
	_Atomic int done, late[130], in[130], pids[130], calls[130];
};

static struct quorum_world *world_of(const struct quorum_world *w)
{
	struct quorum_world *shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE,
					   MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	*shared = *w;
	return shared;
}

static int run(int n, const char *transport, const char *algo, int timeout_ms, int killed,
	       rank_fn *fn, void *arg)
{
	struct ranks r = { .n = n,
			   .transport = transport,
			   .algo = algo,
			   .timeout_ms = timeout_ms,
			   .arg = arg,
			   .limit_s = 55 };

	return ranks_run(&r, fn) - killed;
}

/* ---- bits ------------------------------------------------------------------------------------ */

/* Changes random bits to floats that are not NaN, and so small that no sum is NaN. */
static void make_finite(unsigned char *x, size_t count, size_t element)
{
	for (size_t i = 0; i < count; i++) {
		unsigned char *high = &x[i * element + element - 1];

		*high = (unsigned char)((*high & 0x80) |
					(element == 1 ? *high & 0x3f : 0x30 | (*high & 7)));
	}
}

static int same_bits(tuttiComm_t *comm, int rank, int nranks, void *arg)
{
	static const struct {
		tuttiDataType_t type;
		size_t element;
	} types[] = {
		{ tuttiFloat32, 4 },    { tuttiBfloat16, 2 }, { tuttiFloat16, 2 },
		{ tuttiFloat8e4m3, 1 }, { tuttiFloat64, 8 },  { tuttiInt32, 4 },
	};
	static const tuttiRedOp_t ops[] = { tuttiSum, tuttiAvg, tuttiMax, tuttiProd };
	static const size_t counts[] = { 1, 1000, 70001, 0 };
	static unsigned char in[8 * 70001], a[sizeof(in)], b[sizeof(in)];
	uint64_t number = 0;

	(void)arg;
	for (size_t t = 0; t < sizeof(types) / sizeof(types[0]); t++)
		for (size_t o = 0; o < 4; o++)
			for (size_t c = 0; c < 4; c++) {
				size_t bytes = counts[c] * types[t].element;
				tuttiQuorum_t q = TUTTI_QUORUM_INITIALIZER;
				unsigned long long seed = (unsigned)rank * 1000ull + t * 100 +
							  o * 10 + c;

				for (size_t i = 0; i < bytes; i++)
					in[i] = (unsigned char)random_of(seed, i);
				if (types[t].type != tuttiInt32)
					make_finite(in, counts[c], types[t].element);
				WANT(!tuttiAllReduce(in, a, counts[c], types[t].type, ops[o], *comm,
						     NULL));
				memcpy(b, in, bytes); /* in place */
				WANT(!tuttiAllReduceQuorum(b, b, counts[c], types[t].type, ops[o],
							   nranks, 20000, *comm, NULL, &q));
				if (memcmp(a, b, bytes))
					fprintf(stderr, "type %d op %d count %zu\n", types[t].type,
						ops[o], counts[c]);
				WANT(!memcmp(a, b, bytes));
				WANT(q.count == nranks && q.mine == tuttiQuorumIn &&
				     q.sequence == ++number);
				WANT(q.mask[0] == (nranks == 64 ? ~0ull : (1ull << nranks) - 1));
			}
	return 0;
}

Test(quorum, of_all_ranks_has_the_bits_of_reduce_to_one, .timeout = 60)
{
	cr_expect_eq(run(1, NULL, "reduce-to-one", 0, 0, same_bits, NULL), 0);
	cr_expect_eq(run(3, NULL, "reduce-to-one", 0, 0, same_bits, NULL), 0);
	cr_expect_eq(run(10, "tcp", "reduce-to-one", 0, 0, same_bits, NULL), 0);
}

/* ---- stragglers ------------------------------------------------------------------------------ */

static float value(int rank, uint64_t number, int i)
{
	return (float)(random_of((unsigned)rank * 7919u + number, (unsigned)i) % 100000) / 977.0f;
}

static uint64_t hash_of(const float *x, int n)
{
	uint64_t h = 0;

	for (int i = 0; i < n; i++) {
		unsigned bits;

		memcpy(&bits, &x[i], 4);
		h = random_of(h, bits);
	}
	return h | 1;
}

/* The result is the sum in rank order over the mask, the same on all ranks that got this
 * operation. */
static int check(const struct quorum_world *w, int rank, int nranks, const float *out,
		 const tuttiQuorum_t *q)
{
	struct quorum_world *shared = (struct quorum_world *)(uintptr_t)w;
	unsigned long long h = hash_of(out, COUNT), before = 0, mask = 0;
	int used = 0;

	for (int i = 0; i < COUNT; i++) {
		float sum = 0;
		bool first = true;

		for (int r = 0; r < nranks; r++)
			if (q->mask[r / 64] >> r % 64 & 1) {
				sum = first ? value(r, q->sequence, i)
					    : sum + value(r, q->sequence, i);
				first = false;
			}
		WANT(sum == out[i]);
	}
	for (int r = 0; r < nranks; r++)
		used += (int)(q->mask[r / 64] >> r % 64 & 1);
	WANT(used == q->count && used > 0 && q->sequence <= q->newest && q->sequence <= OPERATIONS);
	WANT((q->mask[rank / 64] >> rank % 64 & 1) || q->mine != tuttiQuorumIn);
	WANT(atomic_compare_exchange_strong(&shared->hash[q->sequence], &before, h) || before == h);
	WANT(atomic_compare_exchange_strong(&shared->mask[q->sequence], &mask, q->mask[0]) ||
	     mask == q->mask[0]);
	return 0;
}

static int contribute(struct quorum_world *w, tuttiComm_t comm, int rank, int nranks,
		      uint64_t *number, tuttiQuorum_t *q)
{
	float in[COUNT], out[COUNT], carry[COUNT];

	q->carry = carry;
	q->every = w->every;
	for (int i = 0; i < COUNT; i++)
		in[i] = value(rank, *number + 1, i);
	WANT(!tuttiAllReduceQuorum(in, out, COUNT, tuttiFloat32, tuttiSum, w->k, w->deadline_ms,
				   comm, NULL, q));
	WANT(q->sequence > *number &&
	     (!w->every || q->newest > *number + TUTTI_QUORUM_KEPT || q->sequence == *number + 1));
	if (check(w, rank, nranks, out, q))
		return 1;
	if (q->mine == tuttiQuorumLate)
		WANT(!memcmp(carry, in, sizeof(in)));
	w->late[rank] += q->mine == tuttiQuorumLate;
	w->in[rank] += q->mine == tuttiQuorumIn;
	w->calls[rank]++;
	q->carry = NULL;
	*number = q->sequence;
	return 0;
}

/* The last `slow` ranks are slow; the others run a fixed number of operations, and slow ranks
 * contribute to some of them. */
static int straggle(tuttiComm_t *comm, int rank, int nranks, void *arg)
{
	struct quorum_world *w = arg;
	tuttiQuorum_t q = TUTTI_QUORUM_INITIALIZER;
	uint64_t number = 0;
	bool slow = rank >= nranks - w->slow;

	w->pids[rank] = getpid();
	for (int i = 0; number < OPERATIONS / 4; i++) {
		usleep((unsigned)(random_of(w->seed + (unsigned)rank, (unsigned)i) % 600) *
		       (slow ? 10 : 1));
		if (contribute(w, *comm, rank, nranks, &number, &q))
			return 1;
		if (!slow && q.mine == tuttiQuorumIn)
			WANT(q.count >= (w->k < nranks - w->slow ? w->k : nranks - w->slow));
	}
	w->done++;
	/* rank 0 must live: its library computes the sum */
	while (w->done < nranks)
		usleep(1000);
	return 0;
}

static void check_stragglers(int n, struct quorum_world world)
{
	struct quorum_world *w = world_of(&world);
	int late = 0, in = 0;

	w->deadline_ms = 20000;
	cr_expect_eq(run(n, NULL, NULL, 20000, 0, straggle, w), 0);
	for (int r = 0; r < n; r++) {
		late += w->late[r];
		in += w->in[r];
	}
	cr_expect_gt(late, 0, "no rank was late");
	cr_expect_geq(in, OPERATIONS / 4 * w->k - n, "%d contributions were used", in);
}

Test(quorum, does_not_wait_for_stragglers, .timeout = 60)
{
	check_stragglers(5, (struct quorum_world){ .k = 3, .slow = 2, .seed = 1 });
	check_stragglers(6, (struct quorum_world){ .k = 5, .slow = 1, .seed = 2 });
}

Test(quorum, returns_every_result_to_a_rank_that_sets_every, .timeout = 60)
{
	check_stragglers(5, (struct quorum_world){ .k = 3, .slow = 2, .seed = 3, .every = 1 });
}

Test(quorum, of_32_ranks_does_not_wait_for_stragglers, .timeout = 60)
{
	check_stragglers(32, (struct quorum_world){ .k = 28, .slow = 4, .seed = 4 });
}

Test(quorum, of_128_ranks_does_not_wait_for_stragglers, .timeout = 300)
{
	if (!getenv("TT_TIER") || strcmp(getenv("TT_TIER"), "soak"))
		cr_skip_test("128 processes: only in tier soak");
	check_stragglers(128, (struct quorum_world){ .k = 120, .slow = 8, .seed = 5 });
}

/* A rank after a long pause gets the newest result at once; with `every` the rank gets each stored
 * result. */
static int away(tuttiComm_t *comm, int rank, int nranks, void *arg)
{
	struct quorum_world *w = arg;
	tuttiQuorum_t q = TUTTI_QUORUM_INITIALIZER;
	float out[COUNT], in[COUNT] = { 0 };
	uint64_t number = 0;

	for (int i = 0; rank < 2 && i < 10; i++)
		if (contribute(w, *comm, rank, nranks, &number, &q))
			return 1;
	if (rank < 2)
		w->done++;
	while (w->done < 2)
		usleep(1000);
	/* all results in order, without contributions */
	if (rank == 2) {
		q.every = 1;
		for (int i = 1; i <= 10; i++) {
			WANT(!tuttiAllReduceQuorum(NULL, out, COUNT, tuttiFloat32, tuttiSum, 2, 0,
						   *comm, NULL, &q));
			WANT(q.sequence == (uint64_t)i && q.newest == 10 &&
			     q.mine == tuttiQuorumNone && q.count == 2);
			WANT(!check(w, rank, nranks, out, &q));
		}
		w->done++;
	}
	if (rank == 3) { /* the newest result at once */
		WANT(!tuttiAllReduceQuorum(in, out, COUNT, tuttiFloat32, tuttiSum, 2, 0, *comm,
					   NULL, &q));
		WANT(q.sequence == 10 && q.newest == 10 && q.mine == tuttiQuorumLate &&
		     !check(w, rank, nranks, out, &q));
		w->done++;
	}
	while (w->done < 4)
		usleep(1000);
	number = 10; /* all ranks continue from here */
	w->k = 4;
	WANT(!contribute(w, *comm, rank, nranks, &number, &q) && q.sequence == 11 && q.count == 4);
	WANT(!tuttiBarrier(*comm, NULL));
	return 0;
}

Test(quorum, lets_a_late_rank_catch_up, .timeout = 60)
{
	struct quorum_world *w = world_of(&(struct quorum_world){ .k = 2, .deadline_ms = 20000 });

	cr_expect_eq(run(4, NULL, NULL, 20000, 0, away, w), 0);
}

/* ---- deadlines, deaths, stops ---------------------------------------------------------------- */

/* Rank 1 never contributes. Another rank may be late, too: then a second operation runs. */
static int deadline(tuttiComm_t *comm, int rank, int nranks, void *arg)
{
	struct quorum_world *w = arg;
	tuttiQuorum_t q = TUTTI_QUORUM_INITIALIZER;
	uint64_t number = 0;

	while (rank != 1 && q.mask[0] != 5)
		WANT(!contribute(w, *comm, rank, nranks, &number, &q) && !(q.mask[0] & ~5ull) &&
		     q.count == __builtin_popcountll(q.mask[0]));
	return tuttiBarrier(*comm, NULL) != tuttiSuccess;
}

Test(quorum, ends_at_its_deadline, .timeout = 60)
{
	struct quorum_world *w = world_of(&(struct quorum_world){ .k = 3, .deadline_ms = 300 });

	cr_expect_eq(run(3, NULL, NULL, 20000, 0, deadline, w), 0);
}

/* Victims are killed at random times; k = n, and yet no rank waits for a dead rank until the
 * deadline. */
static int die(tuttiComm_t *comm, int rank, int nranks, void *arg)
{
	struct quorum_world *w = arg;
	tuttiQuorum_t q = TUTTI_QUORUM_INITIALIZER;
	uint64_t number = 0;

	for (int i = 0; number < OPERATIONS / 4; i++) {
		if (rank > nranks - 1 - w->victims &&
		    number == 10u + 20u * (unsigned)(nranks - 1 - rank))
			raise(SIGKILL);
		if (contribute(w, *comm, rank, nranks, &number, &q))
			return 1;
		WANT(q.mine == tuttiQuorumIn && q.count >= nranks - w->victims);
	}
	WANT(q.count == nranks - w->victims);
	w->done++;
	while (w->done < nranks - w->victims)
		usleep(1000);
	return 0;
}

Test(quorum, loses_only_the_contribution_of_a_dead_rank, .timeout = 60)
{
	struct quorum_world *w = world_of(
		&(struct quorum_world){ .k = 6, .victims = 2, .deadline_ms = 100000 });

	cr_expect_eq(run(6, NULL, NULL, 20000, 2, die, w), 0);
	w = world_of(&(struct quorum_world){ .k = 2, .victims = 1, .deadline_ms = 100000 });
	cr_expect_eq(run(2, "tcp", NULL, 20000, 1, die, w), 0);
}

static int lose_root(tuttiComm_t *comm, int rank, int nranks, void *arg)
{
	struct quorum_world *w = arg;
	tuttiQuorum_t q = TUTTI_QUORUM_INITIALIZER;
	float x[COUNT] = { 0 };
	uint64_t number = 0;
	tuttiComm_t left;

	WANT(!contribute(w, *comm, rank, nranks, &number, &q));
	w->done++;
	while (rank == 0 && w->done < nranks) /* until the others have their result */
		usleep(1000);
	if (rank == 0)
		raise(SIGKILL);
	WANT(tuttiAllReduceQuorum(x, x, COUNT, tuttiFloat32, tuttiSum, w->k, 0, *comm, NULL, &q) ==
	     tuttiRemoteError);
	WANT(strstr(tuttiGetLastError(NULL), "rank 0") &&
	     strstr(tuttiGetLastError(NULL), "quorum operation 2"));
	WANT(!tuttiCommShrink(*comm, NULL, 0, &left, NULL, TUTTI_SHRINK_DEFAULT));
	x[0] = 1; /* a new rank 0 computes the sum from now on */
	WANT(!tuttiAllReduceQuorum(x, x, COUNT, tuttiFloat32, tuttiSum, nranks - 1, 20000, left,
				   NULL, &q));
	WANT(q.mine == tuttiQuorumIn && q.sequence == 1 && q.count == nranks - 1 &&
	     x[0] == (float)(nranks - 1));
	tuttiCommDestroy(*comm);
	*comm = left;
	return 0;
}

Test(quorum, names_a_dead_rank_0_and_works_after_shrinking, .timeout = 60)
{
	struct quorum_world *w = world_of(&(struct quorum_world){ .k = 3, .deadline_ms = 20000 });

	cr_expect_eq(run(3, NULL, NULL, 20000, 1, lose_root, w), 0);
}

/* Quorums of all ranks, until rank 0, which is killed at a random moment, is gone; then the others
 * shrink and a new rank 0 coordinates, down to one rank. A result has a bit and a 1 for each rank in
 * it, whoever died. */
static int lose_each_root(tuttiComm_t *comm, int rank, int nranks, void *arg)
{
	struct quorum_world *w = arg;
	tuttiQuorum_t q = TUTTI_QUORUM_INITIALIZER;
	int n = nranks, me = rank;

	while (n > 1) {
		tuttiResult_t rc = tuttiSuccess;
		tuttiComm_t left;
		float x[COUNT];

		if (me == 0) {
			signal(SIGALRM, SIG_DFL);
			ualarm((unsigned)(5000 + random_of(w->seed, (unsigned)rank) % 30000), 0);
		}
		while (!rc) {
			x[0] = x[COUNT - 1] = 1;
			rc = tuttiAllReduceQuorum(x, x, COUNT, tuttiFloat32, tuttiSum, n, 20000,
						  *comm, NULL, &q);
			WANT(rc || (q.count == __builtin_popcountll(q.mask[0]) &&
				    x[0] == (float)q.count && x[COUNT - 1] == x[0]));
		}
		WANT(rc == tuttiRemoteError && strstr(tuttiGetLastError(NULL), "rank 0"));
		WANT(!tuttiCommShrink(*comm, NULL, 0, &left, NULL, TUTTI_SHRINK_DEFAULT));
		tuttiCommDestroy(*comm);
		*comm = left;
		WANT(!tuttiCommUserRank(left, &me) && !tuttiCommCount(left, &n));
		WANT(me == rank - (nranks - n));
	}
	return 0;
}

Test(quorum, works_on_when_each_rank_0_dies_as_coordinator, .timeout = 120)
{
	for (unsigned i = 0; i < 3; i++) {
		struct quorum_world *w = world_of(&(struct quorum_world){ .seed = 17 + i });

		cr_expect_eq(run(5, i % 2 ? "tcp" : NULL, NULL, 50000, 4, lose_each_root, w), 0,
			     "seed %u", 17 + i);
	}
}

/* The last rank is stopped for 20 operations, is late once after SIGCONT, then contributes. */
static int stop(tuttiComm_t *comm, int rank, int nranks, void *arg)
{
	struct quorum_world *w = arg;
	tuttiQuorum_t q = TUTTI_QUORUM_INITIALIZER;
	uint64_t number = 0;

	w->pids[rank] = getpid();
	WANT(!tuttiBarrier(*comm, NULL));
	if (rank == nranks - 1)
		raise(SIGSTOP);
	for (int i = 0; rank < nranks - 1 && i < 20; i++)
		if (contribute(w, *comm, rank, nranks, &number, &q))
			return 1;
	if (rank < nranks - 1)
		w->done++;
	while (w->done < nranks - 1)
		usleep(1000);
	if (rank == nranks - 1) {
		WANT(!contribute(w, *comm, rank, nranks, &number, &q) &&
		     q.mine == tuttiQuorumLate && number == 20);
		w->done++;
	}
	while (w->done < nranks) {
		/* repeated, because the rank may not have stopped yet */
		if (rank == 0)
			kill(w->pids[nranks - 1], SIGCONT);
		usleep(1000);
	}
	w->k = nranks;
	WANT(!contribute(w, *comm, rank, nranks, &number, &q) && q.mine == tuttiQuorumIn &&
	     q.count == nranks);
	return tuttiBarrier(*comm, NULL) != tuttiSuccess;
}

Test(quorum, readmits_a_stopped_rank, .timeout = 60)
{
	struct quorum_world *w = world_of(&(struct quorum_world){ .k = 3, .deadline_ms = 20000 });

	cr_expect_eq(run(4, NULL, NULL, 20000, 0, stop, w), 0);
}

/* ---- use ------------------------------------------------------------------------------------- */

/* The memory of rank 0 grows when its contribution arrives; then rank 1 calls. */
static int call_first(tuttiComm_t comm, _Atomic int *first_called)
{
	float x[8] = { 1 }, y[8];
	uint64_t before, memory;
	tuttiStream_t stream;

	WANT(!tuttiStreamCreate(&stream) && !tuttiCommMemStats(comm, tuttiMemControl, &before));
	WANT(!tuttiAllReduceQuorum(x, y, 8, tuttiFloat32, tuttiSum, 2, 0, comm, stream, NULL));
	do
		WANT(!tuttiCommMemStats(comm, tuttiMemControl, &memory));
	while (memory <= before);
	*first_called = 1;
	WANT(!tuttiStreamSynchronize(stream) && !tuttiStreamDestroy(stream) && y[0] == 2);
	return 0;
}

static int misuse(tuttiComm_t *comm, int rank, int nranks, void *arg)
{
	tuttiQuorum_t q = TUTTI_QUORUM_INITIALIZER, uninitialized = { 0 };
	float x[8] = { 1 }, y[8];
	_Atomic int *first_called = arg;

	WANT(tuttiAllReduceQuorum(x, y, 8, tuttiFloat32, tuttiSum, 0, 0, *comm, NULL, &q) ==
	     tuttiInvalidArgument);
	WANT(tuttiAllReduceQuorum(x, y, 8, tuttiFloat32, tuttiSum, nranks + 1, 0, *comm, NULL,
				  &q) == tuttiInvalidArgument);
	WANT(tuttiAllReduceQuorum(x, y, 8, tuttiFloat32, tuttiSum, 1, -1, *comm, NULL, &q) ==
	     tuttiInvalidArgument);
	WANT(tuttiAllReduceQuorum(x, y, 8, tuttiFloat32, tuttiSum, 1, 0, *comm, NULL,
				  &uninitialized) == tuttiInvalidArgument);
	WANT(tuttiAllReduceQuorum(x, NULL, 8, tuttiFloat32, tuttiSum, 1, 0, *comm, NULL, &q) ==
	     tuttiInvalidArgument);
	WANT(tuttiAllReduceQuorum(x, y, 8, tuttiFloat32, tuttiBand, 1, 0, *comm, NULL, &q) ==
	     tuttiInvalidArgument);
	tuttiGroupStart();
	WANT(tuttiAllReduceQuorum(x, y, 8, tuttiFloat32, tuttiSum, 1, 0, *comm, NULL, &q) ==
	     tuttiInvalidUsage);
	WANT(tuttiGroupEnd() == tuttiInvalidUsage);
	/* a count other than that of rank 0, the first contributor */
	if (rank == 1) {
		while (!*first_called)
			usleep(1000);
		WANT(tuttiAllReduceQuorum(x, y, 4, tuttiFloat32, tuttiSum, 2, 0, *comm, NULL, &q) ==
		     tuttiInvalidUsage);
		WANT(strstr(tuttiGetLastError(NULL), "rank 1 called") &&
		     strstr(tuttiGetLastError(NULL), "rank 0"));
	}
	if (rank == 0)
		WANT(!call_first(*comm, first_called));
	else
		WANT(!tuttiAllReduceQuorum(x, y, 8, tuttiFloat32, tuttiSum, 2, 0, *comm, NULL,
					   NULL) &&
		     y[0] == 2);
	return tuttiBarrier(*comm, NULL) != tuttiSuccess;
}

Test(quorum, refuses_invalid_calls_with_an_error_text, .timeout = 60)
{
	_Atomic int *first_called = mmap(NULL, 4096, PROT_READ | PROT_WRITE,
					 MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	cr_expect_eq(run(2, NULL, NULL, 20000, 0, misuse, (void *)first_called), 0);
}

static int in_stream(tuttiComm_t *comm, int rank, int nranks, void *arg)
{
	tuttiQuorum_t q[10];
	float x[10][4], sum = 0;
	tuttiStream_t stream;

	(void)arg;
	WANT(!tuttiStreamCreate(&stream));
	for (int i = 0; i < 10; i++) {
		q[i] = (tuttiQuorum_t)TUTTI_QUORUM_INITIALIZER;
		x[i][0] = (float)(rank + i);
		WANT(!tuttiAllReduceQuorum(x[i], x[i], 4, tuttiFloat32, tuttiSum, nranks, 0, *comm,
					   stream, &q[i]));
	}
	WANT(!tuttiStreamSynchronize(stream));
	for (int i = 0; i < 10; i++, sum = 0) {
		for (int r = 0; r < nranks; r++)
			sum += (float)(r + i);
		WANT(x[i][0] == sum && q[i].sequence == (uint64_t)i + 1 && q[i].count == nranks);
	}
	WANT(!tuttiStreamDestroy(stream));
	return tuttiBarrier(*comm, NULL) != tuttiSuccess;
}

Test(quorum, runs_in_a_stream, .timeout = 60)
{
	cr_expect_eq(run(3, NULL, NULL, 20000, 0, in_stream, NULL), 0);
}

/* Rank 0 stores contributions and results; its memory does not grow with the operations. */
static int bounded(tuttiComm_t *comm, int rank, int nranks, void *arg)
{
	size_t count = 1u << 20;
	float *x = calloc(count, sizeof(*x));
	uint64_t memory, after_ten = 0;

	(void)arg;
	for (int i = 0; i < 40; i++) {
		WANT(!tuttiAllReduceQuorum(x, x, count, tuttiFloat32, tuttiSum, nranks, 0, *comm,
					   NULL, NULL));
		WANT(!tuttiCommMemStats(*comm, tuttiMemControl, &memory));
		WANT(memory < (size_t)(nranks + 2) * count * 4 + (66u << 20));
		after_ten = i == 18 ? memory : after_ten;
		WANT(i < 19 || memory < after_ten + (5u << 20));
	}
	WANT(rank == 0 || memory < (6u << 20));
	free(x);
	return tuttiBarrier(*comm, NULL) != tuttiSuccess;
}

Test(quorum, uses_memory_that_does_not_grow_with_operations, .timeout = 60)
{
	cr_expect_eq(run(3, NULL, NULL, 20000, 0, bounded, NULL), 0);
}
