/*
 * gpu_measure.c - times of collectives on device memory, and of copies and signals of the same GPU in
 * the same run
 *
 * Called by tests/gpu/run. Prints rows of a Markdown table; with the argument `look` only the device.
 * With TUTTI_TEST_GPU set the program runs on device 0, else on the fake, whose figures mean
 * nothing. Each measurement runs in processes of its own; a measurement with a failure has no row.
 */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "comm/comm.h"
#include "gpu/gpu_call.h"
#include "model/gpu_time.h"
#include "tests/support/harness_cuda.h"
#include "tests/support/ranks.h"

static size_t large = 256u << 20; /* bytes per rank */
static int rounds = 20;
/* of a copy by the driver: bytes read + written per us; shared by all processes */
static double *copy_rate;
static __thread int failed_calls; /* failed calls of this rank, to the driver or to Tutti */

#define COMPUTE_MODE 20 /* CUDA's number of the attribute compute mode */

struct measured_ranks {
	struct ranks ranks;
	rank_fn *fn;
};

static int run_rank(tuttiComm_t *comm, int rank, int n, void *arg)
{
	struct measured_ranks *t = arg;

	if (!harness_cuda() || tuttiCommInitRank(comm, n, t->ranks.id, rank)) {
		fprintf(stderr, "rank %d: %s\n", rank, tuttiGetLastError(NULL));
		return 1;
	}
	if (!(*comm)->gpu->kernels) {
		fprintf(stderr, "rank %d: no kernels (TUTTI_LOG=info shows the reason)\n", rank);
		return 1;
	}
	failed_calls += t->fn(comm, rank, n, NULL);
	if (failed_calls)
		fprintf(stderr, "rank %d of %d: %d calls failed: %s\n", rank, n, failed_calls,
			tuttiGetLastError(NULL));
	return failed_calls != 0;
}

static int run_measure(int n, bool threads, rank_fn *fn)
{
	struct measured_ranks t = {
		.ranks = { .n = n, .threads = threads, .no_join = true, .limit_s = 60 }, .fn = fn
	};
	int status;
	pid_t child;

	fflush(NULL);
	t.ranks.arg = &t;
	child = fork();
	if (!child) {
		status = ranks_run(&t.ranks, run_rank);
		fflush(NULL);
		_exit(status);
	}
	waitpid(child, &status, 0);
	return status;
}

/* Prints a row, unless a call failed: the time of a failed measurement means nothing. */
static void row(const char *what, int n, double us, const char *figure)
{
	if (!failed_calls && us > 0)
		printf("| %s | %d | %.2f | %s |\n", what, n, us, figure);
}

static char *rate(char text[120], double bytes, double us)
{
	snprintf(text, 120, "%.1f GB/s of memory, read + written: %.2f of the copy's",
		 bytes / us * 1e-3, bytes / us / *copy_rate);
	return text;
}

static tt_cuptr alloc_filled(const struct tt_cuda *cu, size_t bytes, tt_custream s)
{
	tt_cuptr p;

	if (cu->mem_alloc(&p, bytes) || cu->memset8_async(p, 0x3c, bytes, s) ||
	    cu->stream_synchronize(s)) {
		fprintf(stderr, "no %zu bytes of device memory\n", bytes);
		exit(1);
	}
	return p;
}

/* us per call of fn, by events around `rounds` calls, after two warm-up calls */
static double timed(const struct tt_cuda *cu, tt_custream s, void (*fn)(void *arg), void *arg)
{
	tt_cuevent a, b;
	float ms = 0;

	failed_calls += cu->event_create(&a, 0) != 0;
	failed_calls += cu->event_create(&b, 0) != 0;
	fn(arg), fn(arg);
	failed_calls += cu->event_record(a, s) != 0;
	for (int i = 0; i < rounds; i++)
		fn(arg);
	failed_calls += cu->event_record(b, s) != 0;
	failed_calls += cu->event_synchronize(b) != 0;
	failed_calls += cu->event_elapsed(&ms, a, b) != 0;
	return (double)ms * 1e3 / rounds;
}

/* ---- one rank: a copy, a sum of two arrays ---------------------------------------------------- */

struct measured_rank {
	const struct tt_cuda *cu;
	struct tt_gpu *d;
	tt_custream s;
	tt_cuptr in[2], out;
	struct tt_dev_job job;
};

static void copy(void *arg)
{
	struct measured_rank *l = arg;

	failed_calls += l->cu->dtod_async(l->out, l->in[0], large, l->s) != 0;
}

static void add(void *arg)
{
	struct measured_rank *l = arg;
	void *params[] = { &l->job };

	failed_calls += l->cu->launch(l->d->k->fn[tuttiFloat32],
				      (unsigned)l->d->k->blocks[TT_LARGE_BLOCKS], 1, 1,
				      TT_DEV_THREADS, 1, 1, 0, l->s, params, NULL) != 0;
}

static int measure_one_rank(tuttiComm_t *comm, int rank, int n, void *arg)
{
	struct measured_rank l = { .cu = tt_cuda_here(), .d = (*comm)->gpu };
	char text[120];
	double copied, added;

	(void)rank, (void)arg;
	l.cu->stream_create(&l.s, TT_CU_STREAM_NON_BLOCKING);
	l.in[0] = alloc_filled(l.cu, large, l.s), l.in[1] = alloc_filled(l.cu, large, l.s),
	l.out = alloc_filled(l.cu, large, l.s);
	l.job = (struct tt_dev_job){ .signals = { l.d->map[0].at, l.d->map[0].at, l.d->map[0].at },
				     .report = l.d->ipc->words_at,
				     .in = { l.in[0], l.in[1] },
				     .out = { 0, 0, l.out },
				     .rank = 2,
				     .nranks = 3,
				     .way = TT_DEV_ALONE,
				     .npieces = 1,
				     .piece = { { 3, 4, 0, 0, large } } };
	copied = timed(l.cu, l.s, copy, &l);
	*copy_rate = 2.0 * (double)large / copied;
	row("copy by the driver", n, copied, rate(text, 2.0 * (double)large, copied));
	added = timed(l.cu, l.s, add, &l);
	row("sum of two float32 arrays into a third", n, added,
	    rate(text, 3.0 * (double)large, added));
	return 0;
}

/* ---- allreduce ------------------------------------------------------------------------------- */

struct measured_call {
	tuttiComm_t comm;
	tt_custream s;
	tt_cuptr in, out;
	size_t bytes;
};

static void sum(void *arg)
{
	struct measured_call *c = arg;

	failed_calls += tuttiAllReduce((void *)(uintptr_t)c->in, (void *)(uintptr_t)c->out,
				       c->bytes / 4, tuttiFloat32, tuttiSum, c->comm,
				       c->s) != tuttiSuccess;
}

static void check_async_error(tuttiComm_t comm)
{
	tuttiResult_t state = tuttiSuccess;

	failed_calls += tuttiCommGetAsyncError(comm, &state) || state;
}

/* The predicted us of a large allreduce on devices of this kind: by ranks that share one, or that have one
 * each. Returns 0 if the model has no such kind. */
static double predict(tuttiComm_t comm, size_t bytes)
{
	uint32_t n = (uint32_t)comm->nranks;
	struct tt_gpu_fifo_call call = { .nranks = n, .lag = TT_FIFO_LAG, .bytes = bytes };
	const struct tt_gpu_kind *kind;
	struct tt_dev_fifo shape;
	char name[80] = "";

	comm->gpu->cu->device_name(name, sizeof(name), comm->gpu->device);
	for (char *p = name; *p; p++)
		*p = (char)tolower(*p);
	kind = tt_gpu_kind_find(name);
	if (!kind || !comm->gpu->kernels_wait)
		return 0;
	if (comm->gpu->kernel_barrier)
		return comm->gpu->devices == 1 ? tt_gpu_shared_us(kind, n, bytes) : 0;
	if (comm->gpu->devices < n)
		return 0;
	call.blocks = tt_gpu_fifo_shape(TT_ALLREDUCE, bytes, n, comm->gpu->blocks, &shape);
	call.steps = shape.steps;
	call.chunk = shape.chunk;
	return tt_gpu_fifo_us(kind, &call);
}

static const char *way_of(tuttiComm_t comm)
{
	const struct tt_gpu *d = comm->gpu;

	return d->kernel_barrier ? "threads" : d->fifo_only ? "threads, by FIFO" : "processes";
}

/* Bytes that all ranks read and write in a large allreduce. By FIFO, in two steps, a rank reads and writes as
 * much as the buffer three times. */
static double traffic(tuttiComm_t comm, size_t bytes)
{
	return (comm->gpu->fifo_only ? 6.0 : 2.0) * comm->nranks * (double)bytes;
}

static int measure_large(tuttiComm_t *comm, int rank, int n, void *arg)
{
	const struct tt_cuda *cu = tt_cuda_here();
	struct measured_call c = { .comm = *comm, .bytes = large };
	char text[200], what[80];
	double us, predicted;

	(void)arg;
	cu->stream_create(&c.s, TT_CU_STREAM_NON_BLOCKING);
	c.in = alloc_filled(cu, large, c.s), c.out = alloc_filled(cu, large, c.s);
	tuttiBarrier(*comm, NULL);
	us = timed(cu, c.s, sum, &c);
	check_async_error(*comm);
	rate(text, traffic(*comm, large), us);
	if ((predicted = predict(*comm, large)) > 0)
		snprintf(text + strlen(text), sizeof(text) - strlen(text), "; predicted %.2f us",
			 predicted);
	snprintf(what, sizeof(what), "allreduce, large, %s", way_of(*comm));
	if (rank == 0)
		row(what, n, us, text);
	return 0;
}

#define CALLS_IN_GRAPH 100

static void replay(void *arg)
{
	void **both = arg;

	failed_calls += tt_cuda_here()->graph_launch(both[0], both[1]) != 0;
}

static int measure_small(tuttiComm_t *comm, int rank, int n, void *arg)
{
	const struct tt_cuda *cu = tt_cuda_here();
	struct measured_call c = { .comm = *comm, .bytes = 8192 };
	void *graph, *both[2];
	uint64_t began;
	double us, eager;
	char text[80], what[80];

	(void)arg;
	cu->stream_create(&c.s, TT_CU_STREAM_NON_BLOCKING);
	c.in = alloc_filled(cu, c.bytes, c.s), c.out = alloc_filled(cu, c.bytes, c.s);
	tuttiBarrier(*comm, NULL);
	eager = timed(cu, c.s, sum, &c);
	began = tt_now_ns();
	for (int i = 0; i < CALLS_IN_GRAPH; i++)
		sum(&c);
	snprintf(text, sizeof(text), "%.2f us without a graph; the call itself returns after %.2f",
		 eager, (double)(tt_now_ns() - began) * 1e-3 / CALLS_IN_GRAPH);
	cu->stream_synchronize(c.s);
	cu->begin_capture(c.s, TT_CU_CAPTURE_THREAD);
	for (int i = 0; i < CALLS_IN_GRAPH; i++)
		sum(&c);
	if (cu->end_capture(c.s, &graph) || cu->graph_instantiate(&both[0], graph, 0))
		return 1;
	both[1] = c.s;
	tuttiBarrier(*comm, NULL);
	us = timed(cu, c.s, replay, both) / CALLS_IN_GRAPH;
	check_async_error(*comm);
	snprintf(what, sizeof(what), "allreduce of 8 KiB in a graph, %s", way_of(*comm));
	if (rank == 0)
		row(what, n, us, text);
	return 0;
}

/* ---- lower bound for streams of processes: a kernel and a signal word each way, twice ---------------------- */

static void signal_all(void *arg)
{
	struct measured_call *c = arg;
	struct tt_gpu *d = c->comm->gpu;

	for (int twice = 0; twice < 2; twice++) {
		uint32_t word = twice ? TT_DEV_FINISHED : TT_DEV_ARRIVED;
		struct tt_dev_job job = { .way = TT_DEV_ALONE,
					  .rank = (uint32_t)c->comm->rank,
					  .nranks = (uint32_t)c->comm->nranks,
					  .report = d->ipc->words_at };

		for (int p = 0; p < c->comm->nranks; p++) {
			job.signals[p] = d->map[p].at;
			job.host_words[p] = d->map[p].words_at;
		}
		tt_gpu_signal(&job, word);
		failed_calls += tt_gpu_launch(d, d->k->fn[tuttiUint8], 1, &job, c->s) != 0;
		failed_calls += tt_gpu_await_signals(c->comm, word, c->s) != 0;
	}
}

static int measure_signals(tuttiComm_t *comm, int rank, int n, void *arg)
{
	const struct tt_cuda *cu = tt_cuda_here();
	struct measured_call c = { .comm = *comm };
	double us;

	(void)arg;
	cu->stream_create(&c.s, TT_CU_STREAM_NON_BLOCKING);
	tuttiBarrier(*comm, NULL);
	us = timed(cu, c.s, signal_all, &c);
	check_async_error(*comm);
	if (rank == 0)
		row("all streams signal all streams, twice, processes", n, us,
		    "the lower bound of a small allreduce");
	return 0;
}

static int print_device(void)
{
	const struct tt_cuda *cu = harness_cuda();
	int version = 0, blocks = 0, blocking = 0;
	char name[80] = "a device without a name";

	if (!cu)
		return 1;
	cu->driver_version(&version);
	cu->device_name(name, sizeof(name), 0);
	cu->device_attribute(&blocks, TT_CU_ATTR_SMS, 0);
	cu->device_attribute(&blocking, COMPUTE_MODE, 0);
	printf("%s, %d multiprocessors, driver for CUDA %d.%d%s\n", name, blocks, version / 1000,
	       version % 1000 / 10,
	       blocking ? ", COMPUTE MODE NOT DEFAULT: only one process at a time can use it" : "");
	return 0;
}

int main(int argc, char **argv)
{
	int bad = 0;

	if (argc > 1 && !strcmp(argv[1], "look"))
		return print_device();
	setenv("TUTTI_LOG", "info", 0); /* logs the reason for missing kernels */
	if (!getenv("TUTTI_TEST_GPU"))
		large = 4u << 20, rounds = 3;
	copy_rate = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (copy_rate == MAP_FAILED)
		return 1;
	setvbuf(stdout, NULL, _IOLBF, 0);
	printf("| what | ranks | us | large: %zu MiB per rank |\n| --- | --- | --- | --- |\n",
	       large >> 20);
	bad += run_measure(1, true, measure_one_rank) != 0;
	for (int n = 2; n <= 8; n *= 2)
		bad += (run_measure(n, true, measure_large) != 0) +
		       (run_measure(n, true, measure_small) != 0);
	setenv("TUTTI_GPU", "fifo", 1);
	for (int n = 2; n <= 8; n *= 2)
		bad += (run_measure(n, true, measure_large) != 0) +
		       (run_measure(n, true, measure_small) != 0);
	unsetenv("TUTTI_GPU");
	for (int n = 2; n <= 4; n *= 2)
		bad += (run_measure(n, false, measure_signals) != 0) +
		       (run_measure(n, false, measure_small) != 0) +
		       (run_measure(n, false, measure_large) != 0);
	return bad;
}
