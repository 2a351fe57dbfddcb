/*
 * nccl_device.c - CUDA contexts of ranks, memory of their devices, the meaning of a NULL stream
 *
 * Called by nccl_init.c for each join, by nccl_jobs.c in the thread of a job, by nccl_collectives.c
 * and by users (ncclMemAlloc, ncclMemFree); calls the driver's table. A process that has not loaded
 * CUDA has no context.
 */
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

/* Without a current context, device 0's: a program that never chose a device uses device 0. */
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

/* The driver answers only threads with a context, and the caller's thread may have none. *ret_mem:
 * host memory where the driver does not know ptr */
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

/* With tutti.h a call with a NULL stream waits. Programs of NCCL mean CUDA's default stream, unless
 * all buffers are host memory. A call of no elements, without buffers, takes the stream that the
 * other calls of its group most likely take: on a rank with a device, the default stream. */
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

/* Allocates memory of the current device, or of the host if there is none. */
NCCL_CALL(ncclResult_t, ncclMemAlloc, void **ptr, size_t size)
{
	const struct tt_cuda *cu = tt_cuda_here();
	void *context = nccl_context_of_caller();
	tt_cuptr device;
	int rc, mode;

	if (!ptr || !context)
		return nccl_result(nccl_code(tuttiMemAlloc(ptr, size)));
	mode = tt_cuda_enter(context); /* memory pools grow during captures too */
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
