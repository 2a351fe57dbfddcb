/*
 * gpu.h - collectives on device memory: what api's group.c calls, and what the files of it share
 *
 * Included as "run/gpu.h"; comm/gpu.h has the record of the device.
 */
#ifndef TT_RUN_GPU_H
#define TT_RUN_GPU_H

#include "comm/gpu.h"
#include "run/stream.h"

/* gpu.c: requests of one stream (NULL, a host stream or a CUDA stream), of communicators of which some have a
 * device. Those on device memory, and all that go with a CUDA stream, are put on the stream and run there in order; with a
 * NULL stream this waits. 0 | what the call returns */
int tt_gpu_run(const struct tt_request *requests, size_t n, tuttiStream_t stream);

/* A buffer of a request, and whether a GPU must move it. */
struct tt_gpu_call {
	const struct tt_request *request;
	size_t in_bytes, out_bytes;
	bool in_device, out_device;
};

/* gpu_job.c: fills the job for a call whose kernels meet (returns blocks) and the constant part of every job. */
void tt_gpu_job(const struct tt_gpu_call *call, struct tt_dev_job *ret_job);
uint32_t tt_gpu_job_meet(const struct tt_gpu_call *call, struct tt_dev_job *job);
tt_cufn tt_gpu_kernel(const struct tt_gpu *d, const struct tt_request *r, const struct tt_dev_job *job);

/* gpu_ordered.c: the same for processes: jobs that meet nobody, between which streams wait for each other */
int tt_gpu_ordered(const struct tt_gpu_call *call, tt_custream stream);
int tt_gpu_launch(struct tt_gpu *d, tt_cufn fn, uint32_t blocks, struct tt_dev_job *job, tt_custream stream);

/* gpu_stage.c: calls by the host's way, with copies from and to device memory around them, on a CUDA stream */
int tt_gpu_stage(struct tt_gpu *d, const struct tt_gpu_call *calls, size_t n, tt_custream stream,
		    bool capturing);

#endif
