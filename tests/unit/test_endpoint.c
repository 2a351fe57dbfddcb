/*
 * test_endpoint.c - bytes of a peer at an endpoint, without a network
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

/* Does the peer have a frame of this kind? */
static bool received(struct tt_tls *tls, enum tt_frame kind)
{
	static uint8_t in[1u << 16];
	size_t have = 0, at = 0;
	struct tt_frame_head head;
	ssize_t n;

	while ((n = tt_tls_recv(tls, in + have, sizeof(in) - have)) > 0)
		have += (size_t)n;
	for (; tt_frame_next(in + at, have - at, &head) > 0; at += TT_FRAME_HEAD + head.bytes)
		if (head.kind == kind)
			return true;
	return false;
}

/* The neighbors of a rank may all have left, so a rank that is connected to it sends it the break. */
Test(endpoint, a_break_goes_to_connected_ranks_that_are_no_neighbors, .timeout = 60)
{
	struct fixture f = make(1);
	struct tt_tls *other = connect_peer(&f, 7);

	cr_assert(!tt_control_is_neighbor(f.ctl, 7));
	tt_control_raise(f.ctl, TT_REMOTE, 3, "rank 3 is dead");
	serve(&f);
	cr_expect(received(other, TT_F_ABORT));
	tt_control_free(f.ctl);
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
	size_t stays = sizeof(struct tt_rank_past) + 2 * sizeof(struct tt_sparse_leaf) +
		       2 * sizeof(struct tt_sparse_branch),
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
	cr_assert_eq(tt_control_make(f.ep, 0, n, &f.ctl), 0);
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
		struct tt_rank_map map;
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
		cr_assert(tt_rank_map_make(&map, (int[]){ 9, 1, 10 }, 3, N));
		cr_assert_eq(tt_control_make_child(f.ctl, 77, 1, &map, &child), 0);
		tt_rank_map_free(&map);
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

/* Frames of controls that are never made take 4 MiB of a peer at most; then that peer is at fault, and the
 * frames of the others are kept. */
Test(endpoint, frames_of_unknown_controls_are_bounded, .timeout = 60)
{
	struct fixture f = make(1);
	struct tt_tls *tls = connect_peer(&f, 9), *other_tls = connect_peer(&f, 10);
	struct tt_conn *conn = tt_conn_from(f.ep, 9), *other = tt_conn_from(f.ep, 10);
	struct tt_frame_head head = { TT_F_GATHER_UP, 77, 3u << 20 };
	uint8_t *data = calloc(1, head.bytes);

	for (int again = 0; again < 2; again++) {
		tt_endpoint_forming(f.ep, true);
		cr_assert(tt_endpoint_frame(f.ep, conn, &head, data));
		cr_assert_not(tt_endpoint_frame(f.ep, conn, &head, data));
		cr_assert(tt_endpoint_frame(f.ep, other, &head, data));
		cr_assert_not(tt_endpoint_frame(f.ep, other, &head, data));
		tt_endpoint_forming(f.ep, false);
	}
	cr_assert_eq(f.ep->early_bytes, 0, "the end of the split drops them");
	free(data);
	tt_tls_close(tls);
	tt_tls_close(other_tls);
	tt_control_free(f.ctl);
}

/* A peer that ends a connection and makes another one, or has two, gets no more room for frames. */
Test(endpoint, frames_of_unknown_controls_are_counted_over_all_connections_of_a_peer, .timeout = 60)
{
	struct tt_frame_head head = { TT_F_GATHER_UP, 77, 3u << 20 };
	struct fixture f = make(1);
	struct tt_tls *first = connect_peer(&f, 9), *second;
	struct tt_control *child;
	struct tt_rank_map map;
	struct tt_conn *conn = f.ep->conns;
	uint8_t *data = calloc(1, head.bytes);

	tt_endpoint_forming(f.ep, true);
	cr_assert(tt_endpoint_frame(f.ep, conn, &head, data));
	second = connect_peer(&f, 9);
	cr_expect_not(tt_endpoint_frame(f.ep, conn->next, &head, data), "a second connection");
	tt_tls_close(first);
	serve(&f);
	cr_assert(f.ep->conns && !f.ep->conns->next, "the first connection has ended");
	cr_expect_not(tt_endpoint_frame(f.ep, f.ep->conns, &head, data), "a later connection");
	head.context = 78;
	head.bytes = 512 << 10; /* fits once beside the first frame */
	cr_assert(tt_endpoint_frame(f.ep, f.ep->conns, &head, data));
	cr_assert(tt_rank_map_make(&map, (int[]){ 9, 1, 10 }, 3, N));
	cr_assert_eq(tt_control_make_child(f.ctl, 78, 1, &map, &child), 0);
	head.context = 79;
	cr_expect(tt_endpoint_frame(f.ep, f.ep->conns, &head, data), "the control took its frame");
	cr_expect_not(tt_endpoint_frame(f.ep, f.ep->conns, &head, data));
	tt_endpoint_forming(f.ep, false);
	cr_expect_eq(f.ep->early_bytes, 0);
	free(data);
	tt_rank_map_free(&map);
	tt_control_free(child);
	tt_tls_close(second);
	tt_control_free(f.ctl);
}

/* Those of one control are given to it; those of another one stay, in their order. */
Test(endpoint, frames_of_several_later_controls_are_kept_apart, .timeout = 60)
{
	struct fixture f = make(1);
	struct tt_tls *tls = connect_peer(&f, 9);
	struct tt_control *child[3];
	struct tt_rank_map map;

	tt_endpoint_forming(f.ep, true);
	cr_assert(tt_rank_map_make(&map, (int[]){ 9, 1, 10 }, 3, N));
	for (int i = 0; i < 9; i++) { /* contexts 70, 71, 72, each with one of the last frame */
		struct tt_writer w = { 0 };

		tt_put(&w, i < 6 ? 2 : 0, 4);
		send_frame(tls, TT_F_DEAD, 70 + (uint64_t)i % 3, &w);
	}
	serve(&f);
	for (int i = 2; i >= 0; i--) { /* the newest first */
		cr_assert_eq(tt_control_make_child(f.ctl, 70 + (uint64_t)i, 1, &map, &child[i]), 0);
		cr_expect(tt_set_has(child[i]->departed.dead, 2));
		cr_expect(tt_set_has(child[i]->departed.dead, 0));
	}
	cr_expect_eq(f.ep->early_bytes, 0);
	tt_rank_map_free(&map);
	for (int i = 0; i < 3; i++)
		tt_control_free(child[i]);
	tt_tls_close(tls);
	tt_control_free(f.ctl);
}

static void announce(struct tt_tls *tls, uint64_t epoch, int only)
{
	struct tt_writer w = { 0 };
	struct tt_counted_bits bits;

	tt_put(&w, epoch, 8);
	cr_assert(tt_counted_bits_make(&bits, N));
	tt_counted_bits_add(&bits, only);
	tt_counted_bits_count(&bits);
	tt_put_set(&w, &bits);
	tt_counted_bits_free(&bits);
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

/* The result of exchange 1 among all ranks, with equal parts: a group of ranks, and a run of `further` + 1 others */
static bool send_result(struct fixture *f, int further)
{
	struct tt_writer w = { 0 };
	bool whole;

	tt_put(&w, 1, 8);
	tt_put(&w, 4, 4);
	tt_put(&w, 1, 1);
	tt_put(&w, 7, 4);
	tt_put(&w, 0, 1);
	tt_put(&w, (uint64_t)further, 1);
	whole = tt_gather_down(f->ctl, 0, w.data, w.have);
	free(w.data);
	return whole;
}

Test(endpoint, a_run_of_equal_parts_is_as_long_as_the_groups_of_ranks, .timeout = 60)
{
	for (int further = 0; further < 256; further++) {
		struct fixture f = make(1);
		struct tt_parts column = { .bytes = 4, .mine = "mine" };
		bool right = further == (N + 7) / 8 - 2;

		f.ctl->gather.number = 1;
		f.ctl->gather.running = true;
		f.ctl->gather.bytes = 4;
		f.ctl->gather.columns = &column;
		f.ctl->gather.ncolumns = 1;
		cr_assert_eq(send_result(&f, further), right, "%d further groups", further);
		cr_assert_eq(f.ctl->gather.complete, right);
		cr_assert(!right || column.nruns == 1);
		tt_control_free(f.ctl);
	}
}
