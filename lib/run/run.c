/*
 * run.c - drive a set of operations to completion
 *
 * Called by api (NULL stream) and host_stream.c (workers). The calling thread does all
 * the work: it walks the cursors of every operation of the set in turn, and when
 * none can move it waits as wait.c decides. A blocking call is a set of one.
 * Collectives of one communicator run one after the other, in call order, and
 * messages of one direction of a pair; everything else of a set runs at once.
 *
 * Turns: once a stream was used with a communicator, several threads may want to run its
 * operations. Each request then draws a ticket when it is made, and runs when its number is served.
 */
#include <string.h>

#include "run/run.h"

static int advance(struct tt_op *op)
{
	int moved = 0;

	for (uint32_t i = 0; i < op->ncursors; i++) {
		int rc = op->cursor[i].finished ? 0 : op->express ? tt_express_advance(op) :
			 op->direct ? tt_single_copy_advance(op) : tt_cursor_advance(op, &op->cursor[i]);

		if (tt_unlikely(rc < 0))
			return rc == TT_USAGE || rc == TT_REMOTE ? tt_op_error_symptom(op, rc) : rc;
		moved |= rc;
	}
	if (tt_unlikely(op->npending)) {
		struct tt_link *l = op->pending[0].link;
		int rc = l->t->progress ? l->t->progress(l->ep) : 0;

		if (rc < 0)
			return rc == TT_REMOTE ? tt_op_error_symptom(op, rc) : rc;
		moved |= rc > 0;
		tt_op_settled(op);
	}
	if (tt_unlikely(op->pipeline != NULL)) {
		int rc = tt_pipeline_flow(op);

		if (rc < 0)
			return rc;
	}
	if (op->nfinished == op->ncursors && op->npending == 0) {
		tt_op_finish(op);
		moved = 1;
	}
	return moved;
}

/* Each once. What is complete leaves the set, and lets what waited for it in: so a round takes as
 * long as there are operations that can run. > 0 something moved or ended | 0 | < 0 */
static int round_of(struct tt_op **set)
{
	int moved = 0, rc;

	for (struct tt_op **at = set, *op; (op = *at);) {
		if (!op->started && (rc = tt_op_start(op)))
			return tt_op_error_starting(op, rc);
		rc = advance(op);
		if (rc < 0)
			return rc;
		moved |= rc;
		if (!op->complete) {
			at = &op->next;
		} else if (op->then) {
			op->then->next = op->next;
			*at = op->then;
		} else {
			*at = op->next;
		}
	}
	return moved;
}

/* Its buffers are the caller's again. */
static void abandon(const struct tt_op *set)
{
	for (; set; set = set->next)
		for (int i = 0; i < set->comm->nep; i++)
			if (set->comm->ep[i]->t->zcopy_ops)
				set->comm->ep[i]->t->zcopy_ops->abandon(set->comm->ep[i]);
}

int tt_run(struct tt_op *set)
{
	struct tt_wait w = { .comm = set->comm };
	int rc = 0;

	for (struct tt_op *op = set; op && !rc; op = op->next)
		if (tt_control_broken(op->comm->ctl))
			rc = tt_op_error_broken(op);
	while (!rc && set) {
		rc = round_of(&set);
		if (rc > 0) {
			tt_wait_reset(&w);
			rc = 0;
		} else if (rc == 0 && set) {
			rc = tt_wait_idle(&w, set);
		}
	}
	tt_wait_reset(&w);
	if (tt_unlikely(rc < 0)) {
		tt_op_error_spread(set, rc);
		abandon(set);
	}
	return rc < 0 ? rc : 0;
}

/* ---- groups ---------------------------------------------------------------------------------- */

/* Must one come after the other? */
static bool same_row(const struct tt_request *a, const struct tt_request *b)
{
	bool p2p = a->collective == TT_SENDRECV;

	return a->comm == b->comm && (b->collective == TT_SENDRECV) == p2p &&
	       (!p2p || (a->root == b->root && a->send == b->send));
}

/* The place of request in a table of the last operation of each row: there, or where it is to be */
static struct tt_op **place_of(struct tt_op **last, size_t mask, const struct tt_request *r)
{
	bool p2p = r->collective == TT_SENDRECV;
	uint64_t hash =
		tt_mix((uintptr_t)r->comm, p2p ? (uint64_t)(uint32_t)r->root * 2 + r->send + 1 : 0);
	size_t i = hash & mask;

	while (last[i] && !same_row(last[i]->request, r))
		i = (i + 1) & mask;
	return &last[i];
}

/* Returns the first of the set; the others follow by next, or then. */
static struct tt_op *line_up(struct tt_op *ops, size_t n, struct tt_op **last, size_t mask)
{
	struct tt_op *first = NULL, **next = &first;

	memset(last, 0, (mask + 1) * sizeof(*last));
	for (size_t i = 0; i < n; i++) {
		struct tt_op **before = place_of(last, mask, ops[i].request);

		if (*before) {
			(*before)->then = &ops[i];
		} else {
			*next = &ops[i];
			next = &ops[i].next;
		}
		*before = &ops[i];
	}
	return first;
}

/* The peer of a message, -1: of a collective */
static int peer_of(const struct tt_op *op)
{
	return op->request->collective == TT_SENDRECV ? op->request->root : -1;
}

static bool is_connected(const struct tt_op *op)
{
	tuttiComm_t c = op->comm;
	struct tt_link **links = c->path[c->p2p_path].links + TT_P2P_CHANNEL * c->nranks,
		       *l = peer_of(op) < 0 ? NULL : links[peer_of(op)];

	return peer_of(op) < 0 || (l && l->t->ready(l) > 0);
}

/* A start waits for its link, which may need the peer to wait for the same. If each rank of a ring
 * began with the next, none would come; so all begin with the lowest of their peers. */
static struct tt_op *by_peer(struct tt_op *set)
{
	struct tt_op *sorted = NULL, **at, *op, *next;

	for (op = set; op && is_connected(op);)
		op = op->next;
	if (!op)
		return set;
	for (op = set; op; op = next) {
		next = op->next;
		for (at = &sorted; *at && peer_of(*at) <= peer_of(op);)
			at = &(*at)->next;
		op->next = *at;
		*at = op;
	}
	return sorted;
}

static int run_many(const struct tt_request *requests, size_t n)
{
	size_t places = 4;
	struct tt_op *ops, **last;
	int rc;

	while (places < 2 * n)
		places *= 2;
	ops = tt_pool_take(requests[0].comm, n * sizeof(*ops) + places * sizeof(*last));
	if (!ops)
		return tt_fail(TT_SYSTEM, "no memory for a group of %zu operations", n);
	last = (struct tt_op **)(ops + n);
	for (size_t i = 0; i < n; i++)
		tt_op_init(&ops[i], &requests[i]);
	rc = tt_run(by_peer(line_up(ops, n, last, places - 1)));
	tt_pool_give(ops);
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
