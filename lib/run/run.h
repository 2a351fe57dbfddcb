/* run.h - the part of run that api and gpu call: requests in, results out. op.h is for run, local
 * and gpu. */
#ifndef TT_RUN_H
#define TT_RUN_H

#include "run/op.h"
#include "run/plan_cache.h"

/* Run requests of any communicators as one set, in this thread. 0 | the first failure, which has
 * broken every communicator of the set that had not finished. Blocks: until the deadline. */
int tt_run_requests(const struct tt_request *requests, size_t n);
/* Report an error to all ranks that would wait for requests that do not begin. Returns code. */
int tt_run_unbegun(const struct tt_request *requests, size_t n, int code);

/* Do two buffers have no byte in common? */
static inline bool tt_apart(const void *a, size_t a_bytes, const void *b, size_t b_bytes)
{
	return (uintptr_t)a - (uintptr_t)b >= b_bytes && (uintptr_t)b - (uintptr_t)a >= a_bytes;
}

/* quorum_request.c: a quorum allreduce as one request in ticket order. run and drop free it. */
struct tt_quorum_request {
	struct tt_quorum_call call;
	tuttiQuorum_t *user; /* receives the result, or NULL */
};
int tt_quorum_request_run(const struct tt_request *request);
void tt_quorum_request_drop(const struct tt_request *request);

/* order.c: run requests in call order. Blocks: until this thread's tickets are served on every
 * communicator of the requests (at once when no stream was ever used with them), and they ran. */
int tt_run_in_order(const struct tt_request *requests, size_t n);
/* The same behind the caller: copy the requests to the stream's queue. 0 | TT_ARG, TT_SYSTEM. */
int tt_stream_submit(tuttiStream_t stream, const struct tt_request *requests, size_t n);
/* stream_set.c: the same as one batch of several streams, which begins when all of them have arrived at it;
 * they go on when it is complete. NULL among the streams: blocks until then, and returns its result. */
int tt_streams_submit(const struct tt_request *requests, size_t n);
/* Does a request that is queued or running in ticket order use bytes of this memory? Then a copy of
 * the request is in *ret_request. */
bool tt_run_uses(const void *start, size_t bytes, struct tt_request *ret_request);
/* Wait until nothing of comm is queued or running in any stream. */
void tt_run_drain(tuttiComm_t comm);
/* comm is not live any more: its queued requests fail without being started. Running ones go on.
 * Blocks: no. */
void tt_run_cancel(tuttiComm_t comm);

/* object_pool.c: memory for the time of a call or a group; new memory counts as an allocation of
 * comm. NULL: no memory. */
void *tt_pool_take(tuttiComm_t comm, size_t bytes);
void tt_pool_give(void *memory);

/* host_stream.c */
int tt_stream_create(tuttiStream_t *ret_stream);
int tt_stream_wait(tuttiStream_t stream);  /* 0 | first error since the last wait */
int tt_stream_query(tuttiStream_t stream); /* 1 still working | 0 | the error */
int tt_stream_destroy(tuttiStream_t stream);

/* event.c. query: 1 not reached yet | 0 | the error. destroy waits for the marks of the event. */
int tt_event_create(tuttiEvent_t *ret_event);
int tt_event_record(tuttiEvent_t event, tuttiStream_t stream);
int tt_event_query(tuttiEvent_t event);
int tt_event_wait(tuttiEvent_t event);
int tt_event_destroy(tuttiEvent_t event);
int tt_stream_add_callback(tuttiStream_t stream, tuttiCallback_t call, void *ctx);

#endif
