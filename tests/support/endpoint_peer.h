/*
 * endpoint_peer.h - an endpoint whose peers are the test: it writes the peers' bytes and runs the service
 * thread's work itself, so that each case is exact
 */
#ifndef ENDPOINT_PEER_H
#define ENDPOINT_PEER_H

#include <criterion/criterion.h>
#include <stdlib.h>
#include <sys/epoll.h>

#include "control/control_internal.h"
#include "tests/support/tls_pair.h"

#define N 11 /* ranks; rank 1 has the children 9 and 10 */

struct fixture {
	struct tt_control_endpoint *ep;
	struct tt_control *ctl;
};

static inline struct fixture make(int rank)
{
	struct fixture f;

	cr_assert_eq(tt_endpoint_make(rank, N, &f.ep), 0);
	cr_assert_eq(tt_endpoint_authenticate(f.ep, &(struct tt_id){ 0 }), 0);
	cr_assert_eq(tt_endpoint_tls(f.ep), 0);
	cr_assert_eq(tt_endpoint_listen(f.ep, &(struct tt_ports){ 0 }), 0);
	cr_assert_eq(tt_control_make(f.ep, rank, N, &f.ctl), 0);
	f.ctl->join.has_table = f.ctl->join.complete = true;
	return f;
}

/* A connection to a peer; returns the peer's end. */
static inline struct tt_tls *connect_peer(struct fixture *f, int peer)
{
	struct tt_tls *ours, *theirs;

	cr_assert(tls_pair(f->ep->auth.tls, f->ep->auth.key, &ours, &theirs));
	cr_assert(tt_conn_add(f->ep, (struct tt_duplex){ .tls = ours }, peer, false));
	return theirs;
}

static inline void send_frame(struct tt_tls *tls, enum tt_frame kind, uint64_t context,
			      struct tt_writer *payload)
{
	struct tt_frame_head head = { kind, context, payload->have };
	struct tt_writer w = { 0 };

	tt_put_frame_head(&w, &head);
	tt_put_bytes(&w, payload->data, payload->have);
	for (size_t sent = 0; sent < w.have;) {
		ssize_t n = tt_tls_send(tls, w.data + sent, w.have - sent);

		cr_assert_gt(n, 0);
		sent += (size_t)n;
	}
	free(w.data);
	free(payload->data);
	*payload = (struct tt_writer){ 0 };
}

/* The service thread's work, until nothing is left; returns the rounds. */
static inline int serve(struct fixture *f)
{
	struct epoll_event ev[8];
	int rounds = 0, n;

	tt_control_lock(f->ctl);
	while (rounds < 1000 && (n = epoll_wait(tt_service_epoll(), ev, 8, 0)) > 0) {
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

static inline const char *broken(const struct fixture *f)
{
	int culprit;

	return tt_control_text(f->ctl, &culprit);
}

#endif
