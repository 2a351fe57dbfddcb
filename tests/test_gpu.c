/*
 * test_gpu.c - collectives on device memory: on the stand-in for a GPU (tests/stand_in/), or with TUTTI_TEST_GPU set on one
 *
 * Every way - kernels that meet (ranks as threads), kernels ordered by streams (ranks as processes), stages (no kernels) -
 * must give the bits that lib/mem/reduce gives on the host, in rank order; and come to an end when a rank is missing, dies
 * or makes another call.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "comm/comm.h"
#include "comm/gpu.h"
#include "harness_cuda.h"
#include "ranks.h"

static int broken;                     /* claims of this case that do not hold */
#define claim(x)									\
	do {										\
		if (!(x)) {								\
			fprintf(stderr, "line %d: not so: %s\n", __LINE__, #x);		\
			broken = 1;							\
		}									\
	} while (0)

#define MOST (3u << 20)                /* bytes of a buffer */

/* What all collectives of a test are: a rank's buffers, and the bytes that must come out. */
struct hand {
	const struct tt_cuda *cu;
	tt_custream stream;
	tt_cuptr in, out;
	unsigned char *inputs[TT_MAX_SOURCES];  /* of every rank */
	unsigned char *want, *got;
	int rank, n, wrong;
};

static int hand_open(struct hand *h, int rank, int n)
{
	*h = (struct hand){ .cu = tt_cuda_here(), .rank = rank, .n = n };
	for (int r = 0; r < n; r++)
		h->inputs[r] = malloc(MOST);
	h->want = malloc(MOST);
	h->got = malloc(MOST);
	return h->cu->mem_alloc(&h->in, MOST + 64) || h->cu->mem_alloc(&h->out, MOST + 64) ||
	       h->cu->stream_create(&h->stream, TT_CU_STREAM_APART);
}

static void hand_close(struct hand *h)
{
	h->cu->stream_destroy(h->stream);
	h->cu->mem_free(h->in);
	h->cu->mem_free(h->out);
	for (int r = 0; r < h->n; r++)
		free(h->inputs[r]);
	free(h->want);
	free(h->got);
}

struct call {
	enum tt_collective what;
	size_t count;
	tuttiDataType_t type;
	tuttiRedOp_t op;
	int root;
	bool in_place;
	size_t shift;                          /* bytes by which buffers are not aligned */
	double scalar;                         /* not 0: a pre-multiplied sum by scalar + rank */
	bool blocking;                         /* NULL stream */
};

static size_t in_parts(const struct call *c, int n)
{
	return c->what == TT_REDUCE_SCATTER || c->what == TT_ALLTOALL || c->what == TT_SCATTER ? (size_t)n : 1;
}

static size_t out_parts(const struct call *c, int n)
{
	return c->what == TT_ALLGATHER || c->what == TT_ALLTOALL || c->what == TT_GATHER ? (size_t)n : 1;
}

static bool tame;                      /* only 0 and 1: sums are exact, whatever algorithm the host takes */

/* Any bits: also NaN, infinities, denormals */
static void fill(unsigned char *p, size_t bytes, tuttiDataType_t type, unsigned long long seed)
{
	for (size_t i = 0; tame && i < bytes / tt_type_bytes(type); i++)
		tt_element_set(p, i, type, (double)(random_of(seed, i) & 1));
	if (tame)
		return;
	for (size_t i = 0; i < bytes; i += 8) {
		unsigned long long v = random_of(seed, i);

		memcpy(p + i, &v, bytes - i < 8 ? bytes - i : 8);
	}
}

static void sum(const struct hand *h, const struct call *c, size_t from, unsigned char *to)
{
	size_t element = tt_type_bytes(c->type), n = (size_t)h->n;
	unsigned char *scaled[TT_MAX_SOURCES];
	const void *src[TT_MAX_SOURCES];

	for (size_t r = 0; r < n; r++) {
		unsigned char scalar[8];

		scaled[r] = malloc(c->count * element + 8);
		src[r] = h->inputs[r] + from;
		tt_element_set(scalar, 0, c->type, c->scalar + (double)r);
		if (c->scalar != 0)
			tt_scale(scaled[r], src[r], scalar, c->count, c->type);
		else if (c->op == tuttiAvg && tt_average_scales(c->type))
			tt_average_scale(scaled[r], src[r], (uint32_t)n, c->count, c->type);
		else
			continue;
		src[r] = scaled[r];
	}
	if (n > 1)
		tt_reduce_kernel(c->type, c->op)(to, NULL, src, (int)n, c->count);
	else
		memcpy(to, src[0], c->count * element);
	if (c->op == tuttiAvg)
		tt_average_finish(to, (uint32_t)n, c->count, c->type);
	for (size_t r = 0; r < n; r++)
		free(scaled[r]);
}

/* What rank's output must be; 0 bytes: it has none. */
static size_t expect(const struct hand *h, const struct call *c)
{
	size_t part = c->count * tt_type_bytes(c->type), me = (size_t)h->rank;

	switch (c->what) {
	case TT_ALLREDUCE:
		sum(h, c, 0, h->want);
		return part;
	case TT_REDUCE:
		sum(h, c, 0, h->want);
		return h->rank == c->root ? part : 0;
	case TT_REDUCE_SCATTER:
		sum(h, c, me * part, h->want);
		return part;
	case TT_BROADCAST:
		memcpy(h->want, h->inputs[c->root], part);
		return part;
	case TT_SCATTER:
		memcpy(h->want, h->inputs[c->root] + me * part, part);
		return part;
	default:
		for (int r = 0; r < h->n; r++)
			memcpy(h->want + (size_t)r * part, h->inputs[r] + (c->what == TT_ALLTOALL ? me * part : 0), part);
		return c->what == TT_GATHER && h->rank != c->root ? 0 : part * (size_t)h->n;
	}
}

static tuttiResult_t issue(const struct call *c, tuttiComm_t comm, const void *in, void *out, tuttiRedOp_t op,
			   tuttiStream_t stream)
{
	switch (c->what) {
	case TT_ALLREDUCE:
		return tuttiAllReduce(in, out, c->count, c->type, op, comm, stream);
	case TT_REDUCE:
		return tuttiReduce(in, out, c->count, c->type, op, c->root, comm, stream);
	case TT_REDUCE_SCATTER:
		return tuttiReduceScatter(in, out, c->count, c->type, op, comm, stream);
	case TT_BROADCAST:
		return tuttiBroadcast(in, out, c->count, c->type, c->root, comm, stream);
	case TT_ALLGATHER:
		return tuttiAllGather(in, out, c->count, c->type, comm, stream);
	case TT_ALLTOALL:
		return tuttiAlltoAll(in, out, c->count, c->type, comm, stream);
	case TT_GATHER:
		return tuttiGather(in, out, c->count, c->type, c->root, comm, stream);
	default:
		return tuttiScatter(in, out, c->count, c->type, c->root, comm, stream);
	}
}

static tuttiRedOp_t op_of(struct hand *h, const struct call *c, tuttiComm_t comm)
{
	unsigned char scalar[8];
	tuttiRedOp_t op = c->op;

	tt_element_set(scalar, 0, c->type, c->scalar + h->rank);
	if (c->scalar != 0 && tuttiRedOpCreatePreMulSum(&op, scalar, c->type, tuttiScalarHostImmediate, comm))
		h->wrong++;
	return op;
}

/* Inputs of all ranks are known to each; this rank's go to device memory. */
static void load(struct hand *h, const struct call *c, tt_cuptr in, tt_cuptr out)
{
	size_t part = c->count * tt_type_bytes(c->type);

	for (int r = 0; r < h->n; r++)
		fill(h->inputs[r], part * in_parts(c, h->n), c->type,
		     (unsigned long long)r * 131 + c->count * 7 + c->op);
	h->cu->memset8_async(out, 0xee, part * out_parts(c, h->n), h->stream);
	h->cu->htod_async(in, h->inputs[h->rank], part * in_parts(c, h->n), h->stream);
	h->cu->stream_synchronize(h->stream);
}

static void check(struct hand *h, const struct call *c, tuttiComm_t comm)
{
	size_t part = c->count * tt_type_bytes(c->type), bytes;
	tt_cuptr in = h->in + c->shift, out = h->out + c->shift;
	tuttiRedOp_t op = op_of(h, c, comm);
	tuttiResult_t rc;

	if (c->in_place && (c->what == TT_ALLGATHER || c->what == TT_GATHER))
		in = out + (uint64_t)h->rank * part;
	else if (c->in_place)
		out = c->what == TT_REDUCE_SCATTER || c->what == TT_SCATTER ? in + (uint64_t)h->rank * part : in;
	load(h, c, in, out);
	rc = issue(c, comm, (void *)(uintptr_t)in, (void *)(uintptr_t)out, op, c->blocking ? NULL : h->stream);
	bytes = expect(h, c);
	if (!c->blocking)
		h->cu->dtoh_async(h->got, out, bytes, h->stream), h->cu->stream_synchronize(h->stream);
	else
		h->cu->dtoh(h->got, out, bytes);
	if (rc || memcmp(h->got, h->want, bytes)) {
		size_t i = 0;

		while (i < bytes && h->got[i] == h->want[i])
			i++;
		fprintf(stderr, "rank %d of %d: %s of %zu %s %s%s: %d %s; byte %zu of %zu is %#x, not %#x\n", h->rank, h->n,
			tt_collective_name(c->what), c->count, tt_type_name(c->type), tt_op_name(c->op),
			c->in_place ? " in place" : "", rc, rc ? tuttiGetLastError(comm) : "", i, bytes, h->got[i], h->want[i]);
		h->wrong++;
	}
	if (c->scalar != 0)
		tuttiRedOpDestroy(op, comm);
}

/* Every collective, type and op in a few sizes; sizes take turns, so that the whole stays short. */
static void sweep(struct hand *h, tuttiComm_t comm)
{
	static const size_t counts[] = { 1, 37, 1000, 4096, 20011 };
	unsigned turn = 0;

	for (int t = 0; t < tuttiNumTypes; t++)
		for (int op = 0; op < tuttiNumOps; op++) {
			struct call c = { .what = TT_ALLREDUCE, .type = (tuttiDataType_t)t, .op = (tuttiRedOp_t)op };

			if (!tt_reduce_kernel(c.type, c.op))
				continue;
			c.count = counts[turn++ % 5];
			c.in_place = turn % 3 == 0;
			check(h, &c, comm);
		}
	for (int what = 0; what < TT_SENDRECV; what++)
		for (int v = 0; v < 4; v++) {
			struct call c = { .what = (enum tt_collective)what, .type = v % 2 ? tuttiFloat32 : tuttiBfloat16,
					  .op = tuttiSum, .count = counts[turn++ % 5], .root = (v + what) % h->n,
					  .in_place = v == 2 && what != TT_ALLTOALL, .shift = v == 3 ? 4 : 0,
					  .blocking = v == 1 };

			check(h, &c, comm);
		}
}

static void specials(struct hand *h, tuttiComm_t comm)
{
	static const tuttiDataType_t types[] = { tuttiFloat32, tuttiFloat16, tuttiInt32, tuttiFloat64, tuttiUint8 };
	struct call big = { .what = TT_ALLREDUCE, .type = tuttiFloat32, .op = tuttiSum, .count = MOST / 4 - 5 };
	struct call odd = { .what = TT_ALLREDUCE, .type = tuttiUint8, .op = tuttiMax, .count = 70001, .shift = 1 };

	for (int i = 0; i < 5; i++) {
		struct call c = { .what = i % 2 ? TT_REDUCE : TT_ALLREDUCE, .type = types[i], .op = tuttiSum, .count = 5001,
				  .scalar = 2 };

		check(h, &c, comm);
	}
	check(h, &big, comm);
	check(h, &odd, comm);
}

static int all_right(tuttiComm_t *comm, int rank, int n, void *arg)
{
	struct hand h;

	(void)arg;
	if (hand_open(&h, rank, n))
		return 1;
	sweep(&h, *comm);
	specials(&h, *comm);
	hand_close(&h);
	return h.wrong;
}

/* ---- ranks with a GPU -------------------------------------------------------------------------------------------- */

struct team {
	struct ranks ranks;
	rank_fn *fn;
	enum { MEET, ORDERED, STAGED } way;
	bool mixed;                            /* rank 0 has no GPU */
};

/* ranks.c would join before CUDA is there. */
static int act(tuttiComm_t *comm, int rank, int n, void *arg)
{
	struct team *t = arg;
	tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
	bool gpu = !(t->mixed && rank == 0);

	config.timeout_ms = t->ranks.timeout_ms;
	if (gpu && !harness_cuda())
		return 1;
	if (tuttiCommInitRankConfig(comm, n, t->ranks.id, rank, &config)) {
		fprintf(stderr, "rank %d: join: %s\n", rank, tuttiGetLastError(NULL));
		return 1;
	}
	if (gpu && ((*comm)->gpu->kernels != (t->way != STAGED) || (*comm)->gpu->meets != (t->way == MEET))) {
		fprintf(stderr, "rank %d: kernels %d, meets %d\n", rank, (*comm)->gpu->kernels, (*comm)->gpu->meets);
		return 1;
	}
	return t->fn(comm, rank, n, NULL);
}

/* Each in a process of its own, since CUDA does not survive the fork of the next one. */
static int failures(struct team *t)
{
	int status;
	pid_t child;

	fflush(NULL);
	child = fork();
	if (!child)
		_exit(ranks_run(&t->ranks, act));
	waitpid(child, &status, 0);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 100;
}

static int play(int n, int way, bool threads, rank_fn *fn)
{
	struct team t = { .ranks = { .n = n, .threads = threads, .no_join = true, .limit_s = 50, .timeout_ms = 20000 },
			  .fn = fn, .way = way };

	t.ranks.arg = &t;
	if (way == STAGED)
		setenv("TUTTI_GPU", "staged", 1);
	return failures(&t);
}

static void kernels_that_meet_give_the_hosts_bits(void)
{
	for (int n = 1; n <= 4; n++)
		claim(play(n, MEET, true, all_right) == 0);
}

static void eight_ranks_of_one_process_meet(void)
{
	claim(play(8, MEET, true, all_right) == 0);
}

static void kernels_that_streams_order_give_the_hosts_bits(void)
{
	for (int n = 2; n <= 4; n++)
		claim(play(n, ORDERED, false, all_right) == 0);
}

static void without_kernels_stages_give_the_hosts_bits(void)
{
	tame = true;
	claim(play(3, STAGED, false, all_right) == 0);
}

/* ---- order, graphs ----------------------------------------------------------------------------------------------- */

/* Sums of ones that are summed again, each call on another stream: only call order gives n^k. */
static int on_many_streams(tuttiComm_t *comm, int rank, int n, void *arg)
{
	const struct tt_cuda *cu = tt_cuda_here();
	int ones[1000], got[1000], wrong = 0, want = 1;
	tt_custream s[3];
	tt_cuptr p;

	(void)arg, (void)rank;
	cu->mem_alloc(&p, sizeof(ones));
	for (int i = 0; i < 1000; i++)
		ones[i] = 1;
	cu->htod(p, ones, sizeof(ones));
	for (int i = 0; i < 3; i++)
		cu->stream_create(&s[i], TT_CU_STREAM_APART);
	for (int i = 0; i < 9; i++, want *= n)
		wrong += tuttiAllReduce((void *)(uintptr_t)p, (void *)(uintptr_t)p, 1000, tuttiInt32, tuttiSum, *comm,
					s[i % 3]) != tuttiSuccess;
	for (int i = 0; i < 3; i++)
		cu->stream_synchronize(s[i]);
	cu->dtoh(got, p, sizeof(got));
	for (int i = 0; i < 1000; i++)
		wrong += got[i] != want;
	for (int i = 0; i < 3; i++)
		cu->stream_destroy(s[i]);
	cu->mem_free(p);
	return wrong;
}

/* Captured once, replayed with other inputs each time, with ordinary calls in between. */
static int in_a_graph(tuttiComm_t *comm, int rank, int n, void *arg)
{
	const struct tt_cuda *cu = tt_cuda_here();
	size_t count = 3000;
	int *in = malloc(count * sizeof(*in)), *got = malloc(count * sizeof(*got)), wrong = 0;
	void *graph, *exec;
	tt_custream s;
	tt_cuptr p, q;

	(void)arg;
	cu->mem_alloc(&p, count * 4), cu->mem_alloc(&q, count * 4), cu->stream_create(&s, TT_CU_STREAM_APART);
	cu->begin_capture(s, TT_CU_CAPTURE_THREAD);
	wrong += tuttiAllReduce((void *)(uintptr_t)p, (void *)(uintptr_t)q, count, tuttiInt32, tuttiSum, *comm, s);
	wrong += tuttiAllReduce((void *)(uintptr_t)q, (void *)(uintptr_t)q, 100, tuttiInt32, tuttiSum, *comm, s);
	wrong += cu->end_capture(s, &graph) != 0 || cu->graph_instantiate(&exec, graph, 0) != 0;
	for (int k = 0; k < 5 && !wrong; k++) {
		for (size_t i = 0; i < count; i++)
			in[i] = (int)i * (k + 1) + rank;
		cu->htod(p, in, count * 4);
		cu->graph_launch(exec, s);
		cu->dtoh_async(got, q, count * 4, s);
		cu->stream_synchronize(s);
		for (int i = 0; i < (int)count; i++)
			wrong += got[i] != (i * (k + 1) * n + n * (n - 1) / 2) * (i < 100 ? n : 1);
		wrong += tuttiAllReduce((void *)(uintptr_t)p, (void *)(uintptr_t)q, count, tuttiInt32, tuttiSum, *comm, s);
		cu->stream_synchronize(s);
	}
	cu->graph_destroy(graph), cu->stream_synchronize(s);
	cu->graph_exec_destroy(exec), cu->stream_destroy(s), cu->mem_free(p), cu->mem_free(q);
	free(in), free(got);
	return wrong;
}

static void calls_on_different_streams_run_in_call_order(void)
{
	claim(play(3, MEET, true, on_many_streams) == 0);
	claim(play(3, ORDERED, false, on_many_streams) == 0);
	claim(play(3, STAGED, false, on_many_streams) == 0);
}

static void calls_on_different_streams_run_in_call_order_however_slow_a_stream_is(void)
{
	setenv("TUTTI_TEST_CUDA_DELAY_US", "3000", 1);
	claim(play(3, MEET, true, on_many_streams) == 0);
	claim(play(3, ORDERED, false, on_many_streams) == 0);
	claim(play(3, STAGED, false, on_many_streams) == 0);
}

static void a_graph_is_replayed_with_new_inputs(void)
{
	claim(play(3, MEET, true, in_a_graph) == 0);
	claim(play(3, ORDERED, false, in_a_graph) == 0);
	claim(play(3, STAGED, false, in_a_graph) == 0);
}

/* ---- messages, groups, host memory, ranks without a GPU ----------------------------------------------------------- */

/* Everybody to the next and from the one before, in one group, between two collectives. */
static int around(tuttiComm_t *comm, int rank, int n, void *arg)
{
	const struct tt_cuda *cu = tt_cuda_here();
	int mine[500], got[500], sum[2] = { rank, 1 }, wrong = 0;
	tt_cuptr p, q, r;
	tt_custream s;

	(void)arg;
	cu->mem_alloc(&p, sizeof(mine)), cu->mem_alloc(&q, sizeof(mine)), cu->mem_alloc(&r, sizeof(sum));
	cu->stream_create(&s, TT_CU_STREAM_APART);
	for (int k = 0; k < 6; k++) {
		tuttiStream_t stream = k % 2 ? NULL : s;

		for (int i = 0; i < 500; i++)
			mine[i] = rank * 1000 + i + k;
		cu->htod(p, mine, sizeof(mine)), cu->htod(r, sum, sizeof(sum));
		wrong += tuttiAllReduce((void *)(uintptr_t)r, (void *)(uintptr_t)r, 2, tuttiInt32, tuttiSum, *comm, stream);
		tuttiGroupStart();
		tuttiSend((void *)(uintptr_t)p, 500, tuttiInt32, (rank + 1) % n, *comm, stream);
		tuttiRecv((void *)(uintptr_t)q, 500, tuttiInt32, (rank + n - 1) % n, *comm, stream);
		wrong += tuttiGroupEnd();
		wrong += tuttiAllReduce((void *)(uintptr_t)r, (void *)(uintptr_t)r, 2, tuttiInt32, tuttiSum, *comm, stream);
		wrong += tuttiBarrier(*comm, stream);
		cu->stream_synchronize(s);
		cu->dtoh(got, q, sizeof(got)), cu->dtoh(mine, r, sizeof(sum));
		for (int i = 0; i < 500; i++)
			wrong += got[i] != (rank + n - 1) % n * 1000 + i + k;
		wrong += mine[0] != n * n * (n - 1) / 2 || mine[1] != n * n;
	}
	cu->stream_destroy(s), cu->mem_free(p), cu->mem_free(q), cu->mem_free(r);
	return wrong;
}

static void messages_and_collectives_take_turns(void)
{
	claim(play(3, MEET, true, around) == 0);
	claim(play(3, ORDERED, false, around) == 0);
	claim(play(3, STAGED, false, around) == 0);
}

/* Host memory with and without a stream of CUDA's; rank 0 of a mixed team has nothing else. */
static int on_host_memory(tuttiComm_t *comm, int rank, int n, void *arg)
{
	const struct tt_cuda *cu = tt_cuda_here();
	int x[100], wrong = 0, device = -2;
	bool gpu = (*comm)->gpu != NULL;
	tt_custream s = NULL;
	tt_cuptr p = 0;

	(void)arg;
	if (gpu)
		cu->stream_create(&s, TT_CU_STREAM_APART), cu->mem_alloc(&p, sizeof(x));
	for (int k = 0; k < 4; k++) {
		void *buffer = gpu && k % 2 ? (void *)(uintptr_t)p : x;

		for (int i = 0; i < 100; i++)
			x[i] = rank + i;
		if (buffer != x)
			cu->htod(p, x, sizeof(x));
		wrong += tuttiAllReduce(buffer, buffer, 100, tuttiInt32, tuttiSum, *comm, k < 2 ? NULL : s);
		if (gpu)
			cu->stream_synchronize(s);
		if (buffer != x)
			cu->dtoh(x, p, sizeof(x));
		for (int i = 0; i < 100; i++)
			wrong += x[i] != n * i + n * (n - 1) / 2;
	}
	wrong += tuttiCommCuDevice(*comm, &device) || device != (gpu ? 0 : -1);
	if (gpu)
		cu->stream_destroy(s), cu->mem_free(p);
	return wrong;
}

static void a_rank_without_a_gpu_sums_with_ranks_that_have_one(void)
{
	struct team t = { .ranks = { .n = 3, .no_join = true, .limit_s = 50 }, .fn = on_host_memory, .way = STAGED, .mixed = true };

	t.ranks.arg = &t;
	claim(failures(&t) == 0);
}

static int on_device_or_host(tuttiComm_t *comm, int rank, int n, void *arg)
{
	return on_host_memory(comm, rank, n, arg) + all_right(comm, rank, n, arg);
}

static void two_gpus_of_a_process_are_reached_when_that_was_tried(void)
{
	setenv("TUTTI_TEST_CUDA_DEVICES", "2", 1);
	claim(play(2, MEET, true, on_device_or_host) == 0);
}

/* ---- wrong uses, trouble ----------------------------------------------------------------------------------------- */

static int wrong_uses(tuttiComm_t *comm, int rank, int n, void *arg)
{
	const struct tt_cuda *cu = tt_cuda_here();
	tuttiStream_t host_stream;
	int wrong = 0;
	tt_cuptr p;
	void *d;

	(void)arg, (void)rank, (void)n;
	cu->mem_alloc(&p, 4096);
	d = (void *)(uintptr_t)p;
	tuttiStreamCreate(&host_stream);
	wrong += tuttiAllReduce(d, d, 10, tuttiInt32, tuttiSum, *comm, host_stream) != tuttiInvalidArgument;
	wrong += !strstr(tuttiGetLastError(NULL), "CUDA stream");
	wrong += tuttiAlltoAll(d, d, 10, tuttiInt32, *comm, NULL) != tuttiInvalidArgument;
	wrong += tuttiAllReduce(d, (char *)d + 4, 10, tuttiInt32, tuttiSum, *comm, NULL) != tuttiInvalidArgument;
	wrong += tuttiAllReduceQuorum(d, d, 10, tuttiInt32, tuttiSum, 1, 0, *comm, NULL, NULL) != tuttiInvalidArgument;
	wrong += tuttiMsgSend(d, 40, 0, 0, 0, *comm) != tuttiInvalidArgument;
	wrong += tuttiStreamSynchronize((tuttiStream_t)16) != tuttiInvalidArgument;
	wrong += tuttiAllReduce(d, d, 10, tuttiInt32, tuttiSum, *comm, NULL) != tuttiSuccess;
	tuttiStreamDestroy(host_stream);
	cu->mem_free(p);
	return wrong;
}

static void what_cannot_be_is_refused_in_words_and_breaks_nothing(void)
{
	claim(play(2, MEET, true, wrong_uses) == 0);
	claim(play(2, ORDERED, false, wrong_uses) == 0);
}

/* One thread has both ranks: groups, with a stream each, with none, and with one for both, which cannot be. */
static void one_thread_drives_two_ranks_in_groups(void)
{
	const struct tt_cuda *cu = harness_cuda();
	int x[100], wrong = 0;
	tuttiComm_t c[2];
	tt_custream s[2];
	tt_cuptr p[2];

	claim(cu && tuttiCommInitAll(c, 2, NULL) == tuttiSuccess);
	for (int k = 0; k < 6 && !broken; k++) {
		for (int r = 0; r < 2; r++) {
			if (!k)
				cu->mem_alloc(&p[r], sizeof(x)), cu->stream_create(&s[r], TT_CU_STREAM_APART);
			for (int i = 0; i < 100; i++)
				x[i] = i + k + r;
			cu->htod(p[r], x, sizeof(x));
		}
		tuttiGroupStart();
		for (int r = 0; r < 2; r++)
			tuttiAllReduce((void *)(uintptr_t)p[r], (void *)(uintptr_t)p[r], 100, tuttiInt32, tuttiSum, c[r],
				       k == 5 ? s[0] : k % 2 ? s[r] : NULL);
		claim(tuttiGroupEnd() == (k == 5 ? tuttiInvalidUsage : tuttiSuccess));
		for (int r = 0; r < 2; r++) {
			cu->stream_synchronize(s[r]);
			cu->dtoh(x, p[r], sizeof(x));
			for (int i = 0; i < 100; i++)
				wrong += k < 5 && x[i] != 2 * (i + k) + 1;
		}
	}
	claim(wrong == 0);
	for (int r = 0; r < 2 && cu; r++)
		claim(tuttiCommDestroy(c[r]) == tuttiSuccess);
}

/* Rank 1 calls something else: both hear of it, and their streams come to an end. */
static int differently(tuttiComm_t *comm, int rank, int n, void *arg)
{
	const struct tt_cuda *cu = tt_cuda_here();
	tuttiResult_t rc = tuttiSuccess;
	tt_custream s;
	tt_cuptr p;
	void *d;

	(void)arg, (void)n;
	cu->mem_alloc(&p, 1 << 20);
	cu->stream_create(&s, TT_CU_STREAM_APART);
	d = (void *)(uintptr_t)p;
	tuttiAllReduce(d, d, 60000, tuttiFloat32, rank == 1 ? tuttiMax : tuttiSum, *comm, s);
	cu->stream_synchronize(s);
	for (int i = 0; i < 5000 && rc == tuttiSuccess; i++) {
		usleep(1000);
		tuttiCommGetAsyncError(*comm, &rc);
	}
	if (rc != tuttiInvalidUsage || !strstr(tuttiGetLastError(*comm), "allreduce"))
		fprintf(stderr, "rank %d: %d %s\n", rank, rc, tuttiGetLastError(*comm));
	else if (tuttiAllReduce(d, d, 10, tuttiFloat32, tuttiSum, *comm, s) == tuttiInvalidUsage)
		n = 0;
	cu->stream_destroy(s), cu->mem_free(p);
	return n;
}

static void different_calls_are_an_error_on_every_rank(void)
{
	claim(play(2, MEET, true, differently) == 0);
	claim(play(2, ORDERED, false, differently) == 0);
}

/* The last rank does not come within the deadline, or dies, or aborts. */
static const char *fate;

static int without_the_last(tuttiComm_t *comm, int rank, int n, void *arg)
{
	const struct tt_cuda *cu = tt_cuda_here();
	tuttiResult_t rc = tuttiSuccess;
	tt_custream s;
	tt_cuptr p;
	void *d;

	(void)arg;
	cu->mem_alloc(&p, 1 << 20);
	cu->stream_create(&s, TT_CU_STREAM_APART);
	d = (void *)(uintptr_t)p;
	tuttiAllReduce(d, d, 60000, tuttiFloat32, tuttiSum, *comm, s);
	cu->stream_synchronize(s);
	if (rank == n - 1 && !strcmp(fate, "die"))
		kill(getpid(), SIGKILL);
	if (rank == n - 1 && !strcmp(fate, "abort")) {
		tuttiCommAbort(*comm);
		*comm = NULL;
		return 0;
	}
	if (rank < n - 1)
		tuttiAllReduce(d, d, 60000, tuttiFloat32, tuttiSum, *comm, s);
	for (int i = 0; i < 10000 && rc == tuttiSuccess; i++) {
		usleep(1000);
		tuttiCommGetAsyncError(*comm, &rc);
	}
	cu->stream_synchronize(s);             /* it comes to an end */
	if (rc != (!strcmp(fate, "late") ? tuttiTimeout : tuttiRemoteError) || !strstr(tuttiGetLastError(*comm), "rank 2")) {
		fprintf(stderr, "rank %d: %d %s\n", rank, rc, tuttiGetLastError(*comm));
		return 1;
	}
	cu->stream_destroy(s), cu->mem_free(p);
	return 0;
}

static int play_short(int way, bool threads)
{
	struct team t = { .ranks = { .n = 3, .threads = threads, .no_join = true, .limit_s = 50, .timeout_ms = 1000 },
			  .fn = without_the_last, .way = way };

	t.ranks.arg = &t;
	if (way == STAGED)
		setenv("TUTTI_GPU", "staged", 1);
	return failures(&t);
}

static void a_rank_that_does_not_come_is_named_and_streams_go_on(void)
{
	fate = "late";
	claim(play_short(MEET, true) == 0);
	claim(play_short(ORDERED, false) == 0);
	claim(play_short(STAGED, false) == 0);
}

static void a_rank_that_dies_or_aborts_ends_the_others_calls(void)
{
	fate = "die";
	claim(play_short(ORDERED, false) == 1);        /* the dead one counts as failed */
	fate = "abort";
	claim(play_short(ORDERED, false) == 0);
	claim(play_short(MEET, true) == 0);
}

/* ---- the frame: a plain program, so that it runs where there is a GPU and no Criterion -------------------------------- */

#define CASE(name) { #name, name }
static const struct { const char *name; void (*run)(void); } cases[] = {
	CASE(kernels_that_meet_give_the_hosts_bits),
	CASE(eight_ranks_of_one_process_meet),
	CASE(kernels_that_streams_order_give_the_hosts_bits),
	CASE(without_kernels_stages_give_the_hosts_bits),
	CASE(calls_on_different_streams_run_in_call_order),
	CASE(calls_on_different_streams_run_in_call_order_however_slow_a_stream_is),
	CASE(a_graph_is_replayed_with_new_inputs),
	CASE(messages_and_collectives_take_turns),
	CASE(a_rank_without_a_gpu_sums_with_ranks_that_have_one),
	CASE(two_gpus_of_a_process_are_reached_when_that_was_tried),
	CASE(what_cannot_be_is_refused_in_words_and_breaks_nothing),
	CASE(one_thread_drives_two_ranks_in_groups),
	CASE(different_calls_are_an_error_on_every_rank),
	CASE(a_rank_that_does_not_come_is_named_and_streams_go_on),
	CASE(a_rank_that_dies_or_aborts_ends_the_others_calls),
};

/* Each in a process of its own, since some set variables. */
int main(void)
{
	int n = sizeof(cases) / sizeof(cases[0]), bad = 0;
	const char *first = getenv("TT_GPU_CASES");      /* so many only: under tools that take long */

	if (first && atoi(first) < n)
		n = atoi(first);

	setvbuf(stdout, NULL, _IOLBF, 0);
	printf("1..%d\n", n);
	for (int i = 0; i < n; i++) {
		int status;
		pid_t child;

		fflush(NULL);
		child = fork();
		if (!child) {
			alarm(120);
			cases[i].run();
			_exit(broken);
		}
		waitpid(child, &status, 0);
		printf("%sok %d - %s\n", status ? "not " : "", i + 1, cases[i].name);
		bad += status != 0;
	}
	return bad != 0;
}
