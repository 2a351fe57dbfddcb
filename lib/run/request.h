/*
 * request.h - a call as the user made it
 *
 * api fills and checks a request, lib/gpu replaces its device buffers, run executes it. A request
 * is a value: a stream or a group keeps a copy and runs it later.
 */
#ifndef TT_REQUEST_H
#define TT_REQUEST_H

#include "comm/comm.h"

struct tt_staging;
struct tt_quorum_request;

struct tt_request {
	enum tt_collective collective;
	bool barrier; /* tuttiBarrier: an allreduce of one byte */
	const void *in;
	void *out;
	size_t count;
	tuttiDataType_t type;
	tuttiRedOp_t op;
	int root;     /* -1: none; SENDRECV: the peer */
	bool send;    /* SENDRECV: this side sends */
	bool to_self; /* SENDRECV: the peer is this rank */
	tuttiComm_t comm;
	tuttiStream_t stream;
	bool entered;      /* group.c: the first request of comm in its set */
	bool holds_ticket; /* order.c: ticket is this batch's ticket of comm */
	uint64_t ticket;
	bool scaled;     /* pre-multiplied sum: op is tuttiSum, scalar the factor */
	uint64_t scalar; /* the bytes of one element */
	struct tt_quorum_request *quorum; /* quorum allreduce (quorum_request.c), or NULL */
	struct tt_staging *staging;       /* device memory of the call (staging.h), or NULL */
};

/* The arguments that a collective needs. A buffer is needed on every rank (in_all,
 * out_all), else on the root only. in_parts, out_parts: that buffer has one part per rank. */
struct tt_need {
	bool in_all, out_all, rooted, reduces, in_parts, out_parts;
};
static const struct tt_need tt_needs[TT_COLLECTIVES] = {
	[TT_ALLREDUCE] = { .in_all = true, .out_all = true, .reduces = true },
	[TT_REDUCE] = { .in_all = true, .rooted = true, .reduces = true },
	[TT_BROADCAST] = { .out_all = true, .rooted = true },
	[TT_ALLGATHER] = { .in_all = true, .out_all = true, .out_parts = true },
	[TT_REDUCE_SCATTER] = { .in_all = true,
				.out_all = true,
				.reduces = true,
				.in_parts = true },
	[TT_ALLTOALL] = { .in_all = true, .out_all = true, .in_parts = true, .out_parts = true },
	[TT_GATHER] = { .in_all = true, .rooted = true, .out_parts = true },
	[TT_SCATTER] = { .out_all = true, .rooted = true, .in_parts = true },
	[TT_SENDRECV] = { .rooted = true },
};

/* request.c */

/* Bytes of the buffers that this rank must give, 0: none. false: the size overflows. */
bool tt_request_extents(const struct tt_request *request, size_t *ret_in, size_t *ret_out);

/* Bytes of the larger buffer of the call: the size by which an algorithm is chosen. */
size_t tt_request_bytes(const struct tt_request *request);

#endif
