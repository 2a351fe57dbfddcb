/*
 * op.h - one operation in flight: a plan bound to a call's buffers,
 * and how far each cursor has come
 *
 * operation.c makes it, step.c executes single steps, run.c drives sets of them, wait.c decides what
 * to do when nothing moves. api hands in requests; nobody else sees operations.
 *
 * Cursors: a lane's steps are walked for every tile. To keep several tiles in flight, the tiles of
 * a lane are dealt out to `width` cursors (tile t belongs to cursor t % width); each cursor has a
 * channel, and so a message stream, of its own.
 */
#ifndef TT_OP_H
#define TT_OP_H

#include <string.h>

#include "comm/comm.h"
#include "mem/copy.h"

/* A call as the user made it. Copied, so that a stream can run it later. */
struct tt_request {
	enum tt_collective collective;
	bool barrier;
	bool quorum;                    /* scalar is a struct tt_quorum_request * */
	const void *in;
	void *out;
	size_t count;
	tuttiDataType_t type;
	tuttiRedOp_t op;
	int root;                       /* SENDRECV: the peer */
	bool send;                      /* SENDRECV: this side sends */
	bool to_self;                   /* SENDRECV: the peer is this rank */
	tuttiComm_t comm;
	tuttiStream_t stream;
	bool holds_ticket;                /* of its communicator, for its batch (order.c): */
	uint64_t ticket;
	bool scaled;                    /* op was a pre-multiplied sum: op is tuttiSum now, and: */
	uint64_t scalar;
	/* in and out are stages of device memory, copied while it runs; NULL: no */
	struct tt_pipeline *pipeline;
	/* in or out is device memory, which cards read and write; NULL: no */
	struct tt_gdr *gdr;
};

/* gpu_staging.c makes it, gpu_direct_rdma.c uses it. */
struct tt_gdr {
	struct tt_gpu *d;
	uint64_t in, in_end, out, out_end;     /* what of the call is device memory */
	bool dirty;                     /* cards have written what the device may not see yet */
	void *host;                     /* in its place, since the call took another road */
	bool failed;
};

/* gpu_staging.c makes it, gpu_pipeline.c moves it; the fields behind the line belong to the operation. */
struct tt_pipeline {
	struct tt_gpu *d;
	char *stage_in, *stage_out;
	uint64_t in, out;               /* on the device; 0: nothing to copy */
	size_t in_bytes, out_bytes;
	/* tiles that have come; pinned, written by the device, for which it is: */
	uint32_t *word;
	uint64_t word_at;
	/* ---- */
	uint32_t come, gone;            /* tiles of in that are here, of out that went back */
	uint32_t group;                 /* tiles copied at a time */
	bool late, failed;              /* out goes back at the end only; did not */
};

/* request.c. What a collective needs: a buffer of every rank (in_all, out_all), else of the root
 * only; a root or peer; an op; and whether a buffer has a part for each rank. */
struct tt_need { bool in_all, out_all, rooted, reduces, in_parts, out_parts; };
extern const struct tt_need tt_needs[TT_COLLECTIVES];
/* Bytes of the buffers that this rank must give, 0: none. false: more than memory can hold. */
bool tt_request_extents(const struct tt_request *request, size_t *ret_in, size_t *ret_out);
/* Bytes of the larger buffer of the call: what algorithms are chosen by. */
size_t tt_request_bytes(const struct tt_request *request);

struct tt_cursor {
	/* next to execute; sub: first block of its next message, within the step */
	uint32_t tile, step, sub;
	uint32_t row;                   /* first step of the row that step is in (TT_STEP_INTERLEAVED) */
	bool more;                      /* a step of the row has messages behind this round's */
	uint32_t told_tile, told_step, told_sub;       /* prepost.c: up to where transports know */
	uint8_t lane, channel;
	bool finished, computed;        /* computed: dst is written, the post of `to` missing */
};

/* A posted send whose bytes still lie in the user's buffer: later writes there must wait for it. */
struct tt_pending { struct tt_link *link; uint64_t number; const char *start, *end; };
#define TT_MAX_PENDING 64
/* messages from this size on: is there a way to send or receive them in place? */
#define TT_LARGE_BYTES (16u << 10)

enum tt_single_copy_phase {
	TT_SINGLE_COPY_START,
	TT_SINGLE_COPY_BARRIER,
	TT_SINGLE_COPY_AGREE,
	TT_SINGLE_COPY_SUM,
	TT_SINGLE_COPY_FETCH,
	TT_SINGLE_COPY_LEAVE
};

struct tt_op {
	struct tt_op *next;             /* of the set that runs together */
	struct tt_op *then;             /* is started when this one is complete */
	tuttiComm_t comm;
	const struct tt_request *request;
	const struct tt_plan *plan;
	struct tt_cached_plan *kept;
	const struct tt_path *road;     /* by which its messages go */
	struct tt_call call;
	uint64_t digest;                /* of call */
	uint64_t seq;                   /* collectives: the communicator's; SENDRECV: the pair's */
	uint32_t stamp;
	bool started, complete;
	bool express, cast;             /* runs on the board instead of by its plan; has cast */
	bool direct;                    /* reads peers' buffers instead: */
	struct tt_single_copy_trial *trial;         /* in which this call counts (single_copy_choice.c), or NULL */
	int awaited;                    /* express, direct: first rank without a cast */
	/* its messages are large, and some transport wants to know where they belong */
	bool preposts;
	bool past;                      /* out is so large that copies there go past the caches */
	bool scaled;                    /* inputs are multiplied by a number before anything else */
	struct tt_pipeline *pipeline;           /* the request's, and: */
	struct tt_gdr *gdr;

	char *base[3];                  /* TT_IN, TT_OUT, TT_SCRATCH */
	size_t block;                   /* bytes of the call's count */
	/* unit: bytes from block to block; total: EVEN, bytes of all blocks */
	size_t element_bytes, unit, total;
	size_t tile_bytes;
	/* group: blocks of a message when a step names several */
	uint32_t ntiles, width, group;
	tt_reduce_fn *reduce;

	uint32_t ncursors, nfinished, npending;
	struct tt_cursor cursor[TT_LANE_CHANNELS];
	struct tt_pending pending[TT_MAX_PENDING];
	struct tt_plan own_plan;        /* SENDRECV: one lane of one step */
	struct tt_step own_step;

	/* single_copy.c */
	enum tt_single_copy_phase phase;
	/* kinds of memory in this call; some of it must be copied to be read */
	bool ordinary, windows, staged;
	uint8_t can;
	size_t part, done;              /* bytes of a rank's part; of the part at hand so far */
	unsigned fetched;               /* mask of ranks */
	int fetching;                   /* the rank whose part is half fetched, -1 none */
	bool offers;                    /* of single_copy_pscw.c: no meeting, no slot_posts */
	struct tt_address_exchange {
		struct tt_peer_memory in, out;
		bool in_place, insists;         /* insists: TUTTI_CMA=on */
		uint32_t ns[2][2];              /* what the rank measured, as in struct tt_single_copy_history */
	} met[TT_SLOT_RANKS];
	uint64_t met_ns;                /* when all had come */
	bool reads;                     /* it is one of those that read */
	/* NULL: to be read into the stage */
	const char *in_at[TT_SLOT_RANKS], *out_at[TT_SLOT_RANKS];
};

/* Into buf of op; past the caches where nobody reads it soon. */
static inline void tt_op_copy(const struct tt_op *op, enum tt_buf buf, void *dst, const void *src,
			      size_t bytes)
{
	if (op->past && buf == TT_OUT)
		tt_copy_nontemporal(dst, src, bytes);
	else
		memcpy(dst, src, bytes);
}

/* operation.c: op of a request that waits for its turn */
void tt_op_init(struct tt_op *op, const struct tt_request *request);
/* Its turn has come: picks and keeps the plan, binds buffers, takes the sequence number, notes the
 * call on the board, connects links that are new, scales inputs. Blocks only for new links. 0 |
 * what the call returns. */
int tt_op_start(struct tt_op *op);
/* The part of a start that only depends on the request: plan, binding, kernel, buffers. 0 | what
 * the call returns */
int tt_op_bind(struct tt_op *op);
/* One that express has numbered, noted and cast; only its sum is missing. */
void tt_op_resume(struct tt_op *op);
/* After the last step: average, board. */
void tt_op_finish(struct tt_op *op);

/* plan_cache.c: the plan for a collective, built on first use */
int tt_plan_cache_find(tuttiComm_t comm, enum tt_collective collective, size_t bytes, int root,
		 struct tt_memo **ret_memo);

/* step.c: execute steps of one cursor until it blocks. > 0 something moved | 0 nothing could | < 0
 * failed. A cursor that is through sets finished. */
int tt_cursor_advance(struct tt_op *op, struct tt_cursor *cursor);
/* Forget posts that are complete; true when none is left. */
bool tt_op_settled(struct tt_op *op);
/* The peer whose message (or room) cursor i waits for, -1: none, or it waits for another lane;
 * *ret_ep: where, or NULL. */
int tt_op_waits_for(const struct tt_op *op, uint32_t i, struct tt_endpoint **ret_ep);
/* For tests of deaths: TUTTI_FAULT names the step before which this rank dies or stops. */
void tt_fault(tuttiComm_t comm);
static inline void tt_fault_point(tuttiComm_t comm)
{
	if (tt_unlikely(comm->fault_what))
		tt_fault(comm);
}

/* express.c: does this prepared operation run on the board? As tt_cursor_advance, for all of it.
 * What the next call like it needs is remembered. */
bool tt_express_takes(const struct tt_op *op);
int tt_express_advance(struct tt_op *op);
void tt_express_learn(const struct tt_op *op);

/* single_copy.c: the same for operations that read peers' buffers. otherwise: they cannot; > 0 | < 0 */
bool tt_single_copy_takes(const struct tt_op *op);
void tt_single_copy_begin(struct tt_op *op);
int tt_single_copy_advance(struct tt_op *op);
int tt_op_otherwise(struct tt_op *op);


/* gpu_pipeline.c, for operations that have one. begin: whole: all inputs are read at once; look: has
 * this tile come (open: the same, quickly); flow: what is final goes back; end: the rest.
 * 0 | < 0 */
int tt_pipeline_begin(struct tt_op *op, bool whole);
bool tt_pipeline_look(struct tt_op *op, uint32_t tile);
static inline bool tt_pipeline_open(const struct tt_op *op, uint32_t tile)
{
	return tile < op->pipeline->come || tt_pipeline_look((struct tt_op *)(uintptr_t)op, tile);
}
int tt_pipeline_flow(struct tt_op *op);
void tt_pipeline_end(struct tt_op *op);

/* gpu_direct_rdma.c, for operations that have one. begin: its road is known; move: src to room and to
 * dst, whichever there are and wherever they are; reads: cards are about to read what lies there;
 * end: the device is. 0 | TT_CUDA, TT_SYSTEM */
int tt_gdr_move(struct tt_op *op, void *dst, void *room, const void *src, size_t bytes);
int tt_gdr_reads(struct tt_op *op, const void *p);
int tt_gdr_begin(struct tt_op *op);
void tt_gdr_end(struct tt_op *op);

/* run.c: the operations of a set, and those to be started after them, to completion; on failure
 * their communicators are broken, everywhere. 0 | the first failure */
int tt_run(struct tt_op *set);

/* wait.c */
struct tt_wait {
	/* of the set's first operation: whose policy holds, and where to sleep */
	tuttiComm_t comm;
	uint64_t started_ns, deadline_ns;      /* of the time in which nothing moves */
	/* rounds in a row in which nothing moved; how many of them to spin, to yield */
	uint32_t idle, spins, yields;
	uint64_t yielded_ns;                   /* the last time */
	uint64_t arrived;                      /* bytes that had come by the last look around */
	uint64_t examined_ns;                  /* when this host's network was asked for a fault */
	bool armed;                            /* endpoints know that this rank is about to sleep */
	uint32_t ticket[TT_MAX_TRANSPORTS];
};
/* Rounds to spin in the next wait of comm. */
uint32_t tt_wait_spins(tuttiComm_t comm);
/* Something moved: start over with spinning. */
void tt_wait_reset(struct tt_wait *w);
/* Nothing moved: spin, yield or sleep.
 * 0 go on | < 0 broken or too late; the sentence is in place. */
int tt_wait_idle(struct tt_wait *w, struct tt_op *set);

/* op_error.c: the sentence for a failure of op, and word of it to the other ranks. Returns code. */
int tt_op_error_late(struct tt_op *op);
int tt_op_error_starting(struct tt_op *op, int code);
int tt_op_error_broken(struct tt_op *op);
int tt_op_error_symptom(struct tt_op *op, int code);
/* Has this host's own network a fault? Nobody else can know of it, and what was sent through it may
 * be lost. 0 no | < 0 */
int tt_op_error_own(struct tt_op *set);
void tt_op_error_spread(struct tt_op *set, int code);
/* What op and the operations behind it in its set are in, for its communicator */
void tt_op_error_describe(const struct tt_op *op, struct tt_blocked *ret_stuck);
/* This rank waits long, in what is unfinished of the set that begins with op:
 * ask who is missing. */
void tt_op_error_ask(struct tt_op *op);

#endif
