/*
 * check.c - refuse impossible calls in words, before anything moves
 *
 * Called by collectives.c for every call. Only what this rank can see alone; what differs between ranks is control's.
 */
#include <string.h>

#include "api/api.h"

/* What a collective needs: a buffer of every rank (in_all, out_all), else of the root only; a root or peer; an op; and
 * whether a buffer has a part for each rank. */
static const struct need {
	bool in_all, out_all, rooted, reduces, in_parts, out_parts;
} needs[TT_COLLECTIVES] = {
	[TT_ALLREDUCE] = { .in_all = true, .out_all = true, .reduces = true },
	[TT_REDUCE] = { .in_all = true, .rooted = true, .reduces = true },
	[TT_BROADCAST] = { .out_all = true, .rooted = true },
	[TT_ALLGATHER] = { .in_all = true, .out_all = true, .out_parts = true },
	[TT_REDUCE_SCATTER] = { .in_all = true, .out_all = true, .reduces = true, .in_parts = true },
	[TT_ALLTOALL] = { .in_all = true, .out_all = true, .in_parts = true, .out_parts = true },
	[TT_GATHER] = { .in_all = true, .rooted = true, .out_parts = true },
	[TT_SCATTER] = { .out_all = true, .rooted = true, .in_parts = true },
	[TT_SENDRECV] = { .rooted = true },
};

static int check_op(struct tt_request *r, const char *call)
{
	tuttiComm_t c = r->comm;
	const struct tt_user_op *u;

	if (r->op >= 0 && r->op < tuttiNumOps) {
		if (!tt_reduce_kernel(r->type, r->op))
			return tt_fail(TT_ARG, "rank %d: %s: %s is defined on integers, not on %s", c->rank, call,
				       tt_op_name(r->op), tt_type_name(r->type));
		return 0;
	}
	if ((int)r->op - tuttiNumOps >= c->nuser_ops || r->op < 0 || !c->user_ops[r->op - tuttiNumOps].used)
		return tt_fail(TT_ARG, "rank %d: %s: %d is no reduction operation", c->rank, call, (int)r->op);
	u = &c->user_ops[r->op - tuttiNumOps];
	if (u->type != r->type)
		return tt_fail(TT_ARG, "rank %d: %s: the pre-multiplied sum was created for %s, not for %s", c->rank, call,
			       tt_type_name(u->type), tt_type_name(r->type));
	r->op = tuttiSum;
	r->scaled = true;
	r->scalar = u->value;
	if (u->device)
		memcpy(&r->scalar, u->device, tt_type_bytes(r->type));
	return 0;
}

/* Equal starts are in place where the call allows it; any other overlap would read what was just written. */
static int check_overlap(const struct tt_request *r, const char *call, size_t in_bytes, size_t out_bytes)
{
	const char *in = r->in, *out = r->out;
	size_t part = r->count * tt_type_bytes(r->type), rank = (size_t)r->comm->rank;
	const char *in_place = out;

	if (!in || !out || in >= out + out_bytes || out >= in + in_bytes)
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
	return tt_fail(TT_ARG, "rank %d: %s: sendbuff %p [%zu bytes] and recvbuff %p [%zu bytes] overlap partly; use "
		       "separate buffers or the in-place form", r->comm->rank, call, r->in, in_bytes, r->out, out_bytes);
}

bool tt_request_extents(const struct tt_request *r, size_t *ret_in, size_t *ret_out)
{
	const struct need *need = &needs[r->collective];
	bool at_root = need->rooted && r->root == r->comm->rank, p2p = r->collective == TT_SENDRECV;
	bool in = p2p ? r->send : need->in_all || at_root, out = p2p ? !r->send : need->out_all || at_root;
	size_t bytes, all;

	if (__builtin_mul_overflow(r->count, tt_type_bytes(r->type), &bytes) ||
	    __builtin_mul_overflow(bytes, (size_t)r->comm->nranks, &all))
		return false;
	*ret_in = !in ? 0 : need->in_parts ? all : bytes;
	*ret_out = !out ? 0 : need->out_parts ? all : bytes;
	return true;
}

static int check_buffers(const struct tt_request *r, const char *call)
{
	tuttiComm_t c = r->comm;
	size_t in, out;

	if (!tt_request_extents(r, &in, &out))
		return tt_fail(TT_ARG, "rank %d: %s: %zu elements are more than memory can hold", c->rank, call, r->count);
	if (in && !r->in)
		return tt_fail(TT_ARG, "rank %d: %s: sendbuff is NULL, with %zu elements to send", c->rank, call, r->count);
	if (out && !r->out)
		return tt_fail(TT_ARG, "rank %d: %s: recvbuff is NULL, with %zu elements to receive", c->rank, call,
			       r->count);
	return in && out && r->in != r->out ? check_overlap(r, call, in, out) : 0;
}

int tt_request_check(struct tt_request *r, const char *call)
{
	tuttiComm_t c = r->comm;
	int rc;

	if (tt_unlikely(atomic_load_explicit(&c->finalized, memory_order_relaxed)))
		return tt_fail(TT_USAGE, "rank %d: %s: the communicator was finalized", c->rank, call);
	if (tt_unlikely((unsigned)r->type >= tuttiNumTypes))
		return tt_fail(TT_ARG, "rank %d: %s: %d is no datatype", c->rank, call, (int)r->type);
	if (needs[r->collective].reduces && (rc = check_op(r, call)))
		return rc;
	if (needs[r->collective].rooted && tt_unlikely(r->root < 0 || r->root >= c->nranks))
		return tt_fail(TT_ARG, "rank %d: %s: %s %d is not in 0..%d", c->rank, call,
			       r->collective == TT_SENDRECV ? "peer" : "root", r->root, c->nranks - 1);
	return check_buffers(r, call);
}
