/* stream.h - batches of requests and the streams that run them; between turn.c and stream.c only */
#ifndef TT_STREAM_H
#define TT_STREAM_H

#include "run/run.h"

struct tt_batch {
	struct tt_batch *next;                 /* of the stream */
	struct tt_batch *next_waiting;         /* turn.c's */
	bool aborted;                          /* some requests were taken out */
	size_t n;
	struct tt_request requests[];
};

/* Waits for its turn on every communicator, runs, passes the turns on. Takes the batch. */
int tt_batch_run(struct tt_batch *batch);

int tt_stream_check(tuttiStream_t stream);
/* Takes ownership of the batch. */
void tt_stream_push(tuttiStream_t stream, struct tt_batch *batch);

#endif
