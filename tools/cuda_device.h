/*
 * cuda_device.h - the GPU that a tool's rank uses: what --device says, and a context on it
 *
 * Called by the benchmarks and by tutti-train. A communicator has a device if a context is current
 * when it is made.
 */
#ifndef TOOL_CUDA_DEVICE_H
#define TOOL_CUDA_DEVICE_H

#include "gpu/cuda.h"

struct tool_cuda_device {
	const struct tt_cuda *cu;              /* NULL: host memory */
	tt_cuctx ctx;
	int ordinal;                           /* the driver's number */
	int devices;                           /* on this host */
	struct tt_cuuuid uuid;
	char name[64], pci[20];
};

/* "cuda" (ret_ordinal -1: the driver's number is the rank's on this host, modulo) or "cuda:N".
 * false: something else */
bool tool_cuda_device_parse(const char *text, int *ret_ordinal);

/* Before CUDA starts: as many connections to the device
 * as ranks of one process may need streams. */
void tool_cuda_device_prepare(void);

/* Starts CUDA, not to be followed by fork, and makes a context
 * of the device current in the calling thread.
 * 0 | TT_CUDA: there is no CUDA, or no such device. Blocks: the driver's start, some 100 ms. */
int tool_cuda_device_take(int ordinal, int local_rank, struct tool_cuda_device *ret_device);

/* What the current device copies within its memory, in 10^9 bytes read + written per second: the
 * best of a few rounds of copies that are too large for its cache. *ret_bytes: of one copy. 0 |
 * TT_CUDA. Blocks: some ms. */
int tool_cuda_device_copy_gbps(const struct tool_cuda_device *d, double *ret_gbps, size_t *ret_bytes);

#endif
