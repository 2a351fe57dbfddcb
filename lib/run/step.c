/*
 * step.c - execute steps: gather the sources, make room for the result, combine, hand on
 *
 * Called by run.c. Every step of a plan is dst, to <- src[0] op src[1] ..., so one function runs
 * them all:
 *   wire sources    peek: a pointer into the peer's slot, the receive stage, or the sender's buffer
 *   `to`            reserve: a pointer into the slot that the peer will read;
 *                   or, on sockets, post of dst's bytes
 * so a fused receive-reduce-send touches each byte once. A step that lacks anything does nothing
 * and is tried again. Peek and reserve give the same answer until release and commit, so trying
 * again costs no state.
 */
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "run/step.h"

bool tt_op_settled(struct tt_op *op)
{
	uint32_t kept = 0;

	for (uint32_t i = 0; i < op->npending; i++)
		if (op->pending[i].link->completed < op->pending[i].number)
			op->pending[kept++] = op->pending[i];
	op->npending = kept;
	return kept == 0;
}

bool tt_step_needed(struct tt_op *op, const char *p, size_t bytes)
{
	if (tt_likely(op->npending == 0) || tt_op_settled(op))
		return false;
	for (uint32_t i = 0; i < op->npending; i++)
		if (p < op->pending[i].end && op->pending[i].start < p + bytes)
			return true;
	return false;
}

static int post(struct tt_op *op, struct tt_link *l, const char *p, size_t bytes)
{
	int rc;

	if (op->npending == TT_MAX_PENDING) {
		if (l->t->progress)
			l->t->progress(l->ep);
		tt_op_settled(op);
		if (op->npending == TT_MAX_PENDING)
			return 0;
	}
	if (tt_unlikely(op->gdr != NULL) && (rc = tt_gdr_reads(op, p)))
		return rc;
	rc = l->t->post(l, p, bytes, op->stamp);
	if (rc > 0 && l->completed < l->posted)
		op->pending[op->npending++] = (struct tt_pending){ l, l->posted, p, p + bytes };
	return rc;
}

/* Post what was computed into dst. While the queue is full only this is tried again; a plain send
 * has no dst, and nothing to compute. */
static int post_result(struct tt_op *op, struct tt_cursor *cu, struct tt_link *to, const char *dst,
		       const char *src, size_t bytes)
{
	int rc = post(op, to, dst ? dst : src, bytes);

	cu->computed = rc == 0 && dst;
	return rc;
}

void tt_fault(tuttiComm_t c)
{
	if (++c->steps != c->fault_step)
		return;
	if (c->fault_what[0] == 'e')
		_exit(3);
	kill(getpid(), c->fault_what[0] == 'k' ? SIGKILL : SIGSTOP);
}

/* 0 | TT_CUDA */
static int compute(struct tt_op *op, const struct tt_step *s, char *dst, char *room,
		   const void **src, size_t bytes)
{
	if (tt_unlikely(op->gdr != NULL))
		return tt_gdr_move(op, dst, room, src[0], bytes);
	if (s->op == TT_COMBINE) {
		if (dst)
			op->reduce(dst, room, src, s->nsrc, bytes / op->element_bytes);
		else
			op->reduce(room, NULL, src, s->nsrc, bytes / op->element_bytes);
		return 0;
	}
	if (room)
		memcpy(room, src[0], bytes);
	if (dst && dst != src[0])
		tt_op_copy(op, tt_ref_buf(s->dst), dst, src[0], bytes);
	return 0;
}

/* A message that only has to land, and perhaps be posted on:
 * sockets put it in place without a stage. */
static int receive(struct tt_op *op, struct tt_cursor *cu, const struct tt_step *s,
		   struct tt_link *l, size_t bytes)
{
	char *dst = tt_step_address(op, cu, s->dst);
	int rc;

	if (tt_step_needed(op, dst, bytes))
		return 0;
	rc = l->t->recv(l, dst, bytes, op->stamp);
	if (rc > 0) {
		op->comm->last_received[l->peer] = op->comm->seq;
		tt_fault_point(op->comm);
	}
	return rc;
}

/* No room: because the peer has not drained enough, or because the transport has failed, which it
 * says in progress. */
static int refused(const struct tt_link *to)
{
	int rc = to->t->progress ? to->t->progress(to->ep) : 0;

	return rc < 0 ? rc : 0;
}

/* Can the message be sent from a place where it lies, or will lie in any case? Then it needs no
 * room of the transport's. */
static bool lies_ready(const struct tt_op *op, const struct tt_cursor *cu, const struct tt_step *s,
		       struct tt_link *to, const char *dst, size_t bytes)
{
	const char *p = s->flags & TT_STEP_PASSING ? NULL : dst;

	if (!to->t->zcopy_ops || bytes < TT_LARGE_BYTES)
		return false;
	if (!dst && s->op == TT_COPY && tt_ref_buf(s->src[0]) != TT_WIRE)
		p = tt_step_address(op, cu, s->src[0]);
	return p && to->t->zcopy_ops->can_send(to, p, bytes);
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
	if (to && (to->t->flags & TT_T_RESERVE) && !lies_ready(op, cu, s, to, dst, bytes) &&
	    !(room = to->t->reserve(to, bytes)))
		return refused(to);
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
		if (op->preposts && s->op == TT_COPY && dst && from[wires]->t->zcopy_ops &&
		    !tt_step_needed(op, dst, bytes))
			from[wires]->t->zcopy_ops->prepost(from[wires], 0, dst, bytes, op->stamp);
		rc = from[wires]->t->peek(from[wires], bytes, op->stamp, &src[i]);
		if (rc <= 0)
			return rc;
		wires++;
	}
	if (dst && tt_step_needed(op, dst, bytes))
		return 0;
	tt_fault_point(op->comm);
	rc = compute(op, s, room && (s->flags & TT_STEP_PASSING) ? NULL : dst, room, src, bytes);
	if (tt_unlikely(rc))
		return rc;
	while (wires > 0) {
		wires--;
		op->comm->last_received[from[wires]->peer] = op->comm->seq;
		from[wires]->t->release(from[wires]);
	}
	if (room)
		to->t->commit(to, bytes, op->stamp);
	return !to || room ? 1 : post_result(op, cu, to, dst, src[0], bytes);
}

/* Has the lane that this step waits for passed that step in this tile? */
static bool may_start(const struct tt_op *op, const struct tt_cursor *cu, const struct tt_step *s)
{
	const struct tt_cursor *other;

	if (tt_unlikely(op->pipeline != NULL) && !tt_pipeline_open(op, cu->tile))
		return false;
	if (tt_likely(s->wait_lane == TT_NO_LANE))
		return true;
	other = &op->cursor[s->wait_lane * op->width + cu->tile % op->width];
	return other->finished || other->tile > cu->tile ||
	       (other->tile == cu->tile && other->step > s->wait_step);
}

static void step_on(struct tt_op *op, struct tt_cursor *cu, const struct tt_step *s)
{
	cu->step += s->op == TT_COMBINE && s->nsrc > 2 ? 2 : 1;
	if (cu->step < op->plan->lanes[cu->lane].nsteps)
		return;
	cu->step = 0;
	cu->tile += op->width;
	if (cu->tile >= op->ntiles) {
		cu->finished = true;
		op->nfinished++;
	}
}

/* Through a row message by message: the first of each of its steps, the second of each, ... Most
 * rows are one step. */
static void move_on(struct tt_op *op, struct tt_cursor *cu, const struct tt_step *s,
		    uint32_t nblocks)
{
	cu->more |= s->nblocks > cu->sub + nblocks;
	if (s->flags & TT_STEP_INTERLEAVED) {
		step_on(op, cu, s);
	} else if (cu->more) {
		cu->more = false;
		cu->sub += op->group;
		cu->step = cu->row;
	} else {
		cu->sub = 0;
		step_on(op, cu, s);
		cu->row = cu->step;
	}
}

int tt_cursor_advance(struct tt_op *op, struct tt_cursor *cu)
{
	const struct tt_lane *lane = &op->plan->lanes[cu->lane];
	int moved = 0;

	if (lane->nsteps == 0) {
		cu->finished = true;
		op->nfinished++;
		return 1;
	}
	if (op->preposts)
		tt_prepost(op, cu);
	while (!cu->finished) {
		const struct tt_step *s = &op->plan->steps[lane->first + cu->step];
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
		if (op->preposts)
			tt_prepost(op, cu);
	}
	return 1;
}

static struct tt_link *awaited_link(const struct tt_op *op, const struct tt_cursor *cu)
{
	const struct tt_step *s = &op->plan->steps[op->plan->lanes[cu->lane].first + cu->step];
	const void *data;

	if (cu->finished || s->op == TT_NOP || !may_start(op, cu, s))
		return NULL;
	for (int i = 0; !cu->computed && i < s->nsrc; i++) {
		tt_ref r = tt_step_source(s, i);
		struct tt_link *l = tt_ref_buf(r) == TT_WIRE ? tt_step_link(op, cu, r) : NULL;
		size_t bytes = tt_step_bytes(op, cu, s, tt_step_blocks(op, cu, s));

		if (l && ((s->op == TT_COPY && l->t->recv) ||
			  l->t->peek(l, bytes, op->stamp, &data) <= 0))
			return l;
	}
	return tt_ref_buf(s->to) == TT_WIRE ? tt_step_link(op, cu, s->to) : NULL;
}

int tt_op_waits_for(const struct tt_op *op, uint32_t i, struct tt_endpoint **ret_ep)
{
	const struct tt_link *l;

	if (op->express || op->direct) {
		*ret_ep = op->comm->slots;
		return op->awaited;
	}
	l = awaited_link(op, &op->cursor[i]);
	*ret_ep = l ? l->ep : NULL;
	return l ? l->peer : -1;
}
