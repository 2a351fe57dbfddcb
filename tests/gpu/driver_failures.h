/* driver_failures.h - representative uses of the library in which one driver call fails; for
 * test_driver_failures */
#ifndef TESTS_DRIVER_FAILURES_H
#define TESTS_DRIVER_FAILURES_H

#include "tests/support/harness_cuda.h"
#include "tutti.h"

struct failure_rank {
	tuttiComm_t comm;
	int rank, n, wrong;            /* wrong: number of wrong results */
	const struct tt_cuda *cu;      /* NULL: host memory */
	tt_custream stream;
	tt_cuptr in, out;
};

/* n ranks create a communicator, run, pass a barrier and destroy the communicator. run returns the
 * code of the first call that did not succeed. */
struct failure_use {
	const char *name;
	int n;
	bool threads;                  /* ranks are threads; else processes */
	bool cuda;                     /* ranks have a GPU */
	bool verbs;                    /* each rank is on another host; HCAs connect the hosts */
	tuttiResult_t (*run)(struct failure_rank *rank);
	const char *sample;            /* trials of the default tier: "CALL:K:VICTIM ..." */
};
extern const struct failure_use failure_uses[];        /* the last has no name */

/* Driver calls of the calling thread between begin and end are the test's own and do not fail. */
void begin_test_calls(void);
void end_test_calls(void);

/* Allocates buffers (device memory: and a stream), runs the use, frees the buffers. Returns run's
 * code. */
tuttiResult_t run_failure_use(const struct failure_use *use, struct failure_rank *rank);

#endif
