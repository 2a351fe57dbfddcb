/*
 * step.c - execute steps: find the sources, reserve room for the result, combine, send on
 *
 * Called by message_way.c. Every step of a plan is dst, to <- src[0] op src[1] ..., so one function
 * executes all of them:
 *   wire sources    peek: a pointer into the peer's slot, the receive buffer, or the sender's
 *                   buffer
 *   `to`            reserve: a pointer into the slot that the peer will read;
 *                   or, on sockets, post of dst's bytes
 * A fused receive-reduce-send therefore touches each byte once. A step that lacks a message or room
 * does nothing and is tried again. Peek and reserve give the same answer until release and commit,
 * so trying again costs no state.
 */
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "mem/peer_lines.h"
#include "run/staging.h"
#include "run/step.h"

bool tt_op_settled(struct tt_op *op)
{
	uint32_t left = 0;

	for (uint32_t i = 0; i < op->posts.n; i++)
		if (op->posts.at[i].link->completed < op->posts.at[i].number)
			op->posts.at[left++] = op->posts.at[i];
	op->posts.n = left;
	return left == 0;
}

bool tt_step_needed(struct tt_op *op, const char *p, size_t bytes)
{
	if (tt_likely(op->posts.n == 0) || tt_op_settled(op))
		return false;
	for (uint32_t i = 0; i < op->posts.n; i++)
		if (p < op->posts.at[i].end && op->posts.at[i].start < p + bytes)
			return true;
	return false;
}

static int post(struct tt_op *op, struct tt_link *l, const char *p, size_t bytes)
{
	int rc;

	if (op->posts.n == TT_MAX_PENDING) {
		if (l->t->progress)
			l->t->progress(l->ep);
		tt_op_settled(op);
		if (op->posts.n == TT_MAX_PENDING)
			return 0;
	}
	if (tt_unlikely(op->staging && op->staging->ops->before_send) &&
	    (rc = op->staging->ops->before_send(op, p)))
		return rc;
	rc = l->t->post(l, p, bytes, op->call.stamp);
	if (rc > 0 && l->completed < l->posted)
		op->posts.at[op->posts.n++] = (struct tt_pending){ l, l->posted, p, p + bytes };
	return rc;
}

/* Post the result in dst. While the queue is full, only the post is tried again. A plain send has
 * no dst and nothing to compute, so its source is posted. */
static int post_result(struct tt_op *op, struct tt_cursor *cu, struct tt_link *to, const char *dst,
		       const char *src, size_t bytes)
{
	int rc = post(op, to, dst ? dst : src, bytes);

	cu->computed = rc == 0 && dst;
	return rc;
}

void tt_fault(tuttiComm_t c)
{
	if (++c->fault.steps != c->fault.step)
		return;
	if (c->fault.what[0] == 'e')
		_exit(3);
	kill(getpid(), c->fault.what[0] == 'k' ? SIGKILL : SIGSTOP);
}

int tt_fault_get(tuttiComm_t c, struct tt_link *l, void *dst, size_t bytes, uint32_t stamp,
		 bool keep)
{
	const void *data;
	int rc = l->t->peek(l, bytes, stamp, &data);

	if (rc > 0) {
		tt_fault(c);
		rc = l->t->get(l, dst, bytes, stamp, keep);
	}
	return rc;
}

/* shared: a source is shared memory that a peer has written. 0 | TT_CUDA */
static int compute(struct tt_op *op, const struct tt_step *s, char *dst, char *room,
		   const void **src, size_t bytes, bool shared)
{
	char *to = dst ? dst : room, *to2 = dst ? room : NULL;
	size_t width = op->bound.element_bytes;

	if (tt_unlikely(op->staging && op->staging->ops->move))
		return op->staging->ops->move(op, dst, room, src[0], bytes);
	if (s->op == TT_COMBINE) {
		if (shared)
			tt_reduce_from_peer(op->bound.reduce, to, to2, src, s->nsrc, bytes, width);
		else
			op->bound.reduce(to, to2, src, s->nsrc, bytes / width);
		return 0;
	}
	if (room)
		tt_stores_copy(&op->stores, room, src[0], bytes);
	if (dst && dst != src[0])
		tt_op_copy(op, tt_ref_buf(s->dst), dst, src[0], bytes);
	return 0;
}

/* Receive a message that is only copied, and perhaps posted on: sockets write it to dst without a
 * stream buffer. */
static int receive(struct tt_op *op, struct tt_cursor *cu, const struct tt_step *s,
		   struct tt_link *l, size_t bytes)
{
	char *dst = tt_step_address(op, cu, s->dst);
	int rc;

	if (tt_step_needed(op, dst, bytes))
		return 0;
	rc = l->t->recv(l, dst, bytes, op->call.stamp);
	if (rc > 0) {
		op->comm->calls.last_received[l->peer] = op->comm->calls.seq;
		tt_fault_point(op->comm);
	}
	return rc;
}

/* Reserve gave no room: the peer has not drained enough, or the transport has failed, which
 * progress reports. 1: there is room now | 0 | < 0 */
static int no_room(struct tt_link *to, size_t bytes, char **ret_room)
{
	int rc = to->t->progress ? to->t->progress(to->ep) : 0;

	if (rc > 0)
		rc = (*ret_room = to->t->reserve(to, bytes)) != NULL;
	return rc;
}

/* Can the message be sent by zero copy, from its source or from dst, where it is written in any
 * case? Then no room is reserved. */
static bool takes_zcopy(const struct tt_op *op, const struct tt_cursor *cu, const struct tt_step *s,
			struct tt_link *to, const char *dst, size_t bytes)
{
	const char *p = s->flags & TT_STEP_PASSING ? NULL : dst;

	if (!to->t->zcopy_ops || bytes < TT_LARGE_BYTES)
		return false;
	if (!dst && s->op == TT_COPY && tt_ref_buf(s->src[0]) != TT_WIRE)
		p = tt_step_address(op, cu, s->src[0]);
	return p && to->t->zcopy_ops->can_send(to, p, bytes);
}

/* Does a step only copy a message from shared memory to this rank? */
static bool takes(const struct tt_op *op, const struct tt_step *s, const struct tt_link *from,
		  const char *dst, const char *room)
{
	return s->op == TT_COPY && from->t->get && dst && !room && !op->staging && !op->bound.past;
}

static int take(struct tt_op *op, struct tt_link *from, char *dst, size_t bytes)
{
	int rc;

	if (tt_step_needed(op, dst, bytes))
		return 0;
	rc = tt_fault_point_get(op->comm, from, dst, bytes, op->call.stamp,
				op->call.request->collective == TT_SENDRECV);
	if (rc > 0)
		op->comm->calls.last_received[from->peer] = op->comm->calls.seq;
	return rc;
}

static int execute(struct tt_op *op, struct tt_cursor *cu, const struct tt_step *s, size_t bytes)
{
	struct tt_link *to = tt_ref_buf(s->to) == TT_WIRE ? tt_step_link(op, cu, s->to) : NULL,
		       *from[TT_MAX_SOURCES];
	char *dst = tt_ref_buf(s->dst) != TT_NONE ? tt_step_address(op, cu, s->dst) : NULL,
	     *room = NULL;
	const void *src[TT_MAX_SOURCES];
	int rc, wires = 0;

	if (cu->computed)
		return post_result(op, cu, to, dst, NULL, bytes);
	if (to && (to->t->flags & TT_T_RESERVE) && !takes_zcopy(op, cu, s, to, dst, bytes) &&
	    !(room = to->t->reserve(to, bytes)) && (rc = no_room(to, bytes, &room)) <= 0)
		return rc;
	for (int i = 0; i < s->nsrc; i++) {
		tt_ref r = i < 2 ? s->src[i] : tt_step_source(s, i);

		if (tt_ref_buf(r) != TT_WIRE) {
			src[i] = tt_step_address(op, cu, r);
			continue;
		}
		from[wires] = tt_step_link(op, cu, r);
		if (s->op == TT_COPY && !room && from[wires]->t->recv) {
			rc = receive(op, cu, s, from[wires], bytes);
			return rc > 0 && to ? post_result(op, cu, to, dst, NULL, bytes) : rc;
		}
		if (takes(op, s, from[wires], dst, room)) {
			rc = take(op, from[wires], dst, bytes);
			return rc > 0 && to ? post_result(op, cu, to, dst, NULL, bytes) : rc;
		}
		if (op->cursors.preposts && s->op == TT_COPY && dst && from[wires]->t->zcopy_ops &&
		    from[wires]->t->zcopy_ops->prepost && !tt_step_needed(op, dst, bytes))
			from[wires]->t->zcopy_ops->prepost(from[wires], 0, dst, bytes,
							   op->call.stamp);
		rc = from[wires]->t->peek(from[wires], bytes, op->call.stamp, &src[i]);
		if (rc <= 0)
			return rc;
		wires++;
	}
	if (dst && tt_step_needed(op, dst, bytes))
		return 0;
	tt_fault_point(op->comm);
	rc = compute(op, s, room && (s->flags & TT_STEP_PASSING) ? NULL : dst, room, src, bytes,
		     wires && from[0]->t->get);
	if (tt_unlikely(rc < 0))
		return rc;
	while (wires > 0) {
		wires--;
		op->comm->calls.last_received[from[wires]->peer] = op->comm->calls.seq;
		from[wires]->t->release(from[wires]);
	}
	if (room) {
		to->nontemporal = op->stores.nontemporal && s->op == TT_COPY;
		rc = to->t->commit(to, bytes, op->call.stamp);
		return tt_unlikely(rc < 0) ? rc : 1;
	}
	return !to ? 1 : post_result(op, cu, to, dst, src[0], bytes);
}

/* Has the lane that this step waits for passed that step in this tile? */
static bool may_start(const struct tt_op *op, const struct tt_cursor *cu, const struct tt_step *s)
{
	uint32_t width = op->bound.tiles.width;
	const struct tt_cursor *other;

	if (tt_unlikely(op->staging != NULL) && !tt_staging_arrived(op, cu->tile))
		return false;
	if (tt_likely(s->wait_lane == TT_NO_LANE))
		return true;
	other = &op->cursors.at[s->wait_lane * width + cu->tile % width];
	return other->finished || other->tile > cu->tile ||
	       (other->tile == cu->tile && other->step > s->wait_step);
}

static void step_on(struct tt_op *op, struct tt_cursor *cu, const struct tt_step *s)
{
	cu->step += s->op == TT_COMBINE && s->nsrc > 2 ? 2 : 1;
	if (cu->step < op->bound.plan->lanes[cu->lane].nsteps)
		return;
	cu->step = 0;
	cu->tile += op->bound.tiles.width;
	if (cu->tile >= op->bound.tiles.ntiles) {
		cu->finished = true;
		op->cursors.nfinished++;
	}
}

/* Rows are executed message by message: the first message of each of its steps, then the second of
 * each, ... Most rows are one step. */
static void move_on(struct tt_op *op, struct tt_cursor *cu, const struct tt_step *s,
		    uint32_t nblocks)
{
	cu->more |= s->nblocks > cu->sub + nblocks;
	if (s->flags & TT_STEP_INTERLEAVED) {
		step_on(op, cu, s);
	} else if (cu->more) {
		cu->more = false;
		cu->sub += op->bound.tiles.group;
		cu->step = cu->row;
	} else {
		cu->sub = 0;
		step_on(op, cu, s);
		cu->row = cu->step;
	}
}

int tt_cursor_advance(struct tt_op *op, struct tt_cursor *cu)
{
	const struct tt_lane *lane = &op->bound.plan->lanes[cu->lane];
	int moved = 0;

	if (lane->nsteps == 0) {
		cu->finished = true;
		op->cursors.nfinished++;
		return 1;
	}
	if (op->cursors.preposts)
		tt_prepost(op, cu);
	while (!cu->finished) {
		const struct tt_step *s = &op->bound.plan->steps[lane->first + cu->step];
		uint32_t nblocks = s->op == TT_NOP ? s->nblocks : tt_step_blocks(op, cu, s);
		size_t bytes;

		if (!may_start(op, cu, s))
			return moved;
		bytes = s->op == TT_NOP || !nblocks ? 0 : tt_step_bytes(op, cu, s, nblocks);
		if (bytes) {
			int rc = execute(op, cu, s, bytes);

			if (rc <= 0)
				return rc < 0 ? rc : moved;
			moved = 1;
		}
		move_on(op, cu, s, nblocks);
		if (op->cursors.preposts)
			tt_prepost(op, cu);
	}
	return 1;
}

/* For the sentence of an error; NULL: the operation could not connect */
static struct tt_link *link_if_any(const struct tt_op *op, const struct tt_cursor *cu, tt_ref wire)
{
	return tt_path_link(op->bound.path, cu->channel, (int)tt_ref_index(wire));
}

static struct tt_link *awaited_link(const struct tt_op *op, const struct tt_cursor *cu)
{
	const struct tt_plan *plan = op->bound.plan;
	const struct tt_step *s = &plan->steps[plan->lanes[cu->lane].first + cu->step];
	const void *data;

	if (cu->finished || s->op == TT_NOP || !may_start(op, cu, s))
		return NULL;
	for (int i = 0; !cu->computed && i < s->nsrc; i++) {
		tt_ref r = tt_step_source(s, i);
		struct tt_link *l = tt_ref_buf(r) == TT_WIRE ? link_if_any(op, cu, r) : NULL;
		size_t bytes = tt_step_bytes(op, cu, s, tt_step_blocks(op, cu, s));

		if (l && ((s->op == TT_COPY && l->t->recv) ||
			  l->t->peek(l, bytes, op->call.stamp, &data) <= 0))
			return l;
	}
	return tt_ref_buf(s->to) == TT_WIRE ? link_if_any(op, cu, s->to) : NULL;
}

int tt_cursor_waits_for(const struct tt_op *op, uint32_t i, struct tt_endpoint **ret_ep)
{
	const struct tt_link *l = awaited_link(op, &op->cursors.at[i]);

	*ret_ep = l ? l->ep : NULL;
	return l ? l->peer : -1;
}
