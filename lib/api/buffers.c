/*
 * buffers.c - public calls on memory: allocation, registration
 */
#include "api/api.h"
#include "mem/memory.h"

TUTTI_API tuttiResult_t tuttiMemAlloc(void **ptr, size_t size)
{
	return tt_result(ptr ? tt_memory_alloc(size, ptr)
			     : tt_fail(TT_ARG, "tuttiMemAlloc: ptr is NULL"));
}

TUTTI_API tuttiResult_t tuttiMemFree(void *ptr)
{
	struct tt_request r;
	size_t bytes = ptr ? tt_memory_bytes(ptr) : 0;

	if (bytes && tt_run_uses(ptr, bytes, &r))
		return tt_result(tt_fail(
			TT_USAGE,
			"tuttiMemFree: %p is a buffer of %s %s, which is not complete; wait for it, then free",
			ptr,
			r.collective != TT_SENDRECV ? tt_collective_name(r.collective)
			: r.send                    ? "a send"
						    : "a receive",
			r.stream ? "on a stream" : "in another thread"));
	return tt_result(ptr ? tt_memory_free(ptr) : 0);
}

/* Only records the buffer. The first call that uses the buffer registers it with the NIC. */
TUTTI_API tuttiResult_t tuttiCommRegister(const tuttiComm_t comm, void *buff, size_t size,
					  void **handle)
{
	int rc = tt_comm_visit(comm);

	if (rc)
		return tt_result(rc);
	if (!handle || (!buff && size))
		rc = tt_fail(TT_ARG, "rank %d: tuttiCommRegister: %s is NULL", comm->rank,
			     handle ? "buff" : "handle");
	else if ((uintptr_t)buff + size < size)
		rc = tt_fail(TT_ARG,
			     "rank %d: tuttiCommRegister: size %zu reaches beyond the last address",
			     comm->rank, size);
	else
		rc = tt_comm_register(comm, buff, size, handle);
	atomic_fetch_sub(&comm->order.inside, 1);
	return tt_result(rc);
}

TUTTI_API tuttiResult_t tuttiCommDeregister(const tuttiComm_t comm, void *handle)
{
	int rc = tt_comm_visit(comm);

	if (rc)
		return tt_result(rc);
	rc = tt_comm_deregister(comm, handle);
	atomic_fetch_sub(&comm->order.inside, 1);
	return tt_result(rc);
}
