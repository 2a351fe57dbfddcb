/*
 * comm.h - a communicator: its ranks, the path to each rank, caches between calls
 *
 * Owners: comm.c creates and frees; run executes calls; api checks the user's arguments. The thread
 * inside a call writes the fields (one thread at a time, in ticket order), unless a comment says
 * otherwise. "Agreed": equal on all ranks.
 */
#ifndef TT_COMM_H
#define TT_COMM_H

#include <pthread.h>
#include <stdatomic.h>

#include "algorithms/algorithms.h"
#include "control/control.h"
#include "am/am.h"
#include "base/cores.h"
#include "base/fence.h"
#include "comm/locality.h"
#include "mem/peer_lines.h"
#include "mem/reduce.h"
#include "plan/bind.h"
#include "model/choose.h"
#include "transports/transport.h"

#define TT_COMM_MAGIC 0x7475746du
#define TT_LANE_CHANNELS 8              /* lanes of a collective (cursors), at most */
#define TT_P2P_CHANNEL TT_LANE_CHANNELS /* channel of Send and Recv */
/* channels of Send and Recv, one per port of a NIC with several ports */
#define TT_P2P_CHANNELS 4
#define TT_CHANNELS (TT_LANE_CHANNELS + TT_P2P_CHANNELS)
_Static_assert(2 * TT_CHANNELS <= TT_DATA_CHANNELS, "links by tcp, and by NICs");
#define TT_MAX_TRANSPORTS 8
#define TT_PATHS 2

struct tt_plan_cache;  /* run/plan_cache.h */
struct tt_single_copy; /* local/single_copy.h */
struct tt_ras_entry;   /* ras.h */
struct tt_trace;       /* trace.h */

struct tt_user_op { /* op of tuttiRedOpCreatePreMulSum, or of tuttiRedOpCreate (function) */
	bool used;
	tuttiRedFunction_t function; /* NULL: pre-multiplied sum */
	void *arg;
	size_t width; /* elements of an operand of function */
	tuttiDataType_t type;
	const void *device; /* scalar read at every call, or NULL: value */
	uint64_t value;     /* bytes of the scalar */
};

enum tt_wait_policy { TT_WAIT_SPIN, TT_WAIT_YIELD, TT_WAIT_SLEEP };

/* Ranks up to the next run, by one endpoint */
struct tt_path_run {
	int first;
	unsigned via; /* 1 + index in ep; 0: none */
};

/* Path: one endpoint for each peer. A call takes one path, the same on all ranks. */
struct tt_path {
	struct tt_endpoint *const *ep; /* of the communicator */
	/* [nruns] mostly the ranks of this host, and those below and above; no run: none is reached */
	struct tt_path_run *run;
	int nruns, room;
	/* [nranks] of a channel, NULL until connected; NULL before the channel's first connection */
	struct tt_link **links[TT_CHANNELS];
	/* some transport supports preposted receives (early RTR) */
	bool preposts;
	uint32_t spins; /* minimum of the transports' spins */
};

/* 1 + index in ep, 0: none; the endpoint of a peer, NULL: none */
unsigned tt_path_number(const struct tt_path *path, int peer);
static inline struct tt_endpoint *tt_path_via(const struct tt_path *path, int peer)
{
	unsigned via = tt_path_number(path, peer);

	return via ? path->ep[via - 1] : NULL;
}

/* The link to a peer, NULL: not connected. Thread: any */
static inline struct tt_link *tt_path_link(const struct tt_path *path, int channel, int peer)
{
	struct tt_link **links = __atomic_load_n(&path->links[channel], __ATOMIC_ACQUIRE);

	return links ? links[peer] : NULL;
}

/* settings.c: requested by the config, the parent or the environment */
struct tt_comm_settings {
	uint32_t timeout_ms;
	char name[64], transport[16], algo[64];
	size_t tile_bytes; /* TUTTI_TILE_BYTES; 0: chosen by the library */
	bool majority;     /* TUTTI_SHRINK */
	int cma, encrypt;  /* TUTTI_CMA, TUTTI_ENCRYPT, as in struct tt_world */
	/* TUTTI_IB_..., as in struct tt_world; ib.devices points to ib_devices */
	struct tt_verbs_settings ib;
	char ib_devices[128];
};

/* comm.c: the hosts of the ranks; agreed */
struct tt_comm_hosts {
	struct tt_topology topology, groups; /* topology.groups is &groups, or NULL */
	int *group_of; /* [nranks] group of each rank; used by groups, else NULL */
	bool one_host;
	bool crowded;     /* more ranks than cores on this host */
	int ranks_here;   /* number of ranks on this host */
	int cores;        /* of the host with the fewest cores per rank */
	bool readers_own; /* of a rank's processor (mem/peer_lines.h) */
};

/* paths.c: transports and paths to peers */
struct tt_comm_paths {
	struct tt_world world, nic_world; /* nic_world: for the verbs transport */
	/* while transports open: the announcement of this rank, and those of all */
	struct tt_announcement announcement;
	const struct tt_parts *announced;
	struct tt_endpoint *ep[TT_MAX_TRANSPORTS];
	int nep;
	/* [0]: the first transport that reaches the peer. [1]: only if all hosts reach each other
	 * by NICs: NICs between hosts, [0] within a host; then [0] has tcp between hosts. */
	struct tt_path path[TT_PATHS];
	struct tt_path nic_path[TT_PATHS]; /* what path becomes if the NICs are used */
	int npaths, p2p_path;              /* agreed */
	size_t eager_bytes; /* of the largest Send and Recv of one message, at least; agreed */
	/* link class (cost.h) of the NICs for all messages between hosts; 0: none; agreed */
	uint8_t nic_class;
	bool over_tcp; /* tcp or verbs was requested; agreed */
	/* endpoint that reaches all ranks and has shared-memory slots, or NULL; agreed */
	struct tt_endpoint *slots;
	/* [TT_NOTES] choices of algorithms, which all ranks make alike: shared with ranks of this host
	 * (run/plan_cache.c); NULL: they share no memory */
	_Atomic uint8_t *notes;
};

/* run/stores.c: the stores of this rank into shared memory, for the calls of one class */
struct tt_stores {
	bool nontemporal, prefers; /* kind of stores in use; kind preferred between two trials */
	bool due;                  /* a trial of the other kind is due */
	bool strange;              /* the latest timed copy took much longer than those before */
	uint16_t calls;            /* calls since this kind is in use */
	uint32_t unseen;           /* bytes copied since the latest timed copy */
	uint64_t tried_ns;         /* time of the latest trial */
	/* times of the latest copies of 4 KiB by ordinary, non-temporal stores; 0: none */
	uint64_t ns[2];
};
#define TT_STORES_SIZES 6

/* local/slots.h: rounds of posts to shared-memory slots. A rank has finished a round when it has read
 * all it needs of it. */
struct tt_comm_rounds {
	uint64_t now; /* the current round, 0: none was yet */
	/* last round in which all ranks posted, and this rank has polled all: see tt_slots_settle */
	uint64_t full;
	uint64_t finished; /* all ranks have finished the rounds up to this one */
	/* last round that this rank has released: the others know that it has finished the rounds so far */
	uint64_t released;
	/* pages of this rank: the last round in its lower, its upper half; the half of the last page, and
	 * how much of it is used */
	uint64_t half[2];
	bool upper;
	uint32_t used;
	uint64_t read; /* last round in which this rank polled a page; the page */
	char *page;
	/* low halves of the stamps of the latest rounds in which not all ranks post and poll */
	uint16_t stamp[TT_SLOT_DEPTH];
};

/* run: numbers of calls */
struct tt_comm_calls {
	uint64_t seq; /* collectives started */
	/* digest of all collectives; its high half is the stamp of the newest */
	uint64_t history;
	struct tt_comm_rounds rounds;
	struct tt_stores slot_stores[TT_STORES_SIZES];                 /* collectives by slots */
	struct tt_stores message_stores[TT_SENDRECV][TT_STORES_SIZES]; /* collectives by messages */
	/* [nranks] point-to-point messages, in one piece of memory; NULL before the first one */
	uint64_t *p2p_sent, *p2p_received;
	/* [nranks] last collective in which this rank received a message from each rank; NULL: it has
	 * neither links nor slots yet */
	uint64_t *last_received;
	atomic_uint_fast64_t operations; /* completed */
};

/* Memory and user operations of a communicator. */
struct tt_comm_memory {
	void *scratch;
	size_t scratch_bytes;
	struct tt_registration *registrations; /* list of registered buffers; under lock */
	struct tt_user_op *user_ops;
	int nuser_ops;
	uint8_t barrier_byte; /* operand of tuttiBarrier; always 0 */
	atomic_uint_fast64_t allocations;
};

/* run/wait.c: how this rank waits */
struct tt_comm_wait {
	enum tt_wait_policy policy;
	uint32_t spins;      /* spins of the path of the last wait */
	uint32_t impatience; /* halvings of the spins */
	bool all_spins;      /* the latest wait had all spins */
	uint32_t waits;      /* number of waits while impatient */
	uint32_t yield_ns;   /* mean duration of a yield */
	uint32_t pause_ms;   /* length of the latest pause without yields */
	uint64_t paused_until_ns;
	atomic_uint_fast64_t sleeps;
	tuttiWaitHook_t hook; /* of the program, or NULL */
	void *hook_ctx;
};

/* TUTTI_FAULT of this rank; what NULL: none */
struct tt_comm_fault {
	const char *what;
	uint64_t step, steps;
};

/* run/order.c: ticket order. Calls of one communicator run in call order, in whichever thread. */
struct tt_comm_order {
	uint64_t next_ticket, serving; /* under the lock of run/order.c */
	atomic_bool queued;            /* some call used a stream: calls need tickets */
	/* calls and batches in progress; abort waits for 0 */
	atomic_int inside;
	/* the call in progress (caller.c): 0 none, TT_ONE_CALL, or the address of the requests of
	 * a group. The calling thread is the only writer: no atomic exchange, no fence */
	atomic_uintptr_t caller;
	atomic_bool finalized;
};

/* The first failure of a communicator; under lock. */
struct tt_comm_failure {
	int code; /* TT_ code; 0: none */
	char text[1024];
	char split[512]; /* why the latest split failed, which breaks nothing; "": it did not */
};

/* quorum_call.c */
struct tt_comm_quorum {
	uint64_t done; /* number of the last result that this rank got */
	int tag;       /* number of the last call */
};

struct tuttiComm {
	atomic_uint magic;   /* TT_COMM_MAGIC; 0: freed */
	unsigned fork_count; /* fork count of the creating process */
	int rank, nranks;
	pthread_mutex_t lock; /* guards the fields that say "under lock" */
	struct tt_comm_settings settings;
	struct tt_comm_hosts hosts;
	struct tt_comm_paths paths;
	struct tt_comm_calls calls;
	struct tt_comm_memory memory;
	struct tt_comm_wait wait;
	struct tt_comm_order order;
	struct tt_comm_fault fault;
	struct tt_comm_failure failure;
	struct tt_comm_quorum quorum;
	uint64_t setup_deadline_ns; /* deadline of its join, split or shrink */
	uint64_t splits, shrinks;   /* splits and shrinks begun */
	uint64_t shrink_epoch; /* newest that its shrinks know; an epoch names one set of members */
	struct tt_cost *cost;  /* cost table of rank 0; NULL: the built-in table */
	struct tt_control *ctl;
	struct tt_am *am;                   /* usable while collectives are broken (am/am.h) */
	struct tt_gpu *gpu;                 /* state of the accelerator (accelerator.h), or NULL */
	struct tt_plan_cache *plans;        /* run/plan_cache.h; NULL: no call yet */
	struct tt_single_copy *single_copy; /* local/single_copy.h; NULL: not used yet */
	struct tt_trace *trace;   /* trace.h; NULL: no TUTTI_TRACE, _METRICS, _RAS or _TOP */
	struct tt_ras_entry *ras; /* NULL: no TUTTI_RAS */
	uint64_t mark;            /* number of this communicator, which no other has; agreed */
};

/* quorum_call.c: arguments and result of one tuttiAllReduceQuorum */
struct tt_quorum_call {
	const void *in; /* NULL: no contribution */
	void *out, *carry;
	size_t count;
	tuttiDataType_t type;
	tuttiRedOp_t op;
	int k;
	uint32_t deadline_ms;
	bool every;
	/* outputs */
	uint64_t number, newest; /* number: of the operation; others as in tuttiQuorum_t */
	tuttiQuorumMine_t mine;
	int used;
	uint64_t mask[TUTTI_QUORUM_RANKS / 64];
};
/* Runs the call. 0 | as tuttiAllReduceQuorum. Blocks. */
int tt_quorum_run(tuttiComm_t comm, struct tt_quorum_call *call);

static inline bool tt_comm_is_live(const struct tuttiComm *c)
{
	return atomic_load_explicit(&c->magic, memory_order_relaxed) == TT_COMM_MAGIC;
}

/* comm.c: why comm is not a live communicator of this process. TT_ARG */
int tt_comm_refuse(tuttiComm_t comm);

/* Checks that comm is a live communicator of this process, before anything is read from it. 0 |
 * TT_ARG */
static inline int tt_comm_check(tuttiComm_t c)
{
	return tt_likely(c && tt_comm_is_live(c) && c->fork_count == tt_forks) ? 0
									       : tt_comm_refuse(c);
}

/* Begins a call of a checked communicator: tuttiCommAbort does not free comm before tt_comm_leave.
 * caller: TT_ONE_CALL, or an address that no other call has. Returns false if another call is in
 * progress, or comm was aborted. Stores first, then checks for an abort, which may run in between;
 * the memory of a handle is never unmapped, so the access is safe. The fence needed between both is
 * on the side of abort (asymmetric fence). Two calls that begin within some nanoseconds both get
 * true; tt_comm_leave reports them. */
#define TT_ONE_CALL ((uintptr_t)1)
static inline bool tt_comm_begin(tuttiComm_t c, uintptr_t caller)
{
	if (tt_unlikely(atomic_load_explicit(&c->order.caller, memory_order_relaxed)))
		return false;
	atomic_store_explicit(&c->order.caller, caller, memory_order_relaxed);
	atomic_signal_fence(memory_order_seq_cst);
	if (tt_likely(tt_comm_is_live(c)))
		return true;
	atomic_store_explicit(&c->order.caller, 0, memory_order_release);
	return false;
}

/* caller.c: two threads are in calls of c: breaks the communicator. refuse_caller: why
 * tt_comm_begin returned false to `call`, "tuttiCommSplit". overlapped: the other call began at the same
 * time as this one, with result rc. TT_USAGE | TT_ARG: comm was aborted; overlapped: rc */
int tt_comm_refuse_caller(tuttiComm_t comm, const char *call);
int tt_comm_overlapped(tuttiComm_t comm, int rc);

/* Ends a call with result rc. rc | TT_USAGE */
static inline int tt_comm_leave(tuttiComm_t c, uintptr_t caller, int rc)
{
	if (tt_unlikely(atomic_load_explicit(&c->order.caller, memory_order_relaxed) != caller))
		return tt_comm_overlapped(c, rc);
	atomic_store_explicit(&c->order.caller, 0, memory_order_release);
	return rc;
}

/* tt_comm_check and tt_comm_begin, for the public function `call`. 0 | TT_ARG, TT_USAGE */
static inline int tt_comm_enter(tuttiComm_t c, const char *call, uintptr_t caller)
{
	int rc = tt_comm_check(c);

	return tt_unlikely(rc) || tt_comm_begin(c, caller) ? rc : tt_comm_refuse_caller(c, call);
}

/* As tt_comm_enter, for any thread. End: decrement inside. */
static inline int tt_comm_visit(tuttiComm_t c)
{
	int rc = tt_comm_check(c);

	if (tt_unlikely(rc))
		return rc;
	atomic_fetch_add(&c->order.inside, 1);
	if (tt_likely(tt_comm_is_live(c)))
		return 0;
	atomic_fetch_sub(&c->order.inside, 1);
	return tt_comm_check(c);
}

/* The facts by which plans are bound; agreed. */
static inline struct tt_connectivity tt_comm_connectivity(const struct tuttiComm *c)
{
	return (struct tt_connectivity){ .nranks = c->nranks,
					 .one_host = c->hosts.one_host,
					 .over_tcp = c->paths.over_tcp,
					 .cores = c->hosts.cores,
					 .readers_own = c->hosts.readers_own };
}

/* A bound against garbage: the memory of rank 0's join is linear in nranks. */
#define TT_RANKS_MOST (1 << 20)
/* 0 | TT_ARG. call: for the text */
int tt_comm_check_ranks(const char *call, int rank, int nranks);
/* Joins; config may be NULL. Returns as tuttiCommInitRankConfig. */
int tt_comm_join(const tuttiUniqueId *id, int nranks, int rank, const tuttiConfig_t *config,
		 tuttiComm_t *ret_comm);
/* code: 0, or the error (text: last error of this thread) for which this rank cannot take part;
 * then all ranks fail. */
int tt_comm_split(tuttiComm_t parent, int color, int key, const tuttiConfig_t *config, int code,
		  tuttiComm_t *ret_comm);
/* Shrinks to the surviving ranks without the excluded ones ([nranks]; nexcluded 0: no list). */
int tt_comm_shrink(tuttiComm_t parent, const bool *excluded, int nexcluded,
		   const tuttiConfig_t *config, tuttiComm_t *ret_comm);
void tt_comm_free(tuttiComm_t comm);

/* paths.c: the link (peer, channel) of a path, made and begun to connect by the first call. 1
 * connected | 0 not yet, call again | < 0. Blocks: no. */
int tt_comm_connect(tuttiComm_t comm, const struct tt_path *path, int peer, int channel);

/* registration.c. register: 0 | TT_SYSTEM; deregister: 0 | TT_ARG */
int tt_comm_register(tuttiComm_t comm, const void *start, size_t bytes, void **ret_handle);
int tt_comm_deregister(tuttiComm_t comm, void *handle);
void tt_comm_deregister_all(tuttiComm_t comm);

/* Records the first failure of the communicator, with the last error text of this thread. Returns
 * code. */
int tt_comm_failed(tuttiComm_t comm, int code);

/* The facts by which the algorithm of a call of `bytes` is chosen */
struct tt_call_facts tt_comm_call_facts(tuttiComm_t comm, size_t bytes);

/* Scratch memory of at least `bytes`, valid until a larger request. NULL: tt_fail was called */
void *tt_comm_scratch(tuttiComm_t comm, size_t bytes);

#endif
