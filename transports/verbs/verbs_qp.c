/*
 * verbs_qp.c - a queue pair and its memory: created, then connected to the peer's
 *
 * Called by verbs.c. Both sides write a hello to the socket from the control plane, read the
 * peer's, move their queue pair to RTS, and send one more byte: a write to a peer that is not in
 * RTR yet would be retransmitted only after a time-out. Both are encrypted and have a tag (seal.h), so
 * that nobody on the way learns the keys of remote writes, or leads these elsewhere. Then the socket
 * is closed.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/sock.h"
#include "transports/verbs/verbs.h"

#define MAGIC 0x74746962u /* plus the version of the protocol: */
#define VERSION 3u
#define PAGE 4096u
#define RNR_RETRIES 6
#define RNR_TIMER 12 /* 0.64 ms */
#define HOPS 255

size_t tt_verbs_ring_bytes(const struct tt_world *world)
{
	size_t record = TT_LINE + (world->message_bytes + TT_LINE - 1) / TT_LINE * TT_LINE;
	size_t bytes = 3 * record > TT_VERBS_RING_MIN ? 3 * record : TT_VERBS_RING_MIN;

	return (bytes + PAGE - 1) / PAGE * PAGE;
}

const char *tt_verbs_remedy(int error, char text[200])
{
	struct rlimit locked = { 0 };

	text[0] = '\0';
	getrlimit(RLIMIT_MEMLOCK, &locked);
	if ((error == ENOMEM || error == EPERM) && locked.rlim_cur != RLIM_INFINITY)
		snprintf(
			text, 200,
			"; this process may lock %llu KiB of memory (ulimit -l): raise it, best to unlimited "
			"(limits.conf, LimitMEMLOCK=, docker --ulimit memlock=-1)",
			(unsigned long long)locked.rlim_cur / 1024);
	return text;
}

int tt_verbs_register(struct tt_verbs_ep *ep, struct tt_verbs_rail *rail, void *p, size_t bytes,
		      int access, struct tt_verbs_mr **ret_mr)
{
	struct tt_verbs_mr *mr = ep->ib->reg_mr(rail->pd, p, bytes, access);
	int error = errno;
	char text[200];

	if (mr) {
		*ret_mr = mr;
		ep->registrations++;
		return 0;
	}
	return tt_fail(TT_SYSTEM, "rank %d: %s: registering %zu bytes: %s%s", ep->base.world->rank,
		       rail->name, bytes, strerror(error), tt_verbs_remedy(error, text));
}

/* ---- making ---------------------------------------------------------------------------------- */

/* A completion queue with room for one more link. NULL: tt_fail was called. */
static struct tt_verbs_cq *cq_for_one_more(struct tt_verbs_ep *ep, struct tt_verbs_rail *rail)
{
	struct tt_verbs_cq **more, *cq;
	char text[200];

	if (rail->nlinks++ % rail->links_per_cq)
		return rail->cqs[rail->ncqs - 1];
	more = realloc(rail->cqs, (size_t)(rail->ncqs + 1) * sizeof(struct tt_verbs_cq *));
	if (more)
		rail->cqs = more;
	cq = more ? ep->ib->create_cq(rail->context, rail->links_per_cq * TT_VERBS_LINK_CQES, NULL,
				      rail->channel, 0)
		  : NULL;
	if (!cq) {
		int error = errno;

		tt_fail(TT_SYSTEM, "rank %d: %s: a completion queue of %d entries: %s%s",
			ep->base.world->rank, rail->name, rail->links_per_cq * TT_VERBS_LINK_CQES,
			strerror(error), tt_verbs_remedy(error, text));
		return NULL;
	}
	return rail->cqs[rail->ncqs++] = cq;
}

/* MADV_DONTFORK: a child process does not inherit the rings, so fork moves no page that the HCA
 * uses. */
static int make_rings(struct tt_verbs_link *l)
{
	struct tt_verbs_ep *ep = (struct tt_verbs_ep *)l->base.ep;
	size_t bytes;
	int rc;

	l->ring_bytes = tt_verbs_ring_bytes(ep->base.world);
	bytes = 2 * l->ring_bytes + TT_VERBS_RTR_BYTES;
	l->ring = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (l->ring == MAP_FAILED) {
		l->ring = NULL;
		return tt_fail(TT_SYSTEM, "rank %d: %zu bytes of messages with rank %d: %m",
			       ep->base.world->rank, bytes, l->base.peer);
	}
	l->rtrs = (const struct tt_verbs_rtr *)(l->ring + 2 * l->ring_bytes);
	madvise(l->ring, bytes, MADV_DONTFORK);
	ep->memory += bytes;
	rc = tt_verbs_register(ep, l->rail, l->ring, l->ring_bytes, TT_VERBS_LOCAL_WRITE,
			       &l->tx_mr);
	return rc ? rc
		  : tt_verbs_register(ep, l->rail, l->ring + l->ring_bytes,
				      l->ring_bytes + TT_VERBS_RTR_BYTES,
				      TT_VERBS_LOCAL_WRITE | TT_VERBS_REMOTE_WRITE, &l->rx_mr);
}

/* HCAs refuse too much inline data without naming their limit, so smaller sizes are tried. NULL:
 * errno */
static struct tt_verbs_qp *create_qp(struct tt_verbs_link *l, struct tt_verbs_qp_init *init)
{
	static const uint32_t sizes[] = { TT_VERBS_INLINE_ASK, 128, 64, 32, 0 };
	struct tt_verbs_ep *ep = (struct tt_verbs_ep *)l->base.ep;
	const struct tt_verbs_cap cap = init->cap;
	struct tt_verbs_qp *qp = NULL;

	for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes) && !qp; i++) {
		init->cap = cap;
		init->cap.max_inline_data = sizes[i];
		qp = ep->ib->create_qp(l->rail->pd, init);
	}
	return qp;
}

static int make_qp(struct tt_verbs_link *l, struct tt_verbs_cq *cq)
{
	struct tt_verbs_ep *ep = (struct tt_verbs_ep *)l->base.ep;
	struct tt_verbs_qp_init init = {
		.send_cq = cq,
		.recv_cq = cq,
		.type = TT_VERBS_RC,
		.cap = { .max_send_wr = TT_VERBS_SENDS,
			 .max_recv_wr = TT_VERBS_RECVS,
			 .max_send_sge = 2,
			 .max_recv_sge = 1 },
	};
	struct tt_verbs_qp_attr attr = { .qp_state = TT_VERBS_INIT,
					 .port_num = l->rail->record.port,
					 .pkey_index = l->rail->pkey_index,
					 .access = TT_VERBS_REMOTE_WRITE };
	char text[200];
	int rc;

	l->qp = create_qp(l, &init);
	rc = errno;
	if (!l->qp)
		return tt_fail(TT_SYSTEM, "rank %d: %s: a queue pair for rank %d: %s%s",
			       ep->base.world->rank, l->rail->name, l->base.peer, strerror(rc),
			       tt_verbs_remedy(rc, text));
	l->max_inline = init.cap.max_inline_data;
	rc = ep->ib->modify_qp(l->qp, &attr,
			       TT_VERBS_QP_STATE | TT_VERBS_QP_PKEY | TT_VERBS_QP_PORT |
				       TT_VERBS_QP_ACCESS);
	if (rc)
		return tt_fail(TT_SYSTEM, "rank %d: %s port %d: queue pair %#x to INIT: %s",
			       ep->base.world->rank, l->rail->name, l->rail->record.port,
			       l->qp->qp_num, strerror(rc));
	return tt_verbs_post_receives(l, TT_VERBS_RECVS);
}

int tt_verbs_queue_make(struct tt_verbs_link *l)
{
	struct tt_verbs_ep *ep = (struct tt_verbs_ep *)l->base.ep;
	struct tt_verbs_cq *cq = cq_for_one_more(ep, l->rail);
	int rc = cq ? make_rings(l) : TT_SYSTEM;

	if (!rc && getrandom(&l->psn, sizeof(l->psn), 0) != sizeof(l->psn))
		rc = tt_fail(TT_SYSTEM, "rank %d: no random bytes: %m", ep->base.world->rank);
	l->psn &= 0xffffff;
	return rc ? rc : make_qp(l, cq);
}

static void end_introduction(struct tt_verbs_link *l)
{
	tt_seal_free(&l->out);
	tt_seal_free(&l->in);
	if (l->fd >= 0)
		close(l->fd);
	l->fd = -1;
}

void tt_verbs_queue_free(struct tt_verbs_link *l)
{
	struct tt_verbs_ep *ep = (struct tt_verbs_ep *)l->base.ep;

	end_introduction(l);
	if (l->qp)
		ep->ib->destroy_qp(l->qp);
	if (l->tx_mr)
		ep->ib->dereg_mr(l->tx_mr);
	if (l->rx_mr)
		ep->ib->dereg_mr(l->rx_mr);
	if (l->ring)
		munmap(l->ring, 2 * l->ring_bytes + TT_VERBS_RTR_BYTES);
	tt_verbs_release_regions(l);
	free(l);
}

/* ---- connecting ------------------------------------------------------------------------------ */

static int no_cipher(const struct tt_verbs_link *l)
{
	return tt_fail(TT_SYSTEM, "rank %d: cannot encrypt the address of a queue pair for rank %d",
		       l->base.ep->world->rank, l->base.peer);
}

int tt_verbs_send_hello(struct tt_verbs_link *l, const struct tt_data_keys *keys)
{
	struct tt_verbs_hello hello = {
		.magic = MAGIC + VERSION,
		.qpn = l->qp->qp_num,
		.psn = l->psn,
		.rkey = l->rx_mr->rkey,
		.ring_bytes = (uint32_t)l->ring_bytes,
		.ring = (uintptr_t)l->ring + l->ring_bytes,
		.lid = l->rail->record.lid,
		.mtu = l->rail->record.mtu,
		.rail = (uint8_t)(l->rail - ((struct tt_verbs_ep *)l->base.ep)->rail),
	};

	memcpy(hello.name, l->rail->name, sizeof(hello.name));
	if (!tt_seal_make(&l->out, keys->send, true) || !tt_seal_make(&l->in, keys->recv, false) ||
	    !tt_seal_whole(&l->out, &hello, TT_VERBS_HELLO_SEALED, hello.tag))
		return no_cipher(l);
	if (send(l->fd, &hello, sizeof(hello), MSG_NOSIGNAL) == sizeof(hello))
		return 0;
	return tt_fail(TT_REMOTE, "rank %d: sending rank %d a queue pair's address: %m",
		       l->base.ep->world->rank, l->base.peer);
}

/* Read the rest of a unit of bytes with its tag, which ends the unit's struct of `whole` bytes, and decrypt the
 * unit. 1 complete | 0 | TT_REMOTE */
static int read_on(struct tt_verbs_link *l, void *into, size_t bytes, uint8_t *tag, size_t whole)
{
	ssize_t n = recv(l->fd, (char *)into + l->got, whole - l->got, MSG_DONTWAIT);

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return 0;
	if (n <= 0)
		return tt_fail(TT_REMOTE,
			       "rank %d: rank %d hung up while queue pairs were connected (%s)",
			       l->base.ep->world->rank, l->base.peer,
			       n ? strerror(errno) : "end of file");
	l->got += (size_t)n;
	if (l->got < whole)
		return 0;
	l->got = 0;
	if (tt_seal_whole(&l->in, into, bytes, tag))
		return 1;
	return tt_fail(TT_REMOTE,
		       "rank %d: the address of rank %d's queue pair was altered on the way",
		       l->base.ep->world->rank, l->base.peer);
}

static int to_state(struct tt_verbs_link *l, struct tt_verbs_qp_attr *attr, int mask,
		    const char *state)
{
	struct tt_verbs_ep *ep = (struct tt_verbs_ep *)l->base.ep;
	char mine[TT_VERBS_GID_TEXT], theirs[TT_VERBS_GID_TEXT];
	int error = ep->ib->modify_qp(l->qp, attr, mask | TT_VERBS_QP_STATE);
	bool no_route = error == ETIMEDOUT || error == ENETUNREACH || error == EHOSTUNREACH ||
			error == EINVAL;

	if (!error)
		return 0;
	return tt_fail(
		TT_SYSTEM,
		"rank %d: %s port %d GID %d (%s): queue pair %#x to %s for rank %d (%.64s, GID %s, queue pair %#x): "
		"%s%s",
		ep->base.world->rank, l->rail->name, l->rail->record.port, l->mine.index,
		tt_verbs_gid_text(l->mine.gid, mine), l->qp->qp_num, state, l->base.peer,
		l->hello.name, tt_verbs_gid_text(l->theirs.gid, theirs), l->hello.qpn,
		strerror(error),
		no_route
			? ": there is no route to that GID, or the GID index is wrong (TUTTI_IB_GID_INDEX)"
			: "");
}

static int connect_qp(struct tt_verbs_link *l)
{
	const struct tt_verbs_settings *set = l->base.ep->world->ib;
	struct tt_verbs_qp_attr rtr = {
		.qp_state = TT_VERBS_RTR,
		.path_mtu = l->hello.mtu < l->rail->record.mtu ? l->hello.mtu : l->rail->record.mtu,
		.dest_qp_num = l->hello.qpn,
		.rq_psn = l->hello.psn,
		.max_dest_rd_atomic = 1,
		.min_rnr_timer = RNR_TIMER,
		.ah = { .dlid = l->hello.lid,
			.is_global = l->global,
			.port_num = l->rail->record.port,
			.sl = set ? (uint8_t)set->service_level : 0 },
	};
	struct tt_verbs_qp_attr rts = {
		.qp_state = TT_VERBS_RTS,
		.timeout = tt_verbs_timeout(set),
		.retry_cnt = tt_verbs_retries(set),
		.rnr_retry = RNR_RETRIES,
		.sq_psn = l->psn,
		.max_rd_atomic = 1,
	};
	int rc;

	memcpy(rtr.ah.grh.dgid, l->theirs.gid, 16);
	rtr.ah.grh.sgid_index = l->mine.index;
	rtr.ah.grh.hop_limit = HOPS;
	rtr.ah.grh.traffic_class = set ? (uint8_t)set->traffic_class : 0;
	rc = to_state(l, &rtr,
		      TT_VERBS_QP_AV | TT_VERBS_QP_MTU | TT_VERBS_QP_DEST | TT_VERBS_QP_RQ_PSN |
			      TT_VERBS_QP_DEST_READS | TT_VERBS_QP_RNR_TIMER,
		      "RTR");
	return rc ? rc
		  : to_state(l, &rts,
			     TT_VERBS_QP_TIMEOUT | TT_VERBS_QP_RETRIES | TT_VERBS_QP_RNR |
				     TT_VERBS_QP_SQ_PSN | TT_VERBS_QP_READS,
			     "RTS");
}

static int check_hello(const struct tt_verbs_link *l)
{
	if (l->hello.magic == MAGIC + VERSION && l->hello.ring_bytes == l->ring_bytes)
		return 0;
	return tt_fail(
		TT_REMOTE,
		"rank %d: rank %d speaks another version of the verbs protocol (%#x, rings of %u bytes)",
		l->base.ep->world->rank, l->base.peer, l->hello.magic, l->hello.ring_bytes);
}

static int send_go(struct tt_verbs_link *l)
{
	struct tt_verbs_go go = { .go = 1 };

	if (!tt_seal_whole(&l->out, &go.go, sizeof(go.go), go.tag))
		return no_cipher(l);
	if (send(l->fd, &go, sizeof(go), MSG_NOSIGNAL) == sizeof(go))
		return 0;
	return tt_fail(TT_REMOTE, "rank %d: rank %d hung up while queue pairs were connected: %m",
		       l->base.ep->world->rank, l->base.peer);
}

int tt_verbs_finish_connect(struct tt_verbs_link *l)
{
	int rc;

	if (l->state == TT_VERBS_HELLO_SENT) {
		rc = read_on(l, &l->hello, TT_VERBS_HELLO_SEALED, l->hello.tag, sizeof(l->hello));
		if (rc <= 0 || (rc = check_hello(l)) || (rc = connect_qp(l)) || (rc = send_go(l)))
			return rc;
		l->state = TT_VERBS_CONNECTED;
	}
	rc = read_on(l, &l->go, sizeof(l->go.go), l->go.tag, sizeof(l->go));
	if (rc <= 0)
		return rc;
	end_introduction(l);
	/* tt_verbs_lost may use the link from now on */
	__atomic_store_n(&l->state, TT_VERBS_READY, __ATOMIC_RELEASE);
	return 1;
}
