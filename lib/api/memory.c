/*
 * memory.c - the public calls for buffers: allocation, registration
 */
#include "api/api.h"
#include "mem/memory.h"

TUTTI_API tuttiResult_t tuttiMemAlloc(void **ptr, size_t size)
{
	return tt_result(ptr ? tt_memory_alloc(size, ptr) : tt_fail(TT_ARG, "tuttiMemAlloc: ptr is NULL"));
}

TUTTI_API tuttiResult_t tuttiMemFree(void *ptr)
{
	return tt_result(ptr ? tt_memory_free(ptr) : 0);
}

/* A registration is a promise of reuse; no transport of this version gains from it, so it is checked and kept only. */
TUTTI_API tuttiResult_t tuttiCommRegister(const tuttiComm_t comm, void *buff, size_t size, void **handle)
{
	int rc = tt_comm_check(comm);

	if (!rc && (!handle || (!buff && size)))
		rc = tt_fail(TT_ARG, "rank %d: tuttiCommRegister: buff %p, handle %p", comm->rank, buff, (void *)handle);
	if (rc)
		return tt_result(rc);
	*handle = buff;
	return tuttiSuccess;
}

TUTTI_API tuttiResult_t tuttiCommDeregister(const tuttiComm_t comm, void *handle)
{
	(void)handle;
	return tt_result(tt_comm_check(comm));
}
