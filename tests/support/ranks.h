/*
 * ranks.h - run a function as n ranks: forked processes or threads of one process. For tests.
 *
 * Every rank has joined one communicator when the function is called. A rank that hangs is killed
 * after limit_s seconds and counts as failed; whatever happens, no process is left behind.
 */
#ifndef TESTS_RANKS_H
#define TESTS_RANKS_H

#include <stdbool.h>

#include "tutti.h"

/* What a rank does. Returns 0 when all was right; it may print why not. comm is destroyed by the
 * harness afterwards, unless the function set *comm to NULL. */
typedef int rank_fn(tuttiComm_t *comm, int rank, int nranks, void *arg);

struct ranks {
	int n;
	bool threads;                /* threads of this process instead of processes */
	const char *transport;       /* NULL: auto */
	const char *algo;            /* NULL: auto */
	int timeout_ms;              /* 0: the library's default */
	int limit_s;                 /* 0: 60 */
	void *arg;
	bool no_join;                /* processes: comm is NULL; the function joins with id */
	tuttiUniqueId id;            /* set by ranks_run when no_join */
};

/* Returns how many ranks failed (function's result, signal, join, time limit). */
int ranks_run(struct ranks *r, rank_fn *fn);

/* The transport of tests that want one between hosts: TUTTI_TEST_TRANSPORT, or tcp. */
const char *ranks_network(void);

/* Seeded random numbers, the same everywhere. */
unsigned long long random_of(unsigned long long seed, unsigned long long index);

#endif
