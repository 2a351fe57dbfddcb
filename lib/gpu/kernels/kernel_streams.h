/*
 * kernel_streams.h - jobs that wait for no peer: the last block sets a word of each peer, in host memory; and
 * the waits for these words, where they are no waits of streams
 *
 * Order: the stores of all threads of a block, SYNC, blocks_done by one thread (acq_rel), SYNC in the last
 * block, the release of the word by a thread of that block, which is cumulative. The peer's stream waits for
 * the word, and a kernel behind cuStreamWaitValue begins after the wait. The host may end the wait, after it has
 * set the abort word: then a job behind the wait does nothing. A kernel that waits resets a word by a relaxed store,
 * which happens before the next kernel of its stream, whose release the peer awaits before it sets the word again.
 */
#ifndef TT_KERNEL_STREAMS_H
#define TT_KERNEL_STREAMS_H

#include "gpu/kernels/kernel_wait.h"

/* Sets a stream's word of each rank in signal_to, once all blocks have done their work: the last block
 * does. */
DEV void signal_ranks(const struct tt_dev_job *j, struct tt_dev_signals *mine)
{
	SHARED int last;

	SYNC();
	if (THREAD == 0) {
		last = add_acq_rel(&mine->blocks_done, 1) == BLOCKS - 1;
		if (last)
			mine->blocks_done = 0;
	}
	SYNC();
	for (uint32_t p = THREAD; last && p < TT_DEV_RANKS; p += THREADS)
		if (j->signal_to >> p & 1)
			put_release(&host_words_of(j, p)->stream[j->signal_word].set, 1);
}

/* Waits for the job's words, and resets them. */
DEV void await_signals(const struct tt_dev_job *j)
{
	for (uint32_t i = THREAD; i < j->nawaited; i += THREADS) {
		uint32_t *set = &host_words_of(j, j->rank)->stream[j->awaited[i].word].set;

		if (await_epoch(j, set, 1, j->awaited[i].rank))
			put_count(set, 0);
	}
}

/* Is this a job between stream waits that the host has ended since the call failed? Its buffers may
 * be freed already. */
DEV int is_aborted(const struct tt_dev_job *j)
{
	return j->way == TT_DEV_ALONE && j->report &&
	       get_acquire(&((struct tt_dev_report *)j->report)->abort);
}

#endif
