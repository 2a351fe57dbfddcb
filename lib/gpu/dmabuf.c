/* dmabuf.c - device memory exported as a dma-buf, see dmabuf.h */
#include <unistd.h>

#include "gpu/dmabuf.h"

const char *tt_dmabuf_missing(const struct tt_cuda *cu, int device, bool *ret_flushes)
{
	int can = 0, ordering = 0, flush = 0;

	if (!cu->range_handle)
		return "CUDA's driver has no cuMemGetHandleForAddressRange (11.7 or newer is needed)";
	if (cu->device_attribute(&can, TT_CU_ATTR_DMA_BUF, device) || !can)
		return "the device has no dma-buf (the open kernel modules and Linux 5.12 are needed)";
	cu->device_attribute(&ordering, TT_CU_ATTR_WRITES_ORDERING, device);
	cu->device_attribute(&flush, TT_CU_ATTR_FLUSH_OPTIONS, device);
	*ret_flushes = ordering < TT_CU_ORDERED_FOR_OWNER;
	if (*ret_flushes && !(cu->flush_writes && flush & TT_CU_FLUSH_BY_HOST))
		return "the device does not order RDMA writes, and its driver cannot flush them";
	return NULL;
}

/* The context is current. The range is rounded to the host's pages, as both drivers require. */
static int open_range(const struct tt_cuda *cu, uint64_t start, uint64_t end, struct tt_dmabuf *ret)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
	struct tt_mem m;
	tt_cuptr base = 0;
	size_t bytes = 0;
	int rc = tt_cuda_classify(cu, (void *)(uintptr_t)start, &m);

	if (rc)
		return rc;
	ret->id = m.id;
	if (m.kind != TT_MEM_DEVICE && m.kind != TT_MEM_CUMEM)
		return tt_fail(TT_CUDA, "memory at %#llx is %s memory, which has no dma-buf",
			       (unsigned long long)start, tt_mem_name(m.kind));
	rc = cu->ptr_range(&base, &bytes, start);
	if (!rc && end > base + bytes)
		return tt_fail(
			TT_CUDA,
			"device memory %#llx..%#llx is more than one allocation (of %zu bytes)",
			(unsigned long long)start, (unsigned long long)end, bytes);
	ret->first = start / page * page;
	ret->bytes = (end + page - 1) / page * page - ret->first;
	if (!rc)
		rc = cu->range_handle(&ret->fd, ret->first, ret->bytes, TT_CU_RANGE_DMA_BUF, 0);
	return rc ? tt_cuda_fail(rc, "a dma-buf of %llu bytes of device memory at %#llx",
				 (unsigned long long)ret->bytes, (unsigned long long)ret->first)
		  : 0;
}

int tt_dmabuf_open(void *ctx, uint64_t start, uint64_t end, struct tt_dmabuf *ret)
{
	const struct tt_cuda *cu = tt_cuda_here();
	int rc;

	*ret = (struct tt_dmabuf){ .fd = -1 };
	if (!cu || !cu->range_handle)
		return tt_fail(TT_CUDA, "CUDA's driver has no dma-buf");
	rc = cu->ctx_push(ctx);
	if (rc)
		return tt_cuda_fail(rc, "device memory at %#llx: its context",
				    (unsigned long long)start);
	rc = open_range(cu, start, end, ret);
	cu->ctx_pop(&ctx);
	return rc;
}
