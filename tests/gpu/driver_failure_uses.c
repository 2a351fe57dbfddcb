/*
 * driver_failure_uses.c - uses of the library during which one driver call fails, see driver_failures.h
 */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "tests/gpu/driver_failures.h"
#include "tests/fakes/cuda/fake_counts.h"

#define BUFFER_BYTES (4u << 20)

/* Returns the code of a call that does not succeed. */
#define RUN(call)                              \
	do {                                   \
		tuttiResult_t run_rc = (call); \
                                               \
		if (run_rc)                    \
			return run_rc;         \
	} while (0)

static void mark_test_calls(bool own)
{
	static const char *const names[] = { "fake_own", "fake_verbs_own" };

	for (int i = 0; i < 2; i++) {
		fake_own_fn *set = NULL;

		*(void **)&set = dlsym(RTLD_DEFAULT, names[i]);
		if (set)
			set(own);
	}
}

void begin_test_calls(void)
{
	mark_test_calls(true);
}

void end_test_calls(void)
{
	mark_test_calls(false);
}

/* ---- buffers --------------------------------------------------------------------------------- */

static void *in(const struct failure_rank *s)
{
	return (void *)(uintptr_t)s->in;
}

static void *out(const struct failure_rank *s)
{
	return (void *)(uintptr_t)s->out;
}

static int value(int rank, size_t i)
{
	return (int)(i % 1000) + 7 * rank;
}

static void fill(struct failure_rank *s)
{
	int *x = malloc(BUFFER_BYTES);

	for (size_t i = 0; i < BUFFER_BYTES / sizeof(*x); i++)
		x[i] = value(s->rank, i);
	if (s->cu)
		harness_to_device(s->in, x, BUFFER_BYTES);
	else
		memcpy(in(s), x, BUFFER_BYTES);
	free(x);
}

/* Waits for the stream, which completes even after a failure, and compares the first count results
 * with want(rank, i). */
static tuttiResult_t check_results(struct failure_rank *s, size_t count,
				   int (*want)(const struct failure_rank *, size_t))
{
	tuttiResult_t rc = tuttiSuccess;
	int *x = malloc(BUFFER_BYTES);

	begin_test_calls();
	if (s->cu)
		s->cu->stream_synchronize(s->stream);
	tuttiCommGetAsyncError(s->comm, &rc);
	if (!rc && s->cu)
		s->cu->dtoh(x, s->out, count * sizeof(*x));
	else if (!rc)
		memcpy(x, out(s), count * sizeof(*x));
	end_test_calls();
	for (size_t i = 0; i < count && !rc; i++)
		s->wrong += x[i] != want(s, i);
	free(x);
	return rc;
}

static int sum(const struct failure_rank *s, size_t i)
{
	int total = 0;

	for (int r = 0; r < s->n; r++)
		total += value(r, i);
	return total;
}

static int of_previous_rank(const struct failure_rank *s, size_t i)
{
	return value((s->rank + s->n - 1) % s->n, i);
}

static int of_all_ranks(const struct failure_rank *s, size_t i)
{
	size_t each = BUFFER_BYTES / sizeof(int) / (size_t)s->n;

	return value((int)(i / each), i % each);
}

/* ---- uses ------------------------------------------------------------------------------------ */

static tuttiResult_t allreduce(struct failure_rank *s, size_t count)
{
	RUN(tuttiAllReduce(in(s), out(s), count, tuttiInt32, tuttiSum, s->comm, s->stream));
	return check_results(s, count, sum);
}

/* A small, a large and a blocking call */
static tuttiResult_t allreduces(struct failure_rank *s)
{
	RUN(allreduce(s, 1000));
	RUN(allreduce(s, BUFFER_BYTES / sizeof(int) / 4));
	RUN(tuttiAllReduce(in(s), out(s), 2000, tuttiInt32, tuttiSum, s->comm, NULL));
	return check_results(s, 2000, sum);
}

static tuttiResult_t send_recv(struct failure_rank *s, size_t count)
{
	int next = (s->rank + 1) % s->n, previous = (s->rank + s->n - 1) % s->n;

	RUN(tuttiGroupStart());
	tuttiSend(in(s), count, tuttiInt32, next, s->comm, s->stream);
	tuttiRecv(out(s), count, tuttiInt32, previous, s->comm, s->stream);
	RUN(tuttiGroupEnd());
	return check_results(s, count, of_previous_rank);
}

static tuttiResult_t send_recvs(struct failure_rank *s)
{
	RUN(send_recv(s, 1000));
	return send_recv(s, BUFFER_BYTES / sizeof(int) / 2);
}

static tuttiResult_t replay(struct failure_rank *s, void *graph)
{
	tuttiResult_t rc = tuttiSuccess;
	void *exec = NULL;

	begin_test_calls();
	s->wrong += s->cu->graph_instantiate(&exec, graph, 0) != 0;
	end_test_calls();
	for (int k = 0; k < 2 && !rc && exec; k++) {
		begin_test_calls();
		s->wrong += s->cu->graph_launch(exec, s->stream) != 0;
		end_test_calls();
		rc = check_results(s, 3000, sum);
	}
	begin_test_calls();
	if (exec)
		s->cu->graph_exec_destroy(exec);
	end_test_calls();
	return rc;
}

/* A call is captured and replayed; another call follows outside the graph. */
static tuttiResult_t captures(struct failure_rank *s)
{
	void *graph = NULL;
	tuttiResult_t rc;

	begin_test_calls();
	s->cu->begin_capture(s->stream, TT_CU_CAPTURE_THREAD);
	end_test_calls();
	rc = tuttiAllReduce(in(s), out(s), 3000, tuttiInt32, tuttiSum, s->comm, s->stream);
	begin_test_calls();
	s->cu->end_capture(s->stream, &graph);
	end_test_calls();
	if (!rc)
		rc = replay(s, graph);
	begin_test_calls();
	if (graph)
		s->cu->graph_destroy(graph);
	end_test_calls();
	return rc ? rc : allreduce(s, 1000);
}

/* Memory that HCAs read and write */
static tuttiResult_t gdr(struct failure_rank *s)
{
	size_t each = BUFFER_BYTES / sizeof(int) / (size_t)s->n;
	void *handle[2];

	RUN(tuttiCommRegister(s->comm, in(s), BUFFER_BYTES, &handle[0]));
	RUN(tuttiCommRegister(s->comm, out(s), BUFFER_BYTES, &handle[1]));
	RUN(tuttiAllGather(in(s), out(s), each, tuttiInt32, s->comm, s->stream));
	RUN(check_results(s, each * (size_t)s->n, of_all_ranks));
	RUN(send_recv(s, each));
	RUN(tuttiCommDeregister(s->comm, handle[0]));
	return tuttiCommDeregister(s->comm, handle[1]);
}

static tuttiResult_t nothing(struct failure_rank *s)
{
	(void)s;
	return tuttiSuccess;
}

static tuttiResult_t messages(struct failure_rank *s)
{
	for (int i = 0; i < 20; i++)
		RUN(allreduce(s, 2));
	for (int i = 0; i < 3; i++)
		RUN(allreduce(s, 20000));
	for (int i = 0; i < 2; i++) /* zero copy */
		RUN(allreduce(s, BUFFER_BYTES / sizeof(int) / 4));
	return tuttiSuccess;
}

const struct failure_use failure_uses[] = {
	{ "allreduce of device memory by threads", 2, true, true, false, allreduces,
	  "cuMemHostRegister_v2:1:0 cuEventCreate:2:0 cuLaunchKernel:20:0 cuLaunchKernel:29:0" },
	{ "allreduce of device memory by processes", 2, false, true, false, allreduces,
	  "cuMemHostGetDevicePointer_v2:1:0 cuMemHostRegister_v2:2:1 cuStreamBatchMemOp_v2:1:0 "
	  "cuStreamBatchMemOp_v2:2:1 cuCtxGetCurrent:5:1" },
	{ "send and receive of device memory by threads", 2, true, true, false, send_recvs,
	  "cuMemHostRegister_v2:1:0 cuLaunchHostFunc:2:0" },
	{ "send and receive of device memory by processes", 2, false, true, false, send_recvs,
	  "cuMemcpyDtoHAsync_v2:2:0 cuEventRecord:1:1" },
	{ "a graph", 2, true, true, false, captures, "cuLaunchKernel:29:0" },
	{ "GPUDirect RDMA", 2, false, true, true, gdr,
	  "cuMemGetHandleForAddressRange:1:0 reg_dmabuf_mr:1:1 post_send:3:0 post_recv:2:0 "
	  "cuStreamBatchMemOp_v2:2:1" },
	{ "init over verbs", 2, false, false, true, nothing,
	  "open_device:1:0 create_qp:1:1 modify_qp:2:0 modify_qp:3:1" },
	{ "messages over verbs", 2, false, false, true, messages,
	  "post_send:9:1 poll_cq:99:0 reg_mr:6:1" },
	{ .name = NULL },
};

/* ---- buffers around a use --------------------------------------------------------------------- */

static bool open_buffers(struct failure_rank *s)
{
	void *p = NULL, *q = NULL;

	if (s->cu)
		return !s->cu->mem_alloc(&s->in, BUFFER_BYTES) &&
		       !s->cu->mem_alloc(&s->out, BUFFER_BYTES) &&
		       !s->cu->stream_create(&s->stream, TT_CU_STREAM_NON_BLOCKING);
	if (tuttiMemAlloc(&p, BUFFER_BYTES) || tuttiMemAlloc(&q, BUFFER_BYTES))
		return false;
	s->in = (uintptr_t)p;
	s->out = (uintptr_t)q;
	return true;
}

static void close_buffers(struct failure_rank *s)
{
	if (s->cu) {
		s->cu->stream_destroy(s->stream);
		s->cu->mem_free(s->in);
		s->cu->mem_free(s->out);
	} else {
		tuttiMemFree(in(s));
		tuttiMemFree(out(s));
	}
}

tuttiResult_t run_failure_use(const struct failure_use *use, struct failure_rank *s)
{
	tuttiResult_t rc;

	begin_test_calls();
	s->wrong += !open_buffers(s);
	fill(s);
	end_test_calls();
	rc = use->run(s);
	begin_test_calls();
	close_buffers(s);
	end_test_calls();
	return rc;
}
