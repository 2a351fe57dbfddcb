/* nccl_layer.h - declarations that the files of libnccl.so.2 share: handles, jobs, exports */
#ifndef TT_NCCL_LAYER_H
#define TT_NCCL_LAYER_H

#include <stdatomic.h>
#include <stdbool.h>

#include "api/nccl_support.h"
#include "nccl/nccl_abi.h"
#include "nccl/nccl_facts.h"
#include "tutti.h"

/* A call is exported under two names, as by NCCL: pncclX, and the weak ncclX, which a profiler may
 * replace. */
#define EXPORTED __attribute__((visibility("default")))
#define NCCL_CALL(type, name, ...)                                               \
	EXPORTED type p##name(__VA_ARGS__);                                      \
	EXPORTED type name(__VA_ARGS__) __attribute__((weak, alias("p" #name))); \
	EXPORTED type p##name(__VA_ARGS__)

/* The object behind a user's ncclComm_t. The object exists from the call that asks for a
 * communicator on, while the communicator may still be joining. The memory is of tt_handle_new, so
 * a call with a freed handle reads zeros. */
#define NC_MAGIC 0x6e63636cu
struct ncclComm {
	atomic_uint magic;          /* NC_MAGIC, 0: destroyed or aborted */
	_Atomic(tuttiComm_t) tutti; /* NULL until the join is complete */
	/* a ncclResult_t: ncclInProgress while jobs > 0, else the result of the last job */
	atomic_int state;
	bool blocking;

	/* under the lock of nccl_jobs.c */
	int jobs, users;       /* users: the handle, and each job */
	uint64_t begun, ended; /* splits and shrinks, which run one by one */
	bool aborted;
	char text[1024]; /* error text of state */
};

/* nccl_errors.c: the public result for a code; the error text is stored for ncclGetLastError in any
 * thread. */
ncclResult_t nccl_result(int code);
static inline int nccl_code(tuttiResult_t result)
{
	return -(int)result;
}

/* nccl_comms.c: is the handle usable by the named call? 0 | TT_ARG */
int nccl_comm_check(ncclComm_t comm, const char *call, tuttiComm_t *ret_tutti);
/* A new handle, in progress. NULL: tt_fail was called. */
ncclComm_t nccl_comm_new(bool blocking);
/* Stores a handle in the user's variable, which another thread may read, to poll or abort. */
static inline void nccl_comm_store(ncclComm_t *variable, ncclComm_t comm)
{
	__atomic_store_n(variable, comm, __ATOMIC_RELEASE);
}

/* nccl_config.c: the options in an ncclConfig_t of any version since 2.14; NULL: the defaults.
 * 0 | TT_ARG */
struct nccl_options {
	bool blocking;
	char name[64];
};
int nccl_config_read(const ncclConfig_t *config, struct nccl_options *ret_options);

/* nccl_environment.c: the values of NCCL_ variables, read once */
struct nccl_environment {
	int blocking;     /* NCCL_COMM_BLOCKING, -1: not set */
	const char *root; /* NCCL_COMM_ID or NULL */
	int timeout_ms;   /* for tuttiConfig_t: 0 where TUTTI_TIMEOUT_MS decides */
};
const struct nccl_environment *nccl_environment(void);

/* nccl_jobs.c: joins, splits, shrinks and finalizing, each in a thread of its own */
struct nccl_job {
	struct nccl_job *next;
	int (*run)(struct nccl_job *job); /* in the job's thread. 0 | code of tt_fail */
	/* either may be NULL. comm is in progress while the job runs, parent only if it is not
	 * blocking */
	ncclComm_t comm, parent;
	uint64_t ticket; /* order among the parent's jobs */
	/* the user's variable of comm, set to NULL when a blocking join fails; or NULL */
	ncclComm_t *variable;
	bool blocking;
	tuttiUniqueId id;
	int nranks, rank, color, key;
	int *excluded, nexcluded, flags; /* of a shrink; excluded is freed with the job */
	struct nccl_options options;
	void *context;    /* CUDA context of the job's thread, NULL: none */
	tuttiComm_t made; /* result of run */

	int result, references;
	bool done;
	char text[1024];
};
struct nccl_job *nccl_job_new(int (*run)(struct nccl_job *), ncclComm_t comm, ncclComm_t parent,
			      bool blocking);
/* Frees the jobs of a list that was never started, and their handles. */
void nccl_jobs_discard(struct nccl_job *first);
/* Starts all jobs of a list and waits for the blocking ones. Owns the jobs. 0 | 1: in progress |
 * code of the first failure */
int nccl_jobs_run(struct nccl_job *first);
/* Waits until no job runs on comm, or comm is aborted. */
void nccl_jobs_wait(ncclComm_t comm);
/* Invalidates the user's handle; false: already invalid. aborted: threads that wait for its jobs
 * stop waiting. */
bool nccl_comm_take(ncclComm_t comm, bool aborted, tuttiComm_t *ret_tutti);
/* Drops one user of the handle; the last one frees it. */
void nccl_comm_drop(ncclComm_t comm);

/* nccl_group.c: runs the job now, or at the end of this thread's group. */
ncclResult_t nccl_group_job(struct nccl_job *job);
/* The public result for a code; inside a group, the group fails too. */
ncclResult_t nccl_group_fail(int code);

/* nccl_device.c: the CUDA context of the caller, which a job's thread makes current; NULL: none */
void *nccl_context_of_caller(void);
int nccl_context_of_device(int device, void **ret_context);
void nccl_context_enter(void *context);
/* The stream of a call: for memory that CUDA knows, NULL means CUDA's default stream. */
tuttiStream_t nccl_stream(tuttiComm_t tutti, cudaStream_t stream, const void *in, const void *out);
bool nccl_on_device(const void *ptr);

#endif
