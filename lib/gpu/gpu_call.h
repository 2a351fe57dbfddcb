/*
 * gpu_call.h - collectives on device memory: the entry for api (group.c), and the steps that the
 * files of lib/gpu share
 *
 * gpu.h has the state of the device.
 */
#ifndef TT_GPU_CALL_H
#define TT_GPU_CALL_H

#include "gpu/gpu.h"
#include "run/host_stream.h"
#include "run/staging.h"

/*
 * tt_gpu_run - run requests of one stream, on device or host memory (gpu_call.c)
 *
 *   requests   [n], of communicators of which at least one has a GPU side
 *   stream     NULL, a host stream or a CUDA stream
 *   Returns    0 | the codes of the public call
 *   Blocks     NULL stream: until the requests are done. CUDA stream: no; requests on device
 *              memory, and all requests with a CUDA stream, are enqueued and run in stream order
 */
int tt_gpu_run(const struct tt_request *requests, size_t n, tuttiStream_t stream);
/* The same for a group's requests of several CUDA streams: they run on the first one, which waits for the
 * others, and the others wait for it. TT_ARG also for streams of different kinds. */
int tt_gpu_run_joined(const struct tt_request *requests, size_t n);

/* gpu_call.c: a call failed with this thread's last error. Breaks the communicator, also for the
 * other ranks, which wait for this rank otherwise. Returns code. */
int tt_gpu_failed(tuttiComm_t comm, int code);

/* A request, and the kind of memory of its buffers. */
struct tt_gpu_call {
	const struct tt_request *request;
	size_t in_bytes, out_bytes;
	struct tt_mem in, out;      /* TT_MEM_HOST also for an absent buffer */
	bool in_device, out_device; /* the buffer is device memory */
	uint64_t in_id, out_id;     /* allocations that may have a dma-buf, else 0 */
	bool gdr;                   /* NICs read and write the buffers in place */
};

/* Groups of the input that are in the staging buffer, written by the stream; groups of the output that are
 * final, for which the stream waits */
struct tt_pipeline_words {
	uint32_t in, out;
};

/* Pipelined staging of one request: gpu_staging.c makes it, gpu_pipeline.c enqueues its copies and serves
 * run. staging.tiles_in: tiles of the input that are in the staging buffer */
struct tt_pipeline {
	struct tt_staging staging;
	struct tt_gpu *d;
	char *stage_in, *stage_out; /* staging buffers of the request */
	uint64_t in, out;           /* device addresses; 0: nothing to copy */
	size_t in_bytes, out_bytes;
	/* a group of copies: the next `step` bytes of each part of `part` bytes, of the buffer */
	size_t part, step;
	uint32_t groups;                 /* 0: the request has no pipeline */
	struct tt_pipeline_words *words; /* pinned */
	uint64_t words_at;               /* as the device sees them */
	bool late;                       /* outputs are final at the end only */
	uint32_t polls;                  /* for tiles that were not in place */
};
extern const struct tt_staging_ops tt_pipeline_ops;
/* Chooses the parts and groups of copies of a request with large buffers. calls: of its batch */
void tt_pipeline_cut(struct tt_pipeline *g, const struct tt_request *r, size_t calls);
/* Puts the copies of inputs on the stream; the copies of outputs, each behind a wait for its group. 0 | the
 * driver's code */
int tt_pipeline_enqueue_inputs(const struct tt_pipeline *g, tt_custream stream);
int tt_pipeline_enqueue_outputs(const struct tt_pipeline *g, tt_custream stream);
/* Before the stream copies: no group is in place. After the call: the stream waits no more. */
void tt_pipeline_reset(struct tt_pipeline *g);
void tt_pipeline_release(struct tt_pipeline *g);

/* GPUDirect RDMA of one request: gpu_staging.c makes it, gpu_direct_rdma.c runs it. */
struct tt_gdr {
	struct tt_staging staging;
	struct tt_gpu *d;
	uint64_t in, in_end, out, out_end; /* the request's ranges of device memory */
	bool dirty;                        /* RDMA writes that were not flushed yet */
	void *host;                        /* host copy, for a path without GPUDirect RDMA */
	bool failed;
};
extern const struct tt_staging_ops tt_gdr_ops;

/* gpu_job.c. job: the part of a kernel's job that does not depend on the way the call runs;
 * algorithm: for the signature of the call. */
void tt_gpu_job(const struct tt_gpu_call *call, uint8_t algorithm, struct tt_dev_job *ret_job);
/* Does each rank's input have a part for every rank? */
bool tt_gpu_has_parts(const struct tt_request *r);
/* Does the call run by the LL protocol? Equal on all ranks. */
bool tt_gpu_job_is_small(const struct tt_gpu_call *call, const struct tt_dev_job *job);
/* The steps and the chunk of a call by FIFO. bytes: of the call's count; limit: of blocks. Returns the
 * number of blocks. */
uint32_t tt_gpu_fifo_shape(enum tt_collective collective, uint64_t bytes, uint32_t nranks,
			   uint32_t limit, struct tt_dev_fifo *ret_shape);
/* Completes the job of a kernel that waits for its peers: by LL, barriers or FIFO. Returns the number of blocks,
 * equal on all ranks. */
uint32_t tt_gpu_job_barrier(const struct tt_gpu_call *call, struct tt_dev_job *job);
/* The kernel for a job: of the request's type where it reduces, else of bytes. */
tt_cufn tt_gpu_kernel(const struct tt_gpu *d, const struct tt_request *r,
		      const struct tt_dev_job *job);

/* gpu_streams.c; all return 0 | TT_CUDA. launch: any kernel; launch_alone: a kernel that waits for
 * no peer, with a block for each PER_THREAD * TT_DEV_THREADS bytes */
int tt_gpu_launch(struct tt_gpu *d, tt_cufn fn, uint32_t blocks, struct tt_dev_job *job,
		  tt_custream stream);
int tt_gpu_launch_alone(const struct tt_request *request, struct tt_dev_job *job,
			tt_custream stream);
/* A barrier among the streams of all ranks, in two halves. signal: a job sets the word of this rank at
 * each peer when it is done; await_signals: makes the stream wait for the words of all peers, which it
 * resets. word: TT_DEV_ARRIVED, BETWEEN or FINISHED. await: the same for n different words, at
 * most TT_DEV_RANKS */
void tt_gpu_signal(struct tt_dev_job *job, uint32_t word);
int tt_gpu_await_signals(tuttiComm_t comm, uint32_t word, tt_custream stream);
int tt_gpu_await(struct tt_gpu *d, const struct tt_dev_awaited *words, uint32_t n,
		 tt_custream stream);
/* An operation for a batch: set 32 bits */
void tt_gpu_op_write(struct tt_cumemop *op, tt_cuptr at, uint32_t value);

/* gpu_ordered.c: run a call by kernels that wait for no peer; streams wait between them. 0 |
 * TT_CUDA */
int tt_gpu_run_ordered(const struct tt_gpu_call *call, const struct tt_dev_job *job,
		       tt_custream stream);

/* gpu_program.c: the steps of a plan in an order in which streams can run them. A message has a
 * slot in the IPC buffer of its sender (the rank in ref; for `to` this rank) and a word among the
 * host words of its receiver. */
struct tt_gpu_operand {
	tt_ref ref;
	uint32_t slot, word;
};
struct tt_gpu_act {
	bool combines; /* else copies */
	uint8_t nsrc;
	uint32_t nblocks;
	tt_ref of, dst; /* of: the block whose length counts */
	struct tt_gpu_operand src[TT_MAX_SOURCES], to;
};
struct tt_gpu_program {
	struct tt_gpu_program *next;         /* of the device's; freed with the device's state */
	const struct tt_cached_plan *cached; /* the plan that the program was made from */
	uint32_t sent;                       /* blocks in the messages that this rank sends */
	/* blocks in messages and scratch of the rank that has most of them */
	uint32_t slots;
	uint32_t nacts;
	struct tt_gpu_act acts[];
};
/* 0 | TT_SYSTEM | TT_USAGE (too many messages) | TT_INTERNAL (the plan deadlocks) */
int tt_gpu_program_make(const struct tt_cached_plan *cached, const struct tt_topology *topology,
			struct tt_gpu_program **ret_program);

/* gpu_plan.c. takes: must this call run by its plan, since kernels would sum in another order?
 * program: the plan's program, made at the first call. run_plan: put the call on the stream. */
bool tt_gpu_plan_takes(const struct tt_request *request);
int tt_gpu_plan_program(const struct tt_request *request,
			const struct tt_gpu_program **ret_program);
int tt_gpu_run_plan(const struct tt_gpu_call *call, const struct tt_gpu_program *program,
		    const struct tt_dev_job *job, tt_custream stream);

/* gpu_direct_rdma.c: sets call->gdr if NICs can read and write the call's device memory. The
 * device's context is current. */
void tt_gdr_choose(struct tt_gpu_call *call);

/* gpu_staging.c: put calls on a CUDA stream that run on the host, with copies from and to device
 * memory around them. 0 | TT_CUDA | TT_SYSTEM */
int tt_gpu_run_staged(struct tt_gpu *d, const struct tt_gpu_call *calls, size_t n,
		      tt_custream stream, bool capturing);

#endif
