/*
 * fork.c - which process is this: a communicator made before a fork must not be used in the child
 *
 * Its sockets, threads and shared counters belong to the parent. A counter that every fork raises
 * in the child is cheaper than asking for the pid at every call.
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
