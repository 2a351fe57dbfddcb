/*
 * gpu_streams.c - launches of kernels that wait for no peer, and barriers among the streams of all
 * ranks
 *
 * Called by gpu_ordered.c, gpu_plan.c and gpu_open.c (probes). In a barrier the last kernel before it sets
 * a word of each peer to 1, and the owner's stream waits for the word and resets it to 0, so a graph can
 * be replayed: between two sets by a peer there is always a barrier in which the peer waited for the
 * owner. The words are host memory, so the host ends the waits without the driver (gpu_watchdog.c): a
 * stream waits for 64 bits, of which the host sets the upper half, which no stream resets.
 */
#include "gpu/gpu_call.h"

#define PER_THREAD 64                       /* least bytes for each thread of a kernel */
#define EITHER_HALF ((uint64_t)1 << 32 | 1) /* of a struct tt_dev_stream_word */

int tt_gpu_launch(struct tt_gpu *d, tt_cufn fn, uint32_t blocks, struct tt_dev_job *job,
		  tt_custream stream)
{
	void *params[] = { job };
	bool small = job->way != TT_DEV_ALONE && d->kernel_barrier;
	int rc = d->cu->launch(fn, blocks, 1, 1, small ? TT_BARRIER_THREADS : TT_DEV_THREADS, 1, 1,
			       0, stream, params, NULL);

	return rc ? tt_cuda_fail(rc, "rank %d: launch a kernel of %u blocks", d->comm->rank, blocks)
		  : 0;
}

int tt_gpu_launch_alone(const struct tt_request *r, struct tt_dev_job *job, tt_custream stream)
{
	struct tt_gpu *d = r->comm->gpu;
	uint64_t most = (uint64_t)d->k->blocks[TT_LARGE_BLOCKS], blocks, bytes = 0;

	for (uint32_t i = 0; i < job->npieces; i++)
		if (job->piece[i].bytes > bytes)
			bytes = job->piece[i].bytes;
	blocks = 1 + bytes / ((uint64_t)TT_DEV_THREADS * PER_THREAD);
	job->way = TT_DEV_ALONE;
	return tt_gpu_launch(d, tt_gpu_kernel(d, r, job), (uint32_t)(blocks < most ? blocks : most),
			     job, stream);
}

int tt_gpu_batch(struct tt_gpu *d, unsigned n, struct tt_cumemop *ops, tt_custream stream)
{
	int rc = n ? d->cu->stream_batch(stream, n, ops, 0) : 0;

	return rc ? tt_cuda_fail(rc, "rank %d: make a stream wait for the streams of other ranks",
				 d->comm->rank)
		  : 0;
}

void tt_gpu_op_write(struct tt_cumemop *op, tt_cuptr at, uint32_t value)
{
	*op = (struct tt_cumemop){ .operation = TT_CU_WRITE_32, .address = at, .value = value };
}

unsigned tt_gpu_ops_take(const struct tt_gpu *d, uint32_t word, struct tt_cumemop ops[2])
{
	tt_cuptr at = d->ipc->words_at + offsetof(struct tt_dev_host_words, stream) +
		      word * sizeof(struct tt_dev_stream_word);

	ops[0] = (struct tt_cumemop){ .operation = TT_CU_WAIT_64,
				      .address = at,
				      .value = EITHER_HALF,
				      .flags = TT_CU_WAIT_AND };
	tt_gpu_op_write(&ops[1], at + offsetof(struct tt_dev_stream_word, set), 0);
	return 2;
}

void tt_gpu_signal(struct tt_dev_job *job, uint32_t word)
{
	job->signal_to = ((1u << job->nranks) - 1) & ~(1u << job->rank);
	job->signal_word = word + job->rank;
}

int tt_gpu_await_signals(tuttiComm_t c, uint32_t word, tt_custream stream)
{
	struct tt_cumemop ops[2 * TT_DEV_RANKS];
	struct tt_gpu *d = c->gpu;
	unsigned n = 0;

	for (int p = 0; p < c->nranks; p++)
		if (p != c->rank)
			n += tt_gpu_ops_take(d, word + (uint32_t)p, &ops[n]);
	return tt_gpu_batch(d, n, ops, stream);
}
