/* run.h - what api needs of run: requests in, results out. op.h is for run's own files. */
#ifndef TT_RUN_H
#define TT_RUN_H

#include "run/op.h"

/* Run requests of any communicators as one set, in this thread. Blocks until the deadline.
 * Returns 0 | the first failure, which has then broken every communicator of the set that had not
 * finished. */
int tt_run_requests(const struct tt_request *requests, size_t n);

/* Do two buffers have no byte in common? */
static inline bool tt_apart(const void *a, size_t a_bytes, const void *b, size_t b_bytes)
{
	return (uintptr_t)a - (uintptr_t)b >= b_bytes && (uintptr_t)b - (uintptr_t)a >= a_bytes;
}

/* express.c: the short way of an allreduce of few bytes, NULL stream, outside groups. 0 done | < 0
 * as tt_run_requests | 1 not for this call: nothing was checked or done. comm: checked by
 * tt_comm_check. */
int tt_express(tuttiComm_t comm, const void *in, void *out, size_t count, tuttiDataType_t type,
	       tuttiRedOp_t op);

/* repeat.c: the same for other small collectives, if one like it was learnt. learn: after a call
 * that succeeded; bytes of the buffers that this rank gave, 0 where it needs none. */
int tt_repeat(const struct tt_request *request);
void tt_repeat_learn(const struct tt_request *request, size_t in_bytes, size_t out_bytes);

/* quorum_request.c: a quorum allreduce waits for its turn as one request. run and drop free it. */
struct tt_quorum_request {
	struct tt_quorum_call call;
	tuttiQuorum_t *user;                   /* told how it went, or NULL */
};
int tt_quorum_request_run(const struct tt_request *request);
void tt_quorum_request_drop(const struct tt_request *request);

/* order.c: in call order. Blocks until it is this thread's turn on every communicator of the
 * requests (at once when no stream was ever used with them), runs, passes the turn on. */
int tt_run_in_order(const struct tt_request *requests, size_t n);
/* The same behind the caller: copies the requests to the stream's queue. 0 | TT_ARG, TT_SYSTEM. */
int tt_stream_submit(tuttiStream_t stream, const struct tt_request *requests, size_t n);
/* Wait until nothing of comm is queued or running in any stream. */
void tt_run_drain(tuttiComm_t comm);
/* comm is not live any more: what is queued of it fails without being started. What runs goes on.
 * Blocks: no. */
void tt_run_cancel(tuttiComm_t comm);

/* object_pool.c: memory for the time of a call or a group, counted as comm's when it is new; give it
 * back. NULL: none left. */
void *tt_pool_take(tuttiComm_t comm, size_t bytes);
void tt_pool_give(void *memory);

/* host_stream.c */
int tt_stream_create(tuttiStream_t *ret_stream);
int tt_stream_wait(tuttiStream_t stream);              /* 0 | first error since the last wait */
int tt_stream_query(tuttiStream_t stream);             /* 1 still working | 0 | the error */
int tt_stream_destroy(tuttiStream_t stream);

#endif
