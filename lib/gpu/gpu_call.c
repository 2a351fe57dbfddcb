/*
 * gpu_call.c - collectives on device memory, and any calls on a CUDA stream:
 * who runs them, in which order
 *
 * Called by api instead of run's other doors where a communicator has a device. Facts that are
 * agreed decide which way a request goes: do the communicator's ranks have kernels, is the call a
 * collective of device memory, was its algorithm named?
 *
 *   gpu_plan.c       the algorithm's plan, by kernels
 *   gpu_job.c        kernels that meet
 *   gpu_ordered.c    kernels between which streams wait
 *   gpu_staging.c      everything else: the host's way, with copies around it
 *
 * All are put on the stream and run there in order; calls of one
 * communicator on different streams are put in call order by an event.
 * A NULL stream is one of the communicator's own, and is waited for.
 */
#include <string.h>

#include "gpu/gpu_call.h"
#include "run/number.h"

/* ---- which way ------------------------------------------------------------------------------- */

static int is_device(const struct tt_gpu *d, const void *p, size_t bytes, struct tt_mem *ret_mem,
		     bool *ret_device, uint64_t *ret_id)
{
	int rc = bytes && d ? tt_cuda_classify(d->cu, p, ret_mem) : 0;

	*ret_device = !rc && ret_mem->kind >= TT_MEM_DEVICE;
	*ret_id = *ret_device && ret_mem->kind != TT_MEM_MANAGED ? ret_mem->id : 0;
	return rc;
}

static int look_at(const struct tt_request *r, struct tt_gpu_call *ret)
{
	int rc;

	*ret = (struct tt_gpu_call){ .request = r };
	if (r->barrier)
		return 0;
	if (!tt_request_extents(r, &ret->in_bytes, &ret->out_bytes))
		return TT_ARG;
	rc = is_device(r->comm->gpu, r->in, ret->in_bytes, &ret->in, &ret->in_device, &ret->in_id);
	return rc ? rc : is_device(r->comm->gpu, r->out, ret->out_bytes, &ret->out,
				   &ret->out_device, &ret->out_id);
}

static bool by_kernels(const struct tt_gpu_call *call)
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

/* The other ranks do not know why this one does not come. */
static int failed(tuttiComm_t c, int code)
{
	tt_control_raise(c->ctl, code, c->rank, tt_error_text());
	return tt_comm_failed(c, code);
}

static void wake_watch(struct tt_gpu *d)
{
	pthread_mutex_lock(&d->lock);
	pthread_cond_signal(&d->work);
	pthread_mutex_unlock(&d->lock);
}

/* The same number on every rank: calls by the host's way that were made before have theirs already.
 * From here on it is watched: a stream that is full makes launches wait for peers, and until end()
 * no event tells that it is under way. */
static void number(tuttiComm_t c, const struct tt_dev_job *job)
{
	struct tt_call call;

	memcpy(&call, job->call, sizeof(call));
	tt_number_call(c, &call, tt_call_digest(&call));
	atomic_store(&c->gpu->enters, true);
	atomic_store(&c->gpu->given, c->seq);
	wake_watch(c->gpu);
	atomic_fetch_add(&c->operations, 1);
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
	rc = tt_gpu_plan_takes(r) ? tt_gpu_plan_keep(r, &program) : 0;
	if (rc)
		return rc;
	tt_gpu_job(call, program ? program->cached->number : TT_CALL_DEVICE, &job);
	number(r->comm, &job);
	if (program)
		return tt_gpu_plan(call, program, &job, stream);
	if (!d->meets)
		return tt_gpu_ordered(call, &job, stream);
	blocks = tt_gpu_job_meet(call, &job);
	return tt_gpu_launch(d, tt_gpu_kernel(d, r, &job), blocks, &job, stream);
}

/* ---- order ----------------------------------------------------------------------------------- */

/* Behind the communicator's newest operation, wherever that is; also where it seems to be the same
 * stream, since handles are used again, and each thread's default stream has the same one. What is
 * captured keeps the graph's order only. */
static int begin(struct tt_gpu *d, tt_custream stream, bool *ret_capturing)
{
	int status = 0, rc = d->cu->stream_is_capturing(stream, &status);

	*ret_capturing = status != 0;
	if (!rc && !*ret_capturing && d->any)
		rc = d->cu->stream_wait_event(stream, d->last, 0);
	return rc ? tt_cuda_fail(rc, "rank %d: stream %p", d->comm->rank, stream) : 0;
}

static int end(struct tt_gpu *d, tt_custream stream, bool capturing)
{
	int rc = 0;

	if (capturing) {
		atomic_store(&d->captured, true);
	} else {
		rc = d->cu->event_record(d->last, stream);
		d->any = true;
	}
	atomic_store(&d->enters, false);
	if (capturing)
		wake_watch(d);
	return rc ? tt_cuda_fail(rc, "rank %d: record an event", d->comm->rank) : 0;
}

static int check_call(const struct tt_gpu_call *call)
{
	const struct tt_request *r = call->request;

	if (r->collective == TT_ALLTOALL && call->in_device && r->in == r->out)
		return tt_fail(TT_ARG,
			"rank %d: tuttiAlltoAll in place is not possible in device memory; use two buffers",
			r->comm->rank);
	return check_broken(r->comm);
}

/* A kernel that touches what its device has no way to ends the context, and all that is in it.
 * Peers on other devices reach memory of cuMemAlloc, by peer access. */
static int check_reach(const struct tt_gpu_call *call, const struct tt_mem *m, const void *p)
{
	tuttiComm_t c = call->request->comm;
	const struct tt_gpu *d = c->gpu;

	if (m->kind != TT_MEM_DEVICE && m->kind != TT_MEM_CUMEM)
		return 0;
	if (m->device != d->device)
		return tt_fail(TT_ARG,
			"rank %d: %p is memory of device %d, but the rank joined on device %d; use memory of that",
			c->rank, p, m->device, d->device);
	if (m->kind == TT_MEM_CUMEM && d->meets && d->apart)
		return tt_fail(TT_ARG,
			"rank %d: %p is virtual memory or a pool's, which ranks on other devices of this process "
			"cannot read; use cuMemAlloc's, or join with TUTTI_GPU=staged", c->rank, p);
	return 0;
}

static int put_by_kernels(const struct tt_gpu_call *call, tt_custream stream)
{
	tuttiComm_t c = call->request->comm;
	struct tt_gpu *d = c->gpu;
	bool capturing;
	int mode, ended, rc = check_call(call);

	if (rc || (rc = check_reach(call, &call->in, call->request->in)) ||
	    (rc = check_reach(call, &call->out, call->request->out)))
		return rc;
	mode = tt_gpu_enter(d->ctx);
	rc = begin(d, stream, &capturing);
	if (!rc) {
		rc = launch(call, stream);
		/* also what lies there of a call that failed must come to an end */
		ended = end(d, stream, capturing);
		rc = rc ? rc : ended;
	}
	tt_gpu_leave(d->ctx, mode);
	return rc ? failed(c, rc) : 0;
}

/* Calls by the host's way run as one set, as those of a group must. */
static int put_staged(struct tt_gpu_call *calls, size_t n, tt_custream stream)
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
	mode = tt_gpu_enter(d->ctx);
	rc = begin(d, stream, &capturing);
	for (size_t i = 0; i < n && !rc; i++)
		tt_gdr_choose(&calls[i]);
	if (!rc)
		rc = tt_gpu_stage(d, calls, n, stream, capturing);
	if (!rc)
		rc = end(d, stream, capturing);
	tt_gpu_leave(d->ctx, mode);
	return rc ? failed(calls[0].request->comm, rc) : 0;
}

/* Kernels of two ranks wait for each other, and cannot lie one behind the other. Calls of different
 * communicators can. */
static int check_streams(const struct tt_gpu_call *calls, size_t n)
{
	for (size_t i = 1; i < n; i++)
		for (size_t j = i; j-- > 0;) {
			tuttiComm_t c = calls[i].request->comm, other = calls[j].request->comm;

			/* those before it were compared with that one */
			if (c == other)
				break;
			if (tt_control_same(c->ctl, other->ctl) &&
			    (by_kernels(&calls[i]) || by_kernels(&calls[j])))
				return tt_fail(TT_USAGE,
					"a group has calls of ranks %d and %d of a communicator on one CUDA "
					"stream; each rank needs a stream of its own", other->rank,
					c->rank);
		}
	return 0;
}

static int put(struct tt_gpu_call *calls, size_t n, tt_custream stream)
{
	int rc = check_streams(calls, n);

	for (size_t i = 0, from = 0; i <= n && !rc; i++) {
		bool kernels = i < n && by_kernels(&calls[i]);

		if (i < n && !kernels)
			continue;
		if (from < i)
			rc = put_staged(&calls[from], i - from, stream);
		if (!rc && kernels)
			rc = put_by_kernels(&calls[i], stream);
		from = i + 1;
	}
	return rc;
}

/* ---- the door -------------------------------------------------------------------------------- */

/* The calls of one communicator to the front, in order; how many. */
static size_t gather(struct tt_gpu_call *calls, size_t n)
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

/* Each communicator's on its own stream, then all are waited for. */
static int run_and_wait(struct tt_gpu_call *calls, size_t n)
{
	int rc = 0;

	for (size_t i = 0, k; i < n && !rc; i += k) {
		k = gather(&calls[i], n - i);
		if (!calls[i].request->comm->gpu)
			return tt_fail(TT_ARG,
				"rank %d: a group with a NULL stream has calls of communicators with and without "
				"a device; use a group for each", calls[i].request->comm->rank);
		rc = put(&calls[i], k, calls[i].request->comm->gpu->own);
	}
	for (size_t i = 0; i < n; i++) {
		tuttiComm_t c = calls[i].request->comm;
		int failure = c->gpu->cu->stream_synchronize(c->gpu->own);

		if (failure && !rc)
			rc = failed(c, tt_cuda_fail(failure, "rank %d: wait for the device",
						    c->rank));
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
		return tt_fail(TT_ARG,
			"rank %d: device memory goes with a CUDA stream or with NULL, not with a stream of "
			"tuttiStreamCreate", requests[0].comm->rank);
	if (stream && !tt_handle_is(stream))
		return put(calls, n, stream);
	if (!device)
		return stream ? tt_stream_submit(stream, requests, n) : tt_run_in_order(requests, n);
	return run_and_wait(calls, n);
}

/* That of a rank with a device, since the driver answers only who has one current, and the caller's
 * thread may have none. */
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
	int mode = tt_gpu_enter(ctx);

	for (size_t i = 0; i < n && !rc; i++)
		if ((rc = look_at(&requests[i], &calls[i])) == TT_CUDA)
			failed(requests[i].comm, tt_fail(rc, "rank %d: %s", requests[i].comm->rank,
							 tt_error_text()));
	if (!rc)
		rc = choose(calls, requests, n, stream);
	tt_gpu_leave(ctx, mode);
	if (calls != &one)
		tt_pool_give(calls);
	return rc;
}
