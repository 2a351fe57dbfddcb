/*
 * driver_failure_uses.c - what the library is used for while a call of a driver fails, see driver_failures.h
 */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "tests/gpu/driver_failures.h"
#include "tests/fakes/cuda/fake_counts.h"

#define ROOM (4u << 20)                /* bytes of a buffer */

/* The first call that does not succeed ends the use. */
#define RUN(call)						\
	do {							\
		tuttiResult_t run_rc = (call);			\
								\
		if (run_rc)					\
			return run_rc;				\
	} while (0)

static void set_own(bool own)
{
	static const char *const names[] = { "fake_own", "fake_verbs_own" };

	for (int i = 0; i < 2; i++) {
		fake_own_fn *set = NULL;

		*(void **)&set = dlsym(RTLD_DEFAULT, names[i]);
		if (set)
			set(own);
	}
}

void begin_own(void)
{
	set_own(true);
}

void end_own(void)
{
	set_own(false);
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
	int *x = malloc(ROOM);

	for (size_t i = 0; i < ROOM / sizeof(*x); i++)
		x[i] = value(s->rank, i);
	if (s->cu)
		s->cu->htod(s->in, x, ROOM);
	else
		memcpy(in(s), x, ROOM);
	free(x);
}

/* Waits for the stream, which comes to an end whatever happens, and looks at the first count
 * results: want(seat, i). */
static tuttiResult_t look(struct failure_rank *s, size_t count, int (*want)(const struct failure_rank *, size_t))
{
	tuttiResult_t rc = tuttiSuccess;
	int *x = malloc(ROOM);

	begin_own();
	if (s->cu)
		s->cu->stream_synchronize(s->stream);
	tuttiCommGetAsyncError(s->comm, &rc);
	if (!rc && s->cu)
		s->cu->dtoh(x, s->out, count * sizeof(*x));
	else if (!rc)
		memcpy(x, out(s), count * sizeof(*x));
	end_own();
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

static int last_ranks(const struct failure_rank *s, size_t i)
{
	return value((s->rank + s->n - 1) % s->n, i);
}

static int one_of_each(const struct failure_rank *s, size_t i)
{
	size_t each = ROOM / sizeof(int) / (size_t)s->n;

	return value((int)(i / each), i % each);
}

/* ---- uses ------------------------------------------------------------------------------------ */

static tuttiResult_t reduce(struct failure_rank *s, size_t count)
{
	RUN(tuttiAllReduce(in(s), out(s), count, tuttiInt32, tuttiSum, s->comm, s->stream));
	return look(s, count, sum);
}

/* Small and large calls, and one that blocks */
static tuttiResult_t reduces(struct failure_rank *s)
{
	RUN(reduce(s, 1000));
	RUN(reduce(s, ROOM / sizeof(int) / 4));
	RUN(tuttiAllReduce(in(s), out(s), 2000, tuttiInt32, tuttiSum, s->comm, NULL));
	return look(s, 2000, sum);
}

static tuttiResult_t pass(struct failure_rank *s, size_t count)
{
	int next = (s->rank + 1) % s->n, last = (s->rank + s->n - 1) % s->n;

	RUN(tuttiGroupStart());
	tuttiSend(in(s), count, tuttiInt32, next, s->comm, s->stream);
	tuttiRecv(out(s), count, tuttiInt32, last, s->comm, s->stream);
	RUN(tuttiGroupEnd());
	return look(s, count, last_ranks);
}

static tuttiResult_t passes(struct failure_rank *s)
{
	RUN(pass(s, 1000));
	return pass(s, ROOM / sizeof(int) / 2);
}

static tuttiResult_t replay(struct failure_rank *s, void *graph)
{
	tuttiResult_t rc = tuttiSuccess;
	void *exec = NULL;

	begin_own();
	s->wrong += s->cu->graph_instantiate(&exec, graph, 0) != 0;
	end_own();
	for (int k = 0; k < 2 && !rc && exec; k++) {
		begin_own();
		s->wrong += s->cu->graph_launch(exec, s->stream) != 0;
		end_own();
		rc = look(s, 3000, sum);
	}
	begin_own();
	if (exec)
		s->cu->graph_exec_destroy(exec);
	end_own();
	return rc;
}

/* A call is captured, replayed, and made beside the graph. */
static tuttiResult_t captures(struct failure_rank *s)
{
	void *graph = NULL;
	tuttiResult_t rc;

	begin_own();
	s->cu->begin_capture(s->stream, TT_CU_CAPTURE_THREAD);
	end_own();
	rc = tuttiAllReduce(in(s), out(s), 3000, tuttiInt32, tuttiSum, s->comm, s->stream);
	begin_own();
	s->cu->end_capture(s->stream, &graph);
	end_own();
	if (!rc)
		rc = replay(s, graph);
	begin_own();
	if (graph)
		s->cu->graph_destroy(graph);
	end_own();
	return rc ? rc : reduce(s, 1000);
}

/* Memory that cards read and write */
static tuttiResult_t gdr(struct failure_rank *s)
{
	size_t each = ROOM / sizeof(int) / (size_t)s->n;
	void *handle[2];

	RUN(tuttiCommRegister(s->comm, in(s), ROOM, &handle[0]));
	RUN(tuttiCommRegister(s->comm, out(s), ROOM, &handle[1]));
	RUN(tuttiAllGather(in(s), out(s), each, tuttiInt32, s->comm, s->stream));
	RUN(look(s, each * (size_t)s->n, one_of_each));
	RUN(pass(s, each));
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
		RUN(reduce(s, 2));
	for (int i = 0; i < 3; i++)
		RUN(reduce(s, 20000));
	for (int i = 0; i < 2; i++)            /* past the rings */
		RUN(reduce(s, ROOM / sizeof(int) / 4));
	return tuttiSuccess;
}

const struct use uses[] = {
	{ "allreduce of device memory by threads", 2, true, true, false, reduces,
	  "cuStreamCreateWithPriority:1:0 cuEventCreate:2:0 cuLaunchKernel:20:0 cuLaunchKernel:29:0" },
	{ "allreduce of device memory by processes", 2, false, true, false, reduces,
	  "cuMemHostGetDevicePointer_v2:1:0 cuStreamBatchMemOp_v2:2:1 cuCtxPushCurrent_v2:1:1" },
	{ "send and receive of device memory by threads", 2, true, true, false, passes,
	  "cuMemHostRegister_v2:1:0 cuLaunchHostFunc:2:0" },
	{ "send and receive of device memory by processes", 2, false, true, false, passes,
	  "cuMemcpyDtoHAsync_v2:2:0 cuEventRecord:1:1" },
	{ "a graph", 2, true, true, false, captures, "cuLaunchKernel:29:0" },
	{ "memory that cards read and write", 2, false, true, true, gdr,
	  "cuMemGetHandleForAddressRange:1:0 reg_dmabuf_mr:1:1 post_send:3:0" },
	{ "join by cards", 2, false, false, true, nothing,
	  "open_device:1:0 create_qp:1:1 modify_qp:2:0 modify_qp:3:1" },
	{ "messages by cards", 2, false, false, true, messages,
	  "post_send:9:1 poll_cq:99:0 reg_mr:6:1" },
	{ .name = NULL },
};

/* ---- around ---------------------------------------------------------------------------------- */

static bool open_buffers(struct failure_rank *s)
{
	void *p = NULL, *q = NULL;

	if (s->cu)
		return !s->cu->mem_alloc(&s->in, ROOM) && !s->cu->mem_alloc(&s->out, ROOM) &&
		       !s->cu->stream_create(&s->stream, TT_CU_STREAM_NON_BLOCKING);
	if (tuttiMemAlloc(&p, ROOM) || tuttiMemAlloc(&q, ROOM))
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

tuttiResult_t use_play(const struct use *use, struct failure_rank *s)
{
	tuttiResult_t rc;

	begin_own();
	s->wrong += !open_buffers(s);
	fill(s);
	end_own();
	rc = use->run(s);
	begin_own();
	close_buffers(s);
	end_own();
	return rc;
}
