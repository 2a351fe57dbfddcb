/*
 * gpu_buffers.c - see gpu_buffers.h
 */
#include "tests/gpu/gpu_buffers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/ranks.h"

bool hand_tame;

int hand_open(struct gpu_buffers *h, int rank, int n)
{
	*h = (struct gpu_buffers){ .cu = tt_cuda_here(), .rank = rank, .n = n };
	for (int r = 0; r < n; r++)
		h->inputs[r] = malloc(HAND_MOST);
	h->want = malloc(HAND_MOST);
	h->got = malloc(HAND_MOST);
	return h->cu->mem_alloc(&h->in, HAND_MOST + 64) ||
	       h->cu->mem_alloc(&h->out, HAND_MOST + 64) ||
	       h->cu->stream_create(&h->stream, TT_CU_STREAM_NON_BLOCKING);
}

void hand_close(struct gpu_buffers *h)
{
	h->cu->stream_destroy(h->stream);
	h->cu->mem_free(h->in);
	h->cu->mem_free(h->out);
	for (int r = 0; r < h->n; r++)
		free(h->inputs[r]);
	free(h->want);
	free(h->got);
}

static size_t in_parts(const struct gpu_buffers_call *c, int n)
{
	return c->what == TT_REDUCE_SCATTER || c->what == TT_ALLTOALL || c->what == TT_SCATTER
		       ? (size_t)n
		       : 1;
}

static size_t out_parts(const struct gpu_buffers_call *c, int n)
{
	return c->what == TT_ALLGATHER || c->what == TT_ALLTOALL || c->what == TT_GATHER ? (size_t)n
											 : 1;
}

static size_t in_bytes(const struct gpu_buffers *h, const struct gpu_buffers_call *c)
{
	bool gives = h->rank == c->root || (c->what != TT_BROADCAST && c->what != TT_SCATTER);

	return gives ? c->count * tt_type_bytes(c->type) * in_parts(c, h->n) : 0;
}

static size_t out_bytes(const struct gpu_buffers *h, const struct gpu_buffers_call *c)
{
	bool gives = h->rank == c->root || (c->what != TT_REDUCE && c->what != TT_GATHER);

	return gives ? c->count * tt_type_bytes(c->type) * out_parts(c, h->n) : 0;
}

/* Any bits: also NaN, infinities, denormals */
static void fill(unsigned char *p, size_t bytes, tuttiDataType_t type, unsigned long long seed)
{
	for (size_t i = 0; hand_tame && i < bytes / tt_type_bytes(type); i++)
		tt_element_set(p, i, type, (double)(random_of(seed, i) & 1));
	if (hand_tame)
		return;
	for (size_t i = 0; i < bytes; i += 8) {
		unsigned long long v = random_of(seed, i);

		memcpy(p + i, &v, bytes - i < 8 ? bytes - i : 8);
	}
}

static void sum(const struct gpu_buffers *h, const struct gpu_buffers_call *c, size_t from, unsigned char *to)
{
	size_t element = tt_type_bytes(c->type), n = (size_t)h->n;
	unsigned char *scaled[TT_MAX_SOURCES];
	const void *src[TT_MAX_SOURCES];

	for (size_t r = 0; r < n; r++) {
		unsigned char scalar[8];

		scaled[r] = malloc(c->count * element + 8);
		src[r] = h->inputs[r] + from;
		tt_element_set(scalar, 0, c->type, c->scalar + (double)r);
		if (c->scalar != 0)
			tt_scale(scaled[r], src[r], scalar, c->count, c->type);
		else if (c->op == tuttiAvg && tt_average_scales(c->type))
			tt_average_scale(scaled[r], src[r], (uint32_t)n, c->count, c->type);
		else
			continue;
		src[r] = scaled[r];
	}
	if (n > 1)
		tt_reduce_kernel(c->type, c->op)(to, NULL, src, (int)n, c->count);
	else
		memcpy(to, src[0], c->count * element);
	if (c->op == tuttiAvg)
		tt_average_finish(to, (uint32_t)n, c->count, c->type);
	for (size_t r = 0; r < n; r++)
		free(scaled[r]);
}

/* What rank's output must be; 0 bytes: it has none. */
static size_t expect(const struct gpu_buffers *h, const struct gpu_buffers_call *c)
{
	size_t part = c->count * tt_type_bytes(c->type), me = (size_t)h->rank;

	switch (c->what) {
	case TT_ALLREDUCE:
		sum(h, c, 0, h->want);
		return part;
	case TT_REDUCE:
		sum(h, c, 0, h->want);
		return h->rank == c->root ? part : 0;
	case TT_REDUCE_SCATTER:
		sum(h, c, me * part, h->want);
		return part;
	case TT_BROADCAST:
		memcpy(h->want, h->inputs[c->root], part);
		return part;
	case TT_SCATTER:
		memcpy(h->want, h->inputs[c->root] + me * part, part);
		return part;
	default:
		for (int r = 0; r < h->n; r++)
			memcpy(h->want + (size_t)r * part,
			       h->inputs[r] + (c->what == TT_ALLTOALL ? me * part : 0), part);
		return c->what == TT_GATHER && h->rank != c->root ? 0 : part * (size_t)h->n;
	}
}

static tuttiResult_t issue(const struct gpu_buffers_call *c, tuttiComm_t comm, const void *in, void *out,
			   tuttiRedOp_t op, tuttiStream_t stream)
{
	switch (c->what) {
	case TT_ALLREDUCE:
		return tuttiAllReduce(in, out, c->count, c->type, op, comm, stream);
	case TT_REDUCE:
		return tuttiReduce(in, out, c->count, c->type, op, c->root, comm, stream);
	case TT_REDUCE_SCATTER:
		return tuttiReduceScatter(in, out, c->count, c->type, op, comm, stream);
	case TT_BROADCAST:
		return tuttiBroadcast(in, out, c->count, c->type, c->root, comm, stream);
	case TT_ALLGATHER:
		return tuttiAllGather(in, out, c->count, c->type, comm, stream);
	case TT_ALLTOALL:
		return tuttiAlltoAll(in, out, c->count, c->type, comm, stream);
	case TT_GATHER:
		return tuttiGather(in, out, c->count, c->type, c->root, comm, stream);
	default:
		return tuttiScatter(in, out, c->count, c->type, c->root, comm, stream);
	}
}

static tuttiRedOp_t op_of(struct gpu_buffers *h, const struct gpu_buffers_call *c, tuttiComm_t comm)
{
	unsigned char scalar[8];
	tuttiRedOp_t op = c->op;

	tt_element_set(scalar, 0, c->type, c->scalar + h->rank);
	if (c->scalar != 0 &&
	    tuttiRedOpCreatePreMulSum(&op, scalar, c->type, tuttiScalarHostImmediate, comm))
		h->wrong++;
	return op;
}

/* Inputs of all ranks are known to each; this rank's go to device memory. */
static void load(struct gpu_buffers *h, const struct gpu_buffers_call *c, tt_cuptr in, tt_cuptr out)
{
	size_t part = c->count * tt_type_bytes(c->type);

	for (int r = 0; r < h->n; r++)
		fill(h->inputs[r], part * in_parts(c, h->n), c->type,
		     (unsigned long long)r * 131 + c->count * 7 + c->op);
	h->cu->memset8_async(out, 0xee, part * out_parts(c, h->n), h->stream);
	h->cu->htod_async(in, h->inputs[h->rank], part * in_parts(c, h->n), h->stream);
	h->cu->stream_synchronize(h->stream);
}

static void compare(struct gpu_buffers *h, const struct gpu_buffers_call *c, tuttiResult_t rc, size_t bytes)
{
	if (rc || memcmp(h->got, h->want, bytes)) {
		size_t i = 0;

		while (i < bytes && h->got[i] == h->want[i])
			i++;
		fprintf(stderr,
			"rank %d of %d: %s of %zu %s %s%s: %d %s; byte %zu of %zu is %#x, not %#x\n",
			h->rank, h->n, tt_collective_name(c->what), c->count, tt_type_name(c->type),
			tt_op_name(c->op), c->in_place ? " in place" : "", rc,
			rc ? tuttiGetLastError(NULL) : "", i, bytes, h->got[i], h->want[i]);
		h->wrong++;
	}
}

void hand_check(struct gpu_buffers *h, const struct gpu_buffers_call *c, tuttiComm_t comm)
{
	size_t part = c->count * tt_type_bytes(c->type), bytes;
	tt_cuptr in = h->in + c->shift, out = h->out + c->shift;
	tuttiRedOp_t op = op_of(h, c, comm);
	tuttiResult_t rc;

	if (c->in_place && (c->what == TT_ALLGATHER || c->what == TT_GATHER))
		in = out + (uint64_t)h->rank * part;
	else if (c->in_place)
		out = c->what == TT_REDUCE_SCATTER || c->what == TT_SCATTER
			      ? in + (uint64_t)h->rank * part
			      : in;
	load(h, c, in, out);
	rc = issue(c, comm, (void *)(uintptr_t)in, (void *)(uintptr_t)out, op,
		   c->blocking ? NULL : h->stream);
	bytes = expect(h, c);
	if (!c->blocking)
		h->cu->dtoh_async(h->got, out, bytes, h->stream),
			h->cu->stream_synchronize(h->stream);
	else
		h->cu->dtoh(h->got, out, bytes);
	compare(h, c, rc, bytes);
	if (c->scalar != 0)
		tuttiRedOpDestroy(op, comm);
}

void hand_beside_host(struct gpu_buffers *h, const struct gpu_buffers_call *c, tuttiComm_t comm)
{
	size_t given = in_bytes(h, c), gotten = out_bytes(h, c);
	tt_cuptr out = c->in_place ? h->in : h->out;
	tuttiRedOp_t op = op_of(h, c, comm);
	tuttiResult_t rc;

	load(h, c, h->in, h->out);
	rc = issue(c, comm, h->inputs[h->rank], h->want, op, NULL);
	if (!rc)
		rc = issue(c, comm, (void *)(uintptr_t)(given ? h->in : 0),
			   (void *)(uintptr_t)(gotten ? out : 0), op, h->stream);
	h->cu->dtoh_async(h->got, out, gotten, h->stream);
	h->cu->stream_synchronize(h->stream);
	compare(h, c, rc, gotten);
	if (c->scalar != 0)
		tuttiRedOpDestroy(op, comm);
}
