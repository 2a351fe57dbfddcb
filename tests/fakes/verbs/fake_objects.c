/* fake_objects.c - memory registrations, completion queues and queue pairs of the fake
 * libibverbs */
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/fakes/verbs/fake_verbs.h"

#pragma GCC visibility push(default)

struct tt_verbs_pd *ibv_alloc_pd(struct tt_verbs_context *context);
int ibv_dealloc_pd(struct tt_verbs_pd *pd);
struct tt_verbs_mr *ibv_reg_mr(struct tt_verbs_pd *pd, void *addr, size_t bytes, int access);
int ibv_dereg_mr(struct tt_verbs_mr *mr);
struct tt_verbs_channel *ibv_create_comp_channel(struct tt_verbs_context *context);
int ibv_destroy_comp_channel(struct tt_verbs_channel *channel);
struct tt_verbs_cq *ibv_create_cq(struct tt_verbs_context *context, int entries, void *user,
				  struct tt_verbs_channel *channel, int vector);
int ibv_destroy_cq(struct tt_verbs_cq *cq);
struct tt_verbs_qp *ibv_create_qp(struct tt_verbs_pd *pd, struct tt_verbs_qp_init *init);
int ibv_modify_qp(struct tt_verbs_qp *qp, struct tt_verbs_qp_attr *attr, int mask);
int ibv_destroy_qp(struct tt_verbs_qp *qp);

/* ---- forks ----------------------------------------------------------------------------------- */

static int forks_are_safe = TT_VERBS_FORK_UNNEEDED;
static atomic_int registered;

int ibv_is_fork_initialized(void);
int ibv_fork_init(void);

/* TUTTI_TEST_VERBS_FORK=old: a kernel that does not copy pinned pages at fork */
static bool old_kernel(void)
{
	return getenv("TUTTI_TEST_VERBS_FORK") && !strcmp(getenv("TUTTI_TEST_VERBS_FORK"), "old");
}

int ibv_is_fork_initialized(void)
{
	return old_kernel() && forks_are_safe != TT_VERBS_FORK_ENABLED ? TT_VERBS_FORK_DISABLED
								       : forks_are_safe;
}

int ibv_fork_init(void)
{
	if (registered)
		return EINVAL;
	forks_are_safe = TT_VERBS_FORK_ENABLED;
	return 0;
}

/* ---- memory ---------------------------------------------------------------------------------- */

struct tt_verbs_pd *ibv_alloc_pd(struct tt_verbs_context *context)
{
	struct tt_verbs_pd *pd = refused("alloc_pd") ? NULL : calloc(1, sizeof(*pd));

	if (pd)
		*pd = (struct tt_verbs_pd){ context, new_number() };
	count_object(A_PD, pd != NULL);
	return pd;
}

/* As of an HCA: fails while registrations belong to the domain. */
int ibv_dealloc_pd(struct tt_verbs_pd *pd)
{
	int code = refused("dealloc_pd");

	if (code)
		return code;
	lock();
	for (int i = 0; i < MAX_MRS; i++) {
		const struct shared_mr *m = &shared()->mr[i];

		if (m->used && m->pid == getpid() && m->pd == pd->handle)
			code = EBUSY;
	}
	unlock();
	if (code)
		return code;
	count_object(A_PD, -1);
	free(pd);
	return 0;
}

struct tt_verbs_mr *add_mr(struct tt_verbs_pd *pd, uint64_t start, size_t bytes, int access,
			   uint64_t mapping, uint64_t deferred)
{
	static uint64_t count;
	struct mr *m = calloc(1, sizeof(*m));
	uint32_t i = 0;

	registered = 1;
	if (!m || ibv_is_fork_initialized() == TT_VERBS_FORK_DISABLED ||
	    fault_from("much-memory", bytes) ||
	    fault("memory", __atomic_add_fetch(&count, 1, __ATOMIC_RELAXED)) || !start || !bytes) {
		free(m);
		errno = ENOMEM;
		return NULL;
	}
	lock();
	while (i < MAX_MRS - 1 && shared()->mr[i].used)
		i++;
	m->index = i;
	m->base = (struct tt_verbs_mr){ .context = pd->context,
					.pd = pd,
					.addr = (void *)(uintptr_t)start,
					.length = bytes,
					.handle = i,
					.lkey = new_number() << 8 };
	m->base.rkey = m->base.lkey;
	shared()->mr[i] = (struct shared_mr){ true,  getpid(), pd->handle, m->base.lkey, access,
					      start, bytes,    mapping,    deferred };
	unlock();
	count_object(AN_MR, 1);
	return &m->base;
}

struct tt_verbs_mr *ibv_reg_mr(struct tt_verbs_pd *pd, void *addr, size_t bytes, int access)
{
	return refused("reg_mr") ? NULL : add_mr(pd, (uintptr_t)addr, bytes, access, 0, 0);
}

int ibv_dereg_mr(struct tt_verbs_mr *mr)
{
	int code = refused("dereg_mr");

	if (code)
		return code;
	count_object(AN_MR, -1);
	lock();
	forget_device(&shared()->mr[((struct mr *)mr)->index]);
	shared()->mr[((struct mr *)mr)->index].used = false;
	unlock();
	free(mr);
	return 0;
}

/* ---- queues ---------------------------------------------------------------------------------- */

struct tt_verbs_channel *ibv_create_comp_channel(struct tt_verbs_context *context)
{
	struct channel *c = refused("create_comp_channel") ? NULL : calloc(1, sizeof(*c));

	count_object(A_CHANNEL, c != NULL);
	if (c) {
		c->number = new_number();
		c->base = (struct tt_verbs_channel){ context, listen_on(c->number), 0 };
	}
	return &c->base;
}

int ibv_destroy_comp_channel(struct tt_verbs_channel *channel)
{
	int code = refused("destroy_comp_channel");

	if (code || channel->references)
		return code ? code : EBUSY;
	count_object(A_CHANNEL, -1);
	close(channel->fd);
	free(channel);
	return 0;
}

struct tt_verbs_cq *ibv_create_cq(struct tt_verbs_context *context, int entries, void *user,
				  struct tt_verbs_channel *channel, int vector)
{
	struct cq *c = refused("create_cq") ? NULL : calloc(1, sizeof(*c));
	uint32_t i = 0;

	if (!c)
		return NULL;
	if (entries > CQ_ENTRIES || vector) {
		free(c);
		errno = EINVAL;
		return NULL;
	}
	count_object(A_CQ, 1);
	lock();
	while (i < MAX_CQS - 1 && shared()->cq[i].used)
		i++;
	c->index = i;
	c->base = (struct tt_verbs_cq){
		.context = context, .channel = channel, .cq_context = user, .cqe = entries
	};
	shared()->cq[i].used = true;
	shared()->cq[i].armed = false;
	shared()->cq[i].pid = getpid();
	shared()->cq[i].channel = ((struct channel *)channel)->number;
	shared()->cq[i].context = ((struct fake_verbs_context *)context)->number;
	shared()->cq[i].size = (uint32_t)entries;
	shared()->cq[i].count = 0;
	shared()->cq[i].cookie = (uintptr_t)c;
	unlock();
	channel->references++;
	return &c->base;
}

int ibv_destroy_cq(struct tt_verbs_cq *cq)
{
	struct cq *c = (struct cq *)cq;
	int code = refused("destroy_cq");

	if (code)
		return code;
	lock();
	for (int i = 0; i < MAX_QPS; i++)
		if (shared()->qp[i].used &&
		    (shared()->qp[i].send_cq == c->index || shared()->qp[i].recv_cq == c->index)) {
			unlock();
			return EBUSY;
		}
	shared()->cq[c->index].used = false;
	unlock();
	count_object(A_CQ, -1);
	cq->channel->references--;
	free(c);
	return 0;
}

/* TUTTI_TEST_VERBS_INLINE: queue pairs that ask for more bytes are refused */
static uint32_t inline_most(void)
{
	const char *set = getenv("TUTTI_TEST_VERBS_INLINE");

	return set ? (uint32_t)atoi(set) : MAX_INLINE;
}

struct tt_verbs_qp *ibv_create_qp(struct tt_verbs_pd *pd, struct tt_verbs_qp_init *init)
{
	struct qp *q = refused("create_qp") ? NULL : calloc(1, sizeof(*q));
	uint32_t i = 0;

	if (!q)
		return NULL;
	if (init->type != TT_VERBS_RC || init->cap.max_inline_data > inline_most() ||
	    init->cap.max_recv_wr > MAX_RECVS || init->cap.max_send_sge > 2) {
		free(q);
		errno = EINVAL;
		return NULL;
	}
	if (init->cap.max_inline_data) /* HCAs grant a little more than the request */
		init->cap.max_inline_data = inline_most();
	count_object(A_QP, 1);
	lock();
	while (i < MAX_QPS - 1 && shared()->qp[i].used)
		i++;
	q->index = i;
	q->base = (struct tt_verbs_qp){ .context = pd->context,
					.pd = pd,
					.send_cq = init->send_cq,
					.recv_cq = init->recv_cq,
					.qp_num = new_number(),
					.type = TT_VERBS_RC };
	shared()->qp[i] = (struct shared_qp){
		.used = true,
		.pid = getpid(),
		.number = q->base.qp_num,
		.context = ((struct fake_verbs_context *)pd->context)->number,
		.pd = pd->handle,
		.pieces = init->cap.max_send_sge,
		.send_depth = init->cap.max_send_wr,
		.recv_depth = init->cap.max_recv_wr,
		.inline_max = init->cap.max_inline_data,
		.lid = lid_of(pd->context),
		.wire = wire_of(((struct fake_verbs_context *)pd->context)->device_index),
		.send_cq = ((struct cq *)init->send_cq)->index,
		.recv_cq = ((struct cq *)init->recv_cq)->index,
	};
	unlock();
	return &q->base;
}

/* RoCE: the source GID has the destination's family. InfiniBand: with GIDs if and only if the port
 * requires them. */
static bool is_route(const struct tt_verbs_ah *ah)
{
	bool v4 = ah->grh.dgid[10] == 0xff;

	if (infiniband())
		return ah->dlid && ah->is_global == wants_grh() &&
		       (!ah->is_global || (ah->grh.dgid[0] == 0xfe && !ah->grh.sgid_index));
	return ah->is_global && v4 == (ah->grh.sgid_index > 1);
}

/* States advance one at a time, each with all attributes that it needs; ERR and RESET are always
 * allowed. */
int ibv_modify_qp(struct tt_verbs_qp *qp, struct tt_verbs_qp_attr *attr, int mask)
{
	static const int needs[] = {
		[TT_VERBS_INIT] = TT_VERBS_QP_PKEY | TT_VERBS_QP_PORT | TT_VERBS_QP_ACCESS,
		[TT_VERBS_RTR] = TT_VERBS_QP_AV | TT_VERBS_QP_MTU | TT_VERBS_QP_DEST |
				 TT_VERBS_QP_RQ_PSN | TT_VERBS_QP_DEST_READS |
				 TT_VERBS_QP_RNR_TIMER,
		[TT_VERBS_RTS] = TT_VERBS_QP_TIMEOUT | TT_VERBS_QP_RETRIES | TT_VERBS_QP_RNR |
				 TT_VERBS_QP_SQ_PSN | TT_VERBS_QP_READS,
	};
	struct shared_qp *q = &shared()->qp[((struct qp *)qp)->index];
	int rc = refused("modify_qp");

	if (rc)
		return rc;
	lock();
	if (attr->qp_state == TT_VERBS_ERR && mask == TT_VERBS_QP_STATE)
		work_stop(q);
	else if (attr->qp_state < TT_VERBS_INIT || attr->qp_state > TT_VERBS_RTS ||
		 attr->qp_state != q->state + 1 ||
		 mask != (needs[attr->qp_state] | TT_VERBS_QP_STATE))
		rc = EINVAL;
	else if (attr->qp_state == TT_VERBS_RTR && !is_route(&attr->ah))
		rc = EINVAL;
	else if (attr->qp_state == TT_VERBS_INIT && attr->pkey_index != (infiniband() ? 2 : 0))
		/* the other partitions have this port as a limited member */
		rc = EINVAL;
	else if (attr->qp_state == TT_VERBS_RTR && (attr->path_mtu < 1 || attr->path_mtu > 5))
		rc = EINVAL;
	else
		q->state = attr->qp_state;
	if (!rc && attr->qp_state == TT_VERBS_RTR) {
		q->dest = attr->dest_qp_num;
		q->dlid = attr->ah.dlid;
	}
	unlock();
	return rc;
}

int ibv_destroy_qp(struct tt_verbs_qp *qp)
{
	int code = refused("destroy_qp");

	if (code)
		return code;
	count_object(A_QP, -1);
	lock();
	shared()->qp[((struct qp *)qp)->index].used = false;
	unlock();
	free(qp);
	return 0;
}
