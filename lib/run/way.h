/*
 * way.h - the ways of a collective: how its bytes get from rank to rank
 *
 *   messages       steps of the plan, over links of the transports (run/message_way.c)
 *   slots          express: all ranks post to shared-memory slots (local/express.c)
 *   peer memory    single copy: ranks read each other's buffers (local/single_copy.c)
 *   kernels        device memory: GPU kernels on a stream (gpu/gpu_call.c); outside of this engine,
 *                  but with its plans and numbers
 *   trace          records the call for the flight recorder, around one of the first three
 *                  (run/trace_way.c)
 *
 * run/operation.c starts an operation by the first row of tt_ways that takes it, run.c advances it.
 * lib/run defines the way by messages, lib/local the table and the other rows. All ranks must take
 * the same way, so every answer depends on agreed facts only. One collective of a communicator is
 * in flight at a time, so a way may keep the state of the current call per communicator.
 */
#ifndef TT_WAY_H
#define TT_WAY_H

#include "run/op.h"
#include "run/plan_cache.h"

struct tt_way {
	const char *name;

	/* Optional: this way's state of a communicator. open is called with the first collective,
	 * close when the communicator ends, also without open. memory: bytes held. 0 | TT_SYSTEM */
	int (*open)(tuttiComm_t comm);
	void (*close)(tuttiComm_t comm);
	size_t (*memory)(tuttiComm_t comm);

	/* Can calls like this bound operation go this way, by size, algorithm and communicator?
	 * The answer is kept in the plan cache. */
	bool (*fits)(const struct tt_op *op);

	/* Optional, after fits: does this call go this way? Called once per call. */
	bool (*takes)(const struct tt_op *op);

	/* Optional: start the operation, which is numbered. 0 | < 0 */
	int (*begin)(struct tt_op *op);

	/* Move what can move, without blocking. The way is done when cursors.nfinished equals
	 * cursors.n. > 0 something moved | 0 | < 0 */
	int (*advance)(struct tt_op *op);

	/* The rank that cursor i waits for, -1: none, or another lane; *ret_ep: the endpoint to
	 * sleep in, or NULL. */
	int (*waits_for)(const struct tt_op *op, uint32_t i, struct tt_endpoint **ret_ep);

	/* Optional: the operation is complete. */
	void (*finish)(struct tt_op *op);

	/* Optional: prepare the row for calls like op, which is bound but not started: from now on
	 * `again` of its collective runs them without binding. extents: bytes of the user's buffers.
	 * false: a call like this must be bound each time. */
	bool (*prepare)(struct tt_plan_row *row, const struct tt_op *op,
			const struct tt_extents *extents);

	/* With prepare: run such a call to completion. 0 | < 0 as tt_run | 1 these buffers do not
	 * fit; nothing was done. Blocks. */
	tt_again_fn *again[TT_SENDRECV];
};

/* The rows in the order in which they are tried; the last is messages, which takes everything. */
extern const struct tt_way *const tt_ways[];

/* message_way.c */
extern const struct tt_way tt_message_way;

/* connect.c: the way of an operation until its links are connected; then it goes by messages */
extern const struct tt_way tt_connecting_way;

/* trace_way.c: the way of every collective of a communicator with a flight recorder, last in tt_ways */
extern const struct tt_way tt_trace_way;

static inline bool tt_op_by_messages(const struct tt_op *op)
{
	return op->way == &tt_message_way || op->way == &tt_connecting_way;
}

/* operation.c: the first way from *from on that fits and takes op, begun. 0 | < 0 */
int tt_op_begin_way(struct tt_op *op, const struct tt_way *const *from);

/* operation.c: op's way declines after it has begun; the next one begins. > 0 | < 0 */
int tt_op_decline(struct tt_op *op);

/* operation.c: way declined op, but measures op: its `finish` is called at the end. */
void tt_op_observe(struct tt_op *op, const struct tt_way *way);

/* operation.c: take up a call that `again` has numbered, logged and posted to slots: bind it as an
 * operation, which tt_run completes. The plan is in the cache, so nothing can fail. */
void tt_op_resume(struct tt_op *op, const struct tt_way *way);

#endif
