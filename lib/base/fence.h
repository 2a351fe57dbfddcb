/* fence.h - a barrier between a store and a later load: one's own, or one that other threads and
 * processes are made to pass */
#ifndef TT_FENCE_H
#define TT_FENCE_H

#include <linux/membarrier.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/base.h"

/* ThreadSanitizer does not know fences, but read-modify-writes. */
static inline void tt_full_fence(void)
{
#ifdef TT_TSAN
	static _Atomic int order;

	atomic_fetch_add(&order, 0);
#else
	atomic_thread_fence(memory_order_seq_cst);
#endif
}

/* membarrier(2), a MEMBARRIER_CMD_*; false: not had (an old kernel, or it is forbidden) */
static inline bool tt_membarrier(int command)
{
	return syscall(SYS_membarrier, command, 0, 0) == 0;
}

/* asymmetric_fence.c: on return, every thread of this process sees all earlier stores of the
 * caller, and the caller sees theirs. prepare: once, before the first fence. */
void tt_asymmetric_fence_prepare(void);
void tt_asymmetric_fence(void);

#endif
