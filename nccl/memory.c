/*
 * memory.c - buffers: allocation, registration
 *
 * Called by users.
 */
#include "nccl/layer.h"

NCCL_CALL(ncclResult_t, ncclMemAlloc, void **ptr, size_t size)
{
	return nc_result(nc_code(tuttiMemAlloc(ptr, size)));
}

NCCL_CALL(ncclResult_t, ncclMemFree, void *ptr)
{
	return nc_result(nc_code(tuttiMemFree(ptr)));
}

NCCL_CALL(ncclResult_t, ncclCommRegister, const ncclComm_t comm, void *buff, size_t size, void **handle)
{
	tuttiComm_t tutti;
	int rc = nc_comm_check(comm, "ncclCommRegister", &tutti);

	return nc_result(rc ? rc : nc_code(tuttiCommRegister(tutti, buff, size, handle)));
}

NCCL_CALL(ncclResult_t, ncclCommDeregister, const ncclComm_t comm, void *handle)
{
	tuttiComm_t tutti;
	int rc = nc_comm_check(comm, "ncclCommDeregister", &tutti);

	return nc_result(rc ? rc : nc_code(tuttiCommDeregister(tutti, handle)));
}
