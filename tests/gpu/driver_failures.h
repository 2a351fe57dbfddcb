/* driver_failures.h - representative uses of the library, in which one call of a driver fails; for
 * test_failures */
#ifndef TESTS_FAILURES_H
#define TESTS_FAILURES_H

#include "tests/support/harness_cuda.h"
#include "tutti.h"

struct failure_rank {
	tuttiComm_t comm;
	int rank, n, wrong;            /* wrong: results */
	const struct tt_cuda *cu;      /* NULL: host memory */
	tt_custream stream;
	tt_cuptr in, out;
};

/* n ranks join, run, meet once more and part. What run returns is what the first call said that did
 * not succeed. */
struct use {
	const char *name;
	int n;
	bool threads;                  /* ranks are; else processes */
	bool cuda;                     /* they have a GPU */
	bool cards;                    /* they are on hosts of their own, between which are cards */
	tuttiResult_t (*run)(struct failure_rank *seat);
	const char *sample;            /* "CALL:K:VICTIM ...", of the default tier */
};
extern const struct use uses[];        /* the last has no name */

/* Between these the calling thread's calls of drivers are the test's own, which do not fail. */
void begin_own(void);
void end_own(void);

/* Device memory and a stream; run; both away */
tuttiResult_t use_play(const struct use *use, struct failure_rank *seat);

#endif
