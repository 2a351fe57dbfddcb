/*
 * gpu_time.h - predicted time and counted work of an allreduce by GPU kernels, for ranks with a GPU each
 * on one NVSwitch, or for ranks that share a GPU
 *
 * Called by `tutti simulate --gpu`, tests/gpu/gpu_measure.c, and tests/fakes/ptx/count_kernels.c, which
 * compares the counts with those of the translated kernels. No part of libtutti.so. The time of a round is
 * that of its slowest resource: a block with its words and its bytes, the bytes of all blocks over memory,
 * or over the link. A round waits for the words of the round before the last one
 * (gpu/kernels/kernel_fifo.h).
 */
#ifndef TT_GPU_TIME_H
#define TT_GPU_TIME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* One GPU. Rates in GB/s, of the link each way; times in us. gpu_time.c names the sources. */
struct tt_gpu_kind {
	const char *name;
	uint32_t sms;
	double memory, link, sm; /* sm: of memory, by one block on one multiprocessor */
	double launch;           /* from the end of a kernel to the beginning of the next one */
	double call;             /* start and end of a call within its kernel */
	double peer;             /* each peer beyond the first, by the LL protocol */
	double load;             /* of memory, under load */
	double word;             /* from a store to a peer until the peer's poll sees it */
	double fence;            /* a release that waits for stores to peers */
	double round; /* of a block by the FIFO protocol, without its bytes and the fence */
};
/* The GPU whose name is in text, in lower case; NULL: none */
const struct tt_gpu_kind *tt_gpu_kind_find(const char *text);

/* An allreduce by the FIFO protocol. The fields are those of the same names of struct tt_dev_fifo. */
struct tt_gpu_fifo_call {
	uint32_t nranks, blocks, steps, lag;
	uint64_t bytes, chunk;
};

/* The work of one rank in a call: bytes that it loads from its memory, bytes that it stores, and the
 * part of these in peers' memory; words by which its blocks announce rounds; rounds and barriers of
 * each block */
struct tt_gpu_work {
	uint64_t loaded, stored, linked, words;
	uint32_t rounds, barriers;
};
void tt_gpu_fifo_work(const struct tt_gpu_fifo_call *call, uint32_t rank,
		      struct tt_gpu_work *ret_work);

/* Predicted us: by FIFO; by the LL protocol; by the plan `ring`; by one kernel
 * with barriers of each of the ranks that share a GPU */
double tt_gpu_fifo_us(const struct tt_gpu_kind *kind, const struct tt_gpu_fifo_call *call);
double tt_gpu_ll_us(const struct tt_gpu_kind *kind, uint32_t nranks, uint64_t bytes);
double tt_gpu_ring_us(const struct tt_gpu_kind *kind, uint32_t nranks, uint64_t bytes);
double tt_gpu_shared_us(const struct tt_gpu_kind *kind, uint32_t nranks, uint64_t bytes);

#endif
