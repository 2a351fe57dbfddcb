/*
 * thread.c - start a thread of the library (thread.h)
 *
 * Called by every room that has a thread. A new thread inherits the signal mask of its creator, so
 * signals are blocked while the thread is created, except those of a thread's own faults: the
 * program's handler of them, if it has one, runs in any thread.
 */
#include <signal.h>

#include "base/thread.h"

int tt_thread_start(pthread_t *ret_thread, const char *name, void *(*body)(void *), void *arg)
{
	sigset_t all, before;
	int rc;

	sigfillset(&all);
	sigdelset(&all, SIGSEGV);
	sigdelset(&all, SIGBUS);
	sigdelset(&all, SIGFPE);
	sigdelset(&all, SIGILL);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	rc = pthread_create(ret_thread, NULL, body, arg);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (!rc)
		pthread_setname_np(*ret_thread, name);
	return rc;
}
