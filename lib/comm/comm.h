/*
 * comm.h - a communicator: who is in it, how each pair is reached, what is kept between calls
 *
 * comm.c makes and frees it; run drives it; api checks what users hand in. Fields are written by
 * the thread that is inside a call (one at a time, see `turn`) unless a comment says otherwise.
 */
#ifndef TT_COMM_H
#define TT_COMM_H

#include <pthread.h>
#include <stdatomic.h>

#include "algorithms/algorithm.h"
#include "control/control.h"
#include "am/am.h"
#include "base/cores.h"
#include "base/fence.h"
#include "comm/locality.h"
#include "mem/reduce.h"
#include "plan/bind.h"
#include "model/choose.h"
#include "transports/transport.h"

#define TT_COMM_MAGIC 0x7475746du
#define TT_LANE_CHANNELS 8                     /* cursors of a collective, at most */
#define TT_P2P_CHANNEL TT_LANE_CHANNELS        /* Send and Recv have a channel of their own */
#define TT_P2P_CHANNELS 4                      /* or, by cards of several ports, one for each */
#define TT_CHANNELS (TT_LANE_CHANNELS + TT_P2P_CHANNELS)
#define TT_MAX_TRANSPORTS 8
#define TT_PATHS 2

struct tt_plan_cache;                          /* run/plan_cache.h */
struct tt_single_copy;                         /* local/single_copy.h */

struct tt_user_op {                            /* tuttiRedOpCreatePreMulSum */
	bool used;
	tuttiDataType_t type;
	const void *device;                    /* read at every call, or NULL: */
	uint64_t value;                        /* the element's bytes */
};

enum tt_wait_policy { TT_WAIT_SPIN, TT_WAIT_YIELD, TT_WAIT_SLEEP };

/* One way to every peer. A call takes one of them, all ranks the same. */
struct tt_path {
	struct tt_endpoint **via;              /* [nranks] */
	struct tt_link **links;                /* [TT_CHANNELS * nranks], NULL until connected */
	bool expects;                          /* one of them wants to know where messages belong */
	uint32_t spins;                        /* the least of the transports that reach peers */
};

struct tuttiComm {
	atomic_uint magic;                     /* 0: gone */
	unsigned fork_count;                   /* of the process that made it */
	int rank, nranks;
	uint32_t timeout_ms;
	char name[64], transport[16], algo[64];
	size_t tile_bytes;                     /* asked for; 0: chosen */
	struct tt_control *ctl;
	uint64_t quorum_done;                  /* number of the last quorum result this rank got */
	int quorum_tag;                        /* of its last quorum call */
	uint64_t shrinks;                      /* begun */
	struct tt_am *mail;                  /* goes on when calls cannot (am/am.h) */
	struct tt_gpu *gpu;                 /* NULL: no GPU (gpu/gpu.h) */

	/* how each pair is reached */
	struct tt_world world, nic_world;     /* nic_world: what verbs is lent */
	struct tt_topology topology, groups;   /* topology.groups is &groups, or NULL */
	int *group_of;                         /* [nranks], groups' */
	bool one_host, over_tcp;               /* agreed facts for the choice of a plan; and: */
	int cores;                             /* of the host that has fewest for its ranks */
	struct tt_cost *cost;                  /* rank 0's table, NULL: the built-in one */
	struct tt_endpoint *ep[TT_MAX_TRANSPORTS];
	int nep;
	/* [0] by the first transport that reaches the peer; [1] like it, but between hosts by
	 * cards, when all hosts reach each other so; then [0] is tcp there */
	struct tt_path road[TT_PATHS];
	int npaths, p2p_road;                  /* agreed, and: */
	/* class (cost.h) of the cards for all messages to other hosts, 0: there are none */
	uint8_t card;

	/* calls */
	uint64_t seq;                          /* collectives started */
	/* a digest of all of them; its high half is the stamp of the newest */
	uint64_t history;
	struct tt_endpoint *slots;            /* reaches all and can cast, or NULL; agreed */
	uint64_t slot_posts;
	int cma;                               /* TUTTI_CMA, as in struct tt_world */
	/* TUTTI_IB_..., as in struct tt_world; devices points to: */
	struct tt_verbs_settings ib;
	char ib_devices[128];
	uint64_t *p2p_sent, *p2p_received;     /* [nranks] */
	/* [nranks] the last collective in which a message of theirs came */
	uint64_t *last_received;
	struct tt_plan_cache *plans;           /* all that calls leave behind; NULL: no call yet */
	struct tt_single_copy *single_copy;    /* NULL: ranks cannot read each other's memory */
	void *scratch;
	size_t scratch_bytes;
	struct tt_registration *registrations; /* under lock */
	struct tt_user_op *user_ops;
	int nuser_ops;

	/* waiting */
	enum tt_wait_policy policy;
	uint32_t spins;                        /* of the road of the last wait */
	uint32_t impatience, waits;            /* see wait.c; also: */
	uint32_t yield_ns, pause_ms;
	uint64_t paused_until_ns;
	uint8_t barrier_byte;                  /* what tuttiBarrier reduces; always 0 */
	bool crowded;                          /* more ranks than cores on this host */
	int ranks_here;                        /* on this host */
	const char *fault_what;                /* TUTTI_FAULT for this rank, NULL: none */
	uint64_t fault_step, steps;

	/* turns: calls of one communicator run in call order, whichever thread runs them */
	pthread_mutex_t lock;                  /* guards the error text */
	uint64_t next_ticket, serving;         /* under turn.c's lock */
	atomic_bool queued;                    /* a stream was used with it: tickets are needed */
	atomic_int inside;                     /* calls and batches under way: abort waits */
	/* the same of the one that calls, who alone writes it, without a fence */
	atomic_int callers;
	atomic_bool finalized;
	int error;                             /* TT_..., first one wins; under lock */
	char error_text[1024];

	atomic_uint_fast64_t operations, sleeps, allocations;
};

/* quorum_call.c: one call of tuttiAllReduceQuorum */
struct tt_quorum_call {
	const void *in;                        /* NULL: nothing to contribute */
	void *out, *carry;
	size_t count;
	tuttiDataType_t type;
	tuttiRedOp_t op;
	int k;
	uint32_t deadline_ms;
	bool every;
	uint64_t number, newest;               /* of the operation it is for; then the rest: */
	tuttiQuorumMine_t mine;
	int used;
	uint64_t mask[TUTTI_QUORUM_RANKS / 64];
};
/* 0 | what tuttiAllReduceQuorum returns. Blocks. */
int tt_quorum_run(tuttiComm_t comm, struct tt_quorum_call *call);

/* What tuttiComm_t must be before anything is read from it: 0 | TT_ARG with the sentence. */
int tt_comm_check(tuttiComm_t comm);

static inline bool tt_comm_is_live(const struct tuttiComm *c)
{
	return atomic_load_explicit(&c->magic, memory_order_relaxed) == TT_COMM_MAGIC;
}

/* The same, and comm is not freed by tuttiCommAbort before tt_comm_leave.
 * Counted first, then looked at again, because it may be aborted in between;
 * the memory of a handle stays ours, so that this is safe. Between the two
 * belongs a fence, which abort pays for (membarrier.c). One caller at a time. */
static inline bool tt_comm_begin(tuttiComm_t c)
{
	atomic_store_explicit(&c->callers,
			      atomic_load_explicit(&c->callers, memory_order_relaxed) + 1,
			      memory_order_relaxed);
	atomic_signal_fence(memory_order_seq_cst);
	return tt_likely(tt_comm_is_live(c));
}

static inline void tt_comm_leave(tuttiComm_t c)
{
	atomic_store_explicit(&c->callers,
			      atomic_load_explicit(&c->callers, memory_order_relaxed) - 1,
			      memory_order_release);
}

static inline int tt_comm_enter(tuttiComm_t c)
{
	int rc = tt_comm_check(c);

	if (tt_unlikely(rc) || tt_comm_begin(c))
		return rc;
	tt_comm_leave(c);
	return tt_comm_check(c);
}

/* The same for a thread that is not the caller. */
static inline int tt_comm_visit(tuttiComm_t c)
{
	int rc = tt_comm_check(c);

	if (tt_unlikely(rc))
		return rc;
	atomic_fetch_add(&c->inside, 1);
	if (tt_likely(tt_comm_is_live(c)))
		return 0;
	atomic_fetch_sub(&c->inside, 1);
	return tt_comm_check(c);
}

/* Join; config may be NULL. Results as tuttiCommInitRankConfig. */
int tt_comm_join(const tuttiUniqueId *id, int nranks, int rank, const tuttiConfig_t *config,
		 tuttiComm_t *ret_comm);
/* code: 0, or why this rank cannot take part,
 * with this thread's last sentence: then all ranks fail. */
int tt_comm_split(tuttiComm_t parent, int color, int key, const tuttiConfig_t *config, int code,
		  tuttiComm_t *ret_comm);
/* Of those that are left, without those on the callers' list ([nranks];
 * nexcluded 0: there is none). */
int tt_comm_shrink(tuttiComm_t parent, const bool *excluded, int nexcluded,
		   const tuttiConfig_t *config, tuttiComm_t *ret_comm);
void tt_comm_free(tuttiComm_t comm);

/* The link to (peer, channel) of a road, connected and ready; waits at most until deadline_ns.
 * in: what this rank is in meanwhile. 0 | < 0 */
int tt_comm_connect(tuttiComm_t comm, const struct tt_path *road, int peer, int channel,
		    const struct tt_blocked *in, uint64_t deadline_ns);

/* registration.c. 0 | TT_SYSTEM; 0 | TT_ARG */
int tt_comm_register(tuttiComm_t comm, const void *start, size_t bytes, void **ret_handle);
int tt_comm_deregister(tuttiComm_t comm, void *handle);
void tt_comm_deregister_all(tuttiComm_t comm);

/* Remember the first failure of the communicator; returns code. Text: this thread's sentence. */
int tt_comm_failed(tuttiComm_t comm, int code);

/* At least bytes of memory that keeps its place until the next larger request;
 * NULL: tt_fail was called. */
void *tt_comm_scratch(tuttiComm_t comm, size_t bytes);

#endif
