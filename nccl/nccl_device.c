/*
 * nccl_device.c - the CUDA context of a rank; memory of its device; what a NULL stream is
 *
 * Called by nccl_init.c for each join, by nccl_jobs.c in the thread that runs it, and by nccl_collectives.c. A
 * process that has not loaded CUDA has none.
 */
#include "gpu/gpu.h"
#include "gpu/cuda.h"
#include "nccl/nccl_layer.h"

#define CU_INVALID_DEVICE 101

int nccl_context_of_device(int device, void **ret_context)
{
	const struct tt_cuda *cu = tt_cuda_here();
	tt_cuctx context;
	int handle, rc;

	*ret_context = NULL;
	if (!cu)
		return 0;
	rc = cu->device_get(&handle, device);
	if (rc == CU_INVALID_DEVICE)
		return tt_fail(TT_ARG, "there is no device %d", device);
	if (!rc)
		rc = cu->ctx_retain(&context, handle);
	if (rc)
		return tt_cuda_fail(rc, "device %d", device);
	*ret_context = context;
	return 0;
}

/* With none current it is device 0's: a program that never chose a device works on that one. */
void *nccl_context_of_caller(void)
{
	const struct tt_cuda *cu = tt_cuda_here();
	void *context = NULL;

	if (cu && (cu->ctx_current(&context) || !context))
		nccl_context_of_device(0, &context);
	return context;
}

void nccl_context_enter(void *context)
{
	if (context)
		tt_cuda_here()->ctx_set(context);
}

/* The driver answers only who has a context, which the caller's thread may not. *ret_mem: the
 * host's where it says nothing */
static int classify(const struct tt_cuda *cu, const void *ptr, struct tt_mem *ret_mem)
{
	void *context;
	int rc;

	*ret_mem = (struct tt_mem){ .kind = TT_MEM_HOST };
	if (!cu || !ptr || !(context = nccl_context_of_caller()) || cu->ctx_push(context))
		return 0;
	rc = tt_cuda_classify(cu, ptr, ret_mem);
	cu->ctx_pop(&context);
	return rc;
}

static bool of_cuda(const struct tt_cuda *cu, const void *ptr)
{
	struct tt_mem m;

	return !classify(cu, ptr, &m) && m.kind != TT_MEM_HOST;
}

bool nccl_on_device(const void *ptr)
{
	const struct tt_cuda *cu = tt_cuda_here();
	struct tt_mem m;

	return !classify(cu, ptr, &m) && m.kind >= TT_MEM_DEVICE;
}

/* With tutti.h a NULL stream makes the call wait; programs of NCCL mean the default stream, unless
 * all is host memory. A call without memory, of no elements, goes with the others of its group: on
 * a rank with a device those are most likely of its memory. */
tuttiStream_t nccl_stream(tuttiComm_t tutti, cudaStream_t stream, const void *in, const void *out)
{
	const struct tt_cuda *cu = stream ? NULL : tt_cuda_here();
	int device;

	if (!cu)
		return stream;
	if (!in && !out)
		return !tuttiCommCuDevice(tutti, &device) && device >= 0 ? TT_CU_LEGACY : stream;
	return of_cuda(cu, in) || of_cuda(cu, out) ? TT_CU_LEGACY : stream;
}

/* Memory of the current device; of the host where there is none. */
NCCL_CALL(ncclResult_t, ncclMemAlloc, void **ptr, size_t size)
{
	const struct tt_cuda *cu = tt_cuda_here();
	void *context = nccl_context_of_caller();
	tt_cuptr device;
	int rc, mode;

	if (!ptr || !context)
		return nccl_result(nccl_code(tuttiMemAlloc(ptr, size)));
	mode = tt_cuda_enter(context);          /* pools grow while graphs are captured */
	rc = cu->mem_alloc(&device, size ? size : 1);
	tt_cuda_leave(context, mode);
	if (rc)
		return nccl_result(tt_cuda_fail(rc, "ncclMemAlloc: %zu bytes", size));
	*ptr = (void *)(uintptr_t)device;
	return ncclSuccess;
}

NCCL_CALL(ncclResult_t, ncclMemFree, void *ptr)
{
	const struct tt_cuda *cu = tt_cuda_here();
	struct tt_mem m;
	int rc = classify(cu, ptr, &m), mode;
	void *context;

	if (rc || m.kind < TT_MEM_DEVICE)
		return nccl_result(rc ? rc : nccl_code(tuttiMemFree(ptr)));
	context = nccl_context_of_caller();
	mode = tt_cuda_enter(context);
	rc = cu->mem_free((tt_cuptr)(uintptr_t)ptr);
	tt_cuda_leave(context, mode);
	return nccl_result(rc ? tt_cuda_fail(rc, "ncclMemFree: %p", ptr) : 0);
}
