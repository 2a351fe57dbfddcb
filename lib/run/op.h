/*
 * op.h - an operation in flight: a plan bound to the buffers of a call, and the progress of each
 * cursor
 *
 * operation.c and p2p.c start it, its way (way.h) advances it, run.c drives sets of operations,
 * wait.c decides how to wait while nothing moves. api hands in requests; only run, local and gpu
 * see operations.
 *
 * Cursors: a lane's steps are executed for every tile. To keep several tiles in flight, the tiles
 * of a lane are dealt out to `width` cursors (tile t belongs to cursor t % width); each cursor has
 * a channel, and so a message stream, of its own.
 */
#ifndef TT_OP_H
#define TT_OP_H

#include <string.h>

#include "comm/comm.h"
#include "mem/copy.h"
#include "run/request.h"
#include "run/stores.h"

struct tt_way;
struct tt_cached_plan;

/* The call as other ranks see it. */
struct tt_op_call {
	const struct tt_request *request;
	struct tt_call record;
	uint64_t digest; /* of record */
	uint64_t seq;    /* collectives: the communicator's; SENDRECV: the pair's */
	uint32_t stamp;
};

/* operation.c: the plan, bound to the buffers and sizes of the call */
struct tt_op_bound {
	const struct tt_plan *plan;
	struct tt_cached_plan *cached; /* SENDRECV: NULL */
	const struct tt_path *path;    /* links of its messages */
	tt_reduce_fn *reduce;
	char *base[3]; /* TT_IN, TT_OUT, TT_SCRATCH */
	size_t block;  /* bytes of the call's count */
	size_t element_bytes;
	struct tt_binding tiles;
	bool past;   /* outputs are so large that copies bypass the caches */
	bool scaled; /* inputs are multiplied by a number first */
};

struct tt_cursor {
	/* next to execute; sub: first block of its next message, within the step */
	uint32_t tile, step, sub;
	uint32_t row; /* first step of the step's row (TT_STEP_INTERLEAVED) */
	bool more;    /* a step of the row has messages after this round's */
	/* prepost.c: first message whose receive is not preposted yet */
	uint32_t preposted_tile, preposted_step, preposted_sub;
	uint8_t lane, channel;
	bool finished, computed; /* computed: dst is written, the post of `to` missing */
};

struct tt_op_cursors {
	uint32_t n, nfinished;
	bool preposts; /* messages are large, and a transport takes preposts */
	struct tt_cursor at[TT_LANE_CHANNELS];
};

/* Posted sends whose bytes still lie in the user's buffer: later writes there must wait. */
#define TT_MAX_PENDING 64
struct tt_op_posts {
	uint32_t n;
	struct tt_pending {
		struct tt_link *link;
		uint64_t number;
		const char *start, *end;
	} at[TT_MAX_PENDING];
};

/* Ways that post to shared-memory slots: progress of the current post. */
struct tt_op_slots {
	bool posted;
	int awaited; /* first rank whose post has not arrived */
	/* slot_pair.c: this rank's half of the piece is summed; bytes of the pieces before */
	bool summed;
	size_t done;
};

/* p2p.c: Send and Recv, a plan of one lane of one step */
struct tt_op_p2p {
	struct tt_plan plan;
	struct tt_step step;
	uint32_t first; /* tile that moves next; those before it have moved (eager_tiles.c) */
	bool exchanges; /* the set that runs together receives messages */
};

/* connect.c: links of channels [first, end); valid while way is tt_connecting_way */
struct tt_op_connecting {
	int first, end;
	int *connected;          /* set to `end` when all links are connected; may be NULL */
	struct tt_link *missing; /* first link that is not connected; NULL: it could not be made */
};

struct tt_op {
	struct tt_op *next; /* next operation of the set that runs together */
	struct tt_op *then; /* operation that starts when this one is complete */
	tuttiComm_t comm;
	const struct tt_way *way;
	const struct tt_way *observer; /* a way that declined the call, but measures it; or NULL */
	struct tt_staging *staging;    /* the request's (staging.h), or NULL */
	bool started, complete;
	struct tt_op_call call;
	struct tt_op_bound bound;
	struct tt_op_slots slots;
	struct tt_stores_call stores; /* into shared memory */
	struct tt_op_cursors cursors;
	struct tt_op_posts posts;
	struct tt_op_p2p p2p;
	struct tt_op_connecting connecting;
};

/* messages from this size on may be sent and received in place (zero copy) */
#define TT_LARGE_BYTES (16u << 10)

/* Copy into buf of op; bypasses the caches where no reader follows soon. */
static inline void tt_op_copy(const struct tt_op *op, enum tt_buf buf, void *dst, const void *src,
			      size_t bytes)
{
	if (op->bound.past && buf == TT_OUT)
		tt_copy_nontemporal(dst, src, bytes);
	else
		tt_copy(dst, src, bytes);
}

/* operation.c: the op of a request, not started */
void tt_op_init(struct tt_op *op, const struct tt_request *request);
/* Start op when the ones before it are complete: find and bind the plan, number and log the call,
 * begin its way, scale inputs. Blocks: no. 0 | the call's result */
int tt_op_start(struct tt_op *op);
/* The part of a start that depends on the request only: plan, binding, buffers, way. 0 | the
 * call's result */
int tt_op_bind(struct tt_op *op);
/* After the last step: finish averages, mark the call as done in the call log. */
void tt_op_finish(struct tt_op *op);
/* Bind blocks of a plan to bytes, cut them into tiles, place the cursors. */
void tt_op_bind_plan(const struct tt_op *op, size_t bytes, struct tt_binding *ret_binding);
void tt_op_place_cursors(struct tt_op *op);

/* Count a completed call. */
static inline void tt_op_count(tuttiComm_t c)
{
	atomic_store_explicit(&c->calls.operations,
			      atomic_load_explicit(&c->calls.operations, memory_order_relaxed) + 1,
			      memory_order_relaxed);
}

/* eager.c: a message by shared memory, now. true: done | false: nothing has changed, it needs an operation.
 * Blocks: for the spins of a wait. set: bit i is set if requests[i] is done; n: 0 for more than TT_EAGER_MOST. */
#define TT_EAGER_MOST 64
bool tt_eager(const struct tt_request *request);
uint64_t tt_eager_set(const struct tt_request *requests, size_t n);

/* eager_tiles.c: the same for the other requests of the set (at most TT_EAGER_MOST), if some has several tiles. true:
 * all are done | false: ret_tiles[i] is the number of tiles of requests[i] that have moved, or TT_ALL_TILES; the
 * rest needs operations. Blocks: for the spins of waits in which nothing moves. */
#define TT_ALL_TILES UINT32_MAX
bool tt_eager_tiles(const struct tt_request *requests, size_t n, uint64_t done,
		    uint32_t *ret_tiles);

/* p2p.c: start a Send or Recv. 0 | the call's result. Blocks: no. */
int tt_op_start_p2p(struct tt_op *op);
/* p2p.c: tell the link the buffer and the length of a message before its first tile. exchanges: this rank also
 * receives */
void tt_p2p_announce(struct tt_link *l, const struct tt_request *r, const void *buffer,
		     size_t bytes, bool exchanges);

/* connect.c: begin to connect the links of channels [first, end) to the peers of op. If some are not
 * connected yet, op goes the way tt_connecting_way until they are. *connected (or NULL) becomes end
 * then. 0 | < 0 */
int tt_op_connect(struct tt_op *op, int first, int end, int *connected);

/* step.c: execute steps of one cursor until it blocks. > 0 something moved | 0 nothing could | < 0
 * failed. After its last step a cursor is finished. */
int tt_cursor_advance(struct tt_op *op, struct tt_cursor *cursor);
/* Forget posts that are complete; true when none is left. */
bool tt_op_settled(struct tt_op *op);
/* The peer whose message (or room) cursor i waits for, -1: none, or another lane; *ret_ep: its
 * endpoint, or NULL. */
int tt_cursor_waits_for(const struct tt_op *op, uint32_t i, struct tt_endpoint **ret_ep);
/* For tests of deaths: TUTTI_FAULT names the step before which this rank dies or stops. */
void tt_fault(tuttiComm_t comm);
static inline void tt_fault_point(tuttiComm_t comm)
{
	if (tt_unlikely(comm->fault.what))
		tt_fault(comm);
}
/* As get of struct tt_transport, with a fault point. The fault strikes when the message is here, but not released. */
int tt_fault_get(tuttiComm_t comm, struct tt_link *l, void *dst, size_t bytes, uint32_t stamp,
		 bool keep);
static inline int tt_fault_point_get(tuttiComm_t comm, struct tt_link *l, void *dst, size_t bytes,
				     uint32_t stamp, bool keep)
{
	if (tt_unlikely(comm->fault.what))
		return tt_fault_get(comm, l, dst, bytes, stamp, keep);
	return l->t->get(l, dst, bytes, stamp, keep);
}

/* run.c: run the operations of a set, and those that start after them, to completion; a failure
 * breaks their communicators on all ranks. 0 | the first failure. Blocks: until the deadline. */
int tt_run(struct tt_op *set);

/* wait.c */
struct tt_wait {
	tuttiComm_t comm;                   /* of the set's first operation: its policy holds */
	uint64_t started_ns, deadline_ns;   /* of the time in which nothing moves */
	uint32_t idle;                      /* rounds in a row in which nothing moved */
	uint32_t spins, yields;             /* of these rounds: how many spin, then yield */
	uint64_t yielded_ns;                /* end of the last yield */
	uint64_t arrived;                   /* bytes received before the last look_around */
	uint64_t examined_ns;               /* when transports were last asked for a fault */
	bool armed;                         /* endpoints know that this rank is about to sleep */
	uint32_t ticket[TT_MAX_TRANSPORTS]; /* of arm, for doze */
};
/* Rounds to spin in the next wait of comm. */
uint32_t tt_wait_spins(tuttiComm_t comm);
/* Notes that the wait that tt_wait_spins began ended within its spins. */
static inline void tt_wait_spun(tuttiComm_t c)
{
	if (tt_unlikely(c->wait.impatience) && c->wait.all_spins)
		c->wait.impatience = 0;
}
/* Let another rank run on this core, in a wait without an operation. false: this rank has a core of its own, or has
 * yielded some times in this wait (*yields, 0 at first), or should not yield: an operation goes on with the wait */
bool tt_wait_yield(tuttiComm_t comm, uint32_t *yields);
/* Something moved: the next wait starts with spinning. */
void tt_wait_reset(struct tt_wait *w);
/* Nothing moved: spin, yield or sleep. 0 go on | < 0 broken or too late, with the error text */
int tt_wait_idle(struct tt_wait *w, struct tt_op *set);

/* op_error.c: the error text for a failure of op; other ranks are informed. Returns the code. */
int tt_op_error_late(struct tt_op *op);
int tt_op_error_starting(struct tt_op *op, int code);
int tt_op_error_broken(struct tt_op *op);
int tt_op_error_symptom(struct tt_op *op, int code);
/* Has this host's own network a fault? No other rank can know of it, and messages may be lost. 0 no
 * | < 0 */
int tt_op_error_own(struct tt_op *set);
void tt_op_error_spread(struct tt_op *set, int code);
/* Asks the other ranks for their status, since this rank waits long for the set that begins with
 * op. */
void tt_op_error_ask(struct tt_op *op);

#endif
