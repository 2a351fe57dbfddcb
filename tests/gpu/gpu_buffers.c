/*
 * gpu_buffers.c - see gpu_buffers.h
 */
#include "tests/gpu/gpu_buffers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/ranks.h"

bool gpu_buffers_exact;

int gpu_buffers_open(struct gpu_buffers *b, int rank, int n)
{
	*b = (struct gpu_buffers){ .cu = tt_cuda_here(), .rank = rank, .n = n };
	for (int r = 0; r < n; r++)
		b->inputs[r] = malloc(GPU_BUFFER_BYTES);
	b->want = malloc(GPU_BUFFER_BYTES);
	b->got = malloc(GPU_BUFFER_BYTES);
	return b->cu->mem_alloc(&b->in, GPU_BUFFER_BYTES + 64) ||
	       b->cu->mem_alloc(&b->out, GPU_BUFFER_BYTES + 64) ||
	       b->cu->stream_create(&b->stream, TT_CU_STREAM_NON_BLOCKING);
}

void gpu_buffers_close(struct gpu_buffers *b)
{
	b->cu->stream_destroy(b->stream);
	b->cu->mem_free(b->in);
	b->cu->mem_free(b->out);
	for (int r = 0; r < b->n; r++)
		free(b->inputs[r]);
	free(b->want);
	free(b->got);
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

static size_t in_bytes(const struct gpu_buffers *b, const struct gpu_buffers_call *c)
{
	bool has_input = b->rank == c->root || (c->what != TT_BROADCAST && c->what != TT_SCATTER);

	return has_input ? c->count * tt_type_bytes(c->type) * in_parts(c, b->n) : 0;
}

static size_t out_bytes(const struct gpu_buffers *b, const struct gpu_buffers_call *c)
{
	bool has_output = b->rank == c->root || (c->what != TT_REDUCE && c->what != TT_GATHER);

	return has_output ? c->count * tt_type_bytes(c->type) * out_parts(c, b->n) : 0;
}

/* Any bits, including NaN, infinities and denormals; gpu_buffers_exact: only 0 and 1 */
static void fill(unsigned char *p, size_t bytes, tuttiDataType_t type, unsigned long long seed)
{
	for (size_t i = 0; gpu_buffers_exact && i < bytes / tt_type_bytes(type); i++)
		tt_element_set(p, i, type, (double)(random_of(seed, i) & 1));
	if (gpu_buffers_exact)
		return;
	for (size_t i = 0; i < bytes; i += 8) {
		unsigned long long v = random_of(seed, i);

		memcpy(p + i, &v, bytes - i < 8 ? bytes - i : 8);
	}
}

static void sum(const struct gpu_buffers *b, const struct gpu_buffers_call *c, size_t from,
		unsigned char *to)
{
	size_t element = tt_type_bytes(c->type), n = (size_t)b->n;
	unsigned char *scaled[TT_MAX_SOURCES];
	const void *src[TT_MAX_SOURCES];

	for (size_t r = 0; r < n; r++) {
		unsigned char scalar[8];

		scaled[r] = malloc(c->count * element + 8);
		src[r] = b->inputs[r] + from;
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

/* Computes the rank's expected output. Returns its bytes, 0: no output. */
static size_t compute_expected(const struct gpu_buffers *b, const struct gpu_buffers_call *c)
{
	size_t part = c->count * tt_type_bytes(c->type), me = (size_t)b->rank;

	switch (c->what) {
	case TT_ALLREDUCE:
		sum(b, c, 0, b->want);
		return part;
	case TT_REDUCE:
		sum(b, c, 0, b->want);
		return b->rank == c->root ? part : 0;
	case TT_REDUCE_SCATTER:
		sum(b, c, me * part, b->want);
		return part;
	case TT_BROADCAST:
		memcpy(b->want, b->inputs[c->root], part);
		return part;
	case TT_SCATTER:
		memcpy(b->want, b->inputs[c->root] + me * part, part);
		return part;
	default:
		for (int r = 0; r < b->n; r++)
			memcpy(b->want + (size_t)r * part,
			       b->inputs[r] + (c->what == TT_ALLTOALL ? me * part : 0), part);
		return c->what == TT_GATHER && b->rank != c->root ? 0 : part * (size_t)b->n;
	}
}

static tuttiResult_t issue(const struct gpu_buffers_call *c, tuttiComm_t comm, const void *in,
			   void *out, tuttiRedOp_t op, tuttiStream_t stream)
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

static tuttiRedOp_t op_of(struct gpu_buffers *b, const struct gpu_buffers_call *c, tuttiComm_t comm)
{
	unsigned char scalar[8];
	tuttiRedOp_t op = c->op;

	tt_element_set(scalar, 0, c->type, c->scalar + b->rank);
	if (c->scalar != 0 &&
	    tuttiRedOpCreatePreMulSum(&op, scalar, c->type, tuttiScalarHostImmediate, comm))
		b->wrong++;
	return op;
}

/* Every rank computes the inputs of all ranks and copies its own to device memory. */
static void load(struct gpu_buffers *b, const struct gpu_buffers_call *c, tt_cuptr in, tt_cuptr out)
{
	size_t part = c->count * tt_type_bytes(c->type);

	for (int r = 0; r < b->n; r++)
		fill(b->inputs[r], part * in_parts(c, b->n), c->type,
		     (unsigned long long)r * 131 + c->count * 7 + c->op);
	b->cu->memset8_async(out, 0xee, part * out_parts(c, b->n), b->stream);
	b->cu->stream_synchronize(b->stream);
	harness_to_device(in, b->inputs[b->rank], part * in_parts(c, b->n));
}

static void compare(struct gpu_buffers *b, const struct gpu_buffers_call *c, tuttiResult_t rc,
		    size_t bytes)
{
	if (rc || memcmp(b->got, b->want, bytes)) {
		size_t i = 0;

		while (i < bytes && b->got[i] == b->want[i])
			i++;
		fprintf(stderr,
			"rank %d of %d: %s of %zu %s %s%s: %d %s; byte %zu of %zu is %#x instead of %#x\n",
			b->rank, b->n, tt_collective_name(c->what), c->count, tt_type_name(c->type),
			tt_op_name(c->op), c->in_place ? " in place" : "", rc,
			rc ? tuttiGetLastError(NULL) : "", i, bytes, b->got[i], b->want[i]);
		b->wrong++;
	}
}

void gpu_buffers_check(struct gpu_buffers *b, const struct gpu_buffers_call *c, tuttiComm_t comm)
{
	size_t part = c->count * tt_type_bytes(c->type), bytes;
	tt_cuptr in = b->in + c->shift, out = b->out + c->shift;
	tuttiRedOp_t op = op_of(b, c, comm);
	tuttiResult_t rc;

	if (c->in_place && (c->what == TT_ALLGATHER || c->what == TT_GATHER))
		in = out + (uint64_t)b->rank * part;
	else if (c->in_place)
		out = c->what == TT_REDUCE_SCATTER || c->what == TT_SCATTER
			      ? in + (uint64_t)b->rank * part
			      : in;
	load(b, c, in, out);
	rc = issue(c, comm, (void *)(uintptr_t)in, (void *)(uintptr_t)out, op,
		   c->blocking ? NULL : b->stream);
	bytes = compute_expected(b, c);
	harness_to_host(b->got, out, bytes, b->stream);
	compare(b, c, rc, bytes);
	if (c->scalar != 0)
		tuttiRedOpDestroy(op, comm);
}

void gpu_buffers_check_by_host(struct gpu_buffers *b, const struct gpu_buffers_call *c,
			       tuttiComm_t comm)
{
	size_t input = in_bytes(b, c), output = out_bytes(b, c);
	tt_cuptr out = c->in_place ? b->in : b->out;
	tuttiRedOp_t op = op_of(b, c, comm);
	tuttiResult_t rc;

	load(b, c, b->in, b->out);
	rc = issue(c, comm, b->inputs[b->rank], b->want, op, NULL);
	if (!rc)
		rc = issue(c, comm, (void *)(uintptr_t)(input ? b->in : 0),
			   (void *)(uintptr_t)(output ? out : 0), op, b->stream);
	harness_to_host(b->got, out, output, b->stream);
	compare(b, c, rc, output);
	if (c->scalar != 0)
		tuttiRedOpDestroy(op, comm);
}
