/*
 * device.c - the CUDA context of a rank; memory of its device
 *
 * Called by init.c for each join and by jobs.c in the thread that runs it. A process that has not loaded CUDA has none.
 */
#include "mem/cuda.h"
#include "nccl/layer.h"

void *nc_context_of_caller(void)
{
	const struct tt_cuda *cu = tt_cuda_here();
	tt_cuctx context = NULL;

	return cu && !cu->ctx_current(&context) ? context : NULL;
}

int nc_context_of_device(int device, void **ret_context)
{
	const struct tt_cuda *cu = tt_cuda_here();
	tt_cuctx context;
	int handle, rc;

	*ret_context = NULL;
	if (!cu)
		return 0;
	rc = cu->device_get(&handle, device);
	if (!rc)
		rc = cu->ctx_retain(&context, handle);
	if (rc)
		return tt_cuda_fail(rc, "device %d", device);
	*ret_context = context;
	return 0;
}

void nc_context_enter(void *context)
{
	if (context)
		tt_cuda_here()->ctx_set(context);
}

int nc_context_device(void *context)
{
	const struct tt_cuda *cu = tt_cuda_here();
	int device = -1, failed;

	if (!context || cu->ctx_push(context))
		return -1;
	failed = cu->ctx_device(&device);
	cu->ctx_pop(&context);
	return failed ? -1 : device;
}

/* Memory of the current device; of the host where there is none. */
NCCL_CALL(ncclResult_t, ncclMemAlloc, void **ptr, size_t size)
{
	const struct tt_cuda *cu = tt_cuda_here();
	tt_cuptr device;
	int rc;

	if (!ptr || !nc_context_of_caller())
		return nc_result(nc_code(tuttiMemAlloc(ptr, size)));
	rc = cu->mem_alloc(&device, size ? size : 1);
	if (rc)
		return nc_result(tt_cuda_fail(rc, "ncclMemAlloc: %zu bytes", size));
	*ptr = (void *)(uintptr_t)device;
	return ncclSuccess;
}

NCCL_CALL(ncclResult_t, ncclMemFree, void *ptr)
{
	const struct tt_cuda *cu = tt_cuda_here();
	struct tt_mem m = { .kind = TT_MEM_HOST };
	int rc = cu && ptr ? tt_cuda_classify(cu, ptr, &m) : 0;

	if (rc || m.kind < TT_MEM_DEVICE)
		return nc_result(rc ? rc : nc_code(tuttiMemFree(ptr)));
	rc = cu->mem_free((tt_cuptr)(uintptr_t)ptr);
	return nc_result(rc ? tt_cuda_fail(rc, "ncclMemFree: %p", ptr) : 0);
}
