/*
 * fork.c - detection of forks: a communicator made before a fork must not be used in the child
 *
 * The sockets, threads and shared counters of the communicator belong to the parent. Called by comm
 * at every call: a counter that every fork increments in the child is cheaper than getpid.
 */
#include <pthread.h>

#include "base/base.h"

unsigned tt_forks;

/* The child has one thread, which runs this before fork returns. */
static void in_child(void)
{
	tt_forks++;
}

__attribute__((constructor)) static void watch(void)
{
	pthread_atfork(NULL, NULL, in_child);
}
