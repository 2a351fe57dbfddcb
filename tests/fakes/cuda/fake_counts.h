/*
 * fake_counts.h - functions that tests find by dlsym in both fake drivers: injected failures that
 * occurred, and objects that were created and not released
 *
 * For tests/gpu/test_driver_failures. Each library has these functions with its own prefix, fake_
 * or fake_verbs_.
 */
#ifndef FAKE_COUNTS_H
#define FAKE_COUNTS_H

#include <stdbool.h>

#define FAKE_OBJECTS 16 /* upper bound of kinds of objects */

/* Number of calls that failed because the environment injected a failure */
typedef int fake_hits_fn(void);
/* Number of calls that this thread has made */
typedef unsigned long fake_calls_fn(void);
/* The most blocks of waiting kernels that were on a device at a time */
typedef unsigned fake_most_blocks_fn(void);
/* own true: this thread's calls are the test's own and never fail by injection; false: they can
 * fail again. */
typedef void fake_own_fn(bool own);
/* Name of the n-th kind of object, and the number of unreleased objects of this process; NULL: n is
 * beyond the last kind. */
typedef const char *fake_left_fn(int n, int *ret_left);

#endif
