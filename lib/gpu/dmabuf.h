/*
 * dmabuf.h - device memory exported as a dma-buf, for GPUDirect RDMA
 *
 * Called by verbs_rcache.c, which registers the memory with the NIC, and by gpu_direct_rdma.c,
 * which asks for the device's support. Thread: any.
 */
#ifndef TT_DMABUF_H
#define TT_DMABUF_H

#include "gpu/cuda.h"

/* The pages around a range of device memory; id: of the allocation, as in struct tt_mem */
struct tt_dmabuf {
	int fd;
	uint64_t first, bytes, id;
};

/* The reason why no NIC can read and write memory of the device, or NULL. *ret_flushes: RDMA writes
 * must be flushed (flush_writes) before the device reads them. */
const char *tt_dmabuf_missing(const struct tt_cuda *cu, int device, bool *ret_flushes);

/* Exports device memory [start, end), which must lie within one allocation of ctx. The caller
 * closes the descriptor. 0 | TT_CUDA; ret_dmabuf->id is set in any case, 0: unknown */
int tt_dmabuf_open(void *ctx, uint64_t start, uint64_t end, struct tt_dmabuf *ret_dmabuf);

#endif
