/*
 * control_status_queue.c - statuses to the neighbors, several in a frame
 *
 * Called by control_status.c. When n ranks wait long, each rank passes on n statuses a second to
 * every neighbor. A frame for each of them would be n^2 frames a second in all: with 256 ranks on
 * two cores the service threads would do nothing else, and no connection would be made. So frames
 * leave at most every 10 ms, each with all statuses that came meanwhile.
 */
#include <stdlib.h>

#include "control/control_internal.h"

#define INTERVAL_NS (TT_SECOND / 100)

bool tt_status_queue_make(struct tt_status_queue *q, int nranks)
{
	q->origin = malloc((size_t)nranks * sizeof(*q->origin));
	q->from = malloc((size_t)nranks * sizeof(*q->from));
	q->due_ns = TT_NEVER;
	for (int r = 0; q->from && r < nranks; r++)
		q->from[r] = TT_STATUS_UNQUEUED;
	return q->origin && q->from;
}

void tt_status_queue_free(struct tt_status_queue *q)
{
	free(q->origin);
	free(q->from);
}

void tt_status_enqueue(struct tt_control *ctl, int origin, int from)
{
	struct tt_status_queue *q = &ctl->status.queue;

	if (q->from[origin] == TT_STATUS_UNQUEUED)
		q->origin[q->n++] = origin;
	q->from[origin] = from;
	if (q->due_ns == TT_NEVER)
		q->due_ns = q->sent_ns + INTERVAL_NS;
}

static void send_frame(struct tt_control *ctl, int neighbor, struct tt_writer *w)
{
	struct tt_conn *conn = tt_conn_to(ctl->ep, tt_control_peer(ctl, neighbor));

	if (conn && w->have)
		tt_conn_send(ctl->ep, conn, ctl->context, TT_F_STATUS, w->data, w->have);
	w->have = 0;
}

static void send_to(struct tt_control *ctl, int neighbor)
{
	const struct tt_status_queue *q = &ctl->status.queue;
	uint8_t bytes[TT_FRAME_STATUSES];
	struct tt_writer w = TT_WRITER_INTO(bytes);

	for (int i = 0; i < q->n; i++) {
		if (q->from[q->origin[i]] == neighbor)
			continue;
		if (w.have + TT_STATUS_BYTES > sizeof(bytes))
			send_frame(ctl, neighbor, &w);
		tt_put_status(&w, &ctl->status.latest[q->origin[i]]);
	}
	send_frame(ctl, neighbor, &w);
}

void tt_status_queue_send(struct tt_control *ctl, uint64_t now)
{
	struct tt_status_queue *q = &ctl->status.queue;
	int neighbor[TT_FANOUT + 3], n;

	if (now < q->due_ns)
		return;
	n = tt_control_neighbors(ctl, ctl->rank, neighbor);
	if (q->from[ctl->rank] == TT_STATUS_OWN)
		tt_status_fill(ctl, &ctl->status.latest[ctl->rank]);
	for (int i = 0; i < n; i++)
		send_to(ctl, neighbor[i]);
	for (int i = 0; i < q->n; i++)
		q->from[q->origin[i]] = TT_STATUS_UNQUEUED;
	q->n = 0;
	q->sent_ns = now;
	q->due_ns = TT_NEVER;
	ctl->status.ask = TT_STATUS_ANSWERS;
}
