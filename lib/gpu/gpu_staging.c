/*
 * gpu_staging.c - staged calls: device memory is copied to pinned host memory, the call runs on the
 * host, the result is copied back
 *
 * Called by gpu_call.c for calls without kernels: sends and receives, ranks on several hosts, more
 * ranks than kernels take, communicators in which only some ranks have a GPU, host memory on a CUDA
 * stream. A batch of calls puts on the user's stream, in this order:
 *   copies of small inputs to the staging buffer
 *   a host function that hands the batch to the device's host stream
 *   copies of large inputs; copies of large outputs, each behind a wait: they run beside the call
 *   a wait for the done flag, which the host stream sets after the batch, and a reset of the flag
 *   copies of small outputs from the staging buffer
 * The staging buffer is memory of tuttiMemAlloc, so peers on the host read it in
 * place. A batch draws its tickets when it is enqueued; a batch in a graph draws them at each
 * replay. A staging buffer is reused once the stream has passed the batch; a buffer of a graph
 * belongs to the graph for good.
 */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "mem/memory.h"
#include "gpu/gpu_call.h"

#define LARGE_BYTES (1u << 20) /* buffers from this size on are copied by a pipeline */
/* distance of the words at the start of a staging buffer: the done flag, then those of each call's
 * pipeline */
#define WORD_BYTES 64
#define MAX_FREE_BUFFERS 8 /* unused staging buffers that are kept */

struct tt_staging_buffer {
	struct tt_batch_done done; /* of the batch; first member */
	struct tt_staging_buffer *next;
	struct tt_gpu *d;
	char *memory;  /* the first word is the done flag */
	tt_cuptr flag; /* the done flag as the device sees it */
	size_t bytes;
	tt_cuevent passed; /* the stream has passed the batch */
	bool captured;     /* the buffer belongs to a graph */
	bool withdrawn;    /* captured, and the capture of the batch failed */
	/* with tickets; NULL: of a graph, or taken by the one thread that submits or runs it */
	struct tt_batch *_Atomic batch;
	struct tt_request *requests;   /* [n] of the batch, with staged addresses */
	struct tt_pipeline *pipelines; /* [n], used by requests with large buffers */
	struct tt_gdr *gdrs;           /* [n], used by requests with GPUDirect RDMA */
	size_t n;
};

/* The stream waits no more for the batch. */
static void release_stream(struct tt_staging_buffer *s)
{
	for (size_t i = 0; i < s->n; i++)
		tt_pipeline_release(&s->pipelines[i]);
	__atomic_store_n((uint32_t *)s->memory, 1, __ATOMIC_RELEASE);
}

/* The batch has run or failed. Thread: the host stream's, which must not call the driver (gpu_pipeline.c),
 * except for GPUDirect RDMA. */
static void batch_done(struct tt_batch_done *done, int rc)
{
	struct tt_staging_buffer *s = (struct tt_staging_buffer *)done;
	tuttiComm_t c = s->d->comm;
	bool failed = false;

	(void)rc;
	for (size_t i = 0; i < s->n; i++) {
		failed |= s->gdrs[i].failed;
		free(s->gdrs[i].host);
	}
	if (failed)
		tt_gpu_failed(c, TT_CUDA);
	release_stream(s);
}

/* Thread: the driver's, which must not call CUDA. */
static void submit(void *arg)
{
	struct tt_staging_buffer *s = arg;
	struct tt_batch *b = atomic_exchange(&s->batch, NULL);

	if (!b && (!s->captured || s->withdrawn))
		return;
	for (size_t i = 0; i < s->n; i++)
		tt_pipeline_reset(&s->pipelines[i]);
	if (!b && !(b = tt_batch_draw(s->requests, s->n))) {
		tt_gpu_failed(s->d->comm, TT_SYSTEM);
		release_stream(s);
		return;
	}
	s->done.call = batch_done;
	b->done = &s->done;
	tt_stream_push(s->d->host_stream, &b->item);
}

/* ---- staging buffers ------------------------------------------------------------------------- */

static void free_buffer(struct tt_staging_buffer *s)
{
	if (s->passed)
		s->d->cu->event_destroy(s->passed);
	if (s->memory) {
		s->d->cu->host_unregister(s->memory);
		tt_memory_free(s->memory);
	}
	free(s->requests);
	free(s->pipelines);
	free(s->gdrs);
	free(s);
}

static void free_buffers(struct tt_staging_buffer *s)
{
	for (struct tt_staging_buffer *next; s; s = next) {
		next = s->next;
		free_buffer(s);
	}
}

static int make_buffer(struct tt_gpu *d, size_t bytes, struct tt_staging_buffer **ret)
{
	struct tt_staging_buffer *s = calloc(1, sizeof(*s));
	void *p = NULL;
	int rc;

	if (!s || tt_memory_alloc(bytes, &p)) {
		free(s);
		return tt_fail(TT_SYSTEM, "rank %d: no memory for a staging buffer of %zu bytes",
			       d->comm->rank, bytes);
	}
	s->d = d;
	s->bytes = bytes;
	rc = d->cu->host_register(p, bytes, TT_CU_HOST_PORTABLE | TT_CU_HOST_MAPPED);
	if (rc) {
		tt_memory_free(p);
		free(s);
		return tt_cuda_fail(rc, "rank %d: pin a staging buffer of %zu bytes", d->comm->rank,
				    bytes);
	}
	s->memory = p;
	if ((rc = d->cu->host_device_ptr(&s->flag, p, 0)) ||
	    (rc = d->cu->event_create(&s->passed, TT_CU_EVENT_UNTIMED))) {
		s->next = d->too_small; /* freed at close, see take_buffer */
		d->too_small = s;
		return tt_cuda_fail(rc, "rank %d: a staging buffer of %zu bytes", d->comm->rank,
				    bytes);
	}
	atomic_fetch_add(&d->comm->memory.allocations, 1);
	*ret = s;
	return 0;
}

/* Rounds up by at most a quarter, so that growing calls make few staging buffers. */
static size_t rounded(size_t bytes)
{
	size_t step = 16u << 10;

	while (4 * step <= bytes / 2)
		step *= 2;
	return (bytes + step - 1) / step * step;
}

/* Takes an unused staging buffer that is large enough. If none is, a new buffer is made, and if
 * MAX_FREE_BUFFERS are unused, the last one found is retired. A retired buffer is not freed before
 * close, since CUDA then waits for all work of a device, also for peers' streams, which may wait
 * for this call. */
static int take_buffer(struct tt_gpu *d, size_t bytes, bool capturing,
		       struct tt_staging_buffer **ret)
{
	struct tt_staging_buffer **at, *s = NULL, **unused = NULL;
	int rc, count = 0;

	for (at = &d->staging; !capturing && (s = *at); at = &s->next) {
		if (s->captured || d->cu->event_query(s->passed))
			continue;
		count++;
		unused = at;
		if (s->bytes >= bytes)
			break;
	}
	if (!capturing && unused && ((*unused)->bytes >= bytes || count >= MAX_FREE_BUFFERS)) {
		s = *unused;
		*unused = s->next;
		if (s->bytes >= bytes) {
			*ret = s;
			return 0;
		}
		s->next = d->too_small;
		d->too_small = s;
	}
	rc = make_buffer(d, capturing ? bytes : rounded(bytes), &s);
	if (rc)
		return rc;
	s->captured = capturing;
	*ret = s;
	return 0;
}

/* ---- a batch --------------------------------------------------------------------------------- */

static size_t whole_lines(size_t bytes)
{
	return (bytes + 127) / 128 * 128;
}

/* Is the buffer copied to or from the staging buffer? */
static bool stages_in(const struct tt_gpu_call *c)
{
	return c->in_device && !c->gdr;
}

static bool stages_out(const struct tt_gpu_call *c)
{
	return c->out_device && !c->gdr;
}

static size_t buffer_bytes(const struct tt_gpu_call *calls, size_t n)
{
	size_t bytes = (n + 1) * WORD_BYTES;

	for (size_t i = 0; i < n; i++)
		bytes += (stages_in(&calls[i]) ? whole_lines(calls[i].in_bytes) : 0) +
			 (stages_out(&calls[i]) ? whole_lines(calls[i].out_bytes) : 0);
	return bytes;
}

/* Gives a request with large buffers a pipeline (gpu_pipeline.c). */
static void set_pipeline(struct tt_staging_buffer *s, size_t i, const struct tt_gpu_call *c)
{
	struct tt_pipeline *g = &s->pipelines[i];
	size_t at = (i + 1) * WORD_BYTES;

	*g = (struct tt_pipeline){ .staging = { .ops = &tt_pipeline_ops },
				   .d = s->d,
				   .stage_in = (char *)(uintptr_t)s->requests[i].in,
				   .stage_out = s->requests[i].out,
				   .in_bytes = c->in_bytes,
				   .out_bytes = c->out_bytes,
				   .words = (struct tt_pipeline_words *)(s->memory + at),
				   .words_at = s->flag + at };
	if (c->in_device)
		g->in = (uintptr_t)c->request->in;
	if (c->out_device)
		g->out = (uintptr_t)c->request->out;
	tt_pipeline_cut(g, c->request, s->n);
	s->requests[i].staging = &g->staging;
}

static bool is_large(const struct tt_gpu_call *c)
{
	return (stages_in(c) && c->in_bytes >= LARGE_BYTES) ||
	       (stages_out(c) && c->out_bytes >= LARGE_BYTES);
}

static void set_gdr(struct tt_staging_buffer *s, size_t i, const struct tt_gpu_call *c)
{
	struct tt_gdr *x = &s->gdrs[i];

	*x = (struct tt_gdr){ .staging = { .ops = &tt_gdr_ops, .tiles_in = UINT32_MAX },
			      .d = s->d };
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

/* Makes the requests, with staged addresses in place of device memory, and enqueues the copies of
 * small inputs. */
static int copy_in(struct tt_staging_buffer *s, const struct tt_gpu_call *calls, size_t n,
		   struct tt_request *requests, tt_custream stream)
{
	char *p = s->memory + (n + 1) * WORD_BYTES;
	int rc = 0;

	for (size_t i = 0; i < n && !rc; i++) {
		requests[i] = *calls[i].request;
		requests[i].stream = NULL;
		if (calls[i].gdr)
			set_gdr(s, i, &calls[i]);
		if (stages_in(&calls[i])) {
			if (!is_large(&calls[i]))
				rc = s->d->cu->dtoh_async(p, (uintptr_t)requests[i].in,
							  calls[i].in_bytes, stream);
			requests[i].in = p;
			p += whole_lines(calls[i].in_bytes);
		}
		if (stages_out(&calls[i])) {
			requests[i].out = p;
			p += whole_lines(calls[i].out_bytes);
		}
		if (is_large(&calls[i]))
			set_pipeline(s, i, &calls[i]);
	}
	return rc;
}

static int copy_out(struct tt_staging_buffer *s, const struct tt_gpu_call *calls, size_t n,
		    const struct tt_request *requests, tt_custream stream)
{
	int rc = 0;

	for (size_t i = 0; i < n && !rc; i++)
		if (stages_out(&calls[i]) && !is_large(&calls[i]))
			rc = s->d->cu->htod_async((uintptr_t)calls[i].request->out, requests[i].out,
						  calls[i].out_bytes, stream);
	return rc;
}

/* Breaks the communicators of a batch that could not be enqueued, so that the batch ends soon. */
static void break_all(struct tt_staging_buffer *s, int code)
{
	for (size_t i = 0; i < s->n; i++)
		tt_gpu_failed(s->requests[i].comm, code);
}

/* Ends a batch for which the stream does not wait: after the failed call the user may free the
 * buffers. If the stream has not submitted the batch yet, this thread runs the batch, which fails at
 * once and releases its tickets. */
static void withdraw(struct tt_staging_buffer *s)
{
	struct timespec pause = { .tv_nsec = 1000000 };
	uint32_t *done = (uint32_t *)s->memory;
	struct tt_batch *b = atomic_exchange(&s->batch, NULL);

	for (size_t i = 0; i < s->n; i++)
		tt_pipeline_release(&s->pipelines[i]); /* the stream may wait for outputs already */
	if (s->captured) {
		s->withdrawn = true;
	} else if (b) {
		tt_batch_run(b);
	} else {
		while (!__atomic_load_n(done, __ATOMIC_ACQUIRE))
			nanosleep(&pause, NULL);
		__atomic_store_n(done, 0, __ATOMIC_RELEASE);
	}
}

static int fail_enqueue(const struct tt_staging_buffer *s, int driver_code)
{
	return tt_cuda_fail(driver_code, "rank %d: put copies and calls on a stream",
			    s->d->comm->rank);
}

static int enqueue_batch(struct tt_staging_buffer *s, const struct tt_gpu_call *calls, size_t n,
			 tt_custream stream)
{
	struct tt_cumemop wait[] = {
		{ .operation = TT_CU_WAIT_32,
		  .address = s->flag,
		  .value = 1,
		  .flags = TT_CU_WAIT_EQ },
		{ .operation = TT_CU_WRITE_32, .address = s->flag },
	};
	const struct tt_cuda *cu = s->d->cu;
	int rc = copy_in(s, calls, n, s->requests, stream);

	if (!rc && !s->captured) {
		struct tt_batch *batch = tt_batch_draw(s->requests, n);

		atomic_store(&s->batch, batch);
		if (!batch)
			return TT_SYSTEM;
	}
	if (rc)
		return fail_enqueue(s, rc);
	rc = cu->host_func(stream, submit, s);
	for (size_t i = 0; i < n && !rc; i++)
		rc = tt_pipeline_enqueue_inputs(&s->pipelines[i], stream);
	for (size_t i = 0; i < n && !rc; i++)
		rc = tt_pipeline_enqueue_outputs(&s->pipelines[i], stream);
	if (!rc)
		rc = cu->stream_batch(stream, 2, wait, 0);
	if (rc) {
		break_all(s, fail_enqueue(s, rc));
		withdraw(s);
		return fail_enqueue(s, rc);
	}
	rc = copy_out(s, calls, n, s->requests, stream);
	return rc ? fail_enqueue(s, rc) : 0;
}

/* The event is recorded also after a batch that failed, which may have put work on the stream.
 * Without the event, this thread waits until the stream has passed the batch. */
static int enqueue(struct tt_staging_buffer *s, const struct tt_gpu_call *calls, size_t n,
		   tt_custream stream)
{
	int rc = enqueue_batch(s, calls, n, stream),
	    failed = s->captured ? 0 : s->d->cu->event_record(s->passed, stream);

	if (failed && !rc)
		rc = tt_cuda_fail(failed, "rank %d: record an event", s->d->comm->rank);
	if (failed) {
		break_all(s, rc);
		s->d->cu->stream_synchronize(stream);
	}
	return rc;
}

/* After a failure of the device, CUDA does not call host functions that are on streams: the tickets
 * of their batches would block all later calls. */
void tt_gpu_release_tickets(struct tt_gpu *d, int driver_code)
{
	struct tt_staging_buffer *oldest;

	if (!d->staging)
		return;
	tt_gpu_failed(d->comm,
		      tt_cuda_fail(driver_code, "rank %d: a call that was staged on device %d",
				   d->comm->rank, d->device));
	do {
		struct tt_batch *b;

		oldest = NULL;
		for (struct tt_staging_buffer *s = d->staging; s; s = s->next)
			oldest = atomic_load(&s->batch) ? s : oldest;
		if (oldest && (b = atomic_exchange(&oldest->batch, NULL)))
			tt_batch_run(b);
	} while (oldest);
}

/* No thread watches the device until a batch begins. The query of a stream is the driver's call that no
 * copy of pageable memory holds up. */
void tt_gpu_take_failure(tuttiComm_t c)
{
	struct tt_gpu *d = c->gpu;
	int mode, rc;

	if (!d || tt_control_broken(c->ctl))
		return;
	mode = tt_cuda_enter(d->ctx);
	rc = d->cu->stream_query(d->own);
	tt_cuda_leave(d->ctx, mode);
	if (rc && rc != TT_CU_NOT_READY && rc != TT_CU_DEINITIALIZED)
		tt_gpu_failed(c, tt_cuda_fail(rc, "rank %d: device %d", c->rank, d->device));
}

/* The communicator is being closed: only replays of its graphs may still be in flight. */
void tt_gpu_staging_close(struct tt_gpu *d)
{
	for (struct tt_staging_buffer *s = d->staging; s; s = s->next)
		if (!s->captured)
			d->cu->event_synchronize(s->passed);
	if (d->host_stream)
		tt_stream_destroy(d->host_stream); /* runs the remaining batches */
	d->host_stream = NULL;
	free_buffers(d->staging);
	free_buffers(d->too_small);
	d->staging = d->too_small = NULL;
	if (d->copies)
		d->cu->stream_destroy(d->copies);
	if (d->pinned)
		d->cu->host_free(d->pinned);
	if (d->scalar)
		d->cu->host_free(d->scalar);
}

/* Makes what the calls need while they run: then the driver may let no thread in. */
static int prepare(struct tt_gpu *d, const struct tt_gpu_call *calls, size_t n)
{
	int rc = d->host_stream ? 0 : tt_stream_create(&d->host_stream);

	for (size_t i = 0; i < n && !rc; i++)
		if (calls[i].gdr && !(rc = tt_gdr_prepare(d)))
			rc = tt_gdr_prepare(calls[i].request->comm->gpu); /* for tt_gpu_fetch */
	return rc;
}

int tt_gpu_run_staged(struct tt_gpu *d, const struct tt_gpu_call *calls, size_t n,
		      tt_custream stream, bool capturing)
{
	struct tt_staging_buffer *s = NULL;
	int rc = prepare(d, calls, n);

	if (rc || (rc = take_buffer(d, buffer_bytes(calls, n), capturing, &s)))
		return rc;
	s->next = d->staging;
	d->staging = s;
	atomic_fetch_add(&d->staged_bytes, buffer_bytes(calls, n) - (n + 1) * WORD_BYTES);
	free(s->requests);
	free(s->pipelines);
	free(s->gdrs);
	s->n = n;
	s->requests = calloc(n, sizeof(*s->requests));
	s->pipelines = calloc(n, sizeof(*s->pipelines));
	s->gdrs = calloc(n, sizeof(*s->gdrs));
	if (!s->requests || !s->pipelines || !s->gdrs)
		return tt_fail(TT_SYSTEM, "rank %d: no memory for %zu calls", d->comm->rank, n);
	return enqueue(s, calls, n, stream);
}
