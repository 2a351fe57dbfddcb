/*
 * gpu_pairs.c - allreduces on device memory against those on host memory: type x op x algorithm x
 * ranks x size x in place x threads or processes
 *
 * About 130 calls cover every pair of factor values (gpu_covering.c). The cases at the end, for the
 * full tier and for a GPU, run the whole product for ranks as threads, in three sizes.
 */
#include <stdlib.h>
#include <string.h>

#include "tests/gpu/gpu_covering.h"
#include "tests/gpu/gpu_buffers.h"
#include "tests/gpu/gpu_ranks.h"

static const size_t sizes[] = { 1, 37, 4099, 70001 };
static const char *names[MOST_VALUES]; /* auto and the algorithms of allreduce */
static int nnames;

/* Called before ranks start. */
static void find_names(void)
{
	nnames = 0;
	names[nnames++] = "auto";
	for (int i = 0; tt_algorithms[i] && nnames < MOST_VALUES; i++)
		if (tt_algorithms[i]->collective == TT_ALLREDUCE)
			names[nnames++] = tt_algorithms[i]->name;
}

static bool type_has_op(int type, int op)
{
	return op == tuttiNumOps
		       ? tt_reduce_kernel((tuttiDataType_t)type, tuttiSum) != NULL
		       : tt_reduce_kernel((tuttiDataType_t)type, (tuttiRedOp_t)op) != NULL;
}

static bool algorithm_has_ranks(int algorithm, int n)
{
	const struct tt_algorithm *a = tt_algorithm_look(TT_ALLREDUCE, names[algorithm]);
	static const int hosts[TT_DEV_RANKS];
	struct tt_topology topology = { .nranks = n, .nhosts = 1, .host_of = hosts };
	struct tt_shape shape = { .collective = TT_ALLREDUCE, .nranks = n, .topology = &topology };

	return !a || !a->refuses || !a->refuses(&shape);
}

static bool may(enum factor f, int v, enum factor g, int w)
{
	if (f > g)
		return may(g, w, f, v);
	if (f == TYPE && g == OP)
		return type_has_op(v, w);
	return f != ALGORITHM || g != RANKS || algorithm_has_ranks(v, w + 1);
}

static struct gpu_buffers_call call_of(const int *row)
{
	struct gpu_buffers_call c = { .what = TT_ALLREDUCE,
				      .type = (tuttiDataType_t)row[TYPE],
				      .op = (tuttiRedOp_t)row[OP],
				      .count = sizes[row[SIZE]],
				      .in_place = row[IN_PLACE] };

	if (row[OP] == tuttiNumOps) /* means a pre-multiplied sum */
		c.op = tuttiSum, c.scalar = 3;
	return c;
}

/* auto sums in rank order on a GPU; on the host it may choose another order. */
static void compare(struct gpu_buffers *b, const struct gpu_buffers_call *c, int algorithm,
		    tuttiComm_t comm)
{
	if (algorithm)
		gpu_buffers_check_by_host(b, c, comm);
	else
		gpu_buffers_check(b, c, comm);
}

static int split(tuttiComm_t comm, int rank, const char *algo, tuttiComm_t *ret)
{
	tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;

	config.algo = algo;
	if (!tuttiCommSplit(comm, 0, rank, ret, &config) && (*ret)->gpu && (*ret)->gpu->kernels)
		return 0;
	fprintf(stderr, "rank %d: %s: %s\n", rank, algo, tuttiGetLastError(NULL));
	return 1;
}

static int values(enum factor f)
{
	const int all[FACTORS] = { tuttiNumTypes,
				   tuttiNumOps + 1,
				   nnames,
				   TT_DEV_RANKS,
				   sizeof(sizes) / sizeof(sizes[0]),
				   2,
				   2 };

	return all[f];
}

static void make(struct covering *c)
{
	for (int f = 0; f < FACTORS; f++)
		c->values[f] = values((enum factor)f);
	c->may = may;
	claim(covering_make(c) == 0);
}

/* Runs the rows of n ranks as threads or processes, with one communicator per algorithm. */
static int run_rows(tuttiComm_t *comm, int rank, int n, int processes)
{
	tuttiComm_t by[MOST_VALUES] = { NULL };
	struct covering *c = malloc(sizeof(*c));
	struct gpu_buffers b;

	make(c);
	if (gpu_buffers_open(&b, rank, n))
		return 1;
	for (int i = 0; i < c->nrows; i++) {
		const int *row = c->row[i];
		struct gpu_buffers_call call = call_of(row);

		if (row[RANKS] + 1 != n || row[PROCESSES] != processes)
			continue;
		if (!by[row[ALGORITHM]] &&
		    split(*comm, rank, names[row[ALGORITHM]], &by[row[ALGORITHM]]))
			return 1;
		compare(&b, &call, row[ALGORITHM], by[row[ALGORITHM]]);
	}
	for (int a = 0; a < nnames; a++)
		if (by[a])
			tuttiCommDestroy(by[a]);
	gpu_buffers_close(&b);
	free(c);
	return b.wrong;
}

static int rows_of_threads(tuttiComm_t *comm, int rank, int n, void *arg)
{
	(void)arg;
	return run_rows(comm, rank, n, 0);
}

static int rows_of_processes(tuttiComm_t *comm, int rank, int n, void *arg)
{
	(void)arg;
	return run_rows(comm, rank, n, 1);
}

static void every_pair_of_factor_values_gives_the_hosts_bits(void)
{
	struct covering *c = malloc(sizeof(*c));
	int most = gpu_thorough() ? TT_DEV_RANKS : 3;

	find_names();
	make(c);
	fprintf(stderr, "%d calls cover all pairs\n", c->nrows);
	free(c);
	for (int n = gpu_thorough() ? 1 : most; n <= most; n++) {
		claim(run_gpu_ranks(n, KERNEL_BARRIER, true, rows_of_threads) == 0);
		claim((n > 3 && !gpu_thorough_processes()) ||
		      run_gpu_ranks(n, n > 1 ? STREAM_ORDER : KERNEL_BARRIER, false,
				    rows_of_processes) == 0);
	}
}

/* Every type, op and algorithm in three sizes. The printed counts show omissions. */
static int all(tuttiComm_t *comm, int rank, int n, void *arg)
{
	int calls = 0, algorithms = 0;
	struct gpu_buffers b;

	(void)arg;
	if (gpu_buffers_open(&b, rank, n))
		return 1;
	for (int a = 0; a < nnames; a++) {
		tuttiComm_t c;

		if (!algorithm_has_ranks(a, n))
			continue;
		if (split(*comm, rank, names[a], &c))
			return 1;
		algorithms++;
		for (int type = 0; type < tuttiNumTypes; type++)
			for (int op = 0; op <= tuttiNumOps; op++)
				for (int size = 1; size < 4 && type_has_op(type, op); size++) {
					int row[FACTORS] = { type,  op,   a,
							     n - 1, size, (type + op + size) % 2,
							     0 };
					struct gpu_buffers_call call = call_of(row);

					compare(&b, &call, a, c);
					calls++;
				}
		tuttiCommDestroy(c);
	}
	gpu_buffers_close(&b);
	if (!rank)
		fprintf(stderr, "%d ranks: %d calls, %d algorithms and auto, %d wrong\n", n, calls,
			algorithms - 1, b.wrong);
	return b.wrong;
}

#define ALL_OF(n)                                                                        \
	static void every_type_op_and_algorithm_gives_##n##_threads_the_hosts_bits(void) \
	{                                                                                \
		find_names();                                                            \
		claim(run_gpu_ranks(n, KERNEL_BARRIER, true, all) == 0);                 \
	}
#define CASE_OF(n) GPU_LONG_CASE(every_type_op_and_algorithm_gives_##n##_threads_the_hosts_bits),
#define EACH_N(X) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8)
_Static_assert(TT_DEV_RANKS == 8, "EACH_N has all numbers of ranks");
EACH_N(ALL_OF)

const struct gpu_case gpu_pairs[] = {
	GPU_CASE(every_pair_of_factor_values_gives_the_hosts_bits),
	EACH_N(CASE_OF){ NULL, NULL, false },
};
