/* staged.h - calls on device memory, carried through host memory: between staged.c, courier.c and pinned.c */
#ifndef TT_NCCL_STAGED_H
#define TT_NCCL_STAGED_H

#include "api/api.h"
#include "mem/cuda.h"
#include "nccl/layer.h"

/* pinned.c */
#define NC_PIECE_HEAD 128
struct nc_piece {
	struct nc_piece *next;
	atomic_uint *word;                     /* streams wait until it has reached value; it only grows */
	tt_cuptr word_device;
	unsigned value;
	char *data;
	size_t bytes;
};
/* 0 | TT_CUDA, TT_SYSTEM */
int nc_piece_take(const struct tt_cuda *cu, size_t bytes, struct nc_piece **ret_piece);
void nc_piece_give(struct nc_piece *piece);

/* A call: where its bytes are, and where the host works on them. Bytes that the host can reach itself have no stage. */
struct nc_op {
	ncclComm_t comm;
	struct tt_request request;             /* as the user made it, checked */
	size_t in_bytes, out_bytes;
	bool stage_in, stage_out, lost;        /* lost: CUDA refused something of it */
};

/* The calls of one group on one communicator, which run at once. */
struct nc_batch {
	struct nc_batch *next;
	struct nc_courier *courier;
	struct nc_piece *piece;
	unsigned value;                        /* of the piece's word, when it is done */
	atomic_int unready;                    /* calls whose inputs have not come to the host yet */
	atomic_int holders;                    /* the courier, and each call until its stream is past it */
	atomic_int failed;                     /* a code: it cannot be carried out */
	size_t n;
	struct nc_op *ops;
	struct tt_request *requests;           /* [n] with the stages as buffers */
};
void nc_batch_release(struct nc_batch *batch);

/* courier.c: the thread of a communicator that carries batches out, in the order in which they were pushed. */
int nc_courier_of(ncclComm_t comm, tuttiComm_t tutti, struct nc_courier **ret_courier);
void nc_courier_push(struct nc_courier *courier, struct nc_batch *batch);
void nc_batch_arrived(void *batch);            /* one call's inputs have come; called by streams */
void nc_batch_passed(void *batch);             /* one call's stream is past it; called by streams */

#endif
