/*
 * test_operators.c - reductions by a function of the user, against a fold in rank order, over shm and
 * tcp
 *
 * The operand is a 2x2 matrix of uint64_t: its product does not commute, and wraps, so it is
 * associative. The other function is a sum of floats, whose bits show the order of its operands.
 */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/must.h"

#define RANKS 5
#define MOST 3000 /* operands */

struct matrix {
	uint64_t at[4];
};

static struct matrix value(int rank, size_t i)
{
	unsigned long long seed = (unsigned long long)rank * MOST + i;

	return (struct matrix){ { random_of(seed, 0), random_of(seed, 1), random_of(seed, 2),
				  random_of(seed, 3) } };
}

static struct matrix product(const struct matrix *a, const struct matrix *b)
{
	const uint64_t *x = a->at, *y = b->at;

	return (struct matrix){ { x[0] * y[0] + x[1] * y[2], x[0] * y[1] + x[1] * y[3],
				  x[2] * y[0] + x[3] * y[2], x[2] * y[1] + x[3] * y[3] } };
}

static void multiply(const void *in, void *inout, size_t count, void *arg)
{
	const struct matrix *a = in;
	struct matrix *b = inout;

	__atomic_add_fetch((int *)arg, 1, __ATOMIC_RELAXED);
	for (size_t i = 0; i < count; i++)
		b[i] = product(&a[i], &b[i]);
}

static struct matrix want(int n, size_t i)
{
	struct matrix m = value(0, i);

	for (int r = 1; r < n; r++) {
		struct matrix x = value(r, i);

		m = product(&m, &x);
	}
	return m;
}

static bool right(const struct matrix *got, int n, size_t first, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		struct matrix m = want(n, first + i);

		if (memcmp(&got[i], &m, sizeof(m)) != 0)
			return false;
	}
	return true;
}

static void fill(struct matrix *in, int rank, size_t count)
{
	for (size_t i = 0; i < count; i++)
		in[i] = value(rank, i);
}

/* All four reductions of `count` operands, on a stream or without, in place or not */
static int each(tuttiComm_t c, int rank, int n, tuttiRedOp_t op, size_t count, tuttiStream_t s,
		bool in_place)
{
	static __thread struct matrix in[MOST], out[MOST];
	struct matrix *to = in_place ? in : out;
	size_t part = count / (size_t)n, counts[RANKS], before = 0, root = count % (size_t)n;
	bool at_root = rank == (int)root;

	fill(in, rank, count);
	MUST(tuttiAllReduce(in, to, count * 4, tuttiUint64, op, c, s));
	if (s)
		MUST(tuttiStreamSynchronize(s));
	WANT(right(to, n, 0, count));
	fill(in, rank, count);
	MUST(tuttiReduce(in, at_root ? to : NULL, count * 4, tuttiUint64, op, (int)root, c, s));
	if (s)
		MUST(tuttiStreamSynchronize(s));
	WANT(!at_root || right(to, n, 0, count));
	fill(in, rank, count);
	to = in_place ? in + (size_t)rank * part : out;
	MUST(tuttiReduceScatter(in, to, part * 4, tuttiUint64, op, c, s));
	if (s)
		MUST(tuttiStreamSynchronize(s));
	WANT(right(to, n, (size_t)rank * part, part));
	fill(in, rank, count);
	for (int r = 0; r < n; r++) {
		counts[r] = r % 2 ? 0 : part / (size_t)(r + 1) * 4;
		before += r < rank ? counts[r] / 4 : 0;
	}
	to = in_place ? in + before : out;
	MUST(tuttiReduceScatterv(in, to, counts, tuttiUint64, op, c, s));
	if (s)
		MUST(tuttiStreamSynchronize(s));
	WANT(right(to, n, before, counts[rank] / 4));
	return 0;
}

static int ordered(tuttiComm_t *comm, int rank, int n, void *arg)
{
	static const size_t sizes[] = { 0, 1, 4, 7, 100, 511, 512, 513, MOST };
	int calls = 0;
	tuttiRedOp_t op;
	tuttiStream_t s;

	(void)arg;
	MUST(tuttiStreamCreate(&s));
	MUST(tuttiRedOpCreate(&op, multiply, &calls, 4, *comm));
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
		for (int how = 0; how < 4; how++)
			if (each(*comm, rank, n, op, sizes[i], how & 1 ? s : NULL, how & 2))
				return 1;
	WANT(n == 1 || calls > 0);
	MUST(tuttiRedOpDestroy(op, *comm));
	MUST(tuttiStreamDestroy(s));
	return 0;
}

static void everywhere(int (*fn)(tuttiComm_t *, int, int, void *))
{
	static const char *const transports[] = { "shm", "tcp" };

	for (int t = 0; t < 2; t++)
		for (int n = 1; n <= RANKS; n += n == 3 ? 2 : 1) {
			struct ranks r = { .n = n, .threads = true, .transport = transports[t] };

			cr_expect_eq(ranks_run(&r, fn), 0, "n %d, %s", n, transports[t]);
		}
}

Test(operators, operands_that_do_not_commute_are_combined_in_rank_order, .timeout = 120)
{
	everywhere(ordered);
}

static void add(const void *in, void *inout, size_t count, void *arg)
{
	(void)arg;
	for (size_t i = 0; i < count; i++)
		((float *)inout)[i] = ((const float *)in)[i] + ((float *)inout)[i];
}

static float part_of(int rank, size_t i)
{
	return (float)random_of(i, (unsigned)rank) / 3e9f;
}

/* Sums of few and of many elements are the left fold, bit by bit: the size decides nothing. */
static int summed(tuttiComm_t *comm, int rank, int n, void *arg)
{
	static __thread float in[20000], out[20000];
	tuttiRedOp_t op;

	(void)arg;
	MUST(tuttiRedOpCreate(&op, add, NULL, 1, *comm));
	for (size_t i = 0; i < 20000; i++)
		in[i] = part_of(rank, i);
	for (size_t count = 3; count <= 20000; count = count == 3 ? 20000 : count + 1) {
		MUST(tuttiAllReduce(in, out, count, tuttiFloat32, op, *comm, NULL));
		for (size_t i = 0; i < count; i++) {
			float sum = part_of(0, i);

			for (int r = 1; r < n; r++)
				sum += part_of(r, i);
			WANT(out[i] == sum);
		}
	}
	return 0;
}

Test(operators, a_sum_has_the_bits_of_the_fold_in_rank_order_for_every_size, .timeout = 60)
{
	everywhere(summed);
}

static int refused(tuttiComm_t *comm, int rank, int n, void *arg)
{
	uint64_t in[8] = { 0 }, out[8];
	tuttiQuorum_t q = TUTTI_QUORUM_INITIALIZER;
	tuttiRedOp_t op;
	int calls = 0;

	(void)rank, (void)arg;
	WANT(tuttiRedOpCreate(&op, NULL, NULL, 1, *comm) == tuttiInvalidArgument);
	WANT(tuttiRedOpCreate(&op, multiply, &calls, 0, *comm) == tuttiInvalidArgument);
	MUST(tuttiRedOpCreate(&op, multiply, &calls, 4, *comm));
	WANT(tuttiAllReduce(in, out, 6, tuttiUint64, op, *comm, NULL) == tuttiInvalidArgument);
	WANT(strstr(tuttiGetLastError(*comm), "not a multiple of 4, the width"));
	WANT(tuttiAllReduceQuorum(in, out, 4, tuttiUint64, op, n, 0, *comm, NULL, &q) ==
	     tuttiInvalidArgument);
	WANT(strstr(tuttiGetLastError(*comm), "only built-in operations"));
	MUST(tuttiGroupStart());
	WANT(tuttiAllReduce(in, out, 4, tuttiUint64, op, *comm, NULL) == tuttiInvalidUsage);
	WANT(tuttiGroupEnd() == tuttiInvalidUsage);
	WANT(strstr(tuttiGetLastError(*comm), "cannot be in a group"));
	MUST(tuttiRedOpDestroy(op, *comm));
	WANT(tuttiAllReduce(in, out, 4, tuttiUint64, op, *comm, NULL) == tuttiInvalidArgument);
	WANT(calls == 0);
	return 0;
}

Test(operators, calls_that_cannot_use_a_function_say_so, .timeout = 60)
{
	everywhere(refused);
}

/* The ranks disagree about the count: an event behind the call has its error, although the call has
 * marks of its own. */
static int disagreed(tuttiComm_t *comm, int rank, int n, void *arg)
{
	uint64_t in[64] = { 0 }, out[64];
	tuttiRedOp_t op;
	tuttiStream_t s;
	tuttiEvent_t e;
	int calls = 0;

	(void)arg;
	if (n == 1)
		return 0;
	MUST(tuttiStreamCreate(&s));
	MUST(tuttiEventCreate(&e));
	MUST(tuttiRedOpCreate(&op, multiply, &calls, 4, *comm));
	tuttiAllReduce(in, out, rank ? 8 : 4, tuttiUint64, op, *comm, s);
	MUST(tuttiEventRecord(e, s));
	WANT(tuttiEventSynchronize(e) != tuttiSuccess);
	WANT(calls == 0);
	MUST(tuttiEventDestroy(e));
	WANT(tuttiStreamDestroy(s) != tuttiSuccess);
	MUST(tuttiCommAbort(*comm));
	*comm = NULL;
	return 0;
}

Test(operators, an_event_behind_a_failed_reduction_has_its_error, .timeout = 60)
{
	everywhere(disagreed);
}
