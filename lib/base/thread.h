/* thread.h - start a thread of the library: it blocks signals, which belong to the program, except
 * those of its own faults */
#ifndef TT_THREAD_H
#define TT_THREAD_H

#include <pthread.h>

/* Start a thread that runs body(arg). name: at most 15 characters, for ps and debuggers.
 * 0 | the error number of pthread_create */
int tt_thread_start(pthread_t *ret_thread, const char *name, void *(*body)(void *), void *arg);

#endif
