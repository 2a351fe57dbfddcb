/*
 * test_endpoint.c - bytes of a peer at an endpoint and at active messages, without a network
 *
 * This rank's side is real, and so are the sockets; the test writes the peer's bytes and runs the
 * service thread's work itself, so that each case is exact.
 */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "am/am_internal.h"
#include "control/control_internal.h"

#define N 11 /* ranks; rank 1 has the children 9 and 10 */

struct fixture {
	struct tt_control_endpoint *ep;
	struct tt_control *ctl;
};

static struct fixture make(int rank)
{
	struct fixture f;

	cr_assert_eq(tt_endpoint_make(rank, N, &(struct tt_ports){ 0 }, &f.ep), 0);
	cr_assert_eq(tt_control_make(f.ep, 0, rank, N, NULL, &f.ctl), 0);
	for (int r = 0; r < N; r++)
		f.ep->peers.business_cards[r].port = 1;
	f.ctl->join.has_table = f.ctl->join.complete = true;
	return f;
}

/* A connection to a peer; returns the peer's end. */
static int connect_peer(struct fixture *f, int peer)
{
	int fds[2];

	cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds), 0);
	cr_assert(tt_conn_add(f->ep, fds[0], peer, false));
	return fds[1];
}

static void send_frame(int fd, enum tt_frame kind, uint64_t context, struct tt_writer *payload)
{
	struct tt_frame_head head = { kind, context, payload->have };
	struct tt_writer w = { 0 };

	tt_put_frame_head(&w, &head);
	tt_put_bytes(&w, payload->data, payload->have);
	cr_assert_eq(send(fd, w.data, w.have, MSG_NOSIGNAL), (ssize_t)w.have);
	free(w.data);
	free(payload->data);
	*payload = (struct tt_writer){ 0 };
}

/* The service thread's work, until nothing is left; returns the rounds. */
static int serve(struct fixture *f)
{
	struct epoll_event ev[8];
	int rounds = 0, n;

	tt_control_lock(f->ctl);
	while (rounds < 1000 && (n = epoll_wait(f->ep->service.epoll, ev, 8, 0)) > 0) {
		bool useful = false;

		for (int i = 0; i < n; i++) {
			if (*(enum tt_source *)ev[i].data.ptr != TT_SRC_CONN)
				continue;
			tt_conn_event(f->ep, ev[i].data.ptr, ev[i].events);
			useful = true;
		}
		tt_conn_reap(f->ep);
		if (!useful)
			break;
		rounds++;
	}
	tt_control_unlock(f->ctl);
	return rounds;
}

static const char *broken(const struct fixture *f)
{
	int culprit;

	return tt_control_text(f->ctl, &culprit);
}

/* ---- the endpoint ---------------------------------------------------------------------------- */

void __asan_init(void) __attribute__((weak)); /* in a build with AddressSanitizer */

/* RLIMIT_AS ends the process's memory inside a frame of 8 MiB. */
Test(endpoint, a_frame_without_memory_is_an_error_and_no_endless_loop, .timeout = 60)
{
	struct fixture f = make(1);
	int fd = connect_peer(&f, 9);
	struct tt_writer w = { 0 };
	static uint8_t zeros[1 << 16];
	struct rlimit limit;

	if (__asan_init)
		cr_skip_test("AddressSanitizer ends a process that is out of memory");
	tt_put_frame_head(&w, &(struct tt_frame_head){ TT_F_GATHER_UP, 0, 8u << 20 });
	cr_assert_eq(send(fd, w.data, w.have, MSG_NOSIGNAL), (ssize_t)w.have);
	serve(&f);
	getrlimit(RLIMIT_AS, &limit);
	limit.rlim_cur = 1;
	setrlimit(RLIMIT_AS, &limit);
	for (int i = 0; i < 1000 && !tt_control_broken(f.ctl); i++) {
		(void)!send(fd, zeros, sizeof(zeros), MSG_NOSIGNAL);
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

Test(endpoint, an_end_after_end_is_no_death_and_any_other_end_is, .timeout = 60)
{
	for (int orderly = 0; orderly < 2; orderly++) {
		struct fixture f = make(1);
		int fd = connect_peer(&f, 9);

		if (orderly)
			send_frame(fd, TT_F_END, 0, &(struct tt_writer){ 0 });
		close(fd);
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
		int fd = connect_peer(&f, 9);
		struct tt_writer w = { 0 };
		struct tt_control *child;

		if (forming)
			tt_endpoint_forming(f.ep, true);
		tt_put(&w, 2, 4);
		send_frame(fd, TT_F_DEAD, 77, &w);
		serve(&f);
		cr_assert_eq(f.ep->early_bytes > 0, forming);
		cr_assert_eq(tt_control_make(f.ep, 77, 1, 3, members, &child), 0);
		cr_assert_eq(child->departed.dead[2], forming);
		cr_assert_eq(f.ep->early_bytes, 0);
		cr_assert_not(tt_control_broken(f.ctl));
		tt_control_free(child);
		tt_control_free(f.ctl);
	}
}

/* Frames of controls that are never made take 4 MiB at most; then the peer is at fault. */
Test(endpoint, frames_of_unknown_controls_are_bounded, .timeout = 60)
{
	struct fixture f = make(1);
	int fd = connect_peer(&f, 9);
	struct tt_frame_head head = { TT_F_GATHER_UP, 77, 3u << 20 };
	uint8_t *data = calloc(1, head.bytes);

	tt_endpoint_forming(f.ep, true);
	cr_assert(tt_endpoint_frame(f.ep, f.ep->conns, &head, data));
	cr_assert_not(tt_endpoint_frame(f.ep, f.ep->conns, &head, data));
	tt_endpoint_forming(f.ep, false);
	cr_assert_eq(f.ep->early_bytes, 0, "the end of the split drops them");
	free(data);
	close(fd);
	tt_control_free(f.ctl);
}

static void announce(int fd, uint64_t epoch, int only)
{
	struct tt_writer w = { 0 };

	tt_put(&w, epoch, 8);
	for (int r = 0; r < N; r++)
		tt_put(&w, r == only, 1);
	send_frame(fd, TT_F_SHRUNK, 0, &w);
}

/* A rank that was cut off has shrunk to itself and says so. Ranks that know it to be dead go on
 * without it; for all others the announcement is an exclusion. */
Test(endpoint, a_shrink_of_dead_ranks_excludes_nobody, .timeout = 60)
{
	for (int dead = 0; dead < 2; dead++) {
		struct fixture f = make(1);
		int fd = connect_peer(&f, 9);
		uint64_t shrunk;
		struct tt_writer w = { 0 };

		if (dead) {
			tt_put(&w, 10, 4);
			send_frame(fd, TT_F_DEAD, 0, &w);
		}
		announce(fd, 1, 10);
		serve(&f);
		cr_assert_eq(tt_control_excluded(f.ctl, &shrunk), dead ? 0 : 1);
		cr_assert_eq(shrunk, dead ? 0 : 1);
		tt_control_free(f.ctl);
	}
}

/* ---- active messages ------------------------------------------------------------------------- */

struct am_fixture {
	struct fixture control;
	struct tt_am *am;
	struct tt_am_conn *conn;
	int fd; /* of the peer */
};

static struct am_fixture make_am(int peer)
{
	struct am_fixture f = { .control = make(1) };
	int fds[2];

	cr_assert_eq(tt_am_make(f.control.ctl, 1, N, 1000, &f.am), 0);
	f.am->epoll = epoll_create1(EPOLL_CLOEXEC);
	cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds), 0);
	cr_assert_eq(tt_am_conn_add(f.am, peer, fds[0]), 0);
	f.conn = f.am->conns;
	f.fd = fds[1];
	return f;
}

static void free_am(struct am_fixture *f)
{
	close(f->fd);
	tt_am_close(f->am);
	tt_control_free(f->control.ctl);
}

static void send_header(struct am_fixture *f, enum tt_am_kind kind, size_t bytes)
{
	struct tt_am_header h = { .kind = kind, .tag = 3, .bytes = bytes };
	uint8_t raw[TT_AM_HEADER_BYTES];

	tt_am_header_put(&h, raw);
	cr_assert_eq(send(f->fd, raw, sizeof(raw), MSG_NOSIGNAL), (ssize_t)sizeof(raw));
	tt_am_conn_event(f->am, f->conn, EPOLLIN);
}

static bool receive_empty(struct am_fixture *f)
{
	struct tt_am_match want = { .kind = TT_AM_USER_MESSAGE, .source = 9, .tag = 3 };
	struct tt_am_header head;

	return !tt_am_recv(f->am, &want, 0, &head) && head.bytes == 0 && head.tag == 3;
}

/* A message without a body that found the queue full: no byte of it is still to come. */
Test(messages_of_a_peer, an_empty_message_that_waited_for_room_arrives, .timeout = 60)
{
	for (int posted = 0; posted < 2; posted++) {
		struct am_fixture f = make_am(9);

		f.am->unexpected_bytes = TT_AM_UNEXPECTED_BYTES + 1;
		send_header(&f, TT_AM_USER_MESSAGE, 0);
		cr_assert(f.conn->stalled);
		if (!posted) {
			f.am->unexpected_bytes = 0;
			tt_unexpected_resume(f.am);
			cr_assert_not(f.conn->stalled);
		}
		cr_assert(receive_empty(&f));
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
		{ TT_AM_PROPOSAL, 9, TT_AM_PROPOSAL_BYTES, true },
		{ TT_AM_PROPOSAL, 9, TT_AM_PROPOSAL_BYTES + 1, false },
		{ TT_AM_DECISION, 9, TT_AM_DECISION_BYTES(N), true },
		{ TT_AM_DECISION, 9, 1u << 30, false },
		{ TT_AM_OUTCOME, 0, TUTTI_QUORUM_RANKS / 8, true },
		{ TT_AM_OUTCOME, 0, 1u << 30, false },
		{ TT_AM_OUTCOME, 9, 8, false }, /* not from the coordinator */
		{ TT_AM_RESULT, 9, 8, false },
		{ TT_AM_GOODBYE, 9, 8, false },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct am_fixture f = make_am(cases[i].peer);

		send_header(&f, cases[i].kind, cases[i].bytes);
		cr_assert_eq(f.conn->dead, !cases[i].fits, "case %zu", i);
		cr_assert(!f.conn->dead || f.am->unexpected_bytes == 0, "case %zu", i);
		free_am(&f);
	}
}

/* A result waits at its sender when the queue is full, and a result that nobody wants any more does
 * not hold up the next message. */
Test(messages_of_a_peer, a_large_result_waits_like_a_message, .timeout = 60)
{
	struct am_fixture f = make_am(0);

	f.am->unexpected_bytes = TT_AM_UNEXPECTED_BYTES;
	send_header(&f, TT_AM_RESULT, 8);
	cr_assert(f.conn->stalled);
	tt_am_drop(f.am, TT_AM_RESULT);
	cr_assert_not(f.conn->stalled);
	cr_assert_eq(send(f.fd, "12345678", 8, MSG_NOSIGNAL), 8);
	tt_am_conn_event(f.am, f.conn, EPOLLIN);
	cr_assert_not(f.conn->in_body);
	free_am(&f);
}
