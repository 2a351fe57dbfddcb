/*
 * program_expect.c - the inputs of a call, and what must be in its buffers when it is complete
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/programs/program.h"
#include "tests/support/reference.h"

#define PART ((size_t)1 << 20) /* distance of the numbers of the parts of an uneven collective */

/* 0..7: sums of 16 ranks, doubled, are whole numbers of all types in use but int8, which wraps */
int program_value(const struct program_call *c, int rank, size_t i)
{
	uint64_t x = c->seed + (uint64_t)rank * 0x9E3779B97F4A7C15ull + i * 0xD1B54A32D192ED03ull;

	x = (x ^ (x >> 32)) * 0xBF58476D1CE4E5B9ull;
	return (int)(x >> 61);
}

void program_put(tuttiDataType_t type, void *buf, size_t i, int value)
{
	char *p = (char *)buf + i * ref_bytes[type];
	long long wide = value;
	double d = value;
	float f = (float)value;

	if (type == tuttiFloat32)
		memcpy(p, &f, sizeof(f));
	else if (type == tuttiFloat64)
		memcpy(p, &d, sizeof(d));
	else if (type < tuttiFloat16)
		memcpy(p, &wide, ref_bytes[type]); /* little-endian */
	else
		ref_set(type, p, value);
}

/* ((x0 op x1) op x2) ..., for x = (a, b): (a, b) op (c, d) = (ac, bc + d), as in program_call.c */
static int composed(const struct program_call *c, int n, size_t i)
{
	size_t pair = i & ~(size_t)1;
	uint32_t a = (uint32_t)program_value(c, 0, pair),
		 b = (uint32_t)program_value(c, 0, pair + 1);

	for (int r = 1; r < n; r++) {
		uint32_t factor = (uint32_t)program_value(c, r, pair);

		a *= factor;
		b = b * factor + (uint32_t)program_value(c, r, pair + 1);
	}
	return (int)(i % 2 ? b : a);
}

/* Element i of the reduced inputs of n ranks */
static int reduced(const struct program_call *c, int n, size_t i)
{
	int x = program_value(c, 0, i);

	if (c->user)
		return composed(c, n, i);
	for (int r = 1; r < n; r++)
		x = (int)ref_combine(tuttiInt32, (int)c->op, (uint64_t)x,
				     (uint64_t)program_value(c, r, i));
	return c->scaled ? 2 * x : x;
}

/* The number of input element k of this rank, for program_value */
static size_t number_of(const struct program_op *op, size_t k)
{
	const size_t *counts = op->call.kind == P_SCATTERV ? op->counts : op->sent,
		     *at = op->call.kind == P_SCATTERV ? op->at : op->sent_at;

	if (op->call.kind != P_SCATTERV && op->call.kind != P_ALLTOALLV)
		return k;
	for (int q = 0; q < op->n; q++)
		if (k >= at[q] && k - at[q] < counts[q])
			return PART * (size_t)q + k - at[q];
	return 0; /* in a gap */
}

void program_fill(const struct program_op *op, char *in)
{
	for (size_t k = 0; k < op->in_bytes / ref_bytes[op->call.type]; k++)
		program_put(op->call.type, in, k,
			    program_value(&op->call, op->me, number_of(op, k)));
}

/* Element k of a receive buffer with a part of each rank. false: it lies in a gap */
static bool gathered(const struct program_op *op, size_t k, int *ret_value)
{
	for (int q = 0; q < op->n; q++)
		if (k >= op->at[q] && k - op->at[q] < op->counts[q]) {
			size_t i = k - op->at[q];

			if (op->call.kind == P_ALLTOALLV)
				i += PART * (size_t)op->me;
			*ret_value = program_value(&op->call, q, i);
			return true;
		}
	return false;
}

/* Element k of the result. false: no call may write it */
static bool expected(const struct program_op *op, size_t k, int *ret_value)
{
	const struct program_call *c = &op->call;
	size_t mine = (size_t)op->me * c->count;

	switch ((int)c->kind) {
	case P_ALLREDUCE:
	case P_REDUCE:
		*ret_value = reduced(c, op->n, k);
		return true;
	case P_REDUCE_SCATTER:
		*ret_value = reduced(c, op->n, mine + k);
		return true;
	case P_REDUCE_SCATTERV:
		*ret_value = reduced(c, op->n, op->at[op->me] + k);
		return true;
	case P_BROADCAST:
		*ret_value = program_value(c, c->root, k);
		return true;
	case P_SCATTER:
		*ret_value = program_value(c, c->root, mine + k);
		return true;
	case P_SCATTERV:
		*ret_value = program_value(c, c->root, PART * (size_t)op->me + k);
		return true;
	case P_ALLGATHER:
	case P_GATHER:
		*ret_value = program_value(c, (int)(k / c->count), k % c->count);
		return true;
	case P_ALLTOALL:
		*ret_value = program_value(c, (int)(k / c->count), mine + k % c->count);
		return true;
	case P_SENDRECV:
		*ret_value = program_value(c, program_previous(op), k);
		return true;
	default:
		return gathered(op, k, ret_value);
	}
}

static bool unwritten(const char *p, size_t bytes)
{
	for (size_t i = 0; i < bytes; i++)
		if (p[i] != PROGRAM_UNWRITTEN)
			return false;
	return true;
}

static bool check_result(const struct program_rank *r, const struct program_op *op)
{
	size_t bytes = ref_bytes[op->call.type];
	char want[8], text[80];
	int value;

	for (size_t k = 0; k < op->out_bytes / bytes; k++) {
		const char *got = op->out + k * bytes;

		if (!expected(op, k, &value)) {
			if (!op->call.in_place && !unwritten(got, bytes))
				return program_fails(r, op, "wrote between the parts of recvbuff");
			continue;
		}
		program_put(op->call.type, want, 0, value);
		if (!memcmp(want, got, bytes))
			continue;
		snprintf(text, sizeof(text), "element %zu of recvbuff is not %d", k, value);
		return program_fails(r, op, text);
	}
	return true;
}

bool program_check(const struct program_rank *r, const struct program_op *op)
{
	char *input;
	bool same;

	if (!check_result(r, op))
		return false;
	if (op->call.in_place)
		return true;
	if (!unwritten(op->out - PROGRAM_GUARD, PROGRAM_GUARD) ||
	    !unwritten(op->out + op->out_bytes, PROGRAM_GUARD))
		return program_fails(r, op, "wrote outside recvbuff");
	input = malloc(op->in_bytes + 1);
	program_fill(op, input);
	same = !memcmp(input, op->in, op->in_bytes);
	free(input);
	return same || program_fails(r, op, "changed sendbuff");
}
