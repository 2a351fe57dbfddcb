/*
 * fake_counts.h - what tests ask the two fakes, which they find by dlsym: was the failure met that
 * was asked for, and what was made and not given back
 *
 * For tests/gpu/test_driver_failures. Each library has both functions, with its own prefix: fake_ and
 * fake_verbs_.
 */
#ifndef FAKE_COUNTS_H
#define FAKE_COUNTS_H

#include <stdbool.h>

#define FAKE_THINGS 16             /* kinds of things, at most */

/* How often a call failed because the environment said so */
typedef int fake_hits_fn(void);
/* Calls of this thread are the test's own, and do not fail (true); or the library's again. */
typedef void fake_own_fn(bool own);
/* The n-th kind of things that can be left: its name, NULL: there are no more. In this process. */
typedef const char *fake_left_fn(int n, int *ret_left);

#endif
