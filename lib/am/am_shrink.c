/*
 * am_shrink.c - messages of shrink: each a frame of its own, ahead of the streams
 *
 * Called by shrink, in the caller's thread, and by am.c with frames. A shrink must not wait for a
 * message of the user that nobody receives, so its messages have neither credit nor order with the
 * streams; they keep their order among themselves. They are small, and a rank has few of them on
 * their way to a peer.
 *
 *   any rank  -- QUERY -->  service thread      proposer  -- PROPOSAL -->  coordinator
 *             <- ANSWER --                                <- DECISION --
 */
#include <stdlib.h>
#include <string.h>

#include "am/am_internal.h"
#include "control/frame.h"

/* ---- outgoing -------------------------------------------------------------------------------- */

/* false: no memory, nothing is sent */
static bool send_frame(struct tt_am *am, int peer, const struct tt_am_header *head,
		       const void *data)
{
	uint8_t raw[TT_AM_HEADER_BYTES];

	tt_am_header_put(head, raw);
	if (!tt_control_send_frame(am->ctl, peer, TT_F_SHRINK,
				   (struct iovec[2]){ { raw, sizeof(raw) },
						      { (void *)(uintptr_t)data, head->bytes } }))
		return false;
	am->sent_bytes += head->bytes;
	am->messages++;
	return true;
}

int tt_am_shrink_send(struct tt_am *am, int peer, const struct tt_am_header *head, const void *data,
		      uint64_t deadline_ns)
{
	int rc;

	pthread_mutex_lock(am->lock);
	rc = tt_am_connect_locked(am, peer, deadline_ns, &am->aborted);
	if (!rc && !send_frame(am, peer, head, data))
		rc = tt_fail(TT_SYSTEM, "rank %d: no memory for a message to rank %d", am->rank,
			     peer);
	pthread_mutex_unlock(am->lock);
	return rc;
}

bool tt_am_query(struct tt_am *am, int peer, const struct tt_am_header *head)
{
	bool connected;

	pthread_mutex_lock(am->lock);
	connected = tt_control_is_connected(am->ctl, peer);
	if (connected)
		send_frame(am, peer, head, NULL);
	pthread_mutex_unlock(am->lock);
	return connected;
}

/* ---- answers --------------------------------------------------------------------------------- */

/* Without memory the peer gets no answer, and counts this rank as silent. */
static void answer(struct tt_am *am, const struct tt_am_header *query)
{
	struct tt_am_header head = { .kind = TT_AM_ANSWER,
				     .tag = query->tag,
				     .bytes = am->answer_bytes };

	send_frame(am, query->source, &head, am->answer);
}

int tt_am_set_answer(struct tt_am *am, const void *data, size_t bytes)
{
	uint8_t *copy = data ? malloc(bytes) : NULL;

	if (copy)
		memcpy(copy, data, bytes);
	pthread_mutex_lock(am->lock);
	free(am->answer);
	am->answer = copy;
	am->answer_bytes = copy ? bytes : 0;
	pthread_mutex_unlock(am->lock);
	if (data && !copy)
		return tt_fail(TT_SYSTEM, "rank %d: no memory for an answer of %zu bytes", am->rank,
			       bytes);
	return 0;
}

int tt_am_asker(struct tt_am *am)
{
	int asker;

	pthread_mutex_lock(am->lock);
	asker = am->asker;
	pthread_mutex_unlock(am->lock);
	return asker;
}

void tt_am_forget_asker(struct tt_am *am)
{
	pthread_mutex_lock(am->lock);
	am->asker = -1;
	pthread_mutex_unlock(am->lock);
}

static void take_query(struct tt_am *am, const struct tt_am_header *query)
{
	if (query->source < am->rank)
		am->asker = query->source;
	answer(am, query);
}

/* ---- incoming -------------------------------------------------------------------------------- */

/* The queue has no bound for these messages, so each kind has its size. */
static bool is_allowed(const struct tt_am *am, const struct tt_am_header *h)
{
	switch (h->kind) {
	case TT_AM_PROPOSAL:
		return h->bytes <= TT_AM_PROPOSAL_BYTES;
	case TT_AM_DECISION:
		return h->bytes <= TT_AM_DECISION_BYTES((size_t)am->nranks);
	case TT_AM_QUERY:
		return !h->bytes;
	case TT_AM_ANSWER:
		return h->bytes <= TT_AM_ANSWER_BYTES((size_t)am->nranks);
	default:
		return false;
	}
}

void tt_am_shrink_frame(struct tt_am *am, int peer, const uint8_t *data, size_t bytes)
{
	struct tt_am_header h = { .bytes = bytes };

	if (!tt_control_is_open(am->ctl, peer))
		return;
	if (bytes < TT_AM_HEADER_BYTES || !tt_am_header_get(data, &h) || !is_allowed(am, &h) ||
	    h.bytes != bytes - TT_AM_HEADER_BYTES) {
		tt_am_malformed(am, peer, &h);
		return;
	}
	h.source = peer;
	if (h.kind == TT_AM_QUERY)
		take_query(am, &h);
	else if (!tt_unexpected_place(am, &h, data + TT_AM_HEADER_BYTES))
		tt_control_frame_no_memory(am->ctl, peer);
}
