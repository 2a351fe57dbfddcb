/*
 * gpu.h - the GPU side of a communicator: this rank's device, the IPC buffers of all ranks, staging
 * buffers, the watchdog
 *
 * gpu_open.c opens and closes the state through the table of comm/accelerator.h; gpu_call.c gives
 * the device work; gpu_watchdog.c is its thread. A rank has a GPU side if a CUDA context is current
 * in the thread that joins. If every rank has one, all on one host, and each has read and written
 * the others' IPC buffers, all ranks agree on `kernels`. If all ranks are threads of one process, or no
 * two of them share a GPU, their kernels run at once and may wait for each other (`kernels_wait`); with
 * TUTTI_GPU=fifo they may in any case. The kernels of threads that share a GPU also read and write the
 * peers' buffers (`kernel_barrier`), except with TUTTI_GPU=fifo.
 * Otherwise streams order the kernels of the ranks. Fields without a lock belong to the thread inside a call.
 */
#ifndef TT_GPU_H
#define TT_GPU_H

#include <pthread.h>
#include <stdatomic.h>

#include "gpu/device_kernels.h"

struct tuttiComm;
struct tt_staging_buffer;
struct tt_gpu_program;

/* An IPC buffer and the host words of its rank, as mapped by a rank. */
struct tt_ipc_mapping {
	tt_cuptr at, words_at;           /* as the device accesses them */
	size_t bytes;                    /* to unmap; 0: of this process, not mapped anew */
	struct tt_dev_host_words *words; /* to unmap, if bytes */
};

struct tt_gpu {
	struct tuttiComm *comm;
	const struct tt_cuda *cu;
	tt_cuctx ctx;
	int device;
	tt_custream own;  /* stream of calls without a stream */
	tt_cuevent last;  /* recorded after the newest uncaptured call */
	bool has_last;    /* `last` has been recorded */
	bool staged_only; /* TUTTI_GPU=staged */
	bool fifo_only;   /* TUTTI_GPU=fifo */

	/* set by the exchange of the join, equal on all ranks */
	bool kernels;        /* all ranks map each other's IPC buffers */
	bool kernels_wait;   /* kernels of the ranks may wait for each other */
	bool kernel_barrier; /* and reach the buffers of all ranks */
	uint32_t devices;    /* of different UUIDs that the ranks use */
	enum tt_block_kind block_kind;
	uint32_t blocks; /* of a kernel that waits for peers, at most */

	/* set by the exchange, this rank's own */
	int reserved_blocks; /* of the device's */
	const struct tt_kernels *k;
	char refusal[256]; /* why this rank cannot use kernels, "": it can */
	struct tt_ipc_buffer *ipc;
	struct tt_ipc_mapping map[TT_DEV_RANKS]; /* every rank's IPC buffer */
	bool by_fd;                              /* IPC buffers are shared by descriptor */

	/* plans that have run on the device (gpu_plan.c), each one allocation */
	struct tt_gpu_program *programs;

	/* staging through pinned memory (gpu_staging.c) */
	tuttiStream_t host_stream;           /* runs the staged batches, NULL: not made yet */
	struct tt_staging_buffer *staging;   /* buffers in use or free, newest first */
	struct tt_staging_buffer *too_small; /* retired buffers, freed at close */
	atomic_uint_fast64_t overlaps;       /* half-copied inputs that were used; for tests */
	void *scalar; /* pinned, for an argument in device memory; NULL: not made yet */

	/* GPUDirect RDMA: NICs read and write device memory (gpu_direct_rdma.c) */
	enum { TT_GDR_UNKNOWN, TT_GDR_NO, TT_GDR_YES } gdr;
	bool flushes; /* RDMA writes must be flushed to be visible */
	/* for copies while a call runs, NULL: not made yet; a stream, and pinned memory */
	tt_custream copies;
	void *pinned;
	/* for tests and the log: calls by GPUDirect RDMA; calls that the NIC's driver refused;
	 * messages copied through host memory in spite of it; bytes that were staged */
	atomic_uint_fast64_t gdr_calls, refused, bounced, staged_bytes;

	/* watchdog (gpu_watchdog.c) */
	pthread_t thread;
	bool watched; /* the thread runs */
	pthread_mutex_t lock;
	pthread_cond_t work;
	bool started, stop;              /* under lock */
	bool asleep;                     /* under lock: until the next call */
	int start_code;                  /* under lock: CUDA's result of the thread's start */
	atomic_bool has_graphs;          /* a graph may be replayed unseen */
	atomic_uint_fast64_t newest_seq; /* sequence number of the newest call */
	atomic_bool enqueueing;          /* the newest call is being put on its stream */
	atomic_uint launched;            /* calls by kernels, those in graphs once */
};

/*
 * tt_gpu_priority_stream - make a stream of highest priority, for work that runs beside calls. A stream
 * that waits in the same connection holds up this stream too.
 *
 *   Returns   0 | the driver's code
 */
int tt_gpu_priority_stream(const struct tt_cuda *cu, tt_custream *ret_stream);
/* Connections of a process to a device (CUDA_DEVICE_MAX_CONNECTIONS). Thread: any */
int tt_gpu_connections(void);

/* The contracts of these are in comm/accelerator.h. */
int tt_gpu_fetch(struct tuttiComm *comm, void *to, const void *from, size_t bytes);
void *tt_gpu_context_of(struct tuttiComm *comm, const void *p);

/*
 * tt_gpu_settle - wait for all calls put on the device so far; where the device has failed, give up
 * staged calls that it will never start, so that their tickets are released
 *
 *   Blocks   until the calls have ended
 */
void tt_gpu_settle(struct tuttiComm *comm);

/*
 * tt_gpu_refuse - reject device memory for a call that takes host memory only
 *
 *   call      name of the call, for the error
 *   Returns   0 | TT_ARG (p is device memory) | TT_CUDA
 */
int tt_gpu_refuse(struct tuttiComm *comm, const char *call, const void *p);

/*
 * tt_gpu_read - copy a scalar argument that may lie in CUDA memory
 *
 *   from      [bytes]; CUDA memory is read after the work that is on `stream` so far
 *   stream    of the call that uses the scalar
 *   Returns   0 | TT_CUDA | TT_USAGE (CUDA memory, and the stream is being captured)
 *   Blocks    CUDA memory: until the stream has come so far
 */
int tt_gpu_read(struct tuttiComm *comm, void *to, const void *from, size_t bytes,
		tuttiStream_t stream);

/* gpu_direct_rdma.c: make the stream and the memory for copies while calls run. 0 | TT_CUDA */
int tt_gdr_prepare(struct tt_gpu *d);
/* Copies between memory of the host and of the device, by these. 0 | the driver's code
 *   Thread    the one that runs the call     Blocks   until the copy is done */
int tt_gdr_copy(struct tt_gpu *d, void *host, tt_cuptr device, size_t bytes, bool to_device);

/* gpu_plan.c: free all programs of the device */
void tt_gpu_programs_free(struct tt_gpu *d);

/* gpu_staging.c. close: wait for staged calls and free all staging buffers. release_tickets: after
 * a failure of the device (the driver's code), run the batches that CUDA will never call, so that
 * they release their tickets and the calls behind them go on; the communicator breaks. take_failure:
 * break the communicator if its device has failed; thread: any */
void tt_gpu_staging_close(struct tt_gpu *d);
void tt_gpu_take_failure(struct tuttiComm *comm);
void tt_gpu_release_tickets(struct tt_gpu *d, int driver_code);

/* gpu_watchdog.c: start (0 | TT_SYSTEM | TT_CUDA) and end the watchdog thread. take_report: break
 * the communicator if a kernel has reported a failure that the thread has not seen yet. Thread: any */
int tt_gpu_watch(struct tt_gpu *d);
void tt_gpu_unwatch(struct tt_gpu *d);
void tt_gpu_take_report(struct tuttiComm *comm);

/* ipc_buffer.c: device memory and host words of one rank that its peers map. Thread: any. */
struct tt_ipc_buffer {
	struct tt_ipc_buffer *next;
	enum { TT_IPC_BUFFER_USED, TT_IPC_BUFFER_UNUSED, TT_IPC_BUFFER_RETIRED } use;
	tt_cuctx ctx;
	uint64_t ctx_id;
	int device;
	tt_cuptr at;
	size_t bytes;
	struct tt_cuipc handle;
	bool shareable; /* handle is valid */
	int fd;         /* descriptor of the memory, -1: none */
	struct tt_dev_host_words *words;
	tt_cuptr words_at; /* as the device accesses them */
	int words_fd;
};
/* Takes an unused buffer of this context or allocates one. The host words are zero; `stream` zeroes the
 * signal words. 0 | TT_CUDA | TT_SYSTEM */
int tt_ipc_buffer_take(const struct tt_cuda *cu, tt_cuctx ctx, int device, bool by_fd,
		       tt_custream stream, struct tt_ipc_buffer **ret_buffer);
/* Returns a buffer for the next communicator. */
void tt_ipc_buffer_give(struct tt_ipc_buffer *buffer);
/* Returns a buffer that is never used again, because a peer may still write into it. */
void tt_ipc_buffer_retire(struct tt_ipc_buffer *buffer);
/* The record by which peers map a buffer; sent in an exchange among all ranks. */
struct tt_ipc_record {
	uint64_t process, at, ctx, bytes, words;
	int32_t device;
	uint32_t ok;
	struct tt_cuipc handle;
};
void tt_ipc_buffer_describe(const struct tt_ipc_buffer *buffer, struct tt_ipc_record *ret_record);
/* Descriptors of a rank that is another process: of its host words; of its buffer if by_fd, else -1 */
struct tt_ipc_fds {
	int words, buffer;
};
/* Maps a peer's buffer and host words. 0 | TT_SYSTEM | TT_CUDA (also for a record with impossible values) */
int tt_ipc_buffer_map(const struct tt_cuda *cu, int device, const struct tt_ipc_record *record,
		      bool by_fd, struct tt_ipc_fds fds, struct tt_ipc_mapping *ret_map);
void tt_ipc_buffer_unmap(const struct tt_cuda *cu, struct tt_ipc_mapping *map, bool by_fd);
/* A random identifier of this process. */
uint64_t tt_ipc_buffer_process(void);

/* ipc_words.c: make: host words of this rank, with a descriptor; open: map a peer's; close: end a mapping. 0 |
 * TT_SYSTEM | TT_CUDA */
int tt_ipc_words_make(const struct tt_cuda *cu, int *ret_fd, struct tt_dev_host_words **ret_words,
		      tt_cuptr *ret_at);
int tt_ipc_words_open(const struct tt_cuda *cu, int fd, struct tt_dev_host_words **ret_words,
		      tt_cuptr *ret_at);
void tt_ipc_words_close(const struct tt_cuda *cu, struct tt_dev_host_words *words);

/* ipc_fd.c: CUDA's virtual memory. make: memory of the current device, with a descriptor; open: map
 * a peer's; access: let another device of this process access a mapping; unmap: end a mapping.
 * All return 0 | the driver's code. */
int tt_vmm_make(const struct tt_cuda *cu, size_t least, size_t *ret_bytes, int *ret_fd,
		tt_cuptr *ret_at);
int tt_vmm_open(const struct tt_cuda *cu, int device, int fd, size_t bytes, tt_cuptr *ret_at);
int tt_vmm_access(const struct tt_cuda *cu, int device, tt_cuptr at, size_t bytes);
void tt_vmm_unmap(const struct tt_cuda *cu, tt_cuptr at, size_t bytes);

/* ipc_fd.c: the exchange of descriptors among ranks. All ranks open a socket and send each other
 * its address; each sends its descriptors; after a second exchange (a barrier) each collects. open,
 * send: 0 | TT_SYSTEM */
struct tt_fd_address {
	uint64_t name, token;
};
struct tt_fd_exchange {
	int socket;
	struct tt_fd_address address;
	struct tt_ipc_fds of[TT_DEV_RANKS];
};
int tt_fd_exchange_open(struct tt_fd_exchange *exchange);
int tt_fd_exchange_send(int rank, int peer, const struct tt_fd_address *to, struct tt_ipc_fds fds);
void tt_fd_exchange_collect(struct tt_fd_exchange *exchange);
void tt_fd_exchange_close(struct tt_fd_exchange *exchange);

#endif
