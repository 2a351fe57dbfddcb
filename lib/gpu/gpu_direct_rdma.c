/*
 * gpu_direct_rdma.c - GPUDirect RDMA: calls whose device buffers NICs read and write in place,
 * without staging
 *
 * gpu_call.c calls choose for each call that would be staged; run calls tt_gdr_ops while the call
 * runs. A call goes by GPUDirect RDMA if it only copies, one transport that takes
 * device memory (verbs) reaches all its peers, and each of its device buffers lies in a range of
 * tuttiCommRegister, within one allocation that the NIC accepts (transports/verbs/verbs_rcache.c).
 * The steps are those of any call, so other ranks need not know. Nearly all messages are sends from
 * the buffer and RTRs for it, so no processor touches the bytes. The device copies the rest: a
 * rank's own block, small messages, messages whose RTR came too late, scratch.
 *
 * RDMA writes by a NIC and reads by the device take different paths. Where the device does not
 * order the two, received bytes are `dirty`: they are flushed before the device or a NIC reads
 * them, and at the end of the call.
 */
#include <stdlib.h>
#include <string.h>

#include "gpu/dmabuf.h"
#include "mem/registered.h"
#include "gpu/gpu_call.h"

#define PINNED_BYTES (1u << 20) /* bytes copied at once */

/* ---- which calls ----------------------------------------------------------------------------- */

static bool device_supports(struct tt_gpu *d)
{
	const char *why = NULL;

	if (d->gdr == TT_GDR_UNKNOWN) {
		why = tt_gpu_connections() > 1
			      ? tt_dmabuf_missing(d->cu, d->device, &d->flushes)
			      : "CUDA_DEVICE_MAX_CONNECTIONS=1 leaves no connection for copies beside a call";
		d->gdr = why ? TT_GDR_NO : TT_GDR_YES;
	}
	if (why)
		tt_log(TT_LOG_INFO,
		       "rank %d: NICs cannot access the memory of device %d, which is staged through the host: %s",
		       d->comm->rank, d->device, why);
	return d->gdr == TT_GDR_YES;
}

/* The call does not reduce, and its messages are large, also where a root's block is cut into a
 * message for each rank. */
static bool call_qualifies(const struct tt_request *r)
{
	return !r->barrier && !tt_needs[r->collective].reduces &&
	       r->count * tt_type_bytes(r->type) / (size_t)r->comm->nranks >= TT_LARGE_BYTES;
}

/* The path by NICs, if there are two paths: a collective's path is chosen when the call runs. */
static const struct tt_path *path_of(const struct tt_request *r)
{
	tuttiComm_t c = r->comm;

	return &c->paths.path[r->collective == TT_SENDRECV ? c->paths.p2p_path
							   : c->paths.npaths - 1];
}

/* The endpoint that carries all messages of the call, if it takes device memory; else NULL */
static struct tt_endpoint *endpoint_of(const struct tt_request *r)
{
	struct tt_endpoint *ep = NULL, *via;

	for (int peer = 0; peer < r->comm->nranks; peer++) {
		if (peer == r->comm->rank || (r->collective == TT_SENDRECV && peer != r->root))
			continue;
		via = tt_path_via(path_of(r), peer);
		if (!via || !via->t->zcopy_ops || !via->t->zcopy_ops->takes_device ||
		    (ep && via != ep))
			return NULL;
		ep = via;
	}
	return ep;
}

/* Is a buffer of the call registered, if it is device memory? */
static bool is_registered(bool device, const void *p, size_t bytes)
{
	return !device || tt_registered_find(p, bytes, NULL, NULL);
}

/* Does the NIC accept a buffer of the call, if it is device memory? */
static bool nic_takes(struct tt_endpoint *ep, bool device, const void *p, size_t bytes, uint64_t id)
{
	return !device || (id && ep->t->zcopy_ops->takes_device(ep, p, bytes, id));
}

void tt_gdr_choose(struct tt_gpu_call *call)
{
	const struct tt_request *r = call->request;
	struct tt_gpu *d = r->comm->gpu;
	struct tt_endpoint *ep;

	if (!d || (!call->in_device && !call->out_device) || !call_qualifies(r) ||
	    !(ep = endpoint_of(r)) || !is_registered(call->in_device, r->in, call->in_bytes) ||
	    !is_registered(call->out_device, r->out, call->out_bytes) || !device_supports(d))
		return;
	call->gdr = nic_takes(ep, call->in_device, r->in, call->in_bytes, call->in_id) &&
		    nic_takes(ep, call->out_device, r->out, call->out_bytes, call->out_id);
	atomic_fetch_add(call->gdr ? &d->gdr_calls : &d->refused, 1);
}

/* ---- while the call runs --------------------------------------------------------------------- */

static struct tt_gdr *gdr_of(const struct tt_op *op)
{
	return (struct tt_gdr *)op->staging;
}

static bool on_device(const struct tt_gdr *s, const void *p)
{
	uint64_t at = (uintptr_t)p;

	return (at >= s->in && at < s->in_end) || (at >= s->out && at < s->out_end);
}

/* Makes all RDMA writes so far visible to all later readers of device memory. */
static int flush(struct tt_op *op)
{
	struct tt_gdr *s = gdr_of(op);
	int mode, rc;

	if (!s->dirty)
		return 0;
	s->dirty = false;
	mode = tt_cuda_enter(s->d->ctx);
	rc = s->d->cu->flush_writes(TT_CU_FLUSH_CONTEXT, TT_CU_ORDERED_FOR_OWNER);
	tt_cuda_leave(s->d->ctx, mode);
	return rc ? tt_cuda_fail(rc, "rank %d: flush RDMA writes to the memory of device %d",
				 op->comm->rank, s->d->device)
		  : 0;
}

static int before_send(struct tt_op *op, const void *p)
{
	return on_device(gdr_of(op), p) ? flush(op) : 0;
}

int tt_gdr_prepare(struct tt_gpu *d)
{
	int mode = tt_cuda_enter(d->ctx),
	    rc = d->copies ? 0 : tt_gpu_priority_stream(d->cu, &d->copies);

	if (!rc && !d->pinned)
		rc = d->cu->host_alloc(&d->pinned, PINNED_BYTES, TT_CU_HOST_PORTABLE);
	tt_cuda_leave(d->ctx, mode);
	return rc ? tt_cuda_fail(rc, "rank %d: a stream and %u bytes of pinned memory for copies",
				 d->comm->rank, PINNED_BYTES)
		  : 0;
}

/* A copy of pageable memory would lock the context until the stream has come so far. */
int tt_gdr_copy(struct tt_gpu *d, void *host, tt_cuptr device, size_t bytes, bool to_device)
{
	int rc = 0;

	for (size_t at = 0; at < bytes && !rc; at += PINNED_BYTES) {
		size_t some = bytes - at < PINNED_BYTES ? bytes - at : PINNED_BYTES;

		if (to_device)
			memcpy(d->pinned, (char *)host + at, some);
		rc = to_device ? d->cu->htod_async(device + at, d->pinned, some, d->copies)
			       : d->cu->dtoh_async(d->pinned, device + at, some, d->copies);
		rc = rc ? rc : d->cu->stream_synchronize(d->copies);
		if (!rc && !to_device)
			memcpy((char *)host + at, d->pinned, some);
	}
	return rc;
}

static int copy_within(struct tt_gpu *d, void *to, const void *from, size_t bytes)
{
	int rc = d->cu->dtod_async((uintptr_t)to, (uintptr_t)from, bytes, d->copies);

	return rc ? rc : d->cu->stream_synchronize(d->copies);
}

/* Copies and waits for the copy. */
static int copy(struct tt_op *op, void *to, const void *from, size_t bytes)
{
	struct tt_gdr *s = gdr_of(op);
	bool reads = on_device(s, from), writes = on_device(s, to);
	int mode, rc = reads ? flush(op) : 0;

	if (rc)
		return rc;
	if (!reads && !writes) {
		memcpy(to, from, bytes);
		return 0;
	}
	atomic_fetch_add(&s->d->bounced, reads != writes);
	mode = tt_cuda_enter(s->d->ctx);
	rc = reads && writes ? copy_within(s->d, to, from, bytes)
	     : reads         ? tt_gdr_copy(s->d, to, (uintptr_t)from, bytes, false)
		     : tt_gdr_copy(s->d, (void *)(uintptr_t)from, (uintptr_t)to, bytes, true);
	tt_cuda_leave(s->d->ctx, mode);
	return rc ? tt_cuda_fail(rc, "rank %d: copy %zu bytes of a message from or to device %d",
				 op->comm->rank, bytes, s->d->device)
		  : 0;
}

static int move(struct tt_op *op, void *dst, void *room, const void *src, size_t bytes)
{
	struct tt_gdr *s = gdr_of(op);
	int rc = 0;

	/* src was received in place, or is to be sent */
	if (on_device(s, src) && (dst == src || !dst))
		s->dirty |= s->d->flushes;
	if (room)
		rc = copy(op, room, src, bytes);
	if (!rc && dst && dst != src)
		rc = copy(op, dst, src, bytes);
	return rc;
}

/* ---- begin and end --------------------------------------------------------------------------- */

/* Copies all inputs to host memory, or all outputs back: for a call on a path without GPUDirect
 * RDMA. */
static int stage_whole(struct tt_op *op, bool back)
{
	struct tt_gdr *s = gdr_of(op);
	size_t in = s->in_end - s->in, out = s->out_end - s->out;
	int mode = tt_cuda_enter(s->d->ctx), rc;

	if (back)
		rc = tt_gdr_copy(s->d, (char *)s->host + in, s->out, out, true);
	else
		rc = tt_gdr_copy(s->d, s->host, s->in, in, false);
	tt_cuda_leave(s->d->ctx, mode);
	return rc ? tt_cuda_fail(rc, "rank %d: copy the buffers of a call from or to device %d",
				 op->comm->rank, s->d->device)
		  : 0;
}

static int begin(struct tt_op *op, bool whole)
{
	struct tt_gdr *s = gdr_of(op);
	size_t in = s->in_end - s->in, out = s->out_end - s->out;

	(void)whole; /* NICs read the input in place */
	if (op->bound.path == path_of(op->call.request))
		return 0;
	s->host = malloc(in + out);
	if (!s->host)
		return tt_fail(TT_SYSTEM, "rank %d: no memory for a staging buffer of %zu bytes",
			       op->comm->rank, in + out);
	atomic_fetch_add(&s->d->staged_bytes, in + out);
	if (in)
		op->bound.base[TT_IN] = s->host;
	if (out)
		op->bound.base[TT_OUT] = (char *)s->host + in;
	return stage_whole(op, false);
}

static void end(struct tt_op *op)
{
	struct tt_gdr *s = gdr_of(op);

	s->failed = flush(op) || (s->host && stage_whole(op, true));
}

const struct tt_staging_ops tt_gdr_ops = {
	.name = "GPUDirect RDMA",
	.begin = begin,
	.move = move,
	.before_send = before_send,
	.end = end,
};
