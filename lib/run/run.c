/*
 * run.c - drive a set of operations to completion
 *
 * Called by api (NULL stream) and host_stream.c (workers). The calling thread does all the work: it
 * advances every operation of the set in turn, each by its way, and when none can move it waits as
 * wait.c decides. A blocking call is a set of one. Collectives of one communicator run one after
 * the other, in call order, and so do messages of one direction of a pair; all other operations of
 * a set run at once.
 */
#include <string.h>

#include "mem/fpmode.h"
#include "run/run.h"
#include "run/staging.h"
#include "run/way.h"

static int symptom(struct tt_op *op, int rc)
{
	if (op->way == &tt_connecting_way)
		return tt_op_error_starting(op, rc);
	return rc == TT_USAGE || rc == TT_REMOTE ? tt_op_error_symptom(op, rc) : rc;
}

static int progress_posts(struct tt_op *op)
{
	struct tt_link *l = op->posts.at[0].link;
	int rc = l->t->progress ? l->t->progress(l->ep) : 0;

	if (rc < 0)
		return rc == TT_REMOTE ? tt_op_error_symptom(op, rc) : rc;
	tt_op_settled(op);
	return rc > 0;
}

static int advance(struct tt_op *op)
{
	int moved = op->way->advance(op), rc;

	if (tt_unlikely(moved < 0))
		return symptom(op, moved);
	if (tt_unlikely(op->posts.n)) {
		rc = progress_posts(op);
		if (rc < 0)
			return rc;
		moved |= rc;
	}
	if (tt_unlikely(op->staging && op->staging->ops->flow) &&
	    (rc = op->staging->ops->flow(op)) < 0)
		return rc;
	if (op->cursors.nfinished == op->cursors.n && op->posts.n == 0) {
		tt_op_finish(op);
		moved = 1;
	}
	return moved;
}

/* Advance each operation once. A complete one leaves the set, and the one after it enters, so a
 * round costs as much as there are operations that can run. > 0 something moved or ended | 0 |
 * < 0 */
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

/* Stop transports from reading and writing the buffers of a failed set. */
static void abandon(const struct tt_op *set)
{
	for (; set; set = set->next)
		for (int i = 0; i < set->comm->paths.nep; i++)
			if (set->comm->paths.ep[i]->t->zcopy_ops)
				set->comm->paths.ep[i]->t->zcopy_ops->abandon(
					set->comm->paths.ep[i]);
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

/* Must one run after the other? */
static bool same_order(const struct tt_request *a, const struct tt_request *b)
{
	bool p2p = a->collective == TT_SENDRECV;

	return a->comm == b->comm && (b->collective == TT_SENDRECV) == p2p &&
	       (!p2p || (a->root == b->root && a->send == b->send));
}

/* Entry of a request in the hash table of the last operation of each order; NULL in it: none yet */
static struct tt_op **entry_of(struct tt_op **last, size_t mask, const struct tt_request *r)
{
	bool p2p = r->collective == TT_SENDRECV;
	uint64_t hash = tt_mix((uintptr_t)r->comm,
			       p2p ? (uint64_t)(uint32_t)r->root * 2 + r->send + 1 : 0);
	size_t i = hash & mask;

	while (last[i] && !same_order(last[i]->call.request, r))
		i = (i + 1) & mask;
	return &last[i];
}

/* Returns the first operation of the set; the others follow by next, or then. */
static struct tt_op *link_set(struct tt_op *ops, size_t n, struct tt_op **last, size_t mask)
{
	struct tt_op *first = NULL, **next = &first;

	memset(last, 0, (mask + 1) * sizeof(*last));
	for (size_t i = 0; i < n; i++) {
		struct tt_op **before = entry_of(last, mask, ops[i].call.request);

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

int tt_run_unbegun(const struct tt_request *requests, size_t n, int code)
{
	for (size_t i = 0; i < n; i++) {
		tt_control_raise(requests[i].comm->ctl, code, -1, tt_error_text());
		tt_comm_failed(requests[i].comm, code);
	}
	return code;
}

/* tiles: of each request that have moved (tt_eager_tiles), or NULL */
static int run_many(const struct tt_request *requests, size_t n, const uint32_t *tiles)
{
	size_t entries = 4, left = 0;
	struct tt_op *ops, **last;
	bool exchanges = false;
	int rc;

	while (entries < 2 * n)
		entries *= 2;
	ops = tt_pool_take(requests[0].comm, n * sizeof(*ops) + entries * sizeof(*last));
	if (!ops)
		return tt_run_unbegun(requests, n,
				      tt_fail(TT_SYSTEM, "no memory for a group of %zu operations",
					      n));
	last = (struct tt_op **)(ops + n);
	for (size_t i = 0; i < n; i++)
		exchanges |= requests[i].collective == TT_SENDRECV && !requests[i].send;
	for (size_t i = 0; i < n; i++) {
		if (tiles && tiles[i] == TT_ALL_TILES)
			continue;
		tt_op_init(&ops[left], &requests[i]);
		ops[left].p2p.exchanges = exchanges;
		ops[left++].p2p.first = tiles ? tiles[i] : 0;
	}
	rc = tt_run(link_set(ops, left, last, entries - 1));
	tt_pool_give(ops);
	return rc;
}

int tt_run_requests(const struct tt_request *requests, size_t n)
{
	bool few = n <= TT_EAGER_MOST;
	uint32_t tiles[TT_EAGER_MOST];
	struct tt_fpmode mode;
	struct tt_op op;
	uint64_t done;
	int rc;

	done = n == 1 ? tt_eager(requests) : tt_eager_set(requests, n);
	if (few && (done == UINT64_MAX >> (64 - n) || tt_eager_tiles(requests, n, done, tiles)))
		return 0;
	mode = tt_fpmode_enter();
	if (tt_likely(n == 1)) {
		tt_op_init(&op, requests);
		op.p2p.first = tiles[0];
		rc = tt_run(&op);
	} else {
		rc = run_many(requests, n, few ? tiles : NULL);
	}
	tt_fpmode_leave(mode);
	return rc;
}
