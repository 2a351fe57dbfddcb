/* gpu_buffers.h - one rank's buffers in device memory; any collective on them is compared with
 * lib/mem/reduce; for test_gpu and test_gpudirect */
#ifndef TESTS_GPU_BUFFERS_H
#define TESTS_GPU_BUFFERS_H

#include "comm/comm.h"
#include "tests/support/harness_cuda.h"

#define GPU_BUFFER_BYTES (3u << 20)           /* bytes of a buffer */

/* A rank's buffers, shared by all calls of a test; want: expected bytes, got: result, wrong: failed
 * calls */
struct gpu_buffers {
	const struct tt_cuda *cu;
	tt_custream stream;
	tt_cuptr in, out;
	unsigned char *inputs[TT_MAX_SOURCES];  /* of all ranks */
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
	size_t shift;                          /* offset of buffers from alignment, bytes */
	double scalar;                         /* not 0: a sum pre-multiplied by scalar + rank */
	bool blocking;                         /* NULL stream */
};

/* Inputs are only 0 and 1, so sums are exact in every order of operands. */
extern bool gpu_buffers_exact;

int gpu_buffers_open(struct gpu_buffers *b, int rank, int n);
void gpu_buffers_close(struct gpu_buffers *b);
/* Makes the call and compares the result with the bits of a reduction in rank order. A difference
 * counts in b->wrong and is printed. */
void gpu_buffers_check(struct gpu_buffers *b, const struct gpu_buffers_call *c, tuttiComm_t comm);

/* Makes the call on host memory and on device memory, by the communicator's algorithm, and compares
 * both results. */
void gpu_buffers_check_by_host(struct gpu_buffers *b, const struct gpu_buffers_call *c, tuttiComm_t comm);

#endif
