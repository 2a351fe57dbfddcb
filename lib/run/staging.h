/*
 * staging.h - device memory of a call that the host runs: the table by which run reaches lib/gpu
 *
 * lib/gpu puts an object that embeds struct tt_staging first into the request. It has two kinds:
 *   gpu_pipeline.c      pipelined staging: inputs are copied to a pinned buffer and outputs back,
 *                       tile by tile, while the operation runs
 *   gpu_direct_rdma.c   GPUDirect RDMA: NICs read and write device memory; bytes that no NIC moves
 *                       are copied by the GPU
 * All functions are called by the thread that runs the operation.
 */
#ifndef TT_STAGING_H
#define TT_STAGING_H

#include "run/op.h"

struct tt_staging_ops {
	const char *name;

	/* The operation starts; its path and binding are known. whole: it reads all input at once,
	 * so wait for all tiles. Blocks: with whole. 0 | TT_CUDA, TT_SYSTEM | the code of a broken
	 * communicator */
	int (*begin)(struct tt_op *op, bool whole);

	/* Optional: update tiles_in. Is this tile of the input on the host? Blocks: no. */
	bool (*arrived)(struct tt_op *op, uint32_t tile);

	/* Optional: let the stream copy the outputs that are final. Blocks: no. 0 | TT_CUDA */
	int (*flow)(struct tt_op *op);

	/* Optional: move a step's result, bytes of src, to the transport's slot room and to dst
	 * (NULL: not there). Absent: operands are host memory. Blocks. 0 | TT_CUDA */
	int (*move)(struct tt_op *op, void *dst, void *room, const void *src, size_t bytes);

	/* Optional: a NIC is about to read p; make earlier writes of NICs visible. 0 | TT_CUDA */
	int (*before_send)(struct tt_op *op, const void *p);

	/* After the last step. A failure is kept in the object. */
	void (*end)(struct tt_op *op);

	/* tiles arrive without waking a rank that sleeps, so sleeps must be short */
	bool wakes_nobody;
};

struct tt_staging {
	const struct tt_staging_ops *ops;
	uint32_t tiles_in; /* tiles of the input on the host; UINT32_MAX: all */
};

/* May a cursor start this tile? */
static inline bool tt_staging_arrived(const struct tt_op *op, uint32_t tile)
{
	return tile < op->staging->tiles_in ||
	       op->staging->ops->arrived((struct tt_op *)(uintptr_t)op, tile);
}

#endif
