/*
 * test_confirmed.c - connections that the dialer confirms, and two connections between the same ranks: on
 * which one frames travel, without a network
 */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/endpoint_peer.h"

/* Rank `peer` dials, and this rank welcomes it; returns the peer's end. */
static struct tt_tls *welcome_peer(struct fixture *f, int peer)
{
	struct tt_unauth *u = calloc(1, sizeof(*u));
	struct tt_business_card record = { .rank = peer };
	struct tt_control_endpoint *client;
	struct tt_verdict_message answer;
	struct tt_hello_message hello;
	struct tt_tls *ours, *theirs;

	cr_assert_eq(tt_endpoint_make(peer, N, &client), 0);
	cr_assert_eq(tt_endpoint_authenticate(client, &(struct tt_id){ 0 }), 0);
	memcpy(record.public_key, client->auth.identity.public_key, TT_PUBLIC_KEY);
	memcpy(f->ep->peers.root_key, f->ep->auth.identity.public_key, TT_PUBLIC_KEY);
	cr_assert(tt_directory_put(&f->ep->peers.directory, &record));
	cr_assert(tls_pair(f->ep->auth.tls, f->ep->auth.key, &ours, &theirs));
	tt_hello_put(&(struct tt_hello){ .purpose = TT_P_CONTROL, .from = peer, .to = f->ep->peer },
		     hello.hello);
	cr_assert(tt_hello_sign(client, theirs, &hello));
	cr_assert_eq(tt_tls_send(theirs, &hello, sizeof(hello)), (ssize_t)sizeof(hello));
	*u = (struct tt_unauth){ .watched = { TT_SRC_UNAUTH, NULL },
				 .listener = f->ep->listening.listener,
				 .ep = f->ep,
				 .fd = tt_tls_fd(ours),
				 .tls = ours };
	tt_admission_count(u->listener, 1);
	tt_unauth_event(u);
	cr_assert_eq(tt_tls_recv(theirs, &answer, sizeof(answer)), (ssize_t)sizeof(answer));
	cr_assert(u->dead && answer.verdict == TT_V_WELCOME, "rank %d is not welcome", peer);
	free(u);
	tt_endpoint_free(client);
	return theirs;
}

/* A dial at its deadline is given up, with an END, and may be welcomed later. A message that this rank
 * sent on its connection then would be lost. */
Test(confirmed, a_dialed_connection_is_used_once_the_dialer_has_confirmed, .timeout = 60)
{
	struct fixture f = make(1);
	struct tt_tls *given_up = welcome_peer(&f, 9), *confirmed;

	cr_assert_not(tt_control_is_connected(f.ctl, 9));
	send_frame(given_up, TT_F_END, 0, &(struct tt_writer){ 0 });
	serve(&f);
	tt_tls_close(given_up);
	serve(&f);
	cr_assert_not(tt_control_broken(f.ctl), "%s", broken(&f));
	confirmed = welcome_peer(&f, 9);
	cr_assert_not(tt_control_is_connected(f.ctl, 9));
	send_frame(confirmed, TT_F_CONFIRM, 0, &(struct tt_writer){ 0 });
	serve(&f);
	cr_assert(tt_control_is_connected(f.ctl, 9));
	send_frame(confirmed, TT_F_CONFIRM, 0, &(struct tt_writer){ 0 });
	serve(&f);
	cr_assert(strstr(broken(&f), "rank 9 sent rank 1 a malformed control frame"), "%s",
		  broken(&f));
	tt_tls_close(confirmed);
	tt_control_free(f.ctl);
}

/* The kinds of the frames that a peer has received, as C confirm, G goodbye, E end, ? others */
static void read_kinds(struct tt_tls *tls, char *ret_kinds)
{
	static const char code[TT_F_KINDS] = {
		[TT_F_CONFIRM] = 'C', [TT_F_GOODBYE] = 'G', [TT_F_END] = 'E'
	};
	static uint8_t in[1u << 16];
	struct tt_frame_head head;
	size_t have = 0;
	ssize_t n;

	while ((n = tt_tls_recv(tls, in + have, sizeof(in) - have)) > 0)
		have += (size_t)n;
	for (size_t at = 0; tt_frame_next(in + at, have - at, &head) > 0;
	     at += TT_FRAME_HEAD + head.bytes)
		*ret_kinds++ = code[head.kind] ? code[head.kind] : '?';
	*ret_kinds = 0;
}

/* Two ranks dial each other: this rank welcomes the peer's dial, completes its own one, and then the
 * peer confirms. Frames on both connections would come out of order. */
Test(confirmed, frames_stay_on_the_connection_that_was_usable_first, .timeout = 60)
{
	for (int leaves = 0; leaves < 2; leaves++) {
		struct fixture f = make(1);
		struct tt_tls *dialed_by_peer = welcome_peer(&f, 9), *ours, *dialed;
		struct tt_conn *first;
		char kinds[2][16];

		cr_assert(tls_pair(f.ep->auth.tls, f.ep->auth.key, &ours, &dialed));
		tt_control_lock(f.ctl);
		cr_assert_eq(tt_control_use(f.ctl, (struct tt_duplex){ .tls = ours }, 9), 0);
		first = tt_conn_to(f.ep, 9);
		if (leaves)
			tt_flood_leave(f.ctl);
		tt_control_unlock(f.ctl);
		send_frame(dialed_by_peer, TT_F_CONFIRM, 0, &(struct tt_writer){ 0 });
		serve(&f);
		cr_assert_eq(tt_conn_to(f.ep, 9), first);
		read_kinds(dialed, kinds[0]);
		read_kinds(dialed_by_peer, kinds[1]);
		cr_assert_str_eq(kinds[0], leaves ? "CG" : "C");
		cr_assert_str_eq(kinds[1], leaves ? "E" : "");
		tt_tls_close(dialed);
		tt_tls_close(dialed_by_peer);
		tt_control_free(f.ctl);
	}
}

/* A peer dials while this rank leaves, which may be gone before the CONFIRM comes. The end of a connection without an
 * END would be its death. */
Test(confirmed, a_rank_that_leaves_says_so_to_a_dialer_that_it_welcomes_then, .timeout = 60)
{
	struct fixture f = make(1);
	struct tt_tls *dialed;
	char kinds[16];

	tt_control_lock(f.ctl);
	tt_flood_leave(f.ctl);
	tt_control_unlock(f.ctl);
	dialed = welcome_peer(&f, 9);
	read_kinds(dialed, kinds);
	cr_assert_str_eq(kinds, "GE");
	tt_tls_close(dialed);
	/* and until the listener is closed, when there is no communicator any more */
	tt_control_lock(f.ctl);
	tt_endpoint_end(f.ep);
	f.ep->controls = NULL;
	tt_control_unlock(f.ctl);
	dialed = welcome_peer(&f, 8);
	read_kinds(dialed, kinds);
	cr_assert_str_eq(kinds, "E");
	tt_tls_close(dialed);
	f.ep->controls = f.ctl;
	tt_control_free(f.ctl);
}

/* A peer gave up connecting, with an END, and has connected again. The first connection is still there:
 * it takes nothing more. */
Test(confirmed, frames_go_to_the_connection_without_an_end, .timeout = 60)
{
	struct fixture f = make(1);
	struct tt_tls *first = connect_peer(&f, 9), *second = connect_peer(&f, 9);
	struct tt_conn *conn = tt_conn_to(f.ep, 9);

	send_frame(first, TT_F_END, 0, &(struct tt_writer){ 0 });
	serve(&f);
	cr_assert(conn->over && !conn->dead);
	cr_assert_neq(tt_conn_to(f.ep, 9), NULL);
	cr_assert_neq(tt_conn_to(f.ep, 9), conn);
	cr_assert_eq(tt_conn_from(f.ep, 9), conn);
	send_frame(second, TT_F_END, 0, &(struct tt_writer){ 0 });
	serve(&f);
	cr_assert_eq(tt_conn_to(f.ep, 9), NULL);
	tt_tls_close(first);
	tt_tls_close(second);
	serve(&f);
	cr_assert_not(tt_control_broken(f.ctl));
	tt_control_free(f.ctl);
}

/* ---- the connection of a wrong frame --------------------------------------------------------- */

static void refuse(void *ctx, int rank, int kind, const uint8_t *data, size_t bytes)
{
	(void)kind, (void)data, (void)bytes;
	tt_control_malformed(ctx, rank);
}

static void lack_memory(void *ctx, int rank, int kind, const uint8_t *data, size_t bytes)
{
	(void)kind, (void)data, (void)bytes;
	tt_control_frame_no_memory(ctx, rank);
}

static const struct tt_control_observer observers[] = { { .message = refuse },
							{ .message = lack_memory } };

/* After crossing dials each rank sends on the connection that it could use first: this rank on one of
 * them, the peer on the other. */
Test(confirmed, a_wrong_frame_ends_the_connection_that_brought_it, .timeout = 60)
{
	for (int brings = 0; brings < 2; brings++) {
		for (size_t i = 0; i < sizeof(observers) / sizeof(observers[0]); i++) {
			struct fixture f = make(1);
			struct tt_tls *peer[2] = { connect_peer(&f, 9), connect_peer(&f, 9) };
			struct tt_writer w = { 0 };
			char byte;
			ssize_t n;

			tt_control_observe(f.ctl, &observers[i], f.ctl);
			tt_put(&w, 1, 8);
			send_frame(peer[brings], TT_F_CREDIT, 0, &w);
			serve(&f);
			cr_assert(tt_control_broken(f.ctl));
			tt_control_lock(f.ctl);
			cr_expect_eq(f.ep->conns->next, NULL, "one connection is left");
			tt_control_unlock(f.ctl);
			do
				n = tt_tls_recv(peer[brings], &byte, 1);
			while (n > 0);
			cr_expect_eq(n, 0, "connection %d has not ended", brings);
			tt_control_unobserve(f.ctl, &observers[i], f.ctl);
			tt_tls_close(peer[0]);
			tt_tls_close(peer[1]);
			tt_control_free(f.ctl);
		}
	}
}
