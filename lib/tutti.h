/*
 * tutti.h - collective communication: combine and move arrays between the ranks of a communicator
 *
 * The one installed header; its comments are the contract. The shapes are NCCL's with the prefix
 * changed, so a program is ported by replacing `nccl` with `tutti`. Beyond NCCL: host memory, ranks
 * that are threads of one process, deadlines, and errors in words (tuttiGetLastError).
 *
 * Words   rank, nranks: position in, and size of, a communicator. count: elements, not bytes,
 *         unless said.
 * Memory  host memory of any alignment. In place means sendbuff == recvbuff, except where a call
 *         says otherwise; buffers that overlap partly are refused (tuttiInvalidArgument). A rank
 *         that joins while a CUDA context is current in its thread may also give memory of that
 *         device (cuMemAlloc, managed, virtual).
 * Streams NULL: the call returns when the operation is complete here. A stream of
 *         tuttiStreamCreate: the call returns at once, the operation runs behind the caller in call
 *         order, tuttiStreamSynchronize waits. A CUDA stream, on a rank with a device: the call
 *         returns at once, the operation runs when the stream comes to it, and may be captured into
 *         a graph, on all ranks alike. (void *)1 is CUDA's default stream.
 * Calls   every rank of a communicator makes the same collective calls in the same order with the
 *         same count, datatype, op and root. Differences are found and become tuttiInvalidUsage on
 *         every rank, not a hang.
 * Errors  every function returns a tuttiResult_t. After tuttiRemoteError, tuttiTimeout or
 *         tuttiInvalidUsage out of a collective the communicator is broken: every later call on it
 *         returns the same error, and only tuttiCommShrink, messages, tuttiCommAbort and
 *         tuttiCommDestroy remain. sendbuff is intact (out of place), recvbuff is undefined.
 * Threads different communicators: any threads at once. One communicator: one caller at a time,
 *         but tuttiCommAbort, tuttiCommGetAsyncError and tuttiGetLastError: from any thread.
 * Silence the library prints nothing unless TUTTI_LOG asks, never exits, and installs no signal
 *         handler.
 */
#ifndef TUTTI_H
#define TUTTI_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TUTTI_MAJOR 0
#define TUTTI_MINOR 1
#define TUTTI_PATCH 0
#define TUTTI_VERSION_CODE (TUTTI_MAJOR * 10000 + TUTTI_MINOR * 100 + TUTTI_PATCH)

#if defined(__GNUC__)
#define TUTTI_API __attribute__((visibility("default")))
#else
#define TUTTI_API
#endif

/* What a function returns. The names up to tuttiInProgress have NCCL's numbers. */
typedef enum {
	tuttiSuccess = 0,            /* done, or (with a stream) accepted */
	tuttiUnhandledCudaError = 1, /* a CUDA call failed */
	tuttiSystemError = 2,        /* a system call failed: memory, descriptors, ports, ... */
	tuttiInternalError = 3,      /* a defect of Tutti itself */
	tuttiInvalidArgument = 4,    /* an impossible value of an argument or TUTTI_ variable */
	tuttiInvalidUsage = 5,       /* arguments at odds with each other or other ranks' */
	tuttiRemoteError = 6,        /* another rank died, left or aborted */
	tuttiInProgress = 7,         /* not an error: work is still running */
	tuttiTimeout = 8,            /* the deadline passed; the text names who is missing */
	tuttiNumResults = 9
} tuttiResult_t;

/* Element types, with NCCL's numbers. Half types and fp8 are combined in float and rounded once, to
 * nearest even; fp8 saturates on overflow. */
typedef enum {
	tuttiInt8 = 0, tuttiChar = 0,
	tuttiUint8 = 1,
	tuttiInt32 = 2, tuttiInt = 2,
	tuttiUint32 = 3,
	tuttiInt64 = 4,
	tuttiUint64 = 5,
	tuttiFloat16 = 6, tuttiHalf = 6,
	tuttiFloat32 = 7, tuttiFloat = 7,
	tuttiFloat64 = 8, tuttiDouble = 8,
	tuttiBfloat16 = 9,
	tuttiFloat8e4m3 = 10,
	tuttiFloat8e5m2 = 11,
	tuttiNumTypes = 12
} tuttiDataType_t;

/* Reductions. Integers wrap. Min and max of floats give NaN when any operand is NaN; a NaN's
 * payload is unspecified. Avg divides the sum by nranks (integers: towards zero, after wrapping;
 * bfloat16, float32 and float64 overflow as their sum does). For float16 and fp8, whose sums
 * overflow easily, inputs are divided by a power of two >= nranks before they are summed: what
 * falls below the least denormal is rounded off. Band, bor, bxor: integers only. Numbers from
 * tuttiNumOps on come from tuttiRedOpCreatePreMulSum. */
typedef enum {
	tuttiSum = 0,
	tuttiProd = 1,
	tuttiMax = 2,
	tuttiMin = 3,
	tuttiAvg = 4,
	tuttiBand = 5,
	tuttiBor = 6,
	tuttiBxor = 7,
	tuttiNumOps = 8,
	tuttiMaxRedOp = 0x7fffffff
} tuttiRedOp_t;

/* Where the scalar of a pre-multiplied sum lives: read at every call, or once at creation. */
typedef enum { tuttiScalarDevice = 0, tuttiScalarHostImmediate = 1 } tuttiScalarResidence_t;

typedef struct tuttiComm *tuttiComm_t;
typedef void *tuttiStream_t;

#define TUTTI_UNIQUE_ID_BYTES 128
typedef struct { char internal[TUTTI_UNIQUE_ID_BYTES]; } tuttiUniqueId;

/* Options of a communicator. Start from TUTTI_CONFIG_INITIALIZER; 0 and NULL mean: choose for me. A
 * field that is set wins over its environment variable. */
typedef struct {
	size_t size;            /* sizeof(tuttiConfig_t), set by the initializer */
	unsigned magic;
	unsigned version;
	/* deadline of every operation: so long without progress (TUTTI_TIMEOUT_MS) */
	int timeout_ms;
	const char *transport;  /* auto, shm, verbs, tcp, self (TUTTI_TRANSPORT) */
	const char *algo;       /* an algorithm's name or auto (TUTTI_ALGO) */
	const char *name;       /* of the communicator, for messages and logs */
} tuttiConfig_t;

#define TUTTI_CONFIG_MAGIC 0x54555454u
#define TUTTI_CONFIG_INITIALIZER \
	{ sizeof(tuttiConfig_t), TUTTI_CONFIG_MAGIC, TUTTI_VERSION_CODE, 0, NULL, NULL, NULL }

/* Counters of one rank of a communicator since it was made; tests and tools read them. */
typedef struct {
	size_t size;               /* in: sizeof(tuttiCounters_t) */
	uint64_t operations;       /* collectives and point-to-point calls completed */
	uint64_t sent_bytes;       /* payload given to transports, all peers */
	uint64_t sent_bytes_shm;   /* ... of which by shared memory */
	uint64_t sent_bytes_tcp;   /* ... of which by TCP */
	uint64_t messages;         /* payload messages sent */
	uint64_t sleeps;           /* times a wait gave its processor back and slept */
	uint64_t allocations;      /* memory the library allocated on the way of a call */
	uint64_t memory_bytes;     /* memory held now: tuttiMemTotal of tuttiCommMemStats */
	uint64_t read_bytes;       /* payload read where it lies, in memory of other ranks */
	uint64_t sent_bytes_verbs; /* of sent_bytes, by the transport verbs */
} tuttiCounters_t;

/* ---- version and errors ---------------------------------------------------------------------- */

/* tuttiGetVersion - the version of the library that is running, as TUTTI_VERSION_CODE
 *   Returns    tuttiSuccess | tuttiInvalidArgument (version is NULL)
 *   Thread     any     Blocks   no */
TUTTI_API tuttiResult_t tuttiGetVersion(int *version);

/* tuttiGetErrorString - what a result code means, in a few words; never NULL. Thread: any. */
TUTTI_API const char *tuttiGetErrorString(tuttiResult_t result);

/* tuttiGetLastError - the sentence that tells what went wrong last: on comm,
 * or in this thread when comm is NULL
 *   Owns       the library; valid until the next failing call of this thread. Never NULL, "" when
 *              nothing failed.
 *   Thread     any     Blocks   no */
TUTTI_API const char *tuttiGetLastError(tuttiComm_t comm);

/* ---- communicators --------------------------------------------------------------------------- */

/* tuttiGetUniqueId - make the name and the secret of a new communicator
 *
 *   uniqueId   128 bytes, to be handed to every rank by any private means. Call it once, in the
 *              process that will be rank 0 or in one on the same host (a parent that forks the
 *              ranks is fine: no thread is started). It holds this host's addresses and the secret
 *              that keeps strangers out.
 *   Returns    tuttiSuccess | tuttiInvalidArgument
 *              tuttiSystemError  no usable address or port, no randomness
 *   Thread     any     Blocks   no */
TUTTI_API tuttiResult_t tuttiGetUniqueId(tuttiUniqueId *uniqueId);

/* tuttiCommInitRank - join a communicator of nranks ranks as rank
 *
 *   comm       set on success; free with tuttiCommDestroy or tuttiCommAbort
 *   Call       by nranks threads or processes with the same id and different ranks; returns when
 *              all have joined. Inside a group the joins of one thread run together, at
 *              tuttiGroupEnd.
 *   Returns    tuttiSuccess
 *              tuttiInvalidArgument  rank or nranks out of range, bad TUTTI_ variable, not an id of
 *                                    tuttiGetUniqueId
 *              tuttiInvalidUsage     the same rank twice, or settings that differ between ranks
 *              tuttiRemoteError      wrong secret, or a rank died while joining
 *              tuttiTimeout          the text names the ranks that never came
 *              tuttiSystemError      sockets, memory, descriptors, the port is in use
 *   Thread     any     Blocks   yes, at most the time-out */
TUTTI_API tuttiResult_t tuttiCommInitRank(tuttiComm_t *comm, int nranks, tuttiUniqueId commId,
					  int rank);

/* tuttiCommInitRankConfig - tuttiCommInitRank with options (config may be NULL)
 *   Returns    as tuttiCommInitRank; tuttiInvalidArgument also for a config not made by the
 *              initializer */
TUTTI_API tuttiResult_t tuttiCommInitRankConfig(tuttiComm_t *comm, int nranks, tuttiUniqueId commId,
						int rank, tuttiConfig_t *config);

/* tuttiCommInitEnv - join the communicator of the ranks that a launcher started; tutti_launch(7)
 * has all of it
 *
 *   Environment  the first of these that is complete: TUTTI_RANK, TUTTI_NRANKS, TUTTI_ROOT
 *                (host:port where rank 0 listens) and TUTTI_SECRET; torchrun's; PMIx's (mpirun of
 *                Open MPI); PMI-1's (mpiexec of MPICH); Slurm's; an indexed Job's of Kubernetes.
 *                Two that disagree, and a half-set one, are tuttiInvalidUsage; TUTTI_LAUNCH
 *                decides. None: a communicator of one rank.
 *   Otherwise as tuttiCommInitRankConfig. With PMI-1 not beside another thread's MPI_Init or
 *   MPI_Finalize. */
TUTTI_API tuttiResult_t tuttiCommInitEnv(tuttiComm_t *comm, tuttiConfig_t *config);

/* A key-value store that all ranks of a program reach, and nobody else: it carries the secret.
 * Functions return 0, or anything else for a failure. Keys and values are text without blanks,
 * values at most 511 bytes. */
typedef struct {
	size_t size;            /* sizeof(tuttiStore_t) */
	int rank, nranks;
	/* under which rank 0 puts; alike on all ranks, and another one for each join */
	const char *key;
	void *ctx;              /* for the functions */
	int (*put)(void *ctx, const char *key, const char *value);
	/* with its NUL; waits for it */
	int (*get)(void *ctx, const char *key, char *value, size_t bytes, int timeout_ms);
	int (*fence)(void *ctx, int timeout_ms);        /* waits for all; NULL: get waits itself */
	/* rank 0 cannot join, so nobody can; NULL: it is put for the others */
	void (*abort)(void *ctx, const char *why);
} tuttiStore_t;

/* tuttiCommInitStore - join by the program's own store (of MPI, Redis, etcd, torch):
 * rank 0 puts, the others get
 *   Call       by every rank, with the same key; not inside a group
 *   Returns    as tuttiCommInitRankConfig; tuttiSystemError also when the store fails, tuttiTimeout
 *              when fence or get do */
TUTTI_API tuttiResult_t tuttiCommInitStore(tuttiComm_t *comm, const tuttiStore_t *store,
					   tuttiConfig_t *config);

/* An allgather of the program's, with the members of UCC's ucc_oob_coll_t,
 * so that its address may be cast to this: begins to gather size bytes of
 * each rank, req_test says 0 done, > 0 not yet, < 0 failed. */
typedef struct {
	int (*allgather)(void *src, void *recv, size_t size, void *coll_info, void **request);
	int (*req_test)(void *request);
	int (*req_free)(void *request);
	void *coll_info;
	uint32_t n_oob_eps;     /* nranks */
	uint32_t oob_ep;        /* rank */
} tuttiOob_t;

/* tuttiCommInitOob - the same by an allgather */
TUTTI_API tuttiResult_t tuttiCommInitOob(tuttiComm_t *comm, const tuttiOob_t *oob,
					 tuttiConfig_t *config);

/* tuttiCommInitAll - n communicators of one clique, ranks 0..n-1, all in this process
 *   comms      [ndev]; devlist is for devices and may be NULL
 *   Returns    as tuttiCommInitRank     Thread   any     Blocks   yes */
TUTTI_API tuttiResult_t tuttiCommInitAll(tuttiComm_t *comms, int ndev, const int *devlist);

/* tuttiCommSplit - make communicators of the ranks with equal color,
 * ordered by key, then by rank in comm
 *
 *   color      >= 0, or TUTTI_SPLIT_NOCOLOR: this rank takes part in the split but gets *newcomm =
 *              NULL
 *   Call       by every rank of comm, in order with its other calls, also by one whose arguments
 *              are wrong
 *   Returns    as tuttiCommInitRank; tuttiInvalidArgument for a negative color. All ranks of comm
 *              get their communicators, or all fail: the others with tuttiRemoteError and the
 *              sentence of the rank that could not. comm goes on.
 *   Blocks     yes */
#define TUTTI_SPLIT_NOCOLOR (-1)
TUTTI_API tuttiResult_t tuttiCommSplit(tuttiComm_t comm, int color, int key, tuttiComm_t *newcomm,
				       tuttiConfig_t *config);

/* tuttiCommFinalize - wait until every operation given to comm is complete;
 * no further one is accepted
 *   Returns    tuttiSuccess | the communicator's error
 *   Blocks     yes, at most the time-outs of what is queued */
TUTTI_API tuttiResult_t tuttiCommFinalize(tuttiComm_t comm);

/* tuttiCommDestroy - finalize, say goodbye to the other ranks, free. NULL is ignored.
 *   Owns       comm is gone afterwards whatever is returned     Blocks   as tuttiCommFinalize */
TUTTI_API tuttiResult_t tuttiCommDestroy(tuttiComm_t comm);

/* tuttiCommAbort - end every running operation with an error, here and on every other rank,
 * then free
 *   Owns       comm is gone afterwards. A thread inside a call on comm gets tuttiRemoteError and
 *              must not use comm again.
 *   Thread     any     Blocks   until the calls inside comm have returned, some milliseconds */
TUTTI_API tuttiResult_t tuttiCommAbort(tuttiComm_t comm);

/* tuttiCommGetAsyncError - *asyncError: tuttiSuccess, or what broke the communicator. Thread: any.
 * Blocks: no. */
TUTTI_API tuttiResult_t tuttiCommGetAsyncError(tuttiComm_t comm, tuttiResult_t *asyncError);

/* tuttiCommCount, tuttiCommUserRank, tuttiCommCuDevice - nranks; this rank; its CUDA device, -1 for
 * host memory */
TUTTI_API tuttiResult_t tuttiCommCount(const tuttiComm_t comm, int *count);
TUTTI_API tuttiResult_t tuttiCommUserRank(const tuttiComm_t comm, int *rank);
TUTTI_API tuttiResult_t tuttiCommCuDevice(const tuttiComm_t comm, int *device);

/* tuttiCommGetCounters - copy this rank's counters; counters->size says how much the caller knows.
 * Thread: as calls. */
TUTTI_API tuttiResult_t tuttiCommGetCounters(tuttiComm_t comm, tuttiCounters_t *counters);

/* What tuttiCommMemStats can tell. */
typedef enum {
	tuttiMemTotal = 0,     /* the sum of the others */
	tuttiMemShared = 1,    /* this rank's part of the memory that its host's ranks share */
	tuttiMemStages = 2,    /* private buffers and records of links */
	tuttiMemScratch = 3,   /* intermediate results, as large as any call needed */
	tuttiMemPlans = 4,     /* plans of the calls so far */
	tuttiMemControl = 5,   /* records of ranks, control connections and their queues */
	tuttiNumMemStats = 6
} tuttiCommMemStat_t;

/* tuttiCommMemStats - *value: bytes of memory that this rank of comm holds now. Stacks of threads,
 * and what the kernel holds for sockets, are not counted.
 *   Returns    tuttiSuccess | tuttiInvalidArgument     Thread   as calls     Blocks   no */
TUTTI_API tuttiResult_t tuttiCommMemStats(tuttiComm_t comm, tuttiCommMemStat_t stat,
					  uint64_t *value);

/* tuttiCommDescribe - one line: what a call would use: algorithm, transport, tile
 *   text       [bytes], always ended by NUL; count is per rank as in the call; op decides nothing
 *   Returns    tuttiSuccess | tuttiInvalidArgument */
TUTTI_API tuttiResult_t tuttiCommDescribe(tuttiComm_t comm, const char *collective, size_t count,
					  tuttiDataType_t datatype, char *text, size_t bytes);

/* ---- collectives ------------------------------------------------------------------------------ *
 * Common to all:
 *   Call       by every rank of comm, in the same order, with the same count, datatype, op and root
 *              (checked)
 *   Owns       the caller keeps both buffers until the stream reaches this point (NULL stream:
 *              until return)
 *   Returns    tuttiSuccess          done, or accepted by the stream
 *              tuttiInvalidArgument  NULL or partly overlapping buffer, unknown datatype or op,
 *                                    root out of range, comm NULL, destroyed or used in a forked
 *                                    child
 *              tuttiInvalidUsage     another rank made a different call; the text names both
 *              tuttiRemoteError      another rank died, left or aborted; the text names it
 *              tuttiTimeout          nothing moved for the time-out; the text names who is missing
 *                                    and its last operation
 *              tuttiSystemError      memory, descriptors, network
 *   Thread     any; one caller at a time per comm     Blocks   NULL stream: yes, at most the
 *              time-out without progress
 * count 0 is ordinary: no element moves, and the buffers may be NULL; a send of 0 elements needs
 * its receive of 0. Algorithms and their sources: tutti_algorithms(7).
 */

/* tuttiAllReduce - combine sendbuff of every rank with op; every rank gets the result in recvbuff.
 * Both [count]. */
TUTTI_API tuttiResult_t tuttiAllReduce(const void *sendbuff, void *recvbuff, size_t count,
				       tuttiDataType_t datatype, tuttiRedOp_t op, tuttiComm_t comm,
				       tuttiStream_t stream);

/* tuttiReduce - as tuttiAllReduce, but only root gets the result;
 * recvbuff may be NULL elsewhere. */
TUTTI_API tuttiResult_t tuttiReduce(const void *sendbuff, void *recvbuff, size_t count,
				    tuttiDataType_t datatype, tuttiRedOp_t op, int root,
				    tuttiComm_t comm, tuttiStream_t stream);

/* tuttiBroadcast - copy root's sendbuff [count] to recvbuff [count] of every rank; sendbuff may be
 * NULL elsewhere. */
TUTTI_API tuttiResult_t tuttiBroadcast(const void *sendbuff, void *recvbuff, size_t count,
				       tuttiDataType_t datatype, int root, tuttiComm_t comm,
				       tuttiStream_t stream);

/* tuttiBcast - tuttiBroadcast in place */
TUTTI_API tuttiResult_t tuttiBcast(void *buff, size_t count, tuttiDataType_t datatype, int root,
				   tuttiComm_t comm, tuttiStream_t stream);

/* tuttiAllGather - recvbuff [nranks * sendcount] of every rank gets all sendbuffs [sendcount] in
 * rank order.
 * In place: sendbuff == recvbuff + rank * sendcount. */
TUTTI_API tuttiResult_t tuttiAllGather(const void *sendbuff, void *recvbuff, size_t sendcount,
				       tuttiDataType_t datatype, tuttiComm_t comm,
				       tuttiStream_t stream);

/* tuttiReduceScatter - combine sendbuffs [nranks * recvcount]; rank r gets part r in recvbuff
 * [recvcount].
 * In place: recvbuff == sendbuff + rank * recvcount. */
TUTTI_API tuttiResult_t tuttiReduceScatter(const void *sendbuff, void *recvbuff, size_t recvcount,
					   tuttiDataType_t datatype, tuttiRedOp_t op,
					   tuttiComm_t comm, tuttiStream_t stream);

/* tuttiAlltoAll - part p of sendbuff [nranks * count] goes to rank p,
 * into part `rank` of its recvbuff. */
TUTTI_API tuttiResult_t tuttiAlltoAll(const void *sendbuff, void *recvbuff, size_t count,
				      tuttiDataType_t datatype, tuttiComm_t comm,
				      tuttiStream_t stream);

/* tuttiGather - root's recvbuff [nranks * count] gets all sendbuffs [count]; recvbuff may be NULL
 * elsewhere.
 * In place at root: sendbuff == recvbuff + root * count. */
TUTTI_API tuttiResult_t tuttiGather(const void *sendbuff, void *recvbuff, size_t count,
				    tuttiDataType_t datatype, int root, tuttiComm_t comm,
				    tuttiStream_t stream);

/* tuttiScatter - part r of root's sendbuff [nranks * count] goes to recvbuff [count] of rank r;
 * sendbuff may be NULL elsewhere. In place at root: recvbuff == sendbuff + root * count. */
TUTTI_API tuttiResult_t tuttiScatter(const void *sendbuff, void *recvbuff, size_t count,
				     tuttiDataType_t datatype, int root, tuttiComm_t comm,
				     tuttiStream_t stream);

/* tuttiBarrier - returns (NULL stream) when every rank has called it */
TUTTI_API tuttiResult_t tuttiBarrier(tuttiComm_t comm, tuttiStream_t stream);

/* tuttiSend, tuttiRecv - point to point; the k-th Send from a to b meets the k-th Recv of b from a,
 * with equal count and datatype (checked). Sends and receives that must run at once belong between
 * GroupStart and GroupEnd.
 *   peer       any rank, also this one (then within one group)
 *   Blocks     NULL stream: yes, Send until buff may be reused, Recv until the data has come */
TUTTI_API tuttiResult_t tuttiSend(const void *sendbuff, size_t count, tuttiDataType_t datatype,
				  int peer, tuttiComm_t comm, tuttiStream_t stream);
TUTTI_API tuttiResult_t tuttiRecv(void *recvbuff, size_t count, tuttiDataType_t datatype, int peer,
				  tuttiComm_t comm, tuttiStream_t stream);

/* tuttiRedOpCreatePreMulSum - an op that multiplies each rank's input by its scalar, then sums
 *   scalar     one element of datatype; each rank may have its own. tuttiScalarHostImmediate: read
 *              now; tuttiScalarDevice: memory read at every call; CUDA's, once the call's stream
 *              has come so far, for which the call waits: not while the stream is captured
 *   Returns    tuttiSuccess | tuttiInvalidArgument
 * tuttiRedOpDestroy - forget it; operations already given to a stream keep it. */
TUTTI_API tuttiResult_t tuttiRedOpCreatePreMulSum(tuttiRedOp_t *op, void *scalar,
						  tuttiDataType_t datatype,
						  tuttiScalarResidence_t residence,
						  tuttiComm_t comm);
TUTTI_API tuttiResult_t tuttiRedOpDestroy(tuttiRedOp_t op, tuttiComm_t comm);

/* ---- groups ---------------------------------------------------------------------------------- */

/* tuttiGroupStart, tuttiGroupEnd - calls of this thread between the two are collected and run
 * together at the end: sends and receives at once, communicators at once, collectives of one
 * communicator in call order. Groups nest; only the outermost end runs.
 *   Returns    tuttiSuccess | the first error of the group | tuttiInvalidUsage (end without start)
 *   Thread     each thread has its own group     Blocks   End: as the calls inside */
TUTTI_API tuttiResult_t tuttiGroupStart(void);
TUTTI_API tuttiResult_t tuttiGroupEnd(void);

/* ---- after a failure -------------------------------------------------------------------------- *
 * A death breaks a communicator for its collectives. Messages and quorums below go on without the
 * dead; and the ranks that are left can make a new communicator of themselves.
 */

/* What this rank knows of another one. */
typedef enum {
	tuttiRankAlive = 0,    /* nothing else is known */
	tuttiRankLeft = 1,     /* destroyed or aborted its communicator */
	tuttiRankDead = 2      /* died */
} tuttiRankState_t;

/* tuttiCommRankState - *state: is that rank still there? Deaths are known within 2 s.
 *   Returns    tuttiSuccess | tuttiInvalidArgument     Thread   any     Blocks   no */
TUTTI_API tuttiResult_t tuttiCommRankState(tuttiComm_t comm, int rank, tuttiRankState_t *state);

/* tuttiCommShrink - a new communicator, with an epoch of its own, of the ranks of comm that are
 * left, in their order
 *
 *   excludeRanksList  [excludeRanksCount] ranks that shall not be in it, the same list on every
 *              rank that calls. Count 0: the callers find out who is there: whoever is dead, has
 *              left, or does not call within half the time-out is out; a rank that is out and calls
 *              later is refused.
 *   config     as in tuttiCommInitRankConfig, NULL: comm's settings
 *   shrinkFlags  TUTTI_SHRINK_DEFAULT, or TUTTI_SHRINK_ABORT: first end what runs on comm,
 *              everywhere, with an error
 *   Call       by every rank that shall be in it, after a failure or before any; one that is on the
 *              list must not. comm stays as it is (broken or not) and is to be destroyed as ever:
 *              once a call on newcomm has succeeded, since until then it answers ranks that a death
 *              in the last moment kept behind (else these are refused).
 *   Returns    tuttiSuccess
 *              tuttiInvalidArgument  a rank on the list that comm has not, or all of them; this
 *                                    rank is on it; newcomm NULL
 *              tuttiInvalidUsage     the callers' lists differ
 *              tuttiRemoteError      the others went on without this rank; or a rank that is not on
 *                                    the list is dead
 *              tuttiTimeout          the text names who did not come
 *              tuttiSystemError      sockets, memory, descriptors
 *   Blocks     yes, at most twice the time-out, and once more for each rank that dies meanwhile */
#define TUTTI_SHRINK_DEFAULT 0
#define TUTTI_SHRINK_ABORT 1
TUTTI_API tuttiResult_t tuttiCommShrink(tuttiComm_t comm, int *excludeRanksList,
					int excludeRanksCount, tuttiComm_t *newcomm,
					tuttiConfig_t *config, int shrinkFlags);

/* ---- messages --------------------------------------------------------------------------------- *
 * Bytes with a tag and a version, from any rank to any rank of comm, beside the collectives and in
 * no order with them. Between two ranks they arrive in the order in which one thread sent them.
 * They need no stream and no group; calls inside a group are made at once.
 *   Memory     what has come and is not received is kept here, up to 64 MiB a rank; what is beyond
 *              waits at its sender, whose call waits with it.
 *   Deaths     break nothing: a call that needs the dead rank gets tuttiRemoteError, all others go
 *              on, also in a communicator whose collectives are broken.
 *   Thread     any, several at once: a server may receive in one thread and send in another */
#define TUTTI_ANY (-1)

typedef struct {
	int source;            /* the rank that sent it */
	int tag;
	uint64_t version;
	size_t bytes;
} tuttiMsg_t;

/* tuttiMsgSend - send bytes of buff to peer (also this rank), under tag (>= 0) and version,
 * which is the caller's to use
 *   Returns    tuttiSuccess  buff may be used again; the message is on its way or there
 *              tuttiInvalidArgument | tuttiSystemError
 *              tuttiRemoteError  peer is dead or has left
 *              tuttiTimeout      for the time-out, peer took nothing; the message may still arrive
 *   Blocks     until buff may be used again */
TUTTI_API tuttiResult_t tuttiMsgSend(const void *buff, size_t bytes, int peer, int tag,
				     uint64_t version, tuttiComm_t comm);

/* tuttiMsgRecv - the oldest message from source with tag (TUTTI_ANY: whichever), into buff
 *   bytes      room in buff; a larger message is tuttiInvalidArgument and stays to be received
 *   timeout_ms 0: only look; -1: the communicator's time-out
 *   msg        what came; NULL: not wanted
 *   Returns    tuttiSuccess | tuttiInvalidArgument
 *              tuttiInProgress   nothing came in that time, or tuttiMsgCancel ended the wait. Not
 *                                an error.
 *              tuttiRemoteError  source (TUTTI_ANY: every other rank) is dead or has left, and
 *                                nothing of it is left
 *   Blocks     at most timeout_ms */
TUTTI_API tuttiResult_t tuttiMsgRecv(void *buff, size_t bytes, int source, int tag, int timeout_ms,
				     tuttiComm_t comm, tuttiMsg_t *msg);

/* tuttiMsgProbe - the same, but the message stays: msg tells who sent it and how large it is */
TUTTI_API tuttiResult_t tuttiMsgProbe(int source, int tag, int timeout_ms, tuttiComm_t comm,
				      tuttiMsg_t *msg);

/* tuttiMsgCancel - drop messages from source with tag (TUTTI_ANY: whichever) that have come and
 * have a version below `version` (UINT64_MAX: any), and end the waits of other threads for
 * exactly this source and tag
 *   dropped    how many; NULL: not wanted     Blocks   no */
TUTTI_API tuttiResult_t tuttiMsgCancel(int source, int tag, uint64_t version, tuttiComm_t comm,
				       uint64_t *dropped);

/* ---- quorum allreduce ------------------------------------------------------------------------- *
 * Host memory only, as messages.
 */

#define TUTTI_QUORUM_RANKS 1024
#define TUTTI_QUORUM_KEPT 16

/* What became of this rank's contribution. */
typedef enum {
	tuttiQuorumIn = 0,     /* it is in the result of operation `sequence` */
	tuttiQuorumLate = 1,   /* complete before it came: dropped, or handed back in carry */
	tuttiQuorumNone = 2    /* sendbuff was NULL */
} tuttiQuorumMine_t;

/* How an operation went. Start from TUTTI_QUORUM_INITIALIZER. */
typedef struct {
	size_t size;           /* in: sizeof(tuttiQuorum_t) */
	void *carry;           /* in: [count] gets a late contribution; NULL: dropped */
	/* in: 1: a late rank gets the results one by one, while they are kept; 0: the newest */
	int every;
	int count;             /* out: contributions in the result */
	tuttiQuorumMine_t mine;
	uint64_t sequence;     /* out: the operation whose result is in recvbuff, from 1 */
	uint64_t newest;       /* out: the newest one that was complete */
	/* out: bit r % 64 of mask[r / 64]: rank r is in the result */
	uint64_t mask[TUTTI_QUORUM_RANKS / 64];
} tuttiQuorum_t;
#define TUTTI_QUORUM_INITIALIZER { sizeof(tuttiQuorum_t), NULL, 0, 0, tuttiQuorumIn, 0, 0, { 0 } }

/* tuttiAllReduceQuorum - combine the first k contributions that come;
 * every rank gets that one result
 *
 *   k          1..nranks: contributions after which the operation is complete. Also when
 *              deadline_ms (0: the time-out) have passed since the first one, or every rank that is
 *              alive has contributed: then with fewer.
 *   quorum     how it went; NULL: not wanted. Everybody who gets the result of one operation has
 *              the same bits, count and mask. The sum runs in rank order over the mask, so its bits
 *              depend only on who was in time; with all n in it they are those of the algorithm
 *              reduce-to-one. Avg divides by count.
 *   sendbuff   NULL: contribute nothing, get the next result this rank has not seen
 *   Call       an operation's number is this rank's last one plus 1; rank 0's library adds up,
 *              whether or not rank 0 is in a call. A rank that comes when its operation is over
 *              gets a result at once: the newest (it goes on from there), or with `every` that of
 *              its own operation if it is among the TUTTI_QUORUM_KEPT newest and their memory is
 *              below 64 MiB. Beside the collectives, in no order with them.
 *   Returns    tuttiSuccess
 *              tuttiInvalidArgument  as tuttiAllReduce; an op of tuttiRedOpCreatePreMulSum; k out
 *                                    of range; more than TUTTI_QUORUM_RANKS ranks
 *              tuttiInvalidUsage     count, datatype, op or k differ from the other ranks'; in a
 *                                    group
 *              tuttiRemoteError      rank 0 died or left. Deaths of other ranks cost nothing but
 *                                    their places.
 *              tuttiTimeout          rank 0 did not answer for deadline_ms and the time-out
 *   Thread     as calls     Blocks   NULL stream: until complete; a stream: quorum must live until
 *              it is reached */
TUTTI_API tuttiResult_t tuttiAllReduceQuorum(const void *sendbuff, void *recvbuff, size_t count,
					     tuttiDataType_t datatype, tuttiRedOp_t op, int k,
					     int deadline_ms, tuttiComm_t comm,
					     tuttiStream_t stream, tuttiQuorum_t *quorum);

/* ---- memory ---------------------------------------------------------------------------------- */

/* tuttiMemAlloc - page-aligned zeroed memory that ranks of the same host read in place: the fastest
 * for large calls. Free with tuttiMemFree. A forked child shares it with its parent (it is mapped
 * MAP_SHARED).
 *   Returns    tuttiSuccess | tuttiInvalidArgument (ptr NULL, not from tuttiMemAlloc)
 *              tuttiSystemError (no memory) */
TUTTI_API tuttiResult_t tuttiMemAlloc(void **ptr, size_t size);
TUTTI_API tuttiResult_t tuttiMemFree(void *ptr);

/* tuttiCommRegister - tell comm that buff [size bytes] will be used often;
 * a hint, never required, changes no result
 *   buff       stays mapped until the handle is given back: cards may keep it registered and read
 *              and write there
 *   handle     for tuttiCommDeregister; freed with comm at the latest; NULL where size is 0
 *   Returns    tuttiSuccess | tuttiSystemError (no memory)
 *              tuttiInvalidArgument  handle or buff NULL; not a handle of comm, or given back
 *   Thread     any     Blocks   no */
TUTTI_API tuttiResult_t tuttiCommRegister(const tuttiComm_t comm, void *buff, size_t size,
					  void **handle);
TUTTI_API tuttiResult_t tuttiCommDeregister(const tuttiComm_t comm, void *handle);

/* ---- host streams ---------------------------------------------------------------------------- */

/* tuttiStreamCreate - a queue with a thread of its own that runs what is given to it in order
 * tuttiStreamSynchronize - wait for all of it:
 *              tuttiSuccess, or the first error since the last synchronize
 * tuttiStreamQuery - tuttiSuccess: nothing left to do | tuttiInProgress | the error, as synchronize
 * tuttiStreamDestroy - synchronize, then free
 *   Thread     any
 *   Blocks     Synchronize, Destroy: until the queue is empty (every operation has its deadline) */
TUTTI_API tuttiResult_t tuttiStreamCreate(tuttiStream_t *stream);
TUTTI_API tuttiResult_t tuttiStreamSynchronize(tuttiStream_t stream);
TUTTI_API tuttiResult_t tuttiStreamQuery(tuttiStream_t stream);
TUTTI_API tuttiResult_t tuttiStreamDestroy(tuttiStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
