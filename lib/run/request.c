/*
 * request.c - the arguments that each collective needs
 *
 * Called by api, which refuses calls without them, and by gpu_call.c, which moves the buffers.
 */
#include "run/request.h"

const struct tt_need tt_needs[TT_COLLECTIVES] = {
	[TT_ALLREDUCE] = { .in_all = true, .out_all = true, .reduces = true },
	[TT_REDUCE] = { .in_all = true, .rooted = true, .reduces = true },
	[TT_BROADCAST] = { .out_all = true, .rooted = true },
	[TT_ALLGATHER] = { .in_all = true, .out_all = true, .out_parts = true },
	[TT_REDUCE_SCATTER] = { .in_all = true,
				.out_all = true,
				.reduces = true,
				.in_parts = true },
	[TT_ALLTOALL] = { .in_all = true, .out_all = true, .in_parts = true, .out_parts = true },
	[TT_GATHER] = { .in_all = true, .rooted = true, .out_parts = true },
	[TT_SCATTER] = { .out_all = true, .rooted = true, .in_parts = true },
	[TT_SENDRECV] = { .rooted = true },
};

bool tt_request_extents(const struct tt_request *r, size_t *ret_in, size_t *ret_out)
{
	const struct tt_need *need = &tt_needs[r->collective];
	bool at_root = need->rooted && r->root == r->comm->rank, p2p = r->collective == TT_SENDRECV;
	bool in = p2p ? r->send : need->in_all || at_root,
	     out = p2p ? !r->send : need->out_all || at_root;
	size_t bytes, all;

	if (__builtin_mul_overflow(r->count, tt_type_bytes(r->type), &bytes) ||
	    __builtin_mul_overflow(bytes, (size_t)r->comm->nranks, &all))
		return false;
	*ret_in = !in ? 0 : need->in_parts ? all : bytes;
	*ret_out = !out ? 0 : need->out_parts ? all : bytes;
	return true;
}

size_t tt_request_bytes(const struct tt_request *r)
{
	bool even = r->collective == TT_ALLREDUCE || r->collective == TT_REDUCE ||
		    r->collective == TT_BROADCAST;

	return r->count * tt_type_bytes(r->type) * (even ? 1 : (size_t)r->comm->nranks);
}
