/*
 * test_collectives.c - every collective on random data, against a plain reference without plans
 *
 * Ranks are processes (and threads) with real transports. Integers must agree exactly, floats
 * within the error of n roundings; all ranks must have the same bits (D0), and a second call must
 * repeat the bits (D1).
 */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "algorithms/algorithms.h"
#include "mem/reduce.h"
#include "tests/support/ranks.h"
#include "tests/support/reference.h"

#define MAX_RANKS 16
#define GUARD 64

struct collective_results {
	_Atomic unsigned long long hash[MAX_RANKS];
};

struct collective_task {
	struct collective_results *results;
	unsigned long long seed;
	int rounds;
	size_t max_count;
	rank_fn *fn; /* what each algorithm's communicator is for */
};

enum buffer_kind {
	ALLREDUCE,
	REDUCE,
	BROADCAST,
	ALLGATHER,
	REDUCE_SCATTER,
	ALLTOALL,
	GATHER,
	SCATTER,
	KINDS
};
static const char *const kind_names[KINDS] = { "allreduce", "reduce",         "broadcast",
					       "allgather", "reduce_scatter", "alltoall",
					       "gather",    "scatter" };

struct random_call {
	enum buffer_kind kind;
	tuttiDataType_t type;
	tuttiRedOp_t op;
	/* shift: bytes by which sendbuff is misaligned, recvbuff by half as many */
	size_t count, shift;
	int root, n;
	bool in_place;
	unsigned long long seed;
};

static size_t in_parts(const struct random_call *c)
{
	bool parts = c->kind == REDUCE_SCATTER || c->kind == ALLTOALL || c->kind == SCATTER;

	return parts ? (size_t)c->n : 1;
}

static size_t out_parts(const struct random_call *c)
{
	bool parts = c->kind == ALLGATHER || c->kind == ALLTOALL || c->kind == GATHER;

	return parts ? (size_t)c->n : 1;
}

/* Store element i of rank's input in p: random bits for integers, random numbers for float32 and
 * float64, multiples of 1/8 for narrower floats. */
static void put_input(const struct random_call *c, int rank, size_t i, void *p)
{
	unsigned long long z = random_of(c->seed + (unsigned)rank * 7919u, i);

	if (tt_type_is_integer(c->type))
		memcpy(p, &z, tt_type_bytes(c->type));
	else if (c->type == tuttiFloat32 || c->type == tuttiFloat64)
		tt_element_set(p, 0, c->type, (double)(long long)z / 9.3e18);
	else
		tt_element_set(p, 0, c->type, (double)(int)(z % 15 - 7) / 8);
}

static void fill_input(const struct random_call *c, int rank, char *buf)
{
	for (size_t i = 0; i < c->count * in_parts(c); i++)
		put_input(c, rank, i, buf + i * tt_type_bytes(c->type));
}

/* Is rank's input part of the result? */
static bool contributes(const struct random_call *c, int rank)
{
	return (c->kind != BROADCAST && c->kind != SCATTER) || rank == c->root;
}

static bool right_int(const struct random_call *c, const void *got, size_t i)
{
	uint64_t want = 0, one;

	for (int r = 0; r < c->n; r++) {
		put_input(c, r, i, &one);
		one = ref_integer(c->type, &one);
		want = r ? ref_combine(c->type, c->op, want, one) : one;
		want = ref_integer(c->type, &want);
	}
	if (c->op == tuttiAvg && ref_is_signed(c->type))
		want = (uint64_t)((int64_t)want / c->n);
	else if (c->op == tuttiAvg)
		want /= (unsigned)c->n;
	return !memcmp(&want, got, tt_type_bytes(c->type));
}

static double epsilon(tuttiDataType_t type)
{
	switch ((int)type) {
	case tuttiFloat64:
		return 0x1p-52;
	case tuttiFloat32:
		return 0x1p-23;
	case tuttiFloat16:
		return 0x1p-10;
	case tuttiBfloat16:
		return 0x1p-7;
	case tuttiFloat8e4m3:
		return 0x1p-3;
	default:
		return 0x1p-2;
	}
}

static bool right_float(const struct random_call *c, const void *got, size_t i)
{
	double want = 0, size = 0, have = tt_element_get(got, 0, c->type), eps = epsilon(c->type);
	double one, v;

	for (int r = 0; r < c->n; r++) {
		put_input(c, r, i, &one);
		v = tt_element_get(&one, 0, c->type);
		size += fabs(v);
		if (c->op == tuttiMax)
			want = r == 0 || v > want ? v : want;
		else if (c->op == tuttiMin)
			want = r == 0 || v < want ? v : want;
		else if (c->op == tuttiProd)
			want = r ? want * v : v;
		else
			want += v;
	}
	if (c->op == tuttiMax || c->op == tuttiMin)
		return have == want;
	if (c->op == tuttiAvg)
		want /= c->n, size /= c->n;
	return fabs(have - want) <= c->n * eps * (c->op == tuttiProd ? fabs(want) + 0x1p-9 : size) +
					    0x1p-9 * (eps > 0x1p-20);
}

/* Is element gi of rank's result right? */
static bool right(const struct random_call *c, int rank, const void *got, size_t gi)
{
	size_t bytes = tt_type_bytes(c->type), part = gi / c->count, i = gi % c->count;
	const char *at = (const char *)got + gi * bytes;
	uint64_t want;
	int from;

	switch ((int)c->kind) {
	case ALLREDUCE:
	case REDUCE:
	case REDUCE_SCATTER:
		if (c->kind == REDUCE_SCATTER)
			i += (size_t)rank * c->count;
		return tt_type_is_integer(c->type) ? right_int(c, at, i) : right_float(c, at, i);
	case BROADCAST:
		from = c->root;
		break;
	case ALLGATHER:
	case GATHER:
		from = (int)part;
		break;
	case ALLTOALL:
		from = (int)part;
		i += (size_t)rank * c->count;
		break;
	default:
		from = c->root;
		i += (size_t)rank * c->count;
		break;
	}
	put_input(c, from, i, &want);
	return !memcmp(&want, at, bytes);
}

static tuttiResult_t make_call(const struct random_call *c, const void *in, void *out,
			       tuttiComm_t comm)
{
	switch ((int)c->kind) {
	case ALLREDUCE:
		return tuttiAllReduce(in, out, c->count, c->type, c->op, comm, NULL);
	case REDUCE:
		return tuttiReduce(in, out, c->count, c->type, c->op, c->root, comm, NULL);
	case BROADCAST:
		return tuttiBroadcast(in, out, c->count, c->type, c->root, comm, NULL);
	case ALLGATHER:
		return tuttiAllGather(in, out, c->count, c->type, comm, NULL);
	case REDUCE_SCATTER:
		return tuttiReduceScatter(in, out, c->count, c->type, c->op, comm, NULL);
	case ALLTOALL:
		return tuttiAlltoAll(in, out, c->count, c->type, comm, NULL);
	case GATHER:
		return tuttiGather(in, out, c->count, c->type, c->root, comm, NULL);
	default:
		return tuttiScatter(in, out, c->count, c->type, c->root, comm, NULL);
	}
}

static struct random_call random_call(unsigned long long seed, int n, size_t max_count)
{
	static const size_t counts[] = { 0,  1,  2,  3,   5,    7,    15,   16,   17,
					 63, 64, 65, 255, 1000, 1021, 4096, 4097, 12345 };
	struct random_call c = { .n = n, .seed = seed };

	c.kind = (enum buffer_kind)(random_of(seed, 1) % (KINDS + 3));
	if (c.kind >= KINDS)
		c.kind = ALLREDUCE;
	c.type = (tuttiDataType_t)(random_of(seed, 2) % tuttiNumTypes);
	c.op = (tuttiRedOp_t)(random_of(seed, 3) %
			      (tt_type_is_integer(c.type) ? tuttiNumOps : tuttiBand));
	c.count = random_of(seed, 4) % 8
			  ? counts[random_of(seed, 5) % (sizeof(counts) / sizeof(counts[0]))]
			  : random_of(seed, 5) % (max_count + 1);
	c.root = (int)(random_of(seed, 6) % (unsigned)n);
	c.in_place = random_of(seed, 7) % 3 == 0;
	c.shift = random_of(seed, 8) % 4 ? 0 : random_of(seed, 9) % 64;
	if (c.kind != ALLREDUCE && c.count > 20000)
		c.count /= (size_t)n;
	return c;
}

static unsigned long long hash_of(const void *p, size_t bytes)
{
	unsigned long long h = 14695981039346656037ull;

	for (size_t i = 0; i < bytes; i++)
		h = (h ^ ((const unsigned char *)p)[i]) * 1099511628211ull;
	return h;
}

/* Buffers of one call; in place sendbuff and recvbuff share memory. */
struct collective_buffers {
	char *raw_in, *raw_out, *in, *out;
	size_t in_bytes, out_bytes;
};

static void lay_out(const struct random_call *c, int rank, struct collective_buffers *b)
{
	size_t part = c->count * tt_type_bytes(c->type);

	b->in_bytes = part * in_parts(c);
	b->out_bytes = part * out_parts(c);
	b->raw_in = malloc(b->in_bytes + 2 * GUARD + 64);
	b->raw_out = malloc(b->out_bytes + 2 * GUARD + 64);
	b->in = b->raw_in + GUARD + c->shift;
	b->out = b->raw_out + GUARD + c->shift / 2;
	memset(b->raw_out, 0x5a, b->out_bytes + 2 * GUARD + 64);
	if (!c->in_place)
		return;
	if (c->kind == ALLGATHER || c->kind == GATHER)
		b->in = c->kind == GATHER && rank != c->root ? b->in : b->out + (size_t)rank * part;
	else if (c->kind == REDUCE_SCATTER || (c->kind == SCATTER && rank == c->root))
		b->out = b->in + (size_t)rank * part;
	else if (c->kind != SCATTER)
		b->in = b->out;
}

/* Are the guard bytes around recvbuff unchanged since lay_out? */
static bool untouched(const struct collective_buffers *b)
{
	for (size_t i = 1; i <= GUARD; i++)
		if (b->out[-(long)i] != 0x5a || b->out[b->out_bytes + i - 1] != 0x5a)
			return false;
	return true;
}

/* Only one rank checks the elements of an allreduce: differs_from_rank_0 compares all ranks. */
static int verify_elements(const struct random_call *c, int rank,
			   const struct collective_buffers *b)
{
	size_t n = c->kind == ALLREDUCE && rank != (int)(c->seed % (unsigned)c->n)
			   ? 0
			   : c->count * out_parts(c);

	for (size_t i = 0; i < n; i++)
		if (!right(c, rank, b->out, i)) {
			fprintf(stderr,
				"rank %d of %d: %s type %d op %d count %zu root %d%s: element %zu is wrong (seed %llu)\n",
				rank, c->n, kind_names[c->kind], c->type, c->op, c->count, c->root,
				c->in_place ? " in place" : "", i, c->seed);
			return 1;
		}
	return 0;
}

static int verify(const struct random_call *c, int rank, const struct collective_buffers *b,
		  bool elements)
{
	bool rooted = c->kind == REDUCE || c->kind == GATHER;
	size_t n;
	char *copy;

	if (rooted && rank != c->root)
		return 0;
	if (elements && verify_elements(c, rank, b))
		return 1;
	if (!c->in_place && !untouched(b)) {
		fprintf(stderr, "rank %d: %s wrote outside recvbuff (seed %llu)\n", rank,
			kind_names[c->kind], c->seed);
		return 1;
	}
	if (c->in_place || !contributes(c, rank))
		return 0;
	copy = malloc(b->in_bytes ? b->in_bytes : 1); /* sendbuff is intact */
	fill_input(c, rank, copy);
	n = (size_t)memcmp(copy, b->in, b->in_bytes);
	free(copy);
	if (n)
		fprintf(stderr, "rank %d: %s changed sendbuff\n", rank, kind_names[c->kind]);
	return n != 0;
}

static int differs_from_rank_0(int rank, tuttiComm_t comm, struct collective_results *results,
			       unsigned long long hash)
{
	int bad;

	results->hash[rank] = hash;
	bad = tuttiBarrier(comm, NULL) || results->hash[0] != hash;
	if (bad)
		fprintf(stderr, "rank %d: bits that differ from rank 0\n", rank);
	return bad | (tuttiBarrier(comm, NULL) != tuttiSuccess);
}

/* Make the call twice: the second call must give the same bits. */
static int one_call(const struct random_call *c, int rank, tuttiComm_t comm,
		    struct collective_results *results)
{
	bool has_result = (c->kind != REDUCE && c->kind != GATHER) || rank == c->root;
	unsigned long long hash[2] = { 0 };
	struct collective_buffers b;
	int bad = 0;

	lay_out(c, rank, &b);
	for (int again = 0; again < 2 && !bad; again++) {
		if (contributes(c, rank))
			fill_input(c, rank, b.in);
		if (make_call(c, b.in, b.out, comm)) {
			fprintf(stderr, "rank %d: %s (seed %llu): %s\n", rank, kind_names[c->kind],
				c->seed, tuttiGetLastError(comm));
			bad = 1;
			break;
		}
		bad = verify(c, rank, &b, again == 0);
		hash[again] = hash_of(b.out, has_result ? b.out_bytes : 0);
	}
	if (!bad && hash[0] != hash[1]) {
		fprintf(stderr, "rank %d: the second call gave different bits\n", rank);
		bad = 1;
	}
	if (!bad && c->kind == ALLREDUCE)
		bad = differs_from_rank_0(rank, comm, results, hash[0]);
	free(b.raw_in);
	free(b.raw_out);
	return bad;
}

static int with_algorithm(const char *algo, tuttiComm_t comm, int rank, int n,
			  struct collective_task *t)
{
	tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
	tuttiComm_t c;
	int bad;

	config.algo = algo;
	if (tuttiCommSplit(comm, 0, rank, &c, &config)) {
		fprintf(stderr, "rank %d: %s: %s\n", rank, algo, tuttiGetLastError(comm));
		return 1;
	}
	bad = t->fn(&c, rank, n, t);
	if (bad)
		fprintf(stderr, "rank %d of %d: %s\n", rank, n, algo);
	tuttiCommDestroy(c);
	return bad;
}

/* One join for all algorithms: each has a communicator of the same ranks. */
static int of_each_algorithm(tuttiComm_t *comm, int rank, int n, void *arg)
{
	struct collective_task t = *(struct collective_task *)arg;
	int bad = with_algorithm("auto", *comm, rank, n, &t);

	for (int a = 0; tt_algorithms[a] && !bad; a++) {
		if (tt_algorithms[a]->collective != TT_ALLREDUCE)
			continue;
		t.seed += 31;
		bad = with_algorithm(tt_algorithms[a]->name, *comm, rank, n, &t);
	}
	return bad;
}

static int random_calls(tuttiComm_t *comm, int rank, int n, void *arg)
{
	struct collective_task *t = arg;

	for (int i = 0; i < t->rounds; i++) {
		struct random_call c = random_call(t->seed + (unsigned)i * 1000003u, n,
						   t->max_count);

		if (one_call(&c, rank, *comm, t->results))
			return 1;
	}
	return 0;
}

/* TUTTI_TEST_FEWER divides the number of calls, for an emulated machine. */
static void check(struct ranks r, rank_fn *fn, unsigned long long seed, int rounds,
		  size_t max_count)
{
	const char *fewer = getenv("TUTTI_TEST_FEWER");
	struct collective_task t = { .seed = seed,
				     .rounds = fewer ? (rounds + atoi(fewer) - 1) / atoi(fewer)
						     : rounds,
				     .max_count = max_count,
				     .fn = random_calls };

	t.results = mmap(NULL, sizeof(*t.results), PROT_READ | PROT_WRITE,
			 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	r.arg = &t;
	cr_expect_eq(ranks_run(&r, fn), 0, "n %d transport %s", r.n, r.transport);
	munmap(t.results, sizeof(*t.results));
}

Test(collectives, random_calls_over_shm_are_right, .timeout = 240)
{
	static const int ns[] = { 1, 2, 3, 4, 5, 8 };

	for (size_t i = 0; i < sizeof(ns) / sizeof(ns[0]); i++)
		check((struct ranks){ .n = ns[i], .transport = "shm" }, of_each_algorithm, i, 40,
		      200000);
}

Test(collectives, random_calls_over_tcp_are_right, .timeout = 240)
{
	static const int ns[] = { 2, 3, 4, 7 };

	for (size_t i = 0; i < sizeof(ns) / sizeof(ns[0]); i++)
		check((struct ranks){ .n = ns[i], .transport = ranks_network() }, of_each_algorithm,
		      1000 + i, 25, 400000);
}

Test(collectives, random_calls_of_threads_of_one_process_are_right, .timeout = 120)
{
	for (int n = 2; n <= 5; n++)
		check((struct ranks){ .n = n, .threads = true }, random_calls, 5000 + (unsigned)n,
		      60, 100000);
}

/* A number whose double overflows the type; sums of up to 8 fractions of the number need no
 * rounding. */
static double big_of(tuttiDataType_t type)
{
	return type == tuttiFloat16 ? 40960 : type == tuttiFloat8e5m2 ? 32768 : 256;
}

static bool all_are(double value, const void *buf, size_t count, tuttiDataType_t type)
{
	for (size_t i = 0; i < count; i++)
		if (tt_element_get(buf, i, type) != value)
			return false;
	return true;
}

/* Every rank contributes the number of big_of, so the average is that number as well. */
static int big_averages(tuttiComm_t *comm, int rank, int n, void *arg)
{
	static const tuttiDataType_t types[] = { tuttiFloat16, tuttiFloat8e4m3, tuttiFloat8e5m2 };
	enum { COUNT = 1000 };
	char in[16 * COUNT * 2], out[COUNT * 2];

	(void)arg;
	for (size_t t = 0; t < 3; t++) {
		double big = big_of(types[t]);

		for (size_t i = 0; i < (size_t)n * COUNT; i++)
			tt_element_set(in, i, types[t], big);
		if (tuttiAllReduce(in, out, COUNT, types[t], tuttiAvg, *comm, NULL) ||
		    !all_are(big, out, COUNT, types[t]) || !all_are(big, in, COUNT, types[t]))
			return 1;
		if (tuttiReduceScatter(in, out, COUNT, types[t], tuttiAvg, *comm, NULL) ||
		    !all_are(big, out, COUNT, types[t]) || !all_are(big, in, COUNT, types[t]))
			return 1;
		if (tuttiReduce(in, out, COUNT, types[t], tuttiAvg, n - 1, *comm, NULL) ||
		    (rank == n - 1 && !all_are(big, out, COUNT, types[t])) ||
		    !all_are(big, in, COUNT, types[t]))
			return 1;
		if (tuttiAllReduce(in, in, COUNT, types[t], tuttiAvg, *comm, NULL) ||
		    !all_are(big, in, COUNT, types[t]))
			return 1;
	}
	return 0;
}

Test(collectives, averages_of_narrow_floats_do_not_overflow_where_their_sums_do, .timeout = 120)
{
	static const int ns[] = { 1, 2, 3, 5, 8 };
	struct collective_task t = { .fn = big_averages };

	for (size_t i = 0; i < sizeof(ns) / sizeof(ns[0]); i++)
		cr_expect_eq(ranks_run(&(struct ranks){ .n = ns[i], .transport = "shm", .arg = &t },
				       of_each_algorithm),
			     0, "n %d", ns[i]);
}
