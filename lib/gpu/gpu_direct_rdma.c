/*
 * gpu_direct_rdma.c - calls of the host's way whose device memory needs no stage: cards read and write
 * it (GPUDirect)
 *
 * choose is called by gpu_call.c for each call that would be staged, the rest by step.c and operation.c
 * while it runs. A call goes gdr if it only copies, all its peers are behind one transport
 * that takes device memory (verbs), and each of its device buffers lies in a range of
 * tuttiCommRegister, of one allocation that a card takes (transports/verbs/verbs_rcache.c). Steps are
 * those of any call, so other ranks need not know. Nearly all of their messages are posts from the
 * buffer and rtrs for it, which no processor touches. What is left is copied by the device: a
 * rank's own block, messages whose rtr came too late or that are small, scratch.
 *
 * A card's writes and a device's reads take different ways. Where the device says that it does not
 * put them in order (dirty), it is told to, before it or a card reads what came, and at the end.
 */
#include <stdlib.h>

#include "gpu/dmabuf.h"
#include "mem/registered.h"
#include "gpu/gpu_call.h"

/* ---- which calls ----------------------------------------------------------------------------- */

static bool is_able(struct tt_gpu *d)
{
	const char *why = NULL;

	if (d->gdr == TT_GDR_UNKNOWN) {
		why = tt_dmabuf_missing(d->cu, d->device, &d->flushes);
		d->gdr = why ? TT_GDR_NO : TT_GDR_YES;
	}
	if (why)
		tt_log(TT_LOG_INFO,
		       "rank %d: cards cannot use the memory of device %d, it goes through the host: %s",
		       d->comm->rank, d->device, why);
	return d->gdr == TT_GDR_YES;
}

/* Nothing is added up, and messages are large, also where a root's block is cut into one for each
 * rank. */
static bool is_kind(const struct tt_request *r)
{
	return !r->barrier && !tt_needs[r->collective].reduces &&
	       r->count * tt_type_bytes(r->type) / (size_t)r->comm->nranks >= TT_LARGE_BYTES;
}

/* That by cards, if there are two: which of them a collective takes is chosen when it runs. */
static const struct tt_path *road_of(const struct tt_request *r)
{
	tuttiComm_t c = r->comm;

	return &c->road[r->collective == TT_SENDRECV ? c->p2p_road : c->npaths - 1];
}

/* What carries all messages of the call, if that takes device memory; else NULL. */
static struct tt_endpoint *way_of(const struct tt_request *r)
{
	struct tt_endpoint *ep = NULL, *via;

	for (int peer = 0; peer < r->comm->nranks; peer++) {
		if (peer == r->comm->rank || (r->collective == TT_SENDRECV && peer != r->root))
			continue;
		via = road_of(r)->via[peer];
		if (!via || !via->t->device || (ep && via != ep))
			return NULL;
		ep = via;
	}
	return ep;
}

/* A buffer of the call; not of the device: there is nothing to ask. */
static bool lasts(bool device, const void *p, size_t bytes)
{
	return !device || tt_registered_find(p, bytes, NULL, NULL);
}

/* Do the cards take it, likewise? */
static bool takes(struct tt_endpoint *ep, bool device, const void *p, size_t bytes, uint64_t id)
{
	return !device || (id && ep->t->device(ep, p, bytes, id));
}

void tt_gdr_choose(struct tt_gpu_call *call)
{
	const struct tt_request *r = call->request;
	struct tt_gpu *d = r->comm->gpu;
	struct tt_endpoint *ep;

	if (!d || (!call->in_device && !call->out_device) || !is_kind(r) || !(ep = way_of(r)) ||
	    !lasts(call->in_device, r->in, call->in_bytes) ||
	    !lasts(call->out_device, r->out, call->out_bytes) || !is_able(d))
		return;
	call->gdr = takes(ep, call->in_device, r->in, call->in_bytes, call->in_id) &&
			 takes(ep, call->out_device, r->out, call->out_bytes, call->out_id);
	atomic_fetch_add(call->gdr ? &d->gdr_calls : &d->refused, 1);
}

/* ---- while it runs --------------------------------------------------------------------------- */

static struct tt_gdr *gdr_of(const struct tt_op *op)
{
	return (struct tt_gdr *)op->staging;
}

static bool on_device(const struct tt_gdr *s, const void *p)
{
	uint64_t at = (uintptr_t)p;

	return (at >= s->in && at < s->in_end) || (at >= s->out && at < s->out_end);
}

/* What cards wrote so far is there for all who read the device's memory from now on. */
static int settle(struct tt_op *op)
{
	struct tt_gdr *s = gdr_of(op);
	int mode, rc;

	if (!s->dirty)
		return 0;
	s->dirty = false;
	mode = tt_gpu_enter(s->d->ctx);
	rc = s->d->cu->flush_writes(TT_CU_FLUSH_CONTEXT, TT_CU_ORDERED_FOR_OWNER);
	tt_gpu_leave(s->d->ctx, mode);
	return rc ? tt_cuda_fail(rc, "rank %d: make visible to device %d what a card wrote",
				 op->comm->rank, s->d->device)
		  : 0;
}

static int before_send(struct tt_op *op, const void *p)
{
	return on_device(gdr_of(op), p) ? settle(op) : 0;
}

/* By the device, and waited for */
static int copy(struct tt_op *op, void *to, const void *from, size_t bytes)
{
	struct tt_gdr *s = gdr_of(op);
	const struct tt_cuda *cu = s->d->cu;
	tt_custream stream = s->d->copies_in;
	bool reads = on_device(s, from), writes = on_device(s, to);
	int mode, rc = reads ? settle(op) : 0;

	if (rc)
		return rc;
	if (!reads && !writes) {
		memcpy(to, from, bytes);
		return 0;
	}
	atomic_fetch_add(&s->d->bounced, reads != writes);
	mode = tt_gpu_enter(s->d->ctx);
	rc = reads && writes ? cu->dtod_async((uintptr_t)to, (uintptr_t)from, bytes, stream)
	     : reads	     ? cu->dtoh_async(to, (uintptr_t)from, bytes, stream)
			     : cu->htod_async((uintptr_t)to, from, bytes, stream);
	if (!rc)
		rc = cu->stream_synchronize(stream);
	tt_gpu_leave(s->d->ctx, mode);
	return rc ? tt_cuda_fail(rc, "rank %d: copy %zu bytes of a message beside device %d",
				 op->comm->rank, bytes, s->d->device)
		  : 0;
}

static int move(struct tt_op *op, void *dst, void *room, const void *src, size_t bytes)
{
	struct tt_gdr *s = gdr_of(op);
	int rc = 0;

	if (on_device(s, src) && (dst == src || !dst))     /* it landed there, or is to be sent */
		s->dirty |= s->d->flushes;
	if (room)
		rc = copy(op, room, src, bytes);
	if (!rc && dst && dst != src)
		rc = copy(op, dst, src, bytes);
	return rc;
}

/* ---- begin and end --------------------------------------------------------------------------- */

/* Waited for. The host's part of a call on another road: in, then out */
static int exchange(struct tt_op *op, bool back)
{
	struct tt_gdr *s = gdr_of(op);
	const struct tt_cuda *cu = s->d->cu;
	size_t in = s->in_end - s->in, out = s->out_end - s->out;
	int mode = tt_gpu_enter(s->d->ctx), rc = 0;

	if (back && out)
		rc = cu->htod_async(s->out, (char *)s->host + in, out, s->d->copies_in);
	else if (!back && in)
		rc = cu->dtoh_async(s->host, s->in, in, s->d->copies_in);
	if (!rc)
		rc = cu->stream_synchronize(s->d->copies_in);
	tt_gpu_leave(s->d->ctx, mode);
	return rc ? tt_cuda_fail(rc, "rank %d: copy a call's buffer beside device %d",
				 op->comm->rank, s->d->device)
		  : 0;
}

static int begin(struct tt_op *op, bool whole)
{
	struct tt_gdr *s = gdr_of(op);
	size_t in = s->in_end - s->in, out = s->out_end - s->out;

	(void)whole;                            /* no input is on its way */
	if (op->bound.path == road_of(op->call.request))
		return 0;
	s->host = malloc(in + out);
	if (!s->host)
		return tt_fail(TT_SYSTEM, "rank %d: no memory for a stage of %zu bytes",
			       op->comm->rank, in + out);
	atomic_fetch_add(&s->d->staged_bytes, in + out);
	if (in)
		op->bound.base[TT_IN] = s->host;
	if (out)
		op->bound.base[TT_OUT] = (char *)s->host + in;
	return exchange(op, false);
}

static void end(struct tt_op *op)
{
	struct tt_gdr *s = gdr_of(op);

	s->failed = settle(op) || (s->host && exchange(op, true));
}

const struct tt_staging_ops tt_gdr_ops = {
	.name = "GPUDirect RDMA",
	.begin = begin,
	.move = move,
	.before_send = before_send,
	.end = end,
};
