/*
 * gpu_streams.c - launches of kernels that wait for no peer, and barriers among the streams of all
 * ranks
 *
 * Called by gpu_ordered.c, gpu_plan.c and gpu_open.c (probes). In a barrier the last kernel before it sets
 * a word of each peer to 1, and the owner's stream waits for the word and resets it to 0, so a graph can
 * be replayed: between two sets by a peer there is always a barrier in which the peer waited for the
 * owner. The words are host memory, so the host ends the waits without the driver (gpu_watchdog.c): a
 * stream waits for 64 bits, of which the host sets the upper half, which no stream resets.
 *
 * Where kernels of the ranks may wait for each other, a kernel of one block waits in place of the stream. CUDA does
 * not see which stream sets the word that another stream of the same context waits for, and may put the one that sets
 * it behind the one that waits: its documentation of stream memory operations warns of deadlocks. Left are streams
 * of one context that wait for words: of threads for which no blocks were left, and of processes that share a GPU and
 * have several ranks each.
 */
#include <string.h>

#include "gpu/gpu_call.h"

#define PER_THREAD 64                       /* least bytes for each thread of a kernel */
#define EITHER_HALF ((uint64_t)1 << 32 | 1) /* of a struct tt_dev_stream_word */

int tt_gpu_launch(struct tt_gpu *d, tt_cufn fn, uint32_t blocks, struct tt_dev_job *job,
		  tt_custream stream)
{
	void *params[] = { job };
	bool small = (job->way != TT_DEV_ALONE || job->nawaited) && d->kernel_barrier;
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

void tt_gpu_op_write(struct tt_cumemop *op, tt_cuptr at, uint32_t value)
{
	*op = (struct tt_cumemop){ .operation = TT_CU_WRITE_32, .address = at, .value = value };
}

static int await_by_stream(struct tt_gpu *d, const struct tt_dev_awaited *words, uint32_t n,
			   tt_custream stream)
{
	struct tt_cumemop ops[2 * TT_DEV_RANKS];
	int rc;

	for (uint32_t i = 0; i < n; i++) {
		tt_cuptr at = d->ipc->words_at + offsetof(struct tt_dev_host_words, stream) +
			      words[i].word * sizeof(struct tt_dev_stream_word);

		ops[2 * i] = (struct tt_cumemop){ .operation = TT_CU_WAIT_64,
						  .address = at,
						  .value = EITHER_HALF,
						  .flags = TT_CU_WAIT_AND };
		tt_gpu_op_write(&ops[2 * i + 1], at + offsetof(struct tt_dev_stream_word, set), 0);
	}
	rc = d->cu->stream_batch(stream, 2 * n, ops, 0);
	return rc ? tt_cuda_fail(rc, "rank %d: make a stream wait for the streams of other ranks",
				 d->comm->rank)
		  : 0;
}

static int await_by_kernel(struct tt_gpu *d, const struct tt_dev_awaited *words, uint32_t n,
			   tt_custream stream)
{
	uint32_t me = (uint32_t)d->comm->rank;
	struct tt_dev_job job = { .way = TT_DEV_ALONE,
				  .rank = me,
				  .report = d->ipc->words_at,
				  .limit_ns = d->comm->settings.timeout_ms * 1000000ull,
				  .nawaited = n };

	job.signals[me] = d->ipc->at;
	job.host_words[me] = d->ipc->words_at;
	memcpy(job.awaited, words, n * sizeof(*words));
	return tt_gpu_launch(d, d->k->fn[tuttiFloat32], 1, &job, stream); /* AWAITS in kernels.cu */
}

int tt_gpu_await(struct tt_gpu *d, const struct tt_dev_awaited *words, uint32_t n,
		 tt_custream stream)
{
	return !n                ? 0
	       : d->kernels_wait ? await_by_kernel(d, words, n, stream)
				 : await_by_stream(d, words, n, stream);
}

void tt_gpu_signal(struct tt_dev_job *job, uint32_t word)
{
	job->signal_to = ((1u << job->nranks) - 1) & ~(1u << job->rank);
	job->signal_word = word + job->rank;
}

int tt_gpu_await_signals(tuttiComm_t c, uint32_t word, tt_custream stream)
{
	struct tt_dev_awaited words[TT_DEV_RANKS];
	uint32_t n = 0;

	for (uint32_t p = 0; p < (uint32_t)c->nranks; p++)
		if (p != (uint32_t)c->rank)
			words[n++] = (struct tt_dev_awaited){ word + p, p };
	return tt_gpu_await(c->gpu, words, n, stream);
}
