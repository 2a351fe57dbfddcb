/*
 * ranks.h - run a function as n ranks: forked processes or threads of one process. For tests.
 *
 * Every rank has joined one communicator when the function is called. A rank that hangs is killed
 * after limit_s seconds and counts as failed. No process outlives ranks_run.
 */
#ifndef TESTS_RANKS_H
#define TESTS_RANKS_H

#include <stdbool.h>

#include "tutti.h"

/* The function of a rank. Returns 0 on success, or prints the reason and returns non-zero. The
 * harness destroys the communicator afterwards, unless the function set *comm to NULL. */
typedef int rank_fn(tuttiComm_t *comm, int rank, int nranks, void *arg);

struct ranks {
	int n;
	bool threads;          /* threads of this process instead of processes */
	const char *transport; /* NULL: auto */
	const char *algo;      /* NULL: auto */
	int timeout_ms;        /* 0: the library's default */
	int limit_s;           /* 0: 60 */
	void *arg;
	bool no_join;     /* comm is NULL; the function joins with id */
	tuttiUniqueId id; /* set by ranks_run when no_join */
};

/* Returns the number of ranks that failed (function's result, signal, join, time limit). */
int ranks_run(struct ranks *r, rank_fn *fn);

/* Ranks of this process run on two cores from now on, or on one where there is no other. false: errno */
bool ranks_on_two_cores(void);

/* The rank of the calling thread; of another thread: of the process, -1: no rank */
int ranks_rank(void);

/* Sleeps for half a millisecond. Returns the seconds that passed, but at most 0.01: no limit expires while this
 * machine is busy or all processes are stopped. */
double ranks_pause(void);

/* The transport for tests of links between hosts: TUTTI_TEST_TRANSPORT, or tcp. */
const char *ranks_network(void);

/* Seeded random numbers, the same everywhere. */
unsigned long long random_of(unsigned long long seed, unsigned long long index);

#endif
