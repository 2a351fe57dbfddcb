/* fake_wire.c - the fake libibverbs carries out work requests, queues completions, and injects
 * faults */
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "tests/fakes/verbs/fake_verbs.h"

#pragma GCC visibility push(default)

/* the peer's queue pair is in ERR: retries outlast any test */
#define SILENCE (-100)

static uint64_t writes; /* of this process */

static uint32_t chance(void)
{
	static __thread uint64_t state;

	state = (state ? state : (uint64_t)getpid() * 977 + 1) * 6364136223846793005u +
		1442695040888963407u;
	return (uint32_t)(state >> 33);
}

/* ---- completions, under the lock ------------------------------------------------------------- */

static void complete(struct shared_qp *q, bool send, const struct tt_verbs_wc *wc, uint64_t frees)
{
	struct shared_cq *c = &shared()->cq[send ? q->send_cq : q->recv_cq];

	if (!c->used)
		return;
	if (c->count == c->size) { /* an HCA stops at an overrun, too */
		notify(c->context, TT_VERBS_EVENT_CQ_ERR);
		return;
	}
	c->entries[c->count] = (struct entry){ *wc, q->number, frees, send };
	/* work_poll reads the count without the lock */
	__atomic_store_n(&c->count, c->count + 1, __ATOMIC_RELEASE);
	if (c->armed)
		notify(c->channel, c->cookie);
	c->armed = false;
}

void work_stop(struct shared_qp *q)
{
	struct tt_verbs_wc wc = { .status = TT_VERBS_WC_FLUSH, .qp_num = q->number };

	q->state = TT_VERBS_ERR;
	for (; q->recv_head < q->recv_tail; q->recv_head++) {
		wc.wr_id = q->recvs[q->recv_head % MAX_RECVS];
		complete(q, false, &wc, 0);
	}
}

static void fail(struct shared_qp *q, const struct tt_verbs_send_wr *wr, int status)
{
	struct tt_verbs_wc wc = {
		.wr_id = wr->wr_id, .status = status, .qp_num = q->number, .vendor_err = 0x77
	};

	complete(q, true, &wc, q->posted);
	work_stop(q);
}

/* Completions of one queue pair stay in order; "reorder" skips some, and then all later ones of the
 * same queue pair. */
int work_poll(struct tt_verbs_cq *cq, int n, struct tt_verbs_wc *wc)
{
	struct shared_cq *c = &shared()->cq[((struct cq *)cq)->index];
	bool reorder = mood("reorder"), delay = mood("delay");
	uint32_t kept = 0, i;
	uint64_t passed = 0;
	int got = 0;

	if (refused("poll_cq"))
		return -1;
	if (!__atomic_load_n(&c->count, __ATOMIC_ACQUIRE) || (delay && chance() % 4))
		return 0;
	lock();
	for (i = 0; i < c->count && got < n; i++) {
		struct entry *e = &c->entries[i];
		uint64_t bit = 1ull << e->qp % 64;

		if (passed & bit || (reorder && chance() % 2)) {
			passed |= bit;
			c->entries[kept++] = *e;
			continue;
		}
		for (int q = 0; e->send && q < MAX_QPS; q++)
			if (shared()->qp[q].number == e->qp)
				shared()->qp[q].freed = e->frees;
		wc[got++] = e->wc;
	}
	memmove(&c->entries[kept], &c->entries[i], (c->count - i) * sizeof(c->entries[0]));
	__atomic_store_n(&c->count, c->count - (i - kept), __ATOMIC_RELEASE);
	unlock();
	return got;
}

int work_arm(struct tt_verbs_cq *cq, int solicited_only)
{
	struct shared_cq *c = &shared()->cq[((struct cq *)cq)->index];
	int code = refused("req_notify_cq");

	(void)solicited_only;
	if (code)
		return code;
	lock();
	c->armed = c->count == 0;
	if (!c->armed)
		/* no event would come for the completions already queued */
		notify(c->channel, c->cookie);
	unlock();
	return 0;
}

/* ---- work ------------------------------------------------------------------------------------ */

static bool covers(const struct shared_mr *m, pid_t pid, uint32_t pd, uint32_t key, uint64_t start,
		   uint64_t bytes, int access)
{
	return m->used && m->pid == pid && m->pd == pd && m->key == key &&
	       (m->access & access) == access && start >= m->start &&
	       start + bytes <= m->start + m->bytes;
}

/* A key is never reused, so the key of deregistered memory matches nothing. */
static const struct shared_mr *registered(pid_t pid, uint32_t pd, uint32_t key, uint64_t start,
					  uint64_t bytes, int access)
{
	for (int i = 0; i < MAX_MRS; i++)
		if (covers(&shared()->mr[i], pid, pd, key, start, bytes, access))
			return &shared()->mr[i];
	return NULL;
}

static struct shared_qp *find(uint32_t number)
{
	for (int i = 0; i < MAX_QPS; i++)
		if (shared()->qp[i].used && shared()->qp[i].number == number)
			return &shared()->qp[i];
	return NULL;
}

/* Copies the second half first, so that a receiver cannot infer complete data from the last
 * byte. */
static bool move(pid_t pid, uint64_t from, uint64_t to, size_t bytes)
{
	size_t half = bytes / 2, at[2] = { half, 0 }, length[2] = { bytes - half, half };

	for (int i = 0; i < 2; i++) {
		struct iovec here = { (void *)(uintptr_t)(from + at[i]), length[i] };
		struct iovec there = { (void *)(uintptr_t)(to + at[i]), length[i] };

		if (pid == getpid())
			memcpy(there.iov_base, here.iov_base, length[i]);
		else if (process_vm_writev(pid, &here, 1, &there, 1, 0) != (ssize_t)length[i])
			return false;
	}
	return true;
}

static int injected(uint64_t number)
{
	return fault("drop", number)               ? TT_VERBS_WC_RETRY
	       : fault("remote-access", number)    ? TT_VERBS_WC_REM_ACCESS
	       : fault("local-protection", number) ? TT_VERBS_WC_LOC_PROT
	       : fault("rnr", number)              ? TT_VERBS_WC_RNR_RETRY
	       : fault("flush", number)            ? TT_VERBS_WC_FLUSH
	       : fault("port-down", number)        ? -TT_VERBS_EVENT_PORT_ERR
	       : fault("device-gone", number)      ? -TT_VERBS_EVENT_DEVICE_FATAL
						   : 0;
}

static uint64_t bytes_of(const struct tt_verbs_send_wr *wr)
{
	uint64_t bytes = 0;

	for (int i = 0; i < wr->num_sge; i++)
		bytes += wr->sg_list[i].length;
	return bytes;
}

/* Does this process have read access to all pieces? Inline pieces need no key. */
static bool readable(const struct shared_qp *q, const struct tt_verbs_send_wr *wr)
{
	bool good = true;

	for (int i = 0; i < wr->num_sge && !(wr->send_flags & TT_VERBS_INLINE); i++)
		good = good && registered(q->pid, q->pd, wr->sg_list[i].lkey, wr->sg_list[i].addr,
					  wr->sg_list[i].length, 0);
	return good;
}

/* The HCA's address of a piece; of an inline piece the processor's. */
static uint64_t source(const struct shared_qp *q, const struct tt_verbs_send_wr *wr, int i)
{
	const struct tt_verbs_sge *s = &wr->sg_list[i];

	if (wr->send_flags & TT_VERBS_INLINE)
		return s->addr;
	return read_at(registered(q->pid, q->pd, s->lkey, s->addr, s->length, 0), s->addr);
}

/* Copies the last piece first, for the same reason as move. */
static bool move_all(const struct shared_qp *q, pid_t pid, const struct tt_verbs_send_wr *wr,
		     const struct shared_mr *target)
{
	uint64_t to = write_at(target, wr->wr.rdma.remote_addr, bytes_of(wr)) + bytes_of(wr);
	bool good = true;

	for (int i = wr->num_sge - 1; i >= 0 && good; i--) {
		to -= wr->sg_list[i].length;
		good = move(pid, source(q, wr, i), to, wr->sg_list[i].length);
	}
	return good;
}

/* Returns 0 or the status of the completion. */
static int carry_out(struct shared_qp *q, const struct tt_verbs_send_wr *wr,
		     struct shared_qp **ret_peer)
{
	uint64_t bytes = bytes_of(wr);
	struct shared_qp *peer = find(q->dest);
	const struct shared_mr *target = NULL;

	if (!readable(q, wr))
		return TT_VERBS_WC_LOC_PROT;
	if (peer && peer->state == TT_VERBS_ERR)
		return SILENCE;
	if (!peer || peer->dest != q->number || peer->lid != q->dlid || peer->wire != q->wire ||
	    (peer->state != TT_VERBS_RTR && peer->state != TT_VERBS_RTS))
		return TT_VERBS_WC_RETRY;
	if (bytes)
		target = registered(peer->pid, peer->pd, wr->wr.rdma.rkey, wr->wr.rdma.remote_addr,
				    bytes, TT_VERBS_REMOTE_WRITE);
	if (bytes && !target) {
		notify(peer->context, TT_VERBS_EVENT_QP_ACCESS_ERR);
		return TT_VERBS_WC_REM_ACCESS;
	}
	if (wr->opcode == TT_VERBS_WRITE_IMM && peer->recv_head == peer->recv_tail)
		return TT_VERBS_WC_RNR_RETRY;
	if (!move_all(q, peer->pid, wr, target))
		return TT_VERBS_WC_RETRY;
	*ret_peer = peer;
	return 0;
}

static int send_one(struct shared_qp *q, const struct tt_verbs_send_wr *wr)
{
	int status = injected(__atomic_add_fetch(&writes, 1, __ATOMIC_RELAXED));
	struct shared_qp *peer = NULL;
	struct tt_verbs_wc wc = { .qp_num = q->number, .opcode = 1 };

	if ((wr->opcode != TT_VERBS_WRITE_IMM && wr->opcode != TT_VERBS_WRITE) ||
	    wr->num_sge > (int)q->pieces ||
	    (wr->send_flags & TT_VERBS_INLINE && bytes_of(wr) > q->inline_max))
		return EINVAL;
	if (q->state != TT_VERBS_RTS && q->state != TT_VERBS_ERR)
		return EINVAL;
	if (q->posted - q->freed >= q->send_depth)
		return ENOMEM;
	q->posted++;
	if (status < 0)
		notify(q->context, (uint64_t)-status | 1ull << 32);
	if (status == -TT_VERBS_EVENT_PORT_ERR)
		cut_ports();
	if (q->state == TT_VERBS_ERR || status < 0)
		status = TT_VERBS_WC_FLUSH;
	else if (!status && ports_are_down(true))
		status = TT_VERBS_WC_RETRY;
	status = status ? status : carry_out(q, wr, &peer);
	if (status != 0 && status != SILENCE)
		fail(q, wr, status);
	if (status)
		return 0;
	wc.wr_id = wr->wr_id;
	if (wr->send_flags & TT_VERBS_SIGNALED)
		complete(q, true, &wc, q->posted);
	if (wr->opcode == TT_VERBS_WRITE)
		return 0;
	wc = (struct tt_verbs_wc){ .wr_id = peer->recvs[peer->recv_head++ % MAX_RECVS],
				   .opcode = TT_VERBS_WC_IMM,
				   .byte_len = (uint32_t)bytes_of(wr),
				   .imm_data = wr->imm_data,
				   .qp_num = peer->number,
				   .wc_flags = 2 };
	complete(peer, false, &wc, 0);
	return 0;
}

int ibv_query_qp(struct tt_verbs_qp *qp, struct tt_verbs_qp_attr *attr, int mask,
		 struct tt_verbs_qp_init *init);

int ibv_query_qp(struct tt_verbs_qp *qp, struct tt_verbs_qp_attr *attr, int mask,
		 struct tt_verbs_qp_init *init)
{
	int code = refused("query_qp");

	(void)mask, (void)init;
	if (code)
		return code;
	lock();
	attr->qp_state = shared()->qp[((struct qp *)qp)->index].state;
	unlock();
	return 0;
}

int work_send(struct tt_verbs_qp *qp, struct tt_verbs_send_wr *wr, struct tt_verbs_send_wr **bad)
{
	int rc = refused("post_send");

	*bad = wr;
	lock();
	for (; wr && !rc; wr = wr->next) {
		*bad = wr;
		rc = send_one(&shared()->qp[((struct qp *)qp)->index], wr);
	}
	unlock();
	return rc;
}

int work_recv(struct tt_verbs_qp *qp, struct tt_verbs_recv_wr *wr, struct tt_verbs_recv_wr **bad)
{
	struct shared_qp *q = &shared()->qp[((struct qp *)qp)->index];
	int rc = refused("post_recv");

	*bad = wr;
	lock();
	for (; wr && !rc; wr = wr->next) {
		*bad = wr;
		if (q->state == TT_VERBS_RESET || q->recv_tail - q->recv_head >= q->recv_depth)
			rc = q->state == TT_VERBS_RESET ? EINVAL : ENOMEM;
		else
			q->recvs[q->recv_tail++ % MAX_RECVS] = wr->wr_id;
	}
	if (q->state == TT_VERBS_ERR)
		work_stop(q);
	unlock();
	return rc;
}

/* ---- events ---------------------------------------------------------------------------------- */

int ibv_get_cq_event(struct tt_verbs_channel *channel, struct tt_verbs_cq **ret_cq,
		     void **ret_user);
void ibv_ack_cq_events(struct tt_verbs_cq *cq, unsigned n);
int ibv_get_async_event(struct tt_verbs_context *context, struct tt_verbs_async_event *ret_event);
void ibv_ack_async_event(struct tt_verbs_async_event *event);
const char *ibv_wc_status_str(int status);
const char *ibv_event_type_str(int event);

int ibv_get_cq_event(struct tt_verbs_channel *channel, struct tt_verbs_cq **ret_cq, void **ret_user)
{
	uint64_t cookie;

	if (refused("get_cq_event") || !receive_value(channel->fd, &cookie))
		return -1;
	*ret_cq = (struct tt_verbs_cq *)(uintptr_t)cookie;
	*ret_user = (*ret_cq)->cq_context;
	return 0;
}

void ibv_ack_cq_events(struct tt_verbs_cq *cq, unsigned n)
{
	cq->comp_events += n;
}

int ibv_get_async_event(struct tt_verbs_context *context, struct tt_verbs_async_event *ret_event)
{
	uint64_t value;

	if (refused("get_async_event") || !receive_value(context->async_fd, &value))
		return -1;
	*ret_event = (struct tt_verbs_async_event){ .element.port = (int)(value >> 32),
						    .type = (int)(uint32_t)value };
	return 0;
}

void ibv_ack_async_event(struct tt_verbs_async_event *event)
{
	event->type = -1;
}

const char *ibv_wc_status_str(int status)
{
	return status == TT_VERBS_WC_RETRY   ? "transport retry counter exceeded"
	       : status == TT_VERBS_WC_FLUSH ? "Work Request Flushed Error"
					     : "fake status";
}

const char *ibv_event_type_str(int event)
{
	return event == TT_VERBS_EVENT_PORT_ERR       ? "port error"
	       : event == TT_VERBS_EVENT_DEVICE_FATAL ? "local catastrophic error"
						      : "fake event";
}
