/* fence.h - memory fences between a store and a later load: of this thread, or asymmetric
 * (membarrier), imposed on the other threads of the process */
#ifndef TT_FENCE_H
#define TT_FENCE_H

#include <linux/membarrier.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/base.h"

/* ThreadSanitizer models read-modify-writes, but not fences. */
static inline void tt_full_fence(void)
{
#ifdef TT_TSAN
	static _Atomic int order;

	atomic_fetch_add(&order, 0);
#else
	atomic_thread_fence(memory_order_seq_cst);
#endif
}

/* membarrier(2) with a MEMBARRIER_CMD_*; false: not available (an old kernel, or forbidden) */
static inline bool tt_membarrier(int command)
{
	return syscall(SYS_membarrier, command, 0, 0) == 0;
}

/* asymmetric_fence.c: on return, every thread of this process sees all earlier stores of the
 * caller, and the caller sees their earlier stores. prepare: once, before the first fence. */
void tt_asymmetric_fence_prepare(void);
void tt_asymmetric_fence(void);

#endif
