/* host_stream.h - batches of requests and the streams that run them; between order.c and host_stream.c only */
#ifndef TT_HOST_STREAM_H
#define TT_HOST_STREAM_H

#include "run/run.h"

struct tt_batch {
	struct tt_batch *next;                 /* of the stream */
	struct tt_batch *next_waiting;         /* order.c's */
	bool aborted;                          /* some requests were taken out */
	void (*done)(void *arg, int rc);       /* told when it has run, or NULL */
	void *done_arg;
	size_t n;
	struct tt_request requests[];
};

/* Copies the requests and draws a ticket of each of their communicators.
 * NULL: tt_fail was called. */
struct tt_batch *tt_batch_draw(const struct tt_request *requests, size_t n);
/* Waits for its turn on every communicator, runs, passes the turns on. Takes the batch. */
int tt_batch_run(struct tt_batch *batch);

int tt_stream_check(tuttiStream_t stream);
/* Takes ownership of the batch. */
void tt_stream_push(tuttiStream_t stream, struct tt_batch *batch);

#endif
