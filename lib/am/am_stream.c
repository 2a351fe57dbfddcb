/*
 * am_stream.c - the streams of messages between this rank and the others: cut into frames, joined
 * again, held back without credit
 *
 * Called by the other files of am, locked. No socket, no thread, no clock: bytes come and go as
 * frames of the endpoint's connections.
 *
 *   sender                                    receiver
 *   MESSAGE: header (48 bytes), body     ->   body: to a posted receive, the unexpected queue,
 *   MESSAGE: body ...                    ->         the quorum coordinator, or discarded
 *                                        <-   CREDIT: limit of the stream
 *
 * A receiver that has no destination for a body stalls: the limit stays, and what the sender has
 * sent up to there, the window at most, is held. So a receiver reads every frame, statuses come
 * through, and a sender keeps its messages. The limit is the window, and every byte of the messages
 * that have a destination.
 */
#include <stdlib.h>
#include <string.h>

#include "am/am_internal.h"
#include "control/frame.h"

/* ---- headers --------------------------------------------------------------------------------- */

void tt_am_header_put(const struct tt_am_header *h, uint8_t ret_raw[TT_AM_HEADER_BYTES])
{
	struct tt_writer w = { .data = ret_raw, .room = TT_AM_HEADER_BYTES, .fixed = true };

	memset(ret_raw, 0, TT_AM_HEADER_BYTES);
	tt_put(&w, h->kind, 4);
	tt_put(&w, (uint32_t)h->tag, 4);
	tt_put(&w, h->version, 8);
	tt_put(&w, h->bytes, 8);
	for (int i = 0; i < 4; i++)
		tt_put(&w, h->call[i], 4);
}

bool tt_am_header_get(const uint8_t raw[TT_AM_HEADER_BYTES], struct tt_am_header *ret_head)
{
	struct tt_reader r = { .at = raw, .left = TT_AM_HEADER_BYTES };

	ret_head->kind = (enum tt_am_kind)tt_get_upto(&r, 4, TT_AM_KINDS - 1);
	ret_head->tag = (int)tt_get_upto(&r, 4, INT32_MAX);
	ret_head->version = tt_get(&r, 8);
	ret_head->bytes = tt_get_upto(&r, 8, SIZE_MAX / 4);
	for (int i = 0; i < 4; i++)
		ret_head->call[i] = (uint32_t)tt_get(&r, 4);
	return !r.failed && ret_head->kind;
}

void tt_am_malformed(struct tt_am *am, int peer, const struct tt_am_header *h)
{
	tt_log(TT_LOG_WARN, "rank %d: rank %d sent a message of kind %d with %llu bytes", am->rank,
	       peer, h->kind, (unsigned long long)h->bytes);
	tt_control_malformed(am->ctl, peer);
}

/* ---- streams --------------------------------------------------------------------------------- */

/* The ranks with streams */
static int first(const struct tt_am *am)
{
	return tt_sparse_next(&am->streams, 0);
}

static int next(const struct tt_am *am, int rank)
{
	return tt_sparse_next(&am->streams, rank + 1);
}

struct tt_am_stream *tt_stream_of(struct tt_am *am, int peer)
{
	struct tt_am_stream *s = tt_stream_at(am, peer);

	if (s)
		return s;
	s = calloc(1, sizeof(*s));
	if (!s || !tt_sparse_set(&am->streams, peer, s)) {
		free(s);
		return NULL;
	}
	s->peer = peer;
	s->sendq_last = &s->sendq;
	s->limit = s->granted = am->window;
	return s;
}

void tt_am_payload_drop(struct tt_am_payload *payload)
{
	if (--payload->refs == 0)
		free(payload);
}

static void complete_send(struct tt_am *am, struct tt_am_outgoing *m, int rc)
{
	if (m->payload)
		tt_am_payload_drop(m->payload);
	if (!m->from_caller) {
		free(m);
		return;
	}
	m->rc = rc;
	m->done = true;
	pthread_cond_broadcast(&am->changed);
}

static void free_stream(struct tt_am *am, struct tt_am_stream *s)
{
	struct tt_am_outgoing *m;

	while ((m = s->sendq)) {
		s->sendq = m->next;
		complete_send(am, m, TT_REMOTE);
	}
	tt_sparse_set(&am->streams, s->peer, NULL);
	free(s->held);
	free(s);
}

/* ---- outgoing -------------------------------------------------------------------------------- */

static void retry_later(struct tt_am *am)
{
	am->retries = true;
	tt_control_wake(am->ctl);
}

/* Sends the next frame of a message: what is left of its header, and a piece of its body. */
static bool send_frame(struct tt_am *am, struct tt_am_stream *s, struct tt_am_outgoing *m)
{
	uint64_t credit = s->limit - s->sent;
	size_t room = credit < TT_FRAME_MESSAGE ? (size_t)credit : TT_FRAME_MESSAGE,
	       head = m->sent < TT_AM_HEADER_BYTES ? TT_AM_HEADER_BYTES - m->sent : 0, body;
	struct iovec part[2] = { { m->head + TT_AM_HEADER_BYTES - head, head }, { NULL, 0 } };

	if (head > room)
		head = part[0].iov_len = room;
	body = m->bytes - m->sent - head;
	if (head == room)
		body = 0;
	else if (body > room - head)
		body = room - head;
	if (body)
		part[1] = (struct iovec){
			(void *)(uintptr_t)(m->data + m->sent + head - TT_AM_HEADER_BYTES), body
		};
	if (!tt_control_send_frame(am->ctl, s->peer, TT_F_MESSAGE, part)) {
		retry_later(am);
		return false;
	}
	m->sent += head + body;
	s->sent += head + body;
	return true;
}

void tt_stream_send(struct tt_am *am, struct tt_am_stream *s)
{
	struct tt_am_outgoing *m;

	while ((m = s->sendq) && !s->cut && s->sent < s->limit &&
	       tt_control_has_room(am->ctl, s->peer)) {
		if (!send_frame(am, s, m))
			return;
		if (m->sent < m->bytes)
			continue;
		s->sendq = m->next;
		if (!s->sendq)
			s->sendq_last = &s->sendq;
		am->sent_bytes += m->bytes - TT_AM_HEADER_BYTES;
		am->messages++;
		complete_send(am, m, 0);
	}
}

void tt_stream_enqueue(struct tt_am *am, struct tt_am_stream *s, struct tt_am_outgoing *m)
{
	bool idle = !s->sendq;

	*s->sendq_last = m;
	s->sendq_last = &m->next;
	if (idle)
		tt_stream_send(am, s);
}

/* Without memory the message is dropped: the peer waits until its deadline. */
void tt_am_post(struct tt_am *am, int peer, const struct tt_am_header *head,
		struct tt_am_payload *payload)
{
	struct tt_am_stream *s = tt_control_is_open(am->ctl, peer) ? tt_stream_of(am, peer) : NULL;
	struct tt_am_outgoing *m = s ? calloc(1, sizeof(*m)) : NULL;

	if (!m)
		return;
	tt_am_header_put(head, m->head);
	m->bytes = TT_AM_HEADER_BYTES + head->bytes;
	if (payload) {
		payload->refs++;
		m->payload = payload;
		m->data = payload->data;
	}
	tt_stream_enqueue(am, s, m);
}

void tt_stream_credit(struct tt_am *am, int peer, const uint8_t *data, size_t bytes)
{
	struct tt_am_stream *s = tt_stream_at(am, peer);
	struct tt_reader r = { .at = data, .left = bytes };
	uint64_t limit = tt_get(&r, 8);

	if (!tt_get_end(&r))
		tt_control_malformed(am->ctl, peer);
	else if (s && limit > s->limit) {
		s->limit = limit;
		tt_stream_send(am, s);
	}
}

bool tt_stream_all_sent(const struct tt_am *am)
{
	for (int r = first(am); r < am->nranks; r = next(am, r))
		if (tt_stream_at(am, r)->sendq && tt_am_lives(am, r))
			return false;
	return true;
}

/* ---- incoming -------------------------------------------------------------------------------- */

/* Results and their outcomes come from the coordinator; an outcome gets memory without a bound of
 * the queue, so it has its size. */
static bool is_allowed(const struct tt_am_header *h)
{
	switch (h->kind) {
	case TT_AM_OUTCOME:
		return h->source == 0 && h->bytes <= TUTTI_QUORUM_RANKS / 8;
	case TT_AM_RESULT:
		return h->source == 0;
	case TT_AM_USER_MESSAGE:
	case TT_AM_CONTRIBUTION:
		return true;
	default:
		return false;
	}
}

/* The message has a destination: its bytes count as taken. Half a window is worth a frame. */
static void grant(struct tt_am *am, struct tt_am_stream *s)
{
	uint8_t raw[8];
	struct tt_writer w = TT_WRITER_INTO(raw);
	uint64_t limit = s->placed + am->window;

	if (limit - s->granted < am->window / 2)
		return;
	tt_put(&w, limit, 8);
	if (tt_control_send_frame(am->ctl, s->peer, TT_F_CREDIT,
				  (struct iovec[2]){ { raw, sizeof(raw) }, { NULL, 0 } }))
		s->granted = limit;
	else
		retry_later(am);
}

static void place(struct tt_am *am, struct tt_am_stream *s)
{
	s->placed += TT_AM_HEADER_BYTES + s->head.bytes;
	grant(am, s);
}

static void stall(struct tt_am *am, struct tt_am_stream *s)
{
	s->stalled = true;
	s->next_stalled = NULL;
	*am->stalled_last = s;
	am->stalled_last = &s->next_stalled;
	pthread_cond_broadcast(&am->changed);
}

static void unstall(struct tt_am *am, struct tt_am_stream *s)
{
	struct tt_am_stream **at = &am->stalled;

	while (*at != s)
		at = &(*at)->next_stalled;
	*at = s->next_stalled;
	if (am->stalled_last == &s->next_stalled)
		am->stalled_last = at;
	s->stalled = false;
}

/* false: the header is malformed, and the connection is closed */
static bool begin_body(struct tt_am *am, struct tt_am_stream *s)
{
	s->head.source = s->peer;
	if (!tt_am_header_get(s->raw, &s->head) || !is_allowed(&s->head)) {
		tt_am_malformed(am, s->peer, &s->head);
		return false;
	}
	s->in_body = true;
	s->have = 0;
	if (s->head.kind == TT_AM_CONTRIBUTION)
		s->to = tt_quorum_begin(am, &s->head);
	else if (!tt_unexpected_route(am, s)) {
		stall(am, s);
		return true;
	}
	place(am, s);
	return true;
}

static void end_body(struct tt_am *am, struct tt_am_stream *s)
{
	if (s->head.kind == TT_AM_CONTRIBUTION && s->to)
		tt_quorum_arrived(am, &s->head);
	else if (s->unexpected || s->posted)
		tt_unexpected_arrived(am, s);
	s->in_body = false;
	s->to = NULL;
	s->unexpected = NULL;
	s->posted = NULL;
	s->have = 0;
}

/* Takes up to `bytes` of the stream, until it stalls; returns the number of bytes taken. s is freed
 * when a header is malformed: then *ret_freed is set. */
static size_t take(struct tt_am *am, struct tt_am_stream *s, const uint8_t *data, size_t bytes,
		   bool *ret_freed)
{
	size_t at = 0;

	while (at < bytes && !s->stalled) {
		size_t left = (s->in_body ? s->head.bytes : TT_AM_HEADER_BYTES) - s->have,
		       n = bytes - at < left ? bytes - at : left;

		if (!s->in_body)
			memcpy(s->raw + s->have, data + at, n);
		else if (s->to && s->to + s->have != data + at) /* else it was read there */
			memcpy(s->to + s->have, data + at, n);
		s->have += n;
		at += n;
		if (!s->in_body && s->have == TT_AM_HEADER_BYTES && !begin_body(am, s)) {
			*ret_freed = true;
			return at;
		}
		if (s->in_body && !s->stalled && s->have == s->head.bytes)
			end_body(am, s);
	}
	return at;
}

/* Keeps bytes after a stalled header. false: no memory */
static bool hold(struct tt_am_stream *s, const uint8_t *data, size_t bytes)
{
	size_t have = s->held_bytes - s->held_at;
	uint8_t *larger;

	if (s->held_at)
		memmove(s->held, s->held + s->held_at, have);
	s->held_at = 0;
	s->held_bytes = have;
	larger = realloc(s->held, have + bytes);
	if (!larger)
		return false;
	memcpy(larger + have, data, bytes);
	s->held = larger;
	s->held_bytes += bytes;
	return true;
}

void tt_stream_bytes(struct tt_am *am, int peer, const uint8_t *data, size_t bytes)
{
	struct tt_am_stream *s;
	bool freed = false;
	size_t taken;

	if (!tt_control_is_open(am->ctl, peer))
		return;
	s = tt_stream_of(am, peer);
	if (!s) {
		tt_control_frame_no_memory(am->ctl, peer);
		return;
	}
	if (bytes > s->granted - s->received) {
		tt_control_malformed(am->ctl, peer);
		return;
	}
	s->received += bytes;
	taken = take(am, s, data, bytes, &freed);
	if (!freed && taken < bytes && !hold(s, data + taken, bytes - taken))
		tt_control_frame_no_memory(am->ctl, peer);
}

/* Ends the stream of a peer that is gone: a message that is not whole is lost, whole ones wait for
 * receives. */
static void settle(struct tt_am *am, struct tt_am_stream *s)
{
	size_t have = s->have + s->held_bytes - s->held_at;

	if (tt_control_is_open(am->ctl, s->peer) || (s->stalled && have >= s->head.bytes))
		return;
	if (s->stalled)
		unstall(am, s);
	if (s->in_body)
		tt_unexpected_lost(am, s);
	free_stream(am, s);
	pthread_cond_broadcast(&am->changed);
}

void tt_stream_resume(struct tt_am *am, struct tt_am_stream *s)
{
	bool freed = false;
	size_t taken = 0;

	unstall(am, s);
	place(am, s);
	if (s->have == s->head.bytes) /* nothing more arrives of this message */
		end_body(am, s);
	if (s->held_bytes > s->held_at)
		taken = take(am, s, s->held + s->held_at, s->held_bytes - s->held_at, &freed);
	if (freed)
		return;
	s->held_at += taken;
	if (s->held_at == s->held_bytes) {
		free(s->held);
		s->held = NULL;
		s->held_at = s->held_bytes = 0;
	}
	settle(am, s);
}

void tt_stream_over(struct tt_am *am, int peer)
{
	struct tt_am_stream *s = tt_stream_at(am, peer);
	struct tt_am_outgoing *m;

	while (s && (m = s->sendq)) {
		s->sendq = m->next;
		complete_send(am, m, TT_REMOTE);
	}
	if (!s)
		return;
	s->sendq_last = &s->sendq;
	settle(am, s);
}

/* ---- all streams ----------------------------------------------------------------------------- */

void tt_stream_retry(struct tt_am *am)
{
	am->retries = false;
	for (int r = first(am); r < am->nranks; r = next(am, r)) {
		struct tt_am_stream *s = tt_stream_at(am, r);

		grant(am, s);
		tt_stream_send(am, s);
	}
}

void tt_stream_free_all(struct tt_am *am)
{
	for (int r = first(am); r < am->nranks; r = next(am, r)) {
		struct tt_am_stream *s = tt_stream_at(am, r);

		free(s->unexpected);
		free_stream(am, s);
	}
}

size_t tt_stream_memory(const struct tt_am *am)
{
	size_t bytes = tt_sparse_memory(&am->streams);

	for (int r = first(am); r < am->nranks; r = next(am, r))
		bytes += sizeof(struct tt_am_stream) + tt_stream_at(am, r)->held_bytes;
	return bytes;
}
