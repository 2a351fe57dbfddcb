/*
 * program_call.c - the buffers and tables of a call, and the call itself
 */
#include <string.h>

#include "tests/programs/program.h"
#include "tests/support/reference.h"

int program_next(const struct program_op *op)
{
	return (op->me + 1 + (int)(random_of(op->call.seed, 50) % (unsigned)op->n)) % op->n;
}

int program_previous(const struct program_op *op)
{
	return (op->me + 2 * op->n - 1 - (int)(random_of(op->call.seed, 50) % (unsigned)op->n)) %
	       op->n;
}

static size_t draw_gap(const struct program_call *c, uint64_t index)
{
	return c->gaps && c->kind != P_REDUCE_SCATTERV ? random_of(c->seed, index) % 5 : 0;
}

/* Sets the tables; returns the elements of the buffer that they describe, and of the one sent. */
static size_t set_tables(struct program_op *op, size_t *ret_sent)
{
	const struct program_call *c = &op->call;
	bool from_one = c->kind == P_REDUCE_SCATTERV || c->kind == P_SCATTERV;
	size_t all = 0;

	*ret_sent = 0;
	for (int q = 0; q < op->n; q++) {
		op->counts[q] = c->kind == P_ALLTOALLV ? program_part(c, q, op->me)
				: from_one             ? program_part(c, 0, q)
						       : program_part(c, q, 0);
		op->sent[q] = program_part(c, op->me, q);
		op->at[q] = all + draw_gap(c, 100 + (uint64_t)q);
		op->sent_at[q] = *ret_sent + draw_gap(c, 200 + (uint64_t)q);
		all = op->at[q] + op->counts[q];
		*ret_sent = op->sent_at[q] + op->sent[q];
	}
	return all;
}

static void set_sizes(struct program_op *op)
{
	const struct program_call *c = &op->call;
	size_t sent, all = set_tables(op, &sent), one = c->count, each = one * (size_t)op->n,
		     mine = op->counts[op->me], bytes = ref_bytes[c->type];
	bool root = op->me == c->root;
	const struct {
		size_t in, out;
	} sizes[P_KINDS] = {
		[P_ALLREDUCE] = { one, one },
		[P_REDUCE] = { one, root ? one : 0 },
		[P_BROADCAST] = { root ? one : 0, one },
		[P_ALLGATHER] = { one, each },
		[P_REDUCE_SCATTER] = { each, one },
		[P_ALLTOALL] = { each, each },
		[P_GATHER] = { one, root ? each : 0 },
		[P_SCATTER] = { root ? each : 0, one },
		[P_ALLGATHERV] = { mine, all },
		[P_REDUCE_SCATTERV] = { all, mine },
		[P_ALLTOALLV] = { sent, all },
		[P_GATHERV] = { mine, root ? all : 0 },
		[P_SCATTERV] = { root ? all : 0, mine },
		[P_SENDRECV] = { one, one },
	};

	op->in_bytes = bytes * sizes[c->kind].in;
	op->out_bytes = bytes * sizes[c->kind].out;
}

/* The part of the larger buffer that the smaller one is, in place */
static size_t part_in_place(const struct program_op *op)
{
	const struct program_call *c = &op->call;

	switch ((int)c->kind) {
	case P_ALLGATHER:
	case P_GATHER:
	case P_REDUCE_SCATTER:
	case P_SCATTER:
		return (size_t)op->me * c->count * ref_bytes[c->type];
	case P_ALLGATHERV:
	case P_GATHERV:
	case P_REDUCE_SCATTERV:
	case P_SCATTERV:
		return op->at[op->me] * ref_bytes[c->type];
	default:
		return 0;
	}
}

static bool lay_out(struct program_rank *r, struct program_op *op)
{
	size_t larger = op->in_bytes > op->out_bytes ? op->in_bytes : op->out_bytes,
	       shift = op->call.shift, between = PROGRAM_GUARD + (op->call.user ? 0 : shift / 8);

	if (op->call.in_place) {
		if (!program_memory_take(r, larger, shift, &op->in))
			return false;
		op->out = op->in;
		if (op->out_bytes > op->in_bytes)
			op->in += op->in_bytes ? part_in_place(op) : 0;
		else if (op->in_bytes > op->out_bytes)
			op->out += op->out_bytes ? part_in_place(op) : 0;
		return true;
	}
	between += -op->in_bytes % PROGRAM_GUARD;
	if (!program_memory_take(r, op->in_bytes + between + op->out_bytes, shift, &op->in))
		return false;
	op->out = op->in + op->in_bytes + between;
	memset(op->out - PROGRAM_GUARD, PROGRAM_UNWRITTEN, op->out_bytes + 2 * PROGRAM_GUARD);
	return true;
}

struct program_op *program_prepare(struct program_rank *r, const struct program_call *call)
{
	const struct program_comm *c = &r->comms[call->comm];
	struct program_op op = { .call = *call, .n = c->n, .me = c->me };

	if (r->nops == PROGRAM_PENDING && !program_drain(r))
		return NULL;
	set_sizes(&op);
	if (!lay_out(r, &op))
		return NULL;
	program_fill(&op, op.in);
	r->ops[r->nops] = op;
	return &r->ops[r->nops++];
}

/* inout = in op inout, for pairs: (a, b) op (c, d) = (ac, bc + d). Associative; does not commute. */
static void compose(const void *in, void *inout, size_t count, void *arg)
{
	const uint32_t *x = in;
	uint32_t *y = inout;

	(void)arg;
	for (size_t k = 0; k < 2 * count; k += 2) {
		y[k + 1] += x[k + 1] * y[k];
		y[k] *= x[k];
	}
}

static tuttiResult_t send_and_receive(const struct program_op *op, tuttiComm_t comm,
				      tuttiStream_t s)
{
	const struct program_call *c = &op->call;
	tuttiResult_t rc, end;

	tuttiGroupStart();
	rc = tuttiSend(op->in, c->count, c->type, program_next(op), comm, s);
	rc = rc ? rc : tuttiRecv(op->out, c->count, c->type, program_previous(op), comm, s);
	end = tuttiGroupEnd();
	return rc ? rc : end;
}

static tuttiResult_t call(const struct program_op *op, tuttiRedOp_t redop, tuttiComm_t comm,
			  tuttiStream_t s)
{
	const struct program_call *c = &op->call;
	const size_t *at = c->gaps ? op->at : NULL, *sent_at = c->gaps ? op->sent_at : NULL;
	size_t mine = op->counts[op->me];

	switch ((int)c->kind) {
	case P_ALLREDUCE:
		return tuttiAllReduce(op->in, op->out, c->count, c->type, redop, comm, s);
	case P_REDUCE:
		return tuttiReduce(op->in, op->out, c->count, c->type, redop, c->root, comm, s);
	case P_BROADCAST:
		return tuttiBroadcast(op->in, op->out, c->count, c->type, c->root, comm, s);
	case P_ALLGATHER:
		return tuttiAllGather(op->in, op->out, c->count, c->type, comm, s);
	case P_REDUCE_SCATTER:
		return tuttiReduceScatter(op->in, op->out, c->count, c->type, redop, comm, s);
	case P_ALLTOALL:
		return tuttiAlltoAll(op->in, op->out, c->count, c->type, comm, s);
	case P_GATHER:
		return tuttiGather(op->in, op->out, c->count, c->type, c->root, comm, s);
	case P_SCATTER:
		return tuttiScatter(op->in, op->out, c->count, c->type, c->root, comm, s);
	case P_ALLGATHERV:
		return tuttiAllGatherv(op->in, mine, op->out, op->counts, at, c->type, comm, s);
	case P_REDUCE_SCATTERV:
		return tuttiReduceScatterv(op->in, op->out, op->counts, c->type, redop, comm, s);
	case P_ALLTOALLV:
		return tuttiAlltoAllv(op->in, op->sent, sent_at, op->out, op->counts, at, c->type,
				      comm, s);
	case P_GATHERV:
		return tuttiGatherv(op->in, mine, op->out, op->counts, at, c->type, c->root, comm,
				    s);
	case P_SCATTERV:
		return tuttiScatterv(op->in, op->counts, at, op->out, mine, c->type, c->root, comm,
				     s);
	case P_SENDRECV:
		return send_and_receive(op, comm, s);
	default:
		return tuttiBarrier(comm, s);
	}
}

bool program_make(struct program_rank *r, struct program_op *op)
{
	tuttiComm_t comm = r->comms[op->call.comm].comm;
	tuttiRedOp_t redop = op->call.op;
	char two[8];
	bool ok = true;

	program_put(op->call.type, two, 0, 2);
	if (op->call.scaled)
		ok = program_ok(r, op,
				tuttiRedOpCreatePreMulSum(&redop, two, op->call.type,
							  tuttiScalarHostImmediate, comm));
	if (op->call.user)
		ok = program_ok(r, op, tuttiRedOpCreate(&redop, compose, NULL, 2, comm));
	ok = ok && program_ok(r, op, call(op, redop, comm, r->streams[op->call.stream]));
	if (ok && redop != op->call.op)
		ok = program_ok(r, op, tuttiRedOpDestroy(redop, comm));
	return ok;
}
