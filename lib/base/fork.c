/*
 * fork.c - detection of forks: a communicator made before a fork must not be used in the child
 *
 * The sockets, threads and shared counters of the communicator belong to the parent. Called by comm
 * at every call: a counter that every fork increments in the child is cheaper than getpid.
 */
#include <pthread.h>
#include <stdatomic.h>

#include "base/base.h"

static atomic_uint forks;

static void in_child(void)
{
	atomic_fetch_add(&forks, 1);
}

__attribute__((constructor)) static void watch(void)
{
	pthread_atfork(NULL, NULL, in_child);
}

unsigned tt_fork_count(void)
{
	return atomic_load_explicit(&forks, memory_order_relaxed);
}
