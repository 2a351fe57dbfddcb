/*
 * gpu.h - a communicator's GPU side: the device of this rank, the areas of all ranks, and who
 * watches over them
 *
 * gpu_open.c opens and closes it, gpu_watchdog.c is its thread; run (gpu*.c) gives it work. A rank that
 * joins while a CUDA context is current in its thread has one. Where every rank has one, all on one
 * host, and each can really read and write the others' areas, `kernels` is set: an agreed fact.
 * `meets`: all ranks are threads of this process, so their kernels run at once and may wait for
 * each other; else streams order them.
 */
#ifndef TT_GPU_H
#define TT_GPU_H

#include <pthread.h>
#include <stdatomic.h>

#include "gpu/device_kernels.h"

struct tuttiComm;
struct tt_staged;
struct tt_gpu_program;

struct tt_gpu {
	struct tuttiComm *comm;
	const struct tt_cuda *cu;
	tt_cuctx ctx;
	int device;
	tt_custream own;                       /* for calls without a stream */
	tt_cuevent last;                       /* after the newest one that was not captured */
	bool any;                              /* there is one */
	bool staged_only;                      /* TUTTI_GPU=staged */

	/* agreed, from joining on */
	bool kernels, meets, apart;            /* apart: ranks are on several devices */
	uint32_t blocks;                       /* of a rank whose kernels meet others', at most */
	int holds;                             /* of the device's */
	const struct tt_kernels *k;
	struct tt_ipc_buffer *area;
	tt_cuptr at[TT_DEV_RANKS];             /* of every rank, as it is seen here */
	size_t opened[TT_DEV_RANKS];           /* bytes that are to be closed, 0: none */
	bool by_fd;                            /* areas come by descriptor: IPC was refused */

	/* plans that have run on it (gpu/gpu_plan.c), each in one piece of memory */
	struct tt_gpu_program *programs;
	void (*free_programs)(struct tt_gpu_program *first);

	/* staging (gpu/gpu_staging.c) */
	void *worker;                          /* of tuttiStreamCreate's kind, NULL: not yet */
	struct tt_staged *staged, *too_small;
	tt_custream copies_in, copies_out;     /* its: to and from stages; NULL: not yet */
	atomic_uint_fast64_t overlaps;         /* inputs of which a part was seen; for tests */
	void (*close_stages)(struct tt_gpu *d);
	void (*give_turns)(struct tt_gpu *d, int trouble);     /* the device failed */

	/* past the stages: cards read and write device memory (gpu/gpu_direct_rdma.c) */
	enum { TT_GDR_UNKNOWN, TT_GDR_NO, TT_GDR_YES } gdr;
	bool flushes;                          /* what cards wrote must be made visible */
	/* for tests and the log: calls that went gdr, and that would have but for a refusal;
	 * their messages that had to be copied after all; bytes that were staged */
	atomic_uint_fast64_t gdr_calls, refused, bounced, staged_bytes;

	/* watching */
	pthread_t thread;
	bool watched;                          /* the thread runs */
	pthread_mutex_t lock;
	pthread_cond_t work;
	bool started, stop;                    /* under lock */
	int start_code;                        /* under lock: what CUDA said to its start */
	/* some operation is in a graph: it may run unseen at any time */
	atomic_bool captured;
	atomic_uint_fast64_t given;            /* sequence number of the newest operation */
	atomic_bool enters;                    /* it is still being put on its stream */
};

/* The context in which a rank joins: its caller's, also where other threads do the joining. NULL:
 * no CUDA, or none. 0 | TT_CUDA */
int tt_gpu_context(tt_cuctx *ret_ctx);
/* Around calls of the driver: makes ctx current, and a capture by somebody else none of our
 * business: the driver would refuse whatever does more than put something on a stream, and spoil
 * the capture. leave takes what enter returned, and undoes both. Nothing for NULL. */
int tt_gpu_enter(tt_cuctx ctx);
void tt_gpu_leave(tt_cuctx ctx, int entered);

/* A stream for what must get through while others wait: nothing that waits may be put on it. */
int tt_gpu_stream_before(const struct tt_cuda *cu, tt_custream *ret_stream);

/* This rank's part, before the others are asked: comm->gpu, or NULL where no context is current. 0
 * | TT_CUDA */
int tt_gpu_open(struct tuttiComm *comm, const struct tt_env *env);
/* Collective, where every rank has one: meet the others. What fails is no error: then there are no
 * kernels. 0 | < 0 */
int tt_gpu_meet(struct tuttiComm *comm);
/* Waits for what it was given, which ends at once when the communicator is broken. */
void tt_gpu_close(struct tuttiComm *comm);
/* 0 | TT_ARG: p lies in device memory, which call does not take. */
int tt_gpu_refuse(struct tuttiComm *comm, const char *call, const void *p);
/* Waits for what was given to it so far; what a device that failed will never do is given up. */
void tt_gpu_settle(struct tuttiComm *comm);
/* The context in which to ask about p, if that is device memory; else NULL. */
tt_cuctx tt_gpu_context_of(struct tuttiComm *comm, const void *p);
/* Copies bytes that may lie in device memory, as they are. 0 | TT_CUDA */
int tt_gpu_fetch(struct tuttiComm *comm, void *to, const void *from, size_t bytes);
/* Copies a number that a call on `stream` takes and that may lie in CUDA's memory: there it is what
 * the stream makes of it, which is waited for. 0 | TT_CUDA | TT_USAGE (the stream is captured) */
int tt_gpu_read(struct tuttiComm *comm, void *to, const void *from, size_t bytes,
		tuttiStream_t stream);

/* gpu_watchdog.c: there is work to watch */
int tt_gpu_watch(struct tt_gpu *d);
void tt_gpu_unwatch(struct tt_gpu *d);

/* lib/gpu/ipc_buffer.c: areas. take: an unused one of this context, zeroed by stream; give: for
 * the next one. */
struct tt_ipc_buffer {
	struct tt_ipc_buffer *next;
	enum { TT_IPC_BUFFER_USED, TT_IPC_BUFFER_UNUSED, TT_IPC_BUFFER_LOST } use;
	tt_cuctx ctx;
	int device;
	tt_cuptr at;
	size_t bytes;
	struct tt_cuipc handle;
	bool shareable;                        /* handle is there */
	int fd;                                /* or this, -1: no */
	struct tt_dev_report *report;
	tt_cuptr report_at;
};
int tt_ipc_buffer_take(const struct tt_cuda *cu, tt_cuctx ctx, int device, bool by_fd,
		 tt_custream stream, struct tt_ipc_buffer **ret_area);
void tt_ipc_buffer_give(struct tt_ipc_buffer *area);
/* The same for one that is never to be used again, because a peer may still write into it. */
void tt_ipc_buffer_lose(struct tt_ipc_buffer *area);
/* How peers come to it: told in an exchange among all ranks. */
struct tt_ipc_record {
	uint64_t process, at, ctx, bytes;
	int32_t device;
	uint32_t ok;
	struct tt_cuipc handle;
};
void tt_ipc_buffer_describe(const struct tt_ipc_buffer *area, struct tt_ipc_record *ret_card);
/* A pointer to a peer's area; *ret_opened: bytes to be closed by tt_ipc_buffer_shut, 0: none. fd: of the
 * peer's area if areas are shared so, else -1. 0 | TT_CUDA, also of a card that cannot be */
int tt_ipc_buffer_reach(const struct tt_cuda *cu, int device, const struct tt_ipc_record *card, bool by_fd,
		  int fd, tt_cuptr *ret_at, size_t *ret_opened);
void tt_ipc_buffer_shut(const struct tt_cuda *cu, tt_cuptr at, size_t opened, bool by_fd);
uint64_t tt_ipc_buffer_process(void);                /* of this process; others have another */

/* lib/gpu/ipc_fd.c. Memory of the current device that has a descriptor; somebody else's; for
 * another device of the process too; away with the mapping. Driver's codes. */
int tt_vmm_make(const struct tt_cuda *cu, size_t least, size_t *ret_bytes, int *ret_fd,
		tt_cuptr *ret_at);
int tt_vmm_open(const struct tt_cuda *cu, int device, int fd, size_t bytes, tt_cuptr *ret_at);
int tt_vmm_access(const struct tt_cuda *cu, int device, tt_cuptr at, size_t bytes);
void tt_vmm_unmap(const struct tt_cuda *cu, tt_cuptr at, size_t bytes);

/* Where descriptors of all ranks come together. Cards are told in an exchange; after a second one
 * all were sent. 0 | < 0 */
struct tt_fd_address { uint64_t name, token; };
struct tt_fd_exchange { int socket; struct tt_fd_address card; int fd[TT_DEV_RANKS]; };
int tt_fd_exchange_open(struct tt_fd_exchange *box);
int tt_fd_exchange_send(const struct tt_fd_exchange *box, int rank, const struct tt_fd_address *to, int fd);
void tt_fd_exchange_collect(struct tt_fd_exchange *box);
void tt_fd_exchange_close(struct tt_fd_exchange *box);

#endif
