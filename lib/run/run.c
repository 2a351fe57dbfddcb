/*
 * run.c - drive a set of operations to completion
 *
 * Called by api (NULL stream) and stream.c (workers). The calling thread does all the work: it walks the cursors of
 * every operation of the set in turn, and when none can move it waits as wait.c decides. A blocking call is a set of
 * one. Collectives of one communicator run one after the other, in call order; everything else of a set runs at once.
 *
 * Turns: once a stream was used with a communicator, several threads may want to run its operations. Each request
 * then draws a ticket when it is made, and runs when its number is served.
 */
#include <string.h>

#include "run/run.h"

static int advance(struct tt_op *op)
{
	int moved = 0;

	for (uint32_t i = 0; i < op->ncursors; i++) {
		int rc = op->cursor[i].finished ? 0 : op->express ? tt_express_advance(op) :
			 op->direct ? tt_direct_advance(op) : tt_cursor_advance(op, &op->cursor[i]);

		if (tt_unlikely(rc < 0))
			return rc == TT_USAGE || rc == TT_REMOTE ? tt_trouble_symptom(op, rc) : rc;
		moved |= rc;
	}
	if (tt_unlikely(op->npending)) {
		struct tt_link *l = op->pending[0].link;
		int rc = l->t->progress ? l->t->progress(l->ep) : 0;

		if (rc < 0)
			return rc == TT_REMOTE ? tt_trouble_symptom(op, rc) : rc;
		moved |= rc > 0;
		tt_op_settled(op);
	}
	if (op->nfinished == op->ncursors && op->npending == 0) {
		tt_op_finish(op);
		moved = 1;
	}
	return moved;
}

/* > 0 something moved or ended | 0 | < 0; *ret_live: operations not complete */
static int round_of(struct tt_op *set, int *ret_live)
{
	int moved = 0, live = 0, rc;

	for (struct tt_op *op = set; op; op = op->next) {
		if (op->complete)
			continue;
		live++;
		if (!op->started) {
			if (op->after && !op->after->complete)
				continue;
			rc = tt_op_start(op);
			if (rc)
				return tt_trouble_starting(op, rc);
		}
		rc = advance(op);
		if (rc < 0)
			return rc;
		moved |= rc;
		live -= op->complete;
	}
	*ret_live = live;
	return moved;
}

int tt_run(struct tt_op *set)
{
	struct tt_wait w = { 0 };
	int live, rc = 0;

	for (struct tt_op *op = set; op && !rc; op = op->next)
		if (tt_control_broken(op->comm->ctl))
			rc = tt_trouble_broken(op);
	while (!rc) {
		rc = round_of(set, &live);
		if (rc < 0 || live == 0)
			break;
		if (rc > 0) {
			tt_wait_reset(&w, set);
			rc = 0;
		} else {
			rc = tt_wait_idle(&w, set);
		}
	}
	tt_wait_reset(&w, set);
	if (tt_unlikely(rc < 0))
		tt_trouble_spread(set, rc);
	return rc < 0 ? rc : 0;
}

/* Who must come before whom in a set: collectives of a communicator, messages of one direction of a pair. */
static struct tt_op *predecessor(struct tt_op *ops, size_t i)
{
	const struct tt_request *r = ops[i].request;

	while (i > 0) {
		const struct tt_request *q = ops[--i].request;
		bool p2p = r->collective == TT_SENDRECV;

		if (q->comm == r->comm && (q->collective == TT_SENDRECV) == p2p &&
		    (!p2p || (q->root == r->root && q->send == r->send)))
			return &ops[i];
	}
	return NULL;
}

static int run_many(const struct tt_request *requests, size_t n)
{
	struct tt_op *ops = tt_spare_take(requests[0].comm, n * sizeof(*ops));
	int rc;

	if (!ops)
		return tt_fail(TT_SYSTEM, "no memory for a group of %zu operations", n);
	for (size_t i = 0; i < n; i++) {
		tt_op_init(&ops[i], &requests[i]);
		ops[i].after = predecessor(ops, i);
		ops[i].next = i + 1 < n ? &ops[i + 1] : NULL;
	}
	rc = tt_run(ops);
	tt_spare_give(ops);
	return rc;
}

int tt_run_requests(const struct tt_request *requests, size_t n)
{
	struct tt_fpmode mode;
	struct tt_op op;
	int rc;

	mode = tt_fpmode_enter();
	if (tt_likely(n == 1)) {
		tt_op_init(&op, requests);
		rc = tt_run(&op);
	} else {
		rc = run_many(requests, n);
	}
	tt_fpmode_leave(mode);
	return rc;
}
