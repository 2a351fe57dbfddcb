/*
 * tutti.h - collective communication: combine and move arrays between the ranks of a communicator
 *
 * tutti.h is the only installed header. Its comments are the contract. Functions have NCCL's
 * signatures with another prefix: a program is ported by replacing `nccl` with `tutti`. Tutti adds
 * host memory, ranks that are threads of one process, deadlines, and error messages with the cause
 * (tuttiGetLastError).
 *
 * Words   rank, nranks: position in a communicator, and its size. count: elements; bytes where a
 *         contract says bytes. timeout: deadline of an operation, in ms without progress
 *         (timeout_ms of the communicator, or TUTTI_TIMEOUT_MS).
 * Memory  Buffers are host memory of any alignment. In place means sendbuff == recvbuff, except
 *         where a contract says otherwise. Partly overlapping buffers are tuttiInvalidArgument.
 *         A rank that joins while a CUDA context is current in its thread may also pass memory of
 *         that device (cuMemAlloc, managed, virtual).
 * Streams NULL: the call returns when the operation is complete on this rank. With memory of a
 *         device, it begins when the work on CUDA's default stream has ended.
 *         A host stream (tuttiStreamCreate): the call returns at once; a thread of the stream runs
 *         the operations in call order; tuttiStreamSynchronize waits for them.
 *         A CUDA stream, on a rank with a device: the call returns at once; the operation runs in
 *         stream order, and may be captured into a graph if all ranks capture it. (void *)1 is
 *         CUDA's default stream.
 * Calls   Every rank of a communicator makes the same collective calls in the same order, with the
 *         same count, datatype, op and root. A mismatch is detected: every rank returns
 *         tuttiInvalidUsage instead of hanging, a rank whose count is 0 at its next call.
 * Errors  Every function returns a tuttiResult_t. tuttiRemoteError, tuttiTimeout and
 *         tuttiInvalidUsage from a collective break the communicator: every later call on it
 *         returns the same error; only tuttiCommShrink, messages, tuttiCommAbort and
 *         tuttiCommDestroy remain usable. sendbuff is intact (out of place), recvbuff is undefined.
 * Threads Different communicators: any threads concurrently. One communicator: one caller at a
 *         time ("as calls" in the contracts). Checked, except for reads of counters and memory: a
 *         call while another thread is in a call is tuttiInvalidUsage, and breaks the communicator.
 *         Any thread at any time may call tuttiCommAbort, tuttiCommGetAsyncError,
 *         tuttiGetLastError, and functions whose contract says so.
 * Silence The library prints nothing unless TUTTI_LOG is set, never exits, and installs no signal
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

/* Result codes of all functions. Codes up to tuttiInProgress have NCCL's numbers. */
typedef enum {
	tuttiSuccess = 0,            /* complete, or (with a stream) accepted */
	tuttiUnhandledCudaError = 1, /* a CUDA call failed */
	tuttiSystemError = 2,        /* a system call failed: memory, descriptors, ports, ... */
	tuttiInternalError = 3,      /* a defect of Tutti */
	tuttiInvalidArgument = 4,    /* an argument or a TUTTI_ variable has an impossible value */
	/* arguments contradict each other or another rank's arguments */
	tuttiInvalidUsage = 5,
	tuttiRemoteError = 6, /* another rank died, left or aborted */
	tuttiInProgress = 7,  /* not an error: the operation is still running */
	/* the timeout expired; the error text names the missing ranks */
	tuttiTimeout = 8,
	tuttiNumResults = 9
} tuttiResult_t;

/* Element types, with NCCL's numbers. Sums of float16, bfloat16 and fp8 are computed in float32 and
 * rounded once, to nearest even; fp8 saturates on overflow. */
typedef enum {
	tuttiInt8 = 0,
	tuttiChar = 0,
	tuttiUint8 = 1,
	tuttiInt32 = 2,
	tuttiInt = 2,
	tuttiUint32 = 3,
	tuttiInt64 = 4,
	tuttiUint64 = 5,
	tuttiFloat16 = 6,
	tuttiHalf = 6,
	tuttiFloat32 = 7,
	tuttiFloat = 7,
	tuttiFloat64 = 8,
	tuttiDouble = 8,
	tuttiBfloat16 = 9,
	tuttiFloat8e4m3 = 10,
	tuttiFloat8e5m2 = 11,
	tuttiNumTypes = 12
} tuttiDataType_t;

/* Reduction operations. Integers wrap. Min and max of floats return NaN if any operand is NaN; the
 * payload of a NaN is unspecified. Avg divides the sum by nranks (integers: toward zero, after
 * wrapping; bfloat16, float32 and float64 overflow where their sum overflows). For float16 and fp8,
 * whose sums overflow easily, avg divides the inputs by a power of two >= nranks before the sum:
 * bits below the smallest denormal are rounded off. Band, bor and bxor: integers only. Numbers from
 * tuttiNumOps on are made by tuttiRedOpCreatePreMulSum and tuttiRedOpCreate. */
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

/* Residence of a pre-multiplied sum's scalar: read at every call, or once at creation. */
typedef enum { tuttiScalarDevice = 0, tuttiScalarHostImmediate = 1 } tuttiScalarResidence_t;

typedef struct tuttiComm *tuttiComm_t;
typedef void *tuttiStream_t;
typedef struct tuttiEvent *tuttiEvent_t;

#define TUTTI_UNIQUE_ID_BYTES 128
typedef struct {
	char internal[TUTTI_UNIQUE_ID_BYTES];
} tuttiUniqueId;

/* Options of a communicator. Initialize with TUTTI_CONFIG_INITIALIZER; 0 and NULL mean: the library
 * chooses. A field that is set overrides its environment variable. */
typedef struct {
	size_t size; /* sizeof(tuttiConfig_t), set by the initializer */
	unsigned magic;
	unsigned version;
	/* deadline of every operation, in ms without progress (TUTTI_TIMEOUT_MS) */
	int timeout_ms;
	const char *transport; /* auto, shm, verbs, tcp, self (TUTTI_TRANSPORT) */
	const char *algo;      /* name of an algorithm, or auto (TUTTI_ALGO) */
	const char *name;      /* name of the communicator, for messages and logs */
} tuttiConfig_t;

#define TUTTI_CONFIG_MAGIC 0x54555454u
#define TUTTI_CONFIG_INITIALIZER                                                                   \
	{                                                                                          \
		sizeof(tuttiConfig_t), TUTTI_CONFIG_MAGIC, TUTTI_VERSION_CODE, 0, NULL, NULL, NULL \
	}

/* Counters of one rank since its communicator was made. Read by tests and tools. */
typedef struct {
	size_t size;               /* in: sizeof(tuttiCounters_t) */
	uint64_t operations;       /* completed collectives and point-to-point calls */
	uint64_t sent_bytes;       /* payload passed to transports, all peers */
	uint64_t sent_bytes_shm;   /* part of sent_bytes: shared memory */
	uint64_t sent_bytes_tcp;   /* part of sent_bytes: TCP */
	uint64_t messages;         /* payload messages sent */
	uint64_t sleeps;           /* waits that yielded the CPU and slept */
	uint64_t allocations;      /* memory allocations inside calls */
	uint64_t memory_bytes;     /* bytes held now: tuttiMemTotal of tuttiCommMemStats */
	uint64_t read_bytes;       /* payload read by single copy from memory of other ranks */
	uint64_t sent_bytes_verbs; /* part of sent_bytes: verbs */
} tuttiCounters_t;

/* ---- version and errors ---------------------------------------------------------------------- */

/* tuttiGetVersion - get the version of the running library, encoded as TUTTI_VERSION_CODE
 *   Returns    tuttiSuccess | tuttiInvalidArgument (version is NULL)
 *   Thread     any     Blocks   no */
TUTTI_API tuttiResult_t tuttiGetVersion(int *version);

/* tuttiGetErrorString - describe a result code in a few words
 *   Returns    a static string, never NULL ("unknown result code" for other numbers)
 *   Thread     any     Blocks   no */
TUTTI_API const char *tuttiGetErrorString(tuttiResult_t result);

/* tuttiGetLastError - get the text of the last error: of comm, or of this thread if comm is NULL
 *   Owns       the library owns the text; valid until the next failing call of this thread
 *   Returns    the text, one sentence; "" if nothing failed; never NULL
 *   Thread     any     Blocks   no */
TUTTI_API const char *tuttiGetLastError(tuttiComm_t comm);

/* ---- communicators --------------------------------------------------------------------------- */

/* tuttiGetUniqueId - create the id and the secret of a new communicator
 *
 *   uniqueId   [128 bytes] set on success: addresses of this host, a port, and a secret that keeps
 *              unauthenticated connections out. Pass it to every rank over a private channel.
 *   Call       once, in the process of rank 0 or in a process on the same host. A parent may call
 *              before it forks the ranks: no thread is started.
 *   Returns    tuttiSuccess
 *              tuttiInvalidArgument  uniqueId is NULL, or a TUTTI_ variable is bad
 *              tuttiSystemError      no usable address or port, no random bytes
 *   Thread     any     Blocks   no */
TUTTI_API tuttiResult_t tuttiGetUniqueId(tuttiUniqueId *uniqueId);

/* tuttiCommInitRank - join a communicator of nranks ranks as rank `rank`
 *
 *   comm       set on success; free with tuttiCommDestroy or tuttiCommAbort
 *   nranks     1 to 1048576
 *   commId     id of tuttiGetUniqueId, equal on all ranks
 *   rank       0..nranks-1, different on every rank
 *   Call       by nranks threads or processes; returns when all ranks have joined. Inside a group
 *              the joins of one thread run concurrently, at tuttiGroupEnd.
 *   Returns    tuttiSuccess
 *              tuttiInvalidArgument  rank or nranks out of range, bad TUTTI_ variable, not an id of
 *                                    tuttiGetUniqueId
 *              tuttiInvalidUsage     two ranks have one number, or settings differ between ranks
 *              tuttiRemoteError      a rank died while joining, or cannot join: the text has its
 *                                    reason
 *              tuttiTimeout          some ranks did not join in time, or had another secret; the
 *                                    text names them
 *              tuttiSystemError      sockets, memory, descriptors, port already in use
 *   Thread     any     Blocks   yes, at most the timeout */
TUTTI_API tuttiResult_t tuttiCommInitRank(tuttiComm_t *comm, int nranks, tuttiUniqueId commId,
					  int rank);

/* tuttiCommInitRankConfig - tuttiCommInitRank with options
 *   config     options, NULL: defaults; copied before the call returns
 *   Returns    as tuttiCommInitRank; tuttiInvalidArgument also if config was not made by the
 *              initializer
 *   Otherwise  as tuttiCommInitRank */
TUTTI_API tuttiResult_t tuttiCommInitRankConfig(tuttiComm_t *comm, int nranks, tuttiUniqueId commId,
						int rank, tuttiConfig_t *config);

/* tuttiCommInitEnv - join the communicator of the job that a launcher started (tutti_launch(7))
 *
 *   Environment  the first complete set of variables wins: TUTTI_RANK, TUTTI_NRANKS, TUTTI_ROOT
 *                (host:port where rank 0 listens) and TUTTI_SECRET; torchrun; PMIx (mpirun of Open
 *                MPI); PMI-1 (mpiexec of MPICH); Slurm; an indexed Job of Kubernetes. TUTTI_LAUNCH
 *                names the launcher where two sets contradict each other. No set: a communicator
 *                of one rank.
 *   Call       by every rank; each further call joins another communicator of the same ranks
 *   Returns    as tuttiCommInitRankConfig; tuttiInvalidUsage also if two sets contradict each
 *              other or one set is incomplete
 *   Thread     any; with PMI-1 not while another thread is inside MPI_Init or MPI_Finalize
 *   Otherwise  as tuttiCommInitRankConfig */
TUTTI_API tuttiResult_t tuttiCommInitEnv(tuttiComm_t *comm, tuttiConfig_t *config);

/* Key-value store of the program. All ranks reach the store, and nobody else: it carries the
 * secret. Functions return 0 on success, any other value on failure. Keys and values are text
 * without blanks; values have at most 511 bytes. */
typedef struct {
	size_t size; /* sizeof(tuttiStore_t) */
	int rank, nranks;
	/* key that rank 0 puts; equal on all ranks, different for each join */
	const char *key;
	void *ctx; /* first argument of the functions */
	int (*put)(void *ctx, const char *key, const char *value);
	/* waits for the key, writes the value with its NUL; bytes: size of value */
	int (*get)(void *ctx, const char *key, char *value, size_t bytes, int timeout_ms);
	int (*fence)(void *ctx, int timeout_ms); /* waits for all ranks; NULL: get waits */
	/* rank 0 cannot join, so no rank can; NULL: the reason is put under the key instead */
	void (*abort)(void *ctx, const char *why);
} tuttiStore_t;

/* tuttiCommInitStore - join through the program's key-value store (MPI, Redis, etcd, torch)
 *
 *   store      rank 0 puts one value of 256 bytes under store->key, the other ranks get it
 *   Call       by every rank, with the same key; not inside a group
 *   Owns       the caller keeps store; unused after return
 *   Returns    as tuttiCommInitRankConfig, and
 *              tuttiInvalidUsage     inside a group
 *              tuttiSystemError      a function of the store failed
 *              tuttiTimeout          fence or get timed out
 *   Thread     any     Blocks   yes, at most the timeout */
TUTTI_API tuttiResult_t tuttiCommInitStore(tuttiComm_t *comm, const tuttiStore_t *store,
					   tuttiConfig_t *config);

/* Allgather of the program, with the members of UCC's ucc_oob_coll_t (a pointer to that type may be
 * passed). allgather starts to gather `size` bytes of each rank; req_test returns 0 when complete,
 * > 0 while in progress, < 0 on failure; req_free frees the request. */
typedef struct {
	int (*allgather)(void *src, void *recv, size_t size, void *coll_info, void **request);
	int (*req_test)(void *request);
	int (*req_free)(void *request);
	void *coll_info;
	uint32_t n_oob_eps; /* nranks */
	uint32_t oob_ep;    /* rank */
} tuttiOob_t;

/* tuttiCommInitOob - join through an allgather of the program (UCC's out-of-band collective)
 *   Otherwise  as tuttiCommInitStore */
TUTTI_API tuttiResult_t tuttiCommInitOob(tuttiComm_t *comm, const tuttiOob_t *oob,
					 tuttiConfig_t *config);

/* tuttiCommInitAll - create ndev communicators, ranks 0..ndev-1 of one clique, in this process
 *   comms      [ndev] set on success
 *   devlist    ignored, may be NULL
 *   Returns    as tuttiCommInitRank     Thread   any     Blocks   yes, at most the timeout */
TUTTI_API tuttiResult_t tuttiCommInitAll(tuttiComm_t *comms, int ndev, const int *devlist);

/* tuttiCommSplit - split comm: ranks with equal color form a new communicator
 *
 *   color      >= 0, or TUTTI_SPLIT_NOCOLOR: this rank takes part and gets *newcomm = NULL
 *   key        order of the ranks in the new communicator; ties in order of the rank in comm
 *   newcomm    set on success
 *   config     options; NULL and unset fields: the settings of comm
 *   Call       by every rank of comm, in order with its other calls, even with wrong arguments
 *   Returns    as tuttiCommInitRank; tuttiInvalidArgument also for another negative color.
 *              All ranks succeed or all fail: the failing rank gets its error, the others
 *              tuttiRemoteError with its text. comm stays usable.
 *   Thread     as calls     Blocks   yes, at most the timeout and a second */
#define TUTTI_SPLIT_NOCOLOR (-1)
TUTTI_API tuttiResult_t tuttiCommSplit(tuttiComm_t comm, int color, int key, tuttiComm_t *newcomm,
				       tuttiConfig_t *config);

/* tuttiCommSetWaitHook - set a function that this rank calls now and then while it waits in
 * collectives, sends and receives of comm: for programs that must serve something else meanwhile,
 * such as the progress of another library
 *
 *   hook       called by the waiting thread (of the call, or of the stream) when a short wait by
 *              polling was in vain, then in each round: at least once a millisecond, if the function
 *              returns as fast. Returns > 0 if it moved something, so the rank looks again at once;
 *              else 0. Must not call functions of Tutti, nor leave by longjmp or an exception.
 *              NULL: none, as at first. Joins, splits, shrinks, messages and quorum allreduces do
 *              not call it; a split or shrink does not hand it on.
 *   ctx        argument of hook
 *   Returns    tuttiSuccess | tuttiInvalidArgument (comm)
 *   Thread     as calls, while no stream runs operations of comm     Blocks   no */
typedef int (*tuttiWaitHook_t)(void *ctx);
TUTTI_API tuttiResult_t tuttiCommSetWaitHook(tuttiComm_t comm, tuttiWaitHook_t hook, void *ctx);

/* tuttiCommFinalize - wait for every operation of comm; later operations are tuttiInvalidUsage
 *   Returns    tuttiSuccess | the error that broke the communicator
 *   Thread     as calls     Blocks   yes, at most the timeouts of the queued operations */
TUTTI_API tuttiResult_t tuttiCommFinalize(tuttiComm_t comm);

/* tuttiCommDestroy - finalize, say goodbye to the other ranks, free; while another thread is in a
 * call of comm, which is tuttiInvalidUsage: tuttiCommAbort
 *   comm       NULL is ignored
 *   Owns       comm is freed, whatever the result; exception: tuttiInvalidArgument (not a live
 *              communicator of this process)
 *   Returns    as tuttiCommFinalize     Thread   as calls     Blocks   as tuttiCommFinalize */
TUTTI_API tuttiResult_t tuttiCommDestroy(tuttiComm_t comm);

/* tuttiCommAbort - fail every running operation on this and all other ranks, then free
 *   comm       NULL is ignored
 *   Owns       comm is freed. A thread inside a call on comm gets tuttiRemoteError and must not use
 *              comm again.
 *   Returns    tuttiSuccess | tuttiInvalidArgument (not a live communicator of this process)
 *   Thread     any, at any time     Blocks   until the calls inside comm return, a few ms */
TUTTI_API tuttiResult_t tuttiCommAbort(tuttiComm_t comm);

/* tuttiCommGetAsyncError - get the error that broke the communicator
 *   asyncError set to tuttiSuccess while comm is not broken
 *   Returns    tuttiSuccess | tuttiInvalidArgument     Thread   any     Blocks   no */
TUTTI_API tuttiResult_t tuttiCommGetAsyncError(tuttiComm_t comm, tuttiResult_t *asyncError);

/* tuttiCommCount, tuttiCommUserRank, tuttiCommCuDevice - get nranks; the rank; the CUDA device of
 * this rank (-1: host memory only)
 *   Returns    tuttiSuccess | tuttiInvalidArgument     Thread   any     Blocks   no */
TUTTI_API tuttiResult_t tuttiCommCount(const tuttiComm_t comm, int *count);
TUTTI_API tuttiResult_t tuttiCommUserRank(const tuttiComm_t comm, int *rank);
TUTTI_API tuttiResult_t tuttiCommCuDevice(const tuttiComm_t comm, int *device);

/* tuttiCommGetCounters - copy the counters of this rank
 *   counters   in: counters->size, the size that the caller knows; out: the counters up to there
 *   Returns    tuttiSuccess | tuttiInvalidArgument     Thread   as calls     Blocks   no */
TUTTI_API tuttiResult_t tuttiCommGetCounters(tuttiComm_t comm, tuttiCounters_t *counters);

/* Kinds of memory that tuttiCommMemStats reports. */
typedef enum {
	tuttiMemTotal = 0,   /* sum of the kinds below */
	tuttiMemShared = 1,  /* this rank's part of the shared memory of its host */
	tuttiMemStages = 2,  /* private buffers and records of links */
	tuttiMemScratch = 3, /* intermediate results; the size of the largest call so far */
	tuttiMemPlans = 4,   /* plans of the calls so far */
	tuttiMemControl = 5, /* records of ranks, control connections and their queues */
	tuttiNumMemStats = 6
} tuttiCommMemStat_t;

/* tuttiCommMemStats - get the bytes of memory that this rank of comm holds
 *   value      bytes, without thread stacks and kernel socket buffers
 *   Returns    tuttiSuccess | tuttiInvalidArgument     Thread   as calls     Blocks   no */
TUTTI_API tuttiResult_t tuttiCommMemStats(tuttiComm_t comm, tuttiCommMemStat_t stat,
					  uint64_t *value);

/* tuttiCommDescribe - write one line: the algorithm, transport and tile size of a call, and
 * "encrypted" if this rank sends or receives encrypted data in it; of a peer to which it is not
 * connected yet, by what the ranks say of their hosts
 *   collective name such as "allreduce"
 *   count      elements per rank, as in the call; op has no influence
 *   text       [bytes] always ends with NUL
 *   Returns    tuttiSuccess | tuttiInvalidArgument     Thread   as calls     Blocks   no */
TUTTI_API tuttiResult_t tuttiCommDescribe(tuttiComm_t comm, const char *collective, size_t count,
					  tuttiDataType_t datatype, char *text, size_t bytes);

/* ---- collectives ------------------------------------------------------------------------------ *
 * All collectives share this contract:
 *   Call       by every rank of comm, in the same order, with the same count, datatype, op and root
 *              (checked)
 *   Owns       the caller leaves both buffers untouched until the stream reaches this point (NULL
 *              stream: until return)
 *   Returns    tuttiSuccess          complete, or accepted by the stream
 *              tuttiInvalidArgument  NULL or partly overlapping buffer, unknown datatype or op,
 *                                    root out of range; comm is NULL, destroyed or used in a
 *                                    forked child
 *              tuttiInvalidUsage     another rank made a different call; or another thread of this
 *                                    rank is in a call; the text names both
 *              tuttiRemoteError      another rank died, left or aborted; the text names it
 *              tuttiTimeout          no progress for the timeout; the text names the missing ranks
 *                                    and their last operations
 *              tuttiSystemError      memory, descriptors, network
 *              tuttiUnhandledCudaError  a CUDA call or kernel failed (CUDA memory)
 *   Thread     any; one caller at a time per comm
 *   Blocks     NULL stream: yes, at most the timeout without progress
 * A count of 0 is valid: no element moves, and buffers may be NULL. A send of 0 elements needs a
 * receive of 0 elements. Algorithms and their sources: tutti_algorithms(7). */

/* tuttiAllReduce - combine the sendbuffs of all ranks with op; every rank gets the result
 *   sendbuff, recvbuff   [count] elements of datatype. In place: sendbuff == recvbuff */
TUTTI_API tuttiResult_t tuttiAllReduce(const void *sendbuff, void *recvbuff, size_t count,
				       tuttiDataType_t datatype, tuttiRedOp_t op, tuttiComm_t comm,
				       tuttiStream_t stream);

/* tuttiReduce - combine the sendbuffs of all ranks with op; root gets the result
 *   sendbuff   [count]
 *   recvbuff   [count] at root; may be NULL elsewhere. In place: sendbuff == recvbuff */
TUTTI_API tuttiResult_t tuttiReduce(const void *sendbuff, void *recvbuff, size_t count,
				    tuttiDataType_t datatype, tuttiRedOp_t op, int root,
				    tuttiComm_t comm, tuttiStream_t stream);

/* tuttiBroadcast - copy root's sendbuff to every rank
 *   sendbuff   [count] at root; may be NULL elsewhere
 *   recvbuff   [count]. In place: sendbuff == recvbuff */
TUTTI_API tuttiResult_t tuttiBroadcast(const void *sendbuff, void *recvbuff, size_t count,
				       tuttiDataType_t datatype, int root, tuttiComm_t comm,
				       tuttiStream_t stream);

/* tuttiBcast - tuttiBroadcast in place: buff [count] */
TUTTI_API tuttiResult_t tuttiBcast(void *buff, size_t count, tuttiDataType_t datatype, int root,
				   tuttiComm_t comm, tuttiStream_t stream);

/* tuttiAllGather - concatenate the sendbuffs of all ranks, in rank order, on every rank
 *   sendbuff   [sendcount]
 *   recvbuff   [nranks * sendcount]. In place: sendbuff == recvbuff + rank * sendcount */
TUTTI_API tuttiResult_t tuttiAllGather(const void *sendbuff, void *recvbuff, size_t sendcount,
				       tuttiDataType_t datatype, tuttiComm_t comm,
				       tuttiStream_t stream);

/* tuttiReduceScatter - combine the sendbuffs of all ranks with op; rank r gets part r
 *   sendbuff   [nranks * recvcount]
 *   recvbuff   [recvcount]. In place: recvbuff == sendbuff + rank * recvcount */
TUTTI_API tuttiResult_t tuttiReduceScatter(const void *sendbuff, void *recvbuff, size_t recvcount,
					   tuttiDataType_t datatype, tuttiRedOp_t op,
					   tuttiComm_t comm, tuttiStream_t stream);

/* tuttiAlltoAll - send part p of sendbuff to rank p, which stores it as part `rank` of recvbuff
 *   sendbuff, recvbuff   [nranks * count]. In place: sendbuff == recvbuff */
TUTTI_API tuttiResult_t tuttiAlltoAll(const void *sendbuff, void *recvbuff, size_t count,
				      tuttiDataType_t datatype, tuttiComm_t comm,
				      tuttiStream_t stream);

/* tuttiGather - concatenate the sendbuffs of all ranks, in rank order, at root
 *   sendbuff   [count]
 *   recvbuff   [nranks * count] at root; may be NULL elsewhere. In place at root: sendbuff ==
 *              recvbuff + root * count */
TUTTI_API tuttiResult_t tuttiGather(const void *sendbuff, void *recvbuff, size_t count,
				    tuttiDataType_t datatype, int root, tuttiComm_t comm,
				    tuttiStream_t stream);

/* tuttiScatter - send part r of root's sendbuff to rank r
 *   sendbuff   [nranks * count] at root; may be NULL elsewhere
 *   recvbuff   [count]. In place at root: recvbuff == sendbuff + root * count */
TUTTI_API tuttiResult_t tuttiScatter(const void *sendbuff, void *recvbuff, size_t count,
				     tuttiDataType_t datatype, int root, tuttiComm_t comm,
				     tuttiStream_t stream);

/* Uneven collectives: a count per rank, in tables that are read before the call returns. A table
 * has nranks entries, in elements; counts may be 0. displs: the beginning of each rank's part in
 * the buffer; NULL: the parts are adjacent, in rank order. A sender and a receiver whose counts
 * differ are found as in tuttiSend. Parts that are sent and parts that are received overlap only in place,
 * where a contract says so; a part may lie in a gap of the other buffer. displs of a receive buffer
 * must keep its parts apart.
 *   Call       inside a group: sends and receives of the same pairs keep their order with those of
 *              these calls
 *   Returns    as the collectives; tuttiInvalidArgument also for a table that is NULL where this
 *              rank needs one, or whose count for this rank is another than its argument */

/* tuttiAllGatherv - concatenate the sendbuffs of all ranks on every rank
 *   sendbuff   [sendcount]; sendcount == recvcounts[rank]
 *   recvbuff   part r has recvcounts[r] elements. In place: sendbuff is this rank's part */
TUTTI_API tuttiResult_t tuttiAllGatherv(const void *sendbuff, size_t sendcount, void *recvbuff,
					const size_t *recvcounts, const size_t *displs,
					tuttiDataType_t datatype, tuttiComm_t comm,
					tuttiStream_t stream);

/* tuttiReduceScatterv - combine the sendbuffs of all ranks with op; rank r gets part r: one reduce
 * per part
 *   sendbuff   parts of recvcounts[r] elements, adjacent in rank order
 *   recvbuff   [recvcounts[rank]]. In place: recvbuff is this rank's part of sendbuff */
TUTTI_API tuttiResult_t tuttiReduceScatterv(const void *sendbuff, void *recvbuff,
					    const size_t *recvcounts, tuttiDataType_t datatype,
					    tuttiRedOp_t op, tuttiComm_t comm,
					    tuttiStream_t stream);

/* tuttiAlltoAllv - send part p of sendbuff to rank p, which stores it as part `rank` of recvbuff
 *   sendbuff   part p has sendcounts[p] elements
 *   recvbuff   part p has recvcounts[p] elements: sendcounts[rank] of rank p */
TUTTI_API tuttiResult_t tuttiAlltoAllv(const void *sendbuff, const size_t *sendcounts,
				       const size_t *sdispls, void *recvbuff,
				       const size_t *recvcounts, const size_t *rdispls,
				       tuttiDataType_t datatype, tuttiComm_t comm,
				       tuttiStream_t stream);

/* tuttiGatherv - concatenate the sendbuffs of all ranks at root
 *   sendbuff   [sendcount]
 *   recvbuff, recvcounts, displs   at root; elsewhere unused. In place at root: sendbuff is root's
 *              part */
TUTTI_API tuttiResult_t tuttiGatherv(const void *sendbuff, size_t sendcount, void *recvbuff,
				     const size_t *recvcounts, const size_t *displs,
				     tuttiDataType_t datatype, int root, tuttiComm_t comm,
				     tuttiStream_t stream);

/* tuttiScatterv - send part r of root's sendbuff to rank r
 *   sendbuff, sendcounts, displs   at root; elsewhere unused
 *   recvbuff   [recvcount]. In place at root: recvbuff is root's part */
TUTTI_API tuttiResult_t tuttiScatterv(const void *sendbuff, const size_t *sendcounts,
				      const size_t *displs, void *recvbuff, size_t recvcount,
				      tuttiDataType_t datatype, int root, tuttiComm_t comm,
				      tuttiStream_t stream);

/* tuttiBarrier - return (NULL stream) after every rank has called tuttiBarrier */
TUTTI_API tuttiResult_t tuttiBarrier(tuttiComm_t comm, tuttiStream_t stream);

/* tuttiSend, tuttiRecv - point to point: the k-th tuttiSend from a to b matches the k-th tuttiRecv
 * of b from a, with equal count and datatype (checked)
 *   sendbuff, recvbuff   [count] elements of datatype
 *   peer       any rank; this rank itself only with send and receive in one group
 *   Call       sends and receives that must progress together: between tuttiGroupStart and
 *              tuttiGroupEnd
 *   Blocks     NULL stream: yes, tuttiSend until sendbuff may be reused, tuttiRecv until the data
 *              has arrived */
TUTTI_API tuttiResult_t tuttiSend(const void *sendbuff, size_t count, tuttiDataType_t datatype,
				  int peer, tuttiComm_t comm, tuttiStream_t stream);
TUTTI_API tuttiResult_t tuttiRecv(void *recvbuff, size_t count, tuttiDataType_t datatype, int peer,
				  tuttiComm_t comm, tuttiStream_t stream);

/* tuttiRedOpCreatePreMulSum - create an op that multiplies the input of each rank by its scalar,
 * then sums
 *   op         set on success; valid on comm until tuttiRedOpDestroy
 *   scalar     one element of datatype; may differ between ranks. tuttiScalarHostImmediate: read
 *              now. tuttiScalarDevice: read at every call; CUDA memory is read when the stream of
 *              the call gets there, and the call waits for that (so not while the stream is
 *              captured).
 *   Returns    tuttiSuccess | tuttiInvalidArgument | tuttiSystemError (no memory)
 *   Thread     as calls     Blocks   no
 * tuttiRedOpDestroy - free the op; operations already given to a stream keep it. */
TUTTI_API tuttiResult_t tuttiRedOpCreatePreMulSum(tuttiRedOp_t *op, void *scalar,
						  tuttiDataType_t datatype,
						  tuttiScalarResidence_t residence,
						  tuttiComm_t comm);
TUTTI_API tuttiResult_t tuttiRedOpDestroy(tuttiRedOp_t op, tuttiComm_t comm);

/* tuttiRedOpCreate - create an op that combines elements by a function of the user
 *
 *   op         set on success; valid on comm until tuttiRedOpDestroy, for tuttiAllReduce,
 *              tuttiReduce, tuttiReduceScatter and tuttiReduceScatterv on host memory, with a NULL or
 *              a host stream, outside groups (others are refused)
 *   function   inout[i] = in[i] op inout[i] for count operands; must be associative, need not
 *              commute: an element of the result is ((x0 op x1) op x2) ... in rank order, with the
 *              same bits for every transport, algorithm and TUTTI_ISA. Equal on all ranks. Called
 *              by the caller of the reduction, with a host stream by the thread of the stream.
 *   arg        last argument of function
 *   width      elements of datatype in an operand, 1 or more: a structure of 24 bytes may be 24
 *              elements of tuttiUint8, or 3 of tuttiFloat64. The count of a call is a multiple of
 *              width. Operands lie at multiples of their size from an address aligned to 64 bytes.
 *   Memory     a call needs at most the bytes of its sendbuff on each rank, or 16 KiB
 *   Returns    tuttiSuccess | tuttiInvalidArgument | tuttiSystemError (no memory)
 *   Thread     as calls     Blocks   no */
typedef void (*tuttiRedFunction_t)(const void *in, void *inout, size_t count, void *arg);
TUTTI_API tuttiResult_t tuttiRedOpCreate(tuttiRedOp_t *op, tuttiRedFunction_t function, void *arg,
					 size_t width, tuttiComm_t comm);

/* ---- groups ---------------------------------------------------------------------------------- */

/* tuttiGroupStart, tuttiGroupEnd - collect the calls of this thread, run them together at the end
 *   Order      sends and receives run concurrently, joins run concurrently, collectives of one
 *              communicator run in call order. Ranks may call the operations of a group in
 *              different orders, except for the collectives of one communicator and the messages
 *              from one rank to another. Groups nest; only the outermost end runs.
 *   Streams    calls of one communicator may be on several streams: they begin when all these
 *              streams come to the group, and the streams go on when all of the calls are complete
 *              (with CUDA streams, on CUDA streams only)
 *   Returns    tuttiSuccess | the first error of the group | tuttiInvalidUsage (end without start)
 *   Thread     each thread has its own group     Blocks   tuttiGroupEnd: as the calls inside */
TUTTI_API tuttiResult_t tuttiGroupStart(void);
TUTTI_API tuttiResult_t tuttiGroupEnd(void);

/* ---- after a failure -------------------------------------------------------------------------- *
 * The death of a rank breaks a communicator for collectives. Messages and quorum allreduces (below)
 * continue without the dead rank, and the surviving ranks can create a new communicator. */

/* State of a rank, as known to this rank. */
typedef enum {
	tuttiRankAlive = 0, /* no death or departure is known */
	tuttiRankLeft = 1,  /* destroyed or aborted its communicator */
	tuttiRankDead = 2   /* died */
} tuttiRankState_t;

/* tuttiCommRankState - get the state of a rank: alive, left or dead. A death is known within 2 s.
 *   Returns    tuttiSuccess | tuttiInvalidArgument     Thread   any     Blocks   no */
TUTTI_API tuttiResult_t tuttiCommRankState(tuttiComm_t comm, int rank, tuttiRankState_t *state);

/* tuttiCommShrink - create a new communicator of the surviving ranks of comm, in their order, with
 * an epoch of its own
 *
 *   excludeRanksList  [excludeRanksCount] ranks to exclude; the same list on every calling rank.
 *              Count 0: the callers detect the survivors. Excluded are ranks that are dead, have
 *              left, do not answer (stopped, cut off), or do not call within half the timeout. One
 *              rank decides for all; an excluded rank that calls or continues later is refused.
 *   newcomm    set on success
 *   config     as in tuttiCommInitRankConfig; NULL: the settings of comm
 *   shrinkFlags  TUTTI_SHRINK_DEFAULT, or TUTTI_SHRINK_ABORT: first fail the running operations of
 *              comm on all ranks
 *   Call       by every rank of the new communicator, after a failure or before any; not by ranks
 *              on the list
 *   Owns       comm stays as it is (broken or not); the caller destroys it. Destroy comm after the
 *              first successful call on newcomm: until then comm answers ranks that a late death
 *              delayed. Destroyed earlier, these ranks are refused.
 *   Returns    tuttiSuccess
 *              tuttiInvalidArgument  the list has a rank outside comm, this rank, or all ranks;
 *                                    newcomm is NULL
 *              tuttiInvalidUsage     the lists of the callers differ
 *              tuttiRemoteError      the others continued without this rank; or a rank that is not
 *                                    on the list is dead
 *              tuttiTimeout          with a list: ranks did not call in time, the text names them;
 *                                    without: further ranks fell silent again and again
 *              tuttiSystemError      sockets, memory, descriptors
 *   Thread     as calls
 *   Blocks     yes, at most three times the timeout, however many ranks are dead or do not answer;
 *              mostly milliseconds, and about half the timeout if ranks do not answer or call */
#define TUTTI_SHRINK_DEFAULT 0
#define TUTTI_SHRINK_ABORT 1
TUTTI_API tuttiResult_t tuttiCommShrink(tuttiComm_t comm, int *excludeRanksList,
					int excludeRanksCount, tuttiComm_t *newcomm,
					tuttiConfig_t *config, int shrinkFlags);

/* ---- messages --------------------------------------------------------------------------------- *
 * Messages carry bytes with a tag and a version from any rank to any rank of comm. Messages are
 * independent of the collectives and have no order with them. Messages between two ranks arrive in
 * the order in which one thread sent them. Calls need no stream; calls inside a group run at once.
 *   Memory     a rank buffers up to 64 MiB of unexpected messages (arrived, not yet received).
 *              Beyond that, messages stay at their senders, whose calls wait (back-pressure).
 *   Deaths     a death breaks nothing: a call that needs the dead rank gets tuttiRemoteError, all
 *              other calls continue, even if collectives of the communicator are broken. So does an
 *              abort by another rank, which has left then; the error names the rank and the abort.
 *   Thread     any, several concurrently: a server may receive in one thread and send in another */
#define TUTTI_ANY (-1)

typedef struct {
	int source; /* rank of the sender */
	int tag;
	uint64_t version;
	size_t bytes;
} tuttiMsg_t;

/* tuttiMsgSend - send a message
 *
 *   buff       [bytes] host memory
 *   peer       any rank, also this rank
 *   tag        >= 0
 *   version    any value; meaning defined by the caller
 *   Returns    tuttiSuccess          buff may be reused; the message is on its way or has arrived
 *              tuttiInvalidArgument  buff is NULL with bytes > 0, or CUDA memory; peer or tag
 *                                    out of range
 *              tuttiInvalidUsage     after tuttiCommFinalize
 *              tuttiSystemError      memory, descriptors, threads
 *              tuttiRemoteError      peer is dead or has left
 *              tuttiTimeout          peer accepted no byte for the timeout; the message may still
 *                                    arrive
 *   Thread     any     Blocks   until buff may be reused */
TUTTI_API tuttiResult_t tuttiMsgSend(const void *buff, size_t bytes, int peer, int tag,
				     uint64_t version, tuttiComm_t comm);

/* tuttiMsgRecv - receive the oldest message that matches source and tag
 *
 *   buff       [bytes] host memory; a larger message is tuttiInvalidArgument and stays queued
 *   source, tag  TUTTI_ANY matches any
 *   timeout_ms 0: do not wait; -1: the communicator's timeout
 *   msg        set on success: source, tag, version and bytes of the message; NULL: not wanted
 *   Returns    tuttiSuccess | tuttiInvalidArgument | tuttiInvalidUsage (after tuttiCommFinalize)
 *              tuttiInProgress   no message arrived in time, or tuttiMsgCancel ended the wait; not
 *                                an error
 *              tuttiRemoteError  source (TUTTI_ANY: every other rank) is dead or has left, and no
 *                                message from it is queued
 *   Thread     any     Blocks   at most timeout_ms; while a matching message arrives in part, at
 *                               most the communicator's timeout more */
TUTTI_API tuttiResult_t tuttiMsgRecv(void *buff, size_t bytes, int source, int tag, int timeout_ms,
				     tuttiComm_t comm, tuttiMsg_t *msg);

/* tuttiMsgProbe - as tuttiMsgRecv, but the message stays queued: msg tells source, tag, version
 * and bytes */
TUTTI_API tuttiResult_t tuttiMsgProbe(int source, int tag, int timeout_ms, tuttiComm_t comm,
				      tuttiMsg_t *msg);

/* tuttiMsgCancel - drop queued messages and end waits
 *
 *   source, tag  TUTTI_ANY matches any
 *   version    messages with a lower version are dropped; UINT64_MAX: all. Waits of other threads
 *              for exactly this source and tag end with tuttiInProgress.
 *   dropped    set to the number of dropped messages; NULL: not wanted
 *   Returns    tuttiSuccess | tuttiInvalidArgument | tuttiInvalidUsage (after tuttiCommFinalize)
 *   Thread     any     Blocks   no */
TUTTI_API tuttiResult_t tuttiMsgCancel(int source, int tag, uint64_t version, tuttiComm_t comm,
				       uint64_t *dropped);

/* ---- quorum allreduce ------------------------------------------------------------------------- *
 * Quorum allreduce works on host memory only, like messages. */

#define TUTTI_QUORUM_RANKS 1024
#define TUTTI_QUORUM_KEPT 16

/* Outcome of this rank's contribution. */
typedef enum {
	tuttiQuorumIn = 0,   /* part of the result of operation `sequence` */
	tuttiQuorumLate = 1, /* arrived after completion: dropped, or copied to carry */
	tuttiQuorumNone = 2  /* sendbuff was NULL: no contribution */
} tuttiQuorumMine_t;

/* Result of a quorum allreduce. Initialize with TUTTI_QUORUM_INITIALIZER. */
typedef struct {
	size_t size; /* in: sizeof(tuttiQuorum_t) */
	void *carry; /* in: [count] receives a late contribution; NULL: drop it */
	/* in: results for a late rank: 0: the newest; 1: one after the other, while rank 0 keeps
	 * them */
	int every;
	int count; /* out: number of contributions in the result */
	tuttiQuorumMine_t mine;
	uint64_t sequence; /* out: number of the operation in recvbuff, from 1 */
	uint64_t newest;   /* out: number of the newest complete operation */
	/* out: bit r % 64 of mask[r / 64]: rank r is in the result */
	uint64_t mask[TUTTI_QUORUM_RANKS / 64];
} tuttiQuorum_t;
#define TUTTI_QUORUM_INITIALIZER                                        \
	{                                                               \
		sizeof(tuttiQuorum_t), NULL, 0, 0, tuttiQuorumIn, 0, 0, \
		{                                                       \
			0                                               \
		}                                                       \
	}

/* tuttiAllReduceQuorum - combine the first k contributions; every rank gets that result
 *
 *   sendbuff   [count] host memory. NULL: contribute nothing, get the next result that this rank
 *              has not got
 *   recvbuff   [count] host memory
 *   k          1..nranks: an operation completes with k contributions. An operation also completes,
 *              with fewer, deadline_ms after the first contribution or when every live rank has
 *              contributed.
 *   deadline_ms  0: the timeout
 *   quorum     in: carry, every; out: the result's number, count and mask; NULL: not wanted. All
 *              ranks that get the result of one operation get the same bits, count and mask. The
 *              sum runs in rank order over the mask, so its bits depend only on the mask; with all
 *              ranks in the mask they equal those of algorithm reduce-to-one. Avg divides by count.
 *   Call       The number of an operation is the number of this rank's last result plus 1. The
 *              library of rank 0 computes the sum, whether or not rank 0 is inside a call. A late
 *              rank (its operation is complete) gets a result at once: the newest, and continues
 *              from there; or with `every` the result of its own operation, if that is among the
 *              TUTTI_QUORUM_KEPT newest and their memory is below 64 MiB. Quorum operations have no
 *              order with collectives.
 *   Owns       the caller leaves the buffers untouched until the stream reaches this point (NULL
 *              stream: until return); with a stream, *quorum must live as long
 *   Returns    tuttiSuccess
 *              tuttiInvalidArgument  as tuttiAllReduce; an op of tuttiRedOpCreatePreMulSum; k out
 *                                    of range; more than TUTTI_QUORUM_RANKS ranks
 *              tuttiInvalidUsage     count, datatype, op or k differ from another rank's; in a
 *                                    group
 *              tuttiRemoteError      rank 0 died or left. The death of another rank only removes
 *                                    its contribution.
 *              tuttiTimeout          no answer of rank 0 for deadline_ms plus the timeout
 *              tuttiSystemError      memory, descriptors, threads; no memory at rank 0
 *   Thread     as calls     Blocks   NULL stream: until the operation is complete */
TUTTI_API tuttiResult_t tuttiAllReduceQuorum(const void *sendbuff, void *recvbuff, size_t count,
					     tuttiDataType_t datatype, tuttiRedOp_t op, int k,
					     int deadline_ms, tuttiComm_t comm,
					     tuttiStream_t stream, tuttiQuorum_t *quorum);

/* ---- memory ---------------------------------------------------------------------------------- */

/* tuttiMemAlloc - allocate page-aligned, zeroed memory that ranks of the same host can map: large
 * calls read it by single copy, the fastest way
 *   ptr        set on success; free with tuttiMemFree
 *   size       bytes
 *   Owns       a forked child shares the memory with its parent (MAP_SHARED) until the parent frees
 *              it; tuttiMemFree in the child only unmaps it there
 *   Returns    tuttiSuccess | tuttiInvalidArgument (ptr is NULL) | tuttiSystemError (no memory)
 * tuttiMemFree - free memory of tuttiMemAlloc; NULL is ignored
 *   Returns    tuttiSuccess | tuttiInvalidArgument (ptr is not of tuttiMemAlloc)
 *              tuttiInvalidUsage     a call on a stream uses the memory and is not complete; the
 *                                    memory is not freed
 *   Thread     any     Blocks   no */
TUTTI_API tuttiResult_t tuttiMemAlloc(void **ptr, size_t size);
TUTTI_API tuttiResult_t tuttiMemFree(void *ptr);

/* tuttiCommRegister - register a buffer that later calls on comm will use often: a hint, never
 * required, without influence on results
 *   buff       [size bytes] stays mapped until the handle is deregistered: NICs may keep it
 *              registered, and read and write it
 *   handle     set on success (NULL if size is 0), for tuttiCommDeregister; freed with comm at the
 *              latest
 *   Returns    tuttiSuccess | tuttiSystemError (no memory)
 *              tuttiInvalidArgument  handle or buff is NULL, or size reaches beyond the last address
 *   Thread     any     Blocks   no
 * tuttiCommDeregister - end a registration; a NULL handle is ignored
 *   Returns    tuttiSuccess | tuttiInvalidArgument (not a live handle of comm) */
TUTTI_API tuttiResult_t tuttiCommRegister(const tuttiComm_t comm, void *buff, size_t size,
					  void **handle);
TUTTI_API tuttiResult_t tuttiCommDeregister(const tuttiComm_t comm, void *handle);

/* ---- host streams ---------------------------------------------------------------------------- */

/* tuttiStreamCreate - create a host stream: a queue with a thread that runs its operations in order
 * tuttiStreamSynchronize - wait for all operations
 * tuttiStreamQuery - check for completion
 * tuttiStreamDestroy - synchronize, then free
 *   Returns    Create: tuttiSuccess | tuttiInvalidArgument (stream is NULL) | tuttiSystemError
 *              Synchronize, Destroy: tuttiSuccess | the first error since the last synchronize
 *              Query: tuttiSuccess (all complete) | tuttiInProgress | the error, as Synchronize
 *              all but Create: tuttiInvalidArgument (not a live host stream of this process)
 *              Synchronize, Destroy: tuttiInvalidUsage (from a callback of the stream itself)
 *   Thread     any
 *   Blocks     Synchronize, Destroy: until the queue is empty (every operation has its deadline)
 *              and its callbacks have returned */
TUTTI_API tuttiResult_t tuttiStreamCreate(tuttiStream_t *stream);
TUTTI_API tuttiResult_t tuttiStreamSynchronize(tuttiStream_t stream);
TUTTI_API tuttiResult_t tuttiStreamQuery(tuttiStream_t stream);
TUTTI_API tuttiResult_t tuttiStreamDestroy(tuttiStream_t stream);

/* Marks: events and callbacks are marks in the order of a host stream. A mark is reached when the
 * operations before it are complete. The result of a mark is the first error of the operations
 * between the mark before it (whatever its kind) and itself: behind one operation, it is the result
 * of that operation. Marks leave the error that tuttiStreamSynchronize returns as it is. */

/* tuttiStreamAddCallback - call a function when the stream reaches this point
 *
 *   callback   called once, also after errors, by the thread of the stream: result and text (one
 *              sentence, "" on success; valid during the call) of the mark. The operations behind
 *              it wait until it returns. May call any function, as a caller of its own; it must not
 *              wait for its stream, so not call without a stream (NULL), finalize or destroy a
 *              communicator that has operations behind it on this stream.
 *   ctx        first argument of callback
 *   Returns    tuttiSuccess | tuttiInvalidArgument (callback is NULL, not a live host stream of
 *              this process) | tuttiSystemError (no memory; callback is not called)
 *   Thread     any     Blocks   no */
typedef void (*tuttiCallback_t)(void *ctx, tuttiResult_t result, const char *text);
TUTTI_API tuttiResult_t tuttiStreamAddCallback(tuttiStream_t stream, tuttiCallback_t callback,
					       void *ctx);

/* tuttiEventCreate - create an event, complete and without an error
 * tuttiEventRecord - mark this point of a host stream. Recorded again, the event means its latest
 *              mark.
 * tuttiEventQuery - check whether the mark was reached
 * tuttiEventSynchronize - wait until the mark is reached
 * tuttiEventDestroy - wait until all marks of the event are reached, then free
 *   Returns    Create: tuttiSuccess | tuttiInvalidArgument (event is NULL) | tuttiSystemError
 *              Record: tuttiSuccess | tuttiInvalidArgument (not a live host stream of this process)
 *              | tuttiSystemError (no memory; the event is unchanged)
 *              Query: tuttiSuccess | tuttiInProgress | the result of the mark, each time
 *              Synchronize: tuttiSuccess | the result of the mark, each time
 *              Destroy: tuttiSuccess
 *              all but Create: tuttiInvalidArgument (not a live event of this process)
 *   Thread     any; Destroy: while no other thread uses the event
 *   Blocks     Synchronize, Destroy: until the marks are reached (every operation has its
 *              deadline); so not in a callback of the stream */
TUTTI_API tuttiResult_t tuttiEventCreate(tuttiEvent_t *event);
TUTTI_API tuttiResult_t tuttiEventRecord(tuttiEvent_t event, tuttiStream_t stream);
TUTTI_API tuttiResult_t tuttiEventQuery(tuttiEvent_t event);
TUTTI_API tuttiResult_t tuttiEventSynchronize(tuttiEvent_t event);
TUTTI_API tuttiResult_t tuttiEventDestroy(tuttiEvent_t event);

#ifdef __cplusplus
}
#endif
#endif
