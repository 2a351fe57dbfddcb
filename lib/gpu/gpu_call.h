/*
 * gpu_call.h - collectives on device memory: what api's group.c calls, and what the files of it share
 *
 * Included as "gpu/gpu_call.h"; gpu/gpu.h has the record of the device.
 */
#ifndef TT_GPU_CALL_H
#define TT_GPU_CALL_H

#include "gpu/gpu.h"
#include "run/host_stream.h"
#include "run/staging.h"

/* gpu_call.c: requests of one stream (NULL, a host stream or a CUDA stream), of communicators of which
 * some have a device. Those on device memory, and all that go with a CUDA stream, are put on the
 * stream and run there in order; with a NULL stream this waits. 0 | what the call returns */
int tt_gpu_run(const struct tt_request *requests, size_t n, tuttiStream_t stream);

/* A buffer of a request, and whether a GPU must move it. */
struct tt_gpu_call {
	const struct tt_request *request;
	size_t in_bytes, out_bytes;
	struct tt_mem in, out;                 /* HOST: also where there is nothing */
	bool in_device, out_device;
	uint64_t in_id, out_id;                /* of allocations that may have a dma-buf; else 0 */
	bool gdr;                         /* cards read and write it where it lies */
};

/* gpu_staging.c makes it, gpu_pipeline.c moves it. staging.tiles_in: tiles of in on the host */
struct tt_pipeline {
	struct tt_staging staging;
	struct tt_gpu *d;
	char *stage_in, *stage_out;
	uint64_t in, out;               /* on the device; 0: nothing to copy */
	size_t in_bytes, out_bytes;
	uint32_t *word;                 /* number of tiles in, pinned, written by the device: */
	uint64_t word_at;               /* the same word for the device */
	uint32_t gone;                  /* tiles of out that were copied back */
	uint32_t group;                 /* tiles copied at a time */
	bool late, failed;              /* late: out is copied back at the end only */
};
extern const struct tt_staging_ops tt_pipeline_ops;

/* gpu_staging.c makes it, gpu_direct_rdma.c uses it. */
struct tt_gdr {
	struct tt_staging staging;
	struct tt_gpu *d;
	uint64_t in, in_end, out, out_end;     /* the call's buffers in device memory */
	bool dirty;                     /* NICs have written bytes that the device may not see yet */
	void *host;                     /* host copy of the buffers: the call took another path */
	bool failed;
};
extern const struct tt_staging_ops tt_gdr_ops;

/* gpu_job.c: the part of a job that is the same whichever way it runs;
 * algorithm: for the call's signature. */
void tt_gpu_job(const struct tt_gpu_call *call, uint8_t algorithm, struct tt_dev_job *ret_job);
/* What is missing where kernels meet; returns the number of blocks. */
uint32_t tt_gpu_job_meet(const struct tt_gpu_call *call, struct tt_dev_job *job);
tt_cufn tt_gpu_kernel(const struct tt_gpu *d, const struct tt_request *r,
		      const struct tt_dev_job *job);

/* gpu_streams.c. launch: any kernel; alone: one that meets nobody,
 * of as many blocks as its pieces are worth */
int tt_gpu_launch(struct tt_gpu *d, tt_cufn fn, uint32_t blocks, struct tt_dev_job *job,
		  tt_custream stream);
int tt_gpu_alone(const struct tt_request *request, struct tt_dev_job *job, tt_custream stream);
/* All ranks' streams come here before any goes on. word: where in a desk the peers' words are */
int tt_gpu_meet_streams(tuttiComm_t comm, size_t word, tt_custream stream);
/* Single stream operations: set a word; await 1 in one of this rank's and clear it (returns 2); put
 * them on a stream */
void tt_gpu_op_write(struct tt_cumemop *op, tt_cuptr at, uint32_t value);
unsigned tt_gpu_ops_take(struct tt_cumemop ops[2], tt_cuptr at);
int tt_gpu_batch(struct tt_gpu *d, unsigned n, struct tt_cumemop *ops, tt_custream stream);

/* gpu_ordered.c: kernels that meet nobody, between which streams wait for each other */
int tt_gpu_ordered(const struct tt_gpu_call *call, const struct tt_dev_job *job,
		   tt_custream stream);

/* gpu_program.c: a plan's steps in an order in which streams can run them. A wire's operand has the
 * message's place in its sender's area (the rank in ref, or for `to` this one) and its word on its
 * receiver's desk. */
struct tt_gpu_operand { tt_ref ref; uint32_t place, word; };
struct tt_gpu_act {
	bool combines;                         /* else copies */
	uint8_t nsrc;
	uint32_t nblocks;
	tt_ref of, dst;                        /* of: the block whose length counts */
	struct tt_gpu_operand src[TT_MAX_SOURCES], to;
};
struct tt_gpu_program {
	struct tt_gpu_program *next;           /* of the device's; freed with it */
	const struct tt_cached_plan *cached;
	uint32_t sent;                         /* blocks in the messages that this rank sends */
	/* blocks in messages and scratch of the rank that has most of them */
	uint32_t places;
	uint32_t nacts;
	struct tt_gpu_act acts[];
};
int tt_gpu_program(const struct tt_cached_plan *cached, const struct tt_topology *topology,
		   struct tt_gpu_program **ret_program);

/* gpu_plan.c: is this call to run by its plan; that plan, kept; run it */
bool tt_gpu_plan_takes(const struct tt_request *request);
int tt_gpu_plan_keep(const struct tt_request *request, const struct tt_gpu_program **ret_program);
int tt_gpu_plan(const struct tt_gpu_call *call, const struct tt_gpu_program *program,
		const struct tt_dev_job *job, tt_custream stream);

/* gpu_direct_rdma.c: can it? Sets the call's gdr. Its context is current. */
void tt_gdr_choose(struct tt_gpu_call *call);

/* gpu_staging.c: calls by the host's way, with copies from and to device memory around them, on a
 * CUDA stream */
int tt_gpu_stage(struct tt_gpu *d, const struct tt_gpu_call *calls, size_t n, tt_custream stream,
		    bool capturing);

#endif
