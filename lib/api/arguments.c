/*
 * arguments.c - check the arguments of a call before anything moves
 *
 * Called by collectives.c for every call. Checks only facts known to this rank; control compares
 * the calls of different ranks.
 */
#include "api/api.h"
#include "gpu/gpu.h"

static int check_op(struct tt_request *r, const char *call)
{
	/* larger than nuser_ops if op is not a user op */
	unsigned user = (unsigned)r->op - tuttiNumOps;
	tuttiComm_t c = r->comm;
	const struct tt_user_op *u;

	if ((unsigned)r->op < tuttiNumOps) {
		if (!tt_reduce_kernel(r->type, r->op))
			return tt_fail(TT_ARG, "rank %d: %s: %s is defined on integers, not on %s",
				       c->rank, call, tt_op_name(r->op), tt_datatype_name(r->type));
		return 0;
	}
	if (user >= (unsigned)c->memory.nuser_ops || !c->memory.user_ops[user].used)
		return tt_fail(TT_ARG, "rank %d: %s: %d is not a reduction operation", c->rank,
			       call, (int)r->op);
	u = &c->memory.user_ops[user];
	if (u->function)
		return tt_fail(TT_ARG,
			       "rank %d: %s: a function of the user (op %d) does not reduce here",
			       c->rank, call, (int)r->op);
	if (u->type != r->type)
		return tt_fail(TT_ARG,
			       "rank %d: %s: the pre-multiplied sum was created for %s, not for %s",
			       c->rank, call, tt_datatype_name(u->type), tt_datatype_name(r->type));
	r->op = tuttiSum;
	r->scaled = true;
	r->scalar = u->value;
	return u->device ? tt_gpu_read(c, &r->scalar, u->device, tt_type_bytes(r->type), r->stream)
			 : 0;
}

/* Equal start addresses are in place where the call allows it. Any other overlap would read data
 * that was just written. */
static int check_overlap(const struct tt_request *r, const char *call, size_t in_bytes,
			 size_t out_bytes)
{
	const char *in = r->in, *out = r->out;
	size_t part = r->count * tt_type_bytes(r->type), rank = (size_t)r->comm->rank;
	const char *in_place = out;

	if (!in || !out || tt_apart(in, in_bytes, out, out_bytes))
		return 0;
	if (r->collective == TT_ALLGATHER || r->collective == TT_GATHER)
		in_place = out + rank * part;
	if (r->collective == TT_REDUCE_SCATTER || r->collective == TT_SCATTER) {
		if (out == in + rank * part)
			return 0;
		in_place = NULL;
	}
	if (in == in_place)
		return 0;
	return tt_fail(
		TT_ARG,
		"rank %d: %s: sendbuff %p [%zu bytes] and recvbuff %p [%zu bytes] overlap partly; use "
		"separate buffers or the in-place form",
		r->comm->rank, call, r->in, in_bytes, r->out, out_bytes);
}

static int check_buffers(const struct tt_request *r, const char *call)
{
	tuttiComm_t c = r->comm;
	size_t in, out;

	if (!tt_request_extents(r, &in, &out))
		return tt_fail(TT_ARG, "rank %d: %s: %zu elements are more than memory can hold",
			       c->rank, call, r->count);
	if (in && !r->in)
		return tt_fail(TT_ARG, "rank %d: %s: sendbuff is NULL, with %zu elements to send",
			       c->rank, call, r->count);
	if (out && !r->out)
		return tt_fail(TT_ARG,
			       "rank %d: %s: recvbuff is NULL, with %zu elements to receive",
			       c->rank, call, r->count);
	return in && out && r->in != r->out ? check_overlap(r, call, in, out) : 0;
}

/* A send to this rank itself needs its receive in the same group: no later call could post it. */
static int check_self(struct tt_request *r, const char *call)
{
	r->to_self = r->root == r->comm->rank;
	if (!r->to_self || tt_group_open())
		return 0;
	return tt_fail(
		TT_USAGE,
		"rank %d: %s: the peer is this rank itself; put its send and its receive between one tuttiGroupStart and tuttiGroupEnd",
		r->comm->rank, call);
}

int tt_request_check(struct tt_request *r, const char *call)
{
	tuttiComm_t c = r->comm;
	int rc;

	if (tt_unlikely(atomic_load_explicit(&c->order.finalized, memory_order_relaxed)))
		return tt_fail(TT_USAGE, "rank %d: %s: the communicator was finalized", c->rank,
			       call);
	if (tt_unlikely((unsigned)r->type >= tuttiNumTypes))
		return tt_fail(TT_ARG, "rank %d: %s: %d is not a datatype", c->rank, call,
			       (int)r->type);
	if (tt_needs[r->collective].reduces && (rc = check_op(r, call)))
		return rc;
	if (tt_needs[r->collective].rooted && tt_unlikely(r->root < 0 || r->root >= c->nranks))
		return tt_fail(TT_ARG, "rank %d: %s: %s %d is not in 0..%d", c->rank, call,
			       r->collective == TT_SENDRECV ? "peer" : "root", r->root,
			       c->nranks - 1);
	rc = check_buffers(r, call);
	return !rc && r->collective == TT_SENDRECV ? check_self(r, call) : rc;
}
