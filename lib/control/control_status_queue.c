/*
 * control_status_queue.c - statuses to the neighbors, several in a frame
 *
 * Called by control_status.c. When n ranks wait long, each rank passes on n statuses a second to
 * every neighbor. A frame for each of them would be n^2 frames a second in all: with 256 ranks on
 * two cores the service threads would do nothing else, and no connection would be made. So frames
 * leave at most every 10 ms, each with all statuses that came meanwhile.
 */
#include "control/control_internal.h"

#define INTERVAL_NS (TT_SECOND / 100)

void tt_status_enqueue(struct tt_control *ctl, struct tt_rank_status *latest, int from)
{
	struct tt_status_queue *q = &ctl->status.queue;

	if (latest->from == TT_STATUS_UNQUEUED) {
		*(q->first ? &q->last->next_queued : &q->first) = latest;
		q->last = latest;
		latest->next_queued = NULL;
	}
	latest->from = from;
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

	for (const struct tt_rank_status *s = q->first; s; s = s->next_queued) {
		if (s->from == neighbor)
			continue;
		if (w.have + TT_STATUS_BYTES > sizeof(bytes))
			send_frame(ctl, neighbor, &w);
		tt_put_status(&w, &s->status);
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
	if (ctl->status.table.own.from == TT_STATUS_OWN)
		tt_status_fill(ctl, &ctl->status.table.own.status);
	for (int i = 0; i < n; i++)
		send_to(ctl, neighbor[i]);
	for (struct tt_rank_status *s = q->first; s; s = s->next_queued)
		s->from = TT_STATUS_UNQUEUED;
	q->first = q->last = NULL;
	q->sent_ns = now;
	q->due_ns = TT_NEVER;
	ctl->status.ask = TT_STATUS_ANSWERS;
}
