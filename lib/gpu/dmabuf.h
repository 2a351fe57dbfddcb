/*
 * dmabuf.h - device memory as a descriptor (dma-buf), by which a card's driver comes to it
 *
 * Called by verbs_rcache.c, which registers it, and by gpu/gpu_direct_rdma.c, which asks whether that
 * is of use. Thread: any.
 */
#ifndef TT_DMABUF_H
#define TT_DMABUF_H

#include "gpu/cuda.h"

/* The pages that hold a range; id: of the allocation, as in struct tt_mem. */
struct tt_dmabuf { int fd; uint64_t first, bytes, id; };

/* Why no card can read and write memory of that device, or NULL. *ret_flushes: what it wrote must
 * be made visible before the device reads it (flush_writes). */
const char *tt_dmabuf_missing(const struct tt_cuda *cu, int device, bool *ret_flushes);

/* Device memory [start, end), which must be of one allocation; asked about in that context. The
 * caller closes the descriptor. 0 | TT_CUDA; the id is there in any case, 0: not known */
int tt_dmabuf_open(void *ctx, uint64_t start, uint64_t end, struct tt_dmabuf *ret_dmabuf);

#endif
