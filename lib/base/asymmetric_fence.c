/*
 * asymmetric_fence.c - the asymmetric fence, membarrier(2): the rare side pays
 *
 * The fast path of a call announces itself with a plain store and checks for an abort with a plain
 * load; a fence between the two would cost a third of the call's time. tuttiCommAbort, which is
 * rare, makes every thread of the process execute a fence instead. Called by comm (prepare) and by
 * tuttiCommAbort.
 */
#include <sys/single_threaded.h>
#include <time.h>

#include "base/fence.h"

/* wait without membarrier (kernel before 4.14, or forbidden): stores are visible long before */
#define WITHOUT_MS 10

void tt_asymmetric_fence_prepare(void)
{
	tt_membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED);
}

/* A process with several threads, as those of MPI programs have, waits some 10 ms in the kernel for each
 * registration, a process with one thread does not. So both kinds, of which transports/shm uses the other, are
 * registered when the library is loaded. */
__attribute__((constructor)) static void register_early(void)
{
	if (!__libc_single_threaded)
		return;
	tt_membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED);
	tt_membarrier(MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED);
}

void tt_asymmetric_fence(void)
{
	struct timespec pause = { .tv_nsec = WITHOUT_MS * 1000000 };

	atomic_thread_fence(memory_order_seq_cst);
	if (!tt_membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED))
		nanosleep(&pause, NULL);
}
