/*
 * nccl_perf.c - a benchmark that uses libnccl.so.2: nccl-tests' options and columns, ranks as
 * processes or threads
 *
 * Usage: nccl_perf [COLLECTIVE] [-b -e bytes] [-f factor] [-n iterations] [-w warm-up] [-c 0|1]
 *                  [-d type] [-o op] [-t threads | -p processes]
 * COLLECTIVE is all_reduce, reduce, broadcast, all_gather, reduce_scatter, alltoall, gather,
 * scatter. All ranks use device 0 of the driver in NCCL_CLIENT_CUDA, or host memory. Exits with 1
 * if a value is wrong. Written against nccl.h alone.
 */
#include <getopt.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "tests/nccl/nccl_client.h"

/* buffers with a part per rank: none, out, in, both */
enum shape { ALL, GATHERED, REDUCED, PARTS };

static int all_reduce(struct client_rank *s, void *in, void *out, size_t n);
static int reduce(struct client_rank *s, void *in, void *out, size_t n);
static int broadcast(struct client_rank *s, void *in, void *out, size_t n);
static int all_gather(struct client_rank *s, void *in, void *out, size_t n);
static int reduce_scatter(struct client_rank *s, void *in, void *out, size_t n);
static int alltoall(struct client_rank *s, void *in, void *out, size_t n);
static int gather(struct client_rank *s, void *in, void *out, size_t n);
static int scatter(struct client_rank *s, void *in, void *out, size_t n);

static const struct collective {
	const char *name;
	int (*call)(struct client_rank *s, void *in, void *out, size_t n);
	enum shape shape;
	bool reduces, rooted, only_root;       /* only_root: only the root has a result */
	double factor;                         /* of bus bandwidth, times (n - 1) / n; 0: 1 */
} collectives[] = {
	{ "all_reduce", all_reduce, ALL, true, false, false, 2 },
	{ "reduce", reduce, ALL, true, true, true, 0 },
	{ "broadcast", broadcast, ALL, false, true, false, 0 },
	{ "all_gather", all_gather, GATHERED, false, false, false, 1 },
	{ "reduce_scatter", reduce_scatter, REDUCED, true, false, false, 1 },
	{ "alltoall", alltoall, PARTS, false, false, false, 1 },
	{ "gather", gather, GATHERED, false, true, true, 1 },
	{ "scatter", scatter, REDUCED, false, true, false, 1 },
};
static const char *const type_names[] = {
	"int8", "uint8", "int32",  "uint32",   "int64",	 "uint64",
	"half", "float", "double", "bfloat16", "f8e4m3", "f8e5m2"
};
static const char *const op_names[] = { "sum", "prod", "max", "min", "avg" };

static const struct collective *what = &collectives[0];
static ncclDataType_t type = ncclFloat;
static ncclRedOp_t op = ncclSum;
static double min_bytes = 8, max_bytes = 1 << 25, factor = 2;
static int iterations = 20, warm_up = 5, check = 1;

static int all_reduce(struct client_rank *s, void *in, void *out, size_t n)
{
	return ncclAllReduce(in, out, n, type, op, s->comm, s->stream);
}
static int reduce(struct client_rank *s, void *in, void *out, size_t n)
{
	return ncclReduce(in, out, n, type, op, 0, s->comm, s->stream);
}
static int broadcast(struct client_rank *s, void *in, void *out, size_t n)
{
	return ncclBroadcast(in, out, n, type, 0, s->comm, s->stream);
}
static int all_gather(struct client_rank *s, void *in, void *out, size_t n)
{
	return ncclAllGather(in, out, n, type, s->comm, s->stream);
}
static int reduce_scatter(struct client_rank *s, void *in, void *out, size_t n)
{
	return ncclReduceScatter(in, out, n, type, op, s->comm, s->stream);
}
static int alltoall(struct client_rank *s, void *in, void *out, size_t n)
{
	return ncclAlltoAll(in, out, n, type, s->comm, s->stream);
}
static int gather(struct client_rank *s, void *in, void *out, size_t n)
{
	return ncclGather(in, out, n, type, 0, s->comm, s->stream);
}
static int scatter(struct client_rank *s, void *in, void *out, size_t n)
{
	return ncclScatter(in, out, n, type, 0, s->comm, s->stream);
}

/* ---- values ---------------------------------------------------------------------------------- */

static double value_of(int r, size_t i) { return (double)((i + (size_t)r * 2) % 3); }

static double wanted(const struct client_rank *s, size_t i, size_t n)
{
	size_t at = i + (what->shape == REDUCED ? (size_t)s->rank * n : 0);
	double x = value_of(0, at);

	if (!what->reduces)
		return what->shape == GATHERED ? value_of((int)(i / n), i % n)
		       : what->shape == PARTS  ? value_of((int)(i / n), (size_t)s->rank * n + i % n)
					       : x;
	for (int r = 1; r < s->nranks; r++) {
		double y = value_of(r, at);

		x = op == ncclProd  ? x * y
		    : op == ncclMax ? (x > y ? x : y)
		    : op == ncclMin ? (x < y ? x : y)
				    : x + y;
	}
	return op == ncclAvg ? x / s->nranks : x;
}

static size_t times(const struct client_rank *s, enum shape shape)
{
	return what->shape == shape || what->shape == PARTS ? (size_t)s->nranks : 1;
}

static int fill(struct client_rank *s, char *host, void *in, size_t n)
{
	for (size_t i = 0; i < n * times(s, REDUCED); i++)
		value_store(host, i, type, value_of(s->rank, i));
	return memory_write(s, in, host, n * times(s, REDUCED) * value_bytes(type));
}

static long count_wrong(struct client_rank *s, char *host, void *out, size_t n)
{
	size_t all = n * times(s, GATHERED);
	long wrong = 0;

	if (what->only_root && s->rank)
		return 0;
	if (memory_read(s, host, out, all * value_bytes(type)))
		return (long)all;
	for (size_t i = 0; i < all; i++)
		wrong += !value_is(host, i, type, wanted(s, i, n));
	return wrong;
}

/* ---- one line -------------------------------------------------------------------------------- */

static double now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

/* The mean of a number over all ranks; also a barrier. */
static int mean(struct client_rank *s, double *x)
{
	return memory_write(s, s->in, x, sizeof(*x)) ||
	       ncclAllReduce(s->in, s->out, 1, ncclDouble, ncclAvg, s->comm, s->stream) ||
	       memory_read(s, x, s->out, sizeof(*x));
}

/* Microseconds per call, and the number of wrong elements on all ranks. */
static int measure(struct client_rank *s, char *host, bool in_place, size_t n, double *ret_us,
		   double *ret_wrong)
{
	size_t own = (size_t)s->rank * n * value_bytes(type);
	char *in = s->in, *out = s->out, *x = in_place ? in : out, *from = in;
	double start = 0;

	if (in_place && what->shape == GATHERED)
		from = in + own;
	if (in_place && what->shape == REDUCED)
		x = in + own;
	*ret_wrong = 0;
	for (int i = -warm_up; i < iterations; i++) {
		if (i == 0) {
			if (memory_read(s, host, s->out, 1) || mean(s, &start))
				return 1;
			start = now_us();
		}
		if (what->call(s, from, x, n))
			return 1;
	}
	if (memory_read(s, host, s->out, 1))
		return 1;
	*ret_us = (now_us() - start) / iterations;
	if (check) {
		if (fill(s, host, from, n) || what->call(s, from, x, n))
			return 1;
		*ret_wrong = (double)count_wrong(s, host, x, n);
	}
	if (mean(s, ret_us) || mean(s, ret_wrong))
		return 1;
	*ret_wrong *= s->nranks;
	return 0;
}

static void print_cell(const struct client_rank *s, double us, double bytes, double wrong)
{
	double share = (double)(s->nranks - 1) / s->nranks, algbw = bytes / us / 1e3;

	printf("  %7.2f  %6.2f  %6.2f", us, algbw,
	       algbw * (what->factor ? what->factor * share : 1));
	if (check)
		printf("  %6g", wrong);
	else
		printf("     N/A");
}

static void print_head(const struct client_rank *s)
{
	int version;

	ncclGetVersion(&version);
	printf("# nccl_perf nccl-headers=%d nccl-library=%d\n", NCCL_VERSION_CODE, version);
	printf("# Collective test starting: %s_perf\n", what->name);
	printf("# ranks %d (%s, one device) minBytes %.0f maxBytes %.0f factor: %g warmup iters: %d iters: %d validation: %d\n#\n",
	       s->nranks, ranks_are_threads() ? "threads" : "processes", min_bytes, max_bytes,
	       factor, warm_up, iterations, check);
	printf("# %10s  %12s  %8s  %6s  %6s           out-of-place                       in-place\n",
	       "", "", "", "", "");
	printf("# %10s  %12s  %8s  %6s  %6s  %7s  %6s  %6s  %6s  %7s  %6s  %6s  %6s\n", "size",
	       "count", "type", "redop", "root", "time", "algbw", "busbw", "#wrong", "time",
	       "algbw", "busbw", "#wrong");
	printf("# %10s  %12s  %8s  %6s  %6s  %7s  %6s  %6s  %6s  %7s  %6s  %6s  %6s\n", "(B)",
	       "(elements)", "", "", "", "(us)", "(GB/s)", "(GB/s)", "", "(us)", "(GB/s)", "(GB/s)",
	       "");
}

static int measure_all(struct client_rank *client, const ncclUniqueId *id)
{
	char *host = malloc(memory_room);
	double bad = 0;

	(void)id;
	EXPECT(host != NULL);
	if (!client->rank)
		print_head(client);
	for (double bytes = min_bytes; bytes <= max_bytes; bytes *= factor) {
		size_t parts = what->shape == ALL ? 1 : (size_t)client->nranks;
		size_t n = (size_t)bytes / parts / value_bytes(type);
		double size = (double)(n * parts * value_bytes(type)), us, wrong;

		if (!client->rank)
			printf("%12.0f  %12zu  %8s  %6s  %6d", size, n, type_names[type],
			       what->reduces ? op_names[op] : "none", what->rooted ? 0 : -1);
		for (int in_place = 0; in_place < 2; in_place++) {
			if (in_place && what->shape == PARTS) {
				if (!client->rank)
					printf("  %7s  %6s  %6s     N/A", "N/A", "N/A", "N/A");
				continue;
			}
			EXPECT(!measure(client, host, in_place, n, &us, &wrong));
			bad += wrong;
			if (!client->rank)
				print_cell(client, us, size, wrong);
		}
		if (!client->rank)
			printf("\n");
	}
	if (!client->rank)
		printf("# Out of bounds values : %g %s\n#\n", bad, bad ? "FAILED" : "OK");
	fflush(stdout);
	free(host);
	return bad != 0;
}

/* ---- the command line ------------------------------------------------------------------------ */

static int find(const char *name, const char *const *names, int n)
{
	for (int i = 0; i < n; i++)
		if (!strcmp(name, names[i]))
			return i;
	fprintf(stderr, "nccl_perf: %s is not known\n", name);
	exit(2);
}

static double bytes_of(const char *text)
{
	char *end;
	double x = strtod(text, &end);

	return x * (*end == 'K' ? 1 << 10 : *end == 'M' ? 1 << 20 : *end == 'G' ? 1 << 30 : 1);
}

int main(int argc, char **argv)
{
	struct client_ranks how = { .n = 2 };
	const char *names[8];
	int c;

	for (int i = 0; i < 8; i++)
		names[i] = collectives[i].name;
	while ((c = getopt(argc, argv, "b:e:f:n:w:c:d:o:t:p:")) != -1)
		switch (c) {
		case 'b': min_bytes = bytes_of(optarg); break;
		case 'e': max_bytes = bytes_of(optarg); break;
		case 'f': factor = atof(optarg); break;
		case 'n': iterations = atoi(optarg); break;
		case 'w': warm_up = atoi(optarg); break;
		case 'c': check = atoi(optarg); break;
		case 'd': type = (ncclDataType_t)find(optarg, type_names, ncclNumTypes); break;
		case 'o': op = (ncclRedOp_t)find(optarg, op_names, ncclNumOps); break;
		case 't': how = (struct client_ranks){ .n = atoi(optarg), .threads = true }; break;
		case 'p': how = (struct client_ranks){ .n = atoi(optarg) }; break;
		default: return 2;
		}
	if (optind < argc)
		what = &collectives[find(argv[optind], names, 8)];
	if (how.n < 1 || how.n > 8 || iterations < 1 || warm_up < 0 || factor <= 1 || min_bytes < 1)
		return fprintf(stderr, "nccl_perf: an option has an impossible value\n"), 2;
	memory_room = (size_t)(max_bytes > 4096 ? max_bytes : 4096);
	ranks_limit_s = 600;
	return ranks_run(&how, measure_all) != 0;
}
