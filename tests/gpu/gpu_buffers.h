/* gpu_buffers.h - one rank's buffers in device memory, and any collective on them compared with
 * lib/mem/reduce; for test_gpu */
#ifndef TESTS_GPU_HAND_H
#define TESTS_GPU_HAND_H

#include "comm/comm.h"
#include "tests/support/harness_cuda.h"

#define HAND_MOST (3u << 20)           /* bytes of a buffer */

/* What all collectives of a test are: a rank's buffers, and the bytes that must come out. */
struct gpu_buffers {
	const struct tt_cuda *cu;
	tt_custream stream;
	tt_cuptr in, out;
	unsigned char *inputs[TT_MAX_SOURCES];  /* of every rank */
	unsigned char *want, *got;
	int rank, n, wrong;
};

struct gpu_buffers_call {
	enum tt_collective what;
	size_t count;
	tuttiDataType_t type;
	tuttiRedOp_t op;
	int root;
	bool in_place;
	size_t shift;                          /* bytes by which buffers are not aligned */
	double scalar;                         /* not 0: a pre-multiplied sum by scalar + rank */
	bool blocking;                         /* NULL stream */
};

/* inputs are only 0 and 1: sums are exact, whatever algorithm the host takes */
extern bool hand_tame;

int hand_open(struct gpu_buffers *h, int rank, int n);
void hand_close(struct gpu_buffers *h);
/* Makes the call, and compares what comes with rank order's bits;
 * counts what is wrong in h, and says it. */
void hand_check(struct gpu_buffers *h, const struct gpu_buffers_call *c, tuttiComm_t comm);

/* The same beside the same call on host memory, by whatever algorithm the communicator was told. */
void hand_beside_host(struct gpu_buffers *h, const struct gpu_buffers_call *c, tuttiComm_t comm);

#endif
