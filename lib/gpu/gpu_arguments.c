/*
 * gpu_arguments.c - arguments that may lie in CUDA memory: refused by calls that take host memory
 * only; scalars that are read
 *
 * Called by api and, through tt_accelerator, by comm, for communicators with or without a GPU side.
 * Calls the driver's table.
 */
#include <string.h>

#include "comm/comm.h"
#include "gpu/gpu.h"

#define SCALAR_BYTES 16u /* of the largest type, and more */

/* The communicator's context is made current: the calling thread may have none. */
static int classify(const struct tt_gpu *d, const void *p, struct tt_mem *ret)
{
	int mode, rc;

	*ret = (struct tt_mem){ .kind = TT_MEM_HOST };
	if (!d)
		return 0;
	mode = tt_cuda_enter(d->ctx);
	rc = tt_cuda_classify(d->cu, p, ret);
	tt_cuda_leave(d->ctx, mode);
	return rc;
}

void *tt_gpu_context_of(tuttiComm_t c, const void *p)
{
	struct tt_mem m;

	if (!classify(c->gpu, p, &m))
		return m.kind >= TT_MEM_DEVICE ? c->gpu->ctx : NULL;
	tt_error_clear();
	return NULL;
}

int tt_gpu_refuse(tuttiComm_t c, const char *call, const void *p)
{
	struct tt_mem m;
	int rc = classify(c->gpu, p, &m);

	if (!rc && m.kind >= TT_MEM_DEVICE)
		rc = tt_fail(TT_ARG,
			     "rank %d: %s: %p is %s memory; this call takes host memory only",
			     c->rank, call, p, tt_mem_name(m.kind));
	return rc;
}

/* Waits for the work that is on the user's stream so far. */
static int await_stream(struct tt_gpu *d, tt_custream stream, const void *from)
{
	int status = 0, rc = d->cu->stream_is_capturing(stream, &status);

	if (!rc && status)
		return tt_fail(
			TT_USAGE,
			"rank %d: the scalar at %p lies in CUDA memory, where it is read before the "
			"call, and the stream is being captured; use a scalar of the host",
			d->comm->rank, from);
	rc = rc ? rc : d->cu->stream_synchronize(stream);
	return rc ? tt_cuda_fail(rc, "rank %d: stream %p", d->comm->rank, stream) : 0;
}

/* The default stream must not copy: it waits for the program's streams, which may wait for this
 * very thread, as kernels of other ranks of this process may. The memory is pinned, since a copy of
 * pageable memory locks the context until the stream has come so far. */
static int copy_scalar(struct tt_gpu *d, void *to, tt_cuptr from, size_t bytes)
{
	int rc = d->scalar ? 0 : d->cu->host_alloc(&d->scalar, SCALAR_BYTES, TT_CU_HOST_PORTABLE);

	rc = rc ? rc : d->cu->dtoh_async(d->scalar, from, bytes, d->own);
	rc = rc ? rc : d->cu->stream_synchronize(d->own);
	if (!rc)
		memcpy(to, d->scalar, bytes);
	return rc;
}

/* Called while a call by GPUDirect RDMA runs, for which `own` may be waiting. */
int tt_gpu_fetch(tuttiComm_t c, void *to, const void *from, size_t bytes)
{
	tt_cuctx ctx = tt_gpu_context_of(c, from);
	int mode, rc;

	if (!ctx) {
		memcpy(to, from, bytes);
		return 0;
	}
	mode = tt_cuda_enter(ctx);
	rc = tt_gdr_copy(c->gpu, to, (uintptr_t)from, bytes, false);
	tt_cuda_leave(ctx, mode);
	return rc ? tt_cuda_fail(rc, "rank %d: read %zu bytes of device memory", c->rank, bytes)
		  : 0;
}

int tt_gpu_read(tuttiComm_t c, void *to, const void *from, size_t bytes, tuttiStream_t stream)
{
	struct tt_gpu *d = c->gpu;
	struct tt_mem m;
	int mode, rc = classify(d, from, &m);

	if (rc)
		return rc;
	if (m.kind == TT_MEM_HOST) {
		memcpy(to, from, bytes);
		return 0;
	}
	mode = tt_cuda_enter(d->ctx);
	rc = stream && !tt_handle_is(stream) ? await_stream(d, stream, from) : 0;
	if (!rc && m.kind == TT_MEM_PINNED)
		memcpy(to, from, bytes);
	else if (!rc && (rc = copy_scalar(d, to, (uintptr_t)from, bytes)))
		rc = tt_cuda_fail(rc, "rank %d: read a scalar from device memory", c->rank);
	tt_cuda_leave(d->ctx, mode);
	return rc;
}
