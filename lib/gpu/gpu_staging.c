/*
 * gpu_staging.c - calls of a CUDA stream by the host's way: copied to pinned memory, run by a thread,
 * copied back
 *
 * Called by gpu_call.c for what has no kernels: sends and receives, ranks on several hosts, more ranks
 * than kernels take, ranks without a GPU beside ranks with one, host memory on a CUDA stream. What
 * lies on the stream for a batch of calls:
 *   copies of small inputs to the stage; a host function that hands the batch to the device's
 *   worker, a host stream; a wait for the word that the worker writes when the batch is done, and
 *   that the stream sets back; copies of small outputs from it
 * What is large is copied by streams of the worker's while the call runs (gpu_pipeline.c). The stage is
 * tuttiMemAlloc's memory, so peers on the host read it where it is. A batch draws its turn when it
 * is enqueued; one in a graph draws it at each replay. A stage is used again when the stream has
 * left it; one in a graph belongs to the graph.
 */
#include <stdlib.h>
#include <string.h>

#include "mem/memory.h"
#include "gpu/gpu_call.h"

#define LARGE_BYTES (1u << 20)         /* a buffer that is worth several copies */
/* from the flag to the words of gates, one a call, before the buffers of a stage */
#define WORD_BYTES 64
#define MOST_STAGES 8                  /* that wait to be used again */

struct tt_staged {
	struct tt_batch_done done;             /* of its batch; first */
	struct tt_staged *next;
	struct tt_gpu *d;
	char *memory;                          /* its first word is the flag */
	tt_cuptr flag;
	size_t bytes;
	tt_cuevent left;                       /* the stream has */
	bool captured;
	struct tt_batch *batch;                /* drawn; NULL: of a graph, then these: */
	struct tt_request *requests;
	struct tt_pipeline *gates;                 /* one a request, some in use */
	struct tt_gdr *straights;         /* so are these */
	size_t n;
};

static void let_stream_go(struct tt_staged *s)
{
	__atomic_store_n((uint32_t *)s->memory, 1, __ATOMIC_RELEASE);
}

static int await_copies(struct tt_gpu *d)
{
	int mode = tt_gpu_enter(d->ctx), rc = d->cu->stream_synchronize(d->copies_in),
	    out = d->cu->stream_synchronize(d->copies_out);

	tt_gpu_leave(d->ctx, mode);
	rc = rc ? rc : out;
	return rc ? tt_cuda_fail(rc, "rank %d: wait for copies of a call from and to device %d",
				 d->comm->rank, d->device)
		  : 0;
}

/* Also of a batch that failed, which the communicator knows: copies to the stage may still be under
 * way. What failed besides is this thread's last sentence. */
static void done(struct tt_batch_done *arg, int rc)
{
	struct tt_staged *s = (struct tt_staged *)arg;
	tuttiComm_t c = s->d->comm;
	bool failed = await_copies(s->d) != 0;

	(void)rc;
	for (size_t i = 0; i < s->n; i++)
		failed |= s->gates[i].failed || s->straights[i].failed, free(s->straights[i].host);
	if (failed) {
		tt_control_raise(c->ctl, TT_CUDA, c->rank, tt_error_text());
		tt_comm_failed(c, TT_CUDA);
	}
	let_stream_go(s);
}

/* On a thread of the driver: no call of CUDA's is allowed here. */
static void go(void *arg)
{
	struct tt_staged *s = arg;
	struct tt_batch *b = s->batch ? s->batch : tt_batch_draw(s->requests, s->n);

	s->batch = NULL;
	if (!b) {
		tt_comm_failed(s->d->comm, TT_SYSTEM);
		let_stream_go(s);
		return;
	}
	s->done.call = done;
	b->done = &s->done;
	tt_stream_push(s->d->worker, b);
}

/* ---- stages ---------------------------------------------------------------------------------- */

static void free_stage(struct tt_staged *s)
{
	if (s->left)
		s->d->cu->event_destroy(s->left);
	if (s->memory) {
		s->d->cu->host_unregister(s->memory);
		tt_memory_free(s->memory);
	}
	free(s->requests);
	free(s->gates);
	free(s->straights);
	free(s);
}

static void free_stages(struct tt_staged *s)
{
	for (struct tt_staged *next; s; s = next) {
		next = s->next;
		free_stage(s);
	}
}

static int make_stage(struct tt_gpu *d, size_t bytes, struct tt_staged **ret)
{
	struct tt_staged *s = calloc(1, sizeof(*s));
	void *p = NULL;
	int rc;

	if (!s || tt_memory_alloc(bytes, &p)) {
		free(s);
		return tt_fail(TT_SYSTEM, "rank %d: no memory for a stage of %zu bytes",
			       d->comm->rank, bytes);
	}
	s->d = d;
	s->bytes = bytes;
	rc = d->cu->host_register(p, bytes, TT_CU_HOST_PORTABLE | TT_CU_HOST_MAPPED);
	if (rc) {
		tt_memory_free(p);
		free(s);
		return tt_cuda_fail(rc, "rank %d: pin a stage of %zu bytes", d->comm->rank, bytes);
	}
	s->memory = p;
	if ((rc = d->cu->host_device_ptr(&s->flag, p, 0)) ||
	    (rc = d->cu->event_create(&s->left, TT_CU_EVENT_UNTIMED))) {
		s->next = d->too_small;        /* to be freed at the end, see take_stage */
		d->too_small = s;
		return tt_cuda_fail(rc, "rank %d: a stage of %zu bytes", d->comm->rank, bytes);
	}
	atomic_fetch_add(&d->comm->allocations, 1);
	*ret = s;
	return 0;
}

/* Up to a quarter more, so that stages which grow with the calls are few. */
static size_t rounded(size_t bytes)
{
	size_t step = 16u << 10;

	while (4 * step <= bytes / 2)
		step *= 2;
	return (bytes + step - 1) / step * step;
}

/* One that is free and large enough; else the newest of the free ones makes room for a new one when
 * there are many. It is not freed before the end, since CUDA waits for all of a device then, also
 * for peers' streams which wait for this call. */
static int take_stage(struct tt_gpu *d, size_t bytes, bool capturing, struct tt_staged **ret)
{
	struct tt_staged **at, *s = NULL, **spare = NULL;
	int rc, count = 0;

	for (at = &d->staged; !capturing && (s = *at); at = &s->next) {
		if (s->captured || d->cu->event_query(s->left))
			continue;
		count++;
		spare = at;
		if (s->bytes >= bytes)
			break;
	}
	if (!capturing && spare && ((*spare)->bytes >= bytes || count >= MOST_STAGES)) {
		s = *spare;
		*spare = s->next;
		if (s->bytes >= bytes) {
			*ret = s;
			return 0;
		}
		s->next = d->too_small;
		d->too_small = s;
	}
	rc = make_stage(d, capturing ? bytes : rounded(bytes), &s);
	if (rc)
		return rc;
	s->captured = capturing;
	*ret = s;
	return 0;
}

/* ---- a batch --------------------------------------------------------------------------------- */

static size_t lines(size_t bytes)
{
	return (bytes + 127) / 128 * 128;
}

/* Which buffers are staged */
static bool stages_in(const struct tt_gpu_call *c)
{
	return c->in_device && !c->gdr;
}

static bool stages_out(const struct tt_gpu_call *c)
{
	return c->out_device && !c->gdr;
}

static size_t stage_bytes(const struct tt_gpu_call *calls, size_t n)
{
	size_t bytes = (n + 1) * WORD_BYTES;

	for (size_t i = 0; i < n; i++)
		bytes += (stages_in(&calls[i]) ? lines(calls[i].in_bytes) : 0) +
			 (stages_out(&calls[i]) ? lines(calls[i].out_bytes) : 0);
	return bytes;
}

/* What gpu_pipeline.c copies while the request runs; what is small lies on the user's stream. */
static void set_gate(struct tt_staged *s, size_t i, const struct tt_gpu_call *c)
{
	struct tt_pipeline *g = &s->gates[i];
	size_t at = (i + 1) * WORD_BYTES;

	*g = (struct tt_pipeline){ .staging = { .ops = &tt_pipeline_ops }, .d = s->d, .stage_in = (char *)(uintptr_t)s->requests[i].in,
			       .stage_out = s->requests[i].out, .in_bytes = c->in_bytes,
			       .out_bytes = c->out_bytes, .word = (uint32_t *)(s->memory + at),
			       .word_at = s->flag + at };
	if (c->in_device)
		g->in = (uintptr_t)c->request->in;
	if (c->out_device)
		g->out = (uintptr_t)c->request->out;
	s->requests[i].staging = &g->staging;
}

static bool is_large(const struct tt_gpu_call *c)
{
	return (stages_in(c) && c->in_bytes >= LARGE_BYTES) ||
	       (stages_out(c) && c->out_bytes >= LARGE_BYTES);
}

static void set_straight(struct tt_staged *s, size_t i, const struct tt_gpu_call *c)
{
	struct tt_gdr *x = &s->straights[i];

	*x = (struct tt_gdr){ .staging = { .ops = &tt_gdr_ops, .tiles_in = UINT32_MAX }, .d = s->d };
	if (c->in_device) {
		x->in = (uintptr_t)c->request->in;
		x->in_end = x->in + c->in_bytes;
	}
	if (c->out_device) {
		x->out = (uintptr_t)c->request->out;
		x->out_end = x->out + c->out_bytes;
	}
	s->requests[i].staging = &x->staging;
}

/* The requests with stages in the place of device memory, and the copies to them */
static int copy_in(struct tt_staged *s, const struct tt_gpu_call *calls, size_t n,
		   struct tt_request *requests, tt_custream stream)
{
	char *p = s->memory + (n + 1) * WORD_BYTES;
	int rc = 0;

	for (size_t i = 0; i < n && !rc; i++) {
		requests[i] = *calls[i].request;
		requests[i].stream = NULL;
		if (calls[i].gdr)
			set_straight(s, i, &calls[i]);
		if (stages_in(&calls[i])) {
			if (!is_large(&calls[i]))
				rc = s->d->cu->dtoh_async(p, (uintptr_t)requests[i].in,
							  calls[i].in_bytes, stream);
			requests[i].in = p;
			p += lines(calls[i].in_bytes);
		}
		if (stages_out(&calls[i])) {
			requests[i].out = p;
			p += lines(calls[i].out_bytes);
		}
		if (is_large(&calls[i]))
			set_gate(s, i, &calls[i]);
	}
	return rc;
}

static int copy_out(struct tt_staged *s, const struct tt_gpu_call *calls, size_t n,
		    const struct tt_request *requests, tt_custream stream)
{
	int rc = 0;

	for (size_t i = 0; i < n && !rc; i++)
		if (stages_out(&calls[i]) && !is_large(&calls[i]))
			rc = s->d->cu->htod_async((uintptr_t)calls[i].request->out, requests[i].out,
						  calls[i].out_bytes, stream);
	return rc;
}

static int put_batch(struct tt_staged *s, const struct tt_gpu_call *calls, size_t n,
		     tt_custream stream)
{
	struct tt_cumemop wait[] = {
		{ .operation = TT_CU_WAIT_32, .address = s->flag, .value = 1,
		  .flags = TT_CU_WAIT_EQ },
		{ .operation = TT_CU_WRITE_32, .address = s->flag },
	};
	const struct tt_cuda *cu = s->d->cu;
	int rc = copy_in(s, calls, n, s->requests, stream);

	if (!rc && !s->captured && !(s->batch = tt_batch_draw(s->requests, n)))
		return TT_SYSTEM;
	if (!rc && (rc = cu->host_func(stream, go, s)) && s->batch) {
		tt_batch_run(s->batch);                /* its turn must not stay with it */
		s->batch = NULL;
	}
	if (!rc)
		rc = cu->stream_batch(stream, 2, wait, 0);
	if (!rc)
		rc = copy_out(s, calls, n, s->requests, stream);
	return rc ? tt_cuda_fail(rc, "rank %d: put copies and calls on a stream", s->d->comm->rank)
		  : 0;
}

/* The stream has left the stage behind whatever came to lie on it, also of a call that failed. */
static int put_on_stream(struct tt_staged *s, const struct tt_gpu_call *calls, size_t n,
			 tt_custream stream)
{
	int rc = put_batch(s, calls, n, stream),
	    failed = s->captured ? 0 : s->d->cu->event_record(s->left, stream);

	if (failed && !rc)
		rc = tt_cuda_fail(failed, "rank %d: record an event", s->d->comm->rank);
	return rc;
}

/* After a failure of the device, CUDA does not call what was put on streams: what has a turn there
 * would keep all behind it waiting. */
static void give_turns(struct tt_gpu *d, int rc)
{
	tuttiComm_t c = d->comm;
	struct tt_staged *oldest;

	if (!d->staged)
		return;
	rc = tt_cuda_fail(rc, "rank %d: a call that was staged on device %d", c->rank, d->device);
	tt_control_raise(c->ctl, rc, c->rank, tt_error_text());
	tt_comm_failed(c, rc);
	do {
		struct tt_batch *b;

		oldest = NULL;
		for (struct tt_staged *s = d->staged; s; s = s->next)
			oldest = s->batch ? s : oldest;
		if (oldest) {
			b = oldest->batch;
			oldest->batch = NULL;
			tt_batch_run(b);
		}
	} while (oldest);
}

/* When the communicator goes: nothing of it is under way
 * any more but what its graphs may still do. */
static void close_stages(struct tt_gpu *d)
{
	for (struct tt_staged *s = d->staged; s; s = s->next)
		if (!s->captured)
			d->cu->event_synchronize(s->left);
	if (d->worker)
		tt_stream_destroy(d->worker);          /* runs what it still has, into the stages */
	d->worker = NULL;
	free_stages(d->staged);
	free_stages(d->too_small);
	d->staged = d->too_small = NULL;
	if (d->copies_in)
		d->cu->stream_destroy(d->copies_in);
	if (d->copies_out)
		d->cu->stream_destroy(d->copies_out);
}

static int open_worker(struct tt_gpu *d)
{
	int rc;

	d->close_stages = close_stages;
	d->give_turns = give_turns;
	if (!d->copies_in && (rc = tt_gpu_stream_before(d->cu, &d->copies_in)))
		return tt_cuda_fail(rc, "rank %d: a stream for copies", d->comm->rank);
	if (!d->copies_out && (rc = tt_gpu_stream_before(d->cu, &d->copies_out)))
		return tt_cuda_fail(rc, "rank %d: a stream for copies", d->comm->rank);
	return d->worker ? 0 : tt_stream_create(&d->worker);
}

int tt_gpu_stage(struct tt_gpu *d, const struct tt_gpu_call *calls, size_t n, tt_custream stream,
		 bool capturing)
{
	struct tt_staged *s = NULL;
	int rc = open_worker(d);

	if (rc || (rc = take_stage(d, stage_bytes(calls, n), capturing, &s)))
		return rc;
	s->next = d->staged;
	d->staged = s;
	atomic_fetch_add(&d->staged_bytes, stage_bytes(calls, n) - (n + 1) * WORD_BYTES);
	free(s->requests);
	free(s->gates);
	free(s->straights);
	s->n = n;
	s->requests = calloc(n, sizeof(*s->requests));
	s->gates = calloc(n, sizeof(*s->gates));
	s->straights = calloc(n, sizeof(*s->straights));
	if (!s->requests || !s->gates || !s->straights)
		return tt_fail(TT_SYSTEM, "rank %d: no memory for %zu calls", d->comm->rank, n);
	return put_on_stream(s, calls, n, stream);
}
