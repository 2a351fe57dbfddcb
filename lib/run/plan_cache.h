/*
 * plan_cache.h - all that a communicator remembers of its collective calls
 *
 *   built     plans, each built once
 *   chosen    the algorithm predicted to be fastest, per collective and size class
 *   row       calls: for each collective, count, type, op and root, its plan, path, binding, call
 *             record and way; and for a way that can repeat calls, what it prepared for them
 *
 * api asks tt_run_cached before everything else: a call whose row has an `again` is run with two
 * compares and without a bound operation. Every other call goes through tt_plan_cache_find, and
 * after its success tt_run_learn prepares the row. lib/gpu keeps the programs of its kernels in
 * rows of their own (TT_KEY_DEVICE).
 *
 * Lock: none; the thread that runs the communicator's operations reads and writes the cache. Once
 * a stream was used with the communicator (`queued`), threads take tickets, and no row is read
 * outside of its ticket.
 */
#ifndef TT_PLAN_CACHE_H
#define TT_PLAN_CACHE_H

#include "run/request.h"

struct tt_op;
struct tt_way;
struct tt_prepared;
struct tt_plan_row;
struct tt_gpu_program;

/* Bytes of the user's buffers, 0: this rank needs none. */
struct tt_extents {
	size_t in, out;
};

/* struct tt_way.again */
typedef int tt_again_fn(tuttiComm_t comm, const struct tt_plan_row *row, const void *in, void *out);

struct tt_cached_plan {
	struct tt_cached_plan *next;
	const struct tt_algorithm *algorithm;
	uint8_t number; /* of the algorithm, for the call record */
	int root;
	int channels[TT_PATHS]; /* per path: links of channels 0..n-1 are connected */
	struct tt_plan *plan;
};

/* kind: collective, barrier, scaled, device, type, op and root in one word; 0: no call */
struct tt_call_key {
	uint64_t kind;
	size_t count;
};
#define TT_KEY_BARRIER 0x10u
#define TT_KEY_SCALED 0x20u
#define TT_KEY_DEVICE 0x40u
#define TT_KEY_NONE ((struct tt_call_key){ 0, 0 })

static inline struct tt_call_key tt_call_key(unsigned collective_and_flags, tuttiDataType_t type,
					     tuttiRedOp_t op, int root, size_t count)
{
	if (tt_unlikely(((unsigned)type | (unsigned)op) > 0xff)) /* a handle, or no type at all */
		return TT_KEY_NONE;
	return (struct tt_call_key){ (uint64_t)(uint32_t)root << 32 | (uint64_t)op << 16 |
					     (uint64_t)type << 8 | (collective_and_flags + 1),
				     count };
}

static inline struct tt_call_key tt_request_key(const struct tt_request *r)
{
	return tt_call_key((unsigned)r->collective | (r->barrier ? TT_KEY_BARRIER : 0) |
				   (r->scaled ? TT_KEY_SCALED : 0),
			   r->type, r->op, r->root, r->count);
}

struct tt_plan_row {
	/* the first cache line is all that a repeated call by slots reads */
	struct tt_call_key key;
	tt_again_fn *again; /* NULL: calls must be bound */
	tt_reduce_fn *reduce;
	size_t bytes; /* of count elements */
	struct tt_call call;
	uint64_t digest; /* of call */

	struct tt_cached_plan *cached;
	const struct tt_path *path;
	struct tt_binding binding;
	const struct tt_way *way;     /* the first that fits; NULL: not bound yet */
	struct tt_prepared *prepared; /* message_way.c; kept when the row gets another call */
	union {
		/* TT_KEY_DEVICE: gpu_plan.c; NULL: not made yet */
		const struct tt_gpu_program *program;
		const struct tt_way *traced; /* others: trace_way.c, the way that it records */
	};
	/* tt_run_learn: the way refused to prepare these calls, with in == out or without */
	bool refused, refused_in_place;
};
_Static_assert(offsetof(struct tt_plan_row, cached) == TT_LINE, "one line for a repeated call");

#define TT_PLAN_ROWS 64
struct tt_plan_cache {
	_Alignas(TT_LINE) struct tt_plan_row row[TT_PLAN_ROWS];
	struct tt_cached_plan *built;
	/* 1 + number of the candidate, + TT_CHOSE_NIC; 0: not predicted yet */
	uint8_t chosen[TT_SENDRECV][TT_SIZE_CLASSES];
};
#define TT_CHOSE_NIC 0x80

/* The row of a call, with its plan, path and binding; valid until the next call of this function.
 * device: the call runs by GPU kernels. 0 | < 0 */
int tt_plan_cache_find(const struct tt_request *request, bool device, struct tt_plan_row **ret_row);

/* Runs a call whose row was prepared, without a bound operation. For a NULL stream, outside groups;
 * comm was checked by tt_comm_check. Nothing is checked or done unless the row fits. 0 done | < 0
 * as tt_run_requests | 1 the call has no such row. Blocks: until the deadline. */
int tt_run_cached(tuttiComm_t comm, struct tt_call_key key, const void *in, void *out);

/* Prepares the row of a call that succeeded for tt_run_cached. */
void tt_run_learn(const struct tt_request *request);

/* Free the cache and the state of all ways; the communicator runs nothing any more. */
void tt_run_close(tuttiComm_t comm);

/* Bytes of the cache; bytes of the ways' state. Thread: the caller of the communicator. */
size_t tt_plan_cache_memory(tuttiComm_t comm);
size_t tt_ways_memory(tuttiComm_t comm);

#endif
