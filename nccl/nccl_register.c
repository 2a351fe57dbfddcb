/*
 * nccl_register.c - registration of user buffers; windows, which Tutti does not have
 *
 * Called by users; calls tutti.h.
 */
#include "nccl/nccl_layer.h"

NCCL_CALL(ncclResult_t, ncclCommRegister, const ncclComm_t comm, void *buff, size_t size,
	  void **handle)
{
	tuttiComm_t tutti;
	int rc = nccl_comm_check(comm, "ncclCommRegister", &tutti);

	return nccl_result(rc ? rc : nccl_code(tuttiCommRegister(tutti, buff, size, handle)));
}

NCCL_CALL(ncclResult_t, ncclCommDeregister, const ncclComm_t comm, void *handle)
{
	tuttiComm_t tutti;
	int rc = nccl_comm_check(comm, "ncclCommDeregister", &tutti);

	return nccl_result(rc ? rc : nccl_code(tuttiCommDeregister(tutti, handle)));
}

/* Succeeds with a NULL window, as NCCL does where windows have no faster path than other memory.
 * Programs check for NULL before they pass a window to their own kernels, which would read it. */
NCCL_CALL(ncclResult_t, ncclCommWindowRegister, ncclComm_t comm, void *buff, size_t size,
	  ncclWindow_t *win, int winFlags)
{
	tuttiComm_t tutti;
	int rc = nccl_comm_check(comm, "ncclCommWindowRegister", &tutti);

	(void)winFlags;
	if (!rc && (!win || !buff || !size))
		rc = tt_fail(
			TT_ARG,
			"ncclCommWindowRegister: buff %p, size %zu, win %p; want a buffer, its size "
			"and a pointer for the window",
			buff, size, (void *)win);
	if (!rc)
		*win = NULL;
	return nccl_result(rc);
}

NCCL_CALL(ncclResult_t, ncclCommWindowDeregister, ncclComm_t comm, ncclWindow_t win)
{
	tuttiComm_t tutti;
	int rc = nccl_comm_check(comm, "ncclCommWindowDeregister", &tutti);

	if (!rc && win)
		rc = tt_fail(TT_ARG, "ncclCommWindowDeregister: %p is no window", (void *)win);
	return nccl_result(rc);
}

NCCL_CALL(ncclResult_t, ncclWinGetUserPtr, ncclComm_t comm, ncclWindow_t win, void **outUserPtr)
{
	tuttiComm_t tutti;
	int rc = nccl_comm_check(comm, "ncclWinGetUserPtr", &tutti);

	if (!rc && (win || !outUserPtr))
		rc = tt_fail(TT_ARG, "ncclWinGetUserPtr: %p is no window, or outUserPtr is NULL",
			     (void *)win);
	if (!rc)
		*outUserPtr = NULL;
	return nccl_result(rc);
}
