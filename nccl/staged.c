/*
 * staged.c - calls on device memory, carried through host memory in stream order
 *
 * Called by collectives.c and group.c. A call puts into its stream: copy the input to pinned host memory, tell the
 * communicator's courier, wait for its word, copy the output back. The courier's thread meanwhile does the collective on
 * host memory. So a call returns at once, no GPU time is burnt by waiting, and any number of ranks may share a GPU, as
 * processes or as threads with a stream each. All calls of a group put their first half into their streams before any
 * puts its second: the ranks of one thread may share a stream.
 */
#include <stdlib.h>
#include <string.h>

#include "nccl/staged.h"

static bool of_cuda(const struct tt_cuda *cu, const void *ptr)
{
	struct tt_mem m;

	return ptr && !tt_cuda_classify(cu, ptr, &m) && m.kind != TT_MEM_HOST;
}

bool nc_on_device(const struct tt_request *r)
{
	const struct tt_cuda *cu = tt_cuda_here();

	return cu && (r->stream || of_cuda(cu, r->in) || of_cuda(cu, r->out));
}

/* Host memory, pinned or not, is worked on where it lies. */
static int classify(const struct tt_cuda *cu, struct nc_op *op)
{
	struct tt_mem m;
	int rc = op->in_bytes ? tt_cuda_classify(cu, op->request.in, &m) : 0;

	op->stage_in = op->in_bytes && !rc && m.kind >= TT_MEM_DEVICE;
	if (!rc && op->out_bytes)
		rc = tt_cuda_classify(cu, op->request.out, &m);
	op->stage_out = op->out_bytes && !rc && m.kind >= TT_MEM_DEVICE;
	return rc;
}

static int check_capture(const struct tt_cuda *cu, tt_custream stream, const char *call)
{
	int capturing = 0, rc = cu->stream_is_capturing(stream, &capturing);

	if (rc)
		return tt_cuda_fail(rc, "%s: stream %p", call, stream);
	if (capturing)
		return tt_fail(TT_USAGE, "%s: its stream is being captured into a CUDA graph, which is not built", call);
	return 0;
}

ncclResult_t nc_staged_call(ncclComm_t comm, const struct tt_request *request, const char *call)
{
	const struct tt_cuda *cu = tt_cuda_here();
	struct nc_op op = { .comm = comm, .request = *request };
	int rc = tt_comm_visit(request->comm);

	if (rc)
		return nc_group_fail(rc);
	rc = tt_control_broken(request->comm->ctl);
	if (rc)
		tt_fail(rc, "%s", tuttiGetLastError(request->comm));
	else
		rc = tt_request_check(&op.request, call);
	if (!rc)
		tt_request_extents(&op.request, &op.in_bytes, &op.out_bytes);
	atomic_fetch_sub(&request->comm->inside, 1);
	if (!rc)
		rc = check_capture(cu, request->stream, call);
	if (!rc)
		rc = classify(cu, &op);
	if (!rc && nc_group_op(&op, &rc))
		return rc ? nc_group_fail(rc) : ncclSuccess;
	return rc ? nc_group_fail(rc) : nc_result(nc_staged_run(&op, 1));
}

/* ---- where the bytes are on the host ---------------------------------------------------------------------------- */

#define LINE 64u
static size_t lines(size_t bytes) { return (bytes + LINE - 1) / LINE * LINE; }

static bool overlap(const struct nc_op *op)
{
	const char *in = op->request.in, *out = op->request.out;

	return op->stage_in && op->stage_out && in < out + op->out_bytes && out < in + op->in_bytes;
}

/* A call in place has one stage, in which input and output lie to each other as in the user's memory. */
static size_t stage_bytes(const struct nc_op *op)
{
	size_t more = op->in_bytes > op->out_bytes ? op->in_bytes : op->out_bytes;

	return overlap(op) ? lines(more) : (op->stage_in ? lines(op->in_bytes) : 0) +
					   (op->stage_out ? lines(op->out_bytes) : 0);
}

static void place(const struct nc_op *op, char *at, struct tt_request *r)
{
	const char *in = op->request.in, *out = op->request.out;

	*r = op->request;
	r->stream = NULL;
	if (overlap(op)) {
		r->in = in <= out ? at : at + (in - out);
		r->out = out <= in ? at : at + (out - in);
		return;
	}
	if (op->stage_in)
		r->in = at;
	if (op->stage_out)
		r->out = at + (op->stage_in ? lines(op->in_bytes) : 0);
}

/* The ops of comm, taken out of the group's, as one batch. 0 | code */
static int gather(const struct tt_cuda *cu, struct nc_op *all, size_t n, struct nc_batch *b)
{
	ncclComm_t comm = all[0].comm;
	size_t bytes = 0, at = 0;
	int rc;

	b->ops = calloc(n, sizeof(*b->ops));
	b->requests = calloc(n, sizeof(*b->requests));
	if (!b->ops || !b->requests)
		return tt_fail(TT_SYSTEM, "no memory for %zu calls on device memory", n);
	for (size_t i = 0; i < n; i++) {
		if (all[i].comm != comm)
			continue;
		b->ops[b->n++] = all[i];
		bytes += stage_bytes(&all[i]);
		all[i].comm = NULL;
	}
	rc = nc_piece_take(cu, bytes, &b->piece);
	for (size_t i = 0; i < b->n && !rc; i++) {
		place(&b->ops[i], b->piece->data + at, &b->requests[i]);
		at += stage_bytes(&b->ops[i]);
	}
	return rc;
}

/* ---- into the streams --------------------------------------------------------------------------------------------- */

/* CUDA refused something: the batch comes to nothing, and every rank learns of it. */
static int lose(struct nc_batch *b, struct nc_op *op, int result, const char *what)
{
	op->lost = true;
	atomic_store(&b->failed, TT_CUDA);
	return tt_cuda_fail(result, "%s for a call on device memory", what);
}

static int put_first_half(const struct tt_cuda *cu, struct nc_batch *b, size_t i)
{
	struct nc_op *op = &b->ops[i];
	tt_custream s = op->request.stream;
	int rc = 0;

	if (op->stage_in && (rc = cu->dtoh_async((void *)(uintptr_t)b->requests[i].in,
						 (tt_cuptr)(uintptr_t)op->request.in, op->in_bytes, s)))
		rc = lose(b, op, rc, "copying the input");
	else if ((rc = cu->host_func(s, nc_batch_arrived, b)))
		rc = lose(b, op, rc, "telling that the input has come");
	if (rc)
		nc_batch_arrived(b);
	return rc;
}

/* Where CUDA refuses this, nobody knows when the stream is past the memory: it is not given back. */
static int put_second_half(const struct tt_cuda *cu, struct nc_batch *b, size_t i)
{
	struct nc_op *op = &b->ops[i];
	struct tt_cumemop wait = { .operation = TT_CU_WAIT_32, .address = b->piece->word_device, .value = b->value,
				   .flags = TT_CU_WAIT_GEQ };
	tt_custream s = op->request.stream;
	int rc;

	if (op->lost) {
		nc_batch_passed(b);
		return 0;
	}
	if ((rc = cu->stream_batch(s, 1, &wait, 0)))
		return lose(b, op, rc, "waiting");
	if (op->stage_out && (rc = cu->htod_async((tt_cuptr)(uintptr_t)op->request.out, b->requests[i].out,
						  op->out_bytes, s)))
		return lose(b, op, rc, "copying the output");
	if ((rc = cu->host_func(s, nc_batch_passed, b)))
		return lose(b, op, rc, "telling that the output has gone");
	return 0;
}

/* One batch for each communicator of the group, pushed to its courier. */
static int make_batch(const struct tt_cuda *cu, struct nc_op *ops, size_t n, struct nc_batch **ret_batch)
{
	struct nc_batch *b = calloc(1, sizeof(*b));
	struct nc_courier *courier;
	int rc = b ? gather(cu, ops, n, b) : tt_fail(TT_SYSTEM, "no memory for a call on device memory");

	if (!rc)
		rc = nc_courier_of(b->ops[0].comm, b->ops[0].request.comm, &courier);
	if (rc) {
		if (b && b->piece)
			nc_piece_give(b->piece);
		free(b ? b->ops : NULL);
		free(b ? b->requests : NULL);
		free(b);
		return rc;
	}
	b->value = ++b->piece->value;
	atomic_store(&b->unready, (int)b->n);
	atomic_store(&b->holders, (int)b->n + 2);      /* the courier, every stream, and who puts them there */
	nc_courier_push(courier, b);
	*ret_batch = b;
	return 0;
}

int nc_staged_run(struct nc_op *ops, size_t n)
{
	const struct tt_cuda *cu = tt_cuda_here();
	struct nc_batch **batches = calloc(n, sizeof(*batches));
	size_t nbatches = 0;
	int rc = batches ? 0 : tt_fail(TT_SYSTEM, "no memory for %zu calls on device memory", n), again;

	for (size_t i = 0; i < n && !rc; i++)
		if (ops[i].comm && !(rc = make_batch(cu, &ops[i], n - i, &batches[nbatches])))
			nbatches++;
	for (size_t k = 0; k < nbatches; k++)
		for (size_t i = 0; i < batches[k]->n; i++)
			if ((again = put_first_half(cu, batches[k], i)) && !rc)
				rc = again;
	for (size_t k = 0; k < nbatches; k++) {
		for (size_t i = 0; i < batches[k]->n; i++)
			if ((again = put_second_half(cu, batches[k], i)) && !rc)
				rc = again;
		nc_batch_release(batches[k]);
	}
	free(batches);
	return rc;
}
