/*
 * test_endpoint_messages.c - active messages from and to a peer that the test plays (endpoint_peer.h)
 */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "am/am_internal.h"
#include "tests/support/endpoint_peer.h"

void __asan_init(void) __attribute__((weak)); /* in a build with AddressSanitizer */

struct am_fixture {
	struct fixture control;
	struct tt_am *am;
	int peer;
	struct tt_tls *tls; /* of the peer */
};

static struct am_fixture make_am(int peer)
{
	struct am_fixture f = { .control = make(1), .peer = peer };

	cr_assert_eq(tt_am_make(f.control.ctl, 1, N, 1000, &f.am), 0);
	f.tls = connect_peer(&f.control, peer);
	return f;
}

static void free_am(struct am_fixture *f)
{
	tt_tls_close(f->tls);
	serve(&f->control);
	tt_am_close(f->am);
	tt_control_free(f->control.ctl);
}

static void send_bytes(struct am_fixture *f, const void *data, size_t bytes)
{
	struct tt_writer w = { 0 };

	tt_put_bytes(&w, data, bytes);
	send_frame(f->tls, TT_F_MESSAGE, 0, &w);
	serve(&f->control);
}

/* A frame of shrink: a header that announces `announced` bytes, and a body of `bytes` zeros */
static void send_shrink(struct am_fixture *f, enum tt_am_kind kind, size_t announced, size_t bytes)
{
	struct tt_am_header h = { .kind = kind, .tag = 3, .bytes = announced };
	uint8_t raw[TT_AM_HEADER_BYTES];
	static const uint8_t zeros[4096];
	struct tt_writer w = { 0 };

	tt_am_header_put(&h, raw);
	tt_put_bytes(&w, raw, sizeof(raw));
	tt_put_bytes(&w, zeros, bytes);
	send_frame(f->tls, TT_F_SHRINK, 0, &w);
	serve(&f->control);
}

static void send_header(struct am_fixture *f, enum tt_am_kind kind, size_t bytes)
{
	struct tt_am_header h = { .kind = kind, .tag = 3, .bytes = bytes };
	uint8_t raw[TT_AM_HEADER_BYTES];

	tt_am_header_put(&h, raw);
	send_bytes(f, raw, sizeof(raw));
}

static struct tt_am_stream *stream_of(const struct am_fixture *f)
{
	return tt_stream_at(f->am, f->peer);
}

static bool is_connected(const struct am_fixture *f)
{
	return tt_control_is_connected(f->control.ctl, f->peer);
}

static int receive(struct am_fixture *f, void *to, size_t room, struct tt_am_header *ret_head)
{
	struct tt_am_match want = {
		.kind = TT_AM_USER_MESSAGE, .source = f->peer, .tag = 3, .to = to, .room = room
	};

	return tt_am_recv(f->am, &want, 0, ret_head);
}

static bool receive_empty(struct am_fixture *f)
{
	struct tt_am_header head;

	return !receive(f, NULL, 0, &head) && head.bytes == 0 && head.tag == 3;
}

/* A message without a body that found the queue full: no byte of it is still to come. */
Test(messages_of_a_peer, an_empty_message_that_waited_for_room_arrives, .timeout = 60)
{
	for (int posted = 0; posted < 2; posted++) {
		struct am_fixture f = make_am(9);

		f.am->unexpected_bytes = TT_AM_UNEXPECTED_BYTES + 1;
		send_header(&f, TT_AM_USER_MESSAGE, 0);
		cr_assert(stream_of(&f)->stalled);
		if (!posted) {
			f.am->unexpected_bytes = 0;
			tt_unexpected_resume(f.am);
			cr_assert_not(stream_of(&f)->stalled);
		}
		cr_assert(receive_empty(&f));
		free_am(&f);
	}
}

/* A message may end in one frame and begin in another; a frame may have several. */
Test(messages_of_a_peer, are_the_same_in_frames_of_any_size, .timeout = 60)
{
	uint8_t all[3 * (TT_AM_HEADER_BYTES + 3)], got[3];
	struct tt_am_header head;
	size_t each = TT_AM_HEADER_BYTES + 3;

	for (size_t i = 0; i < 3; i++) {
		struct tt_am_header h = { TT_AM_USER_MESSAGE, .tag = 3, .version = i, .bytes = 3 };

		tt_am_header_put(&h, all + i * each);
		memset(all + i * each + TT_AM_HEADER_BYTES, 'a' + (int)i, 3);
	}
	for (size_t piece = 1; piece <= sizeof(all); piece++) {
		struct am_fixture f = make_am(9);

		for (size_t at = 0; at < sizeof(all); at += piece)
			send_bytes(&f, all + at,
				   sizeof(all) - at < piece ? sizeof(all) - at : piece);
		for (uint64_t i = 0; i < 3; i++) {
			cr_assert_eq(receive(&f, got, sizeof(got), &head), 0);
			cr_assert(head.version == i && !memcmp(got, all + i * each + 48, 3));
		}
		free_am(&f);
	}
}

/* A peer that sends on without credit would fill this rank's memory. */
Test(messages_of_a_peer, beyond_the_credit_end_the_connection, .timeout = 60)
{
	struct am_fixture f = make_am(9);
	static uint8_t zeros[TT_FRAME_MESSAGE];
	size_t sent = TT_AM_HEADER_BYTES;

	f.am->unexpected_bytes = TT_AM_UNEXPECTED_BYTES;
	send_header(&f, TT_AM_USER_MESSAGE, 1u << 30);
	for (; is_connected(&f); sent += sizeof(zeros)) {
		cr_assert_leq(sent, f.am->window);
		cr_assert_leq(tt_am_memory(f.am), TT_AM_UNEXPECTED_BYTES + f.am->window + 4096);
		send_bytes(&f, zeros, sizeof(zeros));
	}
	cr_assert_gt(sent, f.am->window);
	cr_assert_eq(tt_stream_at(f.am, 9), NULL, "nothing is kept of the peer");
	free_am(&f);
}

/* The rest of a message, cut off by a death, never comes; a message that is whole does. */
Test(messages_of_a_peer, that_died_are_received_if_they_are_whole, .timeout = 60)
{
	for (size_t body = 0; body < 2; body++) {
		struct am_fixture f = make_am(9);
		struct tt_am_header head;
		char x = 0;

		f.am->unexpected_bytes = TT_AM_UNEXPECTED_BYTES;
		send_header(&f, TT_AM_USER_MESSAGE, 1);
		if (body)
			send_bytes(&f, "x", 1);
		tt_tls_close(f.tls);
		f.tls = NULL;
		serve(&f.control);
		cr_assert_eq(tt_am_state(f.am, 9), tuttiRankDead);
		cr_assert_eq(receive(&f, &x, 1, &head), body ? 0 : TT_REMOTE);
		cr_assert(!body || x == 'x');
		cr_assert_eq(receive(&f, &x, 1, &head), TT_REMOTE);
		cr_assert_eq(tt_stream_at(f.am, 9), NULL);
		free_am(&f);
	}
}

Test(messages_of_a_peer, a_message_of_the_library_that_is_too_large_ends_the_connection,
     .timeout = 60)
{
	static const struct {
		enum tt_am_kind kind;
		int peer;
		size_t bytes;
		bool fits;
	} cases[] = {
		{ TT_AM_PROPOSAL, 9, TT_AM_PROPOSAL_BYTES, false }, /* no message of a stream */
		{ TT_AM_QUERY, 9, 0, false },
		{ TT_AM_OUTCOME, 0, TUTTI_QUORUM_RANKS / 8, true },
		{ TT_AM_OUTCOME, 0, 1u << 30, false },
		{ TT_AM_OUTCOME, 9, 8, false }, /* not from the coordinator */
		{ TT_AM_RESULT, 9, 8, false },
		{ TT_AM_KINDS, 9, 0, false },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct am_fixture f = make_am(cases[i].peer);

		send_header(&f, cases[i].kind, cases[i].bytes);
		cr_assert_eq(is_connected(&f), cases[i].fits, "case %zu", i);
		cr_assert(cases[i].fits || f.am->unexpected_bytes == 0, "case %zu", i);
		free_am(&f);
	}
}

Test(messages_of_a_peer, a_message_of_shrink_has_its_size, .timeout = 60)
{
	static const struct {
		enum tt_am_kind kind;
		size_t announced, bytes;
		bool fits;
	} cases[] = {
		{ TT_AM_PROPOSAL, TT_AM_PROPOSAL_BYTES, TT_AM_PROPOSAL_BYTES, true },
		{ TT_AM_PROPOSAL, TT_AM_PROPOSAL_BYTES + 1, TT_AM_PROPOSAL_BYTES + 1, false },
		{ TT_AM_PROPOSAL, 8, 7, false },
		{ TT_AM_PROPOSAL, 8, 9, false },
		{ TT_AM_PROPOSAL, SIZE_MAX / 4, 0, false },
		{ TT_AM_DECISION, TT_AM_DECISION_BYTES(N), TT_AM_DECISION_BYTES(N), true },
		{ TT_AM_DECISION, TT_AM_DECISION_BYTES(N) + 1, TT_AM_DECISION_BYTES(N) + 1, false },
		{ TT_AM_QUERY, 0, 0, true },
		{ TT_AM_QUERY, 1, 1, false },
		{ TT_AM_ANSWER, TT_AM_ANSWER_BYTES(N), TT_AM_ANSWER_BYTES(N), true },
		{ TT_AM_ANSWER, TT_AM_ANSWER_BYTES(N) + 1, TT_AM_ANSWER_BYTES(N) + 1, false },
		{ TT_AM_USER_MESSAGE, 1, 1, false },
		{ TT_AM_KINDS, 0, 0, false },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct am_fixture f = make_am(9);

		send_shrink(&f, cases[i].kind, cases[i].announced, cases[i].bytes);
		cr_assert_eq(is_connected(&f), cases[i].fits, "case %zu", i);
		cr_assert(cases[i].fits || f.am->unexpected_bytes == 0, "case %zu", i);
		free_am(&f);
	}
}

/* A message that nobody receives holds up its stream, and no shrink. */
Test(messages_of_a_peer, messages_of_shrink_overtake_a_stalled_stream, .timeout = 60)
{
	struct am_fixture f = make_am(9);
	struct tt_am_match want = { .kind = TT_AM_PROPOSAL, .source = 9, .tag = 3 };
	struct tt_am_header head;

	f.am->unexpected_bytes = TT_AM_UNEXPECTED_BYTES;
	send_header(&f, TT_AM_USER_MESSAGE, 1u << 30);
	cr_assert(stream_of(&f)->stalled);
	send_shrink(&f, TT_AM_PROPOSAL, 0, 0);
	cr_assert_eq(tt_am_recv(f.am, &want, 0, &head), 0);
	f.am->unexpected_bytes = 0;
	free_am(&f);
}

/* A result waits at its sender when the queue is full, and a result that nobody wants any more does
 * not hold up the next message. */
Test(messages_of_a_peer, a_large_result_waits_like_a_message, .timeout = 60)
{
	struct am_fixture f = make_am(0);

	f.am->unexpected_bytes = TT_AM_UNEXPECTED_BYTES;
	send_header(&f, TT_AM_RESULT, 8);
	cr_assert(stream_of(&f)->stalled);
	tt_am_drop(f.am, TT_AM_RESULT);
	cr_assert_not(stream_of(&f)->stalled);
	send_bytes(&f, "12345678", 8);
	cr_assert_not(stream_of(&f)->in_body);
	free_am(&f);
}

/* ---- messages to a peer ---------------------------------------------------------------------- */

struct peer_reader { /* of the frames that have come at the peer */
	uint8_t *in;
	size_t have, at;
	size_t before_status; /* bytes of messages */
	bool has_status;
};

static void read_frames(struct peer_reader *r, struct tt_tls *tls)
{
	struct tt_frame_head head;
	ssize_t n;

	while ((n = tt_tls_recv(tls, r->in + r->have, 1u << 20)) > 0)
		r->have += (size_t)n;
	for (; tt_frame_next(r->in + r->at, r->have - r->at, &head) > 0 &&
	       r->have - r->at >= TT_FRAME_HEAD + head.bytes;
	     r->at += TT_FRAME_HEAD + head.bytes) {
		r->has_status |= head.kind == TT_F_STATUS;
		r->before_status += r->has_status ? 0 : head.bytes;
	}
}

/* A peer reads nothing, and gave credit for everything: the queue of its connection stays small,
 * and what is not a message gets in between. */
Test(messages_to_a_peer, leave_room_for_other_frames, .timeout = 60)
{
	struct am_fixture f = make_am(9);
	size_t bytes = 8u << 20;
	uint8_t *data = calloc(1, bytes), status[64] = { 0 };
	struct tt_am_outgoing m = { .data = data,
				    .bytes = TT_AM_HEADER_BYTES + bytes,
				    .from_caller = true };
	struct tt_am_header head = { .kind = TT_AM_USER_MESSAGE, .bytes = bytes };
	struct tt_am_stream *s = tt_stream_of(f.am, 9);
	struct tt_conn *conn = f.control.ep->conns;
	struct peer_reader r = { .in = calloc(1, 2 * bytes) };
	size_t queued;

	tt_am_header_put(&head, m.head);
	s->limit = UINT64_MAX;
	tt_stream_enqueue(f.am, s, &m);
	serve(&f.control);
	queued = conn->out.have;
	cr_assert_not(m.done);
	cr_assert_geq(queued, TT_FRAME_MESSAGE);
	cr_assert_leq(conn->out.room, 6 * TT_FRAME_MESSAGE);
	tt_conn_send(f.control.ep, conn, 0, TT_F_STATUS, status, sizeof(status));
	cr_assert_gt(conn->out.have, queued, "the status was dropped");
	for (int i = 0; i < 1000 && conn->out.have; i++) {
		read_frames(&r, f.tls);
		serve(&f.control);
	}
	read_frames(&r, f.tls);
	cr_assert(r.has_status && r.at == r.have);
	cr_assert_leq(r.before_status, queued + (1u << 20), "%zu bytes before the status",
		      r.before_status);
	cr_assert(m.done && m.rc == 0 && s->sent == m.bytes);
	cr_assert_leq(conn->out.room, 16u << 10, "an idle connection keeps no large buffer");
	free(r.in);
	free(data);
	free_am(&f);
}

/* The kernel takes a part of a frame, and there is no memory for the rest: the peer would take the next
 * frame for this rest. */
Test(messages_to_a_peer, a_frame_that_is_sent_in_part_ends_the_connection, .timeout = 60)
{
	struct fixture f = make(1);
	struct tt_tls *tls = connect_peer(&f, 9);
	size_t bytes = 8u << 20;
	uint8_t *data = calloc(1, bytes), start[8] = { 0 };
	struct iovec part[2] = { { start, sizeof(start) }, { data, bytes } };
	struct rlimit limit;

	if (__asan_init)
		cr_skip_test("AddressSanitizer ends a process that is out of memory");
	getrlimit(RLIMIT_AS, &limit);
	limit.rlim_cur = 1;
	setrlimit(RLIMIT_AS, &limit);
	tt_control_lock(f.ctl);
	tt_conn_send_parts(f.ep, f.ep->conns, 0, TT_F_SHRINK, part);
	tt_control_unlock(f.ctl);
	limit.rlim_cur = limit.rlim_max;
	setrlimit(RLIMIT_AS, &limit);
	serve(&f);
	cr_assert_eq(tt_control_broken(f.ctl), TT_SYSTEM);
	cr_assert(strstr(broken(&f), "rank 1: no memory"), "%s", broken(&f));
	tt_tls_close(tls);
	free(data);
	tt_control_free(f.ctl);
}
