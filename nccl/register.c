/*
 * register.c - tell a communicator of buffers that will be used often
 *
 * Called by users.
 */
#include "nccl/layer.h"

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
