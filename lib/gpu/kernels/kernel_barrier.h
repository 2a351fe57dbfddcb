/*
 * kernel_barrier.h - the barriers before and after a job: block b of a rank with block b of its peers
 *
 * The block writes its record and then its epoch to each peer's signal words, waits for the peers' epochs,
 * works on its share, and passes a second barrier at the end: from then on no peer reads or writes its
 * rank's buffers. Order (docs/design/gpu-order.md has the rules of the PTX memory model):
 *   inputs, before peers load them       work before a kernel on its stream happens before the kernel; a
 *                 release is cumulative, so it publishes that work too; the thread that acquires `start`
 *                 orders its whole block by SYNC (bar.sync)
 *   outputs, before this rank's stream goes on       stores of all threads, SYNC, the release of `end` by
 *                 one thread, its acquire by this rank, SYNC, the end of this kernel
 *   inputs, before their owner writes them again     likewise: SYNC orders the loads before `end`
 */
#ifndef TT_KERNEL_BARRIER_H
#define TT_KERNEL_BARRIER_H

#include "gpu/kernels/kernel_record.h"

/* The barrier before a job. 0: give up. Called by every thread of the block. */
DEV int barrier_start(const struct tt_dev_job *j, uint32_t epoch, int *failed)
{
	for (uint32_t p = THREAD; p < j->nranks; p += THREADS)
		if (p != j->rank) {
			if (BLOCK == 0)
				put_signature(j, p, epoch);
			post_record(j, p, BLOCK);
			put_release(&signals_of(j, p)->start[BLOCK][j->rank], epoch);
		}
	for (uint32_t p = THREAD; p < j->nranks; p += THREADS)
		if (p != j->rank &&
		    (!await_epoch(j, &signals_of(j, j->rank)->start[BLOCK][p], epoch, p) ||
		     !same_call(j, p, BLOCK)))
			*failed = 1;
	SYNC();
	return !*failed;
}

/* The barrier after a job. */
DEV void barrier_end(const struct tt_dev_job *j, uint32_t epoch)
{
	SYNC();
	for (uint32_t p = THREAD; p < j->nranks; p += THREADS)
		if (p != j->rank)
			put_release(&signals_of(j, p)->end[BLOCK][j->rank], epoch);
	for (uint32_t p = THREAD; p < j->nranks; p += THREADS)
		if (p != j->rank)
			await_epoch(j, &signals_of(j, j->rank)->end[BLOCK][p], epoch, p);
	SYNC();
}

#endif
