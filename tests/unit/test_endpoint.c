/*
 * test_endpoint.c - bytes of a peer at an endpoint and at active messages, without a network
 *
 * This rank's side is real, and so are the sockets; the test writes the peer's bytes and runs the
 * service thread's work itself, so that each case is exact.
 */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "am/am_internal.h"
#include "tests/support/endpoint_peer.h"

/* ---- the endpoint ---------------------------------------------------------------------------- */

void __asan_init(void) __attribute__((weak)); /* in a build with AddressSanitizer */

/* RLIMIT_AS ends the process's memory inside a frame of 8 MiB. */
Test(endpoint, a_frame_without_memory_is_an_error_and_no_endless_loop, .timeout = 60)
{
	struct fixture f = make(1);
	struct tt_tls *tls = connect_peer(&f, 9);
	struct tt_writer w = { 0 };
	static uint8_t zeros[1 << 16];
	struct rlimit limit;

	if (__asan_init)
		cr_skip_test("AddressSanitizer ends a process that is out of memory");
	tt_put_frame_head(&w, &(struct tt_frame_head){ TT_F_GATHER_UP, 0, 8u << 20 });
	cr_assert_eq(tt_tls_send(tls, w.data, w.have), (ssize_t)w.have);
	serve(&f);
	getrlimit(RLIMIT_AS, &limit);
	limit.rlim_cur = 1;
	setrlimit(RLIMIT_AS, &limit);
	for (int i = 0; i < 1000 && !tt_control_broken(f.ctl); i++) {
		(void)!tt_tls_send(tls, zeros, sizeof(zeros));
		serve(&f);
	}
	limit.rlim_cur = limit.rlim_max;
	setrlimit(RLIMIT_AS, &limit);
	cr_assert_eq(tt_control_broken(f.ctl), TT_SYSTEM);
	cr_assert(strstr(broken(&f), "rank 1: no memory") && strstr(broken(&f), "rank 9"), "%s",
		  broken(&f));
	cr_assert_eq(serve(&f), 0, "the descriptor is still readable");
	free(w.data);
	tt_control_free(f.ctl);
}

/* The queue sends a frame when there is no room for TT_STATUS_BYTES. */
Test(endpoint, the_longest_status_fits)
{
	struct tt_status s = { .history.nruns = TT_HISTORY_RUNS,
			       .nwants = TT_WAIT_EDGES,
			       .npairs = TT_PAIRS };
	struct tt_writer w = { 0 };

	tt_put_status(&w, &s);
	cr_assert(!w.failed && w.have <= TT_STATUS_BYTES, "%zu bytes", w.have);
	free(w.data);
}

/* Reads the peer's frames of statuses; returns their number, and the latest serial of each rank. */
static int read_statuses(struct tt_tls *tls, uint32_t ret_serial[N])
{
	static uint8_t in[1u << 20];
	size_t have = 0;
	struct tt_frame_head head;
	struct tt_status s;
	int frames = 0;
	ssize_t n;

	while ((n = tt_tls_recv(tls, in + have, sizeof(in) - have)) > 0)
		have += (size_t)n;
	for (size_t at = 0; tt_frame_next(in + at, have - at, &head) > 0;
	     at += TT_FRAME_HEAD + head.bytes) {
		struct tt_reader r = { .at = in + at + TT_FRAME_HEAD, .left = head.bytes };

		frames += head.kind == TT_F_STATUS;
		while (head.kind == TT_F_STATUS && r.left && tt_get_status(&r, N, &s))
			ret_serial[s.origin] = s.serial;
	}
	return frames;
}

/* 2,000 statuses come in 2,000 frames, and leave in one frame per 10 ms. */
Test(endpoint, statuses_are_passed_on_together, .timeout = 60)
{
	struct fixture f = make(1);
	struct tt_tls *from = connect_peer(&f, 9), *to = connect_peer(&f, 10);
	uint64_t began = tt_now_ns();
	uint32_t serial[N] = { 0 };
	int frames = 0;

	for (uint32_t i = 1; i <= 200; i++) {
		for (int r = 0; r < N; r++) {
			struct tt_status s = {
				.origin = r, .awaited = -1, .serial = i, .ask = TT_STATUS_ASKS
			};
			struct tt_writer w = { 0 };

			if (r == 1)
				continue;
			tt_put_status(&w, &s);
			send_frame(from, TT_F_STATUS, 0, &w);
		}
		serve(&f);
		frames += read_statuses(to, serial);
	}
	tt_control_lock(f.ctl);
	tt_status_timers(f.ctl, tt_now_ns() + TT_SECOND / 50);
	tt_control_unlock(f.ctl);
	frames += read_statuses(to, serial);
	for (int r = 0; r < N; r++)
		cr_expect(r == 1 ? serial[r] >= 1 : serial[r] == 200, "rank %d: %u", r, serial[r]);
	cr_expect_leq((uint64_t)frames, 3 + (tt_now_ns() - began) / (TT_SECOND / 100));
	tt_control_free(f.ctl);
}

/* A status comes from rank 9 as if it came from the service thread at this time. */
static void bring_status(struct fixture *f, uint32_t serial, uint64_t now)
{
	struct tt_status s = { .origin = 9, .awaited = -1, .serial = serial };

	tt_status_keep(f->ctl, &s, now);
}

Test(endpoint, a_status_is_freed_after_a_minute_and_its_late_copy_is_refused, .timeout = 60)
{
	struct fixture f = make(1);
	/* the serial number stays, and what leads to it and to the status */
	size_t stays = sizeof(struct tt_rank_past) + 2 * TT_SPARSE_BLOCK * sizeof(void *),
	       without = tt_control_memory(f.ctl) + stays;
	uint64_t now = tt_now_ns();

	bring_status(&f, 5, now);
	cr_assert_eq(tt_control_memory(f.ctl), without + sizeof(struct tt_rank_status));
	bring_status(&f, 6, now + 30 * TT_SECOND);
	tt_status_expire(f.ctl, now + 61 * TT_SECOND);
	cr_assert_eq(tt_status_of(f.ctl, 9)->serial, 6, "the latest one is 31 s old");
	tt_status_expire(f.ctl, now + 91 * TT_SECOND);
	cr_assert_eq(tt_status_at_ns(f.ctl, 9), 0);
	cr_assert_eq(tt_status_of(f.ctl, 9)->awaited, -1);
	cr_assert_eq(tt_control_memory(f.ctl), without);
	cr_assert_eq(f.ctl->status.table.expire_due_ns, TT_NEVER);
	bring_status(&f, 6, now + 92 * TT_SECOND);
	cr_assert_eq(tt_status_at_ns(f.ctl, 9), 0, "a copy of the latest one came late");
	bring_status(&f, 7, now + 92 * TT_SECOND);
	cr_assert_eq(tt_status_at_ns(f.ctl, 9), now + 92 * TT_SECOND);
	tt_control_free(f.ctl);
}

/* If answers were answered, statuses would never end: each of n ranks would send one per second. */
Test(endpoint, a_status_that_asks_for_none_is_not_answered, .timeout = 60)
{
	for (int ask = TT_STATUS_ANSWERS; ask <= TT_STATUS_ASKS_NOW; ask++) {
		struct fixture f = make(1);
		struct tt_tls *from = connect_peer(&f, 9), *to = connect_peer(&f, 10);
		struct tt_status s = { .origin = 9, .awaited = -1, .serial = 1, .ask = ask };
		uint32_t serial[N] = { 0 };
		struct tt_writer w = { 0 };

		tt_put_status(&w, &s);
		send_frame(from, TT_F_STATUS, 0, &w);
		serve(&f);
		tt_control_lock(f.ctl);
		tt_status_timers(f.ctl, tt_now_ns() + 5 * TT_SECOND);
		tt_control_unlock(f.ctl);
		read_statuses(to, serial);
		cr_expect_eq(serial[9], 1);
		cr_expect_eq(serial[1] > 0, ask != TT_STATUS_ANSWERS, "ask %d", ask);
		tt_control_free(f.ctl);
	}
}

/* Does a rank of n that has waited for so long since its status send another one? */
static bool repeats(int n, uint64_t waited_ns)
{
	struct fixture f = { 0 };
	uint64_t before;
	bool repeated;

	cr_assert_eq(tt_endpoint_make(0, n, &f.ep), 0);
	cr_assert_eq(tt_control_make(f.ep, 0, 0, n, NULL, &f.ctl), 0);
	tt_control_waiting(f.ctl, &(struct tt_blocked){ .awaited = 1 });
	before = f.ctl->status.serial;
	f.ctl->status.asked_ns -= waited_ns;
	tt_control_waiting(f.ctl, &(struct tt_blocked){ .awaited = 1 });
	repeated = f.ctl->status.serial != before;
	tt_control_free(f.ctl);
	return repeated;
}

Test(endpoint, a_rank_of_many_repeats_its_status_less_often, .timeout = 60)
{
	cr_expect(repeats(4, TT_SECOND) && repeats(64, TT_SECOND));
	cr_expect(!repeats(256, 3 * TT_SECOND) && repeats(256, 4 * TT_SECOND));
	cr_expect(!repeats(4096, 14 * TT_SECOND) && repeats(4096, 15 * TT_SECOND));
}

Test(endpoint, an_end_after_end_is_no_death_and_any_other_end_is, .timeout = 60)
{
	for (int orderly = 0; orderly < 2; orderly++) {
		struct fixture f = make(1);
		struct tt_tls *tls = connect_peer(&f, 9);

		if (orderly)
			send_frame(tls, TT_F_END, 0, &(struct tt_writer){ 0 });
		tt_tls_close(tls);
		serve(&f);
		cr_assert_eq(tt_control_broken(f.ctl), orderly ? 0 : TT_REMOTE);
		if (!orderly)
			cr_assert(strstr(broken(&f), "rank 9 died"), "%s", broken(&f));
		tt_control_free(f.ctl);
	}
}

/* Frames of an unknown context: kept during a split and given to the control once it is made;
 * dropped otherwise. The payload is a death of the child's rank 2. */
Test(endpoint, frames_of_a_later_control_wait_for_it, .timeout = 60)
{
	for (int forming = 0; forming < 2; forming++) {
		static const int members[3] = { 9, 1, 10 };
		struct fixture f = make(1);
		struct tt_tls *tls = connect_peer(&f, 9);
		struct tt_writer w = { 0 };
		struct tt_control *child;

		if (forming)
			tt_endpoint_forming(f.ep, true);
		tt_put(&w, 2, 4);
		send_frame(tls, TT_F_DEAD, 77, &w);
		send_frame(tls, TT_F_END, 0, &w);
		serve(&f);
		cr_assert_eq(f.ep->early_bytes > 0, forming);
		cr_assert_eq(tt_control_make(f.ep, 77, 1, 3, members, &child), 0);
		cr_assert_eq(tt_set_has(child->departed.dead, 2), forming);
		cr_assert_eq(f.ep->early_bytes, 0);
		cr_assert_not(tt_control_broken(f.ctl));
		tt_control_free(child);
		tt_control_free(f.ctl);
	}
}

/* No message is early, so its sender learns that the rank has left the communicator, also while the rank
 * forms another one. */
Test(endpoint, a_message_of_a_control_that_was_left_is_answered, .timeout = 60)
{
	for (int forming = 0; forming < 2; forming++) {
		struct fixture f = make(1);
		struct tt_tls *tls = connect_peer(&f, 9);
		struct tt_writer w = { 0 };
		struct tt_frame_head head = { 0 };
		uint8_t in[4096];
		ssize_t n;

		tt_endpoint_forming(f.ep, forming);
		tt_put(&w, 0, 8);
		send_frame(tls, TT_F_SHRINK, 77, &w);
		serve(&f);
		n = tt_tls_recv(tls, in, sizeof(in));
		cr_assert_eq(tt_frame_next(in, n > 0 ? (size_t)n : 0, &head), 1);
		cr_assert(head.kind == TT_F_LEFT && head.context == 77);
		tt_tls_close(tls);
		tt_control_free(f.ctl);
	}
}

/* Frames of controls that are never made take 4 MiB at most; then the peer is at fault. */
Test(endpoint, frames_of_unknown_controls_are_bounded, .timeout = 60)
{
	struct fixture f = make(1);
	struct tt_tls *tls = connect_peer(&f, 9);
	struct tt_frame_head head = { TT_F_GATHER_UP, 77, 3u << 20 };
	uint8_t *data = calloc(1, head.bytes);

	tt_endpoint_forming(f.ep, true);
	cr_assert(tt_endpoint_frame(f.ep, f.ep->conns, &head, data));
	cr_assert_not(tt_endpoint_frame(f.ep, f.ep->conns, &head, data));
	tt_endpoint_forming(f.ep, false);
	cr_assert_eq(f.ep->early_bytes, 0, "the end of the split drops them");
	free(data);
	tt_tls_close(tls);
	tt_control_free(f.ctl);
}

static void announce(struct tt_tls *tls, uint64_t epoch, int only)
{
	struct tt_writer w = { 0 };

	tt_put(&w, epoch, 8);
	tt_put_set(&w, &only, 1, N);
	send_frame(tls, TT_F_SHRUNK, 0, &w);
}

/* A rank that was cut off has shrunk to itself and says so. Ranks that know it to be dead go on
 * without it; for all others the announcement is an exclusion. */
Test(endpoint, a_shrink_of_dead_ranks_excludes_nobody, .timeout = 60)
{
	for (int dead = 0; dead < 2; dead++) {
		struct fixture f = make(1);
		struct tt_tls *tls = connect_peer(&f, 9);
		uint64_t shrunk;
		struct tt_writer w = { 0 };

		if (dead) {
			tt_put(&w, 10, 4);
			send_frame(tls, TT_F_DEAD, 0, &w);
		}
		announce(tls, 1, 10);
		serve(&f);
		cr_assert_eq(tt_control_excluded(f.ctl, &shrunk), dead ? 0 : 1);
		cr_assert_eq(shrunk, dead ? 0 : 1);
		tt_control_free(f.ctl);
	}
}

/* ---- exchanges ------------------------------------------------------------------------------- */

/* A message of child for exchange 1 of parts of 4 bytes; without a first part it is malformed. */
static bool send_parts(struct fixture *f, int child, size_t each, bool malformed)
{
	struct tt_writer w = { 0 };
	bool fits;

	tt_put(&w, 1, 8);
	tt_put(&w, each, 4);
	tt_put(&w, malformed ? 0 : 1, 1);
	tt_put(&w, 7, 4);
	fits = tt_gather_up(f->ctl, child, w.data, w.have);
	free(w.data);
	return fits;
}

/* The parts of a child are missing after a message of another size, or a malformed one; those of all other
 * children come before or after it. */
Test(endpoint, parts_that_are_malformed_stay_missing)
{
	for (int wrong = 9; wrong < N; wrong++)
		for (int malformed = 0; malformed < 2; malformed++) {
			struct fixture f = make(1);
			struct tt_parts column = { .bytes = 4, .mine = "mine" };

			f.ctl->gather.number = 1;
			f.ctl->gather.running = true;
			f.ctl->gather.bytes = 4;
			f.ctl->gather.columns = &column;
			f.ctl->gather.ncolumns = 1;
			for (int child = 9; child < N; child++)
				cr_assert_eq(send_parts(&f, child,
							child == wrong && !malformed ? 5 : 4,
							child == wrong && malformed),
					     child != wrong || !malformed);
			cr_assert(!f.ctl->gather.full && !f.ctl->gather.child[wrong - 9].data);
			cr_assert_eq(!tt_control_broken(f.ctl), malformed);
			cr_assert(send_parts(&f, wrong, 4, false) && f.ctl->gather.full);
			tt_control_free(f.ctl);
		}
}

/* ---- active messages ------------------------------------------------------------------------- */

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
