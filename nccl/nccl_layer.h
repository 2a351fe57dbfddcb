/* nccl_layer.h - what the files of libnccl.so.2 share: the handle, and how a call is exported */
#ifndef TT_NCCL_LAYER_H
#define TT_NCCL_LAYER_H

#include <stdatomic.h>
#include <stdbool.h>

#include "base/base.h"
#include "nccl/nccl_abi.h"
#include "nccl/nccl_facts.h"
#include "tutti.h"

/* A call is exported twice, as with the original:
 * pncclX, and the weak ncclX, which a profiler may replace. */
#define EXPORTED __attribute__((visibility("default")))
#define NCCL_CALL(type, name, ...)							\
	EXPORTED type p##name(__VA_ARGS__);						\
	EXPORTED type name(__VA_ARGS__) __attribute__((weak, alias("p" #name)));	\
	EXPORTED type p##name(__VA_ARGS__)

/* What a user's ncclComm_t points to. It exists from the call that asks for a communicator, which
 * may still be joining. Memory of tt_handle_new: whoever uses a handle too late reads zeros. */
#define NC_MAGIC 0x6e63636cu
struct ncclComm {
	atomic_uint magic;                 /* 0: gone */
	_Atomic(tuttiComm_t) tutti;        /* NULL until it has joined */
	/* a ncclResult_t: ncclInProgress while jobs > 0, else how the last job ended */
	atomic_int state;
	bool blocking;

	/* under the lock of nccl_jobs.c */
	int jobs, users;                   /* users: the handle, and each job */
	uint64_t begun, ended;             /* splits and shrinks of it, one after the other */
	bool aborted;
	char text[1024];                   /* why state is an error */
};

/* nccl_errors.c: the code for the user; the sentence behind it
 * is kept for ncclGetLastError in any thread. */
ncclResult_t nccl_result(int code);
static inline int nccl_code(tuttiResult_t result) { return -(int)result; }

/* nccl_comms.c: a handle that works, for the call that is named. 0 | TT_ARG */
int nccl_comm_check(ncclComm_t comm, const char *call, tuttiComm_t *ret_tutti);
ncclComm_t nccl_comm_new(bool blocking);     /* joining; NULL with a sentence */
/* The user's variable: another thread may look at it, for a handle to ask or to abort. */
static inline void nccl_place(ncclComm_t *place, ncclComm_t comm)
{
	__atomic_store_n(place, comm, __ATOMIC_RELEASE);
}

/* nccl_config.c: the options of an ncclConfig_t of any version since 2.14, NULL: the defaults.
 * 0 | TT_ARG */
struct nccl_options {
	bool blocking;
	char name[64];
};
int nccl_config_read(const ncclConfig_t *config, struct nccl_options *ret_options);

/* nccl_environment.c: what NCCL_ variables mean here; looked at once */
struct nccl_environment {
	int blocking;                      /* NCCL_COMM_BLOCKING, -1: not set */
	const char *root;                  /* NCCL_COMM_ID or NULL */
	int timeout_ms;                    /* for tuttiConfig_t: 0 where TUTTI_TIMEOUT_MS decides */
};
const struct nccl_environment *nccl_environment(void);

/* nccl_jobs.c: joins, splits and what else may run behind the caller, each in a thread of its own */
struct nccl_job {
	struct nccl_job *next;
	int (*run)(struct nccl_job *job);    /* in its thread. 0 | code with the sentence */
	/* either may be NULL; in progress meanwhile, a parent only behind its caller */
	ncclComm_t comm, parent;
	uint64_t turn;                     /* among the parent's */
	/* of comm's handle: set to NULL when a blocking join fails; or NULL */
	ncclComm_t *place;
	bool blocking;
	tuttiUniqueId id;
	int nranks, rank, color, key;
	int *excluded, nexcluded, flags;   /* of a shrink; excluded is freed with the job */
	struct nccl_options options;
	void *context;                     /* nccl_device.c's */
	tuttiComm_t made;                  /* by run */

	int result, holders;
	bool done;
	char text[1024];
};
struct nccl_job *nccl_job_new(int (*run)(struct nccl_job *), ncclComm_t comm, ncclComm_t parent,
			  bool blocking);
/* One that is never started. */
void nccl_job_discard(struct nccl_job *job);
/* Starts all and waits for the blocking ones; takes them. 0 | 1: in progress | the first failure */
int nccl_jobs_run(struct nccl_job *first);
/* Waits until nothing runs on comm. */
void nccl_jobs_wait(ncclComm_t comm);
/* Takes the handle away from its user; false: it has none. Whoever waits for its jobs stops waiting
 * when aborted. */
bool nccl_comm_take(ncclComm_t comm, bool aborted, tuttiComm_t *ret_tutti);
void nccl_comm_drop(ncclComm_t comm);    /* one user less */

/* nccl_group.c: runs the job now, or when the group of this thread ends. */
ncclResult_t nccl_group_job(struct nccl_job *job);
/* An error inside a group makes the group fail. */
ncclResult_t nccl_group_fail(int code);

/* nccl_device.c: the CUDA context of the caller, to be made current in a job's thread; NULL: none */
void *nccl_context_of_caller(void);
int nccl_context_of_device(int device, void **ret_context);
void nccl_context_enter(void *context);
/* What the stream of a call is: with CUDA,
 * NULL is the default stream for memory that CUDA knows. */
tuttiStream_t nccl_stream(tuttiComm_t tutti, cudaStream_t stream, const void *in, const void *out);
bool nccl_on_device(const void *ptr);

#endif
