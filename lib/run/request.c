/*
 * request.c - the sizes of a call's buffers
 *
 * Called by api, which refuses calls without them, and by gpu_call.c, which moves the buffers.
 */
#include "run/request.h"

bool tt_request_extents(const struct tt_request *r, size_t *ret_in, size_t *ret_out)
{
	const struct tt_need *need = &tt_needs[r->collective];
	bool at_root = need->rooted && r->root == r->comm->rank, in = need->in_all || at_root,
	     out = need->out_all || at_root;
	size_t bytes, all;

	if (__builtin_mul_overflow(r->count, tt_type_bytes(r->type), &bytes))
		return false;
	if (r->collective == TT_SENDRECV) {
		*ret_in = r->send ? bytes : 0;
		*ret_out = r->send ? 0 : bytes;
		return true;
	}
	if (__builtin_mul_overflow(bytes, (size_t)r->comm->nranks, &all))
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
