/*
 * asymmetric_fence.c - a fence paid by the rare side
 *
 * The short way of a call says "I am inside" with a plain store and looks whether the communicator
 * is being aborted with a plain load; a fence between the two would cost it a third of its time.
 * Abort, which is rare, makes every thread of the process pass a fence instead: membarrier(2).
 * Called by comm (prepare) and by tuttiCommAbort.
 */
#include <time.h>

#include "base/fence.h"

/* no membarrier (kernel before 4.14, or forbidden): a store is seen long before that */
#define WITHOUT_MS 10

void tt_asymmetric_fence_prepare(void) { tt_membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED); }

void tt_asymmetric_fence(void)
{
	struct timespec pause = { .tv_nsec = WITHOUT_MS * 1000000 };

	atomic_thread_fence(memory_order_seq_cst);
	if (!tt_membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED))
		nanosleep(&pause, NULL);
}
