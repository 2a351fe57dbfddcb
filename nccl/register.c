/*
 * register.c - tell a communicator of buffers that will be used often, plainly or as windows
 *
 * Called by users.
 */
#include "nccl/layer.h"

NCCL_CALL(ncclResult_t, ncclCommRegister, const ncclComm_t comm, void *buff, size_t size,
	  void **handle)
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

/* NCCL has faster ways for windows on some machines, and takes them as plain registrations on
 * others, as this does on all. A handle is the buffer's address. */
NCCL_CALL(ncclResult_t, ncclCommWindowRegister, ncclComm_t comm, void *buff, size_t size,
	  ncclWindow_t *win, int winFlags)
{
	(void)winFlags;
	return pncclCommRegister(comm, buff, size, (void **)win);
}

NCCL_CALL(ncclResult_t, ncclCommWindowDeregister, ncclComm_t comm, ncclWindow_t win)
{
	return pncclCommDeregister(comm, win);
}

NCCL_CALL(ncclResult_t, ncclWinGetUserPtr, ncclComm_t comm, ncclWindow_t win, void **outUserPtr)
{
	tuttiComm_t tutti;
	int rc = nc_comm_check(comm, "ncclWinGetUserPtr", &tutti);

	if (!rc && !outUserPtr)
		rc = tt_fail(TT_ARG, "ncclWinGetUserPtr: the place for the answer is NULL");
	if (!rc)
		*outUserPtr = win;
	return nc_result(rc);
}
