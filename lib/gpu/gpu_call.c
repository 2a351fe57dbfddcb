/*
 * gpu_call.c - dispatch and order of collectives on device memory and of all calls on a CUDA stream
 *
 * Called by api (group.c) in place of run's entries where a communicator has a GPU side. Facts that
 * all ranks agree on choose the way of a request: whether the ranks have kernels, whether the
 * request is a collective on device memory, whether the user named its algorithm.
 *
 *   gpu_plan.c       the plan of the named algorithm, by kernels
 *   gpu_job.c        one kernel, which waits for the other ranks' kernels
 *   gpu_ordered.c    kernels without barriers; streams wait between them
 *   gpu_staging.c    everything else: the host's operation, with copies around it
 *
 * All calls are put on the stream and run in stream order. An event keeps calls of one communicator
 * on different streams in call order. A call with a NULL stream runs on the communicator's own
 * stream, and the call waits for the stream.
 */
#include <string.h>

#include "gpu/gpu_call.h"
#include "run/number.h"

/* ---- the way of a request -------------------------------------------------------------------- */

static int is_device(const struct tt_gpu *d, const void *p, size_t bytes, struct tt_mem *ret_mem,
		     bool *ret_device, uint64_t *ret_id)
{
	int rc = bytes && d ? tt_cuda_classify(d->cu, p, ret_mem) : 0;

	*ret_device = !rc && ret_mem->kind >= TT_MEM_DEVICE;
	*ret_id = *ret_device && ret_mem->kind != TT_MEM_MANAGED ? ret_mem->id : 0;
	return rc;
}

static int classify(const struct tt_request *r, struct tt_gpu_call *ret)
{
	int rc;

	*ret = (struct tt_gpu_call){ .request = r };
	if (r->barrier)
		return 0;
	if (!tt_request_extents(r, &ret->in_bytes, &ret->out_bytes))
		return TT_ARG;
	rc = is_device(r->comm->gpu, r->in, ret->in_bytes, &ret->in, &ret->in_device, &ret->in_id);
	if (r->in == r->out && ret->in_bytes && ret->out_bytes) {
		ret->out = ret->in;
		ret->out_device = ret->in_device;
		ret->out_id = ret->in_id;
		return rc;
	}
	return rc ? rc
		  : is_device(r->comm->gpu, r->out, ret->out_bytes, &ret->out, &ret->out_device,
			      &ret->out_id);
}

static bool uses_kernels(const struct tt_gpu_call *call)
{
	const struct tt_gpu *d = call->request->comm->gpu;

	return d && d->kernels && call->request->collective != TT_SENDRECV &&
	       (call->in_device || call->out_device) && call->in_device == (call->in_bytes > 0) &&
	       call->out_device == (call->out_bytes > 0);
}

/* ---- kernels --------------------------------------------------------------------------------- */

static int check_broken(tuttiComm_t c)
{
	int code = tt_control_broken(c->ctl), culprit;

	return code ? tt_fail(code, "rank %d: %s", c->rank, tt_control_text(c->ctl, &culprit)) : 0;
}

int tt_gpu_failed(tuttiComm_t c, int code)
{
	tt_control_raise(c->ctl, code, c->rank, tt_error_text());
	return tt_comm_failed(c, code);
}

static void wake_watchdog(struct tt_gpu *d)
{
	pthread_mutex_lock(&d->lock);
	if (d->asleep)
		pthread_cond_signal(&d->work);
	d->asleep = false;
	pthread_mutex_unlock(&d->lock);
}

/* Draws the call's sequence number, the same on every rank: earlier staged calls have drawn theirs
 * already. The watchdog watches the call from here on: a full stream makes launches wait for peers,
 * and until end() no event shows that the call is in flight. */
static void number(tuttiComm_t c, const struct tt_dev_job *job)
{
	struct tt_call call;

	memcpy(&call, job->call, sizeof(call));
	tt_number_call(c, &call, tt_call_digest(&call));
	atomic_store(&c->gpu->enqueueing, true);
	atomic_fetch_add(&c->gpu->launched, 1);
	atomic_store(&c->gpu->newest_seq, c->calls.seq);
	wake_watchdog(c->gpu);
	atomic_fetch_add(&c->calls.operations, 1);
}

static int launch(const struct tt_gpu_call *call, tt_custream stream)
{
	const struct tt_request *r = call->request;
	struct tt_gpu *d = r->comm->gpu;
	const struct tt_gpu_program *program = NULL;
	struct tt_dev_job job;
	uint32_t blocks;
	int rc;

	tt_run_drain(r->comm);
	rc = tt_gpu_plan_takes(r) ? tt_gpu_plan_program(r, &program) : 0;
	if (rc)
		return rc;
	tt_gpu_job(call, program ? program->cached->number : TT_CALL_DEVICE, &job);
	number(r->comm, &job);
	if (program)
		return tt_gpu_run_plan(call, program, &job, stream);
	if (!d->kernels_wait)
		return tt_gpu_run_ordered(call, &job, stream);
	blocks = tt_gpu_job_barrier(call, &job);
	return tt_gpu_launch(d, tt_gpu_kernel(d, r, &job), blocks, &job, stream);
}

/* ---- order ----------------------------------------------------------------------------------- */

/* Makes the stream wait for the communicator's newest call, on whichever stream that is. An equal
 * handle does not mean the same stream, since handles are reused, and the default streams of all
 * threads share one handle. Captured calls keep the order of their graph only. */
static int begin(struct tt_gpu *d, tt_custream stream, bool *ret_capturing)
{
	int status = 0, rc = d->cu->stream_is_capturing(stream, &status);

	*ret_capturing = status != 0;
	if (!rc && !*ret_capturing && d->has_last)
		rc = d->cu->stream_wait_event(stream, d->last, 0);
	return rc ? tt_cuda_fail(rc, "rank %d: stream %p", d->comm->rank, stream) : 0;
}

/* Without the event neither the watchdog nor the close can see the call end, so this thread waits;
 * the watchdog ends all waits of a broken communicator. */
static int end(struct tt_gpu *d, tt_custream stream, bool capturing)
{
	int rc = 0;

	if (capturing) {
		atomic_store(&d->has_graphs, true);
	} else if ((rc = d->cu->event_record(d->last, stream))) {
		rc = tt_gpu_failed(d->comm,
				   tt_cuda_fail(rc, "rank %d: record an event", d->comm->rank));
		d->cu->stream_synchronize(stream);
	} else {
		d->has_last = true;
	}
	atomic_store(&d->enqueueing, false);
	if (capturing)
		wake_watchdog(d);
	return rc;
}

static int check_call(const struct tt_gpu_call *call)
{
	const struct tt_request *r = call->request;

	if (r->collective == TT_ALLTOALL && call->in_device && r->in == r->out)
		return tt_fail(
			TT_ARG,
			"rank %d: tuttiAlltoAll in place is not possible in device memory; use two buffers",
			r->comm->rank);
	return check_broken(r->comm);
}

/* A kernel that touches memory which its device cannot reach destroys the context and all its work.
 * Peers on other devices reach memory of cuMemAlloc only, by peer access. */
static int check_reach(const struct tt_gpu_call *call, const struct tt_mem *m, const void *p)
{
	tuttiComm_t c = call->request->comm;
	const struct tt_gpu *d = c->gpu;

	if (m->kind != TT_MEM_DEVICE && m->kind != TT_MEM_CUMEM)
		return 0;
	if (m->device != d->device)
		return tt_fail(
			TT_ARG,
			"rank %d: %p is memory of device %d, but the rank joined on device %d; use memory of that",
			c->rank, p, m->device, d->device);
	if (m->kind == TT_MEM_CUMEM && d->kernel_barrier && d->devices > 1)
		return tt_fail(
			TT_ARG,
			"rank %d: %p is virtual memory or a pool's, which ranks on other devices of this process "
			"cannot read; use cuMemAlloc's, or join with TUTTI_GPU=staged",
			c->rank, p);
	return 0;
}

static int enqueue_kernels(const struct tt_gpu_call *call, tt_custream stream)
{
	tuttiComm_t c = call->request->comm;
	struct tt_gpu *d = c->gpu;
	bool capturing;
	int mode, ended, rc = check_call(call);

	if (rc || (rc = check_reach(call, &call->in, call->request->in)) ||
	    (rc = check_reach(call, &call->out, call->request->out)))
		return rc;
	mode = tt_cuda_enter(d->ctx);
	rc = begin(d, stream, &capturing);
	if (!rc) {
		rc = launch(call, stream);
		/* also a call that failed may have put work on the stream, which must end */
		ended = end(d, stream, capturing);
		rc = rc ? rc : ended;
	}
	tt_cuda_leave(d->ctx, mode);
	return rc ? tt_gpu_failed(c, rc) : 0;
}

/* Staged calls run as one set, as the calls of a group must. */
static int enqueue_staged(struct tt_gpu_call *calls, size_t n, tt_custream stream)
{
	struct tt_gpu *d = NULL;
	bool capturing;
	int mode, rc = 0;

	for (size_t i = 0; i < n && !rc; i++) {
		d = d ? d : calls[i].request->comm->gpu;
		rc = check_call(&calls[i]);
	}
	if (rc)
		return rc;
	mode = tt_cuda_enter(d->ctx);
	rc = begin(d, stream, &capturing);
	for (size_t i = 0; i < n && !rc; i++)
		tt_gdr_choose(&calls[i]);
	if (!rc)
		rc = tt_gpu_run_staged(d, calls, n, stream, capturing);
	if (!rc)
		rc = end(d, stream, capturing);
	tt_cuda_leave(d->ctx, mode);
	return rc ? tt_gpu_failed(calls[0].request->comm, rc) : 0;
}

/* Kernels of two ranks wait for each other, so one stream cannot run both. Calls of different
 * communicators may share a stream. */
static int check_streams(const struct tt_gpu_call *calls, size_t n)
{
	for (size_t i = 1; i < n; i++)
		for (size_t j = i; j-- > 0;) {
			tuttiComm_t c = calls[i].request->comm, other = calls[j].request->comm;

			/* calls[j] was compared with all calls before it */
			if (c == other)
				break;
			if (tt_control_same(c->ctl, other->ctl) &&
			    (uses_kernels(&calls[i]) || uses_kernels(&calls[j])))
				return tt_fail(
					TT_USAGE,
					"a group has calls of ranks %d and %d of a communicator on one CUDA "
					"stream; each rank needs a stream of its own",
					other->rank, c->rank);
		}
	return 0;
}

static int enqueue(struct tt_gpu_call *calls, size_t n, tt_custream stream)
{
	int rc = check_streams(calls, n);

	for (size_t i = 0, from = 0; i <= n && !rc; i++) {
		bool kernels = i < n && uses_kernels(&calls[i]);

		if (i < n && !kernels)
			continue;
		if (from < i)
			rc = enqueue_staged(&calls[from], i - from, stream);
		if (!rc && kernels)
			rc = enqueue_kernels(&calls[i], stream);
		from = i + 1;
	}
	return rc;
}

/* ---- entry ----------------------------------------------------------------------------------- */

/* Moves the calls of the first call's communicator to the front, in order. Returns their number. */
static size_t collect(struct tt_gpu_call *calls, size_t n)
{
	tuttiComm_t c = calls[0].request->comm;
	size_t k = 1;

	for (size_t i = 1; i < n; i++)
		if (calls[i].request->comm == c) {
			struct tt_gpu_call call = calls[i];

			memmove(&calls[k + 1], &calls[k], (i - k) * sizeof(call));
			calls[k++] = call;
		}
	return k;
}

/* Waits for copies that the program has made without a stream: the driver returns from a large copy of
 * pageable memory to the device before the bytes are there, and only streams that synchronize with the
 * default stream wait for them. While such a stream is captured, the default stream cannot be used. */
static int await_copies(const struct tt_gpu *d)
{
	int status = 0, rc = d->cu->stream_is_capturing(TT_CU_LEGACY, &status) || status
				     ? 0
				     : d->cu->stream_synchronize(TT_CU_LEGACY);

	return rc ? tt_gpu_failed(d->comm, tt_cuda_fail(rc, "rank %d: wait for the default stream",
							d->comm->rank))
		  : 0;
}

/* Puts each communicator's calls on its own stream, then waits for all streams. */
static int run_and_wait(struct tt_gpu_call *calls, size_t n)
{
	int rc = 0;

	for (size_t i = 0, k; i < n && !rc; i += k) {
		k = collect(&calls[i], n - i);
		if (!calls[i].request->comm->gpu)
			return tt_fail(
				TT_ARG,
				"rank %d: a group with a NULL stream has calls of communicators with and without "
				"a device; use a group for each",
				calls[i].request->comm->rank);
		rc = await_copies(calls[i].request->comm->gpu);
		rc = rc ? rc : enqueue(&calls[i], k, calls[i].request->comm->gpu->own);
	}
	for (size_t i = 0; i < n; i++) {
		tuttiComm_t c = calls[i].request->comm;
		int failure = c->gpu->cu->stream_synchronize(c->gpu->own);

		if (failure && !rc)
			rc = tt_gpu_failed(c, tt_cuda_fail(failure, "rank %d: wait for the device",
							   c->rank));
		tt_gpu_take_report(c);
		if (!rc)
			rc = check_broken(c);
	}
	return rc;
}

static int choose(struct tt_gpu_call *calls, const struct tt_request *requests, size_t n,
		  tuttiStream_t stream)
{
	bool device = false;

	for (size_t i = 0; i < n; i++)
		device |= calls[i].in_device || calls[i].out_device;
	if (device && stream && tt_handle_is(stream))
		return tt_fail(
			TT_ARG,
			"rank %d: device memory goes with a CUDA stream or with NULL, not with a stream of "
			"tuttiStreamCreate",
			requests[0].comm->rank);
	if (stream && !tt_handle_is(stream))
		return enqueue(calls, n, stream);
	if (!device)
		return stream ? tt_stream_submit(stream, requests, n)
			      : tt_run_in_order(requests, n);
	return run_and_wait(calls, n);
}

/* The context of a rank with a GPU side: the driver answers only threads with a current context,
 * and the caller's thread may have none. */
static tt_cuctx context_of(const struct tt_request *requests, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (requests[i].comm->gpu)
			return requests[i].comm->gpu->ctx;
	return NULL;
}

int tt_gpu_run(const struct tt_request *requests, size_t n, tuttiStream_t stream)
{
	struct tt_gpu_call one,
		*calls = n == 1 ? &one : tt_pool_take(requests[0].comm, n * sizeof(*calls));
	int rc = calls ? 0 : tt_fail(TT_SYSTEM, "no memory for a group of %zu calls", n);
	tt_cuctx ctx = context_of(requests, n);
	int mode = tt_cuda_enter(ctx);

	for (size_t i = 0; i < n && !rc; i++)
		if ((rc = classify(&requests[i], &calls[i])) == TT_CUDA)
			tt_gpu_failed(requests[i].comm,
				      tt_fail(rc, "rank %d: %s", requests[i].comm->rank,
					      tt_error_text()));
	if (!rc)
		rc = choose(calls, requests, n, stream);
	tt_cuda_leave(ctx, mode);
	if (calls != &one)
		tt_pool_give(calls);
	return rc;
}

/* Makes a stream wait for all that is on another. */
static int order_behind(const struct tt_gpu *d, tt_custream stream, tt_custream other)
{
	tt_cuevent here;
	int rc = d->cu->event_create(&here, TT_CU_EVENT_UNTIMED);

	if (rc)
		return rc;
	rc = d->cu->event_record(here, other);
	if (!rc)
		rc = d->cu->stream_wait_event(stream, here, 0);
	d->cu->event_destroy(here); /* the driver frees it when it is reached */
	return rc;
}

/* Makes the first stream wait for the others, or the others for it. 0 | TT_CUDA */
static int join_streams(const struct tt_gpu *d, const struct tt_request *requests, size_t n,
			bool others_wait)
{
	tuttiStream_t first = requests[0].stream;
	int rc = 0;

	for (size_t i = 1; i < n && !rc; i++)
		if (requests[i].stream != requests[i - 1].stream && requests[i].stream != first)
			rc = others_wait ? order_behind(d, requests[i].stream, first)
					 : order_behind(d, first, requests[i].stream);
	return rc ? tt_gpu_failed(d->comm,
				  tt_cuda_fail(rc, "rank %d: streams of a group", d->comm->rank))
		  : 0;
}

int tt_gpu_run_joined(const struct tt_request *requests, size_t n)
{
	const struct tt_gpu *d = NULL;
	int mode, rc;

	for (size_t i = 0; i < n; i++) {
		d = d ? d : requests[i].comm->gpu;
		if (!requests[i].stream || tt_handle_is(requests[i].stream))
			return tt_fail(
				TT_ARG,
				"rank %d: a group has calls of one communicator on CUDA streams and on "
				"others; use a group for each",
				requests[i].comm->rank);
	}
	mode = tt_cuda_enter(d->ctx);
	rc = join_streams(d, requests, n, false);
	rc = rc ? rc : tt_gpu_run(requests, n, requests[0].stream);
	rc = rc ? rc : join_streams(d, requests, n, true);
	tt_cuda_leave(d->ctx, mode);
	return rc;
}
