/* host_stream.h - batches of requests and marks, and the streams that run them; for order.c,
 * host_stream.c, event.c and lib/gpu */
#ifndef TT_HOST_STREAM_H
#define TT_HOST_STREAM_H

#include "run/run.h"

/* Called with the result when a batch has run, by the thread that ran it. Its owner embeds it. */
struct tt_batch_done {
	void (*call)(struct tt_batch_done *done, int rc);
};

/* Element of a stream's queue: work, or a mark. Its owner embeds it as first member. run: called by the
 * stream's thread, frees the item; returns 0 or the code of tt_fail. NULL: a mark */
struct tt_stream_item {
	struct tt_stream_item *next;
	int (*run)(struct tt_stream_item *item);
};

/* Mark between the batches of a stream. The stream's thread calls reached once, when it comes to
 * the mark: rc and text are of the first batch that failed since the mark before it; 0 and "": none
 * did. Owns: reached frees the mark. */
struct tt_stream_mark {
	struct tt_stream_item item;
	bool inner; /* inside one call of the user: the next mark sees the same batches again */
	void (*reached)(struct tt_stream_mark *mark, int rc, const char *text);
};

struct tt_batch {
	struct tt_stream_item item;
	struct tt_batch *next_listed; /* order.c's */
	bool aborted;                 /* an aborted communicator's requests were removed */
	struct tt_batch_done *done;   /* or NULL */
	size_t n;
	struct tt_request requests[];
};

/* Copy the requests and draw a ticket of each of their communicators. NULL: tt_fail was called. */
struct tt_batch *tt_batch_draw(const struct tt_request *requests, size_t n);
/* Wait until the tickets are served on every communicator, run, serve the next ones. Frees the
 * batch. Blocks. */
int tt_batch_run(struct tt_batch *batch);

int tt_stream_check(tuttiStream_t stream);
/* The stream owns the item (of a batch: batch->item) from now on. */
void tt_stream_push(tuttiStream_t stream, struct tt_stream_item *item);
/* The stream owns the mark from now on. */
void tt_stream_push_mark(tuttiStream_t stream, struct tt_stream_mark *mark);

#endif
