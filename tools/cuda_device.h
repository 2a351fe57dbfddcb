/*
 * cuda_device.h - the GPU of a tool's rank: parse --device, create a context
 *
 * Called by the benchmarks and by tutti-train. A communicator takes the device whose context is
 * current when the communicator is created.
 */
#ifndef TOOL_CUDA_DEVICE_H
#define TOOL_CUDA_DEVICE_H

#include "gpu/cuda.h"

struct tool_cuda_device {
	const struct tt_cuda *cu; /* NULL: host memory */
	tt_cuctx ctx;
	int ordinal; /* device number of the driver */
	int devices; /* number of devices on this host */
	struct tt_cuuuid uuid;
	char name[64], pci[20];
};

/* Parses "cuda" (ret_ordinal -1: local rank modulo the number of devices) or "cuda:N".
 * Returns false for any other text. */
bool tool_cuda_device_parse(const char *text, int *ret_ordinal);

/* Raises CUDA_DEVICE_MAX_CONNECTIONS to 32, so that the streams of all ranks of one process run
 * concurrently. Call before CUDA starts. */
void tool_cuda_device_prepare(void);

/* Starts CUDA and makes a context of the device current in the calling thread. The process must
 * not fork afterwards. Returns 0 | TT_CUDA: no CUDA, or no such device.
 * Blocks for the start of the driver, about 100 ms. */
int tool_cuda_device_take(int ordinal, int local_rank, struct tool_cuda_device *ret_device);

/* Measures copies within the memory of the current device.
 *   ret_gbps   10^9 bytes read + written per second: best of a few rounds of copies beyond the L2
 *   ret_bytes  bytes of one copy
 *   Returns    0 | TT_CUDA          Blocks   a few ms */
int tool_cuda_device_copy_gbps(const struct tool_cuda_device *d, double *ret_gbps,
			       size_t *ret_bytes);

#endif
